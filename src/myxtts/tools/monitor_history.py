"""What was measured so far, in constant memory: recent values for sparklines, all of the time for plots and means."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from myxtts.tools.monitor_sample import Row

_MAX_RECENT = 600
_MAX_POINTS = 2048


@dataclass(slots=True)
class Stats:
    """Mean, extremes and last value of one column."""

    num_values: int = 0
    total: float = 0.0
    lowest: float = math.inf
    highest: float = -math.inf
    last: float = math.nan

    def add(self, value: float) -> None:
        self.num_values += 1
        self.total += value
        self.lowest, self.highest = min(self.lowest, value), max(self.highest, value)
        self.last = value

    @property
    def mean(self) -> float:
        return self.total / self.num_values

    def to_json(self) -> dict[str, float]:
        return {"mean": round(self.mean, 6), "min": self.lowest, "max": self.highest, "last": self.last}


class History:
    """Takes rows; text columns are left out. NaN stands where a row had no number."""

    def __init__(self) -> None:
        self.num_rows = 0
        self._recent: dict[str, deque[float]] = {}
        self._stats: dict[str, Stats] = {}
        self._points: dict[str, list[float]] = {}
        self._num_rows_per_point = 1
        self._pending: list[Mapping[str, float]] = []

    def add(self, row: Row) -> None:
        numbers = {name: _to_number(value) for name, value in row.items() if not isinstance(value, str)}
        for name, number in numbers.items():
            recent = self._recent.setdefault(name, deque([math.nan] * min(self.num_rows, _MAX_RECENT), _MAX_RECENT))
            recent.append(number)
            if not math.isnan(number):
                self._stats.setdefault(name, Stats()).add(number)
        self.num_rows += 1
        self._pending.append(numbers)
        if len(self._pending) >= self._num_rows_per_point:
            self._add_point()

    def get_recent(self, column: str, num_values: int) -> list[float]:
        """The last values, oldest first; as many as there are."""
        recent = self._recent.get(column, deque())
        start = max(0, len(recent) - num_values)
        return [recent[place] for place in range(start, len(recent))]

    def get_stats(self, column: str) -> Stats | None:
        return self._stats.get(column)

    def get_curve(self, column: str) -> tuple[list[float], list[float]]:
        """Seconds and values over all of the time; where it was long, each value is a mean."""
        points, last = self._points, self._average_pending()
        seconds = [*points.get("elapsed_s", []), *([last["elapsed_s"]] if "elapsed_s" in last else [])]
        values = [*points.get(column, []), *([last.get(column, math.nan)] if "elapsed_s" in last else [])]
        missing = len(seconds) - len(values)
        return seconds, [math.nan] * missing + values

    def _add_point(self) -> None:
        point = self._average_pending()
        self._pending = []
        num_points = max((len(values) for values in self._points.values()), default=0)
        for name in {**self._points, **point}:
            values = self._points.setdefault(name, [math.nan] * num_points)
            values.append(point.get(name, math.nan))
        if num_points + 1 >= _MAX_POINTS:
            self._points = {name: _halve(values) for name, values in self._points.items()}
            self._num_rows_per_point *= 2

    def _average_pending(self) -> dict[str, float]:
        names = {name for numbers in self._pending for name in numbers}
        return {name: _average([numbers.get(name, math.nan) for numbers in self._pending]) for name in names}


def _halve(values: list[float]) -> list[float]:
    return [_average(values[place : place + 2]) for place in range(0, len(values), 2)]


def _average(values: list[float]) -> float:
    finite = [value for value in values if not math.isnan(value)]
    return sum(finite) / len(finite) if finite else math.nan


def _to_number(value: float | str | None) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
