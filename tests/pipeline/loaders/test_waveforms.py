"""Sound for a data device: stretches with the frames of their whole clips, and buffers that are filled completely.

Nothing here needs TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.pipeline.recordings import (
    DATA,
    MIXED_CLIPS,
    NUM_REFERENCE_FRAMES,
    PLAIN_CLIPS,
    SEED,
    Clip,
    list_plans,
    make_corpus,
    order_rows,
    remove,
    truncate,
)

from myxtts.config.schema import DataConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.corpus_file import open_corpus
from myxtts.errors import DataError
from myxtts.features.definition import MelDefinition
from myxtts.features.extract import FeatureExtractor
from myxtts.features.mel import HostMel
from myxtts.pipeline.batch import allocate_aligned
from myxtts.pipeline.choose_loader import LoaderSetup, choose_for_data_device
from myxtts.pipeline.loaders.waveforms import WaveformReader, count_reference_samples, crop_samples
from myxtts.pipeline.order import NO_ROW
from myxtts.pipeline.recordings import RecordingSource

PYTHON_DATA = DATA.model_copy(update={"use_tf_native_loading": False})
DEFINITIONS = [
    MelDefinition(22_050, 1024, 256, 1024, 20, 0.0, 8000.0, 1e-5),
    MelDefinition(16_000, 1024, 200, 800, 20, 50.0, 7600.0, 1e-5),
    MelDefinition(22_050, 1024, 1024, 1024, 20, 0.0, 8000.0, 1e-5),
    MelDefinition(22_050, 1025, 256, 1001, 20, 0.0, 8000.0, 1e-5),
    MelDefinition(8_000, 256, 300, 256, 20, 0.0, 4000.0, 1e-5),
]
MELS = [HostMel(definition) for definition in DEFINITIONS]
NOISE = np.random.default_rng(1).normal(0, 0.1, 40_000).astype(np.float32)


@given(data=st.data(), number=st.integers(0, len(DEFINITIONS) - 1))
def test_stretch_has_the_frames_of_the_whole_clip(data: st.DataObject, number: int) -> None:
    definition, mel = DEFINITIONS[number], MELS[number]
    clip = NOISE[: data.draw(st.integers(definition.min_samples, len(NOISE)), "samples")]
    whole_TM = mel(clip)
    num_frames = data.draw(st.integers(1, 60), "frames")
    start = data.draw(st.integers(0, max(0, len(whole_TM) - num_frames)), "start")
    stretch, first = crop_samples(clip, start, num_frames, definition)
    assert definition.min_samples <= len(stretch) <= count_reference_samples(definition, num_frames)
    length = min(num_frames, len(whole_TM))
    frames_TM = mel(stretch)[first : first + length]
    np.testing.assert_allclose(frames_TM, whole_TM[start : start + length], rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> RecordingSource:
    return open_source(tmp_path_factory.mktemp("samples"))


@pytest.fixture(scope="module")
def side(source: RecordingSource) -> LoaderSetup:
    shapes = order_rows(source).shapes
    return choose_for_data_device(source, PYTHON_DATA, shapes, NUM_REFERENCE_FRAMES, SEED, "/GPU:0")


def open_source(folder: Path, data: DataConfig = PYTHON_DATA, clips: tuple[Clip, ...] = PLAIN_CLIPS) -> RecordingSource:
    return RecordingSource.open(make_corpus(folder, clips, data), data)


def test_nothing_is_left_of_the_batch_before(side: LoaderSetup, source: RecordingSource) -> None:
    clean, soiled = (allocate_aligned(side.layout.num_bytes) for _ in range(2))
    for plan in list_plans(order_rows(source)):
        clean[:], soiled[:] = 0, 0x7F
        expected = side.loader.fill(plan, side.layout.view(plan.shape, clean))
        filled = side.loader.fill(plan, side.layout.view(plan.shape, soiled))
        assert len(filled) == len(expected) > 7
        for name, wanted in expected.items():
            np.testing.assert_array_equal(filled[name], wanted, err_msg=name)


def test_buffer_weighs_what_the_largest_batch_needs(side: LoaderSetup, source: RecordingSource) -> None:
    shapes = order_rows(source).shapes
    memory = allocate_aligned(side.layout.num_bytes)
    needed = [sum(array.nbytes for array in side.layout.view(shape, memory).values()) for shape in shapes]
    # Every array begins on a boundary of 64 bytes.
    assert max(needed) <= side.layout.num_bytes < max(needed) + 64 * 12
    with pytest.raises(AssertionError):
        side.layout.view(shapes[0], memory[:-64])


def test_clip_is_read_once_for_a_batch(source: RecordingSource, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = order_rows(source, batch_size=len(source), num_shapes=1).batch(0)
    assert set(plan.references) <= set(plan.rows)
    read: list[int] = []
    load_in_python = WaveformReader.load_in_python

    def note(self: WaveformReader, rows: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        read.extend(rows)
        return load_in_python(self, rows)

    monkeypatch.setattr(WaveformReader, "load_in_python", note)
    side = choose_for_data_device(source, PYTHON_DATA, [plan.shape], NUM_REFERENCE_FRAMES, SEED, "/GPU:0")
    side.loader.fill(plan, side.layout.view(plan.shape))
    assert sorted(read) == sorted(row for row in plan.rows if row != NO_ROW)


def test_second_epoch_needs_no_file_if_samples_fit_into_memory(tmp_path: Path) -> None:
    source = open_source(tmp_path)
    plan = order_rows(source, batch_size=len(source), num_shapes=1).batch(0)
    side = choose_for_data_device(source, PYTHON_DATA, [plan.shape], NUM_REFERENCE_FRAMES, SEED, "/GPU:0", 1 << 30)
    first, second = (side.layout.view(plan.shape) for _ in range(2))
    expected = side.loader.fill(plan, first)
    for row in range(len(source)):
        Path(source.audio_path(row)).unlink()
    for name, values in side.loader.fill(plan, second).items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


def overwrite(path: Path) -> None:
    """Another sound of the same length."""
    PLAIN_CLIPS[2].write(path, seed=99)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [(remove, "missing-file"), (truncate, "truncated"), (overwrite, "changed-since-checked")],
)
def test_recording_that_cannot_be_used_is_named(tmp_path: Path, harm: Any, reason: str) -> None:
    source = open_source(tmp_path, clips=PLAIN_CLIPS[:4])
    victim = source.utterance(2)
    harm(Path(victim.audio))
    with pytest.raises(DataError) as raised:
        fill_one_batch(source)
    for part in (victim.id, victim.audio, reason):
        assert part in raised.value.problem
    assert raised.value.next_step


def test_text_longer_than_what_trimming_leaves_is_refused(tmp_path: Path) -> None:
    make_corpus(tmp_path, [Clip(), Clip(), Clip(0.1, pause_s=1.0)])
    data = PYTHON_DATA.model_copy(update={"hop_length": 1024})
    source = RecordingSource.open(open_corpus(tmp_path / "corpus"), data)
    with pytest.raises(DataError, match=r"clip02 .*tokens for \d+ frames.*more-tokens-than-frames"):
        fill_one_batch(source)


def fill_one_batch(source: RecordingSource) -> Any:
    plan = order_rows(source, batch_size=len(source), num_shapes=1).batch(0)
    side = choose_for_data_device(source, PYTHON_DATA, [plan.shape], NUM_REFERENCE_FRAMES, SEED, "/GPU:0")
    return side.loader.fill(plan, side.layout.view(plan.shape))


def test_samples_are_those_that_features_are_made_of(tmp_path: Path) -> None:
    source, limits = open_source(tmp_path, clips=MIXED_CLIPS), AudioLimits.from_config(PYTHON_DATA)
    extractor = FeatureExtractor(source.mel_definition, source.audio_definition, limits)
    clips, mel = WaveformReader(source, limits).read(range(len(source))), HostMel(source.mel_definition)
    for row in range(len(source)):
        np.testing.assert_array_equal(mel(clips[row]), extractor.extract(source.utterance(row)).mel)
