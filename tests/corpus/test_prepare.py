"""Fifty planted defects of every kind are found, each with file, line and reason, and no good clip is lost."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from myxtts.config.schema import DataConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.prepare import Recordings, Summary, prepare_corpus
from myxtts.corpus.rejections import Reason, RejectionReport
from myxtts.errors import BusyError, DataError, StorageError, UsageError
from myxtts.storage.atomic import lock_directory, plan_faults

RATE_HZ = 22050
CHARACTERS = DataConfig(text_frontend="characters")
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
    with pytest.raises(DataError, match=r"1 utterances were rejected \(1 missing-file\)"):
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


@pytest.fixture
def speakers(tmp_path: Path, write_clip: Any) -> Path:
    """Five speakers reading the same eight sentences."""
    folder = tmp_path / "speakers"
    lines = ["id|text|speaker\n"]
    for speaker in range(5):
        for sentence in range(8):
            write_clip(folder / "wavs" / f"s{speaker}_{sentence}.wav", seed=100 * speaker + sentence, seconds=1.0)
            lines.append(f"s{speaker}_{sentence}|sentence {'abcdefgh'[sentence]}|speaker{speaker}\n")
    (folder / "metadata.csv").write_text("".join(lines), encoding="utf-8")
    return folder


def split_values(out: Path, key: str) -> tuple[set[str], set[str]]:
    corpus = open_corpus(out)
    train, val = ({getattr(u, key) for u in corpus.utterances(split)} for split in ("train", "val"))
    return train, val


@pytest.mark.parametrize(("split_by", "key"), [("speaker", "speaker"), ("text", "text"), ("utterance", "id")])
def test_split_keeps_apart_what_was_asked(speakers: Path, tmp_path: Path, split_by: str, key: str) -> None:
    data = CHARACTERS.model_copy(update={"split_by": split_by, "val_share": 0.2})
    prepare(speakers, tmp_path / "out", data)
    train, val = split_values(tmp_path / "out", key)
    assert train
    assert val
    assert not train & val


def test_split_has_the_share_asked_for_and_follows_the_seed(speakers: Path, tmp_path: Path) -> None:
    data = CHARACTERS.model_copy(update={"val_share": 0.25})
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert prepare(speakers, tmp_path / name, data, seed=seed).splits == {"train": 30, "val": 10}
    a, b, c = ((tmp_path / name / "corpus.jsonl").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_adding_an_utterance_does_not_reshuffle_the_split(speakers: Path, tmp_path: Path, write_clip: Any) -> None:
    data = CHARACTERS.model_copy(update={"val_share": 0.25})
    prepare(speakers, tmp_path / "before", data)
    write_clip(speakers / "wavs" / "extra.wav", seed=4711)
    with (speakers / "metadata.csv").open("a", encoding="utf-8") as file:
        file.write("extra|one more of them|speaker1\n")
    prepare(speakers, tmp_path / "after", data)
    before, after = (split_values(tmp_path / name, "id")[1] for name in ("before", "after"))
    assert len(before - after) <= 1


def test_split_by_speaker_needs_two_speakers(ljspeech: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two speakers"):
        prepare(ljspeech, tmp_path / "out", CHARACTERS.model_copy(update={"split_by": "speaker"}))


def test_sentence_read_twice_by_one_speaker_stays_on_one_side(tmp_path: Path, write_clip: Any) -> None:
    lines = ["id|text\n"]
    for number in range(40):
        write_clip(tmp_path / "in" / "wavs" / f"u{number}.wav", seed=number)
        lines.append(f"u{number}|text {'abcdefghijklmnopqrst'[number // 2]}\n")
    (tmp_path / "in" / "metadata.csv").write_text("".join(lines), encoding="utf-8")
    prepare(tmp_path / "in", tmp_path / "out", CHARACTERS.model_copy(update={"val_share": 0.3}))
    train, val = split_values(tmp_path / "out", "text")
    assert not train & val


@pytest.mark.parametrize("shared", ["id", "audio", "sentence"])
def test_leak_between_training_and_validation_names_both_places(tmp_path: Path, write_clip: Any, shared: str) -> None:
    folder = tmp_path / "in"
    for number in range(6):
        write_clip(folder / "wavs" / f"u{number}.wav", seed=number)
    leak = {
        "id": {"id": "u0", "audio": "wavs/u5.wav", "text": "different words"},
        "audio": {"id": "new", "audio": "wavs/u0.wav", "text": "different words"},
        "sentence": {"id": "new", "audio": "wavs/u5.wav", "text": "sentence a"},
    }[shared]
    rows = [{"id": f"u{n}", "audio": f"wavs/u{n}.wav", "text": f"sentence {'abcde'[n]}"} for n in range(4)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    valid = [{"id": "v", "audio": "wavs/u4.wav", "text": "only here"}, leak]
    (folder / "val.jsonl").write_text("".join(json.dumps(row) + "\n" for row in valid), encoding="utf-8")
    summary = prepare(folder, tmp_path / "out")
    (rejection,) = summary.examples
    assert rejection.reason is Reason.LEAK
    assert (rejection.file, rejection.line) == ("val.jsonl", 2)
    assert "train.jsonl:1" in rejection.detail
    assert summary.splits == {"train": 4, "val": 1}


def test_validation_folder_of_its_own(speakers: Path, ljspeech: Path, tmp_path: Path) -> None:
    inputs = [Recordings(speakers, split="train"), Recordings(ljspeech, split="val")]
    summary = prepare_corpus(inputs, tmp_path / "out", CHARACTERS)
    assert summary.splits == {"train": 40, "val": 20}
    first = next(open_corpus(tmp_path / "out").utterances("val"))
    assert first.audio == os.path.realpath(ljspeech / "wavs" / "LJ000.wav")


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
