"""Boxes and arrows as SVG that needs nothing but itself; from right to left for scripts that run so."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Literal

Kind = Literal["plain", "work", "good", "warn", "bad"]
_COLOURS: dict[Kind, tuple[str, str, str]] = {
    "plain": ("#ffffff", "#1b1f28", "#8a93a6"),
    "work": ("#e8eefc", "#22304f", "#4b78e0"),
    "good": ("#e3f5ee", "#173a30", "#1f9d78"),
    "warn": ("#fdf3dc", "#3d3212", "#c2a012"),
    "bad": ("#fde8e1", "#44261a", "#d9632b"),
}
"""Fill of a box on light and on dark pages, and its border."""
_LIGHT = "".join(f".{kind}{{fill:{light};stroke:{line}}}" for kind, (light, _, line) in _COLOURS.items())
_DARK = "".join(f".{kind}{{fill:{dark}}}" for kind, (_, dark, _) in _COLOURS.items())
_STYLE = (
    "text{font-family:system-ui,'Segoe UI',Vazirmatn,'Noto Sans Arabic',Tahoma,'DejaVu Sans',sans-serif;"
    "fill:#1c2230;text-anchor:middle}path{fill:none;stroke:#5c6475;stroke-width:1.6}"
    ".head{fill:#5c6475;stroke:none}rect{stroke-width:1.4}.ground{fill:#f6f7f9;stroke:#e2e5ea}"
    f"{_LIGHT}@media (prefers-color-scheme:dark){{text{{fill:#e7eaf0}}path{{stroke:#a3acbd}}"
    f".head{{fill:#a3acbd;stroke:none}}.ground{{fill:#12151b;stroke:#2d333f}}{_DARK}}}"
)
_LINE_HEIGHT, _SMALL, _LETTER_WIDTH = 19, 12.5, 7.0


class Drawing:
    """A picture of so many points; all places are given as if it ran from left to right.

    A picture of up to 440 points stays readable on a phone of 390 pixels.
    """

    def __init__(self, width: int, height: int, title: str, *, is_mirrored: bool) -> None:
        self._width, self._height, self._title, self._is_mirrored = width, height, title, is_mirrored
        self._parts: list[str] = []

    def add_box(self, x: int, y: int, width: int, height: int, lines: Sequence[str], kind: Kind = "plain") -> None:
        """A box whose first line is bold; the others are smaller."""
        left = self._width - x - width if self._is_mirrored else x
        self._parts.append(f'<rect class="{kind}" x="{left}" y="{y}" width="{width}" height="{height}" rx="9"/>')
        top = y + height / 2 - (len(lines) - 1) * _LINE_HEIGHT / 2 + 5
        for number, line in enumerate(lines):
            self._write(left + width / 2, top + number * _LINE_HEIGHT, line, is_bold=number == 0)

    def add_arrow(self, *points: tuple[int, int], label: str = "", is_dashed: bool = False) -> None:
        """A line through the points with a head at the last; the label stands above its first part."""
        placed = [(self._width - x if self._is_mirrored else x, y) for x, y in points]
        path = " L".join(f"{x} {y}" for x, y in placed)
        dashes = ' stroke-dasharray="6 5"' if is_dashed else ""
        self._parts.append(f'<path d="M{path}"{dashes} marker-end="url(#head)"/>')
        if label:
            (x1, y1), (x2, y2) = placed[:2]
            is_level = y1 == y2
            aside = 0.0 if is_level else 8 + _LETTER_WIDTH * len(label) / 2
            self._write((x1 + x2) / 2 + aside, (y1 + y2) / 2 + (-7 if is_level else 5), label)

    def add_text(self, x: int, y: int, text: str) -> None:
        self._write(self._width - x if self._is_mirrored else x, y, text)

    def add_pair(self, x: int, y: int, name: str, text: str, *, gap: int) -> None:
        """A bold name at the beginning of a line, and what is said about it `gap` points further."""
        self._write(self._width - x if self._is_mirrored else x, y, name, is_bold=True, anchor="start")
        self._write(self._width - x - gap if self._is_mirrored else x + gap, y, text, anchor="start")

    def to_svg(self) -> str:
        direction = ' direction="rtl"' if self._is_mirrored else ""
        parts = "\n".join(self._parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {self._height}" role="img"'
            f' width="{self._width}" height="{self._height}"'
            f"{direction}>\n"
            f"<title>{escape(self._title)}</title>\n"
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path class="head" d="M0 0 L10 5 L0 10 z"/></marker></defs>\n'
            f"<style>{_STYLE}</style>\n"
            f'<rect class="ground" width="{self._width}" height="{self._height}" rx="12"/>\n'
            f"{parts}\n</svg>\n"
        )

    def _write(self, x: float, y: float, text: str, *, is_bold: bool = False, anchor: str = "middle") -> None:
        look = 'font-size="14.5" font-weight="600"' if is_bold else f'font-size="{_SMALL}" opacity=".8"'
        aside = "" if anchor == "middle" else f' style="text-anchor:{anchor}"'
        self._parts.append(f'<text x="{x:g}" y="{y:g}"{aside} {look}>{escape(text)}</text>')
