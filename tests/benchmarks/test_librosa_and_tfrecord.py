"""The pipelines that benchmarks compare with deliver the same spectrograms as the product."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.conftest import ClipWriter

from benchmarks.librosa_and_tfrecord import make_librosa_dataset, make_record_dataset, write_records
from myxtts.config.schema import DataConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.features.audio import load_recording
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.features.mel import HostMel
from myxtts.tools.emulate import measure_batch

PLAIN = DataConfig(trim_silence=False, loudness="none")
MEL = MelDefinition.from_config(PLAIN)


def test_records_hold_what_was_written(tmp_path: Path) -> None:
    mels = [np.random.default_rng(seed).normal(size=(5 + seed, 3)).astype(np.float32) for seed in range(4)]
    path = write_records(tmp_path / "features.tfrecord", mels)
    first, second = make_record_dataset(path, 3, 2)
    np.testing.assert_array_equal(second["mel_lengths"], [7, 8])
    np.testing.assert_array_equal(second["mel"][1], mels[3])
    np.testing.assert_array_equal(first["mel"][0], np.pad(mels[0], [(0, 1), (0, 0)]))


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_librosa_in_a_dataset_gives_the_same_spectrograms(tmp_path: Path, write_clip: ClipWriter) -> None:
    pytest.importorskip("librosa")
    paths = [str(write_clip(tmp_path / f"{number}.wav", 0.3 + 0.1 * number, seed=number)) for number in range(2)]
    batch = next(iter(make_librosa_dataset(paths, MEL, 2, 1)))
    assert measure_batch(batch).num_utterances == 2
    wave = load_recording(paths[1], AudioDefinition.from_config(PLAIN), AudioLimits.from_config(PLAIN)).wave
    expected_TM = np.asarray(HostMel(MEL)(wave.samples))
    np.testing.assert_allclose(batch["mel"][1, : len(expected_TM)], expected_TM, atol=2e-3)
    assert int(batch["mel_lengths"][1]) == len(expected_TM)
