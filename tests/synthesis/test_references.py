"""Recordings of a voice: any common format, checked by header first, cut into crops a model can hear."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from tests.conftest import ClipWriter, synthesize_clip

from myxtts.config.schema import DataConfig
from myxtts.errors import DataError
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.synthesis.references import MAX_CROP_S, Reference, count_crop_frames, read_reference

AUDIO, MEL = AudioDefinition.from_config(DataConfig()), MelDefinition.from_config(DataConfig())
FRAMES_PER_S = MEL.sample_rate / MEL.hop_length


def read(path: Path, warnings: list[str] | None = None) -> Reference:
    told: list[str] = [] if warnings is None else warnings
    return read_reference(path, AUDIO, MEL, told.append)


@pytest.mark.parametrize("name", ["v.wav", "v.flac", "v.ogg", "v.mp3"])
def test_every_common_format_is_heard(tmp_path: Path, name: str) -> None:
    soundfile.write(tmp_path / name, synthesize_clip(4.0, rate_hz=44_100), 44_100)
    (crop_RM,) = read(tmp_path / name).crops
    assert crop_RM.shape[1] == MEL.n_mels
    assert abs(len(crop_RM) - 4.0 * FRAMES_PER_S) < 20


def test_a_voice_is_the_same_at_any_level_and_with_silence_around(tmp_path: Path) -> None:
    clip = synthesize_clip(4.0)
    soundfile.write(tmp_path / "a.wav", clip, MEL.sample_rate, subtype="FLOAT")
    quiet = np.concatenate([np.zeros(22_050), 0.1 * clip, np.zeros(11_025)])
    soundfile.write(tmp_path / "b.wav", quiet, MEL.sample_rate, subtype="FLOAT")
    loud_M, quiet_M = (np.median(read(tmp_path / name).crops[0], axis=0) for name in ("a.wav", "b.wav"))
    np.testing.assert_allclose(loud_M, quiet_M, atol=0.15)


@pytest.mark.parametrize(("seconds", "num_crops"), [(2.0, 1), (7.9, 1), (12.0, 2), (29.5, 4)])
def test_a_long_recording_becomes_several_crops(
    tmp_path: Path, write_clip: ClipWriter, seconds: float, num_crops: int
) -> None:
    crops = read(write_clip(tmp_path / "v.wav", seconds)).crops
    assert len(crops) == num_crops
    assert max(map(len, crops)) <= count_crop_frames(MEL)
    assert abs(sum(map(len, crops)) - seconds * FRAMES_PER_S) < 20
    assert min(map(len, crops)) > MAX_CROP_S / 2.2 * FRAMES_PER_S or num_crops == 1


def test_a_short_recording_is_warned_of(tmp_path: Path, write_clip: ClipWriter) -> None:
    warnings: list[str] = []
    read(write_clip(tmp_path / "v.wav", 2.0), warnings)
    assert len(warnings) == 1
    assert "3 to 8 s" in warnings[0]
    read(write_clip(tmp_path / "w.wav", 4.0), warnings)
    assert len(warnings) == 1


def test_a_link_that_the_user_named_is_followed(tmp_path: Path, write_clip: ClipWriter) -> None:
    (tmp_path / "link.wav").symlink_to(write_clip(tmp_path / "v.wav", 4.0))
    assert read(tmp_path / "link.wav").duration_s == pytest.approx(4.0, abs=0.2)


def test_what_is_no_voice_is_refused_in_words(tmp_path: Path, write_clip: ClipWriter) -> None:
    write_clip(tmp_path / "short.wav", 0.5)
    write_clip(tmp_path / "long.wav", 31.0)
    soundfile.write(tmp_path / "silent.wav", np.zeros(100_000), 22_050)
    soundfile.write(tmp_path / "click.wav", np.r_[np.zeros(60_000), 0.5 * np.ones(2000), np.zeros(40_000)], 22_050)
    (tmp_path / "text.wav").write_text("RIFF, but not really", encoding="utf-8")
    (tmp_path / "empty.wav").touch()
    os.mkfifo(tmp_path / "pipe.wav")
    for name in ("short", "long", "silent", "click", "text", "empty", "pipe", "missing", "a\0b"):
        with pytest.raises(DataError, match="clear speech"):
            read(tmp_path / f"{name}.wav")
    with pytest.raises(DataError, match="clear speech"):
        read(tmp_path)


def test_an_hour_of_silence_is_refused_in_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "bomb.flac"
    with soundfile.SoundFile(path, "w", 8000, 1) as sound:
        for _ in range(60):
            sound.write(np.zeros(60 * 8000, np.int16))
    started = time.perf_counter()
    with pytest.raises(DataError, match="3600"):
        read(path)
    assert time.perf_counter() - started < 0.05
