"""Rows of a corpus as `myxtts studio` left it: those of the transcript with the edits of its journal applied.

The transcript and the recordings of the user stay as they are. `prepare` reads the journal, so it always gets what the
studio shows, without a second manifest that could be older than either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from myxtts.corpus.edits import JOURNAL_FILE, STUDIO_FOLDER, Entry, NewClip, Status, read_journal
from myxtts.corpus.formats.base import CorpusFormat, Row, Source
from myxtts.corpus.formats.tables import JSONL_SUFFIXES, TABLE_SUFFIXES, find_transcripts, read_jsonl
from myxtts.corpus.rejections import Rejection

COLLECT_FOLDER, DOUBTFUL_FILE = ".collect", "doubtful.jsonl"
"""Written by `myxtts collect`: the mark of its folder, and the clips that are not used until the user accepts them."""
NO_TRANSCRIPT = CorpusFormat(
    "studio", "studio/edits.jsonl with recordings of the studio", lambda _: "", lambda _: iter(())
)
"""A folder that the studio recorded into: it has no other transcript."""


def find_journal(path: Path) -> Path:
    """Returns the path of the journal of a corpus. A folder and its only transcript share one."""
    if path.is_dir() or not path.exists():
        return path / STUDIO_FOLDER / JOURNAL_FILE
    only = [file.resolve() for file, _ in find_transcripts(path.parent, (*TABLE_SUFFIXES, *JSONL_SUFFIXES))]
    name = JOURNAL_FILE if only == [path.resolve()] else f"{path.name}.{JOURNAL_FILE}"
    return path.parent / STUDIO_FOLDER / name


def has_journal(path: Path) -> bool:
    journal = find_journal(path)
    return journal.is_file() and journal.stat().st_size > 0


def is_collected(folder: Path) -> bool:
    """Whether `myxtts collect` wrote this folder, so that it has a list of doubtful clips."""
    return (folder / COLLECT_FOLDER).is_dir() and (folder / DOUBTFUL_FILE).is_file()


def read_base(source: Source, base: CorpusFormat) -> Iterator[tuple[Row | Rejection, Status]]:
    """Yields the rows of the transcript, and behind them those that `collect` found doubtful, with their states."""
    for row in base.read(source):
        yield row, "used"
    if is_collected(source.folder):
        for row in read_jsonl(source, source.folder / DOUBTFUL_FILE, None):
            yield row, "open"


def apply_entry(row: Row, entry: Entry | None) -> Row:
    """Returns the row with the changes of its entry. Phonemes of another text are not kept."""
    if entry is None:
        return row
    text = row.text if entry.text is None else entry.text
    return replace(
        row,
        text=text,
        speaker=entry.speaker or row.speaker,
        language=entry.language or row.language,
        phonemes=row.phonemes if text == row.text else None,
    )


def make_new_row(clip: NewClip, entry: Entry) -> Row:
    """Returns the row of a clip that the studio made."""
    file = f"{STUDIO_FOLDER}/{JOURNAL_FILE}"
    row = Row(clip.id, clip.audio, clip.text, clip.speaker, clip.language, file, 0, split=clip.split)
    return apply_entry(row, entry)


def apply_edits(base: CorpusFormat) -> CorpusFormat:
    """Returns the format with the same name whose `read` applies the journal to the rows of `base`."""

    def read(source: Source) -> Iterator[Row | Rejection]:
        return (row for row, status in _read_edited(source, base) if status == "used")

    def set_aside(source: Source) -> Iterator[tuple[Row, Status]]:
        for row, status in _read_edited(source, base):
            if isinstance(row, Row) and status != "used":
                yield row, status

    return CorpusFormat(base.name, base.layout, base.recognize, read, set_aside)


def _read_edited(source: Source, base: CorpusFormat) -> Iterator[tuple[Row | Rejection, Status]]:
    """Yields all rows with their states, and behind them those of clips that the studio made.

    Later rows of an id pass unchanged: `prepare` rejects them as duplicates.
    """
    edits = read_journal(find_journal(source.path)).edits
    edited: set[str] = set()
    for row, status in read_base(source, base):
        if isinstance(row, Rejection):
            yield row, "used"
            continue
        entry = edits.entries.get(row.id) if row.id not in edited else None
        if entry is not None:
            edited.add(row.id)
        yield apply_entry(row, entry), (entry.status if entry else None) or status
    for entry in edits.entries.values():
        if entry.clip is not None:
            yield make_new_row(entry.clip, entry), entry.status or "used"
