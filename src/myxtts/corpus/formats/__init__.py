"""Registry of corpus formats, most specific first: the first that recognises a path reads it.

Only the names of files and the first lines of transcripts are looked at, so that detection is fast on large corpora.
"""

from __future__ import annotations

from pathlib import Path

from myxtts.corpus.formats.base import CorpusFormat
from myxtts.corpus.formats.folders import LIBRITTS, VCTK
from myxtts.corpus.formats.tables import (
    COMMON_VOICE,
    COQUI,
    JSONL_SUFFIXES,
    LJSPEECH,
    MANIFEST,
    PIPER,
    TABLE_SUFFIXES,
    find_transcripts,
)
from myxtts.corpus.transcripts import BadLine, read_lines
from myxtts.errors import DataError, UsageError

FORMATS: tuple[CorpusFormat, ...] = (COMMON_VOICE, VCTK, COQUI, MANIFEST, PIPER, LJSPEECH, LIBRITTS)


def find_format(path: Path, name: str = "auto") -> tuple[CorpusFormat, str]:
    """Returns the format of a corpus and the reason in words: the one called `name`, or detected with auto.

    Raises DataError with a list of all layouts where none matches.
    """
    if not path.exists():
        raise DataError(f"There is nothing at {path}.", next_step="Give the folder or transcript of your recordings.")
    if name != "auto":
        return _find_named(name), "asked for"
    for candidate in FORMATS:
        if reason := candidate.recognize(path):
            return candidate, reason
    if undecodable := _find_undecodable(path):
        return undecodable
    layouts = "\n".join(f"  {candidate.name:12} {candidate.layout}" for candidate in FORMATS)
    raise DataError(
        f"{path} has none of the layouts I know:\n{layouts}\n",
        next_step="Rename your transcript to one of these, name its file instead of the folder, or use --format.",
    )


def _find_undecodable(path: Path) -> tuple[CorpusFormat, str] | None:
    """Returns a format for a transcript whose first line cannot be decoded, so that reading it reports why."""
    for transcript, _ in find_transcripts(path, (*TABLE_SUFFIXES, *JSONL_SUFFIXES)):
        if isinstance(next(read_lines(transcript), None), BadLine):
            fmt = MANIFEST if transcript.suffix.lower() in JSONL_SUFFIXES else LJSPEECH
            return fmt, f"{transcript.name} cannot be read from its first line on"
    return None


def _find_named(name: str) -> CorpusFormat:
    for candidate in FORMATS:
        if candidate.name == name:
            return candidate
    known = ", ".join(candidate.name for candidate in FORMATS)
    raise UsageError(f"There is no corpus format {name!r}.", next_step=f"Use auto or one of {known}.")
