"""Monotonic alignment search (Viterbi): the cheapest way of a recording through the states of its text.

Every frame is in one state; the state stays or moves forward by a few. Only a window of states around the cheapest one
is looked at, which follows the recording: time and memory grow with its length, not with the square of it.

Shape legend: T frames, S states, W states of the window, J jumps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from myxtts.types import Floats

CostOfBlock = Callable[[int, int, int, int], Floats]
"""Returns the costs [T, W] of frames `start` to `stop` in states `first` to `last`."""
_BLOCK_FRAMES = 32
_SETTLED_FRAMES = 4096
"""Two minutes of sound: by then the paths to all states of the window have met."""
_SHARE_BEHIND = 0.4
"""Of the window, behind the cheapest state."""
_FAR = np.float32(1e9)


@dataclass(frozen=True, slots=True)
class Skips:
    """Long jumps at a price: `origins` [S] are the states that each state can be entered from, -1 for none."""

    origins: NDArray[np.int64]
    cost: float

    def list_inside(self, first: int, width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the states of a window that can be entered, and their origins, both counted from its first state."""
        entered = np.flatnonzero(self.origins[first : first + width] >= first)
        return entered, self.origins[first + entered] - first


def search_path(
    num_frames: int,
    num_states: int,
    cost_of_block: CostOfBlock,
    jump_costs: Floats,
    *,
    window: int,
    skips: Skips | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> NDArray[np.int64]:
    """Returns the state of each frame on the cheapest path from the first state to the last.

    `jump_costs` [J, S] is what it costs to enter a state from the one j states before, j from 0. The path of frames
    that are long past is settled while the search goes on, which bounds the memory.
    """
    skips = skips or Skips(np.full(num_states, -1), 0.0)
    width, jumps = min(window, num_states), len(jump_costs)
    path = np.zeros(num_frames, np.int64)
    choices: list[NDArray[np.uint8]] = []
    firsts: list[int] = []
    first, num_settled = 0, 0
    total = np.full(jumps + width, _FAR, np.float32)
    total[jumps - 1] = 0.0
    for start in range(0, num_frames, _BLOCK_FRAMES):
        stop = min(start + _BLOCK_FRAMES, num_frames)
        moved = _move_window(total[jumps:], first, num_states, num_frames - stop, jumps)
        total = _shift(total, moved - first, jumps) if start else total
        first = moved
        costs_TW = cost_of_block(start, stop, first, first + width)
        entering_JW = jump_costs[:, first : first + width]
        entered, left = skips.list_inside(first, width)
        for costs_W in costs_TW:
            candidates_JW = (
                np.stack([total[jumps - jump : jumps - jump + width] for jump in range(jumps)]) + entering_JW
            )
            choice_W = candidates_JW.argmin(axis=0)
            cheapest_W = np.take_along_axis(candidates_JW, choice_W[None], 0)[0]
            skipped = total[jumps + left] + skips.cost
            choice_W[entered[skipped < cheapest_W[entered]]] = jumps
            cheapest_W[entered] = np.minimum(skipped, cheapest_W[entered])
            total[jumps:] = cheapest_W + costs_W
            total[:jumps] = _FAR
            choices.append(choice_W.astype(np.uint8))
            firsts.append(first)
        total[jumps:] = np.minimum(total[jumps:] - total[jumps:].min(), _FAR)
        if len(choices) >= 2 * _SETTLED_FRAMES:
            traced = _trace(choices, firsts, first + int(np.argmin(total[jumps:])), jumps, skips)
            path[num_settled : num_settled + _SETTLED_FRAMES] = traced[:_SETTLED_FRAMES]
            num_settled += _SETTLED_FRAMES
            del choices[:_SETTLED_FRAMES], firsts[:_SETTLED_FRAMES]
        progress(stop)
    is_reached = first + width == num_states and total[-1] < _FAR / 2
    last = num_states - 1 if is_reached else first + int(np.argmin(total[jumps:]))
    path[num_settled:] = _trace(choices, firsts, last, jumps, skips)
    return np.maximum.accumulate(path)


def _move_window(total_W: Floats, first: int, num_states: int, num_left: int, jumps: int) -> int:
    """Returns the first state of the next window: the cheapest state keeps its place, and the end stays reachable."""
    width = len(total_W)
    wanted = first + int(np.argmin(total_W)) - int(_SHARE_BEHIND * width)
    needed = num_states - width - num_left * (jumps - 1)
    return int(np.clip(max(wanted, needed), first, num_states - width))


def _shift(total: Floats, amount: int, jumps: int) -> Floats:
    """Moves the costs of a window by `amount` states; the states that come into it have not been reached."""
    shifted = np.full_like(total, _FAR)
    if amount < len(total) - jumps:
        shifted[jumps : len(total) - amount] = total[jumps + amount :]
    return shifted


def _trace(
    choices: list[NDArray[np.uint8]], firsts: list[int], state: int, jumps: int, skips: Skips
) -> NDArray[np.int64]:
    """Follows the choices backwards from a state of the last frame."""
    path = np.zeros(len(choices), np.int64)
    for frame in range(len(choices) - 1, -1, -1):
        path[frame] = state
        jump = int(choices[frame][state - firsts[frame]])
        state = int(skips.origins[state]) if jump == jumps else max(0, state - jump)
    return path
