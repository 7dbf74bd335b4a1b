"""No path that a transcript can write leads out of the corpus."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from myxtts.corpus.audio import AudioLimits, inspect_audio
from myxtts.corpus.formats.tables import read_heading
from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.corpus.transcripts import (
    MAX_LINE_BYTES,
    BadLine,
    CorpusRoot,
    Line,
    open_plain_file,
    read_lines,
    read_records,
)

LIMITS = AudioLimits(0.1, 30, 192_000, 8, -60, 0.01)

# Pieces that paths of attackers are made of, beside ordinary names and names that exist in the fixture.
PIECES = st.sampled_from(
    [
        "..",
        ".",
        "",
        "wavs",
        "a.wav",
        "out",
        "link.wav",
        "loop",
        "etc",
        "passwd",
        "~",
        "/",
        "\\",
        "..\\..",
        "%2e%2e",
        "\0",
        "سلام",
    ]
) | st.text(max_size=12)
PATHS = st.builds(
    lambda start, parts, glue: start + glue.join(parts),
    st.sampled_from(["", "/", "//", "../", "./"]),
    st.lists(PIECES, max_size=8),
    st.sampled_from(["/", "\\", "//"]),
)

_opened: list[str] = []
_is_watching = False


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _is_watching and event == "open" and isinstance(arguments[0], str):
        _opened.append(arguments[0])


sys.addaudithook(_watch)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("traversal")
    (base / "secret.wav").write_bytes(b"RIFFsecret")
    folder = base / "corpus"
    (folder / "wavs").mkdir(parents=True)
    (folder / "wavs" / "a.wav").write_bytes(b"RIFF")
    (folder / "link.wav").symlink_to("../secret.wav")
    (folder / "out").symlink_to("..")
    (folder / "loop").symlink_to("loop")
    return folder


@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=PATHS)
def test_nothing_outside_the_corpus_is_ever_opened(corpus: Path, written: str) -> None:
    global _is_watching  # noqa: PLW0603
    root = CorpusRoot(corpus)
    _opened.clear()
    _is_watching = True
    try:
        real = root.resolve(written)
        if real is not None:
            inspect_audio(real, LIMITS)
    except AudioProblem:
        pass
    finally:
        _is_watching = False
    inside = os.path.realpath(corpus) + os.sep
    assert all(path.startswith(inside) for path in _opened)


def test_links_out_of_the_corpus_are_refused_and_links_inside_followed(corpus: Path) -> None:
    root = CorpusRoot(corpus)
    (corpus / "inner.wav").symlink_to("wavs/a.wav")
    assert root.resolve("link.wav") is None
    assert root.resolve("out/secret.wav") is None
    assert root.resolve("inner.wav") == os.path.realpath(corpus / "wavs" / "a.wav")


def test_windows_separators_are_understood(corpus: Path) -> None:
    assert CorpusRoot(corpus).resolve("wavs\\a.wav") == os.path.realpath(corpus / "wavs" / "a.wav")


def test_sibling_with_the_same_beginning_is_outside(corpus: Path) -> None:
    assert CorpusRoot(corpus).resolve(str(corpus) + "2/a.wav") is None


def test_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.wav")
    with pytest.raises(OSError, match="not a plain file"):
        open_plain_file(str(tmp_path / "pipe.wav"))


PERSIAN = "شب‌های تهران آرام است"


def read_bytes(tmp_path: Path, content: bytes) -> list[Line | BadLine]:
    path = tmp_path / "metadata.csv"
    path.write_bytes(content)
    return list(read_lines(path))


def test_lines_are_numbered_and_blank_ones_left_out(tmp_path: Path) -> None:
    assert read_bytes(tmp_path, b"a\n\nb\r\n  \nc") == [Line(1, "a"), Line(3, "b"), Line(5, "c")]


def test_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    assert read_bytes(tmp_path, b"\xef\xbb\xbfa|b\n") == [Line(1, "a|b")]


def test_line_separators_inside_text_do_not_split_it(tmp_path: Path) -> None:
    assert read_bytes(tmp_path, "a\u2028b\x85c\n".encode()) == [Line(1, "a\u2028b\x85c")]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_named_once_for_the_file(tmp_path: Path, encoding: str) -> None:
    lines = read_bytes(tmp_path, "id1|some text here\nid2|more text\n".encode(encoding))
    assert len(lines) == 1
    (bad,) = lines
    assert isinstance(bad, BadLine)
    assert (bad.number, bad.reason) == (1, Reason.WRONG_ENCODING)
    assert "UTF-16" in bad.detail
    assert "iconv -f UTF-16" in bad.what_to_do


@pytest.mark.parametrize(("encoding", "text"), [("cp1256", "سلام دوست من"), ("cp1252", "un café très élevé")])
def test_code_page_is_named_with_the_line_and_the_rest_is_read(tmp_path: Path, encoding: str, text: str) -> None:
    content = b"id1|fine\n" + f"id2|{text}\n".encode(encoding) + f"id3|{PERSIAN}\n".encode()
    first, bad, last = read_bytes(tmp_path, content)
    assert first == Line(1, "id1|fine")
    assert last == Line(3, f"id3|{PERSIAN}")
    assert isinstance(bad, BadLine)
    assert (bad.number, bad.reason) == (2, Reason.WRONG_ENCODING)
    assert encoding in bad.detail


def test_nul_costs_its_line_only(tmp_path: Path) -> None:
    bad, good = read_bytes(tmp_path, b"a\0b|this is a longer line of text\nc\n")
    assert isinstance(bad, BadLine)
    assert "NUL" in bad.detail
    assert good == Line(2, "c")


def test_endless_line_costs_its_line_only(tmp_path: Path) -> None:
    bad, good = read_bytes(tmp_path, b"x" * (3 * MAX_LINE_BYTES) + b"\nc\n")
    assert isinstance(bad, BadLine)
    assert good == Line(2, "c")


def test_quoted_fields_may_span_lines(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text('a,"one\ntwo",b\nc,"say ""hi""",d\n', encoding="utf-8")
    assert list(read_records(path, ",")) == [(1, ["a", "one\ntwo", "b"]), (3, ["c", 'say "hi"', "d"])]


def test_unclosed_quote_costs_its_line_only(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text('a,"open,b\n' + "".join(f"id{n},text {n},x\n" for n in range(40)), encoding="utf-8")
    bad, *records = list(read_records(path, ","))
    assert isinstance(bad, BadLine)
    assert bad.number == 1
    assert [record[0] for record in records if not isinstance(record, BadLine)] == list(range(2, 42))


@pytest.mark.parametrize("field", ["a\rb", "x" * 200_000])
def test_field_that_breaks_the_rules_costs_its_line_only(tmp_path: Path, field: str) -> None:
    path = tmp_path / "m.csv"
    path.write_bytes(f"{field},text\nid2,text\n".encode())
    bad, good = read_records(path, ",")
    assert isinstance(bad, BadLine)
    assert (bad.number, bad.reason) == (1, Reason.BAD_LINE)
    assert good == (2, ["id2", "text"])


def test_quotes_are_letters_in_pipe_files(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text('a|"open|b\n', encoding="utf-8")
    assert list(read_records(path, "|")) == [(1, ["a", '"open', "b"])]


@settings(max_examples=300, deadline=None)
@given(content=st.binary(max_size=300) | st.text("a,;|\t\"'\r\n\0\ufeff س", max_size=60).map(str.encode))
@example(content=b"\r\x01")
def test_any_bytes_give_lines_or_findings_in_order(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content)
    numbers = [line.number for line in read_lines(path)]
    assert numbers == sorted(set(numbers))
    for delimiter in ",;|\t":
        list(read_records(path, delimiter))
    read_heading(path)
