"""Which utterances are kept for validation: what stays together, what moves when a corpus grows, and leaks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.corpus.test_prepare import CHARACTERS, prepare

from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.corpus.rejections import Reason
from myxtts.errors import UsageError


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
