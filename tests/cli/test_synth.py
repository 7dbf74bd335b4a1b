"""`myxtts synth` as a user meets it: real processes, files, pipes, exit codes and words."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import soundfile
from tests.conftest import synthesize_clip
from tests.synthesis.small_models import DATA, write_small_bundle

WITHOUT_TENSORFLOW = (
    "import sys\nfrom myxtts.cli.main import run\ncode = 0\ntry:\n    run(sys.argv[1:])\n"
    "except SystemExit as end:\n    code = end.code\n"
    "sys.exit(99 if {'tensorflow', 'keras'} & set(sys.modules) else code)"
)


def run_synth(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "myxtts", "synth", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "300"}
    return subprocess.run(command, capture_output=True, timeout=120, env=environment, **options)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synth")
    write_small_bundle(folder / "bundle")
    soundfile.write(folder / "voice.wav", synthesize_clip(4.0), 22_050)
    (folder / "bomb.wav").write_bytes(b"RIFF\xff\xff\xff\x7fWAVEfmt ")
    (folder / "bad.csv").write_text("a|one\n../b|two\n", encoding="utf-8")
    (folder / "empty-line.csv").write_text("a|one\nb|?\n", encoding="utf-8")
    (folder / "latin.txt").write_bytes("café".encode("latin-1"))
    return folder


def test_a_text_becomes_a_file_and_a_voice_that_is_used_again(place: Path) -> None:
    common = ("--model", place / "bundle", "--language", "en", "--seed", "5")
    first = place / "new folder" / "first.wav"
    done = run_synth(
        "Hello there. The fox!", *common, "--voice", place / "voice.wav", "--out", first, "--save-voice", "anna"
    )
    assert done.returncode == 0, done.stderr
    assert b"first.wav" in done.stdout
    assert b"'anna' saved" in done.stderr
    samples, rate = soundfile.read(first)
    assert rate == DATA.sample_rate
    assert len(samples) > rate

    second = place / "second.wav"
    second.write_bytes(b"old")
    done = run_synth("-", *common, "--voice", "anna", "--out", second, "--json", input=b"Hello there.\nThe fox!\n")
    assert done.returncode == 0, done.stderr
    assert b"Replacing" in done.stderr
    (made,) = json.loads(done.stdout)["files"]
    assert made["num_pieces"] == 2
    assert made["duration_s"] == pytest.approx(len(samples) / rate, abs=0.001)
    assert second.read_bytes() == first.read_bytes()


def test_a_stream_is_sound_that_players_read(place: Path) -> None:
    arguments = ("--model", place / "bundle", "--voice", place / "voice.wav")
    done = run_synth("سلام دنیا. حال شما؟", *arguments, "--language", "fa", "--out", "-")
    assert done.returncode == 0, done.stderr
    samples, rate = soundfile.read(io.BytesIO(done.stdout))
    assert rate == DATA.sample_rate
    assert len(samples) == (len(done.stdout) - 44) // 2 > rate // 2
    assert done.stdout[40:44] == b"\xff\xff\xff\xff"


def test_a_listener_may_leave_before_the_end(place: Path) -> None:
    command = [sys.executable, "-m", "myxtts", "synth", "Hello. " * 30, "--model", place / "bundle"]
    command += ["--voice", place / "voice.wav", "--language", "en", "--out", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(44)[:4] == b"RIFF"
        process.stdout.close()
        words = process.stderr.read().decode()
        assert process.wait(60) == 1
    assert "Traceback" not in words
    assert "BrokenPipe" not in words


def test_a_file_of_texts_becomes_a_folder(place: Path) -> None:
    (place / "lines.txt").write_text("Hello there.\n\nThe fox.\n", encoding="utf-8")
    (place / "named.csv").write_text("greeting|Hello there.\nanimal|The fox.\n", encoding="utf-8-sig")
    for name, expected in (("lines.txt", ["0001", "0002"]), ("named.csv", ["animal", "greeting"])):
        folder = place / f"out of {name}"
        arguments = ("--model", place / "bundle", "--voice", place / "voice.wav", "--out", folder)
        done = run_synth("--file", place / name, *arguments)
        assert done.returncode == 0, done.stderr
        assert sorted(path.stem for path in folder.iterdir()) == expected
        assert all(soundfile.info(path).duration > 0.2 for path in folder.iterdir())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("Hello.", "--out", "x.wav"), 2, "No model is named"),
        (("Hello.", "--model", "nowhere", "--out", "x.wav"), 3, "no model bundle"),
        (("Hello.", "--model", "bundle"), 2, "where the sound goes"),
        (("--model", "bundle", "--out", "x.wav"), 2, "nothing to say"),
        (("Hello.", "--model", "bundle", "--voice", "voice.wav", "--language", "de", "--out", "x.wav"), 2, "en, fa"),
        (("Hello.", "--model", "bundle", "--voice", "nobody.wav", "--out", "x.wav"), 3, "no saved voice"),
        (("Hello.", "--model", "bundle", "--voice", "bomb.wav", "--out", "x.wav"), 3, "bomb.wav cannot be used"),
        (("Hello.", "--model", "bundle", "--out", "x.wav"), 2, "whose voice"),
        (("?!", "--model", "bundle", "--voice", "voice.wav", "--out", "x.wav"), 3, "nothing to say"),
        (("a" * 20_001, "--model", "bundle", "--voice", "voice.wav", "--out", "x.wav"), 3, "20,001 characters"),
        (("Hello.", "--model", "bundle", "--voice", "voice.wav", "--out", "-", "--json"), 2, "JSON"),
        (("Hello.", "--model", "bundle", "--voice", "voice.wav", "--out", "bundle"), 2, "is a folder"),
        (("Hello.", "--model", "bundle", "--speed", "0", "--out", "x.wav"), 4, "speed is 0"),
        (("Hello.", "--model", "bundle", "--save-voice", "../x", "--out", "x.wav"), 2, "cannot be called"),
        (("Hello.", "--model", "bundle", "--vocoder", "neural", "--out", "x.wav"), 4, "no neural vocoder"),
        (("--file", "bad.csv", "--model", "bundle", "--out", "x"), 3, "bad.csv:2"),
        (("--file", "empty-line.csv", "--model", "bundle", "--out", "x"), 3, "empty-line.csv:2"),
        (("--file", "latin.txt", "--model", "bundle", "--out", "x"), 3, "not UTF-8"),
        (("--file", "missing.txt", "--model", "bundle", "--out", "x"), 2, "cannot be read"),
    ],
)
def test_mistakes_are_found_before_tensorflow_is_loaded(
    place: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, "synth", *arguments]
    done = subprocess.run(
        command, cwd=place, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "300"}
    )
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert not (place / "x.wav").exists()
