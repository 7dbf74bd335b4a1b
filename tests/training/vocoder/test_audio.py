"""Segments follow from store, seed and step, and pair each frame with the samples around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.store.synthetic import SETTINGS, Values, append_segment, begin_store
from tests.training.trainer_programs import make_data

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.errors import ConfigError, DataError
from myxtts.pipeline.batch import Arrays
from myxtts.pipeline.order import BatchPlan
from myxtts.pipeline.splits import BatchRange
from myxtts.runtime.hardware import detect_hardware
from myxtts.runtime.plan import choose_plan
from myxtts.store.index import Row
from myxtts.store.layout import Part
from myxtts.store.precompute import precompute
from myxtts.store.reader import FeatureStore
from myxtts.training.vocoder.audio import RecordedSound, SegmentSource, StoredSound, open_sound_of
from myxtts.training.vocoder.data import open_vocoder_data

HOP = SETTINGS.mel.hop_length
LENGTHS = (900, 5000, 20_000, 60_000, 3 * HOP, 12 * HOP)
"""Samples of the clips."""


def make_store(folder: Path, lengths: Sequence[int] = LENGTHS, has_pcm: bool = True) -> FeatureStore:
    """Clips whose values tell where they are: frame t holds (clip, t), and sample s holds s modulo 30,000."""
    begin_store(folder, replace(SETTINGS, has_pcm=has_pcm))
    rows: list[tuple[Row, Values]] = []
    for clip, num_samples in enumerate(lengths):
        num_frames = 1 + num_samples // HOP
        mel_TM = np.stack([np.full(num_frames, clip), np.arange(num_frames)], axis=1).astype("<f4")
        pcm = (np.arange(num_samples) % 30_000).astype("<i2")
        values: dict[Part, NDArray[np.generic]] = {"mel": mel_TM, "tokens": np.ones(3, "<i4")}
        if has_pcm:
            values["pcm"] = pcm
        rows.append((Row(f"clip{clip}", "anna", "en", "train"), values))
    append_segment(folder, rows)
    return FeatureStore.open(folder)


@pytest.fixture(scope="module")
def store() -> Iterator[FeatureStore]:
    with TemporaryDirectory() as folder:
        yield make_store(Path(folder) / "store")


def read(source: SegmentSource, position: int) -> Arrays:
    """The segments of a batch, read into memory that held something else."""
    plan = source.batch(position)
    arrays = source.make_layout(source.shapes).view(plan.shape)
    for values in arrays.values():
        values[:] = 77
    return source.fill(plan, arrays)


def list_places(plan: BatchPlan) -> list[tuple[int, int]]:
    """Row and first frame of each segment."""
    assert plan.keys is not None
    return list(zip(plan.rows.tolist(), plan.keys.tolist(), strict=True))


@settings(max_examples=60)
@given(num_frames=st.integers(1, 40), step=st.integers(0, 10**9), seed=st.integers(0, 2**32 - 1))
def test_samples_belong_to_their_frames(store: FeatureStore, num_frames: int, step: int, seed: int) -> None:
    source = SegmentSource(
        store, store.rows_of_split("train"), StoredSound(store), num_segments=6, num_frames=num_frames, seed=seed
    )
    segments = read(source, step)
    assert segments["mel"].shape == (6, num_frames, 2)
    assert segments["samples"].shape == (6, num_frames * HOP)
    for mel_TM, samples, length in zip(*(segments[name] for name in ("mel", "samples", "mel_lengths")), strict=True):
        clip, start = map(int, mel_TM[0])
        assert 1 <= length <= num_frames
        np.testing.assert_array_equal(mel_TM[:length, 0], clip)
        np.testing.assert_array_equal(mel_TM[:length, 1], np.arange(start, start + length))
        real = np.arange(start * HOP, min((start + num_frames) * HOP, LENGTHS[clip]))
        np.testing.assert_allclose(samples[: len(real)], real % 30_000 / 32_767, atol=1e-6)
        assert length == num_frames or start == 0, "only a clip shorter than a segment is padded"
        assert not samples[len(real) :].any()
        np.testing.assert_allclose(mel_TM[length:], np.log(SETTINGS.mel.log_floor), rtol=1e-6)


def test_a_clip_with_sound_enough_fills_the_segment(store: FeatureStore) -> None:
    rows = np.flatnonzero(store.columns["pcm_length"] == 12 * HOP)
    for step in range(20):
        source = SegmentSource(store, rows, StoredSound(store), num_segments=4, num_frames=12)
        segments = read(source, step)
        assert segments["mel_lengths"].tolist() == [12] * 4
        # All samples but the first of the clip are above zero.
        assert (segments["samples"][:, 1:] > 0).all()


def test_seed_and_step_alone_decide(store: FeatureStore) -> None:
    @cache
    def choose(seed: int, step: int) -> list[tuple[int, int]]:
        rows = store.rows_of_split("train")
        source = SegmentSource(store, rows, StoredSound(store), num_segments=8, num_frames=4, seed=seed)
        return list_places(source.batch(step))

    source = SegmentSource(
        store, store.rows_of_split("train"), StoredSound(store), num_segments=8, num_frames=4, seed=3
    )
    assert [list_places(source.batch(step)) for step in (5, 2, 5)] == [choose(3, 5), choose(3, 2), choose(3, 5)]
    assert len({str(choose(seed, step)) for seed in range(5) for step in range(5)}) == 25


def test_every_place_is_reached_and_long_clips_more_often(store: FeatureStore) -> None:
    source = SegmentSource(store, store.rows_of_split("train"), StoredSound(store), num_segments=100, num_frames=8)
    seen = [place for step in range(100) for place in list_places(source.batch(step))]
    num_places = [max(0, length // HOP - 8) + 1 for length in LENGTHS]
    assert len(set(seen)) == sum(num_places)
    counts = np.bincount([row for row, _ in seen])
    np.testing.assert_allclose(counts / len(seen), np.array(num_places) / sum(num_places), atol=0.02)


def test_processes_share_a_batch_without_overlap(store: FeatureStore) -> None:
    source = SegmentSource(store, store.rows_of_split("train"), StoredSound(store), num_segments=6, num_frames=4)
    for position in range(5):
        shares = [BatchRange(source, 0, 9, (worker, 3)).plan_of(position) for worker in range(3)]
        assert [place for share in shares for place in list_places(share)] == list_places(source.batch(position))
        assert {share.shape.num_utterances for share in shares} == {2}


def test_no_utterances_are_refused(store: FeatureStore) -> None:
    with pytest.raises(DataError, match="no utterances"):
        SegmentSource(store, store.rows_of_split("val"), StoredSound(store), num_segments=2, num_frames=4)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> XTTSConfig:
    return make_data(tmp_path_factory.mktemp("data"), n_fft=256, hop_length=64, win_length=256)


@pytest.fixture(scope="module")
def store_vocoder_sound(config: XTTSConfig) -> FeatureStore:
    return FeatureStore.open(str(config.data.cache_dir))


@pytest.mark.parametrize("budget_bytes", [0, 100_000, 10**9])
def test_recordings_sound_like_the_store(
    config: XTTSConfig, store_vocoder_sound: FeatureStore, tmp_path: Path, budget_bytes: int
) -> None:
    sounding = config.model_copy(update={"data.cache_waveforms": True, "data.cache_dir": tmp_path / "store"})
    precompute(open_corpus(str(config.data.train_data)), tmp_path / "store", sounding.data, num_threads=1)
    kept = FeatureStore.open(tmp_path / "store")
    rows = store_vocoder_sound.rows_of_split("train")
    recorded = open_sound_of(store_vocoder_sound, rows, config, "train", budget_bytes)
    stored = open_sound_of(kept, kept.rows_of_split("train"), sounding, "train", budget_bytes)
    assert isinstance(recorded, RecordedSound)
    assert isinstance(stored, StoredSound)
    assert "recordings" in recorded.origin
    assert "store" in stored.origin
    for row in (*rows.tolist(), int(rows[0])):
        other = kept.find(store_vocoder_sound.id_of(row))
        assert other is not None
        np.testing.assert_array_equal(recorded.read(row), stored.read(other))


def test_a_corpus_that_is_not_there_is_named_with_the_way_out(
    config: XTTSConfig, store_vocoder_sound: FeatureStore, tmp_path: Path
) -> None:
    moved = FeatureStore(
        store_vocoder_sound.folder,
        replace(store_vocoder_sound.state, origin=replace(store_vocoder_sound.state.origin, corpus="/gone/c.jsonl")),
    )
    alone = XTTSConfig(cache_dir=store_vocoder_sound.folder)
    with pytest.raises(DataError, match=r"/gone/c\.jsonl") as caught:
        open_sound_of(moved, store_vocoder_sound.rows_of_split("train"), alone, "train", 0)
    assert "data.cache_waveforms=true" in caught.value.next_step


def test_a_recording_that_changed_is_refused_by_name(
    config: XTTSConfig, store_vocoder_sound: FeatureStore, tmp_path: Path
) -> None:
    rows = store_vocoder_sound.rows_of_split("train")[:2]
    paths = {one.id: one.audio for one in open_corpus(str(config.data.train_data)).utterances()}
    first, second = (store_vocoder_sound.id_of(int(row)) for row in rows)
    swapped = {first: paths[second], second: paths[first]}
    with pytest.raises(DataError, match=f"{first}.*has changed"):
        RecordedSound(store_vocoder_sound, rows, swapped, tmp_path, 0).read(int(rows[0]))


def test_a_vocoder_asks_for_a_store(config: XTTSConfig) -> None:
    hardware = detect_hardware()
    on_the_fly = config.model_copy(update={"preprocessing_mode": "on_the_fly"})
    with pytest.raises(ConfigError, match="on_the_fly"):
        open_vocoder_data(on_the_fly, choose_plan(on_the_fly, hardware), hardware)
