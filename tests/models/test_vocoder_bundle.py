"""The bundle of a vocoder comes back as it was written, goes into that of a model, and is refused when altered."""

from __future__ import annotations

import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from tests.models.hostile import MEL, Planted, make_bundle

from myxtts.errors import ConfigError, DataError
from myxtts.models.bundle import find_bundle, read_bundle, write_bundle
from myxtts.models.vocoder_bundle import (
    VocoderBundle,
    find_vocoder,
    put_into,
    read_vocoder_bundle,
    write_vocoder_bundle,
)

WEIGHTS, DESCRIPTION = "vocoder.safetensors", "vocoder.json"
CONFIG = {"n_mels": MEL["n_mels"], "width": 8}


def make_vocoder(**changes: Any) -> VocoderBundle:
    weights = {"head.kernel": np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)}
    fields: dict[str, Any] = {"mel": dict(MEL), "config": CONFIG, "weights": weights, "notes": {"step": 7}}
    return VocoderBundle(**fields | changes)


def test_a_vocoder_comes_back_as_it_was(tmp_path: Path) -> None:
    vocoder = make_vocoder()
    write_vocoder_bundle(tmp_path / "run" / "bundle", vocoder)
    for place in (tmp_path / "run", tmp_path / "run" / "bundle"):
        found = find_vocoder(place)
        assert (found.mel, found.config, found.notes) == (vocoder.mel, vocoder.config, vocoder.notes)
        np.testing.assert_array_equal(found.weights["head.kernel"], vocoder.weights["head.kernel"])
        assert set(found.versions) >= {"myxtts", "numpy"}
    with pytest.raises(DataError, match="not a voice model"):
        find_bundle(tmp_path / "run")


def test_a_model_takes_a_vocoder_in_and_gives_it_out(tmp_path: Path) -> None:
    vocoder = make_vocoder()
    write_bundle(
        tmp_path, put_into(make_bundle(vocoder={"name": "griffin_lim", "mel": MEL}, vocoder_weights={}), vocoder)
    )
    assert read_bundle(tmp_path).vocoder["config"] == CONFIG
    found = find_vocoder(tmp_path)
    assert found.config == CONFIG
    np.testing.assert_array_equal(found.weights["head.kernel"], vocoder.weights["head.kernel"])
    with pytest.raises(ConfigError, match="hop_length"):
        put_into(make_bundle(), make_vocoder(mel={**MEL, "hop_length": 300}))


def test_a_folder_without_a_vocoder_is_said_to_have_none(tmp_path: Path) -> None:
    write_bundle(tmp_path / "model", make_bundle(vocoder={"name": "griffin_lim", "mel": MEL}, vocoder_weights={}))
    for place in (tmp_path, tmp_path / "model", tmp_path / "nowhere"):
        with pytest.raises(DataError, match="no vocoder"):
            find_vocoder(place)


def test_weights_that_are_not_finite_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="NaN or infinite"):
        write_vocoder_bundle(tmp_path / "bundle", make_vocoder(weights={"a": np.full(3, np.nan, np.float32)}))
    assert not (tmp_path / "bundle").exists()


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    fields = json.loads((folder / DESCRIPTION).read_bytes())
    change(fields)
    (folder / DESCRIPTION).write_text(json.dumps(fields), encoding="utf-8")


def replace_weights(folder: Path, content: bytes) -> None:
    """Other bytes with the right checksum: whoever tampers can compute one."""
    (folder / WEIGHTS).write_bytes(content)
    edit(folder, lambda fields: fields["checksums"].update({WEIGHTS: google_crc32c.value(content)}))


def pack(shape: list[int], data: bytes, dtype: str = "F32") -> bytes:
    heading = json.dumps({"a": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(heading)) + heading + data


def link_weights(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to("/etc/passwd")


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "pickle": (lambda f: replace_weights(f, pickle.dumps(Planted(str(f / "planted")))), "heading claims"),
    "not a number": (lambda f: replace_weights(f, pack([1], np.float32(np.nan).tobytes())), "NaN or infinite"),
    "doubles": (lambda f: replace_weights(f, pack([1], bytes(8), "F64")), "float32"),
    "more than is there": (lambda f: replace_weights(f, pack([10**9], bytes(4))), "cannot be used"),
    "changed bytes": (lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:-1] + b"x"), "checksum"),
    "link": (link_weights, "cannot be read"),
    "endless": (lambda f: os.truncate(f / WEIGHTS, 1 << 41), "more than"),
    "another format": (lambda f: edit(f, lambda fields: fields.update(format="x")), "format"),
    "another version": (lambda f: edit(f, lambda fields: fields.update(version=2)), "version should be 1, found 2"),
    "a part too many": (lambda f: edit(f, lambda fields: fields.update(code="x")), "code"),
    "a part missing": (lambda f: edit(f, lambda fields: fields.pop("config")), "config"),
    "no object": (lambda f: edit(f, lambda fields: fields.update(mel=[1])), "mel"),
    "no JSON": (lambda f: (f / DESCRIPTION).write_bytes(b"\x80\x04x"), "cannot be used"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_was_tampered_with_is_refused_and_runs_nothing(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "bundle"
    write_vocoder_bundle(folder, make_vocoder())
    tamper, words = HOSTILE[name]
    tamper(folder)
    with pytest.raises(DataError, match=words):
        read_vocoder_bundle(folder)
    assert not (folder / "planted").exists()
