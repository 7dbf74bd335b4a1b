"""`myxtts synth` as a user meets it: real processes, files, pipes, exit codes and words."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from tests.conftest import synthesize_clip
from tests.myxtts_process import run_myxtts_bytes
from tests.synthesis.small_models import DATA, write_small_bundle

# Runs one command after another, because every process costs seconds; prints what became of each. The package is taken
# to have no base model, which would speak where no model is named.
TRY_ALL = """
import contextlib, io, json, pathlib, sys
from myxtts.cli.main import run
from myxtts.models import base_model
base_model.BASE_FOLDER = pathlib.Path("nowhere")
answers = []
for arguments in json.load(sys.stdin):
    words, code = io.StringIO(), 0
    with contextlib.redirect_stderr(words):
        try:
            run(["synth", *arguments])
        except SystemExit as end:
            code = end.code
    answers.append([code, words.getvalue(), bool({"tensorflow", "keras"} & set(sys.modules))])
print(json.dumps(answers))
"""
VOICE = ("--voice", "voice.wav")
MISTAKES: list[tuple[tuple[str, ...], int, str]] = [
    (("Hello.",), 2, "Missing: --model MODEL (a run or exported model), --voice VOICE"),
    ((), 2, "Missing: a text to say (or --file FILE), --model MODEL (a run or exported model), --voice VOICE"),
    (("Hello.", "--model", "base"), 2, "no base model"),
    (("Hello.", "--model", "nowhere", "--out", "x.wav"), 3, "no trained model"),
    (("--model", "bundle", "--out", "x.wav"), 2, "Missing: a text to say (or --file FILE)."),
    (("Hello.", "--model", "bundle", *VOICE, "--language", "de", "--out", "x.wav"), 2, "en, fa"),
    (("Hello.", "--model", "bundle", "--voice", "nobody.wav", "--out", "x.wav"), 3, "no voice named"),
    (("Hello.", "--model", "bundle", "--voice", "bomb.wav", "--out", "x.wav"), 3, "bomb.wav cannot be used"),
    (("Hello.", "--model", "bundle", "--out", "x.wav"), 2, "Add --voice: "),
    (("?!", "--model", "bundle", *VOICE, "--out", "x.wav"), 3, "nothing to say"),
    (("a" * 20_001, "--model", "bundle", *VOICE, "--out", "x.wav"), 3, "20,001 characters"),
    (("Hello.", "--model", "bundle", *VOICE, "--out", "-", "--json"), 2, "--json both use standard output"),
    (("Hello.", "--model", "bundle", *VOICE, "--out", "bundle"), 2, "is a folder"),
    (("Hello.", "--model", "bundle", *VOICE, "--out", "x.m4a"), 2, ".wav, .flac, .ogg, .opus, .mp3"),
    (
        ("Hello.", "--model", "bundle", *VOICE, "--save-voice", "anna", "--out", "x.wav"),
        2,
        "a speaker named 'anna'",
    ),
    (("Hello.", "--model", "bundle", "--speed", "0", "--out", "x.wav"), 4, "speed is 0"),
    (("Hello.", "--model", "bundle", "--save-voice", "../x", "--out", "x.wav"), 2, "cannot be called"),
    (("Hello.", "--model", "bundle", "--vocoder", "neural", "--out", "x.wav"), 4, "no neural vocoder"),
    (("Hello.", "--model", "bundle", "--vocoder", "nowhere", "--out", "x.wav"), 4, "no vocoder 'nowhere'"),
    (("Hello.", "--model", "bundle", "--vocoder", "bundle", "--out", "x.wav"), 3, "There is no vocoder in"),
    (("Well [laughs].", "--model", "bundle", *VOICE, "--out", "x.wav"), 3, "Line 1, character 6"),
    (("Hi [[a]].", "--model", "bundle", *VOICE, "--out", "x.wav"), 4, "reads characters"),
    (("سلام دوست من", "--model", "bundle", *VOICE, "--out", "x.wav"), 3, "--language fa"),
    (("Hello.", "--model", "bundle", *VOICE, "--out", "x.wav", "--subtitles", "x.txt"), 2, ".srt, .vtt, .json"),
    (("anna Hello.", "--model", "bundle", "--dialogue", "--out", "x.wav"), 3, "Line 1: 'anna Hello.'"),
    (("zoe: Hello.", "--model", "bundle", "--dialogue", "--out", "x.wav"), 3, "Line 1: There is no file"),
    (("a: Hello.", "--model", "bundle", "--dialogue", *VOICE, "--out", "x.wav"), 2, "each line names its voice"),
    (("Hello.", "--model", "bundle", "--voice", "a=1", "--voice", "b", "--out", "x.wav"), 2, "some have none"),
    (("Hello.", "--model", "bundle", "--seconds", "2", "--speed", "2", "--out", "x.wav"), 4, "speed and seconds"),
    (("--file", "bad.csv", "--model", "bundle", "--out", "x"), 3, "bad.csv:2"),
    (("--file", "empty-line.csv", "--model", "bundle", *VOICE, "--out", "x"), 3, "empty-line.csv:2"),
    (("--file", "latin.txt", "--model", "bundle", "--out", "x"), 3, "not UTF-8"),
    (("--file", "missing.txt", "--model", "bundle", "--out", "x"), 2, "cannot be read"),
]


def run_synth(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return run_myxtts_bytes("synth", *arguments, env={"COLUMNS": "300"}, stdin=stdin, tensorflow=True)


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
        "Hello there. The fox!", *common, "--voice", place / "voice.wav", "--out", first, "--save-voice", "lena"
    )
    assert done.returncode == 0, done.stderr
    assert b"first.wav" in done.stdout
    assert b"'lena' saved" in done.stderr
    samples, rate = soundfile.read(first)
    assert rate == DATA.sample_rate
    assert len(samples) > rate

    done = run_synth("-", *common, "--voice", "lena", "--out", "-", stdin=b"Hello there.\nThe fox!\n")
    assert done.returncode == 0, done.stderr
    streamed, rate = soundfile.read(io.BytesIO(done.stdout))
    assert rate == DATA.sample_rate
    header, _, rest = done.stdout.partition(b"data")
    assert b"Synthetic speech, made by MyXTTS" in header
    assert rest[:4] == b"\xff\xff\xff\xff"
    np.testing.assert_array_equal(streamed, samples)


def test_the_ending_of_the_file_decides_its_format(place: Path) -> None:
    common = ("--model", place / "bundle", "--voice", place / "voice.wav", "--language", "en")
    done = run_synth("Hello there.", *common, "--out", place / "x.MP3")
    assert done.returncode == 0, done.stderr
    with soundfile.SoundFile(place / "x.MP3") as file:
        assert (file.format, file.samplerate) == ("MP3", DATA.sample_rate)
        assert "Synthetic speech, made by MyXTTS" in file.comment


def test_a_dialogue_in_two_voices_with_subtitles_and_an_exact_length(place: Path) -> None:
    script, out, subtitles = place / "script.txt", place / "talk.flac", place / "talk.json"
    script.write_text(f"{place / 'voice.wav'}: Hello there.\nlena: [pause 0.5s] The fox! Again.\n", encoding="utf-8")
    saved = ("--voice", place / "voice.wav", "--save-voice", "lena", "--consent", "own voice", "--language", "fa")
    assert run_synth("--model", place / "bundle", *saved).returncode == 0
    common = ("--file", script, "--model", place / "bundle", "--dialogue", "--out", out, "--subtitles", subtitles)
    done = run_synth(*common)
    assert done.returncode == 3
    assert b"script.txt:2" in done.stderr, "the voice lena speaks Persian"
    done = run_synth(*common, "--language", "en", "--seconds", "4", "--no-mark")
    assert done.returncode == 0, done.stderr
    assert b"not marked" in done.stderr
    with soundfile.SoundFile(out) as file:
        assert len(file) / file.samplerate == pytest.approx(4.0, abs=DATA.hop_length / DATA.sample_rate)
        assert file.comment == ""
    sentences = json.loads(subtitles.read_text(encoding="utf-8"))["sentences"]
    assert [sentence["text"] for sentence in sentences] == ["Hello there.", "The fox!", "Again."]


def test_a_listener_may_leave_before_the_end(place: Path) -> None:
    command = [sys.executable, "-m", "myxtts", "synth", "Hello. " * 30, "--model", str(place / "bundle")]
    command += ["--voice", str(place / "voice.wav"), "--language", "en", "--out", "-"]
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
    rows = "id|language|text\ngreeting|en|Hello there.\nanimal|fa|روباه و سگ.\n"
    (place / "named.csv").write_text(rows, encoding="utf-8-sig")
    folder = place / "spoken"
    folder.mkdir()
    (folder / "animal.wav").write_bytes(b"old")
    arguments = ("--model", place / "bundle", "--voice", place / "voice.wav", "--out", folder)
    done = run_synth("--file", place / "named.csv", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert b"is overwritten" in done.stderr
    made = {Path(row["path"]).name: row["duration_s"] for row in json.loads(done.stdout)["files"]}
    assert set(made) == {path.name for path in folder.iterdir()} == {"animal.wav", "greeting.wav"}
    assert all(abs(soundfile.info(folder / name).duration - length) < 0.001 for name, length in made.items())


@pytest.fixture(scope="module")
def answers(place: Path) -> list[tuple[int, str, bool]]:
    commands = json.dumps([arguments for arguments, _, _ in MISTAKES])
    command = [sys.executable, "-c", TRY_ALL]
    environment = {**os.environ, "COLUMNS": "300"}
    done = subprocess.run(
        command, cwd=place, input=commands, capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.returncode == 0, done.stderr
    return [tuple(answer) for answer in json.loads(done.stdout.splitlines()[-1])]


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_mistakes_are_found_before_tensorflow_is_loaded(
    place: Path, answers: list[tuple[int, str, bool]], number: int
) -> None:
    _, code, words = MISTAKES[number]
    found_code, found_words, has_loaded = answers[number]
    assert found_code == code, found_words
    assert words in found_words
    assert not has_loaded
    assert not (place / "x.wav").exists()
