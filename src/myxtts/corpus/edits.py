"""Edits of a corpus by `myxtts studio`: an append-only journal, and the state that follows from it.

`studio/edits.jsonl` beside the transcript has one edit a line, with its number and a CRC-32. A line is written and
synced (fsync) before the edit counts. A kill in the middle of a write leaves a torn last line, which is left out when
the journal is read; damage anywhere else is an error. Undo is an edit too, so nothing is ever removed.

`Edits` is a pure function of the lines: clips that are new, and texts, speakers, languages and states of clips by id.
It knows nothing of the transcript; `corpus.formats.edited` applies it to the rows.
"""

from __future__ import annotations

import errno
import json
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from myxtts.errors import StorageError, refuse
from myxtts.storage.atomic import explain_storage_errors, pass_fault_point, sync_directory
from myxtts.storage.json_file import FileModel, JsonRefusedError, Listed, VersionOne, parse_json_line
from myxtts.storage.regular_file import explain_read_errors, open_output, read_regular
from myxtts.types import Split as CorpusSplit

STUDIO_FOLDER, JOURNAL_FILE = "studio", "edits.jsonl"
_MAX_JOURNAL_BYTES = 1 << 30
_LINE = re.compile(rb'\{"crc32":"([0-9a-f]{8})","number":(\d{1,9}),"edit":(\{.*\})\}')
_DAMAGED = "Copy it from a backup, or remove this line and all after it."

Status = Literal["used", "open", "dropped", "replaced"]
"""State of a clip: used by `prepare`; in doubt and not used yet; dropped; replaced by a split, merge or new take."""


class NewClip(FileModel):
    """A clip that the studio made: `audio` is relative to the root of the recordings, `origin` the ids it came from."""

    id: str
    audio: str
    text: str
    speaker: str
    language: str
    seconds: float
    split: CorpusSplit | None = None
    origin: Listed[str] = ()


class Opened(FileModel):
    """The first line. `has_base` is false for a folder without a transcript, which holds new recordings only."""

    kind: Literal["opened"] = "opened"
    version: VersionOne = 1
    has_base: bool


class Change(FileModel):
    """Another text, speaker or language; None leaves it as it is. `status` is set where the clip was in doubt."""

    kind: Literal["change"] = "change"
    id: str
    text: str | None = None
    speaker: str | None = None
    language: str | None = None
    status: Status | None = None


class Use(FileModel):
    """Accepts a clip in doubt, or restores a dropped one."""

    kind: Literal["use"] = "use"
    id: str


class Drop(FileModel):
    kind: Literal["drop"] = "drop"
    id: str


class Split(FileModel):
    """Replaces a clip by its parts."""

    kind: Literal["split"] = "split"
    id: str
    parts: Listed[NewClip]


class Merge(FileModel):
    """Replaces clips by one that holds the sound of all."""

    kind: Literal["merge"] = "merge"
    ids: Listed[str]
    into: NewClip


class Record(FileModel):
    """A take of a prompt. `take` is the name that the page gave to its upload, `replaces` an earlier take."""

    kind: Literal["record"] = "record"
    clip: NewClip
    prompt: str
    take: str
    replaces: str | None = None


class Skip(FileModel):
    kind: Literal["skip"] = "skip"
    prompt: str


class Consent(FileModel):
    """Who speaks, and in which words the person agreed. It cannot be undone."""

    kind: Literal["consent"] = "consent"
    speaker: str
    note: str
    date: str


class Undo(FileModel):
    kind: Literal["undo"] = "undo"


class Redo(FileModel):
    kind: Literal["redo"] = "redo"


Edit = Annotated[
    Opened | Change | Use | Drop | Split | Merge | Record | Skip | Consent | Undo | Redo, Field(discriminator="kind")
]


@dataclass(frozen=True, slots=True)
class Entry:
    """What the edits say of one id; None is "as in the transcript"."""

    clip: NewClip | None = None
    text: str | None = None
    speaker: str | None = None
    language: str | None = None
    status: Status | None = None


@dataclass(slots=True)
class _Before:
    """The values that an edit replaced, by which it is undone."""

    edit: Any
    entries: dict[str, Entry | None]
    prompts: dict[str, str | None]


@dataclass(slots=True)
class Edits:
    """State after a number of edits. `prompts` has the clip of each recorded prompt, '' for a skipped one."""

    number: int = 0
    has_base: bool = True
    entries: dict[str, Entry] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)
    takes: dict[str, str] = field(default_factory=dict)
    consents: dict[str, Consent] = field(default_factory=dict)
    _done: list[_Before] = field(default_factory=list)
    _undone: list[Any] = field(default_factory=list)

    @property
    def can_undo(self) -> bool:
        return bool(self._done)

    @property
    def can_redo(self) -> bool:
        return bool(self._undone)

    def apply(self, edit: Any) -> set[str]:
        """Applies one edit; returns the ids of the clips that it touched."""
        self.number += 1
        if isinstance(edit, Opened):
            self.has_base = edit.has_base
        elif isinstance(edit, Consent):
            self.consents[edit.speaker] = edit
        elif isinstance(edit, Undo):
            return self._undo() if self._done else set()
        elif isinstance(edit, Redo):
            return self._do(self._undone.pop()) if self._undone else set()
        else:
            self._undone.clear()
            return self._do(edit)
        return set()

    def _do(self, edit: Any) -> set[str]:
        entries, prompts = self._list_effects(edit)
        before = {id: self.entries.get(id) for id in entries}
        self._done.append(_Before(edit, before, {name: self.prompts.get(name) for name in prompts}))
        self.entries.update(entries)
        self.prompts.update(prompts)
        if isinstance(edit, Record):
            self.takes[edit.take] = edit.clip.id
        return set(entries)

    def _undo(self) -> set[str]:
        before = self._done.pop()
        self._undone.append(before.edit)
        _put_back(self.entries, before.entries)
        _put_back(self.prompts, before.prompts)
        return set(before.entries)

    def _list_effects(self, edit: Any) -> tuple[dict[str, Entry], dict[str, str]]:
        """Returns the entries and prompts that an edit sets."""
        if isinstance(edit, Change):
            fields = {name: getattr(edit, name) for name in ("text", "speaker", "language", "status")}
            given = {name: value for name, value in fields.items() if value is not None}
            return {edit.id: replace(self._get(edit.id), **given)}, {}
        if isinstance(edit, Use | Drop):
            return {edit.id: replace(self._get(edit.id), status="used" if isinstance(edit, Use) else "dropped")}, {}
        if isinstance(edit, Split):
            return {**self._replace(edit.id), **{part.id: Entry(part, status="used") for part in edit.parts}}, {}
        if isinstance(edit, Merge):
            return {**self._replace(*edit.ids), edit.into.id: Entry(edit.into, status="used")}, {}
        if isinstance(edit, Record):
            replaced = self._replace(edit.replaces) if edit.replaces is not None else {}
            return {**replaced, edit.clip.id: Entry(edit.clip, status="used")}, {edit.prompt: edit.clip.id}
        assert isinstance(edit, Skip), edit
        return {}, {edit.prompt: ""}

    def _get(self, id: str) -> Entry:
        return self.entries.get(id, Entry())

    def _replace(self, *ids: str) -> dict[str, Entry]:
        return {id: replace(self._get(id), status="replaced") for id in ids}


def _put_back(current: dict[str, Any], before: Mapping[str, Any]) -> None:
    for name, value in before.items():
        if value is None:
            current.pop(name, None)
        else:
            current[name] = value


def format_line(number: int, edit: FileModel) -> bytes:
    body = json.dumps(edit.model_dump(mode="json"), ensure_ascii=False, separators=(",", ":"))
    content = body.encode("utf-8", "backslashreplace")
    return b'{"crc32":"%08x","number":%d,"edit":%s}\n' % (_sum_line(number, content), number, content)


def _sum_line(number: int, content: bytes) -> int:
    return zlib.crc32(b"%d %s" % (number, content))


@dataclass(frozen=True, slots=True)
class ReadJournal:
    """The state of a journal, the number of its whole bytes, and of those behind that a kill left (torn line)."""

    edits: Edits
    num_bytes: int = 0
    num_torn_bytes: int = 0


def read_journal(path: Path) -> ReadJournal:
    """Reads all edits; a torn last line is left out. Raises DataError for damage before it; no file has no edits."""
    try:
        with explain_read_errors(lambda reason: refuse(path, reason), is_optional=True):
            content = read_regular(path, _MAX_JOURNAL_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return ReadJournal(Edits())
    edits, position = Edits(), 0
    while position < len(content):
        end = content.find(b"\n", position)
        line = content[position : end if end >= 0 else len(content)]
        edit = _parse_line(line, edits.number) if end >= 0 else None
        if edit is None:
            if 0 <= end < len(content) - 1:
                raise refuse(path, f"line {edits.number + 1} is damaged", _DAMAGED)
            break
        edits.apply(edit)
        position = end + 1
    return ReadJournal(edits, position, len(content) - position)


def _parse_line(line: bytes, number: int) -> Any:
    """Returns the edit of a line; None where it is not whole, or is not the edit that must come next."""
    matched = _LINE.fullmatch(line)
    if matched is None:
        return None
    crc32, found, content = matched.groups()
    if int(found) != number or int(crc32, 16) != _sum_line(number, content):
        return None
    try:
        return parse_json_line(content, Edit)  # type: ignore[arg-type]
    except JsonRefusedError:
        return None


class Journal:
    """The journal of one studio, which holds the lock of its folder: reads it, then appends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        read = read_journal(path)
        self.edits, self.num_torn_bytes = read.edits, read.num_torn_bytes
        self._num_bytes = read.num_bytes
        if read.num_torn_bytes:
            self._cut_back()

    def append(self, edit: FileModel) -> set[str]:
        """Writes an edit to the disk, then applies it; returns the ids that it touched. Raises StorageError.

        Where the write fails, the journal and the state are as before.
        """
        line = format_line(self.edits.number, edit)
        is_new = self._num_bytes == 0
        try:
            with explain_storage_errors(self.path, "write"):
                with open_output(self.path, append=True, buffering=0) as file:
                    num_written = file.write(line)
                    pass_fault_point("journal")
                    os.fsync(file.fileno())
                if num_written != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if is_new:
                    sync_directory(self.path.parent)
        except StorageError:
            self._cut_back()
            raise
        self._num_bytes += len(line)
        return self.edits.apply(edit)

    def _cut_back(self) -> None:
        """Removes what is behind the last whole line, so that the next one starts on a line of its own."""
        with explain_storage_errors(self.path, "write"), open_output(self.path, append=True) as file:
            os.ftruncate(file.fileno(), self._num_bytes)
            os.fsync(file.fileno())
