"""Recordings decide how Persian words are read: what they say is found, written and used; people can correct it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
import tensorflow as tf
from numpy.typing import NDArray
from tests.conftest import RATE_HZ, synthesize_clip
from tests.training.trainer_programs import TINY

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.corpus_file import Corpus, checksum_corpus, open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.corpus.readings import READINGS_FILE_NAME, load_readings
from myxtts.errors import DataError
from myxtts.models.alignment import score_states, search_alignment
from myxtts.models.text_encoder import find_states
from myxtts.pipeline.batch import Arrays
from myxtts.runtime.hardware import Hardware
from myxtts.runtime.plan import choose_plan
from myxtts.store.durations import DurationsOrigin, write_durations
from myxtts.store.precompute import PrecomputeSummary, precompute
from myxtts.store.reader import FeatureStore
from myxtts.text.frontend import FrontEnd
from myxtts.text.inventory import unpack_factors
from myxtts.text.persian.reading import Choice
from myxtts.text.persian.variants import list_open_words
from myxtts.text.phonemes import split_clauses
from myxtts.training.voice import refine
from myxtts.training.voice.align import AlignmentPlan, StoreAligner
from myxtts.training.voice.data import open_training_data
from myxtts.training.voice.refine import plan_refinement, refine_readings

pytest.importorskip("espeakng_loader")
TEXTS = (
    "حال شما چطور است؟",
    "آن مرد کتاب خوبی را خواند.",
    "پدربزرگش پارسال در روستا مرد.",
    "کیف پولم را در تاکسی جا گذاشتم.",
    "کرم در خاک باغ بود.",
    "دشمن سردار را در میدان کشت.",
    "بوی نان تازه در کوچه پیچید.",
    "دوست قدیمی من از سفر برگشت.",
    "صدای باران را دوست دارم.",
    "دختر همسایه گل سرخ خرید.",
)
FRAMES_PER_TOKEN, N_MELS = 4, 8


class Phones:
    """A model that knows every phone: one state for each token, with a mean of its own, whatever its stress."""

    def __init__(self, frontend: FrontEnd) -> None:
        sizes = frontend.factor_sizes
        self.spec: Any = SimpleNamespace(languages=("fa",), factor_sizes=sizes, single_state_symbols=sizes[0])
        factors = unpack_factors(np.arange(math.prod(sizes)), sizes)
        by_phone = np.random.default_rng(0).normal(0, 6, (sizes[0] * sizes[1], N_MELS))
        self.means = by_phone[factors[:, 0] * sizes[1] + factors[:, 1]].astype(np.float32)

    def encode_part(self, part: Any) -> tuple[None, Any]:
        means = tf.repeat(tf.gather(self.means, part["tokens"]), 2, axis=1)
        return None, SimpleNamespace(
            means_BSM=means, is_state_BS=find_states(part["tokens"], part["token_lengths"], self.spec)
        )

    def normalize_mel(self, mel: Any) -> Any:
        return mel

    def align_states(self, states: Any, mel: Any, lengths: Any) -> Any:
        return search_alignment(score_states(mel, states.means_BSM), states.is_state_BS, lengths)

    def speak(self, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
        clean = np.repeat(self.means[tokens], FRAMES_PER_TOKEN, axis=0)
        noise = np.random.default_rng(len(tokens)).normal(0, 1, clean.shape)
        return np.asarray(clean + noise, np.float32)


@dataclass
class Scene:
    """A Persian corpus whose recordings say `truth`, which differs from the front end's guess in one word each."""

    config: XTTSConfig
    corpus: Corpus
    store: Path
    truth: dict[str, dict[int, Choice]]
    tokens: dict[str, NDArray[np.int32]]

    def refine(self) -> refine.RefineSummary:
        origin = DurationsOrigin("model", "runs/run", 100)
        bundle: Any = None
        return refine_readings(
            plan_refinement(AlignmentPlan(self.store, bundle, bundle, origin, self.config, len(TEXTS)))
        )

    def precompute(self) -> PrecomputeSummary:
        return precompute(self.corpus, self.store, self.config.data, num_threads=1)

    def read_tokens(self, id: str) -> list[int]:
        store = FeatureStore.open(self.store)
        row = store.find(id)
        assert row is not None
        return list(store.read_part(row, "tokens"))

    def fingerprint(self) -> dict[str, str]:
        hardware = Hardware(num_cpus=2, ram_bytes=8 << 30, available_ram_bytes=8 << 30)
        return open_training_data(self.config, choose_plan(self.config, hardware)).fingerprint()

    @property
    def file(self) -> Path:
        return self.corpus.file.with_name(READINGS_FILE_NAME)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    settings = {**TINY, "text_frontend": "phonemes", "val_share": 0.0, "n_mels": N_MELS}
    config = XTTSConfig(**{**settings, "train_data": tmp_path / "corpus", "cache_dir": tmp_path / "store"})
    (tmp_path / "wavs").mkdir()
    rows = ["id|audio|text|speaker|language\n"]
    for number, text in enumerate(TEXTS):
        soundfile.write(tmp_path / "wavs" / f"c{number}.wav", synthesize_clip(4.0, number), RATE_HZ)
        rows.append(f"c{number}|wavs/c{number}.wav|{text}|anna|fa\n")
    (tmp_path / "metadata.csv").write_text("".join(rows), encoding="utf-8")
    prepare_corpus([Recordings(tmp_path / "metadata.csv", "manifest")], tmp_path / "corpus", config.data)
    scene = Scene(config, open_corpus(tmp_path / "corpus"), tmp_path / "store", {}, {})
    scene.precompute()
    frontend = scene.corpus.load_frontend()
    model = Phones(frontend)
    assert frontend.persian is not None
    for utterance in scene.corpus.utterances():
        text = frontend.normalize(utterance.text, "fa")
        words = list_open_words(frontend.persian, split_clauses(text).parts)
        turned = {word.guess.place: word.others[-1].choice for word in words[:1]}
        ipa = frontend.phonemize_chosen([text], "fa", [list(turned.values())])[0]
        scene.truth[utterance.id] = turned
        scene.tokens[utterance.id] = frontend.encode(text, "fa", ipa).ids
    _replace_model(scene, model, monkeypatch)
    return scene


def _replace_model(scene: Scene, model: Phones, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the recordings of batches be what the model says for the true tokens."""
    load = StoreAligner.load

    def load_spoken(aligner: StoreAligner, position: int) -> Arrays:
        arrays = load(aligner, position)
        ids = aligner._loader.name_utterances(aligner.order.batch(position))
        for row, id in enumerate(filter(None, ids)):
            mel = model.speak(scene.tokens[id])
            arrays["mel"][row, : len(mel)] = mel
            arrays["mel_lengths"][row] = len(mel)
        return arrays

    monkeypatch.setattr(StoreAligner, "load", load_spoken)
    monkeypatch.setattr(refine, "load_model", lambda _plan: model)


def list_written(scene: Scene) -> dict[str, dict[int, Choice]]:
    readings = load_readings(scene.corpus.file.parent)
    return {id: {choice.place: choice for choice in item.choices} for id, item in readings.items()}


def test_what_the_recordings_say_is_found_written_and_used(scene: Scene) -> None:
    num_turned = sum(map(len, scene.truth.values()))
    before, inputs = checksum_corpus(scene.corpus.file), scene.fingerprint()
    store = FeatureStore.open(scene.store)
    row = store.find("c0")
    assert row is not None
    edges = np.linspace(0, store.entry(row, "mel").length, len(scene.read_tokens("c0")) + 1)
    write_durations(scene.store, {"c0": np.diff(edges.astype(np.int32)).astype(np.int32)})

    summary = scene.refine()
    assert num_turned == len(TEXTS)
    assert list_written(scene) == {id: turned for id, turned in scene.truth.items() if turned}
    assert len(summary.changes) == num_turned
    assert summary.num_ezafe_added > 0 < summary.num_ezafe_removed
    assert summary.num_homographs_changed > 0
    assert all(change["gain"] > 1 for change in summary.to_json()["changes"])

    assert checksum_corpus(scene.corpus.file) != before
    made = scene.precompute()
    assert (made.num_made, made.num_tokens_made) == (0, sum(map(bool, scene.truth.values())))
    assert all(scene.read_tokens(id) == list(ids) for id, ids in scene.tokens.items())
    store = FeatureStore.open(scene.store)
    assert not store.columns["durations_length"].any(), "durations belong to the tokens that were replaced"

    assert scene.fingerprint()["tokens"] != inputs["tokens"], "a run with the old tokens must not go on"
    assert scene.fingerprint()["front end"] == inputs["front end"]

    content = scene.file.read_bytes()
    again = scene.refine()
    assert (again.changes, scene.file.read_bytes()) == ([], content)


def test_people_correct_readings_and_take_them_back(scene: Scene) -> None:
    guessed = {id: scene.read_tokens(id) for id in scene.truth}
    scene.refine()
    lines = [json.loads(line) for line in scene.file.read_text(encoding="utf-8").splitlines()]
    word = lines[0]["words"][0]
    word["ezafe"] = not word.get("ezafe", False)
    del word["gain"]
    scene.file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    scene.precompute()
    scene.refine()
    kept = load_readings(scene.corpus.file.parent)[lines[0]["id"]].words[0]
    assert (kept.ezafe, kept.gain) == (word["ezafe"], None)

    scene.file.unlink()
    scene.precompute()
    assert {id: scene.read_tokens(id) for id in scene.truth} == guessed


def test_readings_that_do_not_fit_are_left_out_or_named(scene: Scene) -> None:
    guessed = scene.read_tokens("c0")
    word = {"place": 0, "word": "حال", "ezafe": False}
    line = {"id": "c0", "text": "another text", "words": [word]}
    scene.file.write_text(json.dumps(line), encoding="utf-8")
    assert scene.precompute().num_tokens_made == 0
    scene.file.write_text(json.dumps({**line, "text": TEXTS[0], "words": [{**word, "word": "مال"}]}), encoding="utf-8")
    scene.precompute()
    assert scene.read_tokens("c0") == guessed
    scene.file.write_text(json.dumps({**line, "text": TEXTS[0]}), encoding="utf-8")
    scene.precompute()
    assert scene.read_tokens("c0") != guessed
    for wrong in ('{"id": "c0"}', json.dumps({**line, "words": [{**word, "ipa": "no ipa!"}]})):
        scene.file.write_text(wrong, encoding="utf-8")
        with pytest.raises(DataError, match=r"readings\.jsonl:1"):
            scene.precompute()


def test_a_store_that_is_behind_its_texts_is_named(scene: Scene) -> None:
    word = {"place": 0, "word": "حال", "ezafe": False}
    scene.file.write_text(json.dumps({"id": "c0", "text": TEXTS[0], "words": [word]}), encoding="utf-8")
    with pytest.raises(DataError, match="c0") as refusal:
        scene.refine()
    assert "myxtts precompute" in refusal.value.next_step
