"""`myxtts info` and `myxtts voices` say what the files of a model hold, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synthesis.small_models import write_small_bundle
from typer.testing import CliRunner

from myxtts.cli.main import app
from myxtts.models.bundle import keep_evaluation
from myxtts.synthesis.loaded_bundle import load_bundle
from myxtts.synthesis.voices import SpeakerEmbedding
from myxtts.tools.model_info import describe_model, list_voices

TRAINED_ON = {"num_utterances": 900, "hours": 1.25, "num_speakers": 2, "hours_by_language": {"en": 1.0, "fa": 0.25}}
NOTED = {"anna": {"vector": [0.5] * 8, "latents": [[0.5] * 8] * 2, "language": "en"}}
NOTES = {"step": 1200, "trained_on": TRAINED_ON, "voices": NOTED, "scores": {"mel_distance": 0.5, "prior": 1.0}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_small_bundle(tmp_path_factory.mktemp("info") / "small", notes=NOTES)
    loaded = load_bundle(folder)
    ones = np.ones((3, 8), np.float32)
    embedding = SpeakerEmbedding(ones[0], ones[1:])
    mel = np.zeros((250, loaded.mel.n_mels), np.float32)
    loaded.voices.save("lena", embedding, [mel], language="fa", consent="own voice")
    loaded.voices.save("mute", embedding)
    keep_evaluation(folder, "val", {"word_error": 0.25})
    return folder


def run(*arguments: str | Path) -> Any:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done


def test_info_says_what_the_model_is(model: Path) -> None:
    info = describe_model(load_bundle(model))
    assert (info.name, info.kind, info.step, info.languages) == ("small", "bundle", 1200, ("en", "fa"))
    assert (info.num_speakers, info.voices) == (2, ("anna", "lena", "mute"))
    assert (info.vocoder, info.frontend, info.sample_rate_hz) == ("griffin_lim", "characters", 16_000)
    assert info.trained_on == TRAINED_ON
    assert info.scores == {"mel_distance": 0.5}
    assert info.evaluation["word_error"] == 0.25
    assert info.without_consent == ("mute",)
    assert info.card == str(model / "CARD.md")
    assert info.num_parameters == sum(array.size for array in load_bundle(model).bundle.weights.values())
    shown = run("info", model).stdout
    for words in ("1,200 steps", "900 utterances, 75.0 minutes", "en, fa", "Griffin-Lim", "not stated for: mute"):
        assert words in shown
    assert json.loads(run("info", model, "--json").stdout)["step"] == 1200


def test_voices_lists_speakers_and_saved_voices(model: Path) -> None:
    voices = {voice.name: voice for voice in list_voices(load_bundle(model))}
    assert (voices["anna"].kind, voices["anna"].language) == ("corpus", "en")
    assert (voices["lena"].kind, voices["lena"].reference_s, voices["lena"].consent) == ("saved", 2.0, "own voice")
    assert voices["mute"].reference_s is None
    lines = run("voices", model).stdout.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["anna", "corpus", "en"],
        ["lena", "saved", "fa", "2.0", "s", "own", "voice"],
        ["mute", "saved", "not", "stated"],
    ]
    assert len(json.loads(run("voices", model, "--json").stdout)["voices"]) == 3


def test_a_damaged_voice_is_listed_with_its_problem(model: Path) -> None:
    path = load_bundle(model).voices.path / "hurt.safetensors"
    path.write_bytes(b"nothing")
    try:
        (voice,) = [voice for voice in list_voices(load_bundle(model)) if voice.name == "hurt"]
    finally:
        path.unlink()
    assert "hurt" in voice.problem
