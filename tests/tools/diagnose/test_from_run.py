"""A run is diagnosed from its files alone: what its telemetry and metrics show, and what they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.myxtts_process import run_myxtts
from tests.tools.fake_watch import add_lines, make_steps

from myxtts.cli.main import app
from myxtts.config.load import write_resolved
from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError, UsageError
from myxtts.tools.diagnose.examine import Diagnosis, diagnose_run
from myxtts.tools.diagnose.findings import Cause

NUM_BATCHES = 48


def write_run(path: Path, lines: list[dict[str, Any]], rates: dict[str, float], **settings: Any) -> Path:
    path.mkdir(parents=True)
    write_resolved(XTTSConfig(train_data="corpus", batch_size=16, num_workers=1, **settings), path)
    add_lines(path / "telemetry.jsonl", lines)
    add_lines(path / "metrics.jsonl", [{"step": 40, "loss": 2.0, "seconds": 0.1, "au": 1.0, **rates}])
    return path


def diagnose(tmp_path: Path, rates: dict[str, float] | None = None, **fields: Any) -> Diagnosis:
    """A run whose steps all have these fields; functions are called with the position."""
    lines = make_steps(0, NUM_BATCHES)
    for line in lines:
        line |= {name: value(line["position"]) if callable(value) else value for name, value in fields.items()}
    return diagnose_run(write_run(tmp_path / "run", lines, rates or {"wall_share": 0.97}))


def test_a_run_that_computes_all_the_time_is_healthy(tmp_path: Path) -> None:
    diagnosis = diagnose(tmp_path)
    assert diagnosis.is_healthy
    assert diagnosis.loading == "good"
    assert diagnosis.au == pytest.approx(0.99, abs=0.01)
    assert diagnosis.au_basis == "data wait"


def test_a_run_that_waits_for_slow_loading(tmp_path: Path) -> None:
    diagnosis = diagnose(tmp_path, wait_s=0.2, load_s=0.3)
    assert diagnosis.first.cause is Cause.RATE_DEFICIT
    assert diagnosis.loading == "slow"


def test_graphs_of_known_shapes_that_are_traced_again(tmp_path: Path) -> None:
    diagnosis = diagnose(
        tmp_path,
        is_retraced=lambda position: position % 3 == 2,
        step_s=lambda position: 5.0 if position % 3 == 2 else 0.1,
    )
    assert diagnosis.first.cause is Cause.COMPILE_STORM


def test_new_shapes_all_the_time(tmp_path: Path) -> None:
    diagnosis = diagnose(tmp_path, is_retraced=True, step_s=2.0, num_padded_frames=lambda position: 5000 + position)
    assert diagnosis.first.cause is Cause.RETRACING


def test_checkpoints_that_eat_the_wall_clock(tmp_path: Path) -> None:
    diagnosis = diagnose(tmp_path, {"wall_share": 0.55})
    assert diagnosis.first.cause is Cause.PAUSES
    assert diagnosis.measure_share(diagnosis.first) == pytest.approx(0.45)
    assert diagnosis.list_changes()["training.checkpoint_steps"] > XTTSConfig().training.checkpoint_steps


def test_a_gpu_that_is_idle_with_its_data_at_hand(tmp_path: Path) -> None:
    diagnosis = diagnose(tmp_path, {"wall_share": 0.97, "device_busy": 0.2})
    assert diagnosis.first.cause is Cause.IDLE
    assert (diagnosis.au, diagnosis.au_basis) == (0.2, "device")


def test_micro_batches_are_added_up_to_steps(tmp_path: Path) -> None:
    """Only the last batch of a step takes time: neither its steps vary nor do its waits double."""
    lines = [step | {"step_s": 0.4 if step["position"] % 4 == 3 else 0.0001} for step in make_steps(0, NUM_BATCHES)]
    path = write_run(tmp_path / "run", lines, {"wall_share": 1.0}, gradient_accumulation_steps=4)
    diagnosis = diagnose_run(path)
    assert diagnosis.is_healthy
    assert diagnosis.evidence.step_s == pytest.approx(0.4003)
    assert diagnosis.oscillation.is_stable
    assert diagnosis.evidence.loop.num_steps == NUM_BATCHES // 4 - 1


def test_the_command_reads_a_run_without_tensorflow(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", make_steps(0, NUM_BATCHES), {"wall_share": 0.5})
    done = run_myxtts("diagnose", "--run", path)
    assert done.returncode == 0, done.stderr
    assert "47 steps of the run, from its own files" in done.stdout
    assert "50.0 % of the time is spent between steps" in done.stdout


def test_too_little_to_go_by_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no run"):
        diagnose_run(tmp_path)
    with pytest.raises(DataError, match="2 measured steps"):
        diagnose_run(write_run(tmp_path / "run", make_steps(0, 3), {}))
    with pytest.raises(UsageError, match="--verify cannot"):
        app(["diagnose", "--run", str(tmp_path / "run"), "--verify"], standalone_mode=False)
