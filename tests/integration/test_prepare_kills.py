"""`myxtts prepare` killed at any moment: the folder holds the old corpus or the new one, and the next run succeeds."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

POINTS = ("write", "fsync", "replace", "sync_directory")


def start_prepare(folder: Path, out: Path, fault: str = "") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "myxtts", "prepare", str(folder), "--out", str(out)]
    command += ["--set", "data.text_frontend=characters"]
    environment = {**os.environ, "MYXTTS_FAULT": fault}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make_corpora(tmp_path: Path, write_clip: Any) -> tuple[Path, Path]:
    """Two different corpora, so that a mixture of the old result and the new one would show."""
    folders = tmp_path / "first", tmp_path / "second"
    for folder in folders:
        lines = []
        for number in range(40):
            write_clip(folder / "wavs" / f"{folder.name}{number}.wav", seconds=1.0, seed=number)
            lines.append(f"{folder.name}{number}|words of {folder.name} number {number}\n")
        (folder / "metadata.csv").write_text("".join(lines), encoding="utf-8")
    return folders


def check_whole(out: Path, expected: dict[str, bytes]) -> None:
    assert (out / "corpus.jsonl").read_bytes() in expected.values()


def run_campaign(tmp_path: Path, write_clip: Any, num_kills: int, seed: int) -> None:
    first, second = make_corpora(tmp_path, write_clip)
    expected = {}
    for folder in (first, second):
        assert start_prepare(folder, tmp_path / f"calm-{folder.name}").wait(60) == 0
        expected[folder.name] = (tmp_path / f"calm-{folder.name}" / "corpus.jsonl").read_bytes()
    out = tmp_path / "out"
    assert start_prepare(first, out).wait(60) == 0
    generator = random.Random(seed)
    for number in range(num_kills):
        folder = (second, first)[number % 2]
        if number % 2:
            process = start_prepare(folder, out, f"{generator.choice(POINTS)}:{generator.randint(1, 4)}:kill")
            process.wait(60)
        else:
            process = start_prepare(folder, out)
            time.sleep(generator.uniform(0.2, 1.2))
            process.kill()
            process.wait(60)
        check_whole(out, expected)
    assert start_prepare(second, out).wait(60) == 0
    assert (out / "corpus.jsonl").read_bytes() == expected["second"]
    leftovers = [path.name for path in out.iterdir() if path.name.endswith("-tmp")]
    assert leftovers == []


def test_few_kills_leave_the_old_corpus_or_the_new(tmp_path: Path, write_clip: Any) -> None:
    run_campaign(tmp_path, write_clip, num_kills=8, seed=1)


@pytest.mark.soak
def test_many_kills_leave_the_old_corpus_or_the_new(tmp_path: Path, write_clip: Any) -> None:
    run_campaign(tmp_path, write_clip, num_kills=200, seed=2)
