"""Pairs for a blind comparison: both models say the same sentences at the same level, also as they were at a step."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from tests.store.corpora import store_two_speakers
from tests.synthesis.small_models import DATA, write_small_bundle

from myxtts.cli.main import run as run_command
from myxtts.config.load import write_resolved
from myxtts.config.schema import XTTSConfig
from myxtts.models.bundle import read_bundle
from myxtts.tools.compare.checkpoints import load_checkpoint
from myxtts.tools.compare.pairs import RECORDING, match_level
from myxtts.training.run.checkpoint import CheckpointFolder
from myxtts.types import Waveform

STEPS = (10, 20)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a corpus of two speakers, a bundle of random weights and two checkpoints of other weights."""
    folder = tmp_path_factory.mktemp("compare")
    corpus, data = store_two_speakers(folder, DATA, seconds=1.5)
    run = folder / "run"
    embedding = {"vector": [0.1] * 8, "latents": [[0.1] * 8] * 2, "language": "en"}
    notes = {"step": 30, "voices": {"anna": embedding, "omid": embedding}}
    write_small_bundle(run / "bundle", frontend=corpus.load_frontend(), notes=notes)
    paths = {"data.train_data": str(folder / "prepared"), "data.cache_dir": str(folder / "store")}
    shared = {f"data.{name}": getattr(data, name) for name in type(data).model_fields}
    write_resolved(XTTSConfig().model_copy(update=shared | paths), run)
    weights = read_bundle(run / "bundle").weights
    for step in STEPS:
        changed = {name: np.asarray(array + 0.01 * step * (name != "length_factor")) for name, array in weights.items()}
        arrays = {f"model/{name}": array for name, array in weights.items()}
        arrays |= {f"average/{name}": array for name, array in changed.items()}
        CheckpointFolder(run / "checkpoints").save(step, arrays, {})
    return run


def compare(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    with pytest.raises(SystemExit, match="0"):
        run_command(["compare", *map(str, arguments), "--json"])
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def read_data(page: Path) -> tuple[list[list[str]], list[list[bytes]]]:
    """Names and sounds of the pairs of a page."""
    found = re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    return json.loads(base64.b64decode(data["names"])), [
        [base64.b64decode(sound) for sound in pair["sounds"]] for pair in data["pairs"]
    ]


def measure_db(sound: bytes) -> float:
    samples, rate = soundfile.read(io.BytesIO(sound))
    frames = samples[: len(samples) // 320 * 320].reshape(-1, 320)
    loud = np.sort(np.square(frames).mean(axis=1))[-10:]
    return float(10 * np.log10(loud.mean() + 1e-12)) if rate else 0.0


def test_two_checkpoints_and_recordings_are_mixed_in_an_order_of_the_seed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "compare.html"
    result = compare(capsys, run, "--checkpoints", "10,20", "--pairs", "4", "--out", page)
    sides = [f"{run}, step 10", f"{run}, step 20"]
    assert result["sides"] == sides
    assert (result["num_pairs"], result["num_with_recording"]) == (5, 1)
    names, sounds = read_data(page)
    assert sorted(map(sorted, names)) == sorted([sorted(sides)] * 4 + [sorted([RECORDING, sides[0]])])
    assert all(first != second for first, second in sounds)
    levels = [measure_db(sound) for pair in sounds for sound in pair]
    assert max(levels) - min(levels) < 6, levels
    again = tmp_path / "again.html"
    compare(capsys, run, "--checkpoints", "10,20", "--pairs", "4", "--out", again)
    assert read_data(again) == (names, sounds)


def test_checkpoint_has_its_own_weights_and_encodes_speakers_itself(run: Path) -> None:
    warnings: list[str] = []
    first, second = (load_checkpoint(run, step, warnings.append) for step in STEPS)
    name = next(name for name in first.bundle.weights if name.startswith("decoder"))
    difference = second.bundle.weights[name] - first.bundle.weights[name]
    assert difference == pytest.approx(np.full(difference.shape, 0.1), abs=1e-5)
    assert first.bundle.notes["step"] == 10
    assert warnings == []
    assert first.noted_voices["anna"].embedding is None
    assert len(first.noted_voices["anna"].references) > 0


def test_own_sentences_and_synth_at_a_checkpoint(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("Good morning.\nAnother sentence.\n", encoding="utf-8")
    page = tmp_path / "compare.html"
    arguments = ["--checkpoints", "10,20", "--texts", str(texts), "--voice", "anna", "--lang", "fa", "--out", str(page)]
    result = compare(capsys, run, *arguments)
    assert (result["num_pairs"], result["num_with_recording"]) == (2, 0)
    outputs = []
    for checkpoint in ([], ["--checkpoint", "10"]):
        out = tmp_path / f"{len(checkpoint)}.wav"
        arguments = ["--model", str(run), "--voice", "anna", "--language", "en", "--out", str(out)]
        with pytest.raises(SystemExit, match="0"):
            run_command(["synth", "Good morning.", *arguments, *checkpoint])
        outputs.append(soundfile.read(out)[0])
    assert outputs[0].shape != outputs[1].shape or not np.array_equal(*outputs)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["compare", "RUN"], "Only one model is named."),
        (["compare", "RUN", "RUN"], "Both models are"),
        (["compare", "RUN", "--checkpoints", "10"], "two steps with a comma"),
        (["compare", "RUN", "--checkpoints", "10,11"], "Kept are: 10, 20."),
        (["synth", "Hello.", "--model", "RUN", "--checkpoint", "11", "--out", "x.wav"], "Kept are: 10, 20."),
        (
            ["synth", "Hi.", "--model", "RUN", "--checkpoint", "10", "--save-voice", "zoe", "--out", "x.wav"],
            "not for one of its checkpoints",
        ),
    ],
)
def test_wrong_arguments_are_refused(
    run: Path, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        run_command([str(run) if word == "RUN" else word for word in arguments])
    assert end.value.code == 2
    assert problem in capsys.readouterr().err.replace("\n", " ")


def test_level_is_matched_without_clipping() -> None:
    time_s = np.arange(16_000) / 16_000
    quiet = Waveform((0.001 * np.sin(2000 * time_s)).astype(np.float32), 16_000)
    peaky = np.zeros(16_000, np.float32)
    peaky[::400] = 1.0
    assert measure_db(_encode(match_level(quiet))) == pytest.approx(-26, abs=0.5)
    assert np.abs(match_level(Waveform(peaky, 16_000)).samples).max() <= 0.99


def _encode(wave: Waveform) -> bytes:
    content = io.BytesIO()
    soundfile.write(content, wave.samples, wave.rate, format="WAV", subtype="FLOAT")
    return content.getvalue()
