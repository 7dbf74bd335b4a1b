"""A voice for Piper: the files that piper-tts, wyoming-piper and sherpa-onnx read, and a graph that speaks their ids.

The programs themselves speak in `make doors`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.synthesis.small_models import DATA, write_small_bundle

from myxtts.errors import ConfigError, DataError, UsageError
from myxtts.export import single_file
from myxtts.export.conversion import convert
from myxtts.export.piper import choose_piper_voice, export_piper
from myxtts.export.single_file import MAX_MEL_ERROR, SingleFileProof, make_inputs, spell
from myxtts.synthesis.loaded_bundle import LoadedBundle, load_bundle
from myxtts.text.frontend import FrontEnd

pytest.importorskip("espeakng_loader")
VOICES = {
    name: {"vector": [level] * 8, "latents": [[level] * 8] * 2, "language": language}
    for name, level, language in (("anna", 0.1, "en"), ("ben", 0.3, "en"), ("omid", 0.5, "fa"))
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedBundle:
    folder = tmp_path_factory.mktemp("piper") / "small"
    notes = {"step": 5, "voices": VOICES}
    return load_bundle(write_small_bundle(folder, frontend=FrontEnd.create("phonemes"), notes=notes))


@pytest.fixture(scope="module")
def converted() -> list[Any]:
    """The graphs that were converted here: conversion takes long, so one serves several tests."""
    return []


@pytest.fixture(scope="module")
def exported(
    loaded: LoadedBundle, tmp_path_factory: pytest.TempPathFactory, converted: list[Any]
) -> tuple[Path, SingleFileProof]:
    out = tmp_path_factory.mktemp("out")

    def convert_and_keep(graph: Any) -> Any:
        converted.append(convert(graph))
        return onnx.ModelProto.FromString(converted[-1].SerializeToString())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(single_file, "convert", convert_and_keep)
        return out, export_piper(loaded, choose_piper_voice(loaded), "griffin_lim", out)


def test_the_files_say_what_the_programs_ask_for(exported: tuple[Path, SingleFileProof]) -> None:
    out, proof = exported
    assert {path.name for path in out.iterdir()} == {"small.onnx", "small.onnx.json", "tokens.txt", "CARD.md"}
    described = json.loads((out / "small.onnx.json").read_text(encoding="utf-8"))
    assert described["espeak"] == {"voice": "en-us"}
    assert described["speaker_id_map"] == {"anna": 0, "ben": 1}
    assert described["num_speakers"] == 2
    assert described["audio"]["sample_rate"] == DATA.sample_rate
    assert [described["phoneme_id_map"][name] for name in "_^$"] == [[0], [1], [2]]
    assert described["num_symbols"] == 1 + max(max(ids) for ids in described["phoneme_id_map"].values())
    tokens = dict(line.rsplit(" ", 1) for line in (out / "tokens.txt").read_text(encoding="utf-8").splitlines())
    assert tokens[" "] == str(described["phoneme_id_map"][" "][0])
    assert all(len(sign) == 1 for sign in tokens)
    assert proof.mel_error <= MAX_MEL_ERROR
    assert "same durations" in proof.describe()


def test_the_graph_speaks_as_piper_and_sherpa_ask(exported: tuple[Path, SingleFileProof]) -> None:
    out, _ = exported
    session = onnxruntime.InferenceSession(str(out / "small.onnx"), providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_inputs()] == ["input", "input_lengths", "scales", "sid"]
    assert [one.name for one in session.get_outputs()] == ["output"]
    metadata = session.get_modelmeta().custom_metadata_map
    assert "piper" in metadata["comment"]
    assert (metadata["n_speakers"], metadata["sample_rate"]) == ("2", str(DATA.sample_rate))
    id_map = json.loads((out / "small.onnx.json").read_text(encoding="utf-8"))["phoneme_id_map"]
    ids = spell("həlˈoʊ wˈɜːld.", id_map, is_ipa=True)
    slow = make_inputs(ids, 1) | {"scales": np.asarray([0.2, 2.0, 0.8], np.float32)}
    (normal,), (slower,) = session.run(None, make_inputs(ids, 1)), session.run(None, slow)
    assert normal.shape[:2] == (1, 1)
    assert 1.5 < slower.size / normal.size < 2.5
    assert np.isfinite(normal).all()


def test_speakers_are_those_of_the_language_or_those_that_are_named(loaded: LoadedBundle) -> None:
    assert list(choose_piper_voice(loaded, language="fa").speakers) == ["omid"]
    chosen = choose_piper_voice(loaded, ["omid"])
    assert (chosen.language, chosen.espeak_voice, chosen.name) == ("fa", "fa", "small")
    with pytest.raises(UsageError, match="cannot be called"):
        choose_piper_voice(loaded, name="../x")


def test_a_model_of_characters_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reads characters"):
        choose_piper_voice(load_bundle(write_small_bundle(tmp_path / "bundle")))


@pytest.mark.usefixtures("exported")
def test_a_graph_that_speaks_differently_is_not_written(
    loaded: LoadedBundle, converted: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_file, "convert", lambda _graph: converted[0])
    monkeypatch.setattr(single_file, "MAX_MEL_ERROR", -1.0)
    with pytest.raises(DataError, match="Nothing was written"):
        export_piper(loaded, choose_piper_voice(loaded), "griffin_lim", tmp_path / "out")
    assert not (tmp_path / "out").exists()
