"""Flame-style pictures: bars inside of bars, each as wide as the time it took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from myxtts.tools.charts import NUM_COLOURS
from myxtts.tools.page import NOTHING, Html, escape

_WIDTH, _ROW, _GAP = 1000, 30, 2
_LETTER = 7.0
_LEAST_WIDTH = 1.5


@dataclass(frozen=True, slots=True)
class Flame:
    """Something that took `value`, of which `children` took their parts, in order."""

    label: str
    value: float
    children: Sequence[Flame] = ()

    @property
    def depth(self) -> int:
        return 1 + max((child.depth for child in self.children), default=0)


def draw_flame(flame: Flame, format_value: Callable[[float], str]) -> Html:
    """The picture; what is too narrow for its name shows it when it is pointed at."""
    if flame.value <= 0:
        return NOTHING
    height = flame.depth * (_ROW + _GAP)
    bars: list[str] = []
    _draw(flame, 0.0, 0, _WIDTH / flame.value, 0, format_value, bars)
    return Html(
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(flame.label)}">{"".join(bars)}</svg>'
    )


def _draw(
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
    bar = f'<rect class="c{colour % NUM_COLOURS}" style="stroke:none" {place} rx="3"/>'
    bars.append(f"<g><title>{escape(words)}</title>{bar}{_write(words, flame.label, start, width, top)}</g>")
    left, total = start, sum(child.value for child in flame.children)
    # Parts that were measured on their own may add up to more than the whole.
    inner = scale * min(1.0, flame.value / total) if total else scale
    for number, child in enumerate(flame.children):
        _draw(child, left, level + 1, inner, number + level + 1, format_value, bars)
        left += child.value * inner


def _write(words: str, label: str, start: float, width: float, top: int) -> str:
    """As many of the words as there is room for."""
    text = next((one for one in (words, label) if len(one) * _LETTER < width - 8), "")
    if not text:
        return ""
    return (
        f'<text x="{start + width / 2:.1f}" y="{top + _ROW / 2 + 4:.1f}" text-anchor="middle" '
        f'style="fill:#fff;font-size:12.5px;font-weight:600">{escape(text)}</text>'
    )
