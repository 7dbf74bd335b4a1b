"""Incremental update of a generation from its corpus (adds, rebuilds, keeps, removes utterances), and compaction.

The corpus is read in chunks of fixed size and order, one segment a chunk, so that a run that was killed and resumed
writes the same files as an undisturbed one. Memory is bounded by a window of utterances, whatever the corpus holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from myxtts.corpus.corpus_file import CORPUS_FILE_NAME, Corpus
from myxtts.corpus.rejections import AudioProblem, Rejection, RejectionReport
from myxtts.storage.atomic import lock_directory, sweep_temporary_files
from myxtts.store.compare import Comparison, Distrust, Task
from myxtts.store.generation import (
    begin_generation,
    commit_state,
    describe_row,
    find_next_segment,
    remove_other_generations,
)
from myxtts.store.index import Row
from myxtts.store.layout import (
    CHUNK_UTTERANCES,
    PARTS,
    Generation,
    Part,
    name_generation,
    require_store,
)
from myxtts.store.reader import FeatureStore
from myxtts.store.segment import SegmentWriter
from myxtts.store.shard import Outcome, Shards
from myxtts.types import Progress

COMPACTED_UTTERANCES = 16_384
"""Utterances of a compacted segment: more than when they are made, because fewer files open faster."""


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
        numbered = enumerate(corpus.utterances())
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
    with lock_directory(folder, "myxtts precompute --compact"):
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
            store.refuse_damage(row, "Run myxtts precompute --fix first; nothing has been changed.")
            parts: list[Part] = [part for part in PARTS if store.entry(row, part).length]
            segment.add(describe_row(store, row, ("tokens",)), {part: store.read_record(row, part) for part in parts})
        segment.commit()


def _measure(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
