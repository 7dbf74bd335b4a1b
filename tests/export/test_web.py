"""The exported page speaks in a browser that opened it as a file, and asks no address for anything."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from tests.browser import needs_chromium, open_page
from tests.synthesis.small_models import DATA, write_small_bundle

from myxtts.errors import UsageError
from myxtts.export.single_file import MAX_MEL_ERROR
from myxtts.export.web import choose_speakers, export_web, make_lexicon, read_runtime
from myxtts.synthesis.loaded_bundle import load_bundle
from myxtts.text.espeak import is_espeak_available
from myxtts.text.frontend import FrontEnd

RUNTIME = Path(__file__).parents[2] / "build" / "node" / "node_modules" / "onnxruntime-web"
needs_espeak = pytest.mark.skipif(not is_espeak_available(), reason="phonemes need espeak-ng")
VOICES = {
    name: {"vector": [level] * 8, "latents": [[level] * 8] * 2, "language": language}
    for name, level, language in (("anna", 0.1, "en"), ("omid", 0.5, "fa"))
}
NOTES = {"step": 5, "voices": VOICES}
READ_SOUND = """
fetch(document.querySelector('#save').href).then((answer) => answer.arrayBuffer()).then(
  (content) => btoa(new Uint8Array(content).reduce((text, byte) => text + String.fromCharCode(byte), '')))
"""


@pytest.fixture(scope="module", params=["characters", pytest.param("phonemes", marks=needs_espeak)])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported page."""
    if not RUNTIME.is_dir():
        pytest.skip("onnxruntime-web is not in build/node: npm install --prefix build/node onnxruntime-web")
    place = tmp_path_factory.mktemp(request.param)
    frontend = FrontEnd.create("phonemes") if request.param == "phonemes" else None
    loaded = load_bundle(write_small_bundle(place / "bundle", frontend=frontend, notes=NOTES))
    texts = {"en": ["The quick fox jumps again."], "fa": ["چه خوش گفت"]}
    proof = export_web(loaded, choose_speakers(loaded), "griffin_lim", place / "page", runtime=RUNTIME, texts=texts)
    assert proof.mel_error <= MAX_MEL_ERROR
    return place / "page"


@needs_chromium
@pytest.mark.parametrize("language", ["en", "fa"])
def test_the_page_speaks_without_a_server(folder: Path, tmp_path: Path, language: str) -> None:
    said = {"en": "The quick fox. It jumps!", "fa": "چه خوش گفت."}[language].replace("It jumps", "The fox jumps")
    with open_page(f"{(folder / 'index.html').as_uri()}?lang={language}", tmp_path, language) as page:
        page.wait_for("document.querySelector('#voice')?.options.length == 2 && document.readyState == 'complete'")
        assert page.run("document.documentElement.dir || 'ltr'") == ("rtl" if language == "fa" else "ltr")
        page.run(f"document.querySelector('#text').value = {json.dumps(said)}")
        page.run(f"document.querySelector('#voice').value = '{'omid' if language == 'fa' else 'anna'}'")
        page.run("document.querySelector('#form').requestSubmit()")
        page.wait_for("!document.querySelector('#save').hidden || document.querySelector('#status').className", 120)
        assert page.run("document.querySelector('#status').className") == "", page.run("document.body.innerText")
        content = base64.b64decode(page.run(READ_SOUND))
        assert page.run("document.documentElement.scrollWidth <= window.innerWidth")
        assert page.foreign_addresses(folder.as_uri()) == []
    with soundfile.SoundFile(io.BytesIO(content)) as file:
        assert "Synthetic speech, made by MyXTTS" in file.comment
        samples = file.read()
    assert file.samplerate == DATA.sample_rate
    assert np.abs(samples).max() > 0.05


@needs_chromium
def test_words_that_the_page_does_not_know_are_named(folder: Path, tmp_path: Path) -> None:
    is_phonemes = '"kind": "phonemes"' in (folder / "voice.js").read_text(encoding="utf-8")
    with open_page((folder / "index.html").as_uri(), tmp_path) as page:
        page.wait_for("document.querySelector('#voice')?.options.length == 2 && document.readyState == 'complete'")
        page.run("document.querySelector('#text').value = 'The zebra. ۞'")
        page.run("document.querySelector('#form').requestSubmit()")
        page.wait_for("!document.querySelector('#save').hidden || document.querySelector('#status').className", 120)
        words = page.run("document.querySelector('#status').textContent")
    assert ("zebra" in words) == is_phonemes


def test_the_folder_holds_the_card_and_the_licence_of_the_runtime(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {
        *("index.html", "voice.js", "model.js", "runtime.js", "CARD.md", "LICENSE-onnxruntime-web.txt")
    }


def test_a_missing_runtime_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="npm install onnxruntime-web@"):
        read_runtime(tmp_path / "nowhere")


@needs_espeak
def test_the_lexicon_has_the_words_of_the_texts(tmp_path: Path) -> None:
    loaded = load_bundle(write_small_bundle(tmp_path / "b", frontend=FrontEnd.create("phonemes"), notes=NOTES))
    lexicon = make_lexicon(loaded, "en", ["The fox's 2 dogs.", "the FOX"])
    assert list(lexicon) == ["the", "fox's", "two", "dogs", "fox"]
    assert lexicon["dogs"].startswith("d")
