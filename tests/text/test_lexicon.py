"""The user's lexicon: what is read, and what is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from myxtts.errors import DataError
from myxtts.text.lexicon import check_entries, fold_word, load_lexicon


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "lexicon.tsv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def test_words_are_found_in_any_case_and_spelling(tmp_path: Path) -> None:
    lexicon = load_lexicon(write(tmp_path, "Tomato\ttəmˈɑːtoʊ\ncafé\tkæfˈeɪ\nعلی\tʔalˈiː\n"))
    assert lexicon.find("TOMATO") == "təmˈɑːtoʊ"
    assert lexicon.find("cafe\u0301") == "kæfˈeɪ"
    assert lexicon.find("علي") == "ʔalˈiː"
    assert lexicon.find("tomatoes") is None


def test_byte_order_mark_crlf_comments_and_blank_lines_are_no_words(tmp_path: Path) -> None:
    content = "\ufeff# my words\r\n\r\nhello\thəlˈoʊ\r\n  # another comment\r\nworld\twˈɜːld"
    assert dict(load_lexicon(write(tmp_path, content)).entries) == {"hello": "həlˈoʊ", "world": "wˈɜːld"}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("hello həlˈoʊ", "no tab"),
        ("\thəlˈoʊ", "no word"),
        ("hello\t", "no IPA for 'hello'"),
        ("good morning\tɡʊd", "more than one word"),
        ("hello\thə5lo", "5"),
        ("hello\th:e", "written ː"),
        ("fine\tfˈaɪn", "gives 'fine' again; it was at line 1"),
        ("x" * 300 + "\ta", "too long"),
    ],
)
def test_bad_line_is_named_with_its_place(tmp_path: Path, line: str, problem: str) -> None:
    path = write(tmp_path, f"Fine\tfˈaɪn\n# comment\n{line}\n")
    with pytest.raises(DataError) as caught:
        load_lexicon(path)
    assert f"{path}:3" in caught.value.problem
    assert problem in caught.value.problem
    assert caught.value.next_step


def test_file_that_is_not_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, b"hello\thelo\ncaf\xe9\tkafe\n")
    with pytest.raises(DataError, match=r":2 is not UTF-8"):
        load_lexicon(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere"):
        load_lexicon(tmp_path / "nowhere.tsv")


@pytest.mark.parametrize("entries", [{"": "a"}, {"Hello": "a"}, {"hello": "1"}, {"hello": "a" * 5000}])
def test_hostile_entries_are_refused(entries: dict[str, str]) -> None:
    with pytest.raises(DataError, match="frontend"):
        check_entries(entries, "frontend.json")


def test_folding_twice_changes_nothing() -> None:
    for word in ("Straße", "ΑΣ", "İstanbul", "كتابي", "O’Neill"):
        assert fold_word(fold_word(word)) == fold_word(word)
