"""Strategies over logical CPU devices, which really run, and over GPUs that are only in TensorFlow's books.

TensorFlow settles its devices once per process, so all of this happens in processes of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.device_process import DeviceProcess

SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_PROCID": "1",
    "SLURM_STEP_NODELIST": "n[9-10]",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURMD_NODENAME": "n9",
    "SLURM_LOCALID": "1",
}


@pytest.fixture(scope="module")
def cpus() -> Iterator[DeviceProcess]:
    """Four logical devices, for a user who numbers GPUs his own way."""
    with DeviceProcess(4, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}) as process:
        yield process


@pytest.fixture(scope="module")
def gpus() -> Iterator[DeviceProcess]:
    """TensorFlow with fake GPUs, never started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CUDA_DEVICE_ORDER", raising=False)
        with DeviceProcess(1) as process:
            yield process


@pytest.fixture(scope="module")
def started() -> Iterator[DeviceProcess]:
    """TensorFlow that a test starts before it makes a strategy."""
    with DeviceProcess(1) as process:
        yield process


def on_cpus(process: DeviceProcess, *arguments: Any, **named: Any) -> Any:
    return process.run("tests.runtime.strategy_programs:set_up", *arguments, **named, device_type="CPU")


def on_gpus(process: DeviceProcess, num_gpus: int, **arguments: Any) -> Any:
    return process.run("tests.runtime.fake_gpus:set_up", num_gpus=num_gpus, **arguments)


def planned(process: DeviceProcess, num_gpus: int, num_found: int | None = None, **values: Any) -> Any:
    num_found = num_gpus if num_found is None else num_found
    return process.run("tests.runtime.fake_gpus:carry_out_plan", num_gpus=num_gpus, num_found=num_found, **values)


# Logical CPU devices.


def test_listing_devices_does_not_start_them(cpus: DeviceProcess) -> None:
    assert cpus.run("tests.runtime.strategy_programs:start_devices_by_listing") is False


def test_list_devices_counts_logical_cpus_and_no_gpu(cpus: DeviceProcess) -> None:
    listed = [cpus.run("tests.runtime.strategy_programs:list_all", device_type=kind) for kind in ("CPU", "GPU")]
    assert listed == [["/CPU:0", "/CPU:1", "/CPU:2", "/CPU:3"], []]


def test_several_devices_are_used_one_at_a_time_unless_asked(cpus: DeviceProcess) -> None:
    assert on_cpus(cpus) == {"kind": "one_device", "computed_on": ["CPU:0"], "kept_on": ["CPU:0"]}
    assert on_cpus(cpus, visible_gpus="2,1") == {"kind": "one_device", "computed_on": ["CPU:2"], "kept_on": ["CPU:2"]}
    # Asked to mirror over one.
    assert on_cpus(cpus, enable_multi_gpu=True, visible_gpus="3")["computed_on"] == ["CPU:3"]


def test_asking_for_several_mirrors_over_those_named_in_their_order(cpus: DeviceProcess) -> None:
    mirrored = on_cpus(cpus, enable_multi_gpu=True, visible_gpus="3,1")
    assert mirrored == {"kind": "mirrored", "computed_on": ["CPU:3", "CPU:1"], "kept_on": ["CPU:3", "CPU:1"]}


def test_mirroring_twice_over_the_same_devices_gives_the_same_strategy(cpus: DeviceProcess) -> None:
    arguments = {"enable_multi_gpu": True, "visible_gpus": "3,1", "device_type": "CPU"}
    assert cpus.run("tests.runtime.strategy_programs:set_up_twice", **arguments)


def test_mirroring_over_other_devices_in_the_same_process_is_refused(cpus: DeviceProcess) -> None:
    on_cpus(cpus, enable_multi_gpu=True, visible_gpus="3,1")
    refused = on_cpus(cpus, enable_multi_gpu=True, visible_gpus="0,1,2")
    assert refused["error"] == "HardwareError"
    assert "trains over /CPU:3, /CPU:1 already" in refused["message"]


def test_without_a_gpu_nothing_pretends_to_be_one(cpus: DeviceProcess) -> None:
    default = cpus.run("tests.runtime.strategy_programs:set_up")
    assert default["kind"] == "default"
    refused = cpus.run("tests.runtime.strategy_programs:set_up", visible_gpus="0")
    assert refused["error"] == "HardwareError"
    assert "/GPU:0" in refused["message"]


def test_a_plan_is_carried_out_on_the_devices_it_names(cpus: DeviceProcess) -> None:
    def carry_out(kind: str, *devices: str) -> Any:
        return cpus.run("tests.runtime.strategy_programs:carry_out", kind=kind, model_devices=devices)

    alone = {"kind": "one_device", "computed_on": ["CPU:2"], "kept_on": ["CPU:2"], "is_unchanged": True}
    assert carry_out("one_device", "/CPU:2") == alone
    assert carry_out("default", "/CPU:0")["kind"] == "default"
    assert carry_out("mirrored", "/CPU:3", "/CPU:1")["computed_on"] == ["CPU:3", "CPU:1"]
    refused = carry_out("one_device", "/CPU:7")
    assert refused["error"] == "HardwareError"
    assert "/CPU:0, /CPU:1, /CPU:2, /CPU:3" in refused["message"]


# GPUs in TensorFlow's books. `visible` is what TensorFlow would tell the driver.


@pytest.mark.parametrize(
    ("num_gpus", "arguments", "kind", "devices", "visible"),
    [
        (0, {}, "_DefaultDistributionStrategy", [], ""),
        (0, {"enable_multi_gpu": True}, "_DefaultDistributionStrategy", [], ""),
        (1, {}, "OneDevice", ["/GPU:0"], "0"),
        (1, {"enable_multi_gpu": True}, "OneDevice", ["/GPU:0"], "0"),
        (4, {}, "OneDevice", ["/GPU:0"], "0,1,2,3"),
        (4, {"visible_gpus": "2"}, "OneDevice", ["/GPU:0"], "2"),
        (4, {"visible_gpus": "3,1"}, "OneDevice", ["/GPU:1"], "1,3"),
        (2, {"enable_multi_gpu": True}, "Mirrored", ["/GPU:0", "/GPU:1"], "0,1"),
        (4, {"enable_multi_gpu": True, "visible_gpus": "1,3"}, "Mirrored", ["/GPU:0", "/GPU:1"], "1,3"),
        (4, {"enable_multi_gpu": True, "visible_gpus": "3,1"}, "Mirrored", ["/GPU:1", "/GPU:0"], "1,3"),
    ],
)
def test_gpus_are_chosen_hidden_and_renumbered(
    gpus: DeviceProcess, num_gpus: int, arguments: dict[str, Any], kind: str, devices: list[str], visible: str
) -> None:
    made = on_gpus(gpus, num_gpus, **arguments)
    assert made == {"kind": kind, "devices": devices, "visible": visible, "growth": num_gpus > 0, "warnings": []}


@pytest.mark.parametrize(
    ("num_gpus", "visible_gpus", "error", "words"),
    [
        (2, "0,5", "HardwareError", "does not see /GPU:5; it sees /GPU:0, /GPU:1"),
        (0, "0", "HardwareError", "it sees no GPU"),
        (2, "first", "ConfigError", '"first" names no GPU'),
        (2, "1,1", "ConfigError", "1 is named twice"),
    ],
)
def test_wrong_gpu_numbers_are_refused_with_those_that_exist(
    gpus: DeviceProcess, num_gpus: int, visible_gpus: str, error: str, words: str
) -> None:
    refused = on_gpus(gpus, num_gpus, visible_gpus=visible_gpus)
    assert refused["error"] == error
    assert words in refused["message"]


@pytest.mark.parametrize(
    ("values", "visible", "data_and_model", "kind"),
    [
        ({}, "0", ["/CPU:0", "/GPU:0"], "OneDevice"),
        ({"model_gpu": 2}, "2", ["/CPU:0", "/GPU:0"], "OneDevice"),
        ({"data_gpu": 0, "model_gpu": 2}, "0,2", ["/GPU:0", "/GPU:1"], "OneDevice"),
        ({"data_gpu": 3, "model_gpu": 1}, "1,3", ["/GPU:1", "/GPU:0"], "OneDevice"),
        ({"data_gpu": 2, "model_gpu": "3,1"}, "1,2,3", ["/GPU:1", "/GPU:2", "/GPU:0"], "Mirrored"),
        ({"multi_gpu": True, "visible_gpus": "1,3"}, "1,3", ["/CPU:0", "/GPU:0", "/GPU:1"], "Mirrored"),
    ],
)
def test_a_plan_hides_the_other_gpus_and_is_translated(
    gpus: DeviceProcess, values: dict[str, Any], visible: str, data_and_model: list[str], kind: str
) -> None:
    made = planned(gpus, 4, **values)
    assert made["visible"] == visible
    assert made["plan"] == data_and_model
    assert made["prefetch"] == made["devices"] == data_and_model[1:]
    assert (made["kind"], made["growth"], made["warnings"]) == (kind, True, [])


def test_a_plan_for_gpus_that_tensorflow_does_not_see_is_refused(gpus: DeviceProcess) -> None:
    refused = planned(gpus, 2, num_found=0)
    assert refused["error"] == "HardwareError"
    assert "myxtts[cuda]" in refused["message"]


def test_a_plan_for_the_cpu_hides_gpus_that_the_driver_did_not_report(gpus: DeviceProcess) -> None:
    made = planned(gpus, 0, num_found=2)
    assert (made["kind"], made["visible"]) == ("_DefaultDistributionStrategy", "")


def test_gpus_are_numbered_by_bus_unless_the_user_says_otherwise() -> None:
    """In processes of their own: the order is set when the module is imported first."""
    program = "import os, myxtts.runtime.strategy; print(os.environ['CUDA_DEVICE_ORDER'])"
    own = {name: value for name, value in os.environ.items() if name != "CUDA_DEVICE_ORDER"}
    orders = [
        subprocess.run([sys.executable, "-c", program], env={**own, **asked}, capture_output=True, text=True).stdout
        for asked in ({}, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    ]
    assert orders == ["PCI_BUS_ID\n", "FASTEST_FIRST\n"]


# TensorFlow that was used before.


def test_started_too_early_warns_of_memory_and_refuses_hidden_gpus(started: DeviceProcess) -> None:
    one, two, third = started.run(
        "tests.runtime.fake_gpus:set_up_started", hidden_first=True, grow_first=False, requests=["0", "0,1", "2"]
    )
    assert "holds on to /GPU:1" in one["warnings"][0]
    assert "all memory of /GPU:0. " in one["warnings"][0]
    assert "all memory of /GPU:0, /GPU:1. " in two["warnings"][0]
    assert third["error"] == "HardwareError"
    assert "/GPU:2 may not be used: TensorFlow started with /GPU:0, /GPU:1" in third["message"]


def test_started_early_but_rightly_is_silent_and_keeps_numbers() -> None:
    with DeviceProcess(1) as process:
        everything, last = process.run(
            "tests.runtime.fake_gpus:set_up_started", hidden_first=False, grow_first=True, requests=["0,1,2", "2"]
        )
    assert everything["warnings"] == []
    # Nothing could be hidden, so nothing was renumbered.
    assert last["devices"] == ["/GPU:2"]
    assert "holds on to /GPU:0, /GPU:1. " in last["warnings"][0]


# Clusters; that they train is shown by the integration test.


@pytest.mark.parametrize(
    ("num_gpus", "enable_multi_gpu", "num_used", "visible"), [(0, True, 0, ""), (2, False, 1, "0"), (2, True, 2, "0,1")]
)
def test_a_worker_finds_itself_in_slurm_and_shows_only_the_gpus_it_trains_on(
    gpus: DeviceProcess, num_gpus: int, enable_multi_gpu: bool, num_used: int, visible: str
) -> None:
    made = gpus.run(
        "tests.runtime.fake_gpus:in_environment",
        name="set_up",
        environment=SLURM,
        num_gpus=num_gpus,
        enable_multi_gpu=enable_multi_gpu,
    )
    assert made["kind"] == "MultiWorker"
    # TensorFlow sorts hosts as words, so n10 comes before n9; the worker must still get its own address.
    exchange = "NCCL" if num_used else "AUTO"
    assert made["devices"] == ["n10:22464", "n9:22464", "n9:22465", "task 2", f"{num_used} GPUs", exchange]
    assert made["visible"] == visible


def test_a_worker_that_slurm_does_not_list_is_refused(gpus: DeviceProcess) -> None:
    refused = gpus.run(
        "tests.runtime.fake_gpus:in_environment",
        name="set_up",
        environment={**SLURM, "SLURMD_NODENAME": "m1"},
        num_gpus=1,
    )
    assert refused["error"] == "HardwareError"
    assert "'m1'" in refused["message"]
    assert "n9:22465" in refused["message"]


def test_a_data_gpu_is_refused_in_a_cluster(gpus: DeviceProcess) -> None:
    refused = gpus.run(
        "tests.runtime.fake_gpus:in_environment",
        name="carry_out_plan",
        environment=SLURM,
        num_gpus=2,
        num_found=2,
        data_gpu=0,
        model_gpu=1,
    )
    assert refused["error"] == "HardwareError"
    assert "data.data_gpu" in refused["message"]


def test_a_cluster_joined_too_late_is_refused_clearly(started: DeviceProcess) -> None:
    message = started.run("tests.runtime.fake_gpus:join_late")
    assert message.startswith("HardwareError: The cluster of 2 workers described by TF_CONFIG cannot be joined")
    assert "Make the strategy first" in message
