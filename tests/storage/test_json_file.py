"""Lines of JSON are added whole and survive a kill; files are read strictly, as their model describes them."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from tests.store.test_faults import mounted

from myxtts.errors import DataError
from myxtts.storage.json_file import (
    FileModel,
    JsonLines,
    JsonRefusedError,
    Listed,
    VersionOne,
    parse_json_line,
    read_json,
    try_read_json,
    write_json,
)


def refuse_warnings(message: str) -> None:
    raise AssertionError(message)


def test_lines_come_back_in_order(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "metrics.jsonl", refuse_warnings)
    for step in range(3):
        assert lines.append({"step": step, "loss": 1 / 3, "ids": ("a", "ب")})
    assert list(lines.read()) == [{"step": step, "loss": 1 / 3, "ids": ["a", "ب"]} for step in range(3)]


def test_what_is_not_finite_becomes_null(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "metrics.jsonl", refuse_warnings)
    lines.append({"step": 1, "loss": math.nan, "more": {"norm": [math.inf, 2.0]}})
    assert list(lines.read()) == [{"step": 1, "loss": None, "more": {"norm": [None, 2.0]}}]


def test_a_line_that_a_kill_cut_short_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = JsonLines(path, refuse_warnings)
    lines.append({"step": 1})
    path.write_bytes(path.read_bytes() + b'{"step": 2, "lo')
    lines.append({"step": 3})
    assert [fields["step"] for fields in lines.read()] == [1, 3]


def test_steps_that_are_done_again_are_dropped(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "metrics.jsonl", refuse_warnings)
    lines.drop_after(3)
    assert not lines.path.exists()
    for step in range(1, 6):
        lines.append({"step": step})
    lines.append({"note": "no step"})
    lines.drop_after(3)
    assert list(lines.read()) == [{"step": 1}, {"step": 2}, {"step": 3}, {"note": "no step"}]


@pytest.mark.parametrize("options", [("-o", "size=8k"), ("-o", "ro")])
def test_a_full_or_read_only_disk_is_said_once_and_stops_nothing(tmp_path: Path, options: tuple[str, ...]) -> None:
    warnings: list[str] = []
    with mounted(tmp_path / "disk", *options):
        lines = JsonLines(tmp_path / "disk" / "metrics.jsonl", warnings.append)
        results = [lines.append({"step": step, "text": "x" * 500}) for step in range(40)]
    assert not results[-1]
    assert lines.num_lost == results.count(False)
    assert len(warnings) == 1
    assert "Training continues" in warnings[0]


class Note(FileModel):
    version: VersionOne
    name: str
    sizes: Listed[int] = ()
    gain: float = 1.0


def test_a_file_comes_back_as_its_model_describes_it(tmp_path: Path) -> None:
    write_json(tmp_path / "note.json", {"version": 1, "name": "صدا", "sizes": [3, 4]})
    assert read_json(tmp_path / "note.json", Note) == Note(version=1, name="صدا", sizes=(3, 4))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b'{"version": 1, "name": "a", "name": "b"}', "'name' twice"),
        (b'{"version": 1, "name": "a", "gain": NaN}', "NaN"),
        (b'{"version": 1, "name": "a", "gain": 1e999}', "out of range"),
        (b'{"version": 1, "name": 5}', "name should be a valid string, found 5"),
        (b'{"version": 1, "name": "a", "sizes": [1, "2"]}', "sizes.1 should be a valid integer, found '2'"),
        (b'{"version": 1, "name": "a", "sizes": [true]}', "sizes.0"),
        (b'{"version": 1}', "name is missing"),
        (b'{"version": 1, "name": "a", "code": "import os"}', "code is not known"),
        (b'{"version": 2, "name": "a"}', "version should be 1, found 2"),
        (b'{"version": true, "name": "a"}', "version"),
        (b'{"version": 1, "name": "\xff"}', "not JSON"),
        (b"[1, 2]", "no JSON object"),
        (b"[" * 100_000, "not JSON"),
        (b'{"version": ' + b"9" * 100_000 + b"}", "digits"),
        (b'{"version": 1, "name": "' + b"x" * 2000 + b'"}', "more than 1,000"),
    ],
)
def test_what_differs_from_the_model_is_refused_by_file_and_field(tmp_path: Path, raw: bytes, words: str) -> None:
    path = tmp_path / "note.json"
    path.write_bytes(raw)
    max_bytes = 1000 if b"xxx" in raw else 1_000_000
    with pytest.raises(DataError) as caught:
        read_json(path, Note, what="The note", max_bytes=max_bytes, next_step="Write it again.")
    assert caught.value.problem.startswith(f"The note {path} cannot be used: ")
    assert words in caught.value.problem
    assert caught.value.next_step == "Write it again."
    assert try_read_json(path, Note, max_bytes) is None


def test_a_pipe_or_folder_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    for name in ("pipe.json", "folder.json"):
        with pytest.raises(DataError, match=f"{name} is not a file"):
            read_json(tmp_path / name, Note)


def test_a_missing_file_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "note.json", Note)
    assert try_read_json(tmp_path / "note.json", Note) is None


def test_a_line_is_checked_as_strictly_as_a_file() -> None:
    assert parse_json_line(b'{"version": 1, "name": "a", "sizes": [1]}\n', Note).sizes == (1,)
    for line, words in ((b'{"version": 1, "name": null}', "name"), (b'{"version": 1, "na', "it")):
        with pytest.raises(JsonRefusedError, match=words):
            parse_json_line(line, Note)
