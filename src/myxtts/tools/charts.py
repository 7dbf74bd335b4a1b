"""Charts: line charts, bars and flame charts as inline SVG or HTML, and sparklines and tables for terminals.

Charts of a page take their colours from the style sheet of `tools.page` (classes c0 to c5), so that they follow light
and dark mode. All labels are escaped here. Nothing is drawn with a plotting library: pages stay small and need no
JavaScript.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from myxtts.tools.page import NOTHING, Html, escape, join

Format = Callable[[float], str]
"""Writes a number of an axis or legend, usually `Translator.tick` or `Translator.share`."""
Values = NDArray[np.float64]

_NUM_COLOURS = 6
"""Classes c0 to c5 of the style sheet; further curves start again at c0."""
_WIDTH, _HEIGHT = 520, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 10, 8, 24
"""Size of a line chart and its margins, in units of the SVG."""
_MAX_POINTS = 300
"""Points of one path: a chart is 520 units wide, so more of them would only make the page larger."""
_SMOOTHED_FROM = 60
"""Curves of fewer values are drawn as they are."""
_SMOOTHED_SHARE = 0.03
"""Window of the moving average, as a share of the values."""
_NUM_TICKS = 5
_FLAME_WIDTH, _ROW, _GAP = 1000, 30, 2
"""Width of a flame chart, height of its bars and distance between them, in units of the SVG."""
_LETTER_WIDTH = 7.0
"""Assumed width of a letter at the 12.5 px of bar labels: text cannot be measured before a browser draws it."""
_LEAST_WIDTH = 1.5
"""Narrower bars of a flame chart are left out, with all bars inside them."""
_BLOCKS, _ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
"""Levels of a sparkline, lowest first; the second set is for terminals without Unicode."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Values over ascending steps, without those that are not finite. A long noisy curve gets a moving average."""

    label: str
    steps: Sequence[float]
    values: Sequence[float]
    is_noisy: bool = True


def draw_curves(curves: Sequence[Curve], format_number: Format) -> Html:
    """Draws a line chart: all curves share both axes, the legend names the last value of each. Empty without points.

    Colours follow the order of the curves that have points, in the chart as in the legend.
    """
    clean = [(curve, *_clean(curve)) for curve in curves]
    clean = [(curve, steps, values) for curve, steps, values in clean if len(steps)]
    if not clean:
        return NOTHING
    frame = _Frame(
        min(float(steps[0]) for _, steps, _ in clean),
        max(float(steps[-1]) for _, steps, _ in clean),
        *_choose_range(np.concatenate([values for _, _, values in clean])),
    )
    lines = join(
        _draw_line(frame, steps, values, number % _NUM_COLOURS, curve.is_noisy)
        for number, (curve, steps, values) in enumerate(clean)
    )
    names = ", ".join(curve.label for curve, _, _ in clean)
    picture = Html(
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(names)}">'
        f"{frame.draw_axes(format_number)}{lines}</svg>"
    )
    last = [f"{curve.label}: {format_number(float(values[-1]))}" for curve, _, values in clean]
    return Html(picture + _make_legend(last))


def draw_shares(shares: Sequence[tuple[str, float]], format_share: Format) -> Html:
    """Draws one stacked bar: each value as a share of the sum, with a legend. Empty where the sum is 0."""
    total = sum(value for _, value in shares)
    if total <= 0:
        return NOTHING
    parts = "".join(
        f'<span class="c{number % _NUM_COLOURS}" style="width:{100 * value / total:.3f}%"></span>'
        for number, (_, value) in enumerate(shares)
    )
    legend = _make_legend([f"{label}: {format_share(value / total)}" for label, value in shares])
    return Html(f'<div class="share">{parts}</div>{legend}')


def draw_bars(bars: Sequence[tuple[str, float, str]], highest: float | None = None) -> Html:
    """Draws a horizontal bar for each (label, value, value as text), one below the other.

    `highest` is the value that fills the width, by default the largest one; larger values are clipped to it.
    """
    top = highest or max((value for _, value, _ in bars if math.isfinite(value)), default=0.0)
    if top <= 0:
        return NOTHING
    rows = []
    for number, (label, value, words) in enumerate(bars):
        width = 100 * min(max(value if math.isfinite(value) else 0.0, 0.0) / top, 1.0)
        rows.append(
            f'<div style="display:flex;justify-content:space-between;gap:1rem;margin-top:.55rem;font-size:.86rem">'
            f"<span>{escape(label)}</span><span>{escape(words)}</span></div>"
            f'<div class="share" style="height:14px"><span class="c{number % _NUM_COLOURS}" style="width:{width:.3f}%">'
            "</span></div>"
        )
    return Html("".join(rows))


def _make_legend(labels: Sequence[str]) -> Html:
    items = "".join(
        f'<li><i class="c{number % _NUM_COLOURS}"></i>{escape(label)}</li>' for number, label in enumerate(labels)
    )
    return Html(f'<ul class="legend">{items}</ul>')


@dataclass(frozen=True, slots=True)
class _Frame:
    """Ranges of both axes, and the mapping from steps and values to SVG coordinates (y points downwards)."""

    first: float
    last: float
    lowest: float
    highest: float

    def place_step(self, step: float) -> float:
        share = (step - self.first) / max(self.last - self.first, 1e-12)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def place_value(self, value: float) -> float:
        share = (value - self.lowest) / max(self.highest - self.lowest, 1e-300)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    def draw_axes(self, format_number: Format) -> Html:
        parts = []
        for value in choose_ticks(self.lowest, self.highest):
            y = self.place_value(value)
            parts.append(f'<line class="rule" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            label = escape(format_number(value))
            parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
        for step in choose_ticks(self.first, self.last):
            x = self.place_step(step)
            anchor = "end" if x > _WIDTH - 30 else "middle"
            parts.append(
                f'<text x="{x:.1f}" y="{_HEIGHT - 6}" text-anchor="{anchor}">{escape(format_number(step))}</text>'
            )
        return Html("".join(parts))


def choose_ticks(lowest: float, highest: float) -> list[float]:
    """Chooses about five ticks within a range: multiples of 1, 2, 2.5 or 5 times a power of ten."""
    span = highest - lowest
    if not (span > 0 and math.isfinite(span)):
        return [lowest]
    rough = span / _NUM_TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    first = math.ceil(lowest / step - 1e-9)
    return [number * step for number in range(first, math.floor(highest / step + 1e-9) + 1)]


def smooth(values: Values, num_values: int) -> Values:
    """Returns the centred moving average over `num_values`, over fewer at both ends."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    first, stop = np.maximum(0, places - num_values // 2), np.minimum(len(values), places + num_values // 2 + 1)
    return np.asarray((sums[stop] - sums[first]) / (stop - first))


def _clean(curve: Curve) -> tuple[Values, Values]:
    steps, values = np.asarray(curve.steps, np.float64), np.asarray(curve.values, np.float64)
    is_finite = np.isfinite(steps) & np.isfinite(values)
    return steps[is_finite], values[is_finite]


def _choose_range(values: Values) -> tuple[float, float]:
    """Chooses the range of the value axis.

    The 98 % quantile replaces the maximum of a long curve where outliers would take more than two thirds of the axis.
    The axis starts at 0 where no value is negative and the smallest is near 0.
    """
    lowest, highest = float(values.min()), float(values.max())
    usual = float(np.quantile(values, 0.98))
    if len(values) > _SMOOTHED_FROM and highest - lowest > 3 * (usual - lowest):
        highest = usual
    margin = (highest - lowest) * 0.06 or abs(highest) * 0.1 or 1.0
    bottom = lowest - margin
    return (0.0 if lowest >= 0 and bottom < (highest - lowest) * 0.25 else bottom), highest + margin


def _draw_line(frame: _Frame, steps: Values, values: Values, colour: int, is_noisy: bool) -> Html:
    if len(steps) == 1:
        x, y = frame.place_step(steps[0]), frame.place_value(values[0])
        return Html(f'<circle class="c{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
    if len(steps) < _SMOOTHED_FROM or not is_noisy:
        return _draw_path(frame, steps, values, f"c{colour}")
    even = smooth(values, max(5, int(len(values) * _SMOOTHED_SHARE)))
    return Html(_draw_path(frame, steps, values, f"c{colour} faint") + _draw_path(frame, steps, even, f"c{colour}"))


def _draw_path(frame: _Frame, steps: Values, values: Values, kind: str) -> Html:
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), _MAX_POINTS)).round().astype(int))
    points = [
        f"{frame.place_step(steps[place]):.1f},{min(max(frame.place_value(values[place]), 0), _HEIGHT):.1f}"
        for place in chosen
    ]
    return Html(f'<path class="{kind}" style="fill:none" d="M{" L".join(points)}"/>')


@dataclass(frozen=True, slots=True)
class Flame:
    """A node of a flame chart: a span of time `value`, and the spans inside it in order."""

    label: str
    value: float
    children: Sequence[Flame] = ()

    @property
    def depth(self) -> int:
        return 1 + max((child.depth for child in self.children), default=0)


def draw_flame(flame: Flame, format_value: Callable[[float], str]) -> Html:
    """Draws a flame chart: the root above, children below, each as wide as its time.

    Every bar has a tooltip; bars too narrow for their label have only that.
    """
    if flame.value <= 0:
        return NOTHING
    height = flame.depth * (_ROW + _GAP)
    bars: list[str] = []
    _draw_bars_of(flame, 0.0, 0, _FLAME_WIDTH / flame.value, 0, format_value, bars)
    size = f"{_FLAME_WIDTH} {height}"
    return Html(f'<svg viewBox="0 0 {size}" role="img" aria-label="{escape(flame.label)}">{"".join(bars)}</svg>')


def _draw_bars_of(
    flame: Flame,
    start: float,
    level: int,
    scale: float,
    colour: int,
    format_value: Callable[[float], str],
    bars: list[str],
) -> None:
    width, top = flame.value * scale, level * (_ROW + _GAP)
    if width < _LEAST_WIDTH:
        return
    words = f"{flame.label}: {format_value(flame.value)}"
    place = f'x="{start:.1f}" y="{top}" width="{max(1.0, width - 1):.1f}" height="{_ROW}"'
    bar = f'<rect class="c{colour % _NUM_COLOURS}" style="stroke:none" {place} rx="3"/>'
    bars.append(f"<g><title>{escape(words)}</title>{bar}{_label_bar(words, flame.label, start, width, top)}</g>")
    left, total = start, sum(child.value for child in flame.children)
    # Children that were measured separately may add up to more than their parent: they are scaled down to fit.
    inner = scale * min(1.0, flame.value / total) if total else scale
    for number, child in enumerate(flame.children):
        _draw_bars_of(child, left, level + 1, inner, number + level + 1, format_value, bars)
        left += child.value * inner


def _label_bar(words: str, label: str, start: float, width: float, top: int) -> str:
    """Returns label and value, the label alone, or nothing, depending on the width of the bar."""
    text = next((one for one in (words, label) if len(one) * _LETTER_WIDTH < width - 8), "")
    if not text:
        return ""
    return (
        f'<text x="{start + width / 2:.1f}" y="{top + _ROW / 2 + 4:.1f}" text-anchor="middle" '
        f'style="fill:#fff;font-size:12.5px;font-weight:600">{escape(text)}</text>'
    )


def draw_sparkline(values: Sequence[float], top: float | None, is_ascii: bool = False) -> str:
    """Draws one block character for each value, on a scale from 0 to `top` (by default the largest value).

    Values above `top` are clipped; NaN and infinity become a blank.
    """
    blocks = _ASCII_BLOCKS if is_ascii else _BLOCKS
    finite = [value for value in values if math.isfinite(value)]
    scale = top if top is not None else max(finite, default=0.0)
    if scale <= 0:
        return "".join(blocks[0] if math.isfinite(value) else " " for value in values)
    last = len(blocks) - 1
    # Clipped before the division, which overflows for a tiny scale.
    return "".join(
        blocks[min(last, int(min(max(value, 0.0), scale) / scale * len(blocks)))] if math.isfinite(value) else " "
        for value in values
    )


def draw_timeline(intervals_s: Values, width: int = 60) -> str:
    """Draws step times as a sparkline: each character shows the slowest step of its group.

    The top is at least twice the median, so that steady steps look flat instead of filling the scale with noise.
    """
    if not len(intervals_s):
        return ""
    slowest_s = [float(piece.max()) for piece in np.array_split(intervals_s, min(width, len(intervals_s)))]
    return draw_sparkline(slowest_s, max(*slowest_s, 2 * float(np.median(intervals_s))))


def make_terminal_table(
    title: str, heading: Sequence[str], rows: Iterable[Sequence[str | Text]], is_numeric: bool = False
) -> Table:
    """Makes a table for a terminal; with `is_numeric` all columns but the first are set to the right."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for number, name in enumerate(heading):
        table.add_column(name, justify="right" if is_numeric and number else "left")
    for row in rows:
        # Text, so that brackets in foreign names are not taken for markup.
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def pad_line(line: Text, width: int) -> Text:
    """Fills a line of a terminal with blanks up to `width`."""
    line.pad_right(width - len(line))
    return line


def format_gib(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.1f}"
