"""Recordings are judged by their header first, then by what is in them."""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from myxtts.corpus.audio import AudioLimits, inspect_audio
from myxtts.corpus.rejections import AudioProblem, Reason

LIMITS = AudioLimits(
    min_duration_s=0.3,
    max_duration_s=30,
    max_source_rate_hz=192_000,
    max_channels=8,
    silence_db=-60,
    max_clipped_share=0.005,
)
RATE_HZ = 22050
FORMATS = ("wav", "flac", "ogg", "mp3", "aiff", "w64")
MakeClip = Callable[..., NDArray[np.float32]]


def find_problem(path: Path, *, headers_only: bool = False) -> AudioProblem:
    with pytest.raises(AudioProblem) as caught:
        inspect_audio(os.path.realpath(path), LIMITS, headers_only=headers_only)
    assert caught.value.detail
    return caught.value


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("headers_only", [True, False])
def test_good_recording_of_each_format_passes(tmp_path: Path, write_clip: Any, suffix: str, headers_only: bool) -> None:
    path = write_clip(tmp_path / f"a.{suffix}", seconds=1.5)
    facts = inspect_audio(os.path.realpath(path), LIMITS, headers_only=headers_only)
    assert (facts.sample_rate_hz, facts.num_channels) == (RATE_HZ, 1)
    assert facts.num_samples == pytest.approx(1.5 * RATE_HZ, rel=0.1)
    assert bool(facts.checksum) is not headers_only


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW"])
def test_every_kind_of_wav_passes(tmp_path: Path, make_clip: MakeClip, subtype: str) -> None:
    soundfile.write(tmp_path / "a.wav", make_clip(1.0), RATE_HZ, subtype=subtype)
    assert inspect_audio(os.path.realpath(tmp_path / "a.wav"), LIMITS).num_samples == RATE_HZ


def test_wav_of_a_stream_has_no_length_and_passes(tmp_path: Path, write_clip: Any) -> None:
    path = write_clip(tmp_path / "a.wav")
    content = bytearray(path.read_bytes())
    content[4:8] = content[40:44] = struct.pack("<I", 0xFFFFFFFF)
    path.write_bytes(content)
    assert inspect_audio(os.path.realpath(path), LIMITS).num_samples == RATE_HZ


@pytest.mark.parametrize("suffix", ["aiff", "w64"])
def test_shortened_file_of_chunks_is_noticed(tmp_path: Path, write_clip: Any, suffix: str) -> None:
    path = write_clip(tmp_path / f"a.{suffix}", seconds=1.5)
    os.truncate(path, path.stat().st_size - 1000)
    assert find_problem(path).reason is Reason.TRUNCATED
    os.truncate(path, 45)
    assert find_problem(path).reason is Reason.TRUNCATED


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (b"\x1a\x45\xdf\xa3\x01\0\0\0", "WebM"),
        (b"\0\0\0\x20ftypM4A ", "M4A"),
        (b"\xff\xf1\x50\x80", "AAC"),
        (b"#!AMR\n", "AMR"),
    ],
)
def test_format_of_others_is_named_with_the_way_to_convert_it(tmp_path: Path, start: bytes, name: str) -> None:
    (tmp_path / "a.webm").write_bytes(start + bytes(5000))
    problem = find_problem(tmp_path / "a.webm")
    assert problem.reason is Reason.FOREIGN_FORMAT
    assert name in problem.detail
    assert "ffmpeg" in problem.reason.what_to_do


@pytest.mark.parametrize("num_bytes", [3 << 30, 10 << 30])
@pytest.mark.parametrize("suffix", FORMATS)
def test_sparse_giant_is_refused_in_milliseconds(tmp_path: Path, write_clip: Any, suffix: str, num_bytes: int) -> None:
    path = write_clip(tmp_path / f"a.{suffix}", seconds=1.5)
    os.truncate(path, num_bytes)
    started = time.thread_time()
    problem = find_problem(path)
    assert time.thread_time() - started < 1.0
    assert problem.reason in (Reason.TOO_LONG, Reason.UNREADABLE)
    assert f"{num_bytes:,} bytes" in problem.detail


def test_missing_file(tmp_path: Path) -> None:
    assert find_problem(tmp_path / "none.wav").reason is Reason.MISSING_FILE


def test_folder_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.wav").mkdir()
    assert find_problem(tmp_path / "a.wav").reason is Reason.UNREADABLE


def test_file_without_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.wav").touch()
    assert find_problem(tmp_path / "a.wav").reason is Reason.EMPTY


def test_wav_without_samples(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(0, np.float32), RATE_HZ)
    assert find_problem(tmp_path / "a.wav").reason is Reason.EMPTY


@pytest.mark.parametrize("headers_only", [True, False])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
def test_truncated_wav_is_found_from_its_header(
    tmp_path: Path, write_clip: Any, share: float, headers_only: bool
) -> None:
    path = write_clip(tmp_path / "a.wav")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    assert find_problem(path, headers_only=headers_only).reason is Reason.TRUNCATED


def test_wav_whose_header_was_never_completed(tmp_path: Path, write_clip: Any) -> None:
    path = write_clip(tmp_path / "a.wav")
    content = bytearray(path.read_bytes())
    content[40:44] = bytes(4)
    path.write_bytes(content)
    assert find_problem(path).reason is Reason.TRUNCATED


@pytest.mark.parametrize("suffix", ["flac", "ogg", "mp3"])
def test_truncated_recording_is_found_by_hearing_it(tmp_path: Path, write_clip: Any, suffix: str) -> None:
    path = write_clip(tmp_path / f"a.{suffix}", seconds=3.0)
    content = path.read_bytes()
    for share in (0.3, 0.6, 0.9):
        path.write_bytes(content[: int(len(content) * share)])
        assert find_problem(path).reason in (Reason.TRUNCATED, Reason.UNREADABLE)


@pytest.mark.parametrize("suffix", ["flac", "ogg"])
def test_single_flipped_bit_is_found_where_the_format_has_checksums(
    tmp_path: Path, write_clip: Any, suffix: str
) -> None:
    path = write_clip(tmp_path / f"a.{suffix}", seconds=1.0)
    content = path.read_bytes()
    generator = random.Random(1)
    for _ in range(30):
        damaged = bytearray(content)
        # The first kilobyte holds comments, whose damage changes no sample.
        damaged[generator.randrange(1000, len(content))] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        assert find_problem(path).reason in (Reason.TRUNCATED, Reason.UNREADABLE)


@pytest.mark.parametrize("suffix", FORMATS)
def test_random_bytes_are_unreadable(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    for seed in range(20):
        path.write_bytes(random.Random(seed).randbytes(5000))
        assert find_problem(path).reason is Reason.UNREADABLE


def test_other_formats_are_named(tmp_path: Path, make_clip: MakeClip) -> None:
    soundfile.write(tmp_path / "a.wav", make_clip(1.0), RATE_HZ, format="AU", subtype="PCM_16")
    problem = find_problem(tmp_path / "a.wav")
    assert problem.reason is Reason.FOREIGN_FORMAT
    assert "AU" in problem.detail


@pytest.mark.parametrize("level", [0.0, 0.0005])
def test_silence(tmp_path: Path, level: float) -> None:
    noise = np.random.default_rng(0).uniform(-level, level, RATE_HZ)
    soundfile.write(tmp_path / "a.wav", noise, RATE_HZ)
    assert find_problem(tmp_path / "a.wav").reason is Reason.SILENT


@pytest.mark.parametrize("subtype", ["PCM_16", "FLOAT"])
def test_clipping(tmp_path: Path, make_clip: MakeClip, subtype: str) -> None:
    soundfile.write(tmp_path / "a.wav", np.clip(make_clip(1.0) * 8, -1, 1), RATE_HZ, subtype=subtype)
    assert find_problem(tmp_path / "a.wav").reason is Reason.CLIPPED


def test_recording_normalised_to_full_scale_is_not_clipped(tmp_path: Path, make_clip: MakeClip) -> None:
    clip = make_clip(1.0)
    soundfile.write(tmp_path / "a.wav", clip / np.abs(clip).max(), RATE_HZ)
    inspect_audio(os.path.realpath(tmp_path / "a.wav"), LIMITS)


def test_samples_that_are_no_numbers(tmp_path: Path, make_clip: MakeClip) -> None:
    clip = make_clip(1.0)
    clip[100] = np.nan
    soundfile.write(tmp_path / "a.wav", clip, RATE_HZ, subtype="FLOAT")
    assert find_problem(tmp_path / "a.wav").reason is Reason.UNREADABLE


@pytest.mark.parametrize(("seconds", "reason"), [(0.2, Reason.TOO_SHORT), (31.0, Reason.TOO_LONG)])
def test_length_limits(tmp_path: Path, write_clip: Any, seconds: float, reason: Reason) -> None:
    assert find_problem(write_clip(tmp_path / "a.wav", seconds=seconds)).reason is reason


def test_rate_and_channel_limits(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "slow.wav", np.zeros(4000), 2000)
    soundfile.write(tmp_path / "wide.wav", np.zeros((4000, 9)), 8000)
    assert find_problem(tmp_path / "slow.wav").reason is Reason.BAD_RATE
    assert find_problem(tmp_path / "wide.wav").reason is Reason.BAD_CHANNELS


def test_hour_of_silence_in_a_small_file_is_refused_from_its_header(tmp_path: Path) -> None:
    path = tmp_path / "bomb.flac"
    with soundfile.SoundFile(path, "w", 48_000, 1) as sound:
        for _ in range(360):
            sound.write(np.zeros(480_000, np.int16))
    assert path.stat().st_size < 1_000_000
    started = time.process_time()
    assert find_problem(path).reason is Reason.TOO_LONG
    # Decoding takes seconds; the header, well under a millisecond.
    assert time.process_time() - started < 0.2


def test_flac_that_hides_its_length_is_not_decoded_without_end(tmp_path: Path) -> None:
    path = tmp_path / "liar.flac"
    soundfile.write(path, np.random.default_rng(0).integers(-3000, 3000, 40 * 22050, dtype=np.int16), 22050)
    content = bytearray(path.read_bytes())
    # The last 36 bits of these 8 bytes of STREAMINFO are the number of samples; zero means unknown.
    content[21] &= 0xF0
    content[22:26] = bytes(4)
    path.write_bytes(content)
    problem = find_problem(path)
    assert problem.reason is Reason.UNREADABLE
    assert "length" in problem.detail
