"""Multi-GPU mode as a user opens it: one device makes features and starts first, others train, and it says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.device_process import DeviceProcess

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.store.precompute import precompute

PROGRAMS = "tests.pipeline.multi_gpu_programs"


@pytest.fixture(scope="module")
def process() -> Iterator[DeviceProcess]:
    with DeviceProcess(4) as process:
        yield process


@pytest.fixture
def settings(ljspeech: Path, tmp_path: Path) -> dict[str, Any]:
    corpus, store = tmp_path / "corpus", tmp_path / "features"
    chosen: dict[str, Any] = {
        "train_data": str(corpus),
        "cache_dir": str(store),
        "text_frontend": "characters",
        "batch_size": 4,
        "num_shapes": 2,
        "model_start_delay": 0.5,
        "preprocessing_mode": "on_the_fly",
    }
    data = XTTSConfig(**chosen).data
    prepare_corpus([Recordings(ljspeech)], corpus, data)
    precompute(open_corpus(corpus), store, data)
    return chosen


@pytest.mark.parametrize(("model_gpu", "devices"), [("1", ["CPU:2"]), ("1,2", ["CPU:2", "CPU:3"])])
def test_batches_are_those_of_the_host_on_the_devices_that_train(
    process: DeviceProcess, settings: dict[str, Any], model_gpu: str, devices: list[str]
) -> None:
    result = process.run(f"{PROGRAMS}:run_split", settings=settings, model_gpu=model_gpu, epochs=2)
    host = process.run(f"{PROGRAMS}:run_host", settings=settings, epochs=2)
    assert result["mode"] == "multi-gpu"
    assert result["devices"] == [devices]
    assert [[id for id in ids if id] for ids in result["ids"]] == [[id for id in ids if id] for ids in host["ids"]]
    assert result["stages"] == ["features", "transfer", "transfer_wait"]
    if model_gpu == "1":
        assert result["sums"] == pytest.approx(host["sums"], rel=1e-4)


@pytest.mark.parametrize(("model_gpu", "devices"), [("1", ["CPU:2"]), ("1,2", ["CPU:2", "CPU:3"])])
def test_features_of_a_store_go_straight_to_the_devices_that_train_and_it_is_said(
    process: DeviceProcess, settings: dict[str, Any], model_gpu: str, devices: list[str]
) -> None:
    settings = {**settings, "preprocessing_mode": "precompute"}
    result = process.run(f"{PROGRAMS}:run_split", settings=settings, model_gpu=model_gpu, epochs=1)
    assert result["mode"] == ("mirrored" if "," in model_gpu else "single-gpu")
    assert result["devices"] == [devices]
    assert result["stages"] == ["transfer", "transfer_wait"]
    advice = next(line for line in result["said"] if "GPU 0 has no work" in line)
    assert advice.startswith("Warning: ")
    assert "--preprocessing-mode on_the_fly" in advice


def test_mode_devices_warm_up_start_and_advice_are_said(process: DeviceProcess, settings: dict[str, Any]) -> None:
    result = process.run(f"{PROGRAMS}:run_split", settings=settings, model_gpu="1", steps=60)
    said = result["said"]
    for beginning in (
        "Mode: Multi-GPU mode",
        "Data device: /CPU:1",
        "Model device: /CPU:2",
        "Buffer: 50 batches",
        "Prefetch: 2 batches to /CPU:2",
        "Model start: when the buffer is ready, at the earliest after 0.5 s",
        "Filling the buffer: waiting for",
        "Start: ",
        "A batch takes",
    ):
        assert any(line.startswith(beginning) for line in said), (beginning, said)
    assert any("Data-parallel training on the same 2 cards" in line for line in said)
    assert result["first_s"] >= 0.5


@pytest.mark.parametrize(("model_gpu", "devices"), [("1", ["CPU:2"]), ("1,2", ["CPU:2", "CPU:3"])])
@pytest.mark.parametrize(("mode", "data_devices"), [("on_the_fly", ["CPU:1"]), ("precompute", [])])
def test_a_batch_is_copied_once_to_each_device_on_its_way(
    process: DeviceProcess,
    settings: dict[str, Any],
    model_gpu: str,
    devices: list[str],
    mode: str,
    data_devices: list[str],
) -> None:
    settings = {**settings, "preprocessing_mode": mode}
    copies = process.run(f"{PROGRAMS}:count_copies", settings=settings, model_gpu=model_gpu)
    assert copies == dict.fromkeys([*data_devices, *devices], 1.0)
