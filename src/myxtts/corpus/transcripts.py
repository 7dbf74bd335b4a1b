"""Reads transcript files as numbered lines or records, and resolves the paths that they name.

UTF-8 with or without a byte order mark is read. Other content is reported with its line: UTF-16, the Windows code pages
of Arabic and of western languages, NUL bytes, endless lines. A bad line is skipped, and reading goes on after it.
"""

from __future__ import annotations

import codecs
import csv
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import google_crc32c

from myxtts.corpus.rejections import Reason
from myxtts.errors import refuse
from myxtts.storage.regular_file import FileRefusedError, open_descriptor, open_regular

MAX_LINE_BYTES = 1_000_000
"""Longer lines are reported and skipped, so that a file without line ends is never read as a whole."""
MAX_LINES_PER_RECORD = 16
"""Lines that a quoted CSV field may span; after that the quote counts as never closed."""
AUDIO_SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".w64")
"""Of recordings that can be read, in the order in which one without a suffix is looked for."""
FOREIGN_SUFFIXES = (".webm", ".m4a", ".aac", ".mp4", ".mka", ".mkv", ".wma", ".amr", ".3gp")
"""Of recordings that libsndfile cannot read: they are looked for last, so that they are reported as such."""
AUDIO_FOLDERS = ("wavs", "wav", "audio", "clips")
"""Folders in which recordings are looked for, in this order, where a transcript gives only their names."""
_MAX_DEPTH = 32
"""Folders in a path; a deeper one is not looked for elsewhere, since each part is a place to look."""
_MAX_LOST = 1000
"""Recordings that are looked for in other places without finding a single one: after that no more are."""
_MAX_TRANSCRIPT_BYTES = 4_000_000_000
"""Far above the transcript of any corpus; a sparse file of this size is read in seconds."""
_MAX_RECORDING_BYTES = 1 << 32
"""As many as a WAV file can have. All of a recording is read for its checksum."""
_CHECKSUM_BLOCK_BYTES = 1 << 20
_MAX_PATH_LENGTH = 4000
"""Characters, somewhat below PATH_MAX of Linux (4096 bytes)."""
_SUFFIX_SPELLINGS = tuple(spelling for suffix in AUDIO_SUFFIXES for spelling in (suffix, suffix.upper()))
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a transcript, with its number in the file."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that cannot be read, and why."""

    number: int
    reason: Reason
    detail: str
    what_to_do: str = ""


def read_lines(path: Path, what: str = "The transcript") -> Iterator[Line | BadLine]:
    """Yields the lines of a transcript, numbered from 1, without line ends. Blank lines are left out.

    Raises DataError for what is no file, or cannot be read; it says `what` the file should have been.
    """
    with _explain_reading(path, what), open_regular(path, _MAX_TRANSCRIPT_BYTES) as file:
        head = file.read(4096)
        if encoding := _find_utf16(head):
            yield _wrong_encoding(1, encoding, "the whole file is UTF-16")
            return
        file.seek(len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0)
        number = 0
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(raw) > MAX_LINE_BYTES:
                yield BadLine(number, Reason.BAD_LINE, f"the line is longer than {MAX_LINE_BYTES:,} bytes")
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(MAX_LINE_BYTES)
                continue
            line = _decode_line(number, raw.rstrip(b"\r\n"))
            if isinstance(line, BadLine) or line.text.strip():
                yield line


@contextmanager
def _explain_reading(path: Path, what: str) -> Iterator[None]:
    """Turns errors of opening and reading a file of lines into DataError."""
    try:
        yield
    except FileRefusedError as error:
        raise refuse(f"{what} {path}", str(error), "Name a text file.") from error
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
        raise refuse(f"{what} {path}", problem, "Check the path, its permissions and its disk.") from error


def read_first_lines(path: Path, num_lines: int) -> list[str]:
    """Returns the first lines of a transcript, by which its format is recognised. Undecodable lines are left out."""
    return [line.text for line in islice(read_lines(path), num_lines) if isinstance(line, Line)]


def read_records(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]] | BadLine]:
    """Yields the fields of each record with the number of its first line.

    Only comma and semicolon files use quotes: in the others a quote is a part of the sentence.
    """
    lines = read_lines(path)
    if delimiter not in ",;":
        for line in lines:
            yield line if isinstance(line, BadLine) else (line.number, line.text.split(delimiter))
        return
    pending: list[Line] = []
    for line in lines:
        if isinstance(line, BadLine):
            yield line
            continue
        pending.append(line)
        while pending and (record := _take_record(pending, delimiter)):
            yield record
    while pending:
        yield _unbalanced(pending.pop(0))
        while pending and (record := _take_record(pending, delimiter)):
            yield record


def _take_record(pending: list[Line], delimiter: str) -> tuple[int, list[str]] | BadLine | None:
    """Removes the first whole record from `pending` and returns its fields; None while a quoted field is still open.

    A record is whole where its number of quotes is even: quotes inside quoted fields are doubled.
    """
    num_quotes = 0
    for index, line in enumerate(pending):
        num_quotes += line.text.count('"')
        if num_quotes % 2 == 0:
            text = "\n".join(part.text for part in pending[: index + 1])
            first = pending[0].number
            del pending[: index + 1]
            fields = split_fields(text, delimiter)
            return (
                (first, fields) if fields else BadLine(first, Reason.BAD_LINE, "the line cannot be split into columns")
            )
    if len(pending) < MAX_LINES_PER_RECORD:
        return None
    return _unbalanced(pending.pop(0))


def split_fields(text: str, delimiter: str) -> list[str]:
    """Splits one CSV record; returns [] where the csv module refuses it, as with a carriage return in a field."""
    try:
        return next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error:
        return []


def _unbalanced(line: Line) -> BadLine:
    return BadLine(line.number, Reason.BAD_LINE, 'a quote (") is opened and never closed')


def _decode_line(number: int, raw: bytes) -> Line | BadLine:
    if b"\0" in raw:
        return BadLine(number, Reason.BAD_LINE, "the line holds a NUL byte")
    try:
        return Line(number, raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        encoding = _guess_code_page(raw)
        return _wrong_encoding(number, encoding, f"byte {error.start + 1} of the line is not UTF-8")


def _wrong_encoding(number: int, encoding: str, detail: str) -> BadLine:
    remedy = Reason.WRONG_ENCODING.what_to_do.format(encoding=encoding)
    return BadLine(number, Reason.WRONG_ENCODING, f"{detail}; it looks like {encoding}", remedy)


def _find_utf16(head: bytes) -> str:
    """Detects UTF-16 by its byte order mark, or by NUL in every second byte, as in Latin text; "" if it is none."""
    if head.startswith(_UTF16_MARKS):
        return "UTF-16"
    if len(head) >= 8:
        even, odd = head[0::2], head[1::2]
        if odd.count(0) > 0.4 * len(odd) and even.count(0) < 0.1 * len(even):
            return "UTF-16LE"
        if even.count(0) > 0.4 * len(even) and odd.count(0) < 0.1 * len(odd):
            return "UTF-16BE"
    return ""


def _guess_code_page(raw: bytes) -> str:
    """Guesses the code page: cp1256 if the non-ASCII bytes decode mostly to Arabic script, else cp1252."""
    letters = [letter for letter in raw.decode("cp1256", "replace") if ord(letter) > 127]
    num_arabic = sum("\u0600" <= letter <= "\u06ff" or letter == "\u200c" for letter in letters)
    return "cp1256" if num_arabic > 0.6 * len(letters) else "cp1252"


class CorpusRoot:
    """The folder that holds a corpus: protects against path traversal by hostile transcripts.

    Only files inside it may be opened. A path is resolved, symbolic links included, before anything is opened.
    `is_chosen` says that the user named this folder for the recordings, apart from the transcript.
    """

    def __init__(self, folder: Path, *, is_chosen: bool = False) -> None:
        self.folder = folder
        self.moved_example = ""
        """A path of the transcript that was wrong, while the recording was found by `locate` under another one."""
        self._is_chosen = is_chosen
        self._num_lost = 0
        self._suffix = AUDIO_SUFFIXES[0]
        self._real = os.path.realpath(folder)
        self._prefix = self._real.rstrip(os.sep) + os.sep

    @property
    def real(self) -> str:
        return self._real

    def resolve(self, written: str) -> str | None:
        """Returns the real path of `written` (relative to the folder, or absolute), None if it leaves the folder."""
        if "\0" in written or len(written) > _MAX_PATH_LENGTH:
            return None
        written = written.replace("\\", "/")
        try:
            real = os.path.realpath(os.path.join(self._real, written))  # noqa: PTH118 -- half the cost of Path, per clip
        except (OSError, UnicodeEncodeError):
            return None
        return real if real.startswith(self._prefix) else None

    def relative(self, real: str) -> str:
        assert real.startswith(self._prefix), real
        return real[len(self._prefix) :]

    def find_audio(self, folder: str, name: str) -> str:
        """Returns the path below the root of the recording `name` in `folder`, with the suffix of the file that exists.

        Where there is none, the path of a WAV file: the check that follows reports it as missing.
        """
        start = f"{folder}/{name}" if folder else name
        if name.lower().endswith(AUDIO_SUFFIXES + FOREIGN_SUFFIXES):
            return start
        # The suffix of the last recording comes first; a long transcript of missing ones is not searched to its end.
        suffixes = (self._suffix, *_SUFFIX_SPELLINGS, *FOREIGN_SUFFIXES)[: 1 if self._num_lost >= _MAX_LOST else None]
        for suffix in suffixes:
            if self._has(start + suffix):
                self._suffix, self._num_lost = suffix, -_MAX_LOST
                return start + suffix
        self._num_lost += 1
        return start + AUDIO_SUFFIXES[0]

    def locate(self, written: str) -> str | None:
        """Returns the real path of the recording that a transcript names; None where it leads out of the folder.

        Where there is no such file, it is looked for under another suffix (a.wav made from a.mp3), and, if the path
        is absolute or the user chose the folder, under its last parts: the corpus was moved.
        """
        real = self.resolve(written)
        is_foreign = written.lower().endswith(FOREIGN_SUFFIXES)
        if real is not None and not is_foreign and os.path.exists(real):  # noqa: PTH110 -- per clip
            return real
        if self._num_lost >= _MAX_LOST:
            return real
        for candidate in self._list_alternatives(written.replace("\\", "/")):
            other = self.resolve(candidate) if self._has(candidate) else None
            if other is not None:
                self._num_lost = -_MAX_LOST
                self.moved_example = self.moved_example or written
                return other
        self._num_lost += 1
        return real

    def _has(self, candidate: str) -> bool:
        """Whether there is such a file; cheaper than `resolve`, which must follow before it is opened."""
        leads_up = "/../" in f"/{candidate}/"
        return not leads_up and os.path.isfile(f"{self._prefix}{candidate}")  # noqa: PTH113 -- per clip

    def _list_alternatives(self, written: str) -> Iterator[str]:
        """Yields the places where a recording may be that is not where the transcript says."""
        parts = [part for part in written.split("/") if part]
        if len(parts) > _MAX_DEPTH:
            return
        places = [written]
        if written.startswith("/") or written[1:2] == ":" or self._is_chosen:
            tails = ["/".join(parts[number:]) for number in range(len(parts))]
            places += [f"{folder}/{tail}" for tail in tails for folder in (".", *AUDIO_FOLDERS)]
        yield from places[1:]
        for place in places:
            stem, dot, suffix = place.rpartition(".")
            if dot and f".{suffix.lower()}" in AUDIO_SUFFIXES + FOREIGN_SUFFIXES:
                yield from (stem + other for other in _SUFFIX_SPELLINGS)


def open_plain_file(real_path: str) -> int:
    """Opens a recording and returns its read-only descriptor; raises OSError for what is no file, and for giants."""
    try:
        descriptor = open_descriptor(real_path, follow_links=False)
    except FileRefusedError as error:
        raise OSError(f"{real_path} is not a plain file") from error
    num_bytes = os.fstat(descriptor).st_size
    if num_bytes > _MAX_RECORDING_BYTES:
        os.close(descriptor)
        raise OSError(errno.EFBIG, f"the file has {num_bytes:,} bytes, more than {_MAX_RECORDING_BYTES:,}")
    return descriptor


def checksum_file(descriptor: int) -> int:
    """The crc32c of all bytes of a file."""
    checksum, position = 0, 0
    while block := os.pread(descriptor, _CHECKSUM_BLOCK_BYTES, position):
        checksum = google_crc32c.extend(checksum, block)
        position += len(block)
    return checksum
