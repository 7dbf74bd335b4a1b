"""`myxtts train` as a user meets it: exit codes, words and JSON."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.myxtts_process import run_myxtts
from tests.training.trainer_programs import COARSE, NUM_CLIPS, TINY, write_recordings

from myxtts.storage.atomic import lock_directory


def list_settings(**more: object) -> list[str]:
    values = {**TINY, **COARSE, "num_shapes": 1, "enable_graph_mode": False, **more}
    return [
        part
        for key, value in values.items()
        for part in ("--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}")
    ]


def run_train(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_myxtts("train", *arguments, cwd=cwd, tensorflow=True)


def test_recordings_become_a_model_in_one_command(tmp_path: Path) -> None:
    recordings = write_recordings(tmp_path / "recordings", speakers=("anna", "anna"))
    settings = list_settings(corpus_format="manifest", val_share=0.2)
    done = run_train("--train-data", recordings, "--steps", "2", "--lang", "fa", "--json", *settings, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["step"] == 2
    assert result["losses"]["flow"] > 0
    assert (tmp_path / result["bundle"] / "model.safetensors").is_file()
    assert Path(result["report"]).name == "report.fa.html"
    assert 'lang="fa" dir="rtl"' in (tmp_path / result["report"]).read_text(encoding="utf-8")
    assert "computing features first" in done.stderr
    assert "Validation at step 2" in done.stderr

    spoken = run_myxtts(
        "synth", "Words of a clip.", "--model", "runs/run", "--out", "own.wav", cwd=tmp_path, tensorflow=True
    )
    assert spoken.returncode == 0, spoken.stderr
    assert "for a better sound" not in spoken.stderr, "the model speaks in its own voice"
    assert (tmp_path / "own.wav").stat().st_size > 1000

    aligned = run_myxtts("precompute", "--durations-from", "runs/run", "--json", cwd=tmp_path, tensorflow=True)
    assert aligned.returncode == 0, aligned.stderr
    assert json.loads(aligned.stdout)["num_aligned"] == NUM_CLIPS

    refined = run_myxtts("precompute", "--refine-with", "runs/run", cwd=tmp_path)
    assert refined.returncode == 3, refined.stderr
    assert "text_frontend: phonemes" in refined.stderr

    again = run_train("--train-data", recordings, "--steps", "2", *settings, cwd=tmp_path)
    assert again.returncode == 2, again.stderr
    assert "--resume" in again.stderr
    other = list_settings(corpus_format="manifest", val_share=0.2, batch_size=2)
    changed = run_train("--train-data", recordings, "--steps", "3", "--resume", *other, cwd=tmp_path)
    assert changed.returncode == 4, changed.stderr
    assert "data.batch_size" in changed.stderr
    assert "--force" in changed.stderr
    with lock_directory(tmp_path / "runs" / "run", "training"):
        second = run_train("--train-data", recordings, "--steps", "3", "--resume", *settings, cwd=tmp_path)
    assert second.returncode == 8, second.stderr
    assert "Two trainings cannot use the same run" in second.stderr


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (("--help",), 0, "--init-from"),
        (("--help",), 0, "--part"),
        (("--lang", "de", "--train-data", "nowhere"), 2, "one of en, fa"),
        (("--part", "drummer", "--train-data", "nowhere"), 2, "--part voice or --part vocoder"),
        (("--for", "runs/x", "--train-data", "nowhere"), 2, "--part vocoder"),
        (("--part", "vocoder", "--for", "nowhere", "--train-data", "nowhere"), 3, "no trained model"),
        (("--part", "vocoder", "--train-data", "nowhere"), 3, "nowhere"),
        (("--resume",), 2, "no run to resume"),
        (("--resume", "runs/mine"), 2, "no run at runs/mine"),
        (("runs/mine", "--train-data", "nowhere"), 2, "To continue a run: --resume runs/mine."),
        (("--critics-from", "3", "--train-data", "nowhere"), 2, "Note: --critics-from is an old name"),
        (("--override", "--train-data", "nowhere"), 3, "Note: --override is an old name: use --force."),
        (("--for", "a", "--install-into", "b"), 2, "both are given"),
        ((), 2, "--train-data"),
        (("--train-data", "nowhere"), 3, "nowhere"),
        (("--train-data", "nowhere", "--batch-size", "0"), 4, "--batch-size"),
        (("--cache-dir", "nowhere", "--init-from", "none"), 2, "--train-data"),
    ],
)
def test_what_is_wrong_is_said_without_loading_tensorflow(
    tmp_path: Path, arguments: tuple[str, ...], exit_code: int, words: str
) -> None:
    done = run_myxtts("train", *arguments, cwd=tmp_path)
    assert done.returncode == exit_code, done.stderr
    assert words in done.stdout + done.stderr


def test_a_demo_refuses_an_unknown_language_of_its_report(tmp_path: Path) -> None:
    done = run_myxtts("demo", "--lang", "de", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "one of en, fa" in done.stderr
