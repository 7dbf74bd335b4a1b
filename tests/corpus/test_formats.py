"""Each corpus format is recognised by itself and gives the rows its transcript states: one contract for all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from myxtts.config.choices import CorpusFormat
from myxtts.corpus.formats import FORMATS, find_format
from myxtts.corpus.formats.base import Row, Source
from myxtts.corpus.rejections import Reason, Rejection
from myxtts.corpus.transcripts import CorpusRoot
from myxtts.errors import DataError, UsageError

Fields = tuple[str, str, str, str, str, str | None]


def touch(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def make_ljspeech(folder: Path) -> list[Fields]:
    touch(folder / "wavs/A1.wav")
    touch(folder / "wavs/A2.flac")
    touch(folder / "metadata.csv", "A1|Dr. One|Doctor One\nA2|Two, |Two,\n")
    return [
        ("A1", "wavs/A1.wav", "Doctor One", "speaker", "en", None),
        ("A2", "wavs/A2.flac", "Two,", "speaker", "en", None),
    ]


def make_ljspeech_narrow(folder: Path) -> list[Fields]:
    touch(folder / "wavs/A1.wav")
    touch(folder / "metadata.csv", "A1|One sentence\nA2|Another\n")
    return [
        ("A1", "wavs/A1.wav", "One sentence", "speaker", "en", None),
        ("A2", "wavs/A2.wav", "Another", "speaker", "en", None),
    ]


def make_piper(folder: Path) -> list[Fields]:
    touch(folder / "wav/x1.ogg")
    touch(folder / "metadata.csv", "x1|anna|Good morning to you\nx2|bert|Good night to all of you\n")
    return [
        ("x1", "wav/x1.ogg", "Good morning to you", "anna", "en", None),
        ("x2", "wav/x2.wav", "Good night to all of you", "bert", "en", None),
    ]


def make_coqui(folder: Path) -> list[Fields]:
    touch(folder / "metadata_train.csv", "audio_file|text|speaker_name\nwavs/c1.wav|Hello there|coq\n")
    touch(folder / "metadata_eval.csv", "audio_file|text|speaker_name\nwavs/c2.wav|Bye there|coq\n")
    touch(folder / "wavs/c1.wav")
    return [
        ("c2", "wavs/c2.wav", "Bye there", "coq", "en", "val"),
        ("c1", "wavs/c1.wav", "Hello there", "coq", "en", "train"),
    ]


def make_vctk(folder: Path) -> list[Fields]:
    touch(folder / "txt/p225/p225_001.txt", "Please call Stella.\n")
    touch(folder / "wav48_silence_trimmed/p225/p225_001_mic1.flac")
    touch(folder / "txt/p226/p226_002.txt", "Ask her to bring these things.")
    touch(folder / "wav48_silence_trimmed/p226/p226_002_mic2.flac")
    audio = "wav48_silence_trimmed"
    return [
        ("p225_001", f"{audio}/p225/p225_001_mic1.flac", "Please call Stella.", "p225", "en", None),
        ("p226_002", f"{audio}/p226/p226_002_mic2.flac", "Ask her to bring these things.", "p226", "en", None),
    ]


def make_libritts(folder: Path) -> list[Fields]:
    for subset, stem in (("dev-clean", "84_121123_000007_000000"), ("train-clean-100", "103_1240_000000_000001")):
        speaker, chapter, *_ = stem.split("_")
        place = folder / subset / speaker / chapter
        touch(place / f"{stem}.normalized.txt", f"Normal {speaker}")
        touch(place / f"{stem}.original.txt", f"Original {speaker}")
        touch(place / f"{stem}.wav")
    return [
        ("84_121123_000007_000000", "dev-clean/84/121123/84_121123_000007_000000.wav", "Normal 84", "84", "en", "val"),
        (
            "103_1240_000000_000001",
            "train-clean-100/103/1240/103_1240_000000_000001.wav",
            "Normal 103",
            "103",
            "en",
            "train",
        ),
    ]


def make_commonvoice(folder: Path) -> list[Fields]:
    heading = "client_id\tpath\tsentence\tup_votes\tlocale\n"
    touch(folder / "train.tsv", heading + 'abc\tcv_1.mp3\tسلام "دنیا"\t2\tfa\n')
    touch(folder / "dev.tsv", heading + "def\tcv_2.mp3\tبله\t2\tfa\n")
    touch(folder / "validated.tsv", heading + "abc\tcv_1.mp3\tسلام دنیا\t2\tfa\n")
    touch(folder / "clips/cv_1.mp3")
    return [
        ("cv_1", "clips/cv_1.mp3", 'سلام "دنیا"', "abc", "fa", "train"),
        ("cv_2", "clips/cv_2.mp3", "بله", "def", "fa", "val"),
    ]


def make_csv_manifest(folder: Path) -> list[Fields]:
    rows = 'id,audio,text,speaker,language\nm1,x/m1.wav,"Well, yes",ann,de\nm2,x/m2.wav,No,ben,\n'
    touch(folder / "manifest.csv", rows)
    return [("m1", "x/m1.wav", "Well, yes", "ann", "de", None), ("m2", "x/m2.wav", "No", "ben", "en", None)]


def make_jsonl_manifest(folder: Path) -> list[Fields]:
    rows = [
        {"audio_filepath": "a/1.wav", "text": "One", "duration": 1.5},
        {"id": 7, "audio": "b/1.wav", "text": "Two", "speaker": 3, "language": "fa"},
    ]
    touch(folder / "train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return [("a/1", "a/1.wav", "One", "speaker", "en", "train"), ("7", "b/1.wav", "Two", "3", "fa", "train")]


def make_pairs(folder: Path) -> list[Fields]:
    touch(folder / "anna/001.wav")
    touch(folder / "anna/001.txt", "Good morning\nto you.\n")
    touch(folder / "bert/part one/001.flac")
    touch(folder / "bert/part one/001.txt", "Good night.")
    touch(folder / "lost.txt", "Nobody says this.")
    touch(folder / "README.txt", "About these recordings.")
    return [
        ("anna/001", "anna/001.wav", "Good morning to you.", "anna", "en", None),
        ("bert/part one/001", "bert/part one/001.flac", "Good night.", "bert", "en", None),
        ("lost", "lost.wav", "Nobody says this.", "speaker", "en", None),
    ]


def make_pairs_apart(folder: Path) -> list[Fields]:
    touch(folder / "txt/001.txt", "Good morning.")
    touch(folder / "wavs/001.WAV")
    touch(folder / "txt/002.txt", "Good night.")
    return [
        ("001", "wavs/001.WAV", "Good morning.", "speaker", "en", None),
        ("002", "txt/002.wav", "Good night.", "speaker", "en", None),
    ]


def make_pairs_by_split(folder: Path) -> list[Fields]:
    for split in ("train", "dev"):
        touch(folder / f"{split}/anna/1.wav")
        touch(folder / f"{split}/anna/1.txt", f"Said in {split}.")
    return [
        ("dev/anna/1", "dev/anna/1.wav", "Said in dev.", "anna", "en", "val"),
        ("train/anna/1", "train/anna/1.wav", "Said in train.", "anna", "en", "train"),
    ]


def make_aliases(folder: Path) -> list[Fields]:
    touch(
        folder / "list.csv", "Wav-Path,spk,Sentence,locale,Normalized Text\nx/m1.wav,ann,Yes,de,Yea\nx/m2.wav,,No,,\n"
    )
    return [("x/m1", "x/m1.wav", "Yes", "ann", "de", None), ("x/m2", "x/m2.wav", "No", "speaker", "en", None)]


def make_other_audio(folder: Path) -> list[Fields]:
    for name in ("a.aiff", "b.w64", "c.webm"):
        touch(folder / "wavs" / name)
    touch(folder / "metadata.csv", "a|One sentence\nb|Another\nc|A third\nd.webm|A fourth\n")
    return [
        ("a", "wavs/a.aiff", "One sentence", "speaker", "en", None),
        ("b", "wavs/b.w64", "Another", "speaker", "en", None),
        ("c", "wavs/c.webm", "A third", "speaker", "en", None),
        ("d.webm", "wavs/d.webm", "A fourth", "speaker", "en", None),
    ]


CORPORA: dict[str, tuple[str, Callable[[Path], list[Fields]]]] = {
    "ljspeech with three columns": ("ljspeech", make_ljspeech),
    "ljspeech with two columns": ("ljspeech", make_ljspeech_narrow),
    "piper": ("piper", make_piper),
    "coqui": ("coqui", make_coqui),
    "vctk": ("vctk", make_vctk),
    "libritts": ("libritts", make_libritts),
    "common voice": ("commonvoice", make_commonvoice),
    "csv manifest": ("manifest", make_csv_manifest),
    "jsonl manifest": ("manifest", make_jsonl_manifest),
    "other names of columns, in the only table": ("manifest", make_aliases),
    "recordings of other formats": ("ljspeech", make_other_audio),
    "pairs": ("pairs", make_pairs),
    "pairs in two folders": ("pairs", make_pairs_apart),
    "pairs by split": ("pairs", make_pairs_by_split),
}


def read_rows(path: Path, name: str = "auto") -> list[Row | Rejection]:
    fmt, _ = find_format(path, name)
    folder = path if path.is_dir() else path.parent
    return list(fmt.read(Source(path, CorpusRoot(folder), "en")))


@pytest.mark.parametrize("case", CORPORA)
def test_format_is_found_and_read(tmp_path: Path, case: str) -> None:
    name, make = CORPORA[case]
    expected = make(tmp_path)
    fmt, reason = find_format(tmp_path)
    assert fmt.name == name
    assert reason
    rows = read_rows(tmp_path)
    assert all(isinstance(row, Row) for row in rows)
    found = [
        (row.id, row.audio, row.text, row.speaker, row.language, row.split) for row in rows if isinstance(row, Row)
    ]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


@pytest.mark.parametrize("case", CORPORA)
def test_format_reads_the_same_when_asked_for_by_name(tmp_path: Path, case: str) -> None:
    name, make = CORPORA[case]
    make(tmp_path)
    assert read_rows(tmp_path, name) == read_rows(tmp_path)


@pytest.mark.parametrize("case", CORPORA)
def test_rows_name_an_existing_file_and_line(tmp_path: Path, case: str) -> None:
    CORPORA[case][1](tmp_path)
    for row in read_rows(tmp_path):
        lines = (tmp_path / row.file).read_text(encoding="utf-8").splitlines()
        assert 1 <= row.line <= len(lines)


def test_every_format_is_covered() -> None:
    assert {name for name, _ in CORPORA.values()} == {fmt.name for fmt in FORMATS}


def test_every_format_can_be_chosen_in_the_configuration() -> None:
    assert set(get_args(CorpusFormat)) == {"auto", *(fmt.name for fmt in FORMATS)}


def test_transcript_can_be_named_itself(tmp_path: Path) -> None:
    touch(tmp_path / "my list.csv", "id|text\na|Hello there\n")
    (row,) = read_rows(tmp_path / "my list.csv")
    assert isinstance(row, Row)
    assert (row.id, row.audio, row.text) == ("a", "a.wav", "Hello there")


def test_phonemes_column_is_kept_as_it_is(tmp_path: Path) -> None:
    touch(tmp_path / "manifest.csv", "id|text|phonemes\na|Hi|hˈaɪ\n")
    (row,) = read_rows(tmp_path)
    assert isinstance(row, Row)
    assert row.phonemes == "hˈaɪ"


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("A1|one|one\nA2\nA3|x|x\n", 2, Reason.MISSING_COLUMN),
        ("A1|one|one\nA2|only raw\nA3|x|x\n", 2, Reason.MISSING_COLUMN),
        ("A1|one|one\nA2|a|b|c\nA3|x|x\n", 2, Reason.BAD_LINE),
        ("id,audio,text\na,a.wav,hello\nb,b.wav\n", 3, Reason.MISSING_COLUMN),
        ("id,audio,text\n,,hello\n", 2, Reason.MISSING_COLUMN),
        ("id|text|split\na|hello|somewhere\n", 2, Reason.BAD_LINE),
    ],
)
def test_bad_line_of_a_table_is_named(tmp_path: Path, content: str, line: int, reason: Reason) -> None:
    touch(tmp_path / "metadata.csv", content)
    rejections = [row for row in read_rows(tmp_path) if isinstance(row, Rejection)]
    assert [(rejection.line, rejection.reason) for rejection in rejections] == [(line, reason)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", Reason.BAD_LINE),
        ("[1]", Reason.BAD_LINE),
        ('{"audio": "a.wav"}', Reason.MISSING_COLUMN),
        ('{"text": "hello"}', Reason.MISSING_COLUMN),
        ('{"audio": "a.wav", "text": 5}', Reason.BAD_LINE),
        ('{"audio": "a.wav", "text": ' + "[" * 100_000 + "}", Reason.BAD_LINE),
        ('{"audio": "a.wav", "text": ' + "9" * 5000 + "}", Reason.BAD_LINE),
    ],
)
def test_bad_line_of_jsonl_is_named(tmp_path: Path, content: str, reason: Reason) -> None:
    touch(tmp_path / "manifest.jsonl", '{"audio": "ok.wav", "text": "fine"}\n' + content + "\n")
    good, bad = read_rows(tmp_path)
    assert isinstance(good, Row)
    assert isinstance(bad, Rejection)
    assert (bad.line, bad.reason) == (2, reason)


def test_unknown_layout_lists_the_known_ones(tmp_path: Path) -> None:
    touch(tmp_path / "notes.md")
    with pytest.raises(DataError, match=r"no transcript and no recordings[\s\S]*libritts"):
        find_format(tmp_path)


def test_recordings_without_a_transcript_are_counted(tmp_path: Path) -> None:
    for number in range(3):
        touch(tmp_path / f"{number}.m4a")
    with pytest.raises(DataError, match=r"3 recordings, but no transcript[\s\S]*ID.txt beside ID.wav") as error:
        find_format(tmp_path)
    assert f"myxtts collect {tmp_path} --out CORPUS" in error.value.next_step


def test_empty_folder_is_called_empty(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is empty"):
        find_format(tmp_path)


def test_corpus_one_folder_below_is_pointed_to(tmp_path: Path) -> None:
    make_ljspeech(tmp_path / "LJSpeech-1.1")
    with pytest.raises(DataError, match=r"is no corpus, but .*LJSpeech-1.1 is one \(ljspeech\)"):
        find_format(tmp_path)


def test_prepared_corpus_is_recognised(tmp_path: Path) -> None:
    touch(tmp_path / "corpus.jsonl", "{}")
    with pytest.raises(DataError, match=r"is a prepared corpus already.*or name the recordings that it was made of"):
        find_format(tmp_path)


def test_file_that_is_no_transcript_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a.wav is no transcript: those end in .csv"):
        find_format(touch(tmp_path / "a.wav"))


@pytest.mark.parametrize(
    ("name", "content", "missing", "hint"),
    [
        ("metadata.csv", "wav_pth,spk,words\na.wav,ann,Hello\n", "audio (or id) and text", "'wav_pth' may mean audio"),
        ("metadata.csv", "wav_path|spk|sentense\na.wav|ann|Hello\n", "text", "'sentense' may mean text"),
        ("list.tsv", "clip\tspeaker\nx\ty\n", "text", "'clip', 'speaker'"),
        ("list.csv", "a;b;c\n1;2;3\n", "audio (or id) and text", "'a', 'b', 'c'"),
    ],
)
def test_unknown_columns_are_named_with_the_nearest_known_one(
    tmp_path: Path, name: str, content: str, missing: str, hint: str
) -> None:
    touch(tmp_path / name, content)
    with pytest.raises(DataError) as caught:
        find_format(tmp_path)
    assert f"{missing} cannot be found" in caught.value.problem
    assert hint in caught.value.problem


def test_unknown_keys_of_json_lines_are_named(tmp_path: Path) -> None:
    touch(tmp_path / "a.jsonl", '{"sound": "a.wav", "words": "Hello"}\n')
    (bad,) = read_rows(tmp_path)
    assert isinstance(bad, Rejection)
    assert bad.detail.startswith("the object has sound, words:")


def test_two_tables_of_any_name_are_ambiguous(tmp_path: Path) -> None:
    touch(tmp_path / "a.csv", "id,text\n1,One\n")
    touch(tmp_path / "b.csv", "id,text\n1,One\n")
    with pytest.raises(DataError, match=r"several files that may be its transcript: a.csv, b.csv"):
        find_format(tmp_path)


def test_unknown_format_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="piper"):
        find_format(tmp_path, "pipper")


def test_nothing_there_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing at"):
        find_format(tmp_path / "missing")


def test_transcript_that_links_out_of_the_folder_is_not_opened(tmp_path: Path) -> None:
    touch(tmp_path / "secret.csv", "id|text\na|secret\n")
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "metadata.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(DataError, match="leads out"):
        find_format(tmp_path / "corpus")
