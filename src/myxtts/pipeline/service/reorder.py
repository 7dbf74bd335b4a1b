"""Batches on their way from a service, handed to those who wait for their positions.

They arrive in any order, some never. So many are kept that nobody has to ask twice, and no more: who brings the next
one waits. A batch that later ones have overtaken for too long counts as lost; so do the very last ones, which nothing
can overtake, when nothing moves any more.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection
from enum import Enum
from typing import Any

from myxtts.errors import MyXTTSError

_MAX_RECORDS = 64
_MAX_UNDER_WAY = 64
"""More batches than these no worker has under way, and none can get lost at once."""


class StreamBrokenError(Exception):
    """The service ended a stream of batches before its end."""


class Missing(Enum):
    """Why there is no batch."""

    NOT_SENT = "nobody sends it"
    LOST = "it was sent for and did not come"
    CROWDED_OUT = "too many later ones came before it"


class ReorderBuffer:
    """Batches by position, from `start` to `stop`. Any number of threads may bring and take them.

    At most `num_ahead` batches are kept for later; twice as many while somebody waits for an earlier one, which may
    come right behind them.
    """

    def __init__(self, start: int, stop: int, *, num_ahead: int, patience_s: float) -> None:
        self._announced_up_to, self._stop = start, stop
        self._num_ahead, self._patience_s = num_ahead, patience_s
        self._changed = threading.Condition()
        self._expected: set[int] = set()
        self._arrived: dict[int, Any] = {}
        self._at_the_door: dict[int, Any] = {}
        self._lost: set[int] = set()
        self._taken_early: set[int] = set()
        self._awaited: Counter[int] = Counter()
        self._furthest: list[tuple[int, float]] = []
        self._has_any_arrived = False
        self._last_move_s = self._quiet_since_s = time.monotonic()
        self._error: MyXTTSError | None = None

    def expect(self, positions: Collection[int], announced_up_to: int) -> None:
        """Says which positions will be brought; the others up to `announced_up_to` will not."""
        with self._changed:
            self._expected.update(set(positions) - self._taken_early)
            self._taken_early = {position for position in self._taken_early if position >= announced_up_to}
            self._announced_up_to = announced_up_to
            self._last_move_s = self._quiet_since_s = time.monotonic()
            self._changed.notify_all()

    def bring(self, position: int, batch: Any) -> bool:
        """Leaves a batch, as soon as there is room or somebody wants it. False when there is no more use for any."""
        with self._changed:
            self._note_arrival(position)
            if position in self._expected:
                self._at_the_door[position] = batch
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._error or position not in self._at_the_door or self._has_room())
            if position in self._at_the_door:
                self._arrived[position] = self._at_the_door.pop(position)
                self._expected.discard(position)
                self._changed.notify_all()
            return self._error is None

    def take(self, position: int) -> Any:
        """The batch of a position once it is there, or why it will not come. Raises what `fail` was given."""
        with self._changed:
            if not self._awaited:
                self._quiet_since_s = time.monotonic()
            self._awaited[position] += 1
            # Whoever has no room may have some now.
            self._changed.notify_all()
            try:
                return self._await(position)
            finally:
                self._awaited -= Counter([position])
                self._changed.notify_all()

    def give_up(self, positions: Collection[int]) -> None:
        """Those of the positions that have not come are lost."""
        with self._changed:
            lost = self._expected.intersection(positions)
            self._expected -= lost
            self._lost |= lost
            self._changed.notify_all()

    def fail(self, error: MyXTTSError) -> None:
        """Raises the error wherever somebody waits, now and later; the first one counts."""
        with self._changed:
            self._error = self._error or error
            self._arrived.clear()
            self._at_the_door.clear()
            self._changed.notify_all()

    def wait_for_demand(self) -> bool:
        """Returns when few of the expected batches are still to come; False when there is no more use for any.

        Where many got lost at once, it returns when nothing has moved for a while: only later ones can overtake them.
        """
        with self._changed:
            while self._error is None and len(self._expected) > self._num_ahead:
                still_s = time.monotonic() - self._last_move_s
                if self._awaited and still_s >= self._patience_s:
                    break
                self._changed.wait(max(0.0, self._patience_s - still_s) if self._awaited else None)
            return self._error is None

    def is_expecting(self, positions: Collection[int]) -> bool:
        with self._changed:
            return not self._expected.isdisjoint(positions)

    def measure_silence_s(self) -> float:
        """For how long somebody has waited and nothing has come."""
        with self._changed:
            return time.monotonic() - self._quiet_since_s if self._awaited else 0.0

    def _await(self, position: int) -> Any:
        while True:
            if self._error is not None:
                raise self._error
            for batches in (self._arrived, self._at_the_door):
                if position in batches:
                    self._expected.discard(position)
                    self._last_move_s = time.monotonic()
                    return batches.pop(position)
            reason = self._find_reason(position)
            if reason is not None:
                self._expected.discard(position)
                self._lost.discard(position)
                return reason
            self._changed.wait(self._find_time_left(position))

    def _find_reason(self, position: int) -> Missing | None:
        """Why it makes no sense to wait for a position; None if it does."""
        # What somebody waits for is as good as gone.
        is_full = len(self._arrived.keys() - self._awaited.keys()) >= 2 * self._num_ahead
        if position in self._lost:
            return Missing.LOST
        if position in self._expected:
            if self._find_time_left(position) == 0.0:
                return Missing.LOST
        elif self._announced_up_to <= position < self._stop:
            if is_full:
                self._taken_early.add(position)
        else:
            return Missing.NOT_SENT
        return Missing.CROWDED_OUT if is_full else None

    def _find_time_left(self, position: int) -> float | None:
        """How much longer to wait for a position that may be lost; None if there is no sign of that."""
        if position not in self._expected:
            return None
        place = bisect_right(self._furthest, position, key=lambda record: record[0])
        if place < len(self._furthest):
            since_s = self._furthest[place][1]
        elif self._has_any_arrived and self._are_last_ones_missing():
            since_s = self._last_move_s
        else:
            return None
        return max(0.0, since_s + self._patience_s - time.monotonic())

    def _are_last_ones_missing(self) -> bool:
        return self._announced_up_to >= self._stop and len(self._expected) <= _MAX_UNDER_WAY

    def _note_arrival(self, position: int) -> None:
        now_s = time.monotonic()
        self._has_any_arrived, self._last_move_s, self._quiet_since_s = True, now_s, now_s
        if not self._furthest or position > self._furthest[-1][0]:
            self._furthest.append((position, now_s))
        if len(self._furthest) > _MAX_RECORDS:
            # Only positions that are still expected can be overtaken.
            first = min(self._expected, default=position)
            del self._furthest[: bisect_right(self._furthest, first, key=lambda record: record[0])]

    def _has_room(self) -> bool:
        num_arrived = len(self._arrived)
        if num_arrived < self._num_ahead:
            return True
        is_somebody_waiting = any(awaited not in self._arrived for awaited in self._awaited)
        return is_somebody_waiting and num_arrived < 2 * self._num_ahead
