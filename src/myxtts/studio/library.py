"""All clips of a corpus in memory, as the page lists them: the rows of the transcript with the edits applied.

Sound is not held; only the length of each recording is read from its header when the studio is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from myxtts.corpus.edits import Edits, Entry, Status
from myxtts.corpus.formats.base import CorpusFormat, Row, Source
from myxtts.corpus.formats.edited import apply_entry, is_collected, make_new_row, read_base
from myxtts.corpus.rejections import AudioProblem
from myxtts.corpus.transcripts import CorpusRoot
from myxtts.studio.doubts import DOUBTFUL, NO_DOUBT, Doubt, find_doubts, read_collect_doubts
from myxtts.tools.collect.recordings import measure_length

Filter = Literal["all", "doubtful", "changed", "dropped"]
Sort = Literal["doubt", "order"]
_NUM_THREADS = 8
_SAME_LETTERS = str.maketrans({"ي": "ی", "ك": "ک", "\u200c": " "})
"""Spellings of Persian that a search does not tell apart."""


@dataclass(frozen=True, slots=True)
class Clip:
    """A clip as it is after all edits. `order` sorts by the transcript; parts of a split follow their origin."""

    row: Row
    status: Status
    original_text: str
    doubt: Doubt
    seconds: float | None
    order: tuple[int, ...]
    is_new: bool = False
    is_changed: bool = False
    is_checked: bool = False

    @property
    def is_listed(self) -> bool:
        return self.status != "replaced"

    @property
    def is_doubtful(self) -> bool:
        return self.status in ("used", "open") and self.doubt.value >= DOUBTFUL and not self.is_checked

    def matches(self, filter: Filter, words: str) -> bool:
        if not self.is_listed or (words and words not in _fold(f"{self.row.text}\n{self.row.id}")):
            return False
        return {
            "all": True,
            "doubtful": self.is_doubtful,
            "changed": self.is_changed,
            "dropped": self.status == "dropped",
        }[filter]

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.row.id,
            "text": self.row.text,
            "original": self.original_text,
            "speaker": self.row.speaker,
            "language": self.row.language,
            "status": self.status,
            "seconds": self.seconds,
            "doubt": self.doubt.value,
            "reasons": [reason.to_json() for reason in self.doubt.reasons],
            "new": self.is_new,
            "changed": self.is_changed,
            "doubtful": self.is_doubtful,
        }


def _fold(text: str) -> str:
    return text.casefold().translate(_SAME_LETTERS)


class Library:
    """The clips by id, and lists of them."""

    def __init__(self, source: Source, base: CorpusFormat, edits: Edits) -> None:
        self._source, self._edits = source, edits
        self._base: dict[str, Clip] = {}
        """The clips of the transcript, before any edit."""
        self.clips: dict[str, Clip] = {}
        self._sorted: dict[Sort, list[str]] = {}
        self.num_duplicates = 0
        self.num_unreadable = 0
        """Lines of the transcript that cannot be read; `prepare` lists them."""
        for row, status in read_base(source, base):
            if not isinstance(row, Row):
                self.num_unreadable += 1
            elif row.id in self._base:
                self.num_duplicates += 1
            else:
                self._base[row.id] = Clip(row, status, row.text, NO_DOUBT, None, (len(self._base),))

    def __len__(self) -> int:
        return len(self._base)

    def measure(self, given: Mapping[str, Doubt], progress: Callable[[int], None] = lambda _: None) -> None:
        """Reads the length of all recordings, and finds doubts; `given` are those of another tool."""
        root = self._source.root
        with ThreadPoolExecutor(_NUM_THREADS, "length") as pool:
            lengths = pool.map(lambda one: read_seconds(root, one.row.audio), self._base.values())
            seconds = {}
            for number, (id, length) in enumerate(zip(self._base, lengths, strict=True), 1):
                seconds[id] = length
                progress(number)
        folder = self._source.folder
        collected = read_collect_doubts(folder) if is_collected(folder) else {}
        found = find_doubts((one.row.id, one.row.speaker, one.row.text, seconds[id]) for id, one in self._base.items())
        for id, one in self._base.items():
            doubt = NO_DOUBT
            if one.status == "open":
                doubt = collected.get(id, Doubt(1.0))
            for more in (given, found):
                doubt = doubt.join(more.get(id, NO_DOUBT))
            self._base[id] = replace(one, doubt=doubt, seconds=seconds[id])
        self.clips.clear()
        self.refresh([*self._base, *self._edits.entries])

    def list_lost(self) -> list[str]:
        """Returns ids that were edited and are no longer in the transcript."""
        return [id for id, entry in self._edits.entries.items() if entry.clip is None and id not in self._base]

    def list_reasons(self) -> set[str]:
        """Returns the texts of all reasons to doubt a clip."""
        return {reason.text for one in self._base.values() for reason in one.doubt.reasons}

    def refresh(self, ids: Iterable[str]) -> None:
        """Computes edited clips again. Origins come before what was made of them."""
        for id in ids:
            clip = self._make_clip(id, self._edits.entries.get(id))
            if (clip is None) != (id not in self.clips):
                self._sorted.clear()
            if clip is None:
                self.clips.pop(id, None)
            else:
                self.clips[id] = clip

    def _make_clip(self, id: str, entry: Entry | None) -> Clip | None:
        if entry is not None and entry.clip is not None:
            return self._make_new_clip(entry)
        one = self._base.get(id)
        if one is None:
            return None
        status = (entry.status if entry is not None else None) or one.status
        row = apply_entry(one.row, entry)
        if status == "used" and (one.seconds is None or not has_words(row)):
            # `prepare` rejects it as it is.
            status = "open"
        return replace(one, row=row, status=status, is_changed=row != one.row, is_checked=entry is not None)

    def _make_new_clip(self, entry: Entry) -> Clip:
        clip = entry.clip
        assert clip is not None
        origins = [self.clips[id] for id in clip.origin if id in self.clips]
        order = (*origins[0].order, 0) if origins else (len(self._base), 0)
        # Without reasons, which were those of another clip; it stays where its origin was in the list.
        doubt = Doubt(max((origin.doubt.value for origin in origins), default=0.0))
        flags = {"is_new": True, "is_changed": True, "is_checked": True}
        row = make_new_row(clip, entry)
        return Clip(row, entry.status or "used", clip.text, doubt, clip.seconds, order, **flags)

    def list_clips(self, filter: Filter = "all", words: str = "", sort: Sort = "order") -> list[Clip]:
        """Returns the clips that match, in order of the transcript or by falling doubt."""
        if sort not in self._sorted:
            by_order = sorted(self.clips.values(), key=lambda clip: (clip.order, clip.row.id))
            if sort == "doubt":
                by_order.sort(key=lambda clip: -clip.doubt.value)
            self._sorted[sort] = [clip.row.id for clip in by_order]
        folded = _fold(words.strip())
        return [clip for id in self._sorted[sort] if (clip := self.clips[id]).matches(filter, folded)]

    def count(self) -> dict[str, float]:
        """Returns the numbers of clips and the seconds that `prepare` will use."""
        listed = [clip for clip in self.clips.values() if clip.is_listed]
        used = [clip for clip in listed if clip.status == "used"]
        return {
            "all": len(listed),
            "doubtful": sum(clip.is_doubtful for clip in listed),
            "changed": sum(clip.is_changed for clip in listed),
            "dropped": sum(clip.status == "dropped" for clip in listed),
            "used": len(used),
            "seconds": round(sum(clip.seconds or 0.0 for clip in used), 1),
        }

    def find_neighbour(self, id: str, step: Literal[-1, 1]) -> str | None:
        """Returns the clip before or after one in the transcript, if speaker and language are the same."""
        clips = self.list_clips()
        place = next((number for number, clip in enumerate(clips) if clip.row.id == id), None)
        if place is None:
            return None
        own = clips[place].row
        while 0 <= (place := place + step) < len(clips):
            other = clips[place]
            if other.status != "dropped":
                is_same = (other.row.speaker, other.row.language) == (own.speaker, own.language)
                return other.row.id if is_same else None
        return None


def has_words(row: Row) -> bool:
    """Whether a clip says anything: `prepare` rejects texts without a letter or figure."""
    return bool(row.phonemes) or any(letter.isalnum() for letter in row.text)


def read_seconds(root: CorpusRoot, audio: str) -> float | None:
    """Returns the length of a recording, 0 where its header does not say; None where it cannot be read."""
    real = root.locate(audio)
    if real is None:
        return None
    try:
        return measure_length(Path(real)) or 0.0
    except AudioProblem:
        return None
