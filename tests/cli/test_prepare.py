"""`myxtts prepare` as a user meets it: exit codes, and words that name the reason, the place and the next step."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile
from tests.conftest import synthesize_clip
from tests.myxtts_process import run_myxtts

NUM_CLIPS = 8


def run_prepare(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_myxtts("prepare", *arguments, "--set", "data.text_frontend=characters", env={"COLUMNS": "300"})


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """A folder of ID.wav and ID.txt in folders of two speakers."""
    for number in range(NUM_CLIPS):
        folder = tmp_path / "recordings" / ("anna", "omid")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        soundfile.write(folder / f"{number}.wav", synthesize_clip(1.5, seed=number), 22_050)
        (folder / f"{number}.txt").write_text(f"This is sentence number {number}.\n", encoding="utf-8")
    return tmp_path / "recordings"


def test_pairs_by_speaker_become_a_corpus(pairs: Path, tmp_path: Path) -> None:
    done = run_prepare(pairs, "--out", tmp_path / "corpus", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["num_utterances"] == NUM_CLIPS
    assert summary["speakers"] == {"anna": NUM_CLIPS // 2, "omid": NUM_CLIPS // 2}


def test_rejections_are_shown_by_reason_with_an_example_and_what_to_do(pairs: Path, tmp_path: Path) -> None:
    (pairs / "anna" / "0.wav").unlink()
    done = run_prepare(pairs, "--out", tmp_path / "corpus")
    assert done.returncode == 0, done.stderr
    assert "1 missing-file: anna/0.txt:1 (anna/0), there is no 'anna/0.wav' in" in done.stdout
    assert "Put the recording where the transcript says" in done.stdout


def test_a_corpus_of_mostly_rejected_utterances_ends_with_3(pairs: Path, tmp_path: Path) -> None:
    for path in (pairs / "anna").glob("*.wav"):
        path.write_bytes(b"\x1a\x45\xdf\xa3" + bytes(100))
    done = run_prepare(pairs, "--out", tmp_path / "corpus", "--json")
    assert done.returncode == 3
    error = json.loads(done.stdout)["error"]
    assert error["reasons"] == {"unsupported-format": NUM_CLIPS // 2}
    assert "ffmpeg" in error["problem"]
    assert not (tmp_path / "corpus" / "corpus.jsonl").exists()
    allowed = run_prepare(pairs, "--out", tmp_path / "corpus", "--max-rejected-share", "0.5")
    assert allowed.returncode == 0, allowed.stderr


def test_persian_text_without_its_language_is_refused_with_the_flag(pairs: Path, tmp_path: Path) -> None:
    for path in pairs.rglob("*.txt"):
        path.write_text(f"سلام، حال شما چطور است؟ {path.stem}", encoding="utf-8")
    done = run_prepare(pairs, "--out", tmp_path / "corpus")
    assert done.returncode == 3
    assert "Arabic script" in done.stderr
    assert "--language fa" in done.stderr
    understood = run_prepare(pairs, "--out", tmp_path / "corpus", "--language", "Persian", "--json")
    assert json.loads(understood.stdout)["languages"] == {"fa": NUM_CLIPS}


@pytest.mark.parametrize(("language", "start"), [("en", "--init-from base --minutes 60"), ("fr", "--model-size tiny")])
def test_enough_speech_starts_from_the_base_model_where_that_knows_the_language(
    tmp_path: Path, language: str, start: str
) -> None:
    recordings = tmp_path / "recordings"
    recordings.mkdir()
    sound = np.zeros(15 * 8000, np.int16)
    for number in range(64):
        sound[0] = number
        soundfile.write(recordings / f"{number}.wav", sound, 8000)
        (recordings / f"{number}.txt").write_text(f"Number {number} " + "is a long story. " * 12, encoding="utf-8")
    done = run_prepare(recordings, "--out", tmp_path / "corpus", "--language", language, "--quick")
    assert done.returncode == 0, done.stderr
    assert f"Next, on a CPU: myxtts train --train-data {tmp_path / 'corpus'} {start}" in done.stderr
