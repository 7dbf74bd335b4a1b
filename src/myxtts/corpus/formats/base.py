"""`CorpusFormat`: interface of corpus readers, which recognise a layout of files and yield the rows of its transcripts.

Readers check nothing but the form of a line: a row may name a recording that is missing or outside the corpus. Lines
that cannot be read become rejections in the same stream, so that the report keeps the order of the transcript.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from myxtts.corpus.edits import Status
from myxtts.corpus.rejections import Rejection
from myxtts.corpus.transcripts import AUDIO_FOLDERS, BadLine, CorpusRoot
from myxtts.errors import DataError
from myxtts.types import Split

DEFAULT_SPEAKER = "speaker"
"""The speaker of a corpus that names none."""
NOT_TRANSCRIPTS = ("readme", "license", "licence", "copying", "changelog", "notes", "speakers", "rejections", "corpus")
"""Openings of the names of files that are no transcript, although they have the suffix of one."""

# Names of splits in file names, folders and columns.
SPLIT_WORDS: dict[str, Split] = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "eval": "val",
    "test": "test",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One utterance as its transcript states it: `audio` is relative to the root, `split` None where none is given.

    `file` and `line` are those of the transcript, for reports.
    """

    id: str
    audio: str
    text: str
    speaker: str
    language: str
    file: str
    line: int
    phonemes: str | None = None
    split: Split | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A corpus on disk: its transcript file or folder, the folder its recordings may lie in, the default language."""

    path: Path
    root: CorpusRoot
    language: str

    @property
    def folder(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent

    def name_of(self, path: Path) -> str:
        """Returns the name of a transcript in reports: relative to the corpus where it lies inside it."""
        return str(path.relative_to(self.folder)) if path.is_relative_to(self.folder) else str(path)


@dataclass(frozen=True, slots=True)
class CorpusFormat:
    """A layout of recordings and transcripts. `recognize` returns in words why a path is of this format, or ''.

    `layout` describes the files for the message that lists all formats. `set_aside` yields the clips that wait for the
    user or that the user dropped: they are not rows of the corpus, and `prepare` does not warn
    of them.
    """

    name: str
    layout: str
    recognize: Callable[[Path], str]
    read: Callable[[Source], Iterator[Row | Rejection]]
    set_aside: Callable[[Source], Iterator[tuple[Row, Status]]] = lambda _: iter(())


def reject_line(source: Source, path: Path, bad: BadLine) -> Rejection:
    return Rejection("", source.name_of(path), bad.number, bad.reason, bad.detail, what_to_do=bad.what_to_do)


def refuse_link_outside(folder: Path, transcript: Path) -> Path:
    """Returns the transcript; raises DataError where it is a link that leads out of the corpus."""
    if CorpusRoot(folder).resolve(str(transcript.absolute())) is None:
        raise DataError(
            f"{transcript} is a link that leads out of {folder}.",
            next_step="Name the file it leads to, with --audio-root for the folder of the recordings.",
        )
    return transcript


def find_audio_folder(source: Source, names: Sequence[str] = AUDIO_FOLDERS) -> str:
    """Returns the folder of the recordings, relative to their root; '' where they lie in the root itself."""
    return next((name for name in names if (source.root.folder / name).is_dir()), "")
