"""`myxtts collect` as a user meets it: real speech of espeak-ng, real processes, real kills."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile
from tests.myxtts_process import run_myxtts
from tests.synthesis.small_models import write_small_bundle
from tests.tools.collect.spoken import ENGLISH, PERSIAN, RATE_HZ, SpokenBook, speak

from myxtts.config.schema import DataConfig
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.text.espeak import is_espeak_available

pytestmark = pytest.mark.skipif(not is_espeak_available(), reason="the speech is made by the extra espeak")


def run_collect(*arguments: str | Path, fault: str = "") -> subprocess.CompletedProcess[str]:
    return run_myxtts("collect", *arguments, env={"COLUMNS": "300", "MYXTTS_FAULT": fault})


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_files(corpus: Path) -> dict[str, bytes]:
    """All files that a user sees, by name."""
    files = (file for file in corpus.rglob("*") if file.is_file() and ".collect" not in file.parts)
    return {str(file.relative_to(corpus)): file.read_bytes() for file in files if file.name != ".lock"}


@pytest.fixture(scope="module")
def book() -> SpokenBook:
    return speak(ENGLISH, "en-us")


@pytest.fixture(scope="module")
def recording(book: SpokenBook, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return book.write(tmp_path_factory.mktemp("recordings") / "book.flac")


@pytest.fixture(scope="module")
def text(recording: Path) -> Path:
    path = recording.with_suffix(".txt")
    path.write_text("\n".join(ENGLISH), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def corpus(recording: Path, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of the book and its text."""
    out = tmp_path_factory.mktemp("corpus")
    done = run_collect(recording, "--out", out, "--text", text)
    assert done.returncode == 0, done.stderr
    return out


def is_quiet(book: SpokenBook, place_s: float) -> bool:
    return not any(start < place_s < end for start, end in book.places)


def test_cuts_lie_in_pauses_and_no_speech_is_lost(corpus: Path, book: SpokenBook) -> None:
    rows = read_rows(corpus / "manifest.jsonl")
    for row in rows:
        assert is_quiet(book, row["start_s"])
        assert is_quiet(book, row["end_s"])
        assert 2.0 <= row["end_s"] - row["start_s"] <= 12.25
        samples, rate = soundfile.read(corpus / row["audio"])
        assert rate == RATE_HZ
        assert len(samples) / rate == pytest.approx(row["end_s"] - row["start_s"], abs=0.01)
    for start, end in book.places:
        assert any(row["start_s"] <= start and end <= row["end_s"] for row in rows)


def test_other_voices_are_flagged_and_do_not_get_into_clips_of_the_main_one(tmp_path: Path) -> None:
    main, other = speak(ENGLISH, "en-us", variant="f3"), speak(ENGLISH[:3], "en-us", variant="m7")
    samples = np.concatenate([main.samples, other.samples, main.samples])
    first_s, last_s = (len(part) / RATE_HZ for part in (main.samples, samples[: -len(main.samples)]))
    recording = SpokenBook(samples, []).write(tmp_path / "talk.flac")
    bundle = write_small_bundle(tmp_path / "small")
    options = ("--out", tmp_path / "out", "--voice-model", bundle)
    done = run_myxtts("collect", recording, *options, tensorflow=True)
    assert done.returncode == 0, done.stderr
    used = read_rows(tmp_path / "out/manifest.jsonl")
    assert not [row for row in used if row["end_s"] > first_s + 0.7 and row["start_s"] < last_s]
    places = [(start + offset, end + offset) for offset in (0.0, last_s) for start, end in main.places]
    is_used = [any(row["start_s"] <= start and end <= row["end_s"] for row in used) for start, end in places]
    assert sum(is_used) >= 0.75 * len(places)
    strangers = read_rows(tmp_path / "out/doubtful.jsonl")
    assert any(row["doubt"].startswith("other-voice") for row in strangers)


def test_sentences_are_found_to_within_150_ms(corpus: Path, book: SpokenBook) -> None:
    found = [(row["start_s"], row["end_s"]) for row in read_rows(corpus / "sentences.jsonl")]
    assert np.abs(np.array(found) - np.array(book.places)).max() < 0.15


def test_every_clip_has_the_text_that_is_spoken_in_it(corpus: Path, book: SpokenBook) -> None:
    for row in read_rows(corpus / "manifest.jsonl"):
        inside = [
            sentence
            for sentence, (start, end) in zip(ENGLISH, book.places, strict=True)
            if row["start_s"] <= start and end <= row["end_s"]
        ]
        assert row["text"] == " ".join(inside)


def test_prepare_reads_the_manifest(corpus: Path, tmp_path: Path) -> None:
    data = DataConfig(text_frontend="characters")
    summary = prepare_corpus([Recordings(corpus)], tmp_path / "prepared", data)
    assert (summary.num_utterances, summary.num_rejected) == (len(read_rows(corpus / "manifest.jsonl")), 0)


def test_persian_is_aligned_too(tmp_path: Path) -> None:
    book = speak(PERSIAN, "fa", variant="m3", noise=0.003)
    path = book.write(tmp_path / "ketab.wav")
    text = tmp_path / "text" / "ketab.txt"
    text.parent.mkdir()
    text.write_text(" ".join(PERSIAN), encoding="utf-8")
    done = run_collect(path, "--out", tmp_path / "corpus", "--text", text.parent, "--language", "farsi")
    assert done.returncode == 0, done.stderr
    found = read_rows(tmp_path / "corpus" / "sentences.jsonl")
    assert [row["text"] for row in found] == list(PERSIAN)
    errors = np.abs(np.array([(row["start_s"], row["end_s"]) for row in found]) - np.array(book.places))
    assert (errors < 0.15).mean() >= 0.95
    assert {row["language"] for row in read_rows(tmp_path / "corpus" / "manifest.jsonl")} == {"fa"}


@pytest.mark.parametrize("fault", ["scan:1:kill", "replace:5:kill", "sync_directory:9:kill"])
def test_a_killed_start_goes_on_and_ends_with_the_same_files(
    corpus: Path, recording: Path, text: Path, tmp_path: Path, fault: str
) -> None:
    arguments = (recording, "--out", tmp_path, "--text", text)
    assert run_collect(*arguments, fault=fault).returncode == -signal.SIGKILL
    assert run_collect(*arguments).returncode == 0
    assert read_files(tmp_path) == read_files(corpus)


def test_a_wrong_sentence_is_doubted_and_not_used(recording: Path, tmp_path: Path) -> None:
    wrong = list(ENGLISH)
    wrong[4] = "Seventy thousand people voted against bigger airports."
    (tmp_path / "text.txt").write_text("\n".join(wrong), encoding="utf-8")
    assert run_collect(recording, "--out", tmp_path / "corpus", "--text", tmp_path / "text.txt").returncode == 0
    (doubtful,) = (
        row for row in read_rows(tmp_path / "corpus" / "doubtful.jsonl") if row["doubt"].startswith("doubtful-text")
    )
    assert doubtful["text"] == wrong[4]
    assert all(wrong[4] not in row["text"] for row in read_rows(tmp_path / "corpus" / "manifest.jsonl"))
    (rejection,) = json.loads((tmp_path / "corpus" / "rejections.json").read_text(encoding="utf-8"))
    assert (rejection["id"], rejection["reason"]) == (doubtful["id"], "doubtful-text")


def test_speech_outside_the_text_and_a_missing_sentence_do_not_spoil_their_neighbours(tmp_path: Path) -> None:
    """Two sentences are said that the text does not have, and the text has one that nobody says."""
    strange = ("Two tickets to the harbour, please, and a map.", "Our neighbours painted their fence on Sunday.")
    said = [*ENGLISH[:3], strange[0], *ENGLISH[3:7], strange[1], *ENGLISH[7:]]
    book = speak(said, "en-us")
    recording = book.write(tmp_path / "book.flac")
    (tmp_path / "text.txt").write_text(
        "\n".join([*ENGLISH[:5], "A silver aeroplane crossed the evening sky.", *ENGLISH[5:]]), encoding="utf-8"
    )
    assert run_collect(recording, "--out", tmp_path / "corpus", "--text", tmp_path / "text.txt").returncode == 0
    places = dict(zip(said, book.places, strict=True))
    found = {row["text"]: row for row in read_rows(tmp_path / "corpus" / "sentences.jsonl")}
    for sentence in ENGLISH:
        assert (found[sentence]["start_s"], found[sentence]["end_s"]) == pytest.approx(places[sentence], abs=0.15)
    assert found["A silver aeroplane crossed the evening sky."]["doubt"] == "it is not in the recording"
    used = read_rows(tmp_path / "corpus" / "manifest.jsonl")
    assert " ".join(row["text"] for row in used) == " ".join(ENGLISH)
    for start, end in (places[sentence] for sentence in strange):
        assert all(row["end_s"] <= start or row["start_s"] >= end for row in used)


def make_subtitles(book: SpokenBook) -> list[str]:
    return [
        f"{number}\n00:00:{start - 0.1:06.3f} --> 00:00:{end + 0.2:06.3f}\n<i>{sentence}</i>\n"
        for number, (sentence, (start, end)) in enumerate(zip(ENGLISH, book.places, strict=True), 1)
    ]


def test_speech_between_two_subtitles_gets_into_no_clip(book: SpokenBook, tmp_path: Path) -> None:
    recording = book.write(tmp_path / "talk.wav")
    cues = make_subtitles(book)
    (tmp_path / "talk.vtt").write_text("WEBVTT\n\n" + "\n".join(cues[:4] + cues[5:]), encoding="utf-8")
    done = run_collect(recording, "--out", tmp_path / "corpus")
    assert done.returncode == 0, done.stderr
    rows = read_rows(tmp_path / "corpus" / "manifest.jsonl")
    assert " ".join(row["text"] for row in rows) == " ".join(ENGLISH[:4] + ENGLISH[5:])
    start, end = book.places[4]
    assert all(row["end_s"] <= start or row["start_s"] >= end for row in rows)
    rejections = json.loads((tmp_path / "corpus" / "rejections.json").read_text(encoding="utf-8"))
    assert {rejection["reason"] for rejection in rejections} == {"empty-text"}
    assert "s of speech that no text belongs to" in rejections[0]["detail"]


def test_an_error_names_the_reasons_where_nothing_can_be_used(tmp_path: Path) -> None:
    for name in ("a", "b"):
        soundfile.write(tmp_path / f"{name}.wav", np.zeros(3 * RATE_HZ, np.float32), RATE_HZ)
    (tmp_path / "c.wav").touch()
    done = run_collect(tmp_path, "--out", tmp_path / "corpus")
    assert done.returncode == 3
    assert "2 silent: a.wav, at 0:00:00.0: there is no speech in it. Listen to it" in done.stderr
    assert "1 empty: c.wav, at 0:00:00.0: the file has no bytes." in done.stderr
    assert "--set" not in done.stderr, "collect has no such flag"


def test_subtitles_beside_the_recording_are_found(book: SpokenBook, tmp_path: Path) -> None:
    book.write(tmp_path / "in" / "talk.wav")
    (tmp_path / "in" / "talk.srt").write_text("\n".join(make_subtitles(book)), encoding="utf-8")
    done = run_collect(tmp_path / "in", "--out", tmp_path / "corpus")
    assert done.returncode == 0, done.stderr
    assert "talk.srt" in done.stderr
    rows = read_rows(tmp_path / "corpus" / "manifest.jsonl")
    assert " ".join(row["text"] for row in rows) == " ".join(ENGLISH)
    assert all(is_quiet(book, place) for row in rows for place in (row["start_s"], row["end_s"]))


RECOGNISER = """
import pathlib, sys
wav, language, log = sys.argv[1:]
with open(log, "a") as file: file.write(wav + "\\n")
if len(open(log).readlines()) == 3 and not pathlib.Path(log + ".second").exists():
    pathlib.Path(log + ".second").touch()
    sys.exit("out of memory")
print("words in " + language + " of a good length for a clip such as this one")
"""


def test_a_recogniser_that_fails_is_asked_only_for_the_rest(recording: Path, tmp_path: Path) -> None:
    program, log = tmp_path / "asr.py", tmp_path / "log"
    program.write_text(RECOGNISER, encoding="utf-8")
    command = f"{sys.executable} {program} {{wav}} {{language}} {log}"
    arguments = (recording, "--out", tmp_path / "corpus", "--asr-command", command, "--language", "English")
    first = run_collect(*arguments)
    assert first.returncode == 4
    assert "out of memory" in first.stderr
    assert run_collect(*arguments).returncode == 0
    asked = log.read_text(encoding="utf-8").splitlines()
    assert len(asked) == len(set(asked)) + 1
    rows = read_rows(tmp_path / "corpus" / "manifest.jsonl")
    assert {row["text"] for row in rows} == {"words in en of a good length for a clip such as this one"}


def test_without_texts_there_is_an_empty_manifest_that_is_not_overwritten(recording: Path, tmp_path: Path) -> None:
    done = run_collect(recording, "--out", tmp_path / "corpus", "--speaker", "anna", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert "--asr-command" in summary["next"]
    manifest = tmp_path / "corpus" / "manifest.jsonl"
    rows = read_rows(manifest)
    assert {(row["text"], row["speaker"]) for row in rows} == {("", "anna")}
    assert len(rows) == summary["num_clips"]
    written = manifest.read_bytes().replace(b'"text": ""', b'"text": "What was said."', 1)
    manifest.write_bytes(written)
    again = run_collect(recording, "--out", tmp_path / "corpus")
    assert again.returncode == 2
    assert "manifest.jsonl was changed after it was written" in again.stderr
    assert manifest.read_bytes() == written


def write_with_ffmpeg(path: Path, samples: np.ndarray[Any, np.dtype[np.float32]], codec: str) -> None:
    with av.open(path, "w") as container:
        stream = container.add_stream(codec, rate=48_000, layout="mono")
        assert isinstance(stream, av.AudioStream)
        resampler = av.AudioResampler(format="fltp", layout="mono", rate=48_000, frame_size=960)
        frame = av.AudioFrame.from_ndarray(samples[None], format="fltp", layout="mono")
        frame.sample_rate = RATE_HZ
        for part in [*resampler.resample(frame), *resampler.resample(None)]:
            container.mux(stream.encode(part))
        container.mux(stream.encode(None))


WRITERS: dict[str, Callable[[Path, Any], None]] = {
    ".mp3": lambda path, samples: soundfile.write(path, samples, RATE_HZ),
    ".ogg": lambda path, samples: soundfile.write(path, samples, RATE_HZ),
    ".m4a": lambda path, samples: write_with_ffmpeg(path, samples, "aac"),
    ".webm": lambda path, samples: write_with_ffmpeg(path, samples, "libopus"),
}


def test_every_format_gives_the_same_clips_and_a_broken_file_stops_nothing(book: SpokenBook, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    short = book.samples[: int((book.places[2][1] + 0.8) * RATE_HZ)]
    for suffix, write in WRITERS.items():
        write(folder / f"talk{suffix}", short)
    (folder / "broken.wav").write_bytes(b"RIFF\0\0\0\0WAVE")
    (folder / "broken.m4a").write_bytes(b"\0\0\0\x18ftypM4A " + bytes(100))
    done = run_collect(folder, "--out", tmp_path / "corpus", "--json")
    assert done.returncode == 0, done.stderr
    rows = read_rows(tmp_path / "corpus" / "manifest.jsonl")
    by_source = {
        source: [(row["start_s"], row["end_s"]) for row in rows if row["source"] == source]
        for source in {row["source"] for row in rows}
    }
    assert set(by_source) == {f"talk{suffix}" for suffix in WRITERS}
    expected = np.array(by_source["talk.ogg"])
    for places in by_source.values():
        np.testing.assert_allclose(np.array(places), expected, atol=0.12)
    rejections = json.loads((tmp_path / "corpus" / "rejections.json").read_text(encoding="utf-8"))
    assert {row["file"] for row in rejections} == {"broken.wav", "broken.m4a"}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nowhere"], 3, "There is nothing at nowhere"),
        (["BOOK", "--text", "TEXT", "--asr-command", "x {wav}"], 2, "one of --subtitles, --text and --asr-command"),
        (["BOOK", "--asr-command", "x"], 2, "does not say where the recording goes"),
        (["BOOK", "--min-seconds", "9", "--max-seconds", "3"], 2, "Clips of 9 to 3 s cannot be made"),
        (["BOOK", "--subtitles", "TEXT"], 3, "there is no subtitle in them"),
    ],
)
def test_mistakes_are_named(
    recording: Path, text: Path, tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    names = {"BOOK": str(recording), "TEXT": str(text)}
    done = run_collect(*(names.get(argument, argument) for argument in arguments), "--out", tmp_path / "corpus")
    assert done.returncode == code
    assert words in done.stderr
