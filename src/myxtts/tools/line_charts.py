"""Line charts of the pages: curves as data, which `charts.js` draws in the browser with uPlot.

A chart has axis titles, values under the pointer, zoom by dragging (a double click resets it), a switch between linear
and logarithmic scale, and a legend that switches curves on and off. uPlot is inside the package (`tools/uplot`), so
that a page needs no network. A reader without JavaScript sees the last value of each curve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from myxtts.tools.page import NOTHING, Html, embed_json, escape
from myxtts.tools.words import Translator

Values = NDArray[np.float64]
MAX_POINTS = 1500
"""Points of a curve on a page: a chart is a few hundred pixels wide, so more would only make the page larger."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Values over ascending steps, without those that are not finite. A long noisy curve gets a moving average.

    `key` names the curve for points that are added later, on a page that grows.
    """

    label: str
    steps: Sequence[float]
    values: Sequence[float]
    is_noisy: bool = True
    key: str = ""


def draw_curves(curves: Sequence[Curve], tr: Translator, *, x: str = "", unit: str = "", chart_id: str = "") -> Html:
    """Returns the markup of a chart whose curves share both axes; `x` and `unit` are the titles of the axes.

    Empty where no curve has a point, unless `chart_id` names a chart whose points come later.
    """
    clean = [(curve, *_clean(curve)) for curve in curves]
    if not chart_id:
        clean = [(curve, steps, values) for curve, steps, values in clean if len(steps)]
    if not clean:
        return NOTHING
    x = x or tr("step")
    spec = {
        "x": x,
        "unit": unit,
        "curves": [
            {
                "key": curve.key,
                "label": curve.label,
                "noisy": curve.is_noisy,
                "x": _shorten(steps),
                "y": _shorten(values),
            }
            for curve, steps, values in clean
        ],
    }
    last = " · ".join(
        f"{escape(curve.label)}: {escape(f'{tr.number(float(values[-1]))} {unit}'.strip())} ({escape(x)} "
        f"{escape(tr.tick(float(steps[-1])))})"
        for curve, steps, values in clean
        if len(steps)
    )
    name = f' id="{escape(chart_id)}"' if chart_id else ""
    without = f"{escape(tr('This chart needs JavaScript. Last values:'))} {last}"
    note = f'<noscript><p class="note">{without}</p></noscript>'
    return Html(f'<div class="chart"{name}>{embed_json(spec)}{note}</div>')


def thin(steps: Values, values: Values, max_points: int = MAX_POINTS) -> tuple[Values, Values]:
    """Keeps the lowest and the highest value of each part of a long curve, so that no spike is lost."""
    if len(steps) <= max_points:
        return steps, values
    chosen: set[int] = {0, len(steps) - 1}
    for part in np.array_split(np.arange(len(steps)), max_points // 2 - 1):
        chosen |= {int(part[values[part].argmin()]), int(part[values[part].argmax()])}
    places = sorted(chosen)
    return steps[places], values[places]


def _clean(curve: Curve) -> tuple[Values, Values]:
    steps, values = np.asarray(curve.steps, np.float64), np.asarray(curve.values, np.float64)
    is_finite = np.isfinite(steps) & np.isfinite(values)
    return thin(steps[is_finite], values[is_finite])


def _shorten(values: Values) -> list[float]:
    """Numbers with six digits, which is more than a chart can show; whole ones without a point."""
    return [
        int(value) if value == math.floor(value) and abs(value) < 1e15 else float(f"{value:.6g}") for value in values
    ]
