"""What loaders of precomputed features have in common: labels from the store, and its pages asked for ahead."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue

import numpy as np

from myxtts.pipeline.batch import BatchAssembler, HostBatch, Loader, allocate_aligned
from myxtts.pipeline.order import NO_ROW, BatchPlan
from myxtts.store.layout import Part
from myxtts.store.reader import FeatureStore

# Reads the store ahead of the loaders, so that a cold disk does not keep them waiting.
#
# The system is asked for the records of batches that the order announces. A store that fits into memory is also read
# once from end to end, which a disk does many times faster than single records; then nothing needs asking for. Where
# nothing has come from the disk for a while, everything asked for is in memory already, and only a batch now and then
# is
# asked for, to notice when it is not.

_PARTS: tuple[Part, ...] = ("tokens", "mel")
_CHUNK_BYTES = 1 << 20
_MAX_WAITING = 32
"""Announcements that have waited behind so many others are about batches that are being loaded already."""
_QUIET_BATCHES = 64
_PROBE_EVERY = 16
_CLOSE_LIMIT_S = 1.0


class ReadAhead:
    """Takes announcements from any thread, and works in one of its own from the first announcement until `close`."""

    def __init__(self, store: FeatureStore, ram_budget_bytes: int) -> None:
        self._store = store
        files = store.list_files(_PARTS)
        self._to_read = list(files) if sum(files.values()) <= ram_budget_bytes else []
        self._announced: SimpleQueue[BatchPlan | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._is_over = threading.Event()
        self._num_quiet, self._num_reads = 0, (0, 0)

    def announce(self, plan: BatchPlan) -> None:
        """Says that a batch will be loaded soon. Returns at once."""
        is_quiet = self._num_quiet >= _QUIET_BATCHES
        if self._is_over.is_set() or (is_quiet and plan.position % _PROBE_EVERY):
            return
        if self._thread is None:
            self._start()
        self._announced.put(plan)

    def close(self) -> None:
        """Stops reading; a thread that a broken disk holds is left to end by itself."""
        with self._starting:
            self._is_over.set()
        self._announced.put(None)
        if self._thread is not None:
            self._thread.join(_CLOSE_LIMIT_S)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._is_over.is_set():
                self._thread = threading.Thread(target=self._run, name="myxtts-read-ahead", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        """Serves announcements first, and reads on from end to end whenever there is none."""
        chunks = self._read_files()
        is_reading = bool(self._to_read)
        while not self._is_over.is_set():
            if is_reading and self._announced.empty():
                if next(chunks, 0) == 0:
                    self._is_over.set()
                continue
            plan = self._announced.get()
            if plan is not None and self._announced.qsize() <= _MAX_WAITING:
                self._request(plan)

    def _read_files(self) -> Iterator[int]:
        """Reads chunk by chunk, and gives the number of bytes of each."""
        buffer = bytearray(_CHUNK_BYTES)
        for path in self._to_read:
            # A writer may have replaced the store meanwhile; what cannot be read is complained of when it is needed.
            with suppress(OSError), path.open("rb", buffering=0) as file:
                while num_read := file.readinto(buffer):
                    yield num_read

    def _request(self, plan: BatchPlan) -> None:
        rows = plan.rows[: plan.num_real]
        self._store.request_pages(rows, "tokens")
        voices = plan.references[plan.references != NO_ROW]
        self._store.request_pages(np.concatenate([rows, voices]), "mel")
        before, self._num_reads = self._num_reads, _count_reads()
        self._num_quiet = self._num_quiet + 1 if self._num_reads == before else 0


def _count_reads() -> tuple[int, int]:
    """What this thread had read from a disk, and how often any thread had to wait for one."""
    return (
        resource.getrusage(resource.RUSAGE_THREAD).ru_inblock,
        resource.getrusage(resource.RUSAGE_SELF).ru_majflt,
    )


class StoreLoader(Loader):
    """Loads from a feature store. One that fits `ram_budget_bytes` is read into memory as a whole."""

    def __init__(
        self,
        store: FeatureStore,
        num_reference_frames: int,
        seed: int,
        ram_budget_bytes: int = 0,
        *,
        has_durations: bool = False,
    ) -> None:
        self._store, self._num_reference_frames, self._seed = store, num_reference_frames, seed
        self._has_durations = has_durations
        self._read_ahead = ReadAhead(store, ram_budget_bytes)
        self._assembler = BatchAssembler(
            store,
            lambda rows: store.read_parts(rows, "tokens"),
            num_reference_frames,
            seed,
            store.settings.mel.log_floor,
        )

    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]:
        return self._assembler.name_utterances(plan)

    def announce(self, plan: BatchPlan) -> None:
        self._read_ahead.announce(plan)

    def close(self) -> None:
        self._read_ahead.close()

    def _add_durations(self, batch: HostBatch, plan: BatchPlan) -> HostBatch:
        """The batch with the durations of its tokens, where they are wanted; utterances without any get zeros."""
        if not self._has_durations:
            return batch
        durations = allocate_aligned(batch.tokens.nbytes).view(np.int32).reshape(batch.tokens.shape)
        for place, values in enumerate(self._store.read_parts(plan.rows[: plan.num_real], "durations")):
            durations[place, : len(values)] = values
        return replace(batch, durations=durations)
