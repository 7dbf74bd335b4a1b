"""Compares a corpus with a store, utterance by utterance: what is up to date, new, changed or gone.

A store belongs to a corpus by its content. The path of the corpus file, which the store notes, may be spelt in several
ways, and a corpus may have been moved or copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.corpus_file import Corpus, checksum_corpus
from myxtts.errors import DataError
from myxtts.features.definition import count_source_frames
from myxtts.store.index import PartEntry
from myxtts.store.layout import PARTS, Part, StoreState
from myxtts.store.reader import FeatureStore
from myxtts.types import Utterance

Distrust = frozenset[tuple[Part, PartEntry]]
"""Records whose checksum is wrong."""
_FIRST_LINE = 2
"""Line of the first utterance in a corpus file; line 1 is its heading."""


@dataclass(frozen=True, slots=True)
class Task:
    """One utterance to write: `kept` parts are referred to, the others computed.

    `row` is None for a new one, else its row; `source_crc` is then the checksum of its recording as it was stored.
    """

    utterance: Utterance
    line: int
    text_crc: int
    source_frames: int
    kept: dict[Part, PartEntry]
    row: int | None
    source_crc: int = 0


class Comparison:
    """Compares utterances with the rows of a store; `distrusted` records count as absent."""

    def __init__(self, store: FeatureStore, distrusted: Distrust = frozenset()) -> None:
        self._store, self._distrusted = store, distrusted
        self.is_seen: NDArray[np.bool_] = np.zeros(len(store), bool)
        """Rows of utterances that were planned; the others left the corpus."""

    def plan(self, number: int, utterance: Utterance) -> Task | None:
        """Compares an utterance with its row by checksums of text and recording; returns None if it is up to date.

        `number` counts the utterances of the corpus from 0.
        """
        settings, columns = self._store.settings, self._store.columns
        text_crc, line = _checksum_text(utterance), number + _FIRST_LINE
        source_frames = count_source_frames(utterance.num_samples, utterance.sample_rate_hz, settings.mel)
        row = self._store.find(utterance.id)
        if row is None:
            return Task(utterance, line, text_crc, source_frames, {}, None)
        self.is_seen[row] = True
        same_source = not utterance.checksum or int(columns["source_crc"][row]) == utterance.checksum
        same_text = int(columns["text_crc"][row]) == text_crc
        # The same recording and text give bit-identical features, so durations stay valid when either is repaired.
        is_right = {"tokens": same_text, "durations": same_text and same_source}
        # Parts that are present, valid and not distrusted are kept; the others are counted as wrong and recomputed.
        kept: dict[Part, PartEntry] = {}
        num_wrong = 0
        for part in PARTS:
            entry = self._store.entry(row, part)
            if not entry.length:
                num_wrong += part in settings.parts
            elif is_right.get(part, same_source) and (part, entry) not in self._distrusted:
                kept[part] = entry
            else:
                num_wrong += 1
        has_same_length = int(columns["source_frames"][row]) == source_frames
        labels = (utterance.speaker, utterance.language, utterance.split)
        if num_wrong == 0 and has_same_length and self._store.labels_of(row) == labels:
            return None
        return Task(utterance, line, text_crc, source_frames, kept, row, int(columns["source_crc"][row]))

    def is_distrusted(self, row: int, part: Part) -> bool:
        return (part, self._store.entry(row, part)) in self._distrusted


def _checksum_text(utterance: Utterance) -> int:
    """crc32c of all inputs of the front end: text, language and given phonemes."""
    text = "\0".join((utterance.text, utterance.language, utterance.phonemes or ""))
    return int(google_crc32c.value(text.encode("utf-8", "surrogatepass")))


@dataclass(frozen=True, slots=True)
class CorpusChanges:
    """Utterances of a corpus by what has become of them since a store was made."""

    num_same: int = 0
    num_added: int = 0
    num_changed: int = 0
    num_removed: int = 0

    def __bool__(self) -> bool:
        return self.num_added + self.num_changed + self.num_removed > 0

    def __str__(self) -> str:
        counts = {"added": self.num_added, "changed": self.num_changed, "removed": self.num_removed}
        return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "nothing"


def find_changes(folder: Path, state: StoreState, corpus: Corpus) -> CorpusChanges:
    """Returns what has changed in a corpus since the store in `folder` was made from it.

    Raises DataError where the store was made from another corpus. The checksum of the corpus file decides where it is
    the same; else all utterances are compared.
    """
    if state.origin.checksum == checksum_corpus(corpus.file):
        return CorpusChanges(num_same=corpus.num_utterances)
    changes = compare_corpus(FeatureStore(folder, state), corpus)
    known = Path(state.origin.corpus)
    if known.exists() and known.samefile(corpus.file):
        return changes
    # A copy of the corpus, to which utterances may have been added, or a corpus that was moved and changed a little.
    is_copy = changes.num_removed == changes.num_changed == 0
    is_moved = not known.exists() and changes.num_same >= changes.num_changed + changes.num_removed
    if changes.num_same == 0 or not (is_copy or is_moved):
        num_stored = changes.num_same + changes.num_changed + changes.num_removed
        raise DataError(
            f"The features in {folder} belong to another corpus: they were made from {known}, and {changes.num_same:,} "
            f"of their {num_stored:,} utterances are in {corpus.file}.",
            next_step="Give this corpus a store of its own with --cache-dir, or name the corpus of these features.",
        )
    return changes


def compare_corpus(store: FeatureStore, corpus: Corpus) -> CorpusChanges:
    """Compares all utterances with the rows of a store."""
    comparison = Comparison(store)
    num_same = num_added = num_changed = 0
    for number, utterance in enumerate(corpus.utterances()):
        task = comparison.plan(number, utterance)
        num_same += task is None
        num_added += task is not None and task.row is None
        num_changed += task is not None and task.row is not None
    return CorpusChanges(num_same, num_added, num_changed, int(np.count_nonzero(~comparison.is_seen)))
