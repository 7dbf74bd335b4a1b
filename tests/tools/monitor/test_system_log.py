"""GPU and memory of a training over time: what is written while it trains is what the pages show."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.runtime.fake_nvml import FakeGpu, FakeNvml

from myxtts.storage.json_file import JsonLines
from myxtts.tools.monitor.system_log import RunClock, SystemLog, flatten


def test_samples_of_a_training_come_back_as_curves(tmp_path: Path) -> None:
    gpus = [FakeGpu(utilization_percent=93, power_w=310.0, used_memory_bytes=9 * 10**9), FakeGpu(forbidden=True)]
    warnings: list[str] = []
    with SystemLog(nvml=FakeNvml(gpus)) as log:
        loop: Any = SimpleNamespace(step=7, run=SimpleNamespace(path=tmp_path), say=warnings.append)
        log.on_step(loop, None)
        deadline = time.monotonic() + 120
        while not (tmp_path / "system.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    lines = list(JsonLines(tmp_path / "system.jsonl").read())
    assert lines[0]["at_step"] == 7
    (row, *_) = flatten(lines, RunClock())
    assert row["gpu0_utilization_percent"] == 93
    assert row["gpu0_memory_used_bytes"] == 9.0, "in gigabytes"
    assert row["gpu0_power_w"] == 310
    assert not any(key.startswith("gpu1") for key in row), "what may not be read is no number"
    assert row["memory_bytes"] > 0.01
    assert warnings == []


def test_pauses_between_sessions_and_damaged_lines_are_left_out() -> None:
    lines: list[dict[str, Any]] = [{"time": when, "cores": 1.0} for when in (1000, 1030, 90_000, 90_030)]
    lines[1:1] = [{"cores": 1.0}, {"time": "nonsense"}, json.loads('{"time": 1001, "gpus": [3, {"index": "x"}]}')]
    minutes = [round(row["minutes"], 2) for row in flatten(lines, RunClock())]
    assert minutes == [0.0, 0.02, 0.5, 0.5, 1.0]
