"""The base model: found without being named, speaks without a voice or a language, and is packed without traces."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from base.pack import MAX_BYTES, find_machine_paths, pack
from tests.synthesis.small_models import DATA, write_small_bundle
from typer.testing import CliRunner

from myxtts.cli.main import app
from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError, UsageError
from myxtts.models import base_model
from myxtts.models.base_model import find_model, has_base_model
from myxtts.models.bundle import read_bundle
from myxtts.synthesis.loaded_bundle import load_bundle
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.synthesis.voices import SpeakerEmbedding
from myxtts.tools.model_info import list_voices
from myxtts.training.trainer import Trainer

VOICES = {
    name: {"vector": [size] * 8, "latents": [[size] * 8] * 2, "language": language}
    for name, size, language in (("omid", 0.5, "fa"), ("anna", -0.5, "en"))
}
DEFAULTS = {"en": "anna", "fa": "omid"}
NOTES: dict[str, Any] = {"step": 7, "run": "/home/anna/run", "voices": VOICES}
PERSIAN = "روباه و خرد."


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_bundle(tmp_path_factory.mktemp("base") / "fake", notes={**NOTES, "default_voices": DEFAULTS})


def copy_with_notes(bundle: Path, folder: Path, notes: dict[str, Any]) -> Path:
    shutil.copytree(bundle, folder)
    description = json.loads((folder / "bundle.json").read_text(encoding="utf-8"))
    (folder / "bundle.json").write_text(json.dumps({**description, "notes": notes}), encoding="utf-8")
    return folder


@pytest.fixture
def packaged(bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package whose base model is the small one, and an empty folder to work in."""
    monkeypatch.setattr(base_model, "BASE_FOLDER", bundle)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return bundle


@pytest.fixture
def unpackaged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package that was built without its base model."""
    monkeypatch.setattr(base_model, "BASE_FOLDER", tmp_path / "base_model")


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def test_no_model_and_the_model_base_are_the_packaged_one(packaged: Path, tmp_path: Path) -> None:
    assert find_model(None) == find_model("base") == find_model(Path("base")) == packaged
    assert find_model("runs/anna") == Path("runs/anna")
    # A folder of sources that happens to be called base is not meant.
    (tmp_path / "base").mkdir()
    assert find_model("base") == packaged


def test_a_model_that_is_called_base_wins_and_it_is_said(packaged: Path, tmp_path: Path) -> None:
    shutil.copytree(packaged, tmp_path / "base" / "bundle")
    told: list[str] = []
    assert find_model("base", told.append) == Path("base")
    assert f"The model is the folder {tmp_path / 'base'}, not the base model of the package." in told
    assert find_model(None, told.append) == packaged
    assert len(told) == 1


@pytest.mark.usefixtures("unpackaged")
def test_a_package_without_base_model_says_what_to_do() -> None:
    for start in (load_bundle, Synthesizer.load, Trainer(XTTSConfig(steps=1), init_from="base").fit):
        with pytest.raises(UsageError, match="no base model") as caught:
            start()
        assert "--model RUN" in caught.value.next_step


def test_the_script_of_the_text_chooses_language_and_default_voice(packaged: Path) -> None:
    loaded = load_bundle()
    assert (loaded.folder, loaded.name) == (packaged, "base")
    texts = ("The fox.", PERSIAN, "iPhone 15 را خریدم", "Yes.", "12", "[pause 1s] روباه")
    chosen = [loaded.choose_voice(None, None, text) for text in texts]
    assert [one.language for one in chosen] == ["en", "fa", "fa", "en", "en", "fa"]
    assert all(one.default == DEFAULTS[one.language] for one in chosen)
    assert chosen[0].source is loaded.noted_voices["anna"]
    # What the user gives wins.
    assert loaded.choose_voice(None, "fa", "Yes.").default == "omid"
    asked = loaded.choose_voice("omid", None, "Yes.")
    assert (asked.source, asked.language, asked.default) == (loaded.noted_voices["omid"], "fa", "")


@pytest.mark.parametrize(
    ("defaults", "problem"), [({"en": "zoe"}, "no voice 'zoe'"), (["anna"], "default voices"), ({"en": 5}, "en")]
)
def test_default_voices_that_do_not_exist_are_refused(
    bundle: Path, tmp_path: Path, defaults: object, problem: str
) -> None:
    with pytest.raises(DataError, match=problem):
        load_bundle(copy_with_notes(bundle, tmp_path / "copy", {**NOTES, "default_voices": defaults}))


def test_a_language_without_default_voice_needs_a_voice(packaged: Path, tmp_path: Path) -> None:
    folder = copy_with_notes(packaged, tmp_path / "copy", {**NOTES, "default_voices": {"en": "anna"}})
    with pytest.raises(UsageError, match="no default voice for the language 'fa'"):
        load_bundle(folder).choose_voice(None, None, PERSIAN)


@pytest.mark.usefixtures("packaged")
def test_a_text_alone_is_enough() -> None:
    speaker = Synthesizer.load()
    wave = speaker.say("The fox.")
    np.testing.assert_array_equal(wave.samples, speaker.say("The fox.", "anna", "en").samples)
    Path("lines.csv").write_text(f"hello|The fox.\nsalam|{PERSIAN}\n", encoding="utf-8")
    done = run("synth", "--file", "lines.csv", "--out", "spoken")
    assert done.exit_code == 0, done.output
    chosen = "default voices anna (en), omid (fa); the language is chosen by the script of the text."
    assert f"Model base, {chosen}" in done.stderr
    samples, rate = soundfile.read("spoken/hello.wav", dtype="float32")
    assert rate == DATA.sample_rate
    np.testing.assert_allclose(samples, wave.samples, atol=1e-3)
    assert Path("spoken/salam.wav").is_file()


@pytest.mark.usefixtures("packaged")
def test_what_is_missing_is_said_at_once() -> None:
    assert "Missing: a text to say (or --file FILE)." in run("synth", "--out", "x.wav").exception.problem
    problem = run("synth", "--save-voice", "lena").exception.problem
    assert problem == "Missing: --voice VOICE (a recording to save)."


def test_info_and_voices_name_the_defaults(packaged: Path) -> None:
    assert [voice.name for voice in list_voices(load_bundle(packaged)) if voice.default_for] == ["anna", "omid"]
    assert "anna (en), omid (fa)" in run("info").stdout
    assert "en (default)" in run("voices", "base").stdout
    assert json.loads(run("info", "--json").stdout)["default_voices"] == DEFAULTS


def test_saved_voices_and_scores_do_not_change_the_package(packaged: Path, tmp_path: Path) -> None:
    before = {file.name: file.read_bytes() for file in packaged.iterdir()}
    loaded = load_bundle()
    ones = np.ones((3, 8), np.float32)
    path = loaded.voices.save("lena", SpeakerEmbedding(ones[0], ones[1:]))
    assert path.is_relative_to(tmp_path / "data")
    loaded.keep_evaluation("val", {"word_error": 0.1})
    assert {file.name: file.read_bytes() for file in packaged.iterdir()} == before
    assert "lena" in load_bundle().list_voices()


def test_a_run_is_packed_small_with_its_card_and_without_paths(bundle: Path, tmp_path: Path) -> None:
    notes = {**NOTES, "lexicon": "/home/anna/words.tsv", "trained_on": {"hours_by_language": {"en": 0.5}}}
    copy_with_notes(bundle, tmp_path / "run" / "bundle", notes)
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 40, "loss": 1.0, "elapsed_s": 180.0}\n', encoding="utf-8")
    scores = tmp_path / "scores.json"
    scores.write_text(json.dumps({"judge": "a recogniser", "en": {"word_error": 0.25}}), encoding="utf-8")
    pack(tmp_path / "run", tmp_path / "packed", scores=scores)
    packed = load_bundle(tmp_path / "packed")
    assert dict(packed.default_voices) == DEFAULTS
    assert packed.bundle.storage_dtype == "float16"
    assert packed.graphs is not None
    assert packed.bundle.notes["lexicon"] == "words.tsv"
    for name, array in read_bundle(bundle).weights.items():
        np.testing.assert_allclose(packed.bundle.weights[name], array, rtol=1e-3, atol=1e-6)
    assert find_machine_paths(tmp_path / "packed") == []
    check_card(tmp_path / "packed")
    card = (tmp_path / "packed" / "CARD.md").read_text(encoding="utf-8")
    for words in ("LJ Speech 1.1 (en; recorded): public domain.", "By a recogniser:", "- en, word error: 0.25."):
        assert words in card
    assert "- Training: 40 steps in 3 minutes on " in card
    scores.write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="does not say who judged"):
        pack(tmp_path / "run", tmp_path / "packed", scores=scores)


def check_card(folder: Path) -> None:
    card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    assert card["licence"]
    assert card["limits"]
    assert all(source["licence"] for source in card["sources"])
    assert card["weights"]["sha256"] == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.skipif(not has_base_model(), reason="the package is built without its base model")
def test_the_packaged_model_is_whole_small_and_says_where_it_comes_from() -> None:
    folder = base_model.BASE_FOLDER
    loaded = load_bundle()
    assert {"en", "fa"} <= set(loaded.default_voices)
    # Graphs that were proved let it speak without TensorFlow.
    assert loaded.graphs is not None
    assert loaded.graphs.proof is not None
    assert sum(file.stat().st_size for file in folder.rglob("*")) < MAX_BYTES
    assert find_machine_paths(folder) == []
    check_card(folder)
    assert (folder / "CARD.md").is_file()
