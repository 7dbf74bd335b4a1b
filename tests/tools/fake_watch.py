"""Watches that tests can play: GPUs with scripted use, a run whose telemetry is written by hand, a clock to move."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pynvml
from tests.runtime.fake_nvml import GIB, FakeGpu, FakeNvml, FakeProcess

from myxtts.tools.monitor.log import SampleLog
from myxtts.tools.monitor.sample import Sampler
from myxtts.tools.monitor.watch import Monitor, Schedule


class FakeClock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class GappyNvml(FakeNvml):
    """Some questions end with an error of pynvml: its code, or an exception."""

    def __init__(self, gpus: list[FakeGpu], gaps: dict[str, int | Exception]) -> None:
        super().__init__(gpus)
        for name, problem in gaps.items():
            setattr(self, name, _make_refusal(problem))


def _make_refusal(problem: int | Exception) -> Callable[..., Any]:
    def refuse(*_arguments: Any) -> Any:
        raise problem if isinstance(problem, Exception) else pynvml.NVMLError(problem)

    return refuse


def make_busy_gpus(num_gpus: int) -> list[FakeGpu]:
    """GPUs in the middle of a training, each a little different."""
    return [
        FakeGpu(
            utilization_percent=97 - number,
            used_memory_bytes=round((20.1 - number) * GIB),
            power_w=350 + 5 * number,
            temperature_c=67 + number,
            pcie_rx_kb_s=1_200_000,
            pcie_tx_kb_s=300_000,
            processes=(FakeProcess(os.getpid(), round((19.2 - number) * GIB)), FakeProcess(2**22 + 1, 10**8)),
        )
        for number in range(num_gpus)
    ]


def make_steps(
    first: int, num_steps: int, wait_s: float = 0.001, step_s: float = 0.1, **fields: Any
) -> list[dict[str, Any]]:
    usual = {"load_s": 0.01, "stages": {"transfer": 0.0004}, "depth": 40, "num_frames": 7000, "num_padded_frames": 7600}
    usual |= {"num_utterances": 16, "shape": "16x475x90", "is_retraced": False}
    return [
        {"position": position, "wait_s": wait_s, "step_s": step_s, **usual, **fields}
        for position in range(first, first + num_steps)
    ]


def add_lines(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def take_run(run: Path, pid: int | None = None) -> None:
    """Writes what a training writes into its lock."""
    run.mkdir(parents=True, exist_ok=True)
    (run / ".lock").write_text(f"process {pid if pid is not None else os.getpid()} (training)")


def play_watch(
    run: Path,
    nvml: FakeNvml,
    num_samples: int,
    *,
    wait_s: Callable[[int], float] = lambda _number: 0.001,
    step_s: Callable[[int], float] = lambda number: 0.1 + 0.004 * math.sin(number),
    shape: Callable[[int], tuple[str, int]] = lambda _number: ("16x475x90", 7600),
    change: Callable[[int], None] = lambda _number: None,
    log: SampleLog | None = None,
    **rates: float,
) -> Monitor:
    """A whole watch of a run that makes twenty steps between two samples; `change` plays the scene.

    `rates` are further numbers in its lines of metrics.
    """
    clock = FakeClock()
    take_run(run)
    add_lines(run / "telemetry.jsonl", make_steps(0, 1))
    add_lines(run / "metrics.jsonl", [{"step": 1, "loss": 4.2, "epoch": 0.01}])
    with Sampler(run, nvml=nvml, clock=clock) as sampler:
        monitor = Monitor(sampler, Schedule(interval_s=2.0), log, clock=clock)
        for number in range(num_samples):
            change(number)
            start = 1 + 20 * number
            lines = [
                step
                for place in range(start, start + 20)
                for step in make_steps(
                    place, 1, wait_s(place), step_s(place), shape=shape(place)[0], num_padded_frames=shape(place)[1]
                )
            ]
            add_lines(run / "telemetry.jsonl", lines)
            record = {"step": start + 19, "loss": 4.2 - number / 40, "epoch": number / 10, **rates}
            add_lines(run / "metrics.jsonl", [record])
            clock.sleep(2.0)
            monitor.look()
    return monitor
