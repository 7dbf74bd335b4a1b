"""The clip doctor on clips whose letters are tones: planted faults are found, heard on the page, and left out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import tensorflow as tf
from numpy.typing import NDArray
from tests.docs.commands import parse_myxtts
from tests.outline import Outline
from tests.synthesis.small_models import DATA, write_small_bundle

from myxtts.cli.main import run as run_command
from myxtts.config.load import write_resolved
from myxtts.config.schema import XTTSConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.features.definition import MelDefinition
from myxtts.features.mel import HostMel
from myxtts.models.xtts import XTTS
from myxtts.storage.json_file import write_json
from myxtts.store.precompute import precompute
from myxtts.text.frontend import FrontEnd
from myxtts.tools.clips import doctor, verify

RATE, NUM_CLIPS = 16_000, 80
LETTERS = "abcdefgh"
FAULTS = {"clip010": "text", "clip025": "end", "clip041": "speaker", "clip066": "noise"}


def say(text: str, pitch_hz: float, generator: np.random.Generator) -> NDArray[np.float32]:
    """A tone for each letter above the buzz of a voice, silence for everything else, a little noise below."""
    parts: list[NDArray[np.float64]] = [np.zeros(1600)]
    for letter in text:
        time_s = np.arange(int(RATE * generator.uniform(0.09, 0.11))) / RATE
        buzz = np.sum([np.sin(2 * np.pi * pitch_hz * k * time_s) / k**2 for k in range(1, 8)], axis=0)
        tone = np.sin(2 * np.pi * (700 + 600 * LETTERS.find(letter)) * time_s)
        parts.append((0.15 * buzz + 0.2 * tone) * (letter in LETTERS))
    wave = np.concatenate([*parts, np.zeros(1600)])
    return np.asarray(wave + generator.normal(0, 0.001, len(wave)), np.float32)


def write_corpus(folder: Path) -> None:
    """Clips of two speakers, four of them with a fault each."""
    generator, lines = np.random.default_rng(3), []
    for number in range(NUM_CLIPS):
        name, pitch_hz = f"clip{number:03}", (110.0, 190.0)[number % 2]
        words = ["".join(generator.choice(list(LETTERS), 5)) for _ in range(3)]
        spoken = text = " ".join(words)
        fault = FAULTS.get(name)
        if fault == "text":
            text = " ".join("".join(generator.choice(list(LETTERS), 5)) for _ in range(3))
        wave = say(spoken, 300.0 - pitch_hz if fault == "speaker" else pitch_hz, generator)
        if fault == "end":
            wave = wave[: int(0.7 * len(wave))]
        if fault == "noise":
            wave += generator.normal(0, 0.05, len(wave)).astype(np.float32)
        soundfile.write(folder / f"{name}.wav", wave, RATE)
        lines.append({"id": name, "audio": f"{name}.wav", "text": text, "speaker": ("anna", "omid")[number % 2]})
    (folder / "manifest.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


def learn_letters(frontend: FrontEnd) -> NDArray[np.float32]:
    """The mean log-mel [V, M] of each token, as a trained text encoder would know it."""
    mel, generator = HostMel(MelDefinition.from_config(DATA)), np.random.default_rng(0)
    means = np.tile(mel(say("", 150, generator)).mean(axis=0), (frontend.factor_sizes[0], 1))
    for letter in LETTERS:
        spoken = mel(np.concatenate([say(letter * 5, pitch_hz, generator)[3200:-3200] for pitch_hz in (110, 190)]))
        means[frontend.encode(letter, "en").ids[1]] = spoken.mean(axis=0)
    return means


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on this corpus, whose model has random weights."""
    folder = tmp_path_factory.mktemp("clips")
    (folder / "recordings").mkdir()
    write_corpus(folder / "recordings")
    data = DATA.model_copy(update={"text_frontend": "characters", "language": "en", "val_share": 0.1})
    prepare_corpus([Recordings(folder / "recordings")], folder / "corpus", data)
    corpus = open_corpus(folder / "corpus")
    precompute(corpus, folder / "store", data)
    run = folder / "run"
    write_small_bundle(run / "bundle", frontend=corpus.load_frontend())
    paths = {"data.train_data": str(folder / "corpus"), "data.cache_dir": str(folder / "store")}
    shared = {f"data.{name}": getattr(data, name) for name in type(data).model_fields}
    write_resolved(XTTSConfig().model_copy(update=shared | paths), run)
    return run


def teach_letters(run: Path, monkeypatch: pytest.MonkeyPatch, is_taught: Callable[[XTTS], bool]) -> None:
    """Lets the text encoder know the letters; everything else of a model is as it is."""
    means_VM = learn_letters(open_corpus(run.parent / "corpus").load_frontend())
    encode = XTTS.encode_text

    def encode_with_means(model: XTTS, tokens_BN: Any, *rest: Any, **options: Any) -> Any:
        states = encode(model, tokens_BN, *rest, **options)
        if not is_taught(model):
            return states
        known = model.normalize_mel(tf.constant(means_VM))
        return states._replace(means_BSM=tf.repeat(tf.gather(known, tokens_BN), 2, axis=1))

    monkeypatch.setattr(XTTS, "encode_text", encode_with_means)


@pytest.fixture
def _trained(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    teach_letters(run, monkeypatch, lambda _model: True)


def examine(run: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    with pytest.raises(SystemExit, match="0"):
        run_command(["diagnose", "--clips", str(run), "--json", *arguments])
    printed = capsys.readouterr()
    assert f"myxtts studio RECORDINGS --doubts {run / 'clips.jsonl'}" in printed.err
    result: dict[str, Any] = json.loads(printed.out)
    return result


@pytest.mark.usefixtures("_trained")
def test_planted_faults_are_found_shown_and_left_out(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "better.jsonl"
    result = examine(run, capsys, "--worst", "6%", "--apply", str(manifest))
    worst = {clip["id"]: next(iter(clip["reasons"]), "") for clip in result["worst"]}
    assert result["num_worst"] == len(worst) == 5
    assert result["aligned_by"] == "run"
    assert set(FAULTS) <= set(worst)
    assert worst["clip010"] == "the text does not fit the sound"
    assert worst["clip025"] == "the end is cut off, or the text is too long"
    assert worst["clip041"] == "it sounds like another speaker"
    # Noise hides the letters, so that the text fits badly, too.
    reasons = {clip["id"]: clip["reasons"] for clip in result["worst"]}
    assert "it is noisier than the speaker's other clips" in reasons["clip066"]
    lines = [json.loads(line) for line in (run / "clips.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(lines) == NUM_CLIPS
    assert [line["doubt"] for line in lines] == sorted((line["doubt"] for line in lines), reverse=True)
    assert Outline((run / "clips.html").read_text(encoding="utf-8")).count["audio"] == 5
    kept = prepare_corpus(
        [Recordings(manifest, audio_root=run.parent / "recordings")],
        tmp_path / "again",
        DATA.model_copy(update={"text_frontend": "characters"}),
    )
    assert kept.num_utterances == result["num_kept"] == NUM_CLIPS - 5
    before = {row.id: row.split for row in open_corpus(run.parent / "corpus").utterances()}
    after = {row.id: row.split for row in open_corpus(tmp_path / "again").utterances()}
    assert after == {id: before[id] for id in after}
    assert not set(worst) & set(after)


def write_metrics(run: Path, step_s: float) -> None:
    lines = [{"step": 10 * (number + 1), "seconds": step_s} for number in range(3)]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


@pytest.mark.usefixtures("_trained")
def test_both_ways_are_trained_on_the_same_held_out_clips(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[set[str]] = []
    is_killed = [True]

    def train(command: list[str]) -> None:
        assert command[:4] == [sys.executable, "-m", "myxtts", "train"]
        parse_myxtts(tuple(command[3:]))
        # Both have the steps that the run does in a minute, and begin where it began.
        lengths = {word for word in command if word.startswith(("training.steps=", "training.minutes="))}
        assert lengths == {"training.steps=600", "training.minutes=null"}
        assert command[command.index("--init-from") + 1] == "base"
        corpus = Path(command[command.index("--train-data") + 1])
        trained.append({row.id for row in open_corpus(corpus).utterances()})
        if is_killed and len(trained) == 2:
            is_killed.clear()
            raise KeyboardInterrupt
        folder = Path(next(word for word in command if word.startswith("training.run_dir=")).partition("=")[2])
        folder.mkdir()
        line = {"step": 600, "validation": {"score": 1.0 / len(trained), "token_duration_error": 0.387}}
        (folder / "metrics.jsonl").write_text(f"{json.dumps(line)}\n", encoding="utf-8")

    monkeypatch.setattr(verify, "_train", train)
    write_json(run / "environment.json", {"sessions": [{"from_step": 0, "init_from": "base"}]})
    write_metrics(run, step_s=2.0)
    out = tmp_path / "kept"
    arguments = ("--verify", "--minutes", "1", "--apply", str(out), "--lang", "fa")
    with pytest.raises(SystemExit, match="2"):
        run_command(["diagnose", "--clips", str(run), "--json", *arguments])
    error = capsys.readouterr().err
    assert "In 1 minutes this run does 30 steps, at 2.00 s each." in error, "too few steps are not compared"
    assert "--minutes 4" in error
    assert not trained
    write_metrics(run, step_s=0.1)
    with pytest.raises(SystemExit, match="130"):
        run_command(["diagnose", "--clips", str(run), "--json", *arguments])
    capsys.readouterr()
    result = examine(run, capsys, *arguments)
    worst = {clip["id"]: clip["split"] for clip in result["worst"]}
    everything, stopped, kept = trained
    assert stopped == kept, "the first training had ended, and is not repeated"
    assert everything - kept == {id for id, split in worst.items() if split == "train"}
    assert {row.id for row in open_corpus(out).utterances()} == kept
    assert result["verified"]["steps"] == 600
    assert result["verified"]["everything"]["score"] == 1.0
    assert result["verified"]["kept"]["score"] == pytest.approx(1 / 3)
    page = (run / "clips.html").read_text(encoding="utf-8")
    assert 'dir="rtl"' in page
    assert "هر دو حالت" in page
    assert "<td>خطای مدت توکن‌ها</td><td>۳۸٫۷٪</td><td>۳۸٫۷٪</td>" in page, "as reports call and write it"


def test_base_model_aligns_the_clips_where_the_model_of_the_run_cannot(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "base"
    write_small_bundle(base, frontend=open_corpus(run.parent / "corpus").load_frontend(), speakers=("of", "base"))
    monkeypatch.setattr(doctor, "BASE_FOLDER", base)
    teach_letters(run, monkeypatch, lambda model: model.spec.speakers == ("of", "base"))
    result = examine(run, capsys, "--worst", "6%")
    worst = {clip["id"]: next(iter(clip["reasons"]), "") for clip in result["worst"]}
    assert result["aligned_by"] == "base"
    assert worst["clip010"] == "the text does not fit the sound"
    assert "The base model of the package" in (run / "clips.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--worst", "much"], "a share is needed"),
        (["--verify"], "How long each of the two trainings lasts is not given."),
    ],
)
def test_wrong_arguments_are_refused(
    run: Path, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        run_command(["diagnose", "--clips", str(run), *arguments])
    assert end.value.code == 2
    assert problem in capsys.readouterr().err
