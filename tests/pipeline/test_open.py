"""`open_batches`: the feed that training uses, as a user opens it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.errors import ConfigError, DataError, UsageError
from myxtts.pipeline.open import open_batches
from myxtts.pipeline.splits import open_split
from myxtts.runtime.cluster import Cluster
from myxtts.runtime.hardware import Gpu, detect_hardware
from myxtts.runtime.plan import Mode, Plan, choose_plan
from myxtts.store.precompute import precompute
from myxtts.store.reader import FeatureStore


@pytest.fixture
def config(ljspeech: Path, tmp_path: Path) -> XTTSConfig:
    corpus, store = tmp_path / "corpus", tmp_path / "features"
    made = XTTSConfig(
        train_data=corpus, cache_dir=store, text_frontend="characters", batch_size=4, num_shapes=2, val_share=0.2
    )
    prepare_corpus([Recordings(ljspeech)], corpus, made.data)
    precompute(open_corpus(corpus), store, made.data)
    return made


def collect_ids(config: XTTSConfig, **options: Any) -> list[str]:
    with open_batches(config, framework="numpy", **options) as batches:
        return [id for batch in batches for id in batch.ids if id]


def test_an_epoch_holds_every_utterance_of_the_split_once(config: XTTSConfig) -> None:
    ids = collect_ids(config, epochs=1)
    expected = [utterance.id for utterance in open_corpus(str(config.data.train_data)).utterances("train")]
    assert sorted(ids) == sorted(expected)
    assert len(collect_ids(config, epochs=1, split="val")) == 20 - len(expected)


def test_position_continues_where_it_stopped(config: XTTSConfig) -> None:
    whole = collect_ids(config, steps=9)
    assert collect_ids(config, steps=4) + collect_ids(config, steps=5, start=4) == whole


@pytest.mark.parametrize("change", [{"num_workers": 1}, {"num_workers": 4, "buffer_size": 2}, {"mel_dtype": "float32"}])
def test_order_does_not_depend_on_threads_or_buffers(config: XTTSConfig, change: dict[str, Any]) -> None:
    assert collect_ids(config.model_copy(update=change), epochs=2) == collect_ids(config, epochs=2)


def test_batches_hold_what_the_store_holds(config: XTTSConfig) -> None:
    with open_batches(config, epochs=1, framework="numpy") as batches:
        for batch in batches:
            assert batch.mel.dtype == np.float32
            assert batch.mel.shape[0] == batch.tokens.shape[0] == len(batch.ids) == 4
            assert (batch.mel_lengths[: batch.num_real] > 0).all()
            assert (batch.token_lengths[: batch.num_real] > 0).all()
            assert (batch.reference_lengths[: batch.num_real] > 0).all()
        assert batches.stats().num_batches > 0


def test_on_the_fly_batches_need_no_store(config: XTTSConfig, tmp_path: Path) -> None:
    changed = config.model_copy(
        update={"preprocessing_mode": "on_the_fly", "use_tf_native_loading": False, "cache_dir": tmp_path / "none"}
    )
    said: list[str] = []
    assert sorted(collect_ids(changed, epochs=1, say=said.append)) == sorted(collect_ids(config, epochs=1))
    assert any("Loader: Python" in line for line in said)


def test_split_that_is_open_is_not_opened_again(config: XTTSConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = choose_plan(config, detect_hardware())
    expected = collect_ids(config, epochs=2, plan=plan)
    opened = open_split(config, "train", plan)
    monkeypatch.setattr(FeatureStore, "open", None)
    monkeypatch.setattr("myxtts.pipeline.splits.BatchOrder", None)
    assert collect_ids(config, epochs=2, plan=plan, opened=opened) == expected


def test_mode_devices_and_buffer_are_said(config: XTTSConfig) -> None:
    said: list[str] = []
    collect_ids(config.model_copy(update={"ram_budget_gb": 0.0001}), steps=1, say=said.append)
    assert said[0].startswith("Mode: ")
    assert any("ram_budget_gb" in line for line in said)


def test_steps_are_recorded_as_lines_of_json(config: XTTSConfig, tmp_path: Path) -> None:
    collect_ids(config, steps=3, telemetry_file=tmp_path / "telemetry.jsonl")
    assert len((tmp_path / "telemetry.jsonl").read_text(encoding="utf-8").splitlines()) == 3


def test_longer_utterances_are_left_out_by_max_mel_frames(config: XTTSConfig) -> None:
    with pytest.raises(DataError, match="max_mel_frames"):
        collect_ids(config.model_copy(update={"max_mel_frames": 2}), epochs=1)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"n_mels": 64}, "n_mels 80 → 64"), ({"trim_db": 50.0}, "trim_db"), ({"mel_dtype": "float16"}, "mel_dtype")],
)
def test_store_made_with_other_settings_is_refused(config: XTTSConfig, change: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        collect_ids(config.model_copy(update=change), epochs=1)


def test_store_made_with_another_front_end_is_updated_or_refused(config: XTTSConfig, ljspeech: Path) -> None:
    metadata = ljspeech / "metadata.csv"
    metadata.write_text(metadata.read_text(encoding="utf-8").replace("sentence", "çentençe"), encoding="utf-8")
    prepare_corpus([Recordings(ljspeech)], Path(str(config.data.train_data)), config.data)
    with pytest.raises(DataError, match="20 changed"):
        collect_ids(config.model_copy(update={"data.auto_rebuild_token_cache": False}), epochs=1)
    assert collect_ids(config, epochs=1)


def test_missing_store_without_a_corpus_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="myxtts precompute"):
        collect_ids(XTTSConfig(cache_dir=tmp_path / "none", batch_size=4), epochs=1)


def test_nothing_named_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="No corpus and no feature cache"):
        collect_ids(XTTSConfig(), epochs=1)


def make_gpu_plan(config: XTTSConfig) -> Plan:
    """What a machine with one GPU would plan, carried out on the CPU."""
    gpu = Gpu(0, "Test GPU", 8 << 30, 8 << 30, "uuid", (8, 9), 0)
    return choose_plan(config, replace(detect_hardware(), gpus=(gpu,), no_gpu_reason=""))


@pytest.mark.parametrize(
    ("change", "num_ready"),
    [({}, 2), ({"prefetch_buffer_size": 5}, 5), ({"enhanced_gpu_prefetch": False}, 1), ({"prefetch_to_gpu": False}, 0)],
)
def test_prefetch_keys_say_how_many_batches_wait_on_the_device(
    config: XTTSConfig, change: dict[str, Any], num_ready: int
) -> None:
    changed = config.model_copy(update=change)
    plan = replace(make_gpu_plan(changed), model_devices=("/CPU:0",))
    with open_batches(changed, plan=plan, epochs=3) as batches:
        batch = next(iter(batches))
        deadline = time.monotonic() + 60
        while batches._threads.chain.num_ready < num_ready and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert batches._threads.chain.num_ready == num_ready
    assert batch.mel.device.endswith("CPU:0")


def test_data_service_and_data_gpu_exclude_each_other(config: XTTSConfig) -> None:
    changed = config.model_copy(update={"preprocessing_mode": "on_the_fly", "data_service": "127.0.0.1:1"})
    plan = replace(make_gpu_plan(changed), mode=Mode.MULTI_GPU, model_devices=("/CPU:0",))
    with pytest.raises(ConfigError, match=r"data_service, .*data_gpu"):
        open_batches(changed, plan=plan)


def test_processes_of_a_cluster_see_disjoint_slices_of_the_same_batches(config: XTTSConfig) -> None:
    whole = collect_ids(config, epochs=1)
    machine = detect_hardware()
    slices = [
        collect_ids(config, epochs=1, hardware=replace(machine, cluster=Cluster("TF_CONFIG", num_workers=2, worker=k)))
        for k in range(2)
    ]
    assert not set(slices[0]) & set(slices[1])
    assert sorted(slices[0] + slices[1]) == sorted(whole)


@pytest.mark.parametrize("mode", ["precompute", "on_the_fly"])
@pytest.mark.parametrize("has_val_data", [False, True])
def test_raw_recordings_are_prepared_first_in_both_modes(
    ljspeech: Path, tmp_path: Path, write_clip: Any, mode: str, has_val_data: bool
) -> None:
    held_out = tmp_path / "held_out"
    if has_val_data:
        for number in range(5):
            write_clip(held_out / "wavs" / f"V{number}.wav", seconds=1.2, seed=100 + number)
        lines = [f"V{number}|Held out {number}.|Held out {number}.\n" for number in range(5)]
        (held_out / "metadata.csv").write_text("".join(lines), encoding="utf-8")
    raw = XTTSConfig(
        train_data=ljspeech,
        val_data=held_out if has_val_data else None,
        cache_dir=tmp_path / "features",
        text_frontend="characters",
        batch_size=4,
        val_share=0.2,
        preprocessing_mode=mode,
        use_tf_native_loading=False,
    )
    said: list[str] = []
    train_ids = collect_ids(raw, epochs=1, say=said.append)
    assert any("Checking the recordings" in line for line in said)
    val_ids = collect_ids(raw, epochs=1, split="val", say=said.append)
    assert sum("Checking the recordings" in line for line in said) == 1, "made once, and used again"
    assert not set(train_ids) & set(val_ids)
    if has_val_data:
        assert sorted(val_ids) == [f"V{number}" for number in range(5)]
        assert len(train_ids) == 20
    else:
        assert len(train_ids) + len(val_ids) == 20


@pytest.mark.parametrize("name", ["valid", "validation", "dev"])
def test_names_that_other_libraries_use_for_the_validation_split_are_understood(config: XTTSConfig, name: str) -> None:
    assert collect_ids(config, epochs=1, split=name) == collect_ids(config, epochs=1, split="val")


@pytest.mark.parametrize(("name", "nearest"), [("vall", "'val'"), ("Train", "'train'"), ("tets", "'test'"), ("x", "")])
def test_unknown_split_is_refused_with_the_nearest(config: XTTSConfig, name: str, nearest: str) -> None:
    with pytest.raises(UsageError, match=f"There is no split '{name}'") as error:
        open_batches(config, split=name)
    assert f"Did you mean {nearest}?" in str(error.value) if nearest else "Did you mean" not in str(error.value)
    assert "'train', 'val', 'test'" in error.value.next_step


def test_other_frameworks_are_refused_with_the_way_to_serve_them(config: XTTSConfig) -> None:
    with pytest.raises(UsageError, match=r"'torch'.*tensorflow.*numpy"):
        open_batches(config, framework="torch")  # type: ignore[arg-type]
