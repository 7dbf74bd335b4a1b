"""Recordings are loaded whole and exactly, or refused with the reason."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from myxtts.corpus.audio import AudioLimits, inspect_audio
from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.features.audio import Recording, load_recording
from myxtts.features.definition import AudioDefinition

MakeClip = Callable[..., NDArray[np.float32]]
WriteClip = Callable[..., Path]

RATE_HZ = 22050
UNCHANGED = AudioDefinition(RATE_HZ, trim_silence=False, trim_db=38.0, loudness="none", loudness_target=0.06)
LIMITS = AudioLimits(0.3, 30.0, 192_000, 8, -60.0, 0.005)


def load(path: Path, limits: AudioLimits = LIMITS) -> Recording:
    return load_recording(os.path.realpath(path), UNCHANGED, limits)


def find_problem(path: Path, limits: AudioLimits = LIMITS) -> AudioProblem:
    with pytest.raises(AudioProblem) as caught:
        load(path, limits)
    assert caught.value.detail
    return caught.value


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
def test_every_kind_of_wav_is_loaded_to_its_precision(tmp_path: Path, make_clip: MakeClip, subtype: str) -> None:
    path, clip = tmp_path / "a.wav", make_clip(1.0)
    soundfile.write(path, clip, RATE_HZ, subtype=subtype)
    step = {"PCM_U8": 2**-7, "PCM_16": 2**-15, "PCM_24": 2**-23}.get(subtype, 2**-24)
    np.testing.assert_allclose(load(path).wave.samples, clip, atol=step)


@pytest.mark.parametrize(
    ("suffix", "subtype"), [("flac", "PCM_16"), ("flac", "PCM_24"), ("ogg", "VORBIS"), ("mp3", "MPEG_LAYER_III")]
)
@pytest.mark.parametrize("num_channels", [1, 2])
def test_compressed_formats_are_loaded_whole(
    tmp_path: Path, make_clip: MakeClip, suffix: str, subtype: str, num_channels: int
) -> None:
    path = tmp_path / f"a.{suffix}"
    clip = np.stack([make_clip(1.5, seed=seed) for seed in range(num_channels)], axis=1)
    soundfile.write(path, clip, RATE_HZ, subtype=subtype)
    samples = load(path).wave.samples
    assert samples.shape == (len(clip),)
    share = np.corrcoef(samples, clip.mean(axis=1))[0, 1]
    assert share > (0.9999 if suffix == "flac" else 0.99)


@pytest.mark.parametrize("suffix", ["wav", "flac"])
@pytest.mark.parametrize("num_channels", [1, 2])
def test_sixteen_bit_samples_equal_the_decoders_own_floats_bit_for_bit(
    tmp_path: Path, suffix: str, num_channels: int
) -> None:
    path = tmp_path / f"a.{suffix}"
    pcm = np.random.default_rng(0).integers(-32768, 32768, (RATE_HZ, num_channels), dtype=np.int16)
    pcm[:4, 0] = [-32768, 32767, 0, -1]
    soundfile.write(path, pcm, RATE_HZ, subtype="PCM_16")
    decoded = soundfile.read(path, dtype="float32", always_2d=True)[0]
    samples = load(path).wave.samples
    np.testing.assert_array_equal(samples, decoded.mean(axis=1, dtype=np.float32))
    if num_channels == 1:
        np.testing.assert_array_equal(samples, pcm[:, 0] / 32768)


LIST_CHUNK = b"LIST" + struct.pack("<I", 6) + b"INFO\0\0"
UNUSUAL_HEADERS: dict[str, Callable[[bytes], bytes]] = {
    "a chunk before the format": lambda content: content[:12] + LIST_CHUNK + content[12:],
    "a chunk before the samples": lambda content: content[:36] + LIST_CHUNK + content[36:],
    "a chunk behind the samples": lambda content: content + LIST_CHUNK,
    "a wrong size of the whole": lambda content: content[:4] + bytes(4) + content[8:],
    "a wrong number of bytes a second": lambda content: content[:28] + bytes(4) + content[32:],
}


@pytest.mark.parametrize("change", UNUSUAL_HEADERS.values(), ids=UNUSUAL_HEADERS)
def test_unusual_header_does_not_change_the_samples(
    tmp_path: Path, write_clip: WriteClip, change: Callable[[bytes], bytes]
) -> None:
    path = write_clip(tmp_path / "a.wav")
    expected = load(path).wave
    path.write_bytes(change(path.read_bytes()))
    changed = load(path)
    np.testing.assert_array_equal(changed.wave.samples, expected.samples)
    assert changed.checksum == google_crc32c.value(path.read_bytes())


@pytest.mark.parametrize("container", ["WAVEX", "RF64", "W64"])
def test_relatives_of_wav_are_loaded(tmp_path: Path, make_clip: MakeClip, container: str) -> None:
    soundfile.write(tmp_path / "plain.wav", make_clip(1.0), RATE_HZ)
    soundfile.write(tmp_path / "other.wav", make_clip(1.0), RATE_HZ, format=container, subtype="PCM_16")
    np.testing.assert_array_equal(load(tmp_path / "other.wav").wave.samples, load(tmp_path / "plain.wav").wave.samples)


def test_header_that_contradicts_itself_is_left_to_the_decoder(tmp_path: Path, write_clip: WriteClip) -> None:
    path = write_clip(tmp_path / "a.wav")
    content = bytearray(path.read_bytes())
    content[22:24] = struct.pack("<H", 3)
    path.write_bytes(content)
    decoded = soundfile.read(path, dtype="float32")[0]
    assert decoded.shape == (RATE_HZ // 3, 3)
    np.testing.assert_array_equal(load(path).wave.samples, decoded.mean(axis=1, dtype=np.float32))
    content[22:24] = struct.pack("<H", 0)
    path.write_bytes(content)
    assert find_problem(path).reason is Reason.UNREADABLE


def test_checksum_is_that_of_the_file_and_of_the_check_before(tmp_path: Path, write_clip: WriteClip) -> None:
    path = write_clip(tmp_path / "a.wav")
    recording = load(path)
    assert recording.checksum == google_crc32c.value(path.read_bytes())
    assert recording.checksum == inspect_audio(os.path.realpath(path), LIMITS).checksum


def test_recording_without_stated_length_is_loaded_up_to_the_limit(tmp_path: Path, write_clip: WriteClip) -> None:
    path = write_clip(tmp_path / "a.wav", seconds=1.0)
    content = bytearray(path.read_bytes())
    content[4:8] = content[40:44] = struct.pack("<I", 0xFFFFFFFF)
    path.write_bytes(content)
    assert len(load(path).wave.samples) == RATE_HZ
    assert find_problem(path, replace(LIMITS, max_duration_s=0.5)).reason is Reason.TOO_LONG


@pytest.mark.parametrize(
    ("suffix", "reasons"),
    [
        ("wav", {Reason.TRUNCATED}),
        ("flac", {Reason.UNREADABLE}),
        ("ogg", {Reason.TRUNCATED}),
        # Cut within its first frames an MP3 file is not one at all.
        ("mp3", {Reason.TRUNCATED, Reason.UNREADABLE}),
    ],
)
def test_truncated_recording_is_refused(
    tmp_path: Path, write_clip: WriteClip, suffix: str, reasons: set[Reason]
) -> None:
    path = write_clip(tmp_path / f"a.{suffix}", seconds=2.0)
    content = path.read_bytes()
    found = set()
    for num_bytes in (*np.linspace(len(content) // 50, len(content), 12, endpoint=False, dtype=int), len(content) - 1):
        path.write_bytes(content[:num_bytes])
        found.add(find_problem(path).reason)
    assert found <= reasons
    assert Reason.TRUNCATED in found or suffix == "flac"


@pytest.mark.parametrize("subtype", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("num_channels", [1, 2])
def test_samples_that_are_no_numbers_are_refused(
    tmp_path: Path, make_clip: MakeClip, subtype: str, value: float, num_channels: int
) -> None:
    clip = np.stack([make_clip(1.0)] * num_channels, axis=1)
    clip[-1, -1] = value
    soundfile.write(tmp_path / "a.wav", clip, RATE_HZ, subtype=subtype)
    problem = find_problem(tmp_path / "a.wav")
    assert problem.reason is Reason.UNREADABLE
    assert "NaN" in problem.detail


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.wav").touch()
    (tmp_path / "noise.wav").write_bytes(np.random.default_rng(0).bytes(5000))
    (tmp_path / "folder.wav").mkdir()
    assert find_problem(tmp_path / "none.wav").reason is Reason.MISSING_FILE
    assert find_problem(tmp_path / "empty.wav").reason is Reason.EMPTY
    assert find_problem(tmp_path / "noise.wav").reason is Reason.UNREADABLE
    assert find_problem(tmp_path / "folder.wav").reason is Reason.UNREADABLE


@pytest.mark.parametrize(("seconds", "reason"), [(0.29, Reason.TOO_SHORT), (30.1, Reason.TOO_LONG)])
@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
def test_length_limits(tmp_path: Path, write_clip: WriteClip, seconds: float, reason: Reason, suffix: str) -> None:
    assert find_problem(write_clip(tmp_path / f"a.{suffix}", seconds=seconds, rate_hz=8000)).reason is reason


def test_rate_and_channel_limits(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "slow.wav", np.zeros(4000), 3999)
    soundfile.write(tmp_path / "fast.wav", np.zeros(100_000), 192_001)
    soundfile.write(tmp_path / "wide.wav", np.zeros((8000, 9)), 8000)
    assert find_problem(tmp_path / "slow.wav").reason is Reason.BAD_RATE
    assert find_problem(tmp_path / "fast.wav").reason is Reason.BAD_RATE
    assert find_problem(tmp_path / "wide.wav").reason is Reason.BAD_CHANNELS


def test_hour_of_silence_in_a_small_file_costs_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "bomb.flac"
    minute = np.zeros(60 * RATE_HZ, np.int16)
    with soundfile.SoundFile(path, "w", RATE_HZ, 1) as sound:
        for _ in range(60):
            sound.write(minute)
    assert path.stat().st_size < 1_000_000
    find_problem(path)
    started = time.process_time()
    assert find_problem(path).reason is Reason.TOO_LONG
    # Decoding the hour takes most of a second.
    assert time.process_time() - started < 0.02
