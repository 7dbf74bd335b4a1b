"""Incremental update of a generation from its corpus (adds, rebuilds, keeps, removes utterances), and compaction.

The corpus is read in chunks of fixed size and order, one segment a chunk, so that a run that was killed and resumed
writes the same files as an undisturbed one. Memory is bounded by a window of utterances, whatever the corpus holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.corpus_file import CORPUS_FILE_NAME, Corpus
from myxtts.corpus.rejections import AudioProblem, Reason, Rejection, RejectionReport
from myxtts.features.extract import AudioFeatures, FeatureExtractor
from myxtts.storage.atomic import lock_directory, sweep_temporary_files
from myxtts.store.compare import Comparison, Distrust, Task
from myxtts.store.generation import (
    begin_generation,
    commit_state,
    describe_row,
    find_next_segment,
    remove_other_generations,
)
from myxtts.store.index import PartEntry, Row
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
from myxtts.text.frontend import FrontEnd
from myxtts.types import Utterance

_WINDOW_UTTERANCES = 64
"""Recordings in flight: enough for any number of threads, and bounded in memory."""
COMPACTED_UTTERANCES = 16_384
"""Utterances of a compacted segment: more than when they are made, because fewer files open faster."""

Progress = Callable[[int, int], None]
"""Called with the number of utterances seen and rejected so far."""


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

    `store` is what the generation holds so far; `distrusted` records are recomputed although they are present. Audio
    features are computed in a thread pool, tokens a chunk at a time, and segments written in corpus order.
    """

    def __init__(
        self,
        store: FeatureStore,
        frontend: FrontEnd,
        report: RejectionReport,
        num_threads: int,
        distrusted: Distrust = frozenset(),
    ) -> None:
        self._store, self._frontend, self._report = store, frontend, report
        self._num_threads, self._comparison = num_threads, Comparison(store, distrusted)
        settings = self._settings = store.settings
        limits = store.state.origin.limits
        self._extractor = FeatureExtractor(settings.mel, settings.audio, limits, keep_pcm=settings.has_pcm)
        self._first_segment = self._next_segment = find_next_segment(store.generation_folder)
        self._counts = UpdateCounts()

    @property
    def new_segments(self) -> range:
        """The segments that were written."""
        return range(self._first_segment, self._next_segment)

    def run(self, corpus: Corpus, progress: Progress) -> UpdateCounts:
        """Reads the corpus once in chunks: plans, computes and writes each, then removes rows that were not seen.

        `progress` is called after each computed utterance and each chunk. An exception leaves the segments committed
        so far, which the next run keeps.
        """
        numbered = enumerate(corpus.utterances())
        num_seen = 0
        pool = ThreadPoolExecutor(self._num_threads, "features")
        try:
            while chunk := list(islice(numbered, CHUNK_UTTERANCES)):
                tasks = [task for item in chunk if (task := self._comparison.plan(*item)) is not None]
                self._counts.num_kept += len(chunk) - len(tasks)
                num_seen += len(chunk) - len(tasks)
                if tasks:
                    with closing(self._write_chunk(tasks, pool)) as written:
                        for _ in written:
                            num_seen += 1
                            progress(num_seen, self._counts.num_rejected)
                progress(num_seen, self._counts.num_rejected)
        finally:
            # After an error or an interrupt, submitted but unstarted extractions are cancelled.
            pool.shutdown(wait=True, cancel_futures=True)
        self._remove_unseen()
        return self._counts

    def _write_chunk(self, tasks: list[Task], pool: ThreadPoolExecutor) -> Generator[None, None, None]:
        """Computes and writes one segment; yields after each utterance, for progress and interrupts."""
        tokens = self._make_tokens(tasks)
        with SegmentWriter(self._store.generation_folder, self._next_segment) as segment:
            for task, ids, outcome in zip(tasks, tokens, self._extract(tasks, pool), strict=True):
                self._write_utterance(segment, task, ids, outcome)
                yield
            if len(segment):
                segment.commit()
                self._next_segment += 1

    def _make_tokens(self, tasks: list[Task]) -> list[NDArray[np.int32] | None]:
        """Returns the token ids of each task from one batched front-end call; None where stored ones are kept."""
        wanted = [task.utterance for task in tasks if "tokens" not in task.kept]
        encodings = iter(
            self._frontend.encode_batch(
                [utterance.text for utterance in wanted],
                [utterance.language for utterance in wanted],
                [utterance.phonemes for utterance in wanted],
            )
        )
        return [None if "tokens" in task.kept else next(encodings).ids for task in tasks]

    def _extract(
        self, tasks: Sequence[Task], pool: ThreadPoolExecutor
    ) -> Iterator[AudioFeatures | AudioProblem | None]:
        """Yields audio features in task order, computed up to a window ahead; None where no audio part is needed."""
        window: deque[Future[AudioFeatures | AudioProblem] | None] = deque()
        for task in tasks:
            window.append(pool.submit(self._extract_one, task.utterance) if self._needs_audio(task) else None)
            if len(window) >= _WINDOW_UTTERANCES:
                done = window.popleft()
                yield done.result() if done else None
        while window:
            done = window.popleft()
            yield done.result() if done else None

    def _needs_audio(self, task: Task) -> bool:
        return any(part not in task.kept for part in self._settings.parts if part != "tokens")

    def _extract_one(self, utterance: Utterance) -> AudioFeatures | AudioProblem:
        """Runs in the pool; returns the problem as a value, so that it stays with its utterance."""
        try:
            return self._extractor.extract(utterance)
        except AudioProblem as problem:
            return problem

    def _write_utterance(
        self,
        segment: SegmentWriter,
        task: Task,
        tokens: NDArray[np.int32] | None,
        outcome: AudioFeatures | AudioProblem | None,
    ) -> None:
        """Adds an utterance to the segment, or a rejection to the report.

        `tokens` and `outcome` are None for what is kept. Stored durations are dropped if the recording has changed.
        """
        problem = outcome if isinstance(outcome, AudioProblem) else self._compare_lengths(task, tokens, outcome)
        if problem is not None:
            self._reject(task, problem)
            return
        values: dict[Part, NDArray[np.generic]] = {}
        source_crc = stored_crc = int(self._store.columns["source_crc"][task.row]) if task.row is not None else 0
        if isinstance(outcome, AudioFeatures):
            values["mel"] = outcome.mel.astype(self._store.mel_dtype, copy=False)
            if outcome.pcm is not None:
                values["pcm"] = outcome.pcm
            source_crc = outcome.checksum
            self._counts.num_made += 1
        if tokens is not None:
            values["tokens"] = tokens
            self._counts.num_tokens_made += 1
        if task.row is None:
            self._counts.num_added += 1
        elif self._comparison.is_distrusted(task.row, "durations"):
            self._counts.num_lost_parts += 1
        kept = {part: entry for part, entry in task.kept.items() if part not in values}
        if source_crc != stored_crc:
            # A corpus that was prepared from headers has no checksums: the change is known only after decoding.
            kept.pop("durations", None)
        segment.add(_make_row(task, source_crc, kept), values)

    def _compare_lengths(
        self, task: Task, tokens: NDArray[np.int32] | None, outcome: AudioFeatures | None
    ) -> AudioProblem | None:
        """Rejects utterances with more tokens than frames (after trimming): no monotonic alignment exists for them."""
        num_frames = len(outcome.mel) if outcome is not None else task.kept["mel"].length
        num_tokens = len(tokens) if tokens is not None else task.kept["tokens"].length
        if num_tokens <= num_frames:
            return None
        return AudioProblem(Reason.TOO_MANY_TOKENS, f"{num_tokens} tokens for {num_frames} frames of sound")

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

    def _remove_unseen(self) -> None:
        """Writes tombstone rows for utterances that left the corpus or were rejected."""
        gone = np.flatnonzero(~self._comparison.is_seen)
        self._counts.num_removed = len(gone)
        for start in range(0, len(gone), CHUNK_UTTERANCES):
            with SegmentWriter(self._store.generation_folder, self._next_segment) as segment:
                for row in gone[start : start + CHUNK_UTTERANCES]:
                    segment.add(Row(self._store.id_of(int(row)), removed=True), {})
                segment.commit()
                self._next_segment += 1


def _make_row(task: Task, source_crc: int, kept: dict[Part, PartEntry]) -> Row:
    utterance = task.utterance
    return Row(
        id=utterance.id,
        speaker=utterance.speaker,
        language=utterance.language,
        split=utterance.split,
        source_crc=source_crc,
        text_crc=task.text_crc,
        source_frames=task.source_frames,
        parts=kept,
    )


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
