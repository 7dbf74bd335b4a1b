"""`myxtts precompute` as a user meets it: real processes, exit codes, words and JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.myxtts_process import run_myxtts
from tests.store.corpora import DATA, take_snapshot
from tests.store.flips import flip_bit

from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.store.precompute import precompute
from myxtts.store.reader import FeatureStore

CHARACTERS = ("--set", "data.text_frontend=characters")


def run_precompute(*arguments: str | Path, fault: str = "") -> subprocess.CompletedProcess[str]:
    return run_myxtts("precompute", *arguments, env={"MYXTTS_FAULT": fault})


def test_recordings_become_a_store_that_is_checked_broken_and_repaired(ljspeech: Path, tmp_path: Path) -> None:
    """One life of a store, in one test because every command costs a second of start."""
    store = tmp_path / "store"
    done = run_precompute("--train-data", ljspeech, "--cache-dir", store, "--json", *CHARACTERS)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["num_utterances"], result["num_made"], result["num_rejected"]) == (20, 20, 0)
    assert "20 utterances" in done.stderr
    expected = take_snapshot(store)

    done = run_myxtts("cache", "check", store)
    assert done.returncode == 0, done.stderr
    assert "0 damaged" in done.stdout

    flip_bit(store / "generation-0001" / "000000.mel", 8 * 1000)
    done = run_precompute("--cache-dir", store, "--check", "--json")
    assert done.returncode == 3
    error = json.loads(done.stdout)["error"]
    assert (error["kind"], error["num_broken"], error["is_whole"]) == ("data", 1, False)
    assert "mel of LJ000: its checksum does not match" in error["problems"]
    assert f"myxtts cache repair {store}" in done.stderr
    assert "Note: --check is an old name: use myxtts cache check." in done.stderr

    done = run_myxtts("cache", "repair", store, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_repaired"] == 1
    assert take_snapshot(store) == expected

    done = run_myxtts("cache", "compact", "--cache-dir", store)
    assert done.returncode == 0, done.stderr
    assert "20 utterances" in done.stdout
    assert take_snapshot(store) == expected

    done = run_precompute("--train-data", ljspeech, "--cache-dir", store, *CHARACTERS)
    assert done.returncode == 0, done.stderr
    assert "0 made, 20 kept, 0 removed" in done.stdout


def test_repair_of_what_is_gone_ends_with_the_data_exit_code(ljspeech: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert run_precompute("--train-data", ljspeech, "--cache-dir", store, *CHARACTERS).returncode == 0
    (ljspeech / "wavs" / "LJ000.wav").unlink()
    flip_bit(store / "generation-0001" / "000000.mel", 8 * 1000)
    done = run_precompute("--cache-dir", store, "--fix")
    assert done.returncode == 3
    assert "1 of which could not be computed again" in done.stderr
    assert "LJ000: there is no such file" in done.stdout
    assert run_precompute("--cache-dir", store, "--check").returncode == 0
    assert len(FeatureStore.open(store)) == 19


def test_a_prepared_corpus_has_its_store_beside_it(ljspeech: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpora" / "corpus"
    prepare_corpus([Recordings(ljspeech)], corpus, DATA)
    assert run_precompute("--train-data", corpus).returncode == 0
    assert len(FeatureStore.open(tmp_path / "corpora" / "cached_features")) == 20
    done = run_precompute("--train-data", corpus, "--set", "data.n_mels=40")
    assert done.returncode == 3
    assert "n_mels 80 → 40" in done.stderr


def test_bad_recordings_are_shown_and_too_many_end_the_work(ljspeech: Path, tmp_path: Path) -> None:
    corpus, store = tmp_path / "corpus", tmp_path / "store"
    prepare_corpus([Recordings(ljspeech)], corpus, DATA)
    (ljspeech / "wavs" / "LJ003.wav").write_bytes(b"noise")
    done = run_precompute("--train-data", corpus, "--cache-dir", store)
    assert done.returncode == 0, done.stderr
    assert "unreadable" in done.stdout
    assert "LJ003" in (store / "rejections.csv").read_text(encoding="utf-8")
    (ljspeech / "wavs" / "LJ004.wav").unlink()
    done = run_myxtts("cache", "rebuild", store, "--train-data", corpus)
    assert done.returncode == 3
    assert "2 of 20 utterances" in done.stderr
    assert len(FeatureStore.open(store)) == 19


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        ((), 2, "--train-data"),
        (("--cache-dir", "store"), 2, "No corpus"),
        (("--cache-dir", "store", "--check", "--fix"), 2, "--check and --fix cannot be used together"),
        (("--cache-dir", "nowhere", "--check"), 3, "no complete feature cache"),
        (("--train-data", "nowhere"), 3, "nowhere"),
    ],
)
def test_errors_are_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], exit_code: int, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_precompute(*arguments)
    assert done.returncode == exit_code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_killed_and_failing_commands_are_taken_up(ljspeech: Path, tmp_path: Path) -> None:
    corpus, calm, store = tmp_path / "corpus", tmp_path / "calm", tmp_path / "store"
    prepare_corpus([Recordings(ljspeech)], corpus, DATA)
    precompute(open_corpus(corpus), calm, DATA)
    done = run_precompute("--train-data", corpus, "--cache-dir", store, fault="segment_write:9:ENOSPC")
    assert done.returncode == 7
    assert "No space left on device" in done.stderr
    for fault in ("segment_fsync:2:kill", "replace:4:kill"):
        assert run_precompute("--train-data", corpus, "--cache-dir", store, fault=fault).returncode == -signal.SIGKILL
    assert run_precompute("--train-data", corpus, "--cache-dir", store).returncode == 0
    assert take_snapshot(store) == take_snapshot(calm)


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_no_temporary_files(
    tmp_path: Path, write_clip: Any, number: signal.Signals, exit_code: int
) -> None:
    recordings = tmp_path / "many"
    write_clip(recordings / "a.flac", seconds=20.0)
    for place in range(200):
        os.link(recordings / "a.flac", recordings / f"b{place}.flac")
    lines = "".join(f"id{place}|b{place}.flac|Some words.\n" for place in range(200))
    (recordings / "manifest.csv").write_text(f"id|audio|text\n{lines}", encoding="utf-8")
    corpus, store = tmp_path / "corpus", tmp_path / "store"
    prepare_corpus([Recordings(recordings)], corpus, DATA, headers_only=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "myxtts", "precompute", "--train-data", str(corpus), "--cache-dir", str(store)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while not list(store.glob("generation-0001/.*.mel.myxtts-tmp")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode == exit_code
    assert [path.name for path in store.rglob("*") if path.name.endswith("-tmp")] == []


def test_features_of_a_validation_corpus_are_made_too(ljspeech: Path, tmp_path: Path) -> None:
    for name in ("training", "validation"):
        prepare_corpus([Recordings(ljspeech)], tmp_path / name, DATA)
    store = tmp_path / "store"
    paths = ("--train-data", tmp_path / "training", "--val-data", tmp_path / "validation", "--cache-dir", store)
    done = run_precompute(*paths, "--json", *CHARACTERS)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["val"]["num_utterances"] == 20
    assert len(FeatureStore.open(store)) == len(FeatureStore.open(store / "val")) == 20
