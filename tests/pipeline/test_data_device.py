"""The data device of Multi-GPU mode, on logical CPU devices: right values, made where they should be made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.device_process import DeviceProcess
from tests.pipeline.recordings import MIXED_CLIPS, PLAIN_CLIPS, make_corpus

PROGRAMS = "tests.pipeline.data_device_programs"
# What hands numbers to a function and from device to device, but computes nothing.
PASSING_ON = {"_Arg", "_Send", "_Recv", "_HostSend", "_HostRecv", "_Retval", "NoOp"}
WAYS = ["graph", "python"]


@pytest.fixture(scope="module")
def process() -> Iterator[DeviceProcess]:
    with DeviceProcess(num_devices=4) as process:
        yield process


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A corpus of WAV files."""
    folder = tmp_path_factory.mktemp("plain")
    make_corpus(folder, PLAIN_CLIPS)
    return str(folder)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("mixed")
    make_corpus(folder, MIXED_CLIPS)
    return str(folder)


Compare = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def compare(process: DeviceProcess, plain: str) -> Compare:
    """How far the batches of the data device are from those of the host; each way is tried once."""
    results: dict[str, dict[str, Any]] = {}

    def compare(kind: str) -> dict[str, Any]:
        if kind not in results:
            results[kind] = run_comparison(process, plain, kind)
        return results[kind]

    return compare


def run_comparison(process: DeviceProcess, folder: str, kind: str, **settings: Any) -> dict[str, Any]:
    result: dict[str, Any] = process.run(f"{PROGRAMS}:compare_with_host", folder=folder, kind=kind, **settings)
    return result


def check_lengths_and_labels(result: dict[str, Any]) -> None:
    features = ("mel", "reference")
    assert {name: error for name, error in result["errors"].items() if error and name not in features} == {}


@pytest.mark.parametrize("kind", WAYS)
def test_batches_are_those_of_the_host(compare: Compare, kind: str) -> None:
    result = compare(kind)
    check_lengths_and_labels(result)
    assert max(result["errors"].values()) < 1e-4
    assert result["num_shapes"] == 2
    assert result["num_partial"] > 0
    assert result["devices"] == ["CPU:1"]


def test_recordings_of_many_formats_give_the_batches_of_the_host(process: DeviceProcess, mixed: str) -> None:
    result = run_comparison(process, mixed, "graph")
    check_lengths_and_labels(result)
    assert max(result["errors"].values()) < 1e-4
    assert "Python for 5" in result["messages"][0]


def test_half_precision_is_that_of_other_loaders(process: DeviceProcess, mixed: str) -> None:
    result = run_comparison(process, mixed, "python", mel_dtype="float16")
    assert result["are_halves"]
    assert result["errors"]["mel"] < 1e-2


@pytest.mark.parametrize("kind", WAYS)
def test_all_graphs_are_made_ahead(compare: Compare, kind: str) -> None:
    result = compare(kind)
    assert result["traces_ahead"] == result["traces"] == result["num_shapes"]


def test_messages_say_what_the_data_device_does(compare: Compare) -> None:
    messages = {kind: " ".join(compare(kind)["messages"]) for kind in WAYS}
    assert "/CPU:1 computes the mel features" in messages["graph"]
    assert "Loader: TensorFlow-native for all 11" in messages["graph"]
    assert "use_tf_native_loading is false" in messages["python"]


# Where things are executed.


Watch = Callable[[str, list[str]], dict[str, Any]]


@pytest.fixture(scope="module")
def watch_stages(process: DeviceProcess, plain: str) -> Watch:
    """What each stage executes where, for a data device and model devices; each choice is watched once."""
    results: dict[str, dict[str, Any]] = {}

    def watch(data_device: str, model_devices: list[str]) -> dict[str, Any]:
        key = f"{data_device} {model_devices}"
        if key not in results:
            results[key] = process.run(
                f"{PROGRAMS}:watch_stages",
                folder=plain,
                kind="graph",
                data_device=data_device,
                model_devices=model_devices,
            )
        return results[key]

    return watch


def list_working_devices(stage: dict[str, Any]) -> dict[str, set[str]]:
    """The devices that computed something, and what."""
    working = {device: set(kinds) - PASSING_ON for device, kinds in stage["kernels"].items()}
    return {device: kinds for device, kinds in working.items() if kinds}


@pytest.mark.parametrize("data_device", ["/CPU:1", "/CPU:3"])
def test_features_are_computed_on_the_data_device_and_the_model_on_its_own(
    watch_stages: Watch, data_device: str
) -> None:
    result, name = watch_stages(data_device, ["/CPU:2"]), data_device[1:]
    features, training = list_working_devices(result["features"]), list_working_devices(result["training"])
    assert set(features) == {name}
    assert {"RFFT", "MatMul", "GatherV2", "Log"} <= features[name]
    assert set(training) == {"CPU:2"}
    assert "MatMul" in training["CPU:2"]
    assert "RFFT" not in training["CPU:2"]


def test_batch_crosses_from_device_to_device_without_passing_the_host(watch_stages: Watch) -> None:
    result = watch_stages("/CPU:1", ["/CPU:2"])
    # One copy to the data device and one to the model's, of everything that the batch has.
    assert [*map(tuple, result["features"]["copies"])] == [("CPU:0", "CPU:1")]
    assert [*map(tuple, result["cross"]["copies"])] == [("CPU:1", "CPU:2")]
    assert "RFFT" not in {kind for kinds in result["cross"]["kernels"].values() for kind in kinds}
    assert not {("CPU:1", "CPU:2"), ("CPU:2", "CPU:1")} & {*map(tuple, result["training"]["copies"])}


def test_each_of_several_devices_trains_on_its_share(watch_stages: Watch) -> None:
    result = watch_stages("/CPU:1", ["/CPU:2", "/CPU:3"])
    assert [*map(tuple, result["cross"]["copies"])] == [("CPU:1", "CPU:2"), ("CPU:1", "CPU:3")]
    training = list_working_devices(result["training"])
    assert {device for device, kinds in training.items() if "MatMul" in kinds} == {"CPU:2", "CPU:3"}
    assert "CPU:1" not in training
    assert [*chain(*result["rows"])] == result["whole"]
    assert len({len(rows) for rows in result["rows"]}) == 1


def test_shares_are_the_rows_of_the_batch_in_order(process: DeviceProcess, plain: str) -> None:
    result = process.run(f"{PROGRAMS}:cross_shares", folder=plain, devices=["/CPU:2", "/CPU:3"])
    assert result["are_equal"]
    assert result["devices"] == ["CPU:2", "CPU:3"]
    assert result["whole_device"] == "CPU:1"
    assert [*chain(*result["ids"])] == result["whole"]
    assert result["num_real"] == [sum(map(bool, ids)) for ids in result["ids"]]
    assert sum(result["num_real"]) == result["whole_num_real"] < len(result["whole"])


def test_device_that_does_not_exist_is_refused_and_those_that_do_are_listed(process: DeviceProcess, plain: str) -> None:
    for refused, missing in zip(
        process.run(f"{PROGRAMS}:refuse_devices", folder=plain), ("/GPU:0", "/CPU:9"), strict=True
    ):
        assert refused["kind"] == "hardware"
        assert f"no {missing} among" in refused["problem"]
        assert "CPU:0, CPU:1, CPU:2, CPU:3" in refused["problem"]
        assert refused["next_step"]


# A whole run.


@pytest.fixture(scope="module")
def trained_on_host(process: DeviceProcess, plain: str) -> dict[str, Any]:
    result: dict[str, Any] = process.run(f"{PROGRAMS}:train_on_host", folder=plain)
    return result


@pytest.mark.parametrize("model_devices", [["/CPU:2"], ["/CPU:2", "/CPU:3"]], ids=["one device", "mirrored"])
def test_training_behind_a_data_device_gives_the_weights_of_the_host(
    process: DeviceProcess, plain: str, trained_on_host: dict[str, Any], model_devices: list[str]
) -> None:
    result = process.run(f"{PROGRAMS}:train_through_stages", folder=plain, kind="graph", model_devices=model_devices)
    assert result["ids"] == trained_on_host["ids"]
    assert len({tuple(ids) for ids in result["ids"]}) > 3
    np.testing.assert_allclose(result["weights"], trained_on_host["weights"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["graph", "python"])
def test_recording_that_has_gone_is_named(process: DeviceProcess, tmp_path: Path, kind: str) -> None:
    corpus = make_corpus(tmp_path, PLAIN_CLIPS[:3])
    victim = list(corpus.utterances())[1]
    refused = process.run(f"{PROGRAMS}:explain_loss", folder=str(tmp_path), kind=kind, audio=victim.audio)
    for part in (victim.id, victim.audio, "missing-file"):
        assert part in refused["problem"]
    assert refused["next_step"]
