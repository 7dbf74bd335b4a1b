"""YAML files are read as plain data with line numbers; hostile and mistaken ones are refused with their place."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myxtts.config.yaml import MAX_YAML_BYTES, parse_yaml, read_yaml
from myxtts.errors import ConfigError

ALIAS_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{previous}'] * 9)}]\n"
    for previous, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "config.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_mapping_and_lines_are_returned(tmp_path: Path) -> None:
    path = write(tmp_path, "# comment\nmodel_size: tiny\ndata:\n  batch_size: 48\n\n  model_gpu: [1, 2]\n")
    data, lines = read_yaml(path)
    assert data == {"model_size": "tiny", "data": {"batch_size": 48, "model_gpu": [1, 2]}}
    assert lines[("model_size",)] == 2
    assert lines[("data", "batch_size")] == 4
    assert lines[("data", "model_gpu")] == 6


@pytest.mark.parametrize("content", ["", "\n\n", "# only a comment\n", "---\n", "null\n"])
def test_an_empty_document_is_an_empty_mapping(tmp_path: Path, content: str) -> None:
    assert read_yaml(write(tmp_path, content)) == ({}, {})


def test_a_byte_order_mark_and_windows_line_ends_are_accepted(tmp_path: Path) -> None:
    data, lines = read_yaml(write(tmp_path, b"\xef\xbb\xbfa: 1\r\nb: 2\r\n"))
    assert data == {"a": 1, "b": 2}
    assert lines[("b",)] == 2


def test_quoted_numbers_and_dates_stay_text(tmp_path: Path) -> None:
    data, _ = read_yaml(write(tmp_path, "a: '48'\nb: \"true\"\nc: 2001-12-14\nd: !!str 5\ne: !!float 5\n"))
    assert data == {"a": "48", "b": "true", "c": "2001-12-14", "d": "5", "e": 5}


@pytest.mark.parametrize(
    ("content", "place", "problem"),
    [
        (ALIAS_BOMB, ":1:4:", "anchor &a"),
        ("a: 1\nb: *a\n", ":2:4:", "alias *a"),
        ("a: !!python/object/apply:os.system ['true']\n", ":1:4:", "tag"),
        ("a: !!set {x, y}\n", ":1:4:", "tag"),
        ("a: !!binary aGVsbG8=\n", ":1:4:", "tag"),
        ("a: !!timestamp 2001-12-14\n", ":1:4:", "tag"),
        ("a: !mine 1\n", ":1:4:", "tag"),
        ("!!omap\n- a: 1\n", ":1:1:", "tag"),
        ("a: !!int fish\n", ":1:4:", "is no int"),
        ("a: 1\nb: 2\na: 3\n", ":3:1:", "first is on line 1"),
        ("d:\n  a: 1\n  'a': 3\n", ":3:3:", "first is on line 2"),
        ("1: x\n", ":1:1:", "the key 1 is not a name"),
        ("true: x\n", ":1:1:", "the key true is not a name"),
        ("? [a, b]\n: x\n", ":1:3:", "cannot be a key"),
        ("a: 1\n---\nb: 2\n", ":2:1:", "second document"),
        ("- a\n- b\n", ":1:1:", "holds a list"),
        ("just text\n", ":1:1:", 'single value "just text"'),
        ("a: [1, 2\n", ":2:1:", "not valid YAML"),
        ("a: b: c\n", ":1:5:", "not valid YAML"),
        ("a:\n\tb: 1\n", ":2:1:", "not valid YAML"),
        ("a: " + "[" * 21 + "]" * 21, ":1:23:", "more than 20 levels"),
        ("a: 1\nb: \x00\n", ":2:4:", "U+0000"),
        ("a: \x1b[31m\n", ":1:4:", "U+001B"),
        (b"a: caf\xe9\n", ":1:7:", "0xe9 is not UTF-8"),
        ("a: 1\n".encode("utf-16"), ":1:1:", "0xff is not UTF-8"),
    ],
)
def test_what_a_configuration_never_needs_is_refused_at_its_place(
    tmp_path: Path, content: str | bytes, place: str, problem: str
) -> None:
    path = write(tmp_path, content)
    with pytest.raises(ConfigError) as caught:
        read_yaml(path)
    assert f"{path}{place}" in caught.value.problem
    assert problem in caught.value.problem
    assert caught.value.next_step


def test_twenty_levels_are_accepted() -> None:
    data, _ = parse_yaml("a: " + "[" * 19 + "]" * 19, "text")
    assert isinstance(data["a"], list)


@pytest.mark.parametrize(
    "content",
    [ALIAS_BOMB, "[" * 900_000, "a: " + "{a: " * 200_000, "a: [" + "*b, " * 200_000, "- " * 400_000, "? " * 400_000],
    ids=["aliases", "brackets", "braces", "alias list", "dashes", "keys"],
)
def test_bombs_are_refused_at_once(tmp_path: Path, content: str) -> None:
    path = write(tmp_path, content)
    started = time.process_time()
    with pytest.raises(ConfigError):
        read_yaml(path)
    assert time.process_time() - started < 0.5


def test_a_large_file_is_refused_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    with path.open("wb") as file:
        file.truncate(50_000_000_000)
    with pytest.raises(ConfigError, match=f"50,000,000,000 bytes, more than {MAX_YAML_BYTES:,}"):
        read_yaml(path)


@pytest.mark.parametrize("text", ["a: \ufffe\n", "a: \uffff\n"])
def test_characters_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not valid YAML"):
        parse_yaml(text, "text")


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "a: 1\n")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ConfigError, match=r"config\.yaml: the file cannot be read: Permission denied"):
        read_yaml(path)


@pytest.mark.parametrize(
    ("name", "problem"), [(".", "is not a file"), ("missing.yaml", "no such file"), ("a\0b", "file name")]
)
def test_what_is_no_file_is_refused(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_yaml(tmp_path / name)


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="pipe is not a file"):
        read_yaml(pipe)


@given(st.text(st.sampled_from("ab1:- \n[]{}&*!?'\"#%@,|>~\t\\.\x00é\u2028"), max_size=60))
def test_any_text_gives_data_or_a_config_error(text: str) -> None:
    problem = ""
    try:
        data, lines = parse_yaml(text, "text")
    except ConfigError as error:
        problem = error.problem
        data, lines = {}, {}
    assert problem.startswith("text") or not problem
    assert all(lines[(key,)] >= 1 for key in data)
