"""Files of texts: lines get numbers, rows keep their ids, and ids cannot lead out of the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from myxtts.errors import DataError
from myxtts.synthesis.text_file import read_texts


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


@pytest.mark.parametrize("row", ["no bar", "../a|x", "/etc/a|x", "a/b|x", ".|x", "|x", "a.|x", "same|x", "SAME|x"])
def test_ids_that_are_no_file_names_are_refused_by_line(tmp_path: Path, row: str) -> None:
    with pytest.raises(DataError, match=r"a.csv:2"):
        read_texts(write(tmp_path / "a.csv", f"same|one\n{row}\n"))


def test_an_empty_or_giant_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="0 texts"):
        read_texts(write(tmp_path / "a.txt", "\n \n"))
    with pytest.raises(DataError, match="bytes"):
        read_texts(write(tmp_path / "b.txt", "a" * 10_000_001))
