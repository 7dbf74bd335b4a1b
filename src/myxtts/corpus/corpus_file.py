"""The corpus file: utterances that passed `prepare`, one JSON object a line behind a heading.

The heading names the folders of the recordings, relative to the file where they share a tree, so that a corpus can be
moved as a whole. The file is read as a stream; paths are resolved again when it is read, since it may be hostile.

Layout: {"myxtts_corpus": 1, "roots": […], "num_utterances": …, "seconds": …}, then one line per utterance with the
fields of `_Line`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Annotated

from pydantic import Field

from myxtts.corpus.readings import apply_readings, checksum_readings, load_readings
from myxtts.corpus.transcripts import CorpusRoot, checksum_file
from myxtts.errors import DataError, refuse
from myxtts.storage.json_file import FileModel, JsonRefusedError, Listed, parse_json, parse_json_line, parse_json_object
from myxtts.storage.regular_file import explain_read_errors, open_regular
from myxtts.text.frontend import FrontEnd
from myxtts.types import Split, Utterance

CORPUS_FILE_NAME = "corpus.jsonl"
FRONTEND_FILE_NAME = "frontend.json"
CORPUS_VERSION = 1
TRAIN_OPENING = '{"split": "train", '
VAL_OPENING = '{"split": "val", '
"""Openings of lines: `prepare` changes the split of a line by replacing its opening."""
_MAX_HEADING_BYTES = 1_000_000
"""Bounds the first read of a file that may be anything."""
_MAX_LINE_BYTES = 4_000_000
"""Longer lines than `prepare` writes are damage; a file without line ends must not be read as a whole."""
_MAX_DURATION_S = 86_400
"""A day, far above any accepted recording: with it, frames fit the 32 bits that a store has for them."""
_DAMAGED = "The file is damaged: run myxtts prepare again, or myxtts cache repair if precompute made it."


_Count = Annotated[int, Field(ge=0, lt=1 << 48)]


class Heading(FileModel):
    """First line of a corpus file: the roots of the recordings as written, and what the corpus holds."""

    version: int = Field(default=CORPUS_VERSION, alias="myxtts_corpus")
    roots: Listed[str]
    num_utterances: _Count
    seconds: Annotated[float, Field(ge=0)]

    def to_json(self) -> str:
        fields = {"myxtts_corpus": self.version, "roots": self.roots, "num_utterances": self.num_utterances}
        return json.dumps({**fields, "seconds": round(self.seconds, 3)}, ensure_ascii=False)


class _Line(FileModel):
    """One utterance of a corpus file: `audio` is relative to the root of that number.

    The split comes first, so that it can be changed without parsing the rest.
    """

    split: Split
    id: Annotated[str, Field(min_length=1, max_length=1000)]
    audio: Annotated[str, Field(min_length=1)]
    text: Annotated[str, Field(max_length=1_000_000)]
    speaker: Annotated[str, Field(max_length=1000)]
    language: Annotated[str, Field(max_length=100)]
    num_samples: _Count
    sample_rate_hz: _Count
    num_channels: _Count
    checksum: Annotated[int, Field(ge=0, lt=1 << 32)]
    phonemes: str | None = None
    root: _Count = 0


_KEYS = tuple(f'"{name}"'.encode() for name in _Line.model_fields)


def write_root(root: Path, folder: Path) -> str:
    """Returns a root as the heading names it: relative to `folder` where both lie in one tree, else absolute."""
    real_root, real_folder = Path(os.path.realpath(root)), Path(os.path.realpath(folder))
    if real_folder.is_relative_to(real_root) or real_root.is_relative_to(real_folder.parent):
        return os.path.relpath(real_root, real_folder)
    return str(real_root)


def format_utterance(utterance: Utterance, root_number: int, relative_audio: str) -> str:
    """Returns one line of a corpus file, with the fields of `_Line` in their order; defaults are left out."""
    values = {**asdict(utterance), "audio": relative_audio, "root": root_number or None}
    fields = {name: values[name] for name in _Line.model_fields if values[name] is not None}
    return json.dumps(fields, ensure_ascii=False)


def read_corpus_heading(path: Path) -> Heading:
    """Reads the heading of a corpus file alone."""
    with _open_corpus_file(path) as file:
        return read_heading(path, file)


def read_heading(path: Path, file: IO[bytes]) -> Heading:
    """Reads the first line of an open corpus file; raises DataError where it is no heading of this version."""
    try:
        heading = parse_json(file.readline(_MAX_HEADING_BYTES), Heading)
    except JsonRefusedError as error:
        raise DataError(
            f"{path} is not a corpus file: {error}.", next_step="Make one with myxtts prepare DIR --out DIR."
        ) from error
    if heading.version != CORPUS_VERSION:
        raise DataError(
            f"{path} is a corpus file of version {heading.version}, this program reads {CORPUS_VERSION}.",
            next_step="Run myxtts prepare again.",
        )
    return heading


def read_utterances(path: Path, split: Split | None = None) -> Iterator[Utterance]:
    """Yields the utterances of a corpus file, or of one split of it, in order.

    Raises DataError at a damaged line, at a path outside its root, and at the end of a truncated file.
    """
    with _open_corpus_file(path) as file:
        heading = read_heading(path, file)
        roots = [CorpusRoot(path.parent / root) for root in heading.roots]
        for number in range(2, heading.num_utterances + 2):
            line = file.readline(_MAX_LINE_BYTES)
            if not line:
                raise _count_error(path, heading, f"{number - 2:,}")
            utterance = _parse_utterance(path, number, line, roots)
            if split is None or utterance.split == split:
                yield utterance
        if file.read(1):
            raise _count_error(path, heading, "more")


def _count_error(path: Path, heading: Heading, found: str) -> DataError:
    problem = f"{path} holds {found} utterances, its heading promises {heading.num_utterances:,}."
    return DataError(problem, next_step=_DAMAGED)


@contextmanager
def _open_corpus_file(path: Path) -> Iterator[IO[bytes]]:
    """Opens a corpus file; raises DataError for what is no file, or cannot be read."""
    with explain_read_errors(lambda reason: refuse(path, reason, _DAMAGED)), open_regular(path) as file:
        yield file


def _parse_utterance(path: Path, number: int, line: bytes, roots: list[CorpusRoot]) -> Utterance:
    """Parses a line and resolves its recording; `number` is the line's number in errors."""
    try:
        found = parse_json_line(line, _Line)
        # Nearly no line has a key twice, or one with escapes: only those are parsed by the slower reader that sees it.
        if b"\\u" in line or any(line.count(key) > 1 for key in _KEYS):
            parse_json_object(line)
    except JsonRefusedError as error:
        raise DataError(f"{path}:{number} cannot be read ({error}).", next_step=_DAMAGED) from error
    if found.num_samples > max(1, found.sample_rate_hz) * _MAX_DURATION_S:
        problem = f"{found.num_samples:,} samples at {found.sample_rate_hz:,} Hz are more than a day"
        raise DataError(f"{path}:{number} cannot be right: {problem}.", next_step=_DAMAGED)
    if found.root >= len(roots):
        raise DataError(f"{path}:{number} has root {found.root} of {len(roots)}.", next_step=_DAMAGED)
    real = roots[found.root].resolve(found.audio)
    if real is None:
        raise DataError(
            f"{path}:{number} points outside its corpus folder: {found.audio!r}.",
            next_step="Run myxtts prepare again, with --audio-root where the recordings are elsewhere.",
        )
    fields = {**vars(found), "audio": real}
    del fields["root"]
    return Utterance(**fields)


@dataclass(frozen=True, slots=True)
class Corpus:
    """A prepared corpus: its file, read when `utterances` is called, and the front end it was checked with."""

    file: Path
    num_utterances: int
    seconds: float

    def utterances(self, split: Split | None = None) -> Iterator[Utterance]:
        return read_utterances(self.file, split)

    def utterances_as_read(self, frontend: FrontEnd) -> Iterator[Utterance]:
        """Yields all utterances; those with readings of their own (readings.jsonl) have the IPA of their text."""
        readings = load_readings(self.file.parent)
        return apply_readings(self.utterances(), readings, frontend) if readings else self.utterances()

    def load_frontend(self) -> FrontEnd:
        return FrontEnd.load(self.file.with_name(FRONTEND_FILE_NAME))


def checksum_corpus(path: Path) -> int:
    """Returns the crc32c of a corpus file and the readings beside it.

    Raises DataError where the corpus file is longer than its utterances can be.
    """
    with _open_corpus_file(path) as file:
        heading = read_heading(path, file)
        if os.fstat(file.fileno()).st_size > (heading.num_utterances + 1) * _MAX_LINE_BYTES:
            raise _count_error(path, heading, "more")
        checksum = checksum_file(file.fileno())
    return checksum_readings(path.parent, checksum)


def is_prepared(path: Path) -> bool:
    """Whether `path` is a corpus that `prepare` wrote, rather than recordings and transcripts."""
    return path.name == CORPUS_FILE_NAME if path.is_file() else (path / CORPUS_FILE_NAME).is_file()


def open_corpus(path: str | Path) -> Corpus:
    """Opens what `myxtts prepare` wrote, by its folder or its corpus file; reads the heading only."""
    path = Path(path)
    file = path / CORPUS_FILE_NAME if path.is_dir() else path
    if not file.is_file():
        raise DataError(
            f"There is no prepared corpus at {path}.", next_step=f"Run: myxtts prepare RECORDINGS --out {path}"
        )
    heading = read_corpus_heading(file)
    return Corpus(file, heading.num_utterances, heading.seconds)
