"""Reads CUDA_VISIBLE_DEVICES the way CUDA does: numbers or UUID prefixes, up to the first entry that names no GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

VARIABLE = "CUDA_VISIBLE_DEVICES"


class VisibleGpus(NamedTuple):
    """Positions in the list of all GPUs, in CUDA's order, and a note when something was left out."""

    positions: tuple[int, ...]
    note: str


def select_visible(value: str | None, uuids: Sequence[str]) -> VisibleGpus:
    """Which of the GPUs with these UUIDs CUDA shows when the variable has this value (None: it is not set)."""
    everything = tuple(range(len(uuids)))
    if value is None:
        return VisibleGpus(everything, "")
    positions: list[int] = []
    for entry in value.split(","):
        position = _find_position(entry.strip(), uuids)
        if position in positions:
            return VisibleGpus((), f"{VARIABLE}={value!r} names a GPU twice, and CUDA then shows none.")
        if position is None:
            return VisibleGpus(tuple(positions), _explain_stop(value, entry.strip()))
        positions.append(position)
    return VisibleGpus(tuple(positions), "")


def _find_position(entry: str, uuids: Sequence[str]) -> int | None:
    if entry.startswith("GPU-"):
        matches = [position for position, uuid in enumerate(uuids) if uuid.startswith(entry)]
        return matches[0] if len(matches) == 1 else None
    # CUDA reads the digits in front and ignores what follows them.
    digits = re.match(r"\+?([0-9]{1,4})", entry)
    position = int(digits[1]) if digits else -1
    return position if 0 <= position < len(uuids) else None


def _explain_stop(value: str, entry: str) -> str:
    if value.strip() in ("", "-1"):
        return f"{VARIABLE}={value!r} hides all GPUs."
    if entry.startswith("MIG-"):
        return f"{VARIABLE} names the MIG slice {entry}; slices are not supported, name a whole GPU."
    return f"{VARIABLE}={value!r}: {entry!r} names no GPU here, so CUDA ignores it and all that follows."
