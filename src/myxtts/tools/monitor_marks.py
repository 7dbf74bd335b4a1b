"""The small marks that a terminal view is made of: styled lines, sparklines, bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.text import Text

Line = list[tuple[str, str]]
"""Pieces of text with their styles."""

_BLOCKS, _ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
_ELLIPSIS = "…"


def draw_sparkline(values: Sequence[float], top: float | None, is_ascii: bool = False) -> str:
    """One character a value, from 0 to `top` or to the largest value; a blank where there is none."""
    blocks = _ASCII_BLOCKS if is_ascii else _BLOCKS
    finite = [value for value in values if math.isfinite(value)]
    scale = top if top is not None else max(finite, default=0.0)
    if scale <= 0:
        return "".join(blocks[0] if math.isfinite(value) else " " for value in values)
    last = len(blocks) - 1
    # Clipped before it is divided: a tiny scale would make infinity of an ordinary value.
    return "".join(
        blocks[min(last, int(min(max(value, 0.0), scale) / scale * len(blocks)))] if math.isfinite(value) else " "
        for value in values
    )


def measure_line(line: Line) -> int:
    return sum(len(text) for text, _ in line)


def pad_line(line: Line, width: int) -> Line:
    return [*line, (" " * max(0, width - measure_line(line)), "")]


def join_lines(lines: Iterable[Line], gap: str = "   ") -> Line:
    """Several pieces in one line; empty ones leave no gap."""
    joined: Line = []
    for line in lines:
        if line:
            joined += [*([(gap, "")] if joined else []), *line]
    return joined


def finish_line(line: Line, width: int) -> Text:
    """Cut to the width, with an ellipsis where something is missing."""
    text = Text.assemble(*line, no_wrap=True)
    if measure_line(line) > width:
        text.right_crop(len(text) - width + 1)
        text.append(_ELLIPSIS)
    return text


def format_gib(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.1f}"
