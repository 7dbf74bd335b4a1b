"""Sound is written in the format of the file's ending, at a rate that the format has, and is heard as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from myxtts.features.wave_file import list_endings, write_sound
from myxtts.types import Waveform

SECONDS = 65.0
"""Longer than what the Vorbis encoder takes at once."""


def make_wave(rate: int) -> Waveform:
    times = np.arange(int(SECONDS * rate)) / rate
    return Waveform((0.3 * np.sin(2 * np.pi * 440 * times)).astype(np.float32), rate)


@pytest.mark.parametrize("rate", [22_050, 20_000])
@pytest.mark.parametrize(
    ("ending", "container", "coding"),
    [
        (".wav", "WAV", "PCM_16"),
        ("", "WAV", "PCM_16"),
        (".flac", "FLAC", "PCM_16"),
        (".ogg", "OGG", "VORBIS"),
        (".OPUS", "OGG", "OPUS"),
        (".mp3", "MP3", "MPEG_LAYER_III"),
    ],
)
def test_each_ending_is_a_format(tmp_path: Path, ending: str, container: str, coding: str, rate: int) -> None:
    path = tmp_path / f"new/sound{ending}"
    write_sound(path, make_wave(rate))
    info = soundfile.info(path)
    assert (info.format, info.subtype) == (container, coding)
    assert info.samplerate >= rate
    assert info.duration == pytest.approx(SECONDS, abs=0.2)
    samples, found = soundfile.read(path, start=info.samplerate, stop=3 * info.samplerate)
    strongest = np.abs(np.fft.rfft(samples)).argmax() * found / len(samples)
    assert strongest == pytest.approx(440, abs=1)


def test_lossless_formats_hold_the_samples_of_the_wav_file(tmp_path: Path) -> None:
    write_sound(tmp_path / "a.wav", make_wave(16_000))
    write_sound(tmp_path / "a.flac", make_wave(16_000))
    np.testing.assert_array_equal(soundfile.read(tmp_path / "a.wav")[0], soundfile.read(tmp_path / "a.flac")[0])


def test_every_format_is_there() -> None:
    assert list_endings() == [".wav", ".flac", ".ogg", ".opus", ".mp3"]
