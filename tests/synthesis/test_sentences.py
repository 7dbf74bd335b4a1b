"""Texts of any kind become pieces of bounded length that hold all their words, or an error in words."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myxtts.errors import DataError
from myxtts.synthesis.sentences import (
    CLAUSE_PAUSE_S,
    MAX_PIECE_TOKENS,
    MAX_TEXT_LENGTH,
    SENTENCE_PAUSE_S,
    check_text,
    cut_text,
    plan_pieces,
    read_texts,
)
from myxtts.text.frontend import FrontEnd

LETTERS = "abcdefghijklmnopqrstuvwxyz,.?! ابپتثجچحخدذرزژسشصضطظعغفقکگلمنوهی،؛؟"
FRONTEND = FrontEnd.create("characters", texts=[(LETTERS, "en")])


def list_texts(text: str, language: str = "en") -> list[str]:
    return [piece.text for piece in plan_pieces(check_text(text), language, FRONTEND)]


def test_sentences_are_pieces_and_abbreviations_end_none() -> None:
    assert list_texts("Dr. Smith came at noon. Did he? He did!") == ["Doctor Smith came at noon.", "Did he?", "He did!"]


def test_persian_marks_end_sentences() -> None:
    assert list_texts("سلام دنیا. حال شما چطور است؟ خوبم!", "fa") == ["سلام دنیا.", "حال شما چطور است؟", "خوبم!"]


def test_a_long_sentence_is_cut_behind_its_clauses() -> None:
    clause = "the river runs past the old mill and the quiet fields,"
    parts = list_texts(" ".join([clause] * 12))
    assert len(parts) > 1
    assert all(part.endswith(",") for part in parts)
    assert " ".join(parts) == " ".join([clause] * 12)


def test_persian_clauses_are_cut_too() -> None:
    clause = "رود از کنار آسیاب کهنه و دشت آرام می‌گذرد،"
    parts = list_texts(" ".join([clause] * 12), "fa")
    assert len(parts) > 1
    assert all(part.endswith("،") for part in parts)


def test_pauses_are_longer_between_sentences_than_inside_them() -> None:
    text = "One two three. " + "Word " * 100 + "now. End."
    pauses = [piece.pause_s for piece in plan_pieces(check_text(text), "en", FRONTEND)]
    assert pauses[0] == 0.0
    assert pauses[1] == SENTENCE_PAUSE_S
    assert CLAUSE_PAUSE_S in pauses[2:]


@given(st.text(alphabet="ab ,;،؛\u200c", max_size=400), st.integers(1, 60))
def test_cutting_keeps_every_character_and_the_limit(text: str, limit: int) -> None:
    parts = cut_text(text, limit)
    assert all(0 < len(part) <= limit for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


@settings(max_examples=200)
@given(st.text(max_size=300), st.sampled_from(["en", "fa", "de"]))
def test_any_text_becomes_pieces_or_an_error_in_words(text: str, language: str) -> None:
    try:
        pieces = list(plan_pieces(check_text(text), language, FRONTEND))
    except DataError as error:
        assert error.next_step  # noqa: PT017
        return
    assert pieces
    for piece in pieces:
        assert 2 < len(piece.ids) <= MAX_PIECE_TOKENS
        assert any(character.isalnum() for character in FRONTEND.tokenizer.decode(piece.ids))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        (" \n\t ", "is empty"),
        ("…?!", "no letter or figure"),
        ("\0\x07", "is empty"),
        ("broken \udc80 bytes", "half of a character"),
        ("x" * (MAX_TEXT_LENGTH + 1), "20,001 characters"),
        ("word " * 2_000_000, "10,000,000 characters"),
    ],
)
def test_a_text_that_cannot_be_said_is_refused_at_once(text: str, words: str) -> None:
    started = time.thread_time()
    with pytest.raises(DataError, match=words):
        check_text(text)
    assert time.thread_time() - started < 1.0


def test_a_text_in_another_script_is_refused_by_language() -> None:
    with pytest.raises(DataError, match="language 'en'"):
        list(plan_pieces(check_text("漢字漢字"), "en", FRONTEND))


def test_control_characters_and_mixed_scripts_are_said_around() -> None:
    pieces = list(plan_pieces(check_text("hello\0 wor\x1bld سلام 漢字 \u202eabc."), "en", FRONTEND))
    (piece,) = pieces
    assert FRONTEND.tokenizer.decode(piece.ids).startswith("hello wor ld سلام")
    assert set(piece.unknown) == set("漢字")


@pytest.mark.parametrize("text", ["a" * MAX_TEXT_LENGTH, "a. " * (MAX_TEXT_LENGTH // 3), "9" * 5000, ", " * 5000 + "a"])
def test_the_longest_texts_are_planned_quickly(text: str) -> None:
    started = time.thread_time()
    pieces = list(plan_pieces(check_text(text), "en", FrontEnd.create("characters", texts=[(LETTERS, "en")])))
    assert time.thread_time() - started < 10.0
    assert all(len(piece.ids) <= MAX_PIECE_TOKENS for piece in pieces)


def test_the_first_piece_does_not_wait_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    normalize = FrontEnd.normalize

    def note_and_normalize(frontend: FrontEnd, text: str, language: str) -> str:
        asked.append(text)
        return normalize(frontend, text, language)

    monkeypatch.setattr(FrontEnd, "normalize", note_and_normalize)
    assert next(plan_pieces(check_text("One. Two. Three."), "en", FRONTEND)).text == "One."
    assert asked == ["One."]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8-sig")
    return path


def test_lines_are_numbered_and_remember_where_they_stand(tmp_path: Path) -> None:
    lines = read_texts(write(tmp_path / "a.txt", "one|1\n\n دو \n"))
    assert [(line.id, line.text, line.place.rsplit(":")[-1]) for line in lines] == [
        ("0001", "one|1", "1"),
        ("0002", "دو", "3"),
    ]


def test_rows_keep_their_ids(tmp_path: Path) -> None:
    lines = read_texts(write(tmp_path / "a.csv", "first|one|1\nدوم|دو\n"))
    assert [(line.id, line.text) for line in lines] == [("first", "one|1"), ("دوم", "دو")]


TABLES = {
    "a.csv": "id|text\na|One\nb|Two\n",
    "b.csv": 'Id,Speaker,Sentence\na,anna,"One"\nb,anna,"Two"\n',
    "a.tsv": "name\ttext\na\tOne\nb\tTwo\n",
    "b.tsv": "a\tOne\nb\tTwo\n",
    "a.jsonl": '{"id": "a", "text": "One"}\n\n{"id": "b", "text": "Two", "mood": 3}\n',
    "a.txt": "id|text\na|One\nb|Two\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_the_heading_of_a_table_is_not_spoken(tmp_path: Path, name: str) -> None:
    lines = read_texts(write(tmp_path / name, TABLES[name]))
    assert [(line.id, line.text) for line in lines] == [("a", "One"), ("b", "Two")]


def test_a_table_of_texts_alone_is_numbered_and_may_name_languages(tmp_path: Path) -> None:
    lines = read_texts(write(tmp_path / "a.csv", "lang,text\nen,One\nfa,دو\n"))
    assert [(line.id, line.text, line.language) for line in lines] == [("0001", "One", "en"), ("0002", "دو", "fa")]
    assert [line.text for line in read_texts(write(tmp_path / "b.csv", "text\nOne, and two\n"))] == ["One, and two"]


def test_lines_that_only_resemble_a_heading_are_spoken(tmp_path: Path) -> None:
    assert [line.text for line in read_texts(write(tmp_path / "a.txt", "text\nid|text of it\n"))] == [
        "text",
        "id|text of it",
    ]
    assert [line.id for line in read_texts(write(tmp_path / "a.csv", "name|Hello there\nb|Two\n"))] == ["name", "b"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "id,speaker\na,anna\n", "none of them is the text"),
        ("a.csv", "id,text\na,One\nb\n", "a.csv:3 has 1 columns, its heading names 2"),
        ("a.csv", 'id,text\na,"One\n', "a.csv:2: a quote"),
        ("a.csv", "id,text\n../a,One\n", "a.csv:2: the id '../a' cannot be the name of a file"),
        ("a.jsonl", '{"id": "a"}\n', "a.jsonl:1: the object has no text"),
        ("a.jsonl", "One\n", "a.jsonl:1: not valid JSON"),
        ("a.tsv", "One\n", "id, tab, text"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_by_line(tmp_path: Path, name: str, content: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read_texts(write(tmp_path / name, content))


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(DataError, match="is not a file"):
        read_texts(tmp_path / "a.txt")


@pytest.mark.parametrize("row", ["no bar", "../a|x", "/etc/a|x", "a/b|x", ".|x", "|x", "a.|x", "same|x", "SAME|x"])
def test_ids_that_are_no_file_names_are_refused_by_line(tmp_path: Path, row: str) -> None:
    with pytest.raises(DataError, match=r"a.csv:2"):
        read_texts(write(tmp_path / "a.csv", f"same|one\n{row}\n"))


def test_an_empty_or_giant_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="0 texts"):
        read_texts(write(tmp_path / "a.txt", "\n \n"))
    with pytest.raises(DataError, match="bytes"):
        read_texts(write(tmp_path / "b.txt", "a" * 10_000_001))
