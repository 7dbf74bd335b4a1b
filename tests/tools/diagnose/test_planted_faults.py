"""Pipelines with a planted fault: the first cause that is named is the right one, and the gain comes true."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tools import planted, planted_steps
from tests.tools.planted import Plant, slow_reads
from tests.tools.planted_configs import (
    PlantedConfig,
    make_corpus,
    padded_to_the_longest,
    recordings_on_slow_disk,
    stored_and_quick,
)
from tests.tools.planted_loops import PLANTED_LOOPS
from tests.tools.planted_steps import EVERYWHERE
from tests.training.trainer_programs import make_data

from myxtts.config.schema import XTTSConfig
from myxtts.tools.diagnose.examine import Diagnosis, diagnose_config
from myxtts.tools.diagnose.findings import Cause, Finding

NOTICEABLE = 0.07
QUICK = ("no_prefetch", "epoch_end_rebuild", "eager_step", "slow_transfer")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> XTTSConfig:
    return make_corpus(tmp_path_factory.mktemp("planted"))


def is_near(predicted: float, measured: float) -> bool:
    """Within a third of what was gained; less than is noticeable counts as nothing."""
    return abs(predicted - measured) <= max(abs(measured - 1) / 3, NOTICEABLE)


@pytest.mark.parametrize("name", QUICK)
def test_cause_is_named_first(name: str) -> None:
    fault = EVERYWHERE[name]()
    diagnosis = fault.diagnose(num_batches=20, time_limit_s=4.0)
    assert diagnosis.first.cause is fault.cause, describe(diagnosis)
    assert diagnosis.first.gain > 1.15
    advice = diagnosis.first.advice[0]
    assert 1 <= advice.gain.low <= advice.gain.factor <= advice.gain.high


def test_a_pipeline_that_keeps_up_is_called_healthy() -> None:
    diagnosis = planted_steps.healthy().diagnose(num_batches=20, time_limit_s=4.0)
    assert diagnosis.is_healthy, describe(diagnosis)
    assert diagnosis.first.gain == 1.0
    assert diagnosis.first.advice == ()


def test_python_functions_are_named_with_file_and_line() -> None:
    diagnosis = planted.python_generator().diagnose(num_batches=10, time_limit_s=2.0)
    assert diagnosis.first.cause is Cause.PYTHON_FUNCTIONS, describe(diagnosis)
    functions = {function.name: function for function in diagnosis.evidence.python_functions}
    found = functions["generate_slowly"]
    assert found.operation == "PyFunc"
    assert found.file.endswith("planted.py")
    assert found.line == planted.generate_slowly.__code__.co_firstlineno


def test_slow_recordings_of_a_configuration_are_found_and_mended(config: XTTSConfig) -> None:
    fault = recordings_on_slow_disk(config)
    diagnosis = fault.diagnose(num_batches=15)
    assert diagnosis.first.cause is Cause.SLOW_READS, describe(diagnosis)
    assert diagnosis.list_changes() == {"data.preprocessing_mode": "precompute"}
    assert [stage.name for stage in diagnosis.evidence.stages] == [
        "read",
        "decode",
        "features",
        "batch",
        "transfer",
        "step",
    ]
    verified = fault.measure_gain(diagnosis, num_rounds=1)
    assert verified.factor > 1.5
    assert {setting.setting for setting in diagnosis.machine_settings} >= {"data.num_workers", "data.buffer_size"}


def test_padding_of_a_configuration_is_counted_on_its_own_utterances(config: XTTSConfig) -> None:
    diagnosis = padded_to_the_longest(config).diagnose(num_batches=15)
    assert diagnosis.first.cause is Cause.PADDING, describe(diagnosis)
    assert diagnosis.list_changes()["data.num_shapes"] in (4, 8, 16)


@pytest.mark.soak
def test_twenty_planted_faults(config: XTTSConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faults: dict[str, Callable[[], Plant | PlantedConfig]] = {
        **EVERYWHERE,
        "small_files": lambda: slow_reads(tmp_path / "small", 8_000, 0.004),
        "slow_disk": lambda: slow_reads(tmp_path / "large", 200_000, 0.006),
        "recordings_on_slow_disk": lambda: recordings_on_slow_disk(config),
        "padded_to_the_longest": lambda: padded_to_the_longest(config),
    }
    assert len(faults) == 20
    num_right, num_near, num_near_factors, lines = 0, 0, 0, []
    for name, make in faults.items():
        fault = make()
        diagnosis = fault.diagnose()
        measured = fault.measure_gain(diagnosis).factor
        right = diagnosis.first.cause is fault.cause
        near = is_near(diagnosis.first.gain, measured)
        num_right, num_near = num_right + right, num_near + near
        num_near_factors += abs(diagnosis.first.gain / measured - 1) <= 1 / 3
        marks = f"{'right' if right else 'WRONG':6}{'near' if near else 'FAR':5}"
        gains = f"predicted {diagnosis.first.gain:5.2f}, measured {measured:5.2f}"
        lines.append(f"{name:28} {marks} {gains}  {describe(diagnosis)}")
        with capsys.disabled():
            print(lines[-1], flush=True)
    with capsys.disabled():
        print(f"{num_right} of 20 causes were right, {num_near} of 20 gains within a third of the measured ones")
        print(f"(gains as percentages; {num_near_factors} of 20 as factors)")
    assert stored_and_quick(config).diagnose().is_healthy
    assert num_right >= 18, lines
    assert num_near >= 14, lines


def describe(diagnosis: Diagnosis) -> str:
    evidence = diagnosis.evidence
    causes = ", ".join(f"{one.cause} {1e3 * one.loss_s:.1f}" for one in diagnosis.findings)
    times = (evidence.loop.interval_s, evidence.data_s, evidence.step_s, evidence.take_s)
    stages = " ".join(f"{s.name} {1e3 * s.seconds:.1f}/{s.cpu_share:.2f}" for s in evidence.stages)
    cores = evidence.machine
    used = f"{cores.num_used_cores:.2f}/{cores.num_wanted_cores:.2f}/{cores.num_free_cores:.2f}"
    return f"{causes} | ms {' '.join(f'{1e3 * one:.1f}' for one in times)} | {stages} | cores {used}"


@pytest.mark.soak
def test_ten_planted_faults_of_the_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = make_data(tmp_path, num_shapes=1, batch_size=8)
    # Clips of nearly the same length: padding is no fault here.
    assert not any(one.cause in {fault.cause for fault in PLANTED_LOOPS.values()} for one in find_faults(config))
    assert len(PLANTED_LOOPS) == 10
    num_right = 0
    for name, fault in PLANTED_LOOPS.items():
        diagnosis = fault.diagnose(config)
        causes = [one.cause for one in diagnosis.findings if one.cause is not Cause.PADDING]
        num_right += causes[:1] == [fault.cause]
        with capsys.disabled():
            print(f"{name:34} {fault.cause:30} found: {', '.join(causes)}", flush=True)
    assert num_right >= 8


@pytest.mark.parametrize("name", PLANTED_LOOPS)
def test_every_fault_of_the_step_can_still_be_planted(name: str) -> None:
    with PLANTED_LOOPS[name].plant():
        pass


def find_faults(config: XTTSConfig) -> tuple[Finding, ...]:
    return diagnose_config(config, num_batches=8, time_limit_s=6.0).findings
