"""Loader of precomputed features: copies rows of the mapped feature store into a batch buffer, and pads them.

Shape legend: B utterances, T frames, M mel bands.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import SimpleQueue

import numpy as np

from myxtts.pipeline.batch import Arrays, AssemblingLoader, fill_rows
from myxtts.pipeline.order import NO_ROW, BatchPlan
from myxtts.store.layout import Part
from myxtts.store.reader import FeatureStore

_PARTS: tuple[Part, ...] = ("tokens", "mel")
_CHUNK_BYTES = 1 << 20
_MAX_WAITING = 32
"""Announcements behind so many others are about batches that are being loaded already."""
_QUIET_BATCHES = 64
_PROBE_EVERY = 16
_CLOSE_LIMIT_S = 1.0


class CachedLoader(AssemblingLoader):
    """Fills batches of padded log-mels from a store, with read-ahead. Any number of threads may call `fill`.

    A store that fits `ram_budget_bytes` is read into memory as a whole when the first batch is announced.
    """

    name = "cached"

    def __init__(self, store: FeatureStore, num_reference_frames: int, seed: int, ram_budget_bytes: int = 0) -> None:
        super().__init__(store, num_reference_frames, seed)
        self._store, self._read_ahead = store, ReadAhead(store, ram_budget_bytes)

    def fill(self, plan: BatchPlan, arrays: Arrays) -> Arrays:
        parts = (*_PARTS, "durations") if "durations" in arrays else _PARTS
        rows = (plan.rows[: plan.num_real], plan.references[: plan.num_real])
        with self._store.guard_reads(np.concatenate(rows).tolist(), parts):
            return self._fill(plan, arrays)

    def _fill(self, plan: BatchPlan, arrays: Arrays) -> Arrays:
        """Fills the arrays; records that are damaged meanwhile are found afterwards."""
        num_real = plan.num_real
        self._fill_labels(arrays, plan)
        if "durations" in arrays:
            # Utterances without any get zeros.
            fill_rows(arrays["durations"], self._store.read_durations(plan.rows[:num_real]))
        mel_BTM = arrays["mel"][:num_real]
        arrays["mel_lengths"][:num_real] = self._store.copy_mels(plan.rows[:num_real], mel_BTM, self._padding)
        references = plan.references[:num_real]
        mels = dict(zip(references.tolist(), self._store.read_mels(references), strict=True))
        self._fill_references(arrays, plan, mels)
        return arrays

    def announce(self, plan: BatchPlan) -> None:
        self._read_ahead.announce(plan)

    def close(self) -> None:
        self._read_ahead.close()


class ReadAhead:
    """Reads the store ahead of the loaders, so that a cold disk does not keep them waiting.

    The system is asked for the records of announced batches. A store that fits into memory is also read once from end
    to end, which a disk does many times faster than single records; then nothing needs asking for. While nothing has
    come from the disk for some batches, all of it is in memory, and only every 16th batch is asked for, to notice when
    it is not. Takes announcements from any thread, and works in one of its own until `close`.
    """

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
        """Tells that a batch will be loaded soon. Returns at once."""
        is_quiet = self._num_quiet >= _QUIET_BATCHES
        if self._is_over.is_set() or (is_quiet and plan.position % _PROBE_EVERY):
            return
        if self._thread is None:
            self._start()
        self._announced.put(plan)

    def close(self) -> None:
        """Stops reading; a thread that hangs in a read of a broken disk is left to end by itself."""
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
        """Serves announcements first, and goes on reading from end to end whenever there is none."""
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
            # A writer may have replaced the store meanwhile; the loader reports what it cannot read.
            with suppress(OSError), path.open("rb", buffering=0) as file:
                while num_read := file.readinto(buffer):
                    yield num_read

    def _request(self, plan: BatchPlan) -> None:
        rows = plan.rows[: plan.num_real]
        self._store.request_pages(rows, "tokens")
        references = plan.references[plan.references != NO_ROW]
        self._store.request_pages(np.concatenate([rows, references]), "mel")
        before, self._num_reads = self._num_reads, _count_reads()
        self._num_quiet = self._num_quiet + 1 if self._num_reads == before else 0


def _count_reads() -> tuple[int, int]:
    """Blocks that this thread has read from a disk, and page faults of all threads that waited for one."""
    return (resource.getrusage(resource.RUSAGE_THREAD).ru_inblock, resource.getrusage(resource.RUSAGE_SELF).ru_majflt)
