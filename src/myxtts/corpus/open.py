"""A prepared corpus, opened for reading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from myxtts.corpus.corpus_file import CORPUS_FILE_NAME, FRONTEND_FILE_NAME, read_heading, read_utterances
from myxtts.errors import DataError
from myxtts.text.frontend import FrontEnd
from myxtts.types import Split, Utterance


@dataclass(frozen=True, slots=True)
class Corpus:
    """Utterances that passed every check, and the front end they were checked with."""

    file: Path
    num_utterances: int
    seconds: float

    def utterances(self, split: Split | None = None) -> Iterator[Utterance]:
        return read_utterances(self.file, split)

    def load_frontend(self) -> FrontEnd:
        return FrontEnd.load(self.file.with_name(FRONTEND_FILE_NAME))


def is_prepared(path: Path) -> bool:
    """Whether `path` is a corpus that `prepare` wrote, rather than recordings as they came."""
    return path.name == CORPUS_FILE_NAME if path.is_file() else (path / CORPUS_FILE_NAME).is_file()


def open_corpus(path: str | Path) -> Corpus:
    """Opens what `myxtts prepare` wrote, by its folder or its corpus file."""
    path = Path(path)
    file = path / CORPUS_FILE_NAME if path.is_dir() else path
    if not file.is_file():
        raise DataError(
            f"There is no prepared corpus at {path}.", next_step=f"Run: myxtts prepare RECORDINGS --out {path}"
        )
    with file.open(encoding="utf-8") as text:
        heading = read_heading(file, text)
    return Corpus(file, heading.num_utterances, heading.seconds)
