"""What TensorFlow calls a GPU when others are hidden. That it really does so is shown by the tests of the strategy."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.fake_nvml import GIB, FakeGpu, FakeNvml, make_gpus, make_unequal_gpus

from myxtts.config.schema import XTTSConfig
from myxtts.errors import HardwareError
from myxtts.runtime.cluster import Cluster
from myxtts.runtime.hardware import Hardware, detect_hardware
from myxtts.runtime.plan import Mode, Plan, choose_plan, translate_devices


@pytest.mark.parametrize(
    ("names", "visible", "expected"),
    [
        (["/GPU:0"], ["/GPU:0"], ["/GPU:0"]),
        (["/GPU:3"], ["/GPU:3"], ["/GPU:0"]),
        (["/GPU:3", "/GPU:1"], ["/GPU:3", "/GPU:1"], ["/GPU:1", "/GPU:0"]),
        (["/GPU:2"], ["/GPU:0", "/GPU:2", "/GPU:5"], ["/GPU:1"]),
        (["/GPU:10"], ["/GPU:9", "/GPU:10"], ["/GPU:1"]),
        (["/CPU:0", "/GPU:1"], ["/CPU:0", "/GPU:1"], ["/CPU:0", "/GPU:0"]),
        (["/CPU:3"], [], ["/CPU:3"]),
        ([], ["/GPU:1"], []),
    ],
)
def test_hidden_gpus_move_the_others_forward(names: list[str], visible: list[str], expected: list[str]) -> None:
    assert translate_devices(names, visible) == tuple(expected)


@given(st.lists(st.integers(0, 31), unique=True, min_size=1))
def test_visible_gpus_are_counted_from_zero_in_their_order(numbers: list[int]) -> None:
    visible = [f"/GPU:{number}" for number in numbers]
    by_number = [f"/GPU:{number}" for number in sorted(numbers)]
    assert translate_devices(by_number, visible) == tuple(f"/GPU:{place}" for place in range(len(numbers)))
    assert sorted(translate_devices(visible, visible)) == sorted(translate_devices(by_number, visible))


def test_a_hidden_gpu_has_no_name() -> None:
    with pytest.raises(ValueError, match="not in list"):
        translate_devices(["/GPU:1"], ["/GPU:0"])


def build_machine(num_gpus: int, *, unequal: bool = False, num_cpus: int = 16) -> Hardware:
    gpus = make_unequal_gpus() if unequal else make_gpus(num_gpus)
    return replace(detect_hardware(nvml=FakeNvml(gpus), environment={}), num_cpus=num_cpus)


MACHINES = {
    "0": build_machine(0),
    "1": build_machine(1),
    "2": build_machine(2),
    "4": build_machine(4),
    "2 unequal": build_machine(2, unequal=True),
}


def plan(machine: str, **values: Any) -> Plan:
    return choose_plan(XTTSConfig(**values), MACHINES[machine])


@pytest.mark.parametrize(
    ("gpus", "settings", "expected"),
    [
        ([("GT 1030", 2, (6, 1)), ("RTX 3090", 24, (8, 6))], {}, "/GPU:1"),
        ([("Tesla P40", 24, (6, 1)), ("RTX 3060", 12, (8, 6))], {}, "/GPU:1"),
        ([("RTX 3060", 12, (8, 6)), ("RTX 4090", 24, (8, 9)), ("RTX 3090", 24, (8, 6))], {}, "/GPU:1"),
        ([("RTX 3090", 24, (8, 6)), ("RTX 3090", 24, (8, 6))], {}, "/GPU:0"),
        ([("GT 1030", 2, (6, 1)), ("RTX 3090", 24, (8, 6))], {"visible_gpus": "0,1"}, "/GPU:0"),
    ],
)
def test_the_best_gpu_trains_unless_the_user_gives_an_order(
    gpus: list[tuple[str, int, tuple[int, int]]], settings: dict[str, Any], expected: str
) -> None:
    cards = [FakeGpu(name=name, memory_bytes=gib * GIB, compute_capability=cc) for name, gib, cc in gpus]
    made = choose_plan(XTTSConfig(**settings), detect_hardware(nvml=FakeNvml(cards), environment={}))
    assert made.model_devices == (expected,)
    assert any(f"GPU {expected[-1]} is the" in reason for reason in made.reasons)


BOTH: dict[str, Any] = {"data_gpu": 0, "model_gpu": 1}
STORED, ON_THE_FLY = {"train_data": "corpus"}, {"preprocessing_mode": "on_the_fly"}
# machine, settings, mode, data device, model devices (CPU when empty), strategy, words of the warning
TABLE: list[tuple[str, dict[str, Any], str, str, str, str, str]] = [
    # Both are named, exist and differ.
    ("2", {"data_gpu": 0, "model_gpu": 1}, "multi-gpu", "GPU:0", "GPU:1", "one_device", ""),
    ("2", {"data_gpu": 1, "model_gpu": 0}, "multi-gpu", "GPU:1", "GPU:0", "one_device", ""),
    ("2 unequal", {"data_gpu": 1, "model_gpu": 0}, "multi-gpu", "GPU:1", "GPU:0", "one_device", ""),
    ("4", {"data_gpu": 0, "model_gpu": "1,2,3"}, "multi-gpu", "GPU:0", "GPU:1 GPU:2 GPU:3", "mirrored", ""),
    ("4", {"data_gpu": 3, "model_gpu": [2, 0]}, "multi-gpu", "GPU:3", "GPU:2 GPU:0", "mirrored", ""),
    ("4", {"data_gpu": 2, "model_gpu": 3, "visible_gpus": "2,3"}, "multi-gpu", "GPU:2", "GPU:3", "one_device", ""),
    ("2", {"data_gpu": 0, "model_gpu": 1, "multi_gpu": True}, "multi-gpu", "GPU:0", "GPU:1", "one_device", "multi_gpu"),
    # The same, but features come from a store.
    ("2", BOTH | {"train_data": "corpus"}, "single-gpu", "CPU:0", "GPU:1", "one_device", "GPU 0 has no work"),
    ("2", BOTH | {"cache_dir": "features"}, "single-gpu", "CPU:0", "GPU:1", "one_device", "use --multi-gpu"),
    ("4", BOTH | {"model_gpu": "2,3", **STORED}, "mirrored", "CPU:0", "GPU:2 GPU:3", "mirrored", "Mirrored mode on"),
    ("2", BOTH | STORED | ON_THE_FLY, "multi-gpu", "GPU:0", "GPU:1", "one_device", ""),
    # Both are named, but one is missing or they are equal.
    ("2", {"data_gpu": 0, "model_gpu": 5}, "single-gpu", "CPU:0", "GPU:0", "one_device", "GPU 5 does not exist"),
    ("2", {"data_gpu": 5, "model_gpu": 1}, "single-gpu", "CPU:0", "GPU:1", "one_device", "GPU 5 does not exist"),
    ("2", {"data_gpu": 5, "model_gpu": 6}, "single-gpu", "CPU:0", "GPU:0", "one_device", "GPUs 5, 6 do not exist"),
    ("2", {"data_gpu": 1, "model_gpu": 1}, "single-gpu", "CPU:0", "GPU:1", "one_device", "GPU 1 is named twice"),
    ("1", {"data_gpu": 0, "model_gpu": 1}, "single-gpu", "CPU:0", "GPU:0", "one_device", "GPU 1 does not exist"),
    (
        "2",
        {"data_gpu": 0, "model_gpu": "1,2,3"},
        "single-gpu",
        "CPU:0",
        "GPU:1",
        "one_device",
        "GPUs 2, 3 do not exist",
    ),
    ("4", {"data_gpu": 1, "model_gpu": "1,2"}, "single-gpu", "CPU:0", "GPU:1", "one_device", "GPU 1 is named twice"),
    (
        "2",
        {"data_gpu": 0, "model_gpu": 1, "visible_gpus": "1"},
        "single-gpu",
        "CPU:0",
        "GPU:1",
        "one_device",
        "hides 1 more",
    ),
    # GPUs are named on a machine without any.
    ("0", {"data_gpu": 0, "model_gpu": 1, "allow_cpu": True}, "cpu", "CPU:0", "", "default", "there is no GPU"),
    ("0", {"model_gpu": 0, "allow_cpu": True}, "cpu", "CPU:0", "", "default", "You asked for model_gpu 0"),
    ("0", {"visible_gpus": "0,1", "allow_cpu": True}, "cpu", "CPU:0", "", "default", "there is no GPU"),
    ("1", {"data_gpu": 0, "model_gpu": 1, "allow_cpu": True}, "single-gpu", "CPU:0", "GPU:0", "one_device", "GPU 1"),
    # A preset for a card that the machine does not have.
    ("0", {"gpu_card": "a100"}, "cpu", "CPU:0", "", "default", "gpu_card is a100"),
    ("1", {"gpu_card": "a100"}, "single-gpu", "CPU:0", "GPU:0", "one_device", "gpu_card is a100"),
    ("1", {"gpu_card": "rtx4090", "num_workers": 2}, "single-gpu", "CPU:0", "GPU:0", "one_device", ""),
    # Only one is named.
    ("2", {"data_gpu": 1}, "single-gpu", "CPU:0", "GPU:1", "one_device", ""),
    ("2", {"data_gpu": 0}, "single-gpu", "CPU:0", "GPU:0", "one_device", ""),
    ("2", {"model_gpu": 1}, "single-gpu", "CPU:0", "GPU:1", "one_device", ""),
    ("1", {"model_gpu": 0}, "single-gpu", "CPU:0", "GPU:0", "one_device", ""),
    ("2", {"model_gpu": 1, "multi_gpu": True}, "single-gpu", "CPU:0", "GPU:1", "one_device", "model_gpu names one GPU"),
    ("4", {"model_gpu": "2,3"}, "single-gpu", "CPU:0", "GPU:2", "one_device", "names 2 GPUs, but only GPU 2"),
    ("4", {"model_gpu": "2,3", "multi_gpu": True}, "mirrored", "CPU:0", "GPU:2 GPU:3", "mirrored", ""),
    # Neither is named.
    ("0", {}, "cpu", "CPU:0", "", "default", ""),
    ("0", {"multi_gpu": True}, "cpu", "CPU:0", "", "default", "there is no GPU"),
    ("1", {}, "single-gpu", "CPU:0", "GPU:0", "one_device", ""),
    ("1", {"multi_gpu": True}, "single-gpu", "CPU:0", "GPU:0", "one_device", "trains alone"),
    ("2", {}, "single-gpu", "CPU:0", "GPU:0", "one_device", ""),
    ("4", {}, "single-gpu", "CPU:0", "GPU:0", "one_device", ""),
    ("2 unequal", {}, "single-gpu", "CPU:0", "GPU:0", "one_device", ""),
    ("4", {"visible_gpus": "2,1"}, "single-gpu", "CPU:0", "GPU:2", "one_device", ""),
    ("2", {"multi_gpu": True}, "mirrored", "CPU:0", "GPU:0 GPU:1", "mirrored", ""),
    ("4", {"multi_gpu": True}, "mirrored", "CPU:0", "GPU:0 GPU:1 GPU:2 GPU:3", "mirrored", ""),
    ("4", {"multi_gpu": True, "visible_gpus": "1,3"}, "mirrored", "CPU:0", "GPU:1 GPU:3", "mirrored", ""),
    ("4", {"multi_gpu": True, "visible_gpus": "3"}, "single-gpu", "CPU:0", "GPU:3", "one_device", "trains alone"),
    ("2 unequal", {"multi_gpu": True}, "mirrored", "CPU:0", "GPU:0 GPU:1", "mirrored", "as long as the slowest"),
]


@pytest.mark.parametrize(("machine", "values", "mode", "data", "model", "strategy", "warning"), TABLE)
def test_the_plan_follows_the_table(
    machine: str, values: dict[str, Any], mode: str, data: str, model: str, strategy: str, warning: str
) -> None:
    chosen = plan(machine, **values)
    assert chosen.mode is Mode(mode)
    assert chosen.data_device == f"/{data}"
    assert chosen.model_devices == tuple(f"/{name}" for name in (model or "CPU:0").split())
    assert chosen.strategy == strategy
    assert len(chosen.warnings) == bool(warning)
    assert warning in " ".join(chosen.warnings)
    assert chosen.reasons


@pytest.mark.parametrize(
    ("machine", "values", "words"),
    [
        ("2", {"visible_gpus": "0,7"}, ["visible_gpus", "GPU 7 does not exist", "GPU 0", "GPU 1", "RTX 4090"]),
        ("2", {"visible_gpus": "5,6"}, ["GPUs 5, 6 do not exist"]),
        ("0", {"visible_gpus": "0"}, ["visible_gpus 0", "this machine has no GPU", "finds no GPU"]),
        ("2", {"data_gpu": 4}, ["data_gpu is 4", "GPU 4 does not exist", "GPU 0", "GPU 1"]),
        ("1", {"model_gpu": 1}, ["model_gpu is 1", "GPU 0 NVIDIA GeForce RTX 4090 24 GiB"]),
        ("2", {"model_gpu": "0,3"}, ["model_gpu is 0,3", "GPU 3 does not exist"]),
        ("0", {"model_gpu": 0}, ["this machine has no GPU"]),
        ("0", BOTH, ["data_gpu 0 and model_gpu 1", "this machine has no GPU"]),
        ("1", {"model_gpu": 1, "allow_cpu": True}, ["GPU 1 does not exist"]),
        ("2", {"model_gpu": 0, "visible_gpus": "1"}, ["GPU 0 does not exist", "hides 1 more"]),
    ],
)
def test_a_gpu_that_cannot_be_had_is_an_error_listing_those_that_exist(
    machine: str, values: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(HardwareError) as caught:
        plan(machine, **values)
    for word in words:
        assert word in caught.value.problem
    assert caught.value.next_step


def test_a_fallback_lists_the_gpus_that_exist_and_where_it_goes() -> None:
    warning = plan("2 unequal", data_gpu=0, model_gpu=3).warnings[0]
    assert "GPU 0 NVIDIA GeForce RTX 4090 24 GiB, GPU 1 NVIDIA GeForce RTX 3060 12 GiB" in warning
    assert "Using Single-GPU buffered mode on GPU 0" in warning


@pytest.mark.parametrize("values", [{}, {"data_gpu": 0, "model_gpu": 1, "allow_cpu": True}])
def test_training_on_the_cpu_gives_the_reason_for_having_no_gpu(values: dict[str, Any]) -> None:
    hardware = replace(MACHINES["0"], no_gpu_reason="the driver is on holiday")
    assert "the driver is on holiday" in " ".join(choose_plan(XTTSConfig(**values), hardware).reasons)


def test_unequal_model_gpus_fed_by_a_data_gpu_are_warned_of() -> None:
    gpus = [*make_gpus(1), *make_unequal_gpus()]
    hardware = detect_hardware(nvml=FakeNvml(gpus), environment={})
    chosen = choose_plan(XTTSConfig(data_gpu=0, model_gpu="1,2"), hardware)
    assert chosen.mode is Mode.MULTI_GPU
    assert "RTX 3060" in chosen.warnings[0]


def test_only_a_data_gpu_delays_the_model() -> None:
    assert plan("2", data_gpu=0, model_gpu=1).model_start_delay_s == 2.0
    assert plan("2", data_gpu=0, model_gpu=1, model_start_delay=0.5).model_start_delay_s == 0.5
    assert plan("2", model_start_delay=0.5).model_start_delay_s == 0.0


def test_prefetch_goes_to_the_model_unless_it_is_turned_off() -> None:
    both = {"data_gpu": 0, "model_gpu": 1}
    assert plan("2", **both).prefetch_devices == ("/GPU:1",)
    assert plan("2", multi_gpu=True).prefetch_devices == ("/GPU:0", "/GPU:1")
    assert plan("2", prefetch_buffer_size=3).prefetch_buffer_size == 3
    assert plan("2", prefetch_buffer_size=3, enhanced_gpu_prefetch=False).prefetch_buffer_size == 1
    for chosen in (plan("2", prefetch_to_gpu=False), plan("0")):
        assert (chosen.prefetch_devices, chosen.prefetch_buffer_size) == ((), 0)


def test_the_buffer_is_as_large_as_asked_for() -> None:
    assert plan("1").buffer_size == 50
    assert plan("1", buffer_size=7).buffer_size == 7


@pytest.mark.parametrize(
    ("num_cpus", "values", "num_workers"),
    [
        (16, {}, 15),
        (1, {}, 1),
        (16, {"data_gpu": 0, "model_gpu": 1}, 14),
        (2, {"data_gpu": 0, "model_gpu": 1}, 1),
        (16, {"optimize_cpu_gpu_overlap": False}, 16),
        (16, {"num_workers": 4}, 4),
        (16, {"num_workers": 0}, 0),
        (16, {"num_workers": 15}, 15),
        (4, {"num_workers": 24, "optimize_cpu_gpu_overlap": False}, 24),
    ],
)
def test_loader_threads_leave_cores_to_the_threads_that_drive_devices(
    num_cpus: int, values: dict[str, Any], num_workers: int
) -> None:
    chosen = choose_plan(XTTSConfig(**values), build_machine(2, num_cpus=num_cpus))
    assert chosen.num_workers == num_workers
    assert chosen.warnings == ()


def test_too_many_loader_threads_are_cut_with_a_warning() -> None:
    chosen = choose_plan(XTTSConfig(gpu_card="rtx4090"), build_machine(1, num_cpus=8))
    assert chosen.num_workers == 7
    assert "num_workers is 24" in chosen.warnings[0]
    assert "optimize_cpu_gpu_overlap" in chosen.warnings[0]


def test_a_plan_is_described_line_by_line() -> None:
    assert plan("4", data_gpu=0, model_gpu="1,2", buffer_size=8).describe() == [
        "Mode: Multi-GPU mode",
        "Data device: /GPU:0, 14 loader threads",
        "Model devices: /GPU:1, /GPU:2",
        "Buffer: 8 batches in memory",
        "Prefetch: 2 batches to /GPU:1, /GPU:2",
        "Model start: when the buffer is ready, at the earliest after 2 s",
    ]
    assert plan("0", num_workers=1, buffer_size=1).describe() == [
        "Mode: CPU mode",
        "Data device: /CPU:0, 1 loader thread",
        "Model device: /CPU:0",
        "Buffer: 1 batch in memory",
        "Prefetch: off",
        "Model start: when the buffer is ready, no delay",
    ]


NUMBERS = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True)


@settings(max_examples=300, deadline=None)
@given(
    machine=st.sampled_from(sorted(MACHINES)),
    num_cpus=st.integers(1, 64),
    data_gpu=st.none() | st.integers(0, 5),
    model_gpu=st.none() | NUMBERS,
    visible_gpus=st.none() | NUMBERS,
    multi_gpu=st.booleans(),
    prefetch_to_gpu=st.booleans(),
    optimize_cpu_gpu_overlap=st.booleans(),
    num_workers=st.just("auto") | st.integers(0, 64),
)
def test_a_plan_names_only_devices_that_exist(machine: str, num_cpus: int, **values: Any) -> None:
    hardware = replace(MACHINES[machine], num_cpus=num_cpus)
    config = XTTSConfig(**values)
    try:
        chosen = choose_plan(config, hardware)
    except HardwareError:
        # Only naming GPUs can fail, and naming both falls back where there is any GPU.
        both_named = config.data.data_gpu is not None and config.data.model_gpu is not None
        assert config.training.visible_gpus is not None or (
            not (both_named and hardware.gpus) and (config.data.data_gpu, config.data.model_gpu) != (None, None)
        )
        return
    existing = {f"/GPU:{gpu.index}" for gpu in hardware.gpus}
    visible = config.training.visible_gpus
    allowed = existing if visible is None else {f"/GPU:{number}" for number in re.findall(r"\d+", visible)}
    named = {chosen.data_device, *chosen.model_devices, *chosen.prefetch_devices}
    assert named <= (allowed & existing) | {"/CPU:0"}
    assert ("/CPU:0" in chosen.model_devices) == (not existing)
    assert len(set(chosen.model_devices)) == len(chosen.model_devices)
    assert (chosen.strategy == "mirrored") == (len(chosen.model_devices) > 1)
    assert (chosen.data_device != "/CPU:0") == (chosen.mode is Mode.MULTI_GPU)
    assert chosen.data_device == "/CPU:0" or chosen.data_device not in chosen.model_devices
    assert chosen.num_workers <= max(num_cpus, 0 if values["num_workers"] == "auto" else values["num_workers"])
    assert choose_plan(config, hardware) == chosen


def test_loader_threads_make_way_for_those_that_drive_devices() -> None:
    assert (plan("1").num_reserved_cpus, plan("2", data_gpu=0, model_gpu=1).num_reserved_cpus) == (1, 2)
    assert plan("1").loader_niceness > 0
    apart = plan("1", optimize_cpu_gpu_overlap=False)
    assert (apart.num_reserved_cpus, apart.loader_niceness) == (0, 0)
    # Where the model runs on the processors itself, none of them can be kept free.
    assert plan("0").num_reserved_cpus == 0


def test_processes_of_a_cluster_take_slices_of_every_batch() -> None:
    machine = replace(MACHINES["2"], cluster=Cluster("TF_CONFIG", num_workers=3, worker=1))
    alone, together = plan("2", multi_gpu=True), choose_plan(XTTSConfig(multi_gpu=True), machine)
    assert (alone.num_replicas, alone.shard) == (2, (0, 1))
    assert (together.num_replicas, together.shard) == (6, (1, 3))
    assert "Cluster: worker 1 of 3 (TF_CONFIG)" in together.describe()


def test_a_plan_finds_and_names_the_devices_that_train() -> None:
    two = plan("4", data_gpu=0, model_gpu="1,2")
    assert [gpu.index for gpu in two.find_model_gpus(MACHINES["4"])] == [1, 2]
    assert two.name_model_devices(MACHINES["4"]) == "2 x NVIDIA GeForce RTX 4090"
    assert plan("0").find_model_gpus(MACHINES["0"]) == []
    assert plan("0").name_model_devices(MACHINES["0"]) == f"{MACHINES['0'].num_cpus} CPUs"
