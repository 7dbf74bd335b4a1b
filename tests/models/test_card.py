"""The card of a bundle says what its files say, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.synthesis.small_models import DATA, write_small_bundle

from myxtts.features.definition import MelDefinition
from myxtts.models.bundle import keep_evaluation, read_bundle, refresh_card, write_bundle
from myxtts.synthesis.loaded_bundle import load_bundle
from myxtts.synthesis.voices import SpeakerEmbedding

TRAINED_ON = {"num_utterances": 412, "hours": 0.7, "num_speakers": 2, "hours_by_language": {"en": 0.4, "fa": 0.3}}
NOTES = {"step": 1500, "run": "anna", "is_best": True, "trained_on": TRAINED_ON, "scores": {"mel_distance": 0.5781}}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    vocoder = {"name": "griffin_lim", "mel": MelDefinition.from_config(DATA).to_json()}
    return write_small_bundle(tmp_path_factory.mktemp("card") / "bundle", notes=NOTES, vocoder=vocoder)


def read_card(folder: Path) -> str:
    return (folder / "CARD.md").read_text(encoding="utf-8")


def test_every_bundle_has_a_card_of_data_scores_and_limits(written: Path) -> None:
    card = read_card(written)
    assert "# anna\n" in card
    assert "- 412 utterances, 42 minutes, 2 speakers." in card
    assert "en (24 minutes), fa (18 minutes)" in card
    assert "- Step: 1,500 (the best by the validation score)." in card
    assert "- Mel distance: 0.578 (" in card
    assert "- Vocoder: none of its own; MyXTTS uses that of its base model" in card
    assert "Not measured: how many words a listener or recogniser gets wrong, how natural listeners find it." in card
    assert "It speaks en, fa, and no other language." in card
    assert "No licence of this model is stated." in card


def test_what_was_not_measured_is_not_claimed(tmp_path: Path) -> None:
    card = read_card(write_small_bundle(tmp_path / "bundle", notes={"step": 0, "trained_on": {"hours": "many"}}))
    assert "- Amount: not noted in this bundle." in card
    assert "No scores of this step are noted." in card
    assert "Mel distance" not in card
    assert "It was trained on" not in card


def test_consent_of_saved_voices_is_named_as_soon_as_they_are_saved(tmp_path: Path) -> None:
    folder = write_small_bundle(tmp_path / "bundle", notes=NOTES)
    loaded = load_bundle(folder)
    config = loaded.bundle.model_config
    zeros = np.zeros((config.num_latents + 1, config.reference_width), np.float32)
    embedding = SpeakerEmbedding(zeros[0], zeros[1:])
    loaded.voices.save("guest", embedding, consent="own voice *really*")
    loaded.voices.save("other", embedding)
    assert r"- Saved voice guest: consent: own voice \*really\*." in read_card(folder)
    assert "- Saved voice other: **no consent is noted**." in read_card(folder)
    # A new bundle of the same run keeps the voices, and its card names them.
    write_bundle(folder, read_bundle(folder))
    assert "Saved voice guest" in read_card(folder)


def test_an_evaluation_refreshes_the_card_until_the_weights_change(tmp_path: Path) -> None:
    folder = write_small_bundle(tmp_path / "bundle", notes=NOTES)
    keep_evaluation(folder, "val", {"num_utterances": 20, "word_error": 0.0712, "real_time_factor": None})
    card = read_card(folder)
    assert "By `myxtts evaluate` on 20 utterances of the split val:" in card
    assert "- Word error: 0.071 (" in card
    assert "Real-time factor" not in card
    assert "Not measured: how natural listeners find it." in card
    description = json.loads((folder / "bundle.json").read_text(encoding="utf-8"))
    description["notes"]["step"] = 3000
    (folder / "bundle.json").write_text(json.dumps(description), encoding="utf-8")
    refresh_card(folder)
    assert "Word error" not in read_card(folder)


def test_an_export_gets_the_card_of_its_bundle(written: Path, tmp_path: Path) -> None:
    refresh_card(written, out=tmp_path)
    assert read_card(tmp_path) == read_card(written)
