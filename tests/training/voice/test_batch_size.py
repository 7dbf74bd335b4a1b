"""`batch_size: auto`: what fits is found from the memory there is, remembered, and kept for a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.training.trainer_programs import make_data

from myxtts.config.load import write_resolved
from myxtts.config.schema import XTTSConfig
from myxtts.errors import ConfigError, HardwareError
from myxtts.runtime.cluster import Cluster
from myxtts.runtime.hardware import Hardware
from myxtts.runtime.plan import choose_plan
from myxtts.training.voice.batch_size import (
    MEMORY_FILE_NAME,
    StepTrials,
    Trial,
    find_fitting,
    list_candidates,
    resolve_batch_size,
)

MACHINE = Hardware(num_cpus=2, ram_bytes=8 << 30, available_ram_bytes=8 << 30, disk_free_bytes=1 << 30)


@pytest.fixture
def config(tmp_path: Path) -> XTTSConfig:
    made = make_data(tmp_path / "data")
    return made.model_copy(update={"batch_size": "auto", "run_dir": tmp_path / "runs" / "one", "frame_budget": None})


def resolve(config: XTTSConfig, machine: Hardware = MACHINE, largest: int = 1000) -> int | str:
    """The size on a machine where steps of up to `largest` utterances fit."""

    def try_size(_trials: StepTrials, size: int) -> Trial:
        return Trial.FITS if size <= largest else Trial.TOO_LARGE

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepTrials, "try_size", try_size)
        return resolve_batch_size(config, choose_plan(config, machine), machine, lambda _: None).data.batch_size


def test_candidates_are_powers_of_two_and_the_halves_between() -> None:
    assert list_candidates(20) == [1, 2, 3, 4, 6, 8, 12, 16]
    assert list_candidates(1) == [1]


def test_less_memory_makes_smaller_batches_down_to_one(config: XTTSConfig, tmp_path: Path) -> None:
    sizes = []
    for place, share in enumerate((1, 1_500, 300_000)):
        elsewhere = config.model_copy(update={"run_dir": tmp_path / str(place) / "run"})
        small = replace(MACHINE, available_ram_bytes=MACHINE.available_ram_bytes // share)
        sizes.append(resolve(elsewhere, small))
    assert sizes[0] == 16, "the corpus has 21 utterances to train on"
    assert sizes == sorted(sizes, reverse=True)
    assert 1 < int(sizes[1]) < 16
    assert sizes[2] == 1


def test_what_was_found_is_remembered_for_device_and_model(config: XTTSConfig, tmp_path: Path) -> None:
    first = resolve(config)
    assert (tmp_path / "runs" / MEMORY_FILE_NAME).is_file()
    starved = replace(MACHINE, available_ram_bytes=1 << 20)
    assert resolve(config, starved) == first
    assert resolve(config.model_copy(update={"text_width": 24}), starved) == 1


def test_a_run_keeps_the_size_it_was_begun_with(config: XTTSConfig) -> None:
    config.training.run_path.mkdir(parents=True)
    write_resolved(config.model_copy(update={"batch_size": 6}), config.training.run_path)
    assert resolve(config) == 6


def test_an_estimate_that_does_not_fit_is_halved_and_that_is_remembered(config: XTTSConfig) -> None:
    assert resolve(config, largest=5) == 4
    assert resolve(config, largest=1000) == 4


def test_a_trial_that_says_nothing_leaves_the_estimate() -> None:
    said: list[str] = []
    assert find_fitting(24, 1, lambda _: Trial.UNKNOWN, said.append) == 24
    assert said == []


def test_shares_of_several_devices_stay_equal() -> None:
    tried: list[int] = []

    def try_size(size: int) -> Trial:
        tried.append(size)
        return Trial.FITS if size <= 3 else Trial.TOO_LARGE

    assert find_fitting(36, 3, try_size, lambda _: None) == 3
    assert tried == [36, 18, 9, 3]
    with pytest.raises(HardwareError, match="batch of 3"):
        find_fitting(36, 3, lambda _: Trial.TOO_LARGE, lambda _: None)


def test_processes_that_train_together_must_be_told_a_number(config: XTTSConfig) -> None:
    machine = replace(MACHINE, cluster=Cluster("TF_CONFIG", 2, 1))
    with pytest.raises(ConfigError, match="several processes"):
        resolve(config, machine)


def test_a_real_step_is_tried_in_a_process_of_its_own(config: XTTSConfig) -> None:
    said: list[str] = []
    quick = config.model_copy(update={"training.enable_graph_mode": False, "data.num_shapes": 1})
    assert StepTrials(quick, 4 << 30, 250.0, said.append).try_size(2) is Trial.FITS, said
    assert StepTrials(quick, 1 << 20, 250.0, said.append).try_size(2) is Trial.TOO_LARGE, said
    assert StepTrials(quick, 4 << 30, 1.0, said.append).try_size(2) is Trial.UNKNOWN
    assert "longer than 1 s" in said[-1]


def test_a_number_that_was_asked_for_is_left_alone(config: XTTSConfig) -> None:
    assert resolve(config.model_copy(update={"batch_size": 5})) == 5
