"""How many utterances a second become batches without a store, beside two usual ways of doing it.

Every contender lives in a process of its own, which is asked for one round at a time, so that they take turns.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO, Any, cast

from benchmarks.alone import NO_NOISE, ONE_THREAD, QuietMoments
from benchmarks.contenders import run_numpy_function, run_processes
from benchmarks.corpora import DATA, make_corpus
from benchmarks.harness import Measurement
from myxtts.config.schema import XTTSConfig
from myxtts.pipeline.open import open_batches
from myxtts.tools.emulate import ProcessMeter

_NUM_UTTERANCES = 512
_CLIP_SECONDS = (6.0, 6.0001)
_NUM_ROUNDS = 5
_WARM_UP_S = 8.0
_SKIPPED_S = 0.7
_ROUND_S = 2.5
_CALM_WATCH_S = 0.1
_CALM_SHARE = 0.1
_CALM_PATIENCE_S = 10.0
_PATIENCE_S = 60.0
# So little that no spectrogram is kept from one epoch to the next.
_NO_MEMORY_GB = 1e-6

Batches = Iterator[int]
"""Numbers of utterances of one batch after the other."""

_METER = ProcessMeter()


def measure_loading() -> list[Measurement]:
    with tempfile.TemporaryDirectory() as name:
        make_corpus(Path(name), _NUM_UTTERANCES, _CLIP_SECONDS)
        rates, cpu_ms = compare_contenders(name)
    note = ", ".join(f"{name} {rate:.0f}/s ({cpu_ms[name]:.1f} ms CPU each)" for name, rate in rates.items())
    limits = {"librosa in numpy_function": 3.0, "two processes with soundfile and scipy": 1.5}
    return [
        Measurement(
            f"recordings to batches on the fly by {other}",
            rates["product"] / rates[other],
            "x",
            "at least",
            limit,
            note,
        )
        for other, limit in limits.items()
    ]


def compare_contenders(folder: str) -> tuple[dict[str, float], dict[str, float]]:
    """Utterances per second and milliseconds of CPU time an utterance: medians of rounds in which they take turns."""
    contenders: dict[str, _Contender] = {}
    rounds: dict[str, list[_Round]] = {name: [] for name in CONTENDERS}
    quiet = QuietMoments(_PATIENCE_S)
    with ExitStack() as stack:
        for name in CONTENDERS:
            contenders[name] = _Contender(name, folder)
            stack.callback(contenders[name].stop)
        for round_number in range(_NUM_ROUNDS):
            for name in list(CONTENDERS)[:: 1 if round_number % 2 else -1]:
                quiet.wait()
                rounds[name].append(contenders[name].run_round())
    return (
        {name: median(item.utterances_per_s for item in items) for name, items in rounds.items()},
        {name: median(item.cpu_ms for item in items) for name, items in rounds.items()},
    )


def run_product(folder: str, **settings: Any) -> Batches:
    """This product as it is configured by itself; what tuning chooses counts."""
    config = XTTSConfig(
        train_data=f"{folder}/corpus",
        text_frontend=DATA.text_frontend,
        preprocessing_mode="on_the_fly",
        ram_budget_gb=_NO_MEMORY_GB,
        **settings,
    )
    with open_batches(config) as feed:
        for batch in feed:
            yield batch.num_real


def run_graph(folder: str) -> Batches:
    fixed = {"auto_tune_performance": False, "optimize_cpu_gpu_overlap": False, "num_workers": 2}
    return run_product(folder, **fixed)


def run_host(folder: str) -> Batches:
    return run_product(folder, use_tf_native_loading=False)


CONTENDERS: dict[str, Callable[[str], Batches]] = {
    "product": run_product,
    "its graph alone": run_graph,
    "its Python alone": run_host,
    "librosa in numpy_function": run_numpy_function,
    "two processes with soundfile and scipy": run_processes,
}
_WITH_ONE_THREAD = ("librosa in numpy_function", "two processes with soundfile and scipy")


@dataclass(frozen=True, slots=True)
class _Round:
    """`cpu_ms` is the time an utterance takes on all processors together."""

    utterances_per_s: float
    cpu_ms: float


class _Contender:
    """The process of one contender, as seen from outside. It has warmed up and come to rest when this is made."""

    def __init__(self, name: str, folder: str) -> None:
        environment = {**os.environ, **NO_NOISE, **(ONE_THREAD if name in _WITH_ONE_THREAD else {})}
        command = [sys.executable, "-m", "benchmarks.loading", name, folder]
        self._name = name
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read_answer()

    def run_round(self) -> _Round:
        questions = cast("IO[str]", self._process.stdin)
        questions.write("\n")
        questions.flush()
        return self._read_answer()

    def _read_answer(self) -> _Round:
        line = cast("IO[str]", self._process.stdout).readline()
        if not line:
            raise RuntimeError(f"The contender {self._name} ended with {self._process.wait()}.")
        return _Round(*map(float, line.split()))

    def stop(self) -> None:
        self._process.communicate()


def serve_rounds(name: str, folder: str) -> None:
    """What the process of a contender does: a round for every line it reads, and its figures as the answer."""
    batches = CONTENDERS[name](folder)
    _answer(_take_for(batches, _WARM_UP_S))
    for _ in sys.stdin:
        # What was made ready since the last round is not this round's work.
        _take_for(batches, _SKIPPED_S)
        _answer(_take_for(batches, _ROUND_S))


def _take_for(batches: Batches, seconds: float) -> _Round:
    """Takes batches for so long, to the end of the last one."""
    started, num_utterances, elapsed_s, used_s = time.monotonic(), 0, 0.0, _METER.read_cpu_s()
    while elapsed_s < seconds:
        num_utterances += next(batches)
        elapsed_s = time.monotonic() - started
    return _Round(num_utterances / elapsed_s, 1000 * (_METER.read_cpu_s() - used_s) / num_utterances)


def _answer(figures: _Round) -> None:
    """Answers when nothing is made ready any more: that would disturb the next contender."""
    end, used_s = time.monotonic() + _CALM_PATIENCE_S, -1.0
    while time.monotonic() < end and (now_s := _METER.read_cpu_s()) - used_s > _CALM_SHARE * _CALM_WATCH_S:
        used_s = now_s
        time.sleep(_CALM_WATCH_S)
    sys.stdout.write(f"{figures.utterances_per_s} {figures.cpu_ms}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve_rounds(*sys.argv[1:])
