"""Counters of the server, as text in the exposition format of Prometheus."""

from __future__ import annotations

from collections import Counter

_FIRST_SOUND_BOUNDS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Metrics:
    """Counts requests, sentences and times. Written by the event loop and the speech thread, each its own counters."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._first_sound = [0] * (len(_FIRST_SOUND_BOUNDS_S) + 1)
        self._first_sound_s = 0.0
        self._num_waiting = self._num_sentences = 0
        self._speech_s = self._engine_s = 0.0

    def add_request(self, route: str, status: int) -> None:
        self._requests[route, status] += 1

    def add_first_sound(self, seconds: float) -> None:
        """Counts the time from a request to its first sound."""
        index = next((i for i, bound in enumerate(_FIRST_SOUND_BOUNDS_S) if seconds <= bound), -1)
        self._first_sound[index] += 1
        self._first_sound_s += seconds

    def add_sentence(self, speech_s: float, engine_s: float) -> None:
        self._num_sentences += 1
        self._speech_s += speech_s
        self._engine_s += engine_s

    def set_waiting(self, num_requests: int) -> None:
        self._num_waiting = num_requests

    def describe(self) -> str:
        """Returns all counters."""
        lines = ["# HELP myxtts_requests_total Requests that were answered.", "# TYPE myxtts_requests_total counter"]
        lines += [
            f'myxtts_requests_total{{route="{route}",status="{status}"}} {count}'
            for (route, status), count in sorted(self._requests.items())
        ]
        lines += _describe("myxtts_requests_open", "gauge", "Requests in the queue or being spoken.", self._num_waiting)
        lines += _describe("myxtts_sentences_total", "counter", "Sentences that were spoken.", self._num_sentences)
        lines += _describe("myxtts_speech_seconds_total", "counter", "Seconds of speech made.", self._speech_s)
        lines += _describe("myxtts_engine_seconds_total", "counter", "Seconds that making it took.", self._engine_s)
        name = "myxtts_first_sound_seconds"
        lines += [f"# HELP {name} Time from a request to its first sound.", f"# TYPE {name} histogram"]
        total = 0
        for bound, count in zip((*_FIRST_SOUND_BOUNDS_S, "+Inf"), self._first_sound, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        lines += [f"{name}_sum {self._first_sound_s:.6f}", f"{name}_count {total}"]
        return "\n".join(lines) + "\n"


def _describe(name: str, kind: str, text: str, value: float) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name} {value:.10g}"]
