"""Registry of corpus formats, most specific first: the first that recognises a path reads it.

Where `myxtts studio` has edited a corpus, its edits are applied to the rows, whatever the format is. Clips that
`myxtts collect` doubts are set aside until the studio accepts them.

Only the names of files and the first lines of transcripts are looked at, so that detection is fast on large corpora.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from myxtts.corpus.corpus_file import is_prepared
from myxtts.corpus.edits import Edits, read_journal
from myxtts.corpus.formats.base import CorpusFormat
from myxtts.corpus.formats.edited import NO_TRANSCRIPT, apply_edits, find_journal, has_journal, is_collected
from myxtts.corpus.formats.folders import LIBRITTS, PAIRS, VCTK, find_recordings
from myxtts.corpus.formats.tables import (
    COMMON_VOICE,
    COQUI,
    JSONL_SUFFIXES,
    LJSPEECH,
    MANIFEST,
    PIPER,
    TABLE_SUFFIXES,
    explain_columns,
    find_transcripts,
    list_possible_transcripts,
)
from myxtts.corpus.transcripts import BadLine, read_lines
from myxtts.errors import DataError, UsageError

FORMATS: tuple[CorpusFormat, ...] = (COMMON_VOICE, VCTK, COQUI, MANIFEST, PIPER, LJSPEECH, LIBRITTS, PAIRS)
_NUM_FOLDERS_LOOKED_AT = 20
_NUM_RECORDINGS_COUNTED = 10_000
"""Bounds of what is looked at for a message."""


def find_format(path: Path, name: str = "auto") -> tuple[CorpusFormat, str]:
    """Returns the format of a corpus and the reason in words: the one called `name`, or detected with auto.

    Raises DataError with what was found instead where none matches.
    """
    if not path.exists():
        raise DataError(f"There is nothing at {path}.", next_step="Give the folder or transcript of your recordings.")
    edits = read_journal(find_journal(path)).edits if has_journal(path) else Edits()
    base, reason = find_base_format(path, name, is_optional=not edits.has_base)
    if edits.number <= 1:
        # The studio was not used, or only looked at.
        folder = path if path.is_dir() else path.parent
        return apply_edits(base) if is_collected(folder) else base, reason
    return apply_edits(base), f"{reason}; with the {edits.number - 1:,} edits of {find_journal(path)}"


def find_base_format(path: Path, name: str = "auto", *, is_optional: bool = False) -> tuple[CorpusFormat, str]:
    """As `find_format`, without the edits of the studio. `is_optional` allows a folder without a transcript."""
    if name != "auto":
        return _find_named(name), "asked for"
    for candidate in FORMATS:
        if reason := candidate.recognize(path):
            return candidate, reason
    if undecodable := _find_undecodable(path):
        return undecodable
    if is_optional:
        return NO_TRANSCRIPT, "recordings of the studio"
    raise _explain(path)


def _explain(path: Path) -> DataError:
    """Makes the error for a path that no format recognises: what is there, and the nearest fix."""
    layouts = "\n".join(f"  {candidate.name:12} {candidate.layout}" for candidate in FORMATS)
    known = f"The layouts that are read:\n{layouts}\n"
    if path.is_file() and path.suffix.lower() not in (*TABLE_SUFFIXES, *JSONL_SUFFIXES):
        endings = ", ".join((*TABLE_SUFFIXES, *JSONL_SUFFIXES))
        return DataError(
            f"{path} is no transcript: those end in {endings}.", next_step="Name a transcript or a folder."
        )
    for transcript, _ in find_transcripts(path, (*TABLE_SUFFIXES, *JSONL_SUFFIXES)):
        if problem := explain_columns(transcript):
            return DataError(problem, next_step="Rename the columns, or write a manifest with id, audio and text.")
        return DataError(
            f"{transcript} has none of the forms of a transcript. {known}",
            next_step="Give it a heading that names its columns, such as id|text or audio,text,speaker.",
        )
    if is_prepared(path):
        return DataError(
            f"{path} is a prepared corpus already.",
            next_step=f"Train on it (myxtts train --train-data {path}), or name the recordings that it was made of.",
        )
    if possible := list_possible_transcripts(path):
        names = ", ".join(file.name for file in possible[:10])
        problem = f"{path} has several files that may be its transcript: {names}."
        return DataError(problem, next_step=f"Name one of them: {possible[0]}.")
    inside = [folder for folder in sorted(path.iterdir()) if folder.is_dir()][:_NUM_FOLDERS_LOOKED_AT]
    for folder in inside:
        found = next((candidate for candidate in FORMATS if candidate.recognize(folder)), None)
        if found is not None:
            return DataError(f"{path} is no corpus, but {folder} is one ({found.name}).", next_step=f"Name {folder}.")
    num_recordings = sum(1 for _ in islice(find_recordings(path), _NUM_RECORDINGS_COUNTED))
    if num_recordings:
        more = "or more " if num_recordings == _NUM_RECORDINGS_COUNTED else ""
        return DataError(
            f"{path} has {num_recordings:,} {more}recordings, but no transcript. {known}",
            next_step=f"Cut and transcribe them: myxtts collect {path} --out CORPUS, with --asr-command, --subtitles "
            "or --text; or write what is said in each one, in metadata.csv as id|text or in ID.txt beside ID.wav.",
        )
    next_step = "Name the folder of your recordings, or its transcript."
    if not any(path.iterdir()):
        return DataError(f"The folder {path} is empty.", next_step=next_step)
    return DataError(f"{path} holds no transcript and no recordings. {known}", next_step=next_step)


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
