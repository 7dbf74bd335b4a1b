"""Measures a `tf.data.Dataset` of anybody's: batches of all epochs, and what each of its stages adds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from myxtts.tools.diagnosis.dataset_graph import Link
from myxtts.tools.diagnosis.evidence import StageName, StageTime
from myxtts.tools.diagnosis.loop import list_arrays, read_runnable_s, refuse_empty

_PROBE_S = 0.7
_NUM_RUNS = 3
_MOST_BATCHES = 20
_LEAST_SHARE = 0.02
_MOST_CORES = 99.0


class DatasetSource:
    """A dataset as a training loop goes through it: a new iterator for every epoch."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.num_epochs = 0

    @contextmanager
    def open(self) -> Iterator[Iterator[Any]]:
        yield self._iterate()

    def _iterate(self) -> Iterator[Any]:
        while True:
            self.num_epochs += 1
            num_batches = 0
            for batch in self.dataset:
                num_batches += 1
                yield batch
            if num_batches == 0:
                raise refuse_empty("The dataset")

    @property
    def epoch_length(self) -> int | None:
        """Batches of an epoch where the dataset knows; None if it has no end or does not tell."""
        cardinality = int(self.dataset.cardinality().numpy())
        return cardinality if cardinality > 0 else None

    def limit_threads(self, num_threads: int) -> DatasetSource:
        """The same dataset on at most so many threads."""
        options = tf.data.Options()
        options.threading.private_threadpool_size = num_threads
        return DatasetSource(self.dataset.with_options(options))

    def read_ahead(self, num_batches: int) -> DatasetSource:
        return DatasetSource(self.dataset.prefetch(num_batches))

    @staticmethod
    def keep_in_memory(batch: Any) -> DatasetSource:
        """One batch again and again, which costs what taking a batch costs."""
        return DatasetSource(tf.data.Dataset.from_tensors(batch).repeat().prefetch(2))

    def repeat(self, num_batches: int) -> DatasetSource:
        """Without an end, so that the next epoch begins before the last batch of this one is taken."""
        return DatasetSource(self.dataset.repeat().prefetch(num_batches))


@dataclass(frozen=True, slots=True)
class _Segment:
    """Neighbours in the chain that belong to one stage."""

    stage: StageName
    last: Link
    num_threads: int
    is_python: bool


class _Cost(NamedTuple):
    """Seconds of a batch: on the clock, wanting a core, and having one."""

    wall_s: float
    runnable_s: float
    cpu_s: float

    def minus(self, other: _Cost) -> _Cost:
        return _Cost(*(max(0.0, mine - its) for mine, its in zip(self, other, strict=True)))


def time_stages(links: Sequence[Link], data_s: float, sample: Any) -> tuple[StageTime, ...]:
    """What each stage adds to a batch: the chain is run up to the end of every stage, by TensorFlow itself."""
    counts = _count_elements(links, sample)
    num_batches = int(np.clip(_PROBE_S / max(data_s, 1e-4), 2, _MOST_BATCHES))
    stages: dict[StageName, StageTime] = {}
    before = _Cost(0.0, 0.0, 0.0)
    for segment in _list_segments(links):
        count = counts[id(segment.last)]
        whole = _time_prefix(segment.last.dataset, count, num_batches)
        stage = _describe_segment(segment, whole.minus(before), count, _LEAST_SHARE * data_s)
        known = stages.get(segment.stage)
        stages[segment.stage] = stage if known is None else _join_stages(known, stage)
        before = _Cost(*map(max, whole, before))
    return tuple(stages.values())


def _describe_segment(segment: _Segment, cost: _Cost, elements_per_batch: float, least_s: float) -> StageTime:
    seconds = cost.wall_s
    if segment.stage == "batch":
        # Putting rows together never waits: what is more than its computing was somebody else's.
        seconds = min(seconds, cost.cpu_s)
    num_bytes, num_reads = _measure_read(segment, elements_per_batch) if segment.stage == "read" else (0.0, 0.0)
    return StageTime(
        segment.stage,
        seconds,
        min(cost.runnable_s / seconds, _MOST_CORES) if seconds > least_s else 1.0,
        segment.num_threads,
        segment.is_python,
        num_bytes,
        num_reads,
    )


def _join_stages(first: StageTime, second: StageTime) -> StageTime:
    """Two parts of a chain that do the same kind of work."""
    larger = max(first, second, key=lambda stage: stage.seconds)
    return replace(
        larger,
        seconds=first.seconds + second.seconds,
        num_threads=max(first.num_threads, second.num_threads),
        is_python=first.is_python or second.is_python,
    )


def _list_segments(links: Sequence[Link]) -> list[_Segment]:
    roots = [place for place, link in enumerate(links) if link.is_root]
    counted = links[roots[-1] :] if roots else links
    segments: list[_Segment] = []
    for link in counted:
        if "Prefetch" in link.kind and segments:
            # It makes more than it is asked for, which would be counted.
            continue
        if segments and segments[-1].stage == link.stage:
            before = segments.pop()
            segments.append(
                _Segment(
                    link.stage,
                    link,
                    max(before.num_threads, link.num_threads),
                    before.is_python or link.is_python,
                )
            )
        else:
            segments.append(_Segment(link.stage, link, link.num_threads, link.is_python))
    return segments


def _count_elements(links: Sequence[Link], sample: Any) -> dict[int, float]:
    """For each link how many of its elements make one batch of the whole."""
    arrays = list_arrays(sample)
    leading = int(arrays[0].shape[0]) if arrays and len(arrays[0].shape) else 1
    counts: dict[int, float] = {}
    count = 1.0
    for link in reversed(links):
        counts[id(link)] = count
        count *= link.batch_size or leading
    return counts


def _time_prefix(dataset: Any, elements_per_batch: float, num_batches: int) -> _Cost:
    """What the elements of a batch cost, without what starting costs."""
    per_batch = max(1, round(elements_per_batch))
    few, many = (
        min(_time_run(dataset.repeat().take(count)) for _ in range(_NUM_RUNS))
        for count in (per_batch, per_batch * (num_batches + 1))
    )
    return _Cost(*(seconds / num_batches for seconds in many.minus(few)))


def _time_run(dataset: Any) -> _Cost:
    runnable_s, cpu_s, started = read_runnable_s(), time.process_time(), time.perf_counter()
    _run_through(dataset)
    return _Cost(time.perf_counter() - started, read_runnable_s() - runnable_s, time.process_time() - cpu_s)


def _run_through(dataset: Any) -> None:
    """Without a Python call per element, which would cost more than many a stage."""
    dataset.reduce(np.int64(0), lambda count, *_element: count + 1).numpy()


def _measure_read(segment: _Segment, elements_per_batch: float) -> tuple[float, float]:
    """Bytes and reads of a batch, where the stage gives the content of files."""
    spec = segment.last.dataset.element_spec
    if not (isinstance(spec, tf.TensorSpec) and spec.dtype == tf.string and spec.shape.rank == 0):
        return 0.0, 0.0
    sizes = [len(content.numpy()) for content in segment.last.dataset.take(4)]
    return (float(np.mean(sizes)) * elements_per_batch if sizes else 0.0), elements_per_batch
