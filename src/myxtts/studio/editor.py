"""`Studio`: an open corpus, and the edits of it. An edit is in the journal, on the disk, before it is answered.

An edit names the revision that the page has seen. Where another tab has changed the corpus meanwhile, it is refused
with the status 409, so that no change is lost unseen. A take of the microphone only adds a clip and is always accepted.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from unicodedata import category

from pydantic import BaseModel, ConfigDict, Field

from myxtts.config.languages import canonical_language
from myxtts.corpus import edits
from myxtts.corpus.formats import find_base_format
from myxtts.corpus.formats.base import Source
from myxtts.corpus.formats.edited import find_journal
from myxtts.corpus.transcripts import CorpusRoot
from myxtts.errors import DataError, UsageError
from myxtts.serve.protocol import RequestError
from myxtts.storage.atomic import explain_storage_errors, lock_directory, sweep_temporary_files
from myxtts.storage.json_file import FileModel
from myxtts.studio import sound
from myxtts.studio.doubts import Doubt
from myxtts.studio.library import Clip, Library, has_words
from myxtts.studio.recording import read_take
from myxtts.text.frontend import MAX_TEXT_LENGTH
from myxtts.types import Say, Waveform

CLIP_FOLDER = "clips"
_NUM_EXAMINED = 8
"""Clips whose sound is held in memory."""
_MAX_NAME_LENGTH = 100
_MADE_HERE = re.compile(r"_r\d+(_\d)?$")


class EditRequest(BaseModel):
    """An edit as the page sends it; fields that its kind does not need are left out."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    revision: int
    kind: Literal["change", "use", "drop", "split", "merge", "skip", "undo", "redo"]
    id: str = ""
    other: str = ""
    text: Annotated[str, Field(max_length=MAX_TEXT_LENGTH)] | None = None
    texts: tuple[Annotated[str, Field(max_length=MAX_TEXT_LENGTH)], ...] = ()
    speaker: Annotated[str, Field(max_length=_MAX_NAME_LENGTH)] | None = None
    language: Annotated[str, Field(max_length=40)] | None = None
    at_s: float = 0.0
    prompt: Annotated[str, Field(max_length=1000)] = ""


@dataclass(frozen=True, slots=True)
class Take:
    """A recording of a prompt: `name` is chosen by the page, so that an upload that is repeated counts once."""

    name: str
    prompt: str
    speaker: str
    language: str
    content: bytes = field(repr=False)


class Studio:
    """A corpus that is open for editing; one process at a time. Methods may be called from any thread."""

    def __init__(self, path: Path, *, language: str = "en", audio_root: Path | None = None, say: Say = lambda _: None):
        self.path = path
        self.lock = threading.RLock()
        self._examined: OrderedDict[tuple[str, str], sound.Examined] = OrderedDict()
        self.language = canonical_language(language)
        is_empty = _make_folder(path)
        journal_path = find_journal(path)
        known = edits.read_journal(journal_path).edits
        base, reason = find_base_format(path, is_optional=not known.has_base if known.number else is_empty)
        root = CorpusRoot(audio_root or (path if path.is_dir() else path.parent), is_chosen=audio_root is not None)
        self.source = Source(path, root, self.language)
        self._clip_folder = root.folder / edits.STUDIO_FOLDER / CLIP_FOLDER
        for folder in (journal_path.parent, self._clip_folder.parent, self._clip_folder):
            if folder.is_symlink():
                raise DataError(
                    f"{folder} is a link, and nothing is written through one.", next_step="Remove the link."
                )
        with ExitStack() as held:
            held.enter_context(lock_directory(journal_path.parent, "myxtts studio"))
            self._open(journal_path, base, reason, say)
            self._held = held.pop_all()

    def _open(self, journal_path: Path, base: Any, reason: str, say: Say) -> None:
        with explain_storage_errors(self._clip_folder, "write"):
            self._clip_folder.mkdir(parents=True, exist_ok=True)
        sweep_temporary_files(self._clip_folder)
        self._journal = edits.Journal(journal_path)
        self.edits = self._journal.edits
        if self._journal.num_torn_bytes:
            say(
                f"The last line of {journal_path} was not complete and is left out: the studio was killed while it "
                "was written. All edits before it are there."
            )
        if self.edits.number == 0:
            self._journal.append(edits.Opened(has_base=base.name != "studio"))
        self.library = Library(self.source, base, self.edits)
        self.format = f"{base.name} ({reason})"
        if self.library.num_duplicates:
            say(f"{self.library.num_duplicates:,} lines repeat an id and are not shown; `prepare` rejects them.")
        if self.library.num_unreadable:
            say(f"{self.library.num_unreadable:,} lines of the transcript cannot be read; `prepare` lists them.")
        if lost := self.library.list_lost():
            say(f"{len(lost):,} edited clips are no longer in the transcript, such as {lost[0]}.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def measure(self, given: dict[str, Doubt], progress: Any = lambda _: None) -> list[str]:
        """Reads lengths and finds doubts; returns ids of `given` that no clip has."""
        self.library.measure(given, progress)
        return [id for id in given if id not in self.library.clips]

    @property
    def revision(self) -> int:
        return self.edits.number

    def get(self, id: str) -> Clip:
        """Returns a clip; raises RequestError for a name that none has."""
        clip = self.library.clips.get(id)
        if clip is None or not clip.is_listed:
            raise RequestError(f"There is no clip {id[:60]!r}.", status=404, field="id")
        return clip

    def examine(self, id: str) -> tuple[Clip, sound.Examined]:
        """Returns a clip with its sound, figures and pauses; raises DataError where it cannot be decoded."""
        with self.lock:
            clip = self.get(id)
            key = (id, clip.row.audio)
            if key in self._examined:
                self._examined.move_to_end(key)
                return clip, self._examined[key]
        found = sound.examine(id, self._read(clip))
        with self.lock:
            self._examined[key] = found
            while len(self._examined) > _NUM_EXAMINED:
                self._examined.popitem(last=False)
        return clip, found

    def _read(self, clip: Clip) -> Waveform:
        real = self.source.root.locate(clip.row.audio)
        if real is None:
            raise RequestError(f"{clip.row.audio!r} leads out of {self.source.root.folder}.")
        return sound.read_sound(real)

    def edit(self, request: EditRequest) -> str:
        """Makes one edit; returns the id of the clip to show next. Raises RequestError with 409 for an old revision."""
        with self.lock:
            if request.revision != self.revision:
                raise RequestError(
                    "The corpus was changed in another tab.", status=409, next_step="The list is loaded again."
                )
            make = {
                "change": self._change,
                "use": self._use,
                "drop": self._drop,
                "split": self._split,
                "merge": self._merge,
                "skip": self._skip,
                "undo": self._undo,
                "redo": self._undo,
            }[request.kind]
            edit, shown = make(request)
            if edit is not None:
                touched = self._append(edit)
                if not shown:
                    shown = next((id for id in sorted(touched) if self._is_listed(id)), "")
            return shown

    def _append(self, edit: FileModel) -> set[str]:
        touched = self._journal.append(edit)
        self.library.refresh(touched)
        return touched

    def _is_listed(self, id: str) -> bool:
        clip = self.library.clips.get(id)
        return clip is not None and clip.is_listed

    def _change(self, request: EditRequest) -> tuple[FileModel | None, str]:
        clip = self.get(request.id)
        text = None if request.text is None else _clean_text(request.text)
        speaker = None if request.speaker is None else clean_speaker(request.speaker)
        language = None if request.language is None else canonical_language(request.language)
        row = clip.row
        is_same = (text or row.text, speaker or row.speaker, language or row.language) == (
            row.text,
            row.speaker,
            row.language,
        )
        if is_same:
            # Enter on a text that is right: the clip was heard and is accepted.
            return (edits.Use(id=request.id), request.id) if clip.is_doubtful else (None, request.id)
        status: Literal["used"] | None = "used" if clip.status == "open" else None
        change = edits.Change(id=request.id, text=text, speaker=speaker, language=language, status=status)
        return change, request.id

    def _use(self, request: EditRequest) -> tuple[FileModel | None, str]:
        clip = self.get(request.id)
        if not has_words(clip.row):
            raise UsageError("The clip has no text.", next_step="Write what is said, or drop the clip.")
        is_needed = clip.status != "used" or clip.is_doubtful
        return (edits.Use(id=request.id) if is_needed else None), request.id

    def _drop(self, request: EditRequest) -> tuple[FileModel | None, str]:
        clip = self.get(request.id)
        return (edits.Drop(id=request.id) if clip.status != "dropped" else None), request.id

    def _split(self, request: EditRequest) -> tuple[FileModel | None, str]:
        """Cuts a clip in two; a part without a text is left out."""
        clip = self.get(request.id)
        texts = [" ".join(text.split()) for text in request.texts]
        if len(texts) != 2 or not any(texts):
            raise RequestError("A split needs the texts of both parts.", field="texts")
        waves = sound.cut_sound(self._read(clip), request.at_s)
        parts = [
            self._write(f"{self._name_new(clip)}_{number}", text, wave, [clip])
            for number, (text, wave) in enumerate(zip(texts, waves, strict=True), 1)
            if text
        ]
        return edits.Split(id=request.id, parts=tuple(parts)), parts[0].id

    def _merge(self, request: EditRequest) -> tuple[FileModel | None, str]:
        clips = sorted((self.get(request.id), self.get(request.other)), key=lambda clip: clip.order)
        rows = [clip.row for clip in clips]
        if request.id == request.other or len({(row.speaker, row.language) for row in rows}) != 1:
            raise RequestError("Two clips of one speaker and language can be merged.", field="other")
        wave = sound.join_sounds([self._read(clip) for clip in clips])
        text = " ".join(row.text for row in rows if row.text)
        into = self._write(self._name_new(clips[0]), text, wave, clips)
        return edits.Merge(ids=tuple(row.id for row in rows), into=into), into.id

    def _name_new(self, clip: Clip) -> str:
        """Returns an id that no clip has: the number of an edit is given once, even where it is undone."""
        id = f"{_MADE_HERE.sub('', clip.row.id)[:150]}_r{self.revision}"
        while any(f"{id}{part}" in self.library.clips for part in ("", "_1", "_2")):
            id += "x"
        return id

    def _write(self, id: str, text: str, wave: Waveform, origins: list[Clip]) -> edits.NewClip:
        row = origins[0].row
        name = sound.write_clip(self._clip_folder, id, wave)
        return edits.NewClip(
            id=id,
            audio=f"{edits.STUDIO_FOLDER}/{CLIP_FOLDER}/{name}",
            text=text,
            speaker=row.speaker,
            language=row.language,
            seconds=round(wave.duration_s, 3),
            split=row.split,
            origin=tuple(origin.row.id for origin in origins),
        )

    def _skip(self, request: EditRequest) -> tuple[FileModel | None, str]:
        return edits.Skip(prompt=request.prompt), ""

    def _undo(self, request: EditRequest) -> tuple[FileModel | None, str]:
        is_undo = request.kind == "undo"
        if not (self.edits.can_undo if is_undo else self.edits.can_redo):
            return None, ""
        return (edits.Undo() if is_undo else edits.Redo()), ""

    def add_consent(self, speaker: str, note: str) -> None:
        """Keeps who speaks in the coming takes, and the words in which the person agreed."""
        with self.lock:
            date = datetime.now(UTC).isoformat(timespec="seconds")
            self._append(edits.Consent(speaker=clean_speaker(speaker), note=_clean_text(note), date=date))

    def add_take(self, take: Take) -> Clip:
        """Stores a take as a new clip; an earlier take of the same prompt and speaker is replaced by it."""
        speaker, language = clean_speaker(take.speaker), canonical_language(take.language)
        prompt = _clean_text(take.prompt)
        wave = read_take(take.content)
        with self.lock:
            if take.name in self.edits.takes:
                return self.library.clips[self.edits.takes[take.name]]
            if speaker not in self.edits.consents:
                raise RequestError("The speaker's name and consent are missing.", status=403, field="speaker")
            earlier = self.library.clips.get(self.edits.prompts.get(prompt, ""))
            is_replaced = earlier is not None and earlier.is_listed and earlier.row.speaker == speaker
            id = f"{sound.make_file_name(speaker)}_r{self.revision}"
            clip = edits.NewClip(
                id=id,
                audio=f"{edits.STUDIO_FOLDER}/{CLIP_FOLDER}/{sound.write_clip(self._clip_folder, id, wave)}",
                text=prompt,
                speaker=speaker,
                language=language,
                seconds=round(wave.duration_s, 3),
            )
            replaced = earlier.row.id if earlier is not None and is_replaced else None
            self._append(edits.Record(clip=clip, prompt=prompt, take=take.name, replaces=replaced))
            return self.library.clips[id]


def _make_folder(path: Path) -> bool:
    """Makes the folder of a new corpus; returns whether it has no files besides those of the studio."""
    if not path.exists():
        if path.suffix:
            raise DataError(f"There is nothing at {path}.", next_step="Name a corpus, or a new folder to record into.")
        with explain_storage_errors(path, "write"):
            path.mkdir()
    if not path.is_dir():
        return False
    return all(entry.name == edits.STUDIO_FOLDER or entry.name.startswith(".") for entry in path.iterdir())


def _clean_text(text: str) -> str:
    """Returns a text on one line; raises UsageError where nothing is left, or it has control characters."""
    cleaned = " ".join(text.split())
    if not cleaned or _is_unwritable(cleaned):
        problem = "The text has characters that cannot be written." if cleaned else "The text is empty."
        raise UsageError(problem, next_step="Write what is said, or drop the clip.")
    return cleaned


def clean_speaker(speaker: str) -> str:
    """Returns a name for transcripts; raises UsageError for an empty or very long one."""
    cleaned = " ".join(speaker.split())
    if not 1 <= len(cleaned) <= _MAX_NAME_LENGTH or _is_unwritable(cleaned):
        raise UsageError(
            f"{cleaned[:20]!r} cannot be a speaker's name.", next_step=f"Use 1 to {_MAX_NAME_LENGTH} letters."
        )
    return cleaned


def _is_unwritable(text: str) -> bool:
    """Whether a text has control characters or halves of characters; joiners of Persian words are fine."""
    return any(category(letter) in ("Cc", "Cs") for letter in text)
