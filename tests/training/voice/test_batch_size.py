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
from myxtts.runtime.hardware import Gpu, Hardware
from myxtts.runtime.plan import choose_plan
from myxtts.training.voice.batch_size import (
    FEWEST,
    MAX_ON_GPU,
    MEMORY_FILE_NAME,
    SizeSearch,
    StepTrials,
    Trial,
    choose_budget,
    keep_num_shapes,
    list_candidates,
    resolve_batch_size,
)

MACHINE = Hardware(num_cpus=2, ram_bytes=8 << 30, available_ram_bytes=8 << 30)
RTX_3060 = Gpu(0, "NVIDIA GeForce RTX 3060", 12 << 30, 11 << 30, "GPU-1", (8, 6), 0)


@pytest.fixture
def config(tmp_path: Path) -> XTTSConfig:
    made = make_data(tmp_path / "data")
    return made.model_copy(update={"batch_size": "auto", "run_dir": tmp_path / "runs" / "one", "frame_budget": None})


def resolve(
    config: XTTSConfig, machine: Hardware = MACHINE, largest: int = 1000, said: list[str] | None = None
) -> int | str:
    """The size on a machine where steps of up to `largest` utterances fit, and each takes all of the budget."""

    def try_size(trials: StepTrials, size: int) -> Trial:
        return Trial(size <= largest, trials.budget_bytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepTrials, "try_size", try_size)
        say = (said if said is not None else []).append
        return resolve_batch_size(config, choose_plan(config, machine), machine, say).data.batch_size


def test_candidates_are_powers_of_two_and_the_halves_between() -> None:
    assert list_candidates(20) == [1, 2, 3, 4, 6, 8, 12, 16]
    assert list_candidates(1) == [1]


def test_a_run_keeps_its_number_of_shapes(tmp_path: Path) -> None:
    asked = XTTSConfig(run_dir=tmp_path / "run", steps=10)
    assert keep_num_shapes(asked).data.num_shapes == "auto"
    (tmp_path / "run").mkdir()
    write_resolved(asked.model_copy(update={"num_shapes": 5}), tmp_path / "run")
    assert keep_num_shapes(asked.model_copy(update={"steps": 10**6})).data.num_shapes == 5
    assert keep_num_shapes(asked.model_copy(update={"num_shapes": 3})).data.num_shapes == 3
    (tmp_path / "run" / "config.yaml").write_text("data: [")
    assert keep_num_shapes(asked).data.num_shapes == "auto"


def test_less_memory_makes_smaller_batches_down_to_one(config: XTTSConfig, tmp_path: Path) -> None:
    sizes = []
    for place, share in enumerate((1, 5_000, 300_000)):
        elsewhere = config.model_copy(update={"run_dir": tmp_path / str(place) / "run"})
        small = replace(MACHINE, available_ram_bytes=MACHINE.available_ram_bytes // share)
        sizes.append(resolve(elsewhere, small))
    assert sizes[0] == FEWEST, "the corpus has 21 utterances to train on: with more, an epoch would have few steps"
    assert sizes == sorted(sizes, reverse=True)
    assert 1 < int(sizes[1]) < FEWEST
    assert sizes[2] == 1


def test_accumulated_batches_count_together_for_the_steps_of_an_epoch(config: XTTSConfig) -> None:
    accumulated = config.model_copy(update={"training.gradient_accumulation_steps": 4})
    assert resolve(accumulated) == FEWEST // 4


def test_the_calculation_is_said_in_numbers(config: XTTSConfig) -> None:
    said: list[str] = []
    resolve(config, replace(MACHINE, gpus=(RTX_3060,)), said=said)
    assert "11.0 GB are free on NVIDIA GeForce RTX 3060" in said[0]
    assert "8 utterances take" in said[0]
    assert "fewer than 16 steps" in said[1]


def test_the_budget_of_a_gpu_leaves_room_for_cuda_and_fragmentation() -> None:
    small = replace(RTX_3060, free_memory_bytes=4 << 30)
    assert 2.8 < choose_budget([RTX_3060, small], 0) / 2**30 < 3.0
    assert choose_budget([], 8 << 30) == 4 << 30


def test_what_was_found_is_remembered_for_device_and_model(config: XTTSConfig, tmp_path: Path) -> None:
    first = resolve(config)
    assert (tmp_path / "runs" / MEMORY_FILE_NAME).is_file()
    starved = replace(MACHINE, available_ram_bytes=1 << 16)
    assert resolve(config, starved) == first
    assert resolve(config.model_copy(update={"text_width": 24}), starved) == 1


def test_a_run_keeps_the_size_it_was_begun_with(config: XTTSConfig) -> None:
    config.training.run_path.mkdir(parents=True)
    write_resolved(config.model_copy(update={"batch_size": 6}), config.training.run_path)
    assert resolve(config) == 6


def test_an_estimate_that_does_not_fit_is_halved_and_that_is_remembered(config: XTTSConfig) -> None:
    assert resolve(config, largest=5) == 4
    assert resolve(config, largest=1000) == 4


def search(first: int, largest: int, *, state: int = 100, row: int = 10, sizes: list[int] | None = None) -> list[int]:
    """Sizes that are tried, and the one that is found, where `largest` rows of `row` bytes fit."""
    tried: list[int] = []

    def try_size(size: int) -> Trial:
        tried.append(size)
        return Trial(size <= largest, state + size * row)

    sizes = sizes or list_candidates(MAX_ON_GPU)
    found = SizeSearch(sizes, state + largest * row, state).run(first, try_size, lambda _: None)
    return [*tried, found]


def test_the_largest_size_is_found_upwards_from_the_peak_of_the_first_trial() -> None:
    assert search(8, 100) == [8, 96, 96], "an estimate that is far too low costs one more trial"
    assert search(128, 1000) == [128, 128]
    assert search(96, 100) == [96, 96]


def test_the_largest_size_is_found_downwards_and_up_again() -> None:
    assert search(64, 50) == [64, 32, 48, 48]
    assert search(128, 20) == [128, 64, 32, 16, 16]


def test_a_trial_without_an_outcome_leaves_what_is_known() -> None:
    unknown = SizeSearch([8, 16, 24], 1000, 0)
    assert unknown.run(24, lambda _: Trial(None), lambda _: None) == 24
    trials = iter([Trial(False), Trial(True, 10), Trial(None)])
    assert SizeSearch([4, 8, 12, 16], 1000, 0).run(16, lambda _: next(trials), lambda _: None) == 8


def test_shares_of_several_devices_stay_equal() -> None:
    sizes = [3 * rows for rows in list_candidates(12)]
    assert search(36, 3, sizes=sizes) == [36, 18, 9, 3, 3]
    with pytest.raises(HardwareError, match="batch of 3"):
        search(9, 2, sizes=sizes)


def test_processes_that_train_together_must_be_told_a_number(config: XTTSConfig) -> None:
    machine = replace(MACHINE, cluster=Cluster("TF_CONFIG", 2, 1))
    with pytest.raises(ConfigError, match="in a cluster"):
        resolve(config, machine)


def test_a_real_step_is_tried_in_a_process_of_its_own(config: XTTSConfig) -> None:
    said: list[str] = []
    quick = config.model_copy(update={"training.enable_graph_mode": False, "data.num_shapes": 1})
    fitting = StepTrials(quick, 4 << 30, 250.0, said.append).try_size(2)
    assert fitting.fits is True, said
    assert 1 << 20 < fitting.peak_bytes < 4 << 30
    assert StepTrials(quick, 1 << 20, 250.0, said.append).try_size(2).fits is False, said
    assert StepTrials(quick, 4 << 30, 1.0, said.append).try_size(2).fits is None
    assert "longer than 1 s" in said[-1]


def test_a_number_that_was_asked_for_is_left_alone(config: XTTSConfig) -> None:
    assert resolve(config.model_copy(update={"batch_size": 5})) == 5
