"""Recordings of a voice: any common format, checked by header first, cut into crops a model can hear."""

from __future__ import annotations

import dataclasses
import os
import pickle
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.conftest import ClipWriter, synthesize_clip

from myxtts.config.schema import DataConfig
from myxtts.errors import DataError, MyXTTSError, UsageError
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.storage.tensor_file import write_tensors
from myxtts.synthesis.voices import (
    MAX_CROP_S,
    SpeakerEmbedding,
    VoiceFolder,
    average_embeddings,
    check_voice_name,
    count_crop_frames,
    cut_crops,
    fingerprint_encoder,
    read_noted_voices,
    read_reference,
)
from myxtts.types import Floats

AUDIO, MEL = AudioDefinition.from_config(DataConfig()), MelDefinition.from_config(DataConfig())
FRAMES_PER_S = MEL.sample_rate / MEL.hop_length


def read(path: Path, warnings: list[str] | None = None) -> NDArray[np.float32]:
    told: list[str] = [] if warnings is None else warnings
    return read_reference(path, AUDIO, MEL, told.append)


@pytest.mark.parametrize("name", ["v.wav", "v.flac", "v.ogg", "v.mp3"])
def test_every_common_format_is_heard(tmp_path: Path, name: str) -> None:
    soundfile.write(tmp_path / name, synthesize_clip(4.0, rate_hz=44_100), 44_100)
    mel_RM = read(tmp_path / name)
    assert mel_RM.shape[1] == MEL.n_mels
    assert abs(len(mel_RM) - 4.0 * FRAMES_PER_S) < 20


def test_a_voice_is_the_same_at_any_level_and_with_silence_around(tmp_path: Path) -> None:
    clip = synthesize_clip(4.0)
    soundfile.write(tmp_path / "a.wav", clip, MEL.sample_rate, subtype="FLOAT")
    quiet = np.concatenate([np.zeros(22_050), 0.1 * clip, np.zeros(11_025)])
    soundfile.write(tmp_path / "b.wav", quiet, MEL.sample_rate, subtype="FLOAT")
    loud_M, quiet_M = (np.median(read(tmp_path / name), axis=0) for name in ("a.wav", "b.wav"))
    np.testing.assert_allclose(loud_M, quiet_M, atol=0.15)


@pytest.mark.parametrize(("seconds", "num_crops"), [(2.0, 1), (7.9, 1), (12.0, 2), (29.5, 4)])
def test_a_long_recording_becomes_several_crops(
    tmp_path: Path, write_clip: ClipWriter, seconds: float, num_crops: int
) -> None:
    crops = cut_crops(read(write_clip(tmp_path / "v.wav", seconds)), count_crop_frames(MEL))
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
    assert len(read(tmp_path / "link.wav")) == pytest.approx(4.0 * FRAMES_PER_S, abs=20)


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
    started = time.thread_time()
    with pytest.raises(DataError, match="3600"):
        read(path)
    assert time.thread_time() - started < 0.05


METADATA = {"format": "myxtts-voice", "version": "1", "model": "abc"}
REFERENCES = tuple(np.full((40 + number, MEL.n_mels), number, np.float32) for number in range(12))


def make_voice(seed: int = 0) -> SpeakerEmbedding:
    generator = np.random.default_rng(seed)
    return SpeakerEmbedding(
        generator.normal(size=4).astype(np.float32), generator.normal(size=(2, 4)).astype(np.float32)
    )


def open_folder(path: Path, fingerprint: str = "abc") -> VoiceFolder:
    return VoiceFolder(path / "voices", fingerprint, num_latents=2, width=4, mel=MEL)


def load_embedding(folder: VoiceFolder, name: str) -> SpeakerEmbedding:
    found = folder.load(name).embedding
    assert found is not None
    return found


def write_file(path: Path, arrays: dict[str, NDArray[Any]], metadata: dict[str, str], *, seal: bool = True) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        write_tensors(file, arrays, metadata, seal=seal)


@pytest.mark.parametrize("name", ["anna", "Anna Maria-2.b", "مریم", "نیم‌فاصله", "李"])
def test_a_voice_comes_back_as_it_was_saved(tmp_path: Path, name: str) -> None:
    folder, voice = open_folder(tmp_path), make_voice()
    path = folder.save(name, voice)
    assert path.parent == folder.path
    assert folder.list_names() == [name]
    found = load_embedding(folder, name)
    np.testing.assert_array_equal(found.vector, voice.vector)
    np.testing.assert_array_equal(found.latents, voice.latents)


@pytest.mark.parametrize(
    ("name", "kept"),
    [("equalizer", np.linspace(-1, 1, MEL.n_mels).astype(np.float32)), ("f0_change", np.array([1, 0.3], np.float32))],
)
def test_a_voice_keeps_what_brings_it_nearer_to_its_recording(tmp_path: Path, name: str, kept: Floats) -> None:
    folder = open_folder(tmp_path)
    folder.save("anna", replace(make_voice(), **{name: kept}), [np.zeros((5, MEL.n_mels), np.float32)])
    np.testing.assert_array_equal(getattr(load_embedding(folder, "anna"), name), kept)
    with pytest.raises(DataError, match=f"its {name} is"):
        folder.save("anna", replace(make_voice(), **{name: kept[1:]}))


def test_a_voice_of_the_first_version_is_read(tmp_path: Path) -> None:
    folder, voice = open_folder(tmp_path), make_voice()
    write_file(folder.path / "anna.safetensors", {"latents": voice.latents, "vector": voice.vector}, METADATA)
    np.testing.assert_array_equal(load_embedding(folder, "anna").vector, voice.vector)


def test_a_voice_without_its_recording_is_refused_by_another_model(tmp_path: Path) -> None:
    open_folder(tmp_path).save("anna", make_voice())
    with pytest.raises(DataError, match=r"another checkpoint.*--voice RECORDING --save-voice 'anna'"):
        open_folder(tmp_path, "def").load("anna")


def test_a_voice_keeps_the_log_mels_of_its_recordings_for_another_state_of_the_model(tmp_path: Path) -> None:
    open_folder(tmp_path).save("anna", make_voice(), REFERENCES)
    assert open_folder(tmp_path).load("anna").name == ""
    found = open_folder(tmp_path, "def").load("anna")
    assert found.embedding is None
    assert found.name == "anna"
    assert len(found.references) == len(REFERENCES)
    for kept, mel_RM in zip(found.references, REFERENCES, strict=True):
        np.testing.assert_array_equal(kept, mel_RM)


def test_what_is_kept_of_many_recordings_is_bounded(tmp_path: Path) -> None:
    long_RM = np.zeros((int(50 * FRAMES_PER_S), MEL.n_mels), np.float32)
    open_folder(tmp_path).save("anna", make_voice(), [long_RM] * 9)
    assert len(open_folder(tmp_path, "def").load("anna").references) == 2


def test_log_mels_of_other_spectrograms_are_not_used(tmp_path: Path) -> None:
    open_folder(tmp_path).save("anna", make_voice(), REFERENCES)
    other = VoiceFolder(tmp_path / "voices", "def", 2, 4, dataclasses.replace(MEL, fmax=MEL.fmax - 100))
    with pytest.raises(DataError, match="its recording was not kept"):
        other.load("anna")


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../anna", "a/b", "a\\b", "a\0b", "-x", ".x", "x.", "x ", "a" * 65, "\ud800", "a\nb", "ا" * 99],
)
def test_names_that_are_paths_or_worse_are_refused(tmp_path: Path, name: str) -> None:
    for use in (
        check_voice_name,
        open_folder(tmp_path).load,
        lambda name: open_folder(tmp_path).save(name, make_voice()),
    ):
        with pytest.raises(UsageError, match="cannot be called"):
            use(name)
    assert not open_folder(tmp_path).has(name)
    assert not list(tmp_path.iterdir())


@given(st.text(max_size=80))
def test_an_accepted_name_is_one_file_in_the_folder(name: str) -> None:
    try:
        checked = check_voice_name(name)
    except UsageError:
        return
    assert Path("voices", checked).name == checked
    assert len(checked.encode()) < 240


def test_an_unknown_voice_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    open_folder(tmp_path).save("anna", make_voice())
    with pytest.raises(DataError, match="one of: anna"):
        open_folder(tmp_path).load("ana")


def _replace(
    arrays: dict[str, Any], metadata: dict[str, str] = METADATA, *, seal: bool = True
) -> Callable[[Path], None]:
    good = {"latents": make_voice().latents, "vector": make_voice().vector}
    wanted = {name: array for name, array in {**good, **arrays}.items() if array is not None}
    return lambda path: write_file(path, wanted, metadata, seal=seal)


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-20] ^= 1
    path.write_bytes(raw)


def _link(path: Path) -> None:
    path.rename(path.with_suffix(".elsewhere"))
    path.symlink_to(path.with_suffix(".elsewhere"))


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


HOSTILE: dict[str, Callable[[Path], object]] = {
    "pickle": lambda path: path.write_bytes(pickle.dumps([1])),
    "empty": lambda path: path.write_bytes(b""),
    "giant heading": lambda path: path.write_bytes(struct.pack("<Q", 1 << 60)),
    "a flipped bit": _flip,
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "a link": _link,
    "a pipe": _pipe,
    "no seal": _replace({}, seal=False),
    "wrong shape": _replace({"vector": np.zeros(5, np.float32)}),
    "wrong type": _replace({"vector": np.zeros(4, np.float64)}),
    "not finite": _replace({"vector": np.full(4, np.nan, np.float32)}),
    "one missing": _replace({"vector": None}),
    "one more": _replace({"zebra": np.zeros(4, np.float32)}),
    "other format": _replace({}, {**METADATA, "format": "x"}),
    "other version": _replace({}, {**METADATA, "version": "3"}),
    "second version without its spectrograms": _replace({}, {**METADATA, "version": "2"}),
    "log-mel of another width": _replace({"reference.0": np.zeros((5, 3), np.float32)}),
    "log-mel without frames": _replace({"reference.0": np.zeros((0, MEL.n_mels), np.float32)}),
    "log-mel that is a number": _replace({"reference.0": np.float32(1)}),
    "log-mel that is not finite": _replace({"reference.0": np.full((5, MEL.n_mels), np.nan, np.float32)}),
    "no model": _replace({}, {name: METADATA[name] for name in ("format", "version")}),
    "huge": lambda path: os.truncate(path, 1 << 33),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_voice_is_refused(tmp_path: Path, name: str) -> None:
    folder = open_folder(tmp_path)
    HOSTILE[name](folder.save("anna", make_voice()))
    with pytest.raises(DataError, match="cannot be used"):
        folder.load("anna")


@given(st.binary(max_size=300))
def test_no_bytes_are_taken_for_a_voice(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    folder = VoiceFolder(tmp_path_factory.getbasetemp() / "fuzzed", "abc", 2, 4, MEL)
    folder.path.mkdir(exist_ok=True)
    (folder.path / "x.safetensors").write_bytes(raw)
    with pytest.raises(MyXTTSError):
        folder.load("x")


def test_a_voice_that_does_not_fit_is_not_saved(tmp_path: Path) -> None:
    wrong = SpeakerEmbedding(np.zeros(3, np.float32), np.zeros((2, 3), np.float32))
    with pytest.raises(DataError, match="needs float32"):
        open_folder(tmp_path).save("anna", wrong)


def test_several_voices_average_and_compare() -> None:
    voices = [make_voice(seed) for seed in range(3)]
    mean = average_embeddings(voices)
    np.testing.assert_allclose(mean.vector, sum(voice.vector for voice in voices) / 3, rtol=1e-6)
    assert voices[0].compare(voices[0]) == pytest.approx(1.0)
    assert voices[0].compare(SpeakerEmbedding(-voices[0].vector, mean.latents)) == pytest.approx(-1.0)


def test_a_mixture_has_the_equalizers_of_its_voices_by_weight() -> None:
    gains = np.linspace(-1, 1, 6).astype(np.float32)
    mixed = average_embeddings([replace(make_voice(), equalizer=gains), make_voice(1)], [1, 3])
    assert mixed.equalizer is not None
    np.testing.assert_allclose(mixed.equalizer, gains / 4, rtol=1e-6)
    assert mixed.f0_change is None


def test_a_mixture_moves_f0_by_the_weights_of_its_voices() -> None:
    moved = replace(make_voice(), f0_change=np.array([1.0, 0.8], np.float32))
    change = average_embeddings([moved, make_voice(1)], [1, 3]).f0_change
    assert change is not None
    np.testing.assert_allclose(change, np.array([1.0, 0.2]), rtol=1e-6)


def test_the_fingerprint_follows_the_reference_encoder_alone() -> None:
    weights = {"reference_encoder.stem.kernel": np.ones(3, np.float32), "decoder.kernel": np.ones(3, np.float32)}
    before = fingerprint_encoder(weights)
    assert fingerprint_encoder({**weights, "decoder.kernel": np.zeros(3, np.float32)}) == before
    assert fingerprint_encoder({**weights, "reference_encoder.stem.kernel": np.zeros(3, np.float32)}) != before


def test_voices_in_the_notes_are_read_strictly() -> None:
    voice = make_voice()
    good = {"vector": voice.vector.tolist(), "latents": voice.latents.tolist()}
    (name, found), *_ = read_noted_voices({"voices": {"anna": good}}, 2, 4).items()
    assert name == "anna"
    assert found.embedding is not None
    np.testing.assert_array_equal(found.embedding.latents, voice.latents)
    assert found.language == ""
    (noted,) = read_noted_voices({"voices": {"anna": {**good, "language": "fa"}}}, 2, 4).values()
    assert noted.language == "fa"
    assert read_noted_voices({}, 2, 4) == {}
    wrongs: list[object] = [
        [],
        3,
        {"a": good},
        {**good, "vector": [1]},
        {**good, "vector": ["x"] * 4},
        {**good, "latents": [[1] * 4]},
    ]
    for wrong in wrongs:
        with pytest.raises(DataError, match="notes"):
            read_noted_voices({"voices": {"anna": wrong}}, 2, 4)
    with pytest.raises(DataError, match="notes"):
        read_noted_voices({"voices": [good]}, 2, 4)
