"""Charts: bars and flame charts as HTML or inline SVG, and sparklines and tables for terminals.

Charts of a page take their colours from the style sheet of `tools.page` (classes c0 to c11), so that they follow light
and dark mode. All labels are escaped here. Line charts are in `tools.line_charts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from myxtts.tools.page import NOTHING, Html, escape

Format = Callable[[float], str]
"""Writes a number of an axis or legend, usually `Translator.tick` or `Translator.share`."""
Values = NDArray[np.float64]

_NUM_COLOURS = 12
"""Classes c0 to c11 of the style sheet; further bars start again at c0."""
_FLAME_WIDTH, _ROW, _GAP = 1000, 30, 2
"""Width of a flame chart, height of its bars and distance between them, in units of the SVG."""
_LETTER_WIDTH = 7.0
"""Assumed width of a letter at the 12.5 px of bar labels: text cannot be measured before a browser draws it."""
_LEAST_WIDTH = 1.5
"""Narrower bars of a flame chart are left out, with all bars inside them."""
_BLOCKS, _ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
"""Levels of a sparkline, lowest first; the second set is for terminals without Unicode."""
_TIMELINE_WIDTH = 60


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


def draw_timeline(intervals_s: Values) -> str:
    """Draws step times as a sparkline: each character shows the slowest step of its group.

    The top is at least twice the median, so that steady steps look flat instead of filling the scale with noise.
    """
    if not len(intervals_s):
        return ""
    slowest_s = [float(piece.max()) for piece in np.array_split(intervals_s, min(_TIMELINE_WIDTH, len(intervals_s)))]
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
