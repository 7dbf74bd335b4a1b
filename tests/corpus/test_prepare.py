"""Fifty planted defects of every kind are found, each with file, line and reason, and no good clip is lost."""

from __future__ import annotations

import csv
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from myxtts.config.schema import DataConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.prepare import Recordings, Summary, prepare_corpus
from myxtts.corpus.rejections import Reason, RejectionReport, describe_reasons
from myxtts.errors import BusyError, DataError, StorageError, UsageError
from myxtts.storage.atomic import lock_directory, plan_faults

RATE_HZ = 22050
CHARACTERS = DataConfig(text_frontend="characters", max_rejected_share=1.0)
GOOD_TEXTS = ("The quick brown fox jumps.", "Over the lazy dog, again.", "She sells sea shells here.")


class PlantedCorpus:
    """A manifest that grows line by line, remembering which lines are bad and why."""

    def __init__(self, folder: Path, make_clip: Callable[..., Any]) -> None:
        self.folder = folder
        self.good_ids: list[str] = []
        self.defects: list[tuple[int, Reason]] = []
        self._make_clip = make_clip
        self._lines = [b"id|audio|text|speaker|language\n"]
        (folder / "wavs").mkdir(parents=True)

    def write_clip(self, name: str, samples: Any = None, seconds: float = 2.0, **options: Any) -> Path:
        clip = self._make_clip(seconds, seed=len(self._lines)) if samples is None else samples
        path = self.folder / "wavs" / name
        soundfile.write(path, clip, RATE_HZ, **options)
        return path

    def add_line(self, raw: bytes, reason: Reason | None = None) -> None:
        self._lines.append(raw + b"\n")
        if reason is not None:
            self.defects.append((len(self._lines), reason))

    def add(
        self, id: str, audio: str | None = None, text: str = "A plain sentence.", reason: Reason | None = None
    ) -> None:
        audio = f"wavs/{id}.wav" if audio is None else audio
        self.add_line(f"{id}|{audio}|{text} {id if reason is None else ''}|anna|en".encode(), reason)

    def add_good(self, num: int) -> None:
        for _ in range(num):
            id = f"good{len(self._lines):03}"
            self.write_clip(f"{id}.wav")
            self.add(id)
            self.good_ids.append(id)

    def finish(self) -> None:
        (self.folder / "metadata.csv").write_bytes(b"".join(self._lines))


def plant_recording_defects(corpus: PlantedCorpus) -> None:
    for number in range(3):
        corpus.add(f"missing{number}", reason=Reason.MISSING_FILE)
        whole = corpus.write_clip(f"cut{number}.wav")
        whole.write_bytes(whole.read_bytes()[: 20_000 * (number + 1)])
        corpus.add(f"cut{number}", reason=Reason.TRUNCATED)
        corpus.add_good(1)
        corpus.write_clip(f"silent{number}.wav", np.zeros(RATE_HZ))
        corpus.add(f"silent{number}", reason=Reason.SILENT)
        corpus.write_clip(f"loud{number}.wav", np.clip(20 * np.sin(np.arange(RATE_HZ * 2) / (9 + number)), -1, 1))
        corpus.add(f"loud{number}", reason=Reason.CLIPPED)
        corpus.write_clip(f"short{number}.wav", seconds=0.1)
        corpus.add(f"short{number}", reason=Reason.TOO_SHORT)
        (corpus.folder / "wavs" / f"noise{number}.wav").write_bytes(np.random.default_rng(number).bytes(9000))
        corpus.add(f"noise{number}", reason=Reason.UNREADABLE)
    for number in range(2):
        corpus.write_clip(f"long{number}.flac", seconds=31.0 + number)
        corpus.add(f"long{number}", f"wavs/long{number}.flac", reason=Reason.TOO_LONG)
        (corpus.folder / "wavs" / f"empty{number}.wav").touch()
        corpus.add(f"empty{number}", reason=Reason.EMPTY)
        damaged = corpus.write_clip(f"damaged{number}.flac")
        content = bytearray(damaged.read_bytes())
        content[len(content) // 2] ^= 0xFF
        damaged.write_bytes(content)
        corpus.add(f"damaged{number}", f"wavs/damaged{number}.flac", reason=Reason.UNREADABLE)


def plant_transcript_defects(corpus: PlantedCorpus) -> None:
    corpus.add_good(1)
    for number in range(3):
        corpus.write_clip(f"cp{number}.wav")
        corpus.add_line(
            f"cp{number}|wavs/cp{number}.wav|سلام بر شما دوستان|anna|fa".encode("cp1256"), Reason.WRONG_ENCODING
        )
        corpus.add_line(f"column{number}|wavs/column{number}.wav".encode(), Reason.MISSING_COLUMN)
        corpus.add_line(f"nul{number}|wavs/nul.wav|te\0xt|anna|en".encode(), Reason.BAD_LINE)
        corpus.add(corpus.good_ids[number], text="Another text.", reason=Reason.DUPLICATE_ID)
        corpus.add(f"again{number}", f"wavs/{corpus.good_ids[number]}.wav", reason=Reason.DUPLICATE_AUDIO)
        copied = corpus.folder / "wavs" / f"copy{number}.wav"
        copied.write_bytes((corpus.folder / "wavs" / f"{corpus.good_ids[number]}.wav").read_bytes())
        corpus.add(f"copy{number}", reason=Reason.DUPLICATE_AUDIO)
        corpus.write_clip(f"mute{number}.wav")
        corpus.add(f"mute{number}", text=" … — !" if number else "", reason=Reason.EMPTY_TEXT)
        corpus.write_clip(f"symbol{number}.wav")
        corpus.add(f"symbol{number}", text="I am happy \N{GRINNING FACE} today", reason=Reason.UNKNOWN_SYMBOLS)
        corpus.write_clip(f"dense{number}.wav", seconds=0.5)
        corpus.add(f"dense{number}", text="far too many words for it " * 10, reason=Reason.TOO_MANY_TOKENS)
    secret = corpus.folder.parent / "secret.wav"
    soundfile.write(secret, np.ones(RATE_HZ), RATE_HZ)
    (corpus.folder / "wavs" / "link.wav").symlink_to(secret)
    for number, audio in enumerate(("../secret.wav", str(secret), "wavs/link.wav", "wavs/../../secret.wav")):
        corpus.add(f"outside{number}", audio, reason=Reason.OUTSIDE_ROOT)


@pytest.fixture
def planted(tmp_path: Path, make_clip: Callable[..., Any]) -> PlantedCorpus:
    corpus = PlantedCorpus(tmp_path / "planted", make_clip)
    corpus.add_good(5)
    plant_recording_defects(corpus)
    plant_transcript_defects(corpus)
    corpus.add_good(5)
    corpus.finish()
    return corpus


def prepare(path: Path, out: Path, data: DataConfig = CHARACTERS, **options: Any) -> Summary:
    return prepare_corpus([Recordings(path)], out, data, **options)


def test_fifty_planted_defects_are_found_and_no_good_clip_is_lost(planted: PlantedCorpus, tmp_path: Path) -> None:
    assert len(planted.defects) >= 50
    summary = prepare(planted.folder, tmp_path / "out")
    report = json.loads((tmp_path / "out" / "rejections.json").read_text(encoding="utf-8"))
    found = [(row["line"], row["reason"]) for row in report]
    assert found == [(line, str(reason)) for line, reason in planted.defects]
    assert all(row["file"] == "metadata.csv" and row["detail"] and row["what_to_do"] for row in report)
    kept = [utterance.id for utterance in open_corpus(tmp_path / "out").utterances()]
    assert kept == planted.good_ids
    assert summary.num_rejected == len(planted.defects)
    assert summary.num_utterances == len(planted.good_ids)


def test_report_for_spreadsheets_says_the_same(planted: PlantedCorpus, tmp_path: Path) -> None:
    prepare(planted.folder, tmp_path / "out")
    report = json.loads((tmp_path / "out" / "rejections.json").read_text(encoding="utf-8"))
    with (tmp_path / "out" / "rejections.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["id"], int(row["line"]), row["reason"]) for row in rows] == [
        (row["id"], row["line"], row["reason"]) for row in report
    ]


@pytest.mark.parametrize("num_threads", [1, 2, 4])
def test_result_does_not_depend_on_the_number_of_threads(
    planted: PlantedCorpus, tmp_path: Path, num_threads: int
) -> None:
    prepare(planted.folder, tmp_path / "one", num_threads=1)
    prepare(planted.folder, tmp_path / "many", num_threads=num_threads)
    for name in ("corpus.jsonl", "rejections.json", "rejections.csv", "frontend.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "many" / name).read_bytes()


def test_duplicate_id_names_both_lines(planted: PlantedCorpus, tmp_path: Path) -> None:
    prepare(planted.folder, tmp_path / "out")
    report = json.loads((tmp_path / "out" / "rejections.json").read_text(encoding="utf-8"))
    duplicates = [row for row in report if row["reason"] == "duplicate-id"]
    for row in duplicates:
        assert "metadata.csv:" in row["detail"]
        assert f"and {row['line']}" in row["detail"]


def test_strict_ends_with_an_error_and_keeps_the_former_corpus(ljspeech: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(ljspeech, out, strict=True)
    before = (out / "corpus.jsonl").read_bytes()
    (ljspeech / "wavs" / "LJ003.wav").unlink()
    with pytest.raises(DataError, match=r"1 of 20 utterances were rejected, and --strict is on:\s+1 missing-file"):
        prepare(ljspeech, out, strict=True)
    assert (out / "corpus.jsonl").read_bytes() == before
    assert json.loads((out / "rejections.json").read_text(encoding="utf-8"))[0]["id"] == "LJ003"


def test_corpus_with_nothing_usable_is_an_error(ljspeech: Path, tmp_path: Path) -> None:
    for path in (ljspeech / "wavs").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="None of 20 utterances"):
        prepare(ljspeech, tmp_path / "out")


@pytest.mark.parametrize("encoding", ["utf-16", "cp1256"])
@pytest.mark.parametrize("name", ["metadata.csv", "manifest.jsonl"])
def test_transcript_in_another_encoding_is_named_with_its_line(
    ljspeech: Path, tmp_path: Path, encoding: str, name: str
) -> None:
    (ljspeech / "metadata.csv").unlink()
    row = {"metadata.csv": "LJ000|سلام بر شما", "manifest.jsonl": '{"id": "LJ000", "text": "سلام بر شما"}'}[name]
    (ljspeech / name).write_bytes(f"{row}\n".encode(encoding))
    with pytest.raises(DataError, match=rf"{name}:1, .*(?i:iconv -f {encoding})"):
        prepare(ljspeech, tmp_path / "out")
    (rejection,) = json.loads((tmp_path / "out" / "rejections.json").read_text(encoding="utf-8"))
    assert (rejection["file"], rejection["line"], rejection["reason"]) == (name, 1, "wrong-encoding")


def test_too_many_rejections_are_an_error_that_can_be_allowed(ljspeech: Path, tmp_path: Path) -> None:
    for number in range(6):
        (ljspeech / "wavs" / f"LJ{number:03}.wav").unlink()
    usual = DataConfig(text_frontend="characters")
    with pytest.raises(DataError) as caught:
        prepare(ljspeech, tmp_path / "out", usual)
    message = str(caught.value)
    assert "6 of 20 utterances were rejected (30 %), more than the 25 % that are allowed" in message
    assert "6 missing-file: metadata.csv:1 (LJ000), there is no 'wavs/LJ000.wav' in " in message
    assert "--max-rejected-share 1 accepts the rest" in message
    assert not (tmp_path / "out" / "corpus.jsonl").exists()
    assert len(json.loads((tmp_path / "out" / "rejections.json").read_text(encoding="utf-8"))) == 6
    allowed = DataConfig(text_frontend="characters", max_rejected_share=0.3)
    assert prepare(ljspeech, tmp_path / "out", allowed).num_rejected == 6


def test_text_in_another_script_is_refused_with_the_language(ljspeech: Path, tmp_path: Path) -> None:
    lines = "".join(f"LJ{number:03}|سلام، حال شما چطور است؟ {number}\n" for number in range(20))
    (ljspeech / "metadata.csv").write_text(lines, encoding="utf-8")
    with pytest.raises(DataError, match=r"20 wrong-script: metadata.csv:1 [\s\S]*--language fa"):
        prepare(ljspeech, tmp_path / "out", DataConfig(text_frontend="characters"))
    summary = prepare(ljspeech, tmp_path / "out", DataConfig(text_frontend="characters", language="farsi"))
    assert summary.languages == {"fa": 20}


def test_every_reason_is_among_the_examples(planted: PlantedCorpus, tmp_path: Path) -> None:
    summary = prepare(planted.folder, tmp_path / "out")
    assert {rejection.reason for rejection in summary.examples} == set(summary.reasons)
    lines = describe_reasons(summary.reasons, summary.examples)
    assert [int(line.split()[0]) for line in lines[:-1]] == sorted(summary.reasons.values(), reverse=True)[:8]
    assert all(": metadata.csv:" in line for line in lines[:-1])


def move_recordings(ljspeech: Path, to: Path) -> Path:
    to.parent.mkdir(parents=True, exist_ok=True)
    (ljspeech / "wavs").rename(to)
    return to


def test_moved_recordings_are_named_with_the_flag_that_finds_them(ljspeech: Path, tmp_path: Path) -> None:
    place = move_recordings(ljspeech, tmp_path / "elsewhere" / "sound")
    with pytest.raises(DataError, match=rf"None of 20 [\s\S]*--audio-root {place}\."):
        prepare(ljspeech, tmp_path / "out")
    summary = prepare_corpus([Recordings(ljspeech, audio_root=place)], tmp_path / "out", CHARACTERS)
    assert summary.num_utterances == 20


@pytest.mark.parametrize("flat", [True, False])
def test_audio_root_wins_over_a_folder_beside_the_transcript(ljspeech: Path, tmp_path: Path, flat: bool) -> None:
    place = move_recordings(ljspeech, tmp_path / "elsewhere" / "wavs")
    (ljspeech / "audio").mkdir()
    root = place if flat else place.parent
    summary = prepare_corpus([Recordings(ljspeech, audio_root=root)], tmp_path / "out", CHARACTERS)
    assert summary.num_utterances == 20
    assert all(str(place) in utterance.audio for utterance in open_corpus(tmp_path / "out").utterances())


@pytest.mark.parametrize("old", ["/old/place/of/it/wavs/", "D:\\data\\wavs\\", "/old/"])
def test_absolute_paths_of_a_moved_corpus_are_read_by_their_last_parts(
    ljspeech: Path, tmp_path: Path, old: str
) -> None:
    lines = "".join(f"LJ{number:03}|{old}LJ{number:03}.wav|Sentence {number} is here.\n" for number in range(20))
    (ljspeech / "metadata.csv").write_text("id|audio|text\n" + lines, encoding="utf-8")
    summary = prepare(ljspeech, tmp_path / "out")
    assert summary.num_utterances == 20
    written = re.escape(old.replace("\\", "/"))
    assert any(re.search(rf"{written}LJ\d+.wav; they were found by their names", note) for note in summary.notes)


def test_recordings_outside_are_named_with_their_folder(ljspeech: Path, tmp_path: Path) -> None:
    place = move_recordings(ljspeech, tmp_path / "elsewhere" / "sound")
    lines = "".join(f"LJ{number:03}|{place}/LJ{number:03}.wav|Sentence {number}.\n" for number in range(20))
    (ljspeech / "metadata.csv").write_text("id|audio|text\n" + lines, encoding="utf-8")
    with pytest.raises(DataError, match=rf"20 outside-corpus[\s\S]*prepare --audio-root {place}\."):
        prepare(ljspeech, tmp_path / "out")


def test_folders_that_are_none_are_refused_with_their_flag(ljspeech: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no folder .*nowhere \(--audio-root\)"):
        prepare_corpus([Recordings(ljspeech, audio_root=tmp_path / "nowhere")], tmp_path / "out", CHARACTERS)
    with pytest.raises(UsageError, match=r"metadata.csv is a file[\s\S]*--out"):
        prepare(ljspeech, ljspeech / "metadata.csv")


def test_recording_converted_beside_the_named_one_is_read(ljspeech: Path, tmp_path: Path) -> None:
    lines = "".join(f"LJ{number:03}|wavs/LJ{number:03}.webm|Sentence {number}.\n" for number in range(20))
    (ljspeech / "metadata.csv").write_text("id|audio|text\n" + lines, encoding="utf-8")
    (ljspeech / "wavs" / "LJ000.webm").write_bytes(b"\x1a\x45\xdf\xa3" + bytes(100))
    (ljspeech / "wavs" / "LJ001.wav").unlink()
    (ljspeech / "wavs" / "LJ001.webm").write_bytes(b"\x1a\x45\xdf\xa3" + bytes(100))
    summary = prepare(ljspeech, tmp_path / "out")
    assert summary.num_utterances == 19
    assert summary.reasons == {"unsupported-format": 1}


@pytest.mark.parametrize("field", ["id", "audio", "text", "speaker", "language", "phonemes"])
def test_half_of_a_character_in_json_lines_is_a_bad_line(ljspeech: Path, tmp_path: Path, field: str) -> None:
    rows: list[dict[str, str]] = [{"id": f"LJ{number:03}", "text": f"Sentence {number}."} for number in range(20)]
    rows[3][field] = f"{rows[3].get(field, '')}\ud83d"
    (ljspeech / "metadata.csv").unlink()
    (ljspeech / "all.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    summary = prepare(ljspeech, tmp_path / "out")
    assert summary.num_utterances == 19
    (rejection,) = json.loads((tmp_path / "out" / "rejections.json").read_text(encoding="utf-8"))
    assert (rejection["line"], rejection["reason"]) == (4, "bad-line")
    assert "half of a character" in rejection["detail"]


def test_name_of_a_file_that_is_not_utf8_ends_nothing(ljspeech: Path, tmp_path: Path) -> None:
    (ljspeech / "wavs" / "LJ000.wav").rename(ljspeech / "wavs" / os.fsdecode(b"\xe9t\xe9.wav"))
    summary = prepare(ljspeech, tmp_path / "out")
    assert summary.num_utterances == 19
    assert "named by no transcript line" in summary.notes[0]


def test_long_transcript_without_recordings_is_refused_early(tmp_path: Path) -> None:
    (tmp_path / "in" / "wavs").mkdir(parents=True)
    with (tmp_path / "in" / "metadata.csv").open("w", encoding="utf-8") as file:
        file.write("audio|text\n")
        file.writelines(f"/gone/to/some/other/place/{number}.wav|Some words.\n" for number in range(300_000))
    started = time.process_time()
    with pytest.raises(DataError, match="None of the first 5,000 utterances can be used"):
        prepare(tmp_path / "in", tmp_path / "out", DataConfig(text_frontend="phonemes"))
    assert time.process_time() - started < 20.0


def test_empty_transcript_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "in" / "wavs").mkdir(parents=True)
    (tmp_path / "in" / "manifest.csv").write_text("id|text\n", encoding="utf-8")
    with pytest.raises(DataError, match="no utterances"):
        prepare(tmp_path / "in", tmp_path / "out")


def test_recordings_without_a_line_are_mentioned(ljspeech: Path, tmp_path: Path, write_clip: Any) -> None:
    write_clip(ljspeech / "wavs" / "forgotten.wav", seed=99)
    (note,) = prepare(ljspeech, tmp_path / "out").notes
    assert "1 recording is named by no transcript line" in note
    assert "wavs/forgotten.wav" in note


def test_nothing_is_left_behind_but_the_results(ljspeech: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / ".draft.myxtts-tmp").write_text("of a killed run")
    prepare(ljspeech, out)
    assert sorted(path.name for path in out.iterdir()) == [
        ".lock",
        "corpus.jsonl",
        "frontend.json",
        "rejections.csv",
        "rejections.json",
    ]


def test_a_report_whose_second_file_cannot_be_opened_leaves_nothing(tmp_path: Path) -> None:
    plan_faults("write:2:EIO")
    try:
        # The error holds on to the report: what is left is not what garbage collection would remove later.
        with pytest.raises(StorageError) as held, RejectionReport(tmp_path):
            pass
        assert list(tmp_path.iterdir()) == [], held
    finally:
        plan_faults("")


def test_second_writer_is_refused(ljspeech: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with lock_directory(out, "the first"), pytest.raises(BusyError, match="the first"):
        prepare(ljspeech, out)


def test_checking_headers_only_still_finds_what_headers_show(planted: PlantedCorpus, tmp_path: Path) -> None:
    summary = prepare(planted.folder, tmp_path / "out", headers_only=True)
    unseen = {"silent", "clipped"}
    expected = {str(reason) for _, reason in planted.defects} - unseen
    assert set(summary.reasons) == expected


# --- splits ---------------------------------------------------------------------------------------------------------


def test_spellings_of_one_language_are_one_language(tmp_path: Path, write_clip: Any) -> None:
    languages = ["en", "EN", "en-US", "english", "de_DE", "German", "Klingonisch"]
    lines = ["id|text|language\n"]
    for number, language in enumerate(languages):
        write_clip(tmp_path / "in" / "wavs" / f"u{number}.wav", seed=number)
        lines.append(f"u{number}|sentence {'abcdefg'[number]}|{language}\n")
    (tmp_path / "in" / "metadata.csv").write_text("".join(lines), encoding="utf-8")
    summary = prepare(tmp_path / "in", tmp_path / "out")
    assert summary.languages == {"en": 4, "de": 2}
    assert summary.reasons == {"unknown-language": 1}
    assert "piqd" in summary.examples[0].detail


def test_a_corpus_in_capitals_is_noticed(tmp_path: Path, write_clip: Any) -> None:
    texts = ["WE CALL IT BEAR", "IT IS US", "A small one"]
    for number in range(len(texts)):
        write_clip(tmp_path / "in" / "wavs" / f"u{number}.wav", seed=number)
    lines = [f"u{number}|{text}\n" for number, text in enumerate(texts)]
    (tmp_path / "in" / "metadata.csv").write_text("".join(["id|text\n", *lines]), encoding="utf-8")
    summary = prepare(tmp_path / "in", tmp_path / "out")
    assert [note for note in summary.notes if "2 of 3 texts are all in capitals" in note]
    assert {utterance.text for utterance in open_corpus(tmp_path / "out").utterances()} == set(texts)


def test_half_a_character_is_named(tmp_path: Path, write_clip: Any) -> None:
    rows = [{"id": "a", "audio": "a.wav", "text": "half \ud83d"}, {"id": "b", "audio": "b.wav", "text": "whole"}]
    for row in rows:
        write_clip(tmp_path / "in" / row["audio"], seed=ord(row["id"]))
    (tmp_path / "in" / "manifest.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    summary = prepare(tmp_path / "in" / "manifest.jsonl", tmp_path / "out")
    assert (summary.num_utterances, summary.num_rejected) == (1, 1)
    assert r"\ud83d" in summary.examples[0].detail


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"id": "LJ003"', '"id": "LJ003", "id": "LJ003"', "'id' twice"),
        ('"id": "LJ003"', '"id": "LJ003", "\\u0069d": "LJ003"', "'id' twice"),
        ('"num_channels": 1', '"num_channels": true', "num_channels should be a valid integer"),
        ('"num_samples": 33075', '"num_samples": 33075000000000', "more than a day"),
        ('"num_samples": 33075', '"num_samples": -1', "num_samples should be greater"),
        ('"speaker": "', '"speaker": "\\ud800', "it is not JSON"),
        ('"checksum": ', '"checksum": [', ""),
    ],
)
def test_an_altered_line_of_a_corpus_is_named(ljspeech: Path, tmp_path: Path, old: str, new: str, words: str) -> None:
    prepare_corpus([Recordings(ljspeech)], tmp_path / "corpus", DataConfig(text_frontend="characters"))
    file = tmp_path / "corpus" / "corpus.jsonl"
    lines = file.read_text("utf-8").splitlines(keepends=True)
    number = next(number for number, line in enumerate(lines) if '"LJ003"' in line)
    assert old in lines[number], lines[number]
    lines[number] = lines[number].replace(old, new, 1)
    file.write_text("".join(lines), encoding="utf-8")
    with pytest.raises(DataError, match=f"corpus.jsonl:{number + 1} .*{words}") as caught:
        list(open_corpus(file).utterances())
    assert "myxtts prepare" in caught.value.next_step
