"""Reorder buffer between the tf.data service and loader threads that need batches by position.

The service delivers batches in any order and may lose some. The buffer has a limited capacity; producers block while it
is full. A batch counts as lost when later ones have been there for `patience_s`; the very last ones, which nothing can
overtake, count as lost when nothing arrives any more. One condition variable guards all state.
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
"""Arrival times that are kept before old ones are dropped."""
_MAX_IN_FLIGHT = 64
"""Workers never have more batches in progress, so no more can be lost at once."""


class StreamBrokenError(Exception):
    """The service ended a stream of batches before its end."""


class Missing(Enum):
    """Reason why a batch is not delivered."""

    NOT_SENT = "the service was not asked for it"
    LOST = "the service was asked for it and did not deliver it"
    CROWDED_OUT = "too many later ones came before it"


class ReorderBuffer:
    """Batches by position, from `start` to `stop`; any number of producer and consumer threads.

    At most `num_ahead` batches are kept for later; twice as many while a consumer waits for an earlier one, which may
    arrive right behind them.
    """

    def __init__(self, start: int, stop: int, *, num_ahead: int, patience_s: float) -> None:
        self._announced_up_to, self._stop = start, stop
        self._num_ahead, self._patience_s = num_ahead, patience_s
        self._changed = threading.Condition()
        self._expected: set[int] = set()
        self._arrived: dict[int, Any] = {}
        self._blocked: dict[int, Any] = {}  # batches whose producers wait for capacity
        self._lost: set[int] = set()
        self._taken_early: set[int] = set()
        self._awaited: Counter[int] = Counter()
        self._furthest: list[tuple[int, float]] = []  # positions that were ahead of all others, and when they came
        self._has_any_arrived = False
        self._last_move_s = self._quiet_since_s = time.monotonic()
        self._error: MyXTTSError | None = None

    def expect(self, positions: Collection[int], announced_up_to: int) -> None:
        """Announces positions that will be put; the others up to `announced_up_to` will not."""
        with self._changed:
            self._expected.update(set(positions) - self._taken_early)
            self._taken_early = {position for position in self._taken_early if position >= announced_up_to}
            self._announced_up_to = announced_up_to
            self._last_move_s = self._quiet_since_s = time.monotonic()
            self._changed.notify_all()

    def put(self, position: int, batch: Any) -> bool:
        """Delivers a batch; blocks until there is capacity or its consumer waits. Returns False after `fail`."""
        with self._changed:
            self._note_arrival(position)
            if position in self._expected:
                self._blocked[position] = batch
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._error or position not in self._blocked or self._has_capacity())
            if position in self._blocked:
                self._arrived[position] = self._blocked.pop(position)
                self._expected.discard(position)
                self._changed.notify_all()
            return self._error is None

    def take(self, position: int) -> Any:
        """Returns the batch of a position once it has arrived, or the reason why it will not.

        Raises the error given to `fail`.
        """
        with self._changed:
            if not self._awaited:
                self._quiet_since_s = time.monotonic()
            self._awaited[position] += 1
            # A waiting consumer raises capacity: wake blocked producers.
            self._changed.notify_all()
            try:
                return self._await(position)
            finally:
                self._awaited -= Counter([position])
                self._changed.notify_all()

    def give_up(self, positions: Collection[int]) -> None:
        """Marks those of the positions as lost that have not arrived."""
        with self._changed:
            lost = self._expected.intersection(positions)
            self._expected -= lost
            self._lost |= lost
            self._changed.notify_all()

    def fail(self, error: MyXTTSError) -> None:
        """Raises this error in all consumers from now on; only the first error counts."""
        with self._changed:
            self._error = self._error or error
            self._arrived.clear()
            self._blocked.clear()
            self._changed.notify_all()

    def wait_for_demand(self) -> bool:
        """Blocks until at most `num_ahead` expected batches have not arrived; returns False after `fail`.

        If many were lost at once, it returns when nothing has arrived for `patience_s`: only batches of a later chunk
        can overtake them, which shows that they are lost.
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
        """Seconds that consumers have waited without any arrival; 0 if none waits."""
        with self._changed:
            return time.monotonic() - self._quiet_since_s if self._awaited else 0.0

    def _await(self, position: int) -> Any:
        """Waits for a batch or a reason; the lock is held, except while waiting."""
        while True:
            if self._error is not None:
                raise self._error
            for batches in (self._arrived, self._blocked):
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
        """Reason why a position will not arrive; None if it still may."""
        # Batches with a waiting consumer do not count against capacity.
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
        """Seconds until a position counts as lost; None if nothing has overtaken it yet."""
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
        """Whether everything was announced and few enough are missing to be the last ones."""
        return self._announced_up_to >= self._stop and len(self._expected) <= _MAX_IN_FLIGHT

    def _note_arrival(self, position: int) -> None:
        """Records the time of an arrival, and its position if it is the furthest so far."""
        now_s = time.monotonic()
        self._has_any_arrived, self._last_move_s, self._quiet_since_s = True, now_s, now_s
        if not self._furthest or position > self._furthest[-1][0]:
            self._furthest.append((position, now_s))
        if len(self._furthest) > _MAX_RECORDS:
            # Only positions that are still expected can be overtaken.
            first = min(self._expected, default=position)
            del self._furthest[: bisect_right(self._furthest, first, key=lambda record: record[0])]

    def _has_capacity(self) -> bool:
        num_arrived = len(self._arrived)
        if num_arrived < self._num_ahead:
            return True
        is_consumer_waiting = any(awaited not in self._arrived for awaited in self._awaited)
        return is_consumer_waiting and num_arrived < 2 * self._num_ahead
