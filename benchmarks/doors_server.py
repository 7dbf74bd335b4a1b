"""The server under load: 20 clients for a minute, its memory, and how soon one client hears the first sound."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import httpx
import psutil

from benchmarks.harness import Measurement

NUM_CLIENTS, DURATION_S = 20, 60.0
_MAX_REQUESTS = 8
"""Fewer than the clients, so that some are refused."""
_NUM_ALONE = 15
_START_S = 120.0
_SENTENCE = "The path went on between the hills until the evening came."
_TEXT = f"{_SENTENCE} Nobody had walked there for many years."
_LIMIT_GROWTH_MB = 30.0


def measure_server(model: Path, voice: str) -> list[Measurement]:
    with start_server(model, voice) as (url, process):
        alone = measure_first_sounds(url, _NUM_ALONE)
        statuses, growth_mb = load_server(url, process, NUM_CLIENTS, DURATION_S)
    failed = sum(count for status, count in statuses.items() if status not in (200, 429))
    told = ", ".join(f"{count:,} times {status}" for status, count in sorted(statuses.items()))
    return [
        Measurement("server, 20 clients for 60 s: errors", failed, "answers", "at most", 0, told),
        Measurement("server, 20 clients for 60 s: answers", statuses[200], "answers", "at least", 1, told),
        Measurement(
            "server, growth of memory in the last half",
            growth_mb,
            "MB",
            "at most",
            _LIMIT_GROWTH_MB,
            "resident, of the peak in the second half over that in the first",
        ),
        Measurement(
            "server, first sound of one client",
            median(first_s / engine_s for first_s, engine_s in alone),
            "times the engine's own time",
            "at most",
            2.0,
            f"median of {len(alone)}; {1000 * median(first for first, _ in alone):.0f} ms",
        ),
    ]


@contextmanager
def start_server(model: Path, voice: str) -> Iterator[tuple[str, psutil.Process]]:
    """Runs `myxtts serve` in a process of its own; gives its address."""
    command = [sys.executable, "-m", "myxtts", "serve", "--model", str(model), "--port", "0", "--voice", voice]
    command += ["--max-requests", str(_MAX_REQUESTS)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = (process.stdout.readline() if process.stdout else "").split()[2]
        # The first request traces the graphs.
        httpx.post(f"{url}/v1/audio/speech", json={"input": _TEXT}, timeout=_START_S).raise_for_status()
        yield url, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.communicate(timeout=_START_S)


def measure_first_sounds(url: str, num_requests: int) -> list[tuple[float, float]]:
    """For each request of one sentence: seconds to its first bytes, and the engine's own seconds for that sentence."""
    times = []
    for _ in range(num_requests):
        before_s, started = _read_engine_s(url), time.perf_counter()
        body = {"input": _SENTENCE, "response_format": "pcm"}
        with httpx.stream("POST", f"{url}/v1/audio/speech", json=body, timeout=60) as answer:
            chunks = answer.iter_raw()
            next(chunks)
            first_s = time.perf_counter() - started
            for _chunk in chunks:
                continue
        times.append((first_s, _read_engine_s(url) - before_s))
    return times


def _read_engine_s(url: str) -> float:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith("myxtts_engine_seconds_total")).split()[1])


def load_server(
    url: str, process: psutil.Process, num_clients: int, duration_s: float, headers: Mapping[str, str] | None = None
) -> tuple[Counter[int], float]:
    """Statuses of all answers (0 for a broken one), and the growth of the server's memory in the second half in MB."""
    statuses: Counter[int] = Counter()
    lock, end = threading.Lock(), time.monotonic() + duration_s

    def ask(number: int) -> None:
        kinds = ("mp3", "opus", "flac", "wav", "pcm")
        with httpx.Client(timeout=120, headers=headers) as client:
            turn = number
            while time.monotonic() < end:
                status = _ask_once(client, url, kinds[turn % len(kinds)])
                turn += 1
                with lock:
                    statuses[status] += 1
                if status == 429:
                    time.sleep(0.3)

    clients = [threading.Thread(target=ask, args=(number,)) for number in range(num_clients)]
    for client in clients:
        client.start()
    peaks = [process.memory_info().rss, 0]
    while any(client.is_alive() for client in clients):
        half = time.monotonic() > end - duration_s / 2
        peaks[half] = max(peaks[half], process.memory_info().rss)
        time.sleep(0.2)
    return statuses, (peaks[1] - peaks[0]) / 2**20


def _ask_once(client: httpx.Client, url: str, kind: str) -> int:
    try:
        answer = client.post(f"{url}/v1/audio/speech", json={"input": _TEXT, "response_format": kind})
    except httpx.HTTPError:
        return 0
    return answer.status_code if answer.content else 0
