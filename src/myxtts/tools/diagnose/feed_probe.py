"""Measures the product's own feed: batches as training takes them, and each stage of the real loader on its own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.audio import AudioLimits, open_recording
from myxtts.pipeline.batch import Loader, Piece, allocate_aligned
from myxtts.pipeline.choose_loader import BatchRange, choose_side, choose_stretch, open_utterances
from myxtts.pipeline.loaders.waveforms import RecordedSamples, list_distinct_rows
from myxtts.pipeline.open import open_batches
from myxtts.pipeline.order import BatchOrder, BatchPlan
from myxtts.pipeline.recordings import RecordingSource
from myxtts.pipeline.telemetry import FeedStats
from myxtts.runtime.hardware import Hardware
from myxtts.runtime.plan import Mode, Plan
from myxtts.store.reader import FeatureStore
from myxtts.tools.diagnose.evidence import StageName, StageTime

_NUM_PROBED = 5
_WAITING_SHARE = 0.5
_NUM_SHAPES = (4, 8, 16)
_WORTH_MORE_SHAPES = 0.02
_NUM_COUNTED = 200


class FeedSource:
    """The feed of `open_batches`, opened anew for every measurement. What it measured of itself stays in `stats`."""

    def __init__(self, config: XTTSConfig, hardware: Hardware, plan: Plan) -> None:
        self.config, self.hardware, self.plan = config, hardware, plan
        self.num_epochs = 1
        self.stats: FeedStats | None = None
        self.loader_name = ""
        self.buffer_depth = config.data.buffer_size

    @contextmanager
    def open(self) -> Iterator[Iterator[Any]]:
        # One race of loaders is enough: later feeds load as the first did.
        feed = open_batches(
            self.config, split="train", hardware=self.hardware, plan=self.plan, loader_name=self.loader_name
        )
        with feed:
            yield iter(feed)
            self.stats, self.loader_name = feed.stats(), feed.loader_name
            self.buffer_depth = feed.settings.buffer_size

    @property
    def is_transfer_inline(self) -> bool:
        """Whether batches are copied to the device only when they are asked for."""
        return "CPU" not in self.plan.model_devices[0] and not self.plan.prefetch_devices


@dataclass(frozen=True, slots=True)
class LoaderProbe:
    """The stages of a loader, each on its own, and the order that it serves."""

    stages: tuple[StageTime, ...]
    order: BatchOrder
    store_bytes: int
    copy_s: float


def probe_loader(config: XTTSConfig, plan: Plan, loader_name: str) -> LoaderProbe:
    """Runs the real loader on batches from the middle of an epoch, one thread at a time, stage by stage."""
    utterances = open_utterances(config, "train")
    stretch = choose_stretch(utterances, "train", config, plan, start=0, epochs=None, steps=None)
    plans = _choose_plans(stretch)
    store_bytes = sum(utterances.list_files(("mel", "tokens")).values()) if isinstance(utterances, FeatureStore) else 0
    if plan.mode is Mode.MULTI_GPU or config.data.data_service is not None:
        # These loaders begin work that only makes sense in a feed, whose telemetry tells of their stages.
        return LoaderProbe((), stretch.order, store_bytes, 0.0)
    side = choose_side(utterances, stretch, config, plan, 0, loader_name, lambda _line: None)
    memory: Piece = allocate_aligned(side.room.num_bytes)
    try:
        fill = _time_each(plans, lambda one: side.loader.fill(one, side.room.make(memory)))
        copy_s = _time_copy(side.loader.fill(plans[0], side.room.make(memory)))
        if isinstance(utterances, FeatureStore):
            stages = _split_stored(utterances, plans, fill)
        else:
            stages = _split_recorded(utterances, config, side.loader, plans, fill)
    finally:
        side.loader.close()
    return LoaderProbe(tuple(_spread(stage, plan.num_workers) for stage in stages), stretch.order, store_bytes, copy_s)


def _choose_plans(stretch: BatchRange) -> list[BatchPlan]:
    length = stretch.order.num_batches_per_epoch
    return [stretch.plan_of(int(place)) for place in np.linspace(0, length, _NUM_PROBED + 1, endpoint=False)]


def _time_each(plans: Sequence[BatchPlan], work: Callable[[BatchPlan], object]) -> tuple[float, float]:
    """Mean seconds of a batch, and the share of them that was spent computing. The first is not counted."""
    work(plans[0])
    runnable_s, started = _read_thread_s(), time.perf_counter()
    for plan in plans[1:]:
        work(plan)
    elapsed_s = time.perf_counter() - started
    return elapsed_s / (len(plans) - 1), (_read_thread_s() - runnable_s) / max(elapsed_s, 1e-9)


def _read_thread_s() -> float:
    """Seconds that this thread computed or stood in line for a core."""
    delay_ns = 0
    with suppress(OSError):
        delay_ns = int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    return time.thread_time() + delay_ns / 1e9


def _split_stored(
    store: FeatureStore, plans: Sequence[BatchPlan], fill: tuple[float, float]
) -> list[tuple[StageName, float, float, float, float]]:
    """Reading is touching the pages of the mapped store; putting the batch together is the rest."""

    def read(plan: BatchPlan) -> None:
        for mel in store.read_mels(plan.rows[: plan.num_real]):
            mel.sum()

    read_s, read_share = _time_each(plans, read)
    num_bytes = float(np.mean([sum(mel.nbytes for mel in store.read_mels(p.rows[: p.num_real])) for p in plans]))
    read_s = min(read_s, fill[0])
    return [("read", read_s, read_share, num_bytes, 1.0), ("batch", fill[0] - read_s, 1.0, 0.0, 0.0)]


def _split_recorded(
    source: RecordingSource, config: XTTSConfig, loader: Loader, plans: Sequence[BatchPlan], fill: tuple[float, float]
) -> list[tuple[StageName, float, float, float, float]]:
    """Reading, decoding and features, each by running the loader's own parts up to it."""
    reader = RecordedSamples(source, AudioLimits.from_config(config.data), 0, getattr(loader, "survey", None))
    load_rows: Callable[[Sequence[int]], object] = loader.load_rows  # type: ignore[attr-defined]
    sizes: list[int] = []

    def read(plan: BatchPlan) -> None:
        for row in list_distinct_rows(plan):
            with open_recording(source.audio_path(row)) as descriptor:
                sizes.append(len(os.pread(descriptor, os.fstat(descriptor).st_size, 0)))

    read_s, read_share = _time_each(plans, read)
    decoded_s, _ = _time_each(plans, lambda plan: reader.read(list_distinct_rows(plan)))
    loaded_s, _ = _time_each(plans, lambda plan: load_rows(list_distinct_rows(plan)))
    num_files = len(sizes) / len(plans)
    return [
        ("read", read_s, read_share, float(np.mean(sizes)) * num_files, num_files),
        ("decode", max(0.0, decoded_s - read_s), 1.0, 0.0, 0.0),
        ("features", max(0.0, loaded_s - decoded_s), 1.0, 0.0, 0.0),
        ("batch", max(0.0, fill[0] - loaded_s), 1.0, 0.0, 0.0),
    ]


def _spread(stage: tuple[StageName, float, float, float, float], num_workers: int) -> StageTime:
    """What the stage adds to a batch when all threads are at it: those that compute need a core each."""
    name, seconds, share, num_bytes, num_reads = stage
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    num_threads = max(1, num_workers)
    num_at_once = num_threads if share < _WAITING_SHARE else min(num_threads, cores)
    return StageTime(name, seconds / num_at_once, min(share, 1.0), num_threads, False, num_bytes, num_reads)


def _time_copy(batch: Any) -> float:
    """What a batch costs when its features only have to be copied."""
    times = []
    for _ in range(3):
        started = time.perf_counter()
        np.array(batch.mel), np.array(batch.reference)
        times.append(time.perf_counter() - started)
    return float(np.median(times))


def measure_order_padding(order: BatchOrder, lengths: Any) -> float:
    """The share of an epoch's frames that only fill shapes."""
    places = np.linspace(0, order.num_batches_per_epoch, min(_NUM_COUNTED, order.num_batches_per_epoch), endpoint=False)
    num_real, num_all = 0, 0
    for place in places:
        plan = order.batch(int(place))
        num_real += int(lengths[plan.rows[: plan.num_real]].sum())
        num_all += plan.shape.num_utterances * plan.shape.num_frames
    return 1 - num_real / num_all


def choose_num_shapes(config: XTTSConfig, plan: Plan) -> tuple[int, float]:
    """How many shapes leave little padding, and how much, counted on the user's own utterances."""
    utterances = open_utterances(config, "train")
    paddings = {}
    for num_shapes in _NUM_SHAPES:
        changed = config.model_copy(update={"data.num_shapes": num_shapes})
        stretch = choose_stretch(utterances, "train", changed, plan, start=0, epochs=None, steps=None)
        paddings[num_shapes] = measure_order_padding(stretch.order, utterances.columns["mel_length"])
    best = min(paddings.values())
    chosen = next(number for number in _NUM_SHAPES if paddings[number] <= best + _WORTH_MORE_SHAPES)
    return chosen, paddings[chosen]
