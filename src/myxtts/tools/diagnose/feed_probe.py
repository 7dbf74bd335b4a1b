"""Stage timing of MyXTTS's own input pipeline: the feed as in training, and read, decode, features, batch one by one.

`FeedSource` opens the feed for the timing loops, `probe_loader` times the loader's stages in one thread, each as the
difference of two prefixes. `choose_num_shapes` counts the padding that other numbers of batch shapes would leave.
Called by `from_config`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.audio import AudioLimits, open_recording
from myxtts.pipeline.batch import Loader, allocate_aligned
from myxtts.pipeline.choose_loader import choose_loader
from myxtts.pipeline.loaders.waveforms import WaveformReader
from myxtts.pipeline.open import open_batches
from myxtts.pipeline.order import BatchOrder, BatchPlan
from myxtts.pipeline.recordings import RecordingSource
from myxtts.pipeline.splits import choose_range, open_split, open_utterances, order_split
from myxtts.pipeline.telemetry import FeedStats
from myxtts.runtime.hardware import Hardware, count_cpus
from myxtts.runtime.plan import Mode, Plan
from myxtts.runtime.timing import read_thread_runnable_s, time_calls
from myxtts.store.reader import FeatureStore
from myxtts.tools.diagnose.evidence import StageTime

_NUM_PROBED = 5
"""Batches to time per stage, spread over an epoch; one more is loaded first as warm-up."""
_WAITING_SHARE = 0.5
"""CPU share below which a stage is I/O-bound and scales with threads instead of cores."""
_NUM_SHAPES = (4, 8, 16)
"""Candidates for `data.num_shapes`."""
_WORTH_MORE_SHAPES = 0.02
"""Share of padding that more shapes must save: every shape has a graph of its own to trace or compile."""
_NUM_COUNTED = 200
"""Batches of an epoch that are sampled to count padding."""


class FeedSource:
    """`BatchSource` over `open_batches`; every measurement opens a new feed.

    With gradient accumulation an item is the list of all batches of a step, so that all times are of steps. After a
    measurement, `stats` and `loader_name` are those of its feed, and `buffer_depth` is the steps that it holds.
    """

    def __init__(self, config: XTTSConfig, hardware: Hardware, plan: Plan, batches_per_step: int = 1) -> None:
        self.config, self.hardware, self.plan = config, hardware, plan
        self.batches_per_step = batches_per_step
        self.num_epochs = 1
        self.stats: FeedStats | None = None
        self.loader_name = ""
        self.buffer_depth = config.data.buffer_size

    @contextmanager
    def open(self) -> Iterator[Iterator[Any]]:
        # The first feed compares loaders; later ones reuse its choice.
        feed = open_batches(
            self.config, split="train", hardware=self.hardware, plan=self.plan, loader_name=self.loader_name
        )
        with feed:
            yield iter(feed) if self.batches_per_step == 1 else self._group(iter(feed))
            self.stats, self.loader_name = feed.stats(), feed.loader_name
            self.buffer_depth = max(1, feed.settings.buffer_size // self.batches_per_step)

    def _group(self, batches: Iterator[Any]) -> Iterator[list[Any]]:
        while taken := list(islice(batches, self.batches_per_step)):
            yield taken

    @property
    def is_transfer_inline(self) -> bool:
        """Whether batches are copied to the device on demand instead of being prefetched."""
        return "CPU" not in self.plan.model_devices[0] and not self.plan.prefetch_devices


@dataclass(frozen=True, slots=True)
class LoaderProbe:
    """Times of the loader's stages, and the batch order of the epoch.

    `store_bytes` is the size of mels and tokens in the feature store, 0 for recordings. `copy_s` is the copy of one
    batch of features in memory.
    """

    stages: tuple[StageTime, ...]
    order: BatchOrder
    store_bytes: int
    copy_s: float


def probe_loader(config: XTTSConfig, plan: Plan, loader_name: str) -> LoaderProbe:
    """Times the stages of the loader that training uses, on batches spread over an epoch, in one thread.

    Returns no stages in Multi-GPU mode and with the tf.data service: there the telemetry of the feed is used.
    """
    opened = open_split(config, "train", plan)
    utterances, batches = opened.utterances, choose_range(opened.order, plan)
    places = np.linspace(0, batches.order.num_batches_per_epoch, _NUM_PROBED + 1, endpoint=False)
    plans = [batches.plan_of(int(place)) for place in places]
    store_bytes = sum(utterances.list_files(("mel", "tokens")).values()) if isinstance(utterances, FeatureStore) else 0
    if plan.mode is Mode.MULTI_GPU or config.data.data_service is not None:
        # These loaders start threads or a service that only work inside a feed.
        return LoaderProbe((), opened.order, store_bytes, 0.0)
    setup = choose_loader(utterances, batches, config, plan, 0, loader_name, lambda _line: None)
    memory = allocate_aligned(setup.layout.num_bytes)

    def load(plan: BatchPlan) -> Any:
        return setup.loader.fill(plan, setup.layout.view(plan.shape, memory))

    try:
        fill_s, _ = _time_each(plans, load)
        batch = load(plans[0])
        # The lower bound for precomputed features.
        copy_s = time_calls(lambda: (np.array(batch["mel"]), np.array(batch["reference"])), 3)
        if isinstance(utterances, FeatureStore):
            stages = _split_stored(utterances, plans, fill_s)
        else:
            stages = _split_recorded(utterances, config, setup.loader, plans, fill_s)
    finally:
        setup.loader.close()
    num_threads = max(1, plan.num_workers)
    return LoaderProbe(tuple(_spread(stage, num_threads) for stage in stages), opened.order, store_bytes, copy_s)


def _time_each(plans: Sequence[BatchPlan], work: Callable[[BatchPlan], object]) -> tuple[float, float]:
    """Returns mean seconds per batch and CPU share (time on a core or queued for one / wall time), after a warm-up."""
    work(plans[0])
    runnable_s, started = read_thread_runnable_s(), time.perf_counter()
    for plan in plans[1:]:
        work(plan)
    elapsed_s = time.perf_counter() - started
    return elapsed_s / (len(plans) - 1), (read_thread_runnable_s() - runnable_s) / max(elapsed_s, 1e-9)


def _split_stored(store: FeatureStore, plans: Sequence[BatchPlan], fill_s: float) -> list[StageTime]:
    """Splits a batch of stored features: summing the memory-mapped mels reads their pages; the remainder is `batch`."""

    def read(plan: BatchPlan) -> None:
        for mel in store.read_mels(plan.rows[: plan.num_real]):
            mel.sum()

    read_s, read_share = _time_each(plans, read)
    num_bytes = float(np.mean([sum(mel.nbytes for mel in store.read_mels(p.rows[: p.num_real])) for p in plans]))
    read_s = min(read_s, fill_s)
    read_stage = StageTime("read", read_s, read_share, num_bytes=num_bytes, num_reads=1.0)
    return [read_stage, StageTime("batch", fill_s - read_s)]


def _split_recorded(
    source: RecordingSource, config: XTTSConfig, loader: Loader, plans: Sequence[BatchPlan], fill_s: float
) -> list[StageTime]:
    """Splits a batch of recordings: raw file reads, plus decoding, plus log-mels, plus the copy into the batch.

    Each stage is the time of the loader's code up to its end, minus the time up to its beginning.
    """
    reader = WaveformReader(source, AudioLimits.from_config(config.data), 0, getattr(loader, "survey", None))
    load_rows: Callable[[Sequence[int]], object] = loader.load_rows  # type: ignore[attr-defined]
    sizes: list[int] = []

    def read(plan: BatchPlan) -> None:
        for row in plan.list_distinct_rows():
            with open_recording(source.audio_path(row)) as descriptor:
                sizes.append(len(os.pread(descriptor, os.fstat(descriptor).st_size, 0)))

    read_s, read_share = _time_each(plans, read)
    decoded_s, _ = _time_each(plans, lambda plan: reader.read(plan.list_distinct_rows()))
    loaded_s, _ = _time_each(plans, lambda plan: load_rows(plan.list_distinct_rows()))
    num_files = len(sizes) / len(plans)
    return [
        StageTime("read", read_s, read_share, num_bytes=float(np.mean(sizes)) * num_files, num_reads=num_files),
        StageTime("decode", max(0.0, decoded_s - read_s)),
        StageTime("features", max(0.0, loaded_s - decoded_s)),
        StageTime("batch", max(0.0, fill_s - loaded_s)),
    ]


def _spread(stage: StageTime, num_threads: int) -> StageTime:
    """Divides a single-thread time by the threads that can run at once: all if I/O-bound, else one per core."""
    num_at_once = num_threads if stage.cpu_share < _WAITING_SHARE else min(num_threads, count_cpus())
    share = min(stage.cpu_share, 1.0)
    return replace(stage, seconds=stage.seconds / num_at_once, cpu_share=share, num_threads=num_threads)


def measure_order_padding(order: BatchOrder, lengths: Any) -> float:
    """Returns the share of padding among all frames, from up to `_NUM_COUNTED` batches spread over an epoch."""
    places = np.linspace(0, order.num_batches_per_epoch, min(_NUM_COUNTED, order.num_batches_per_epoch), endpoint=False)
    num_real, num_all = 0, 0
    for place in places:
        plan = order.batch(int(place))
        num_real += int(lengths[plan.rows[: plan.num_real]].sum())
        num_all += plan.shape.num_utterances * plan.shape.num_frames
    return 1 - num_real / num_all


def choose_num_shapes(config: XTTSConfig, plan: Plan) -> tuple[int, float]:
    """Returns the smallest number of shapes that is nearly as good as the best, and the padding that it leaves."""
    utterances = open_utterances(config, "train")
    paddings = {}
    for num_shapes in _NUM_SHAPES:
        changed = config.model_copy(update={"data.num_shapes": num_shapes})
        order = order_split(utterances, "train", changed, plan)
        paddings[num_shapes] = measure_order_padding(order, utterances.columns["mel_length"])
    best = min(paddings.values())
    chosen = next(number for number in _NUM_SHAPES if paddings[number] <= best + _WORTH_MORE_SHAPES)
    return chosen, paddings[chosen]
