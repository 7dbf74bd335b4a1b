"""Saved voices come back as they were, only to the model that made them, and hostile files are refused."""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from myxtts.errors import DataError, MyXTTSError, UsageError
from myxtts.models.tensor_file import write_tensors
from myxtts.synthesis.voices import (
    VoiceFolder,
    VoicePrint,
    average_prints,
    check_voice_name,
    fingerprint_encoder,
    read_noted_voices,
)

METADATA = {"format": "myxtts-voice", "version": "1", "model": "abc"}


def make_voice(seed: int = 0) -> VoicePrint:
    generator = np.random.default_rng(seed)
    return VoicePrint(generator.normal(size=4).astype(np.float32), generator.normal(size=(2, 4)).astype(np.float32))


def open_folder(path: Path, fingerprint: str = "abc") -> VoiceFolder:
    return VoiceFolder(path / "voices", fingerprint, num_latents=2, width=4)


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
    found = folder.load(name)
    np.testing.assert_array_equal(found.vector, voice.vector)
    np.testing.assert_array_equal(found.latents, voice.latents)


def test_a_voice_of_another_model_is_refused(tmp_path: Path) -> None:
    open_folder(tmp_path).save("anna", make_voice())
    with pytest.raises(DataError, match="another state of the model"):
        open_folder(tmp_path, "def").load("anna")


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
    "other version": _replace({}, {**METADATA, "version": "2"}),
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
    folder = VoiceFolder(tmp_path_factory.getbasetemp() / "fuzzed", "abc", 2, 4)
    folder.path.mkdir(exist_ok=True)
    (folder.path / "x.safetensors").write_bytes(raw)
    with pytest.raises(MyXTTSError):
        folder.load("x")


def test_a_voice_that_does_not_fit_is_not_saved(tmp_path: Path) -> None:
    wrong = VoicePrint(np.zeros(3, np.float32), np.zeros((2, 3), np.float32))
    with pytest.raises(DataError, match="needs float32"):
        open_folder(tmp_path).save("anna", wrong)


def test_several_voices_average_and_compare() -> None:
    voices = [make_voice(seed) for seed in range(3)]
    mean = average_prints(voices)
    np.testing.assert_allclose(mean.vector, sum(voice.vector for voice in voices) / 3, rtol=1e-6)
    assert voices[0].compare(voices[0]) == pytest.approx(1.0)
    assert voices[0].compare(VoicePrint(-voices[0].vector, mean.latents)) == pytest.approx(-1.0)


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
    np.testing.assert_array_equal(found.latents, voice.latents)
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
