"""Compares a store with its corpus, and updates it: adds, rebuilds, keeps and removes utterances; and compaction.

A store belongs to a corpus by its content. The path of the corpus file, which the store notes, may be spelt in several
ways, and a corpus may have been moved or copied.
The corpus is read in chunks of fixed size and order, one segment a chunk, so that a run that was killed and resumed
writes the same files as an undisturbed one. Memory is bounded by a window of utterances, whatever the corpus holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.corpus_file import CORPUS_FILE_NAME, Corpus, checksum_corpus
from myxtts.corpus.rejections import AudioProblem, Rejection, RejectionReport
from myxtts.errors import DataError
from myxtts.features.definition import count_source_frames
from myxtts.storage.atomic import lock_directory, sweep_temporary_files
from myxtts.store.generation import (
    begin_generation,
    commit_state,
    describe_row,
    find_next_segment,
    remove_other_generations,
)
from myxtts.store.index import PartEntry, Row
from myxtts.store.layout import CHUNK_UTTERANCES, PARTS, Generation, Part, StoreState, name_generation, require_store
from myxtts.store.reader import FeatureStore
from myxtts.store.segment import SegmentWriter
from myxtts.store.shard import Outcome, Shards, Task
from myxtts.types import Progress, Utterance

Distrust = frozenset[tuple[Part, PartEntry]]
"""Records whose checksum is wrong."""
_FIRST_LINE = 2
"""Line of the first utterance in a corpus file; line 1 is its heading."""
COMPACTED_UTTERANCES = 16_384
"""Utterances of a compacted segment: more than when they are made, because fewer files open faster."""


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
            f"The features in {folder} belong to another corpus: they were computed from {known}, and "
            f"{changes.num_same:,} of their {num_stored:,} utterances are in {corpus.file}.",
            next_step=f"Give this corpus its own feature cache: --cache-dir {corpus.file.parent.name}_features. "
            "Or name the corpus of these features.",
        )
    return changes


def compare_corpus(store: FeatureStore, corpus: Corpus) -> CorpusChanges:
    """Compares all utterances with the rows of a store."""
    comparison = Comparison(store)
    num_same = num_added = num_changed = 0
    for number, utterance in enumerate(corpus.utterances_as_read(corpus.load_frontend())):
        task = comparison.plan(number, utterance)
        num_same += task is None
        num_added += task is not None and task.row is None
        num_changed += task is not None and task.row is not None
    return CorpusChanges(num_same, num_added, num_changed, int(np.count_nonzero(~comparison.is_seen)))


@dataclass(slots=True)
class UpdateCounts:
    """Counts of utterances by outcome; `num_made` counts spectrograms, `num_tokens_made` token sequences.

    Lost are stored utterances whose recording can no longer be used, and the distrusted parts they had.
    """

    num_kept: int = 0
    num_made: int = 0
    num_tokens_made: int = 0
    num_added: int = 0
    num_removed: int = 0
    num_rejected: int = 0
    num_lost: int = 0
    num_lost_parts: int = 0


class StoreUpdater:
    """Writes the segments by which a generation catches up with its corpus.

    `store` is what the generation holds so far; `distrusted` records are recomputed although they are present. `shards`
    computes what is missing, a segment at a time.
    """

    def __init__(
        self, store: FeatureStore, report: RejectionReport, shards: Shards, distrusted: Distrust = frozenset()
    ) -> None:
        self._store, self._report, self._shards = store, report, shards
        self._comparison = Comparison(store, distrusted)
        self._counts, self._num_seen = UpdateCounts(), 0
        self.new_segments: list[int] = []
        """The segments that were written."""

    def run(self, corpus: Corpus, progress: Progress) -> UpdateCounts:
        """Reads the corpus once in chunks: plans, computes and writes each, then removes rows that were not seen.

        `progress` is called after each computed utterance and each chunk. An exception leaves the segments committed
        so far, which the next run keeps.
        """
        folder = self._store.generation_folder
        with closing(self._shards.run(self._plan(corpus, progress), folder, find_next_segment(folder))) as outcomes:
            for task, outcome in outcomes:
                self._note(task, outcome)
                progress(self._num_seen, self._counts.num_rejected)
        self.new_segments = [*self._shards.segments, *self._remove_unseen()]
        return self._counts

    def _plan(self, corpus: Corpus, progress: Progress) -> Iterator[list[Task]]:
        """Yields the tasks of each chunk of the corpus that has any."""
        numbered = enumerate(corpus.utterances_as_read(corpus.load_frontend()))
        while chunk := list(islice(numbered, CHUNK_UTTERANCES)):
            tasks = [task for item in chunk if (task := self._comparison.plan(*item)) is not None]
            self._counts.num_kept += len(chunk) - len(tasks)
            self._num_seen += len(chunk) - len(tasks)
            progress(self._num_seen, self._counts.num_rejected)
            if tasks:
                yield tasks

    def _note(self, task: Task, outcome: Outcome) -> None:
        """Counts what became of a task."""
        self._num_seen += 1
        if isinstance(outcome, AudioProblem):
            self._reject(task, outcome)
            return
        self._counts.num_made += outcome.has_spectrogram
        self._counts.num_tokens_made += outcome.has_tokens
        if task.row is None:
            self._counts.num_added += 1
        elif self._comparison.is_distrusted(task.row, "durations"):
            self._counts.num_lost_parts += 1

    def _reject(self, task: Task, problem: AudioProblem) -> None:
        """Reports an utterance that cannot be used; if it has a row, marks it for `_remove_unseen`."""
        self._counts.num_rejected += 1
        if task.row is not None:
            self._comparison.is_seen[task.row] = False
            self._counts.num_lost += 1
            self._counts.num_lost_parts += sum(self._comparison.is_distrusted(task.row, part) for part in PARTS)
        utterance = task.utterance
        self._report.add(
            Rejection(utterance.id, CORPUS_FILE_NAME, task.line, problem.reason, problem.detail, audio=utterance.audio)
        )

    def _remove_unseen(self) -> Iterator[int]:
        """Writes tombstone rows for utterances that left the corpus or were rejected; yields the new segments."""
        gone = np.flatnonzero(~self._comparison.is_seen)
        self._counts.num_removed = len(gone)
        folder = self._store.generation_folder
        for number, start in enumerate(range(0, len(gone), CHUNK_UTTERANCES), find_next_segment(folder)):
            with SegmentWriter(folder, number) as segment:
                for row in gone[start : start + CHUNK_UTTERANCES]:
                    segment.add(Row(self._store.id_of(int(row)), removed=True), {})
                segment.commit()
                yield number


@dataclass(frozen=True, slots=True)
class CompactSummary:
    """Size of a store before and after compaction."""

    num_utterances: int
    num_bytes_before: int
    num_bytes_after: int


def compact_store(folder: Path) -> CompactSummary:
    """Garbage collection: copies the records that rows refer to into a new generation, in order of rows.

    What replacements and removals left behind is dropped. A kill leaves the store as it was.
    """
    require_store(folder)
    with lock_directory(folder, "myxtts cache compact"):
        sweep_temporary_files(folder)
        store = FeatureStore.open(folder)
        before = _measure(store.generation_folder)
        number = store.state.generation + 1
        target = folder / name_generation(number)
        starts = range(0, len(store), COMPACTED_UTTERANCES)
        with ExitStack() as half_done:
            # On failure, delete the incomplete copy: it cannot be resumed, and may be what filled the disk.
            half_done.callback(remove_other_generations, folder, store.state.generation)
            begin_generation(folder, number, Generation(store.settings, store.state.origin, "compaction"))
            for segment, start in enumerate(starts):
                _copy_rows(store, range(start, min(start + COMPACTED_UTTERANCES, len(store))), target, segment)
            half_done.pop_all()
        state = commit_state(folder, replace(store.state, generation=number, segments=tuple(range(len(starts)))))
        remove_other_generations(folder, number)
        return CompactSummary(state.num_utterances, before, _measure(target))


def _copy_rows(store: FeatureStore, rows: range, target: Path, number: int) -> None:
    """Writes a segment with copies of these rows and all their parts."""
    with SegmentWriter(target, number) as segment:
        for row in rows:
            # The copy of a damaged record would get a valid checksum.
            store.refuse_damage(row, "Run myxtts cache repair first; nothing has been changed.")
            parts: list[Part] = [part for part in PARTS if store.entry(row, part).length]
            segment.add(describe_row(store, row, ("tokens",)), {part: store.read_record(row, part) for part in parts})
        segment.commit()


def _measure(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
