"""An utterance becomes features in one way, and only from the recording that was checked."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from myxtts.config.schema import DataConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.features.audio import load_recording
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.features.extract import FeatureExtractor, quantize_samples
from myxtts.features.mel import HostMel
from myxtts.types import Utterance

MakeClip = Callable[..., NDArray[np.float32]]
WriteClip = Callable[..., Path]
RATE_HZ = 22050


def make_extractor(data: DataConfig, *, keep_pcm: bool = False) -> FeatureExtractor:
    mel, audio = MelDefinition.from_config(data), AudioDefinition.from_config(data)
    return FeatureExtractor(mel, audio, AudioLimits.from_config(data), keep_pcm=keep_pcm)


def make_utterance(path: Path, checksum: int = 0) -> Utterance:
    return Utterance("a", os.path.realpath(path), "some words", "voice", "en", checksum=checksum)


def test_features_are_the_spectrogram_of_the_processed_recording(tmp_path: Path, write_clip: WriteClip) -> None:
    data = DataConfig()
    path = write_clip(tmp_path / "a.wav", seconds=1.5, rate_hz=16_000)
    features = make_extractor(data).extract(make_utterance(path))
    audio = AudioDefinition.from_config(data)
    wave = load_recording(os.path.realpath(path), audio, AudioLimits.from_config(data)).wave
    np.testing.assert_array_equal(features.mel, HostMel(MelDefinition.from_config(data))(wave.samples))
    assert features.mel.shape == (1 + len(wave.samples) // 256, 80)
    assert features.checksum == google_crc32c.value(path.read_bytes())
    assert features.pcm is None


def test_sound_is_kept_where_it_is_asked_for(tmp_path: Path, write_clip: WriteClip) -> None:
    data = DataConfig()
    path = write_clip(tmp_path / "a.wav", seconds=1.0)
    features = make_extractor(data, keep_pcm=True).extract(make_utterance(path))
    wave = load_recording(os.path.realpath(path), AudioDefinition.from_config(data), AudioLimits.from_config(data)).wave
    assert features.pcm is not None
    assert features.pcm.dtype == np.int16
    np.testing.assert_allclose(features.pcm / 32767, wave.samples, atol=0.51 / 32767)


def test_sound_above_full_scale_does_not_wrap_round() -> None:
    samples = np.array([0.0, 1.0, -1.0, 1.3, -7.0, 0.5], np.float32)
    assert quantize_samples(samples).tolist() == [0, 32767, -32767, 32767, -32767, 16384]


def test_recording_that_is_the_one_checked_passes(tmp_path: Path, write_clip: WriteClip) -> None:
    path = write_clip(tmp_path / "a.wav")
    utterance = make_utterance(path, google_crc32c.value(path.read_bytes()))
    assert make_extractor(DataConfig()).extract(utterance).checksum == utterance.checksum


def test_recording_that_changed_since_it_was_checked_is_refused(tmp_path: Path, write_clip: WriteClip) -> None:
    path = write_clip(tmp_path / "a.wav")
    utterance = make_utterance(path, google_crc32c.value(path.read_bytes()))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(AudioProblem) as caught:
        make_extractor(DataConfig()).extract(utterance)
    assert caught.value.reason is Reason.CHANGED


def test_recording_too_short_for_a_frame_after_trimming_is_refused(tmp_path: Path) -> None:
    samples = np.zeros(RATE_HZ, np.float32)
    samples[10_000] = 0.5
    soundfile.write(tmp_path / "a.wav", samples, RATE_HZ)
    data = DataConfig(n_fft=16_384, win_length=16_384)
    with pytest.raises(AudioProblem) as caught:
        make_extractor(data).extract(make_utterance(tmp_path / "a.wav"))
    assert caught.value.reason is Reason.TOO_SHORT
    assert "trimming" in caught.value.detail
    make_extractor(DataConfig(n_fft=16_384, win_length=16_384, trim_silence=False)).extract(
        make_utterance(tmp_path / "a.wav")
    )


def test_unreadable_recording_is_an_audio_problem(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    with pytest.raises(AudioProblem) as caught:
        make_extractor(DataConfig()).extract(make_utterance(tmp_path / "a.wav"))
    assert caught.value.reason is Reason.UNREADABLE
