"""Which loader serves a run and what it fills, as configuration and plan say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from myxtts.config.schema import XTTSConfig
from myxtts.errors import ConfigError
from myxtts.pipeline.buffers import BatchBuffer, measure_buffer_bytes
from myxtts.pipeline.cached import CachedLoader
from myxtts.pipeline.data_side import DataSide, serve_recordings, serve_store
from myxtts.pipeline.feed import BufferRoom
from myxtts.pipeline.loader import Loader
from myxtts.pipeline.on_the_fly import choose_on_the_fly_loader
from myxtts.pipeline.order import BatchOrder, BatchPlan
from myxtts.pipeline.service import open_service_loader
from myxtts.pipeline.source import RecordingSource
from myxtts.pipeline.splits import count_reference_frames, make_order, open_source
from myxtts.pipeline.stored import open_store
from myxtts.runtime.plan import Mode, Plan
from myxtts.store.reader import FeatureStore
from myxtts.types import Say, Split

_ENDLESS = 1 << 60


class Utterances(Protocol):
    """What is known of the utterances before any is loaded: a feature store or a corpus of recordings."""

    @property
    def columns(self) -> dict[str, NDArray[Any]]: ...
    @property
    def n_mels(self) -> int: ...
    def rows_of_split(self, split: str) -> NDArray[np.int64]: ...


@dataclass(frozen=True, slots=True)
class Stretch:
    """The batches that are wanted: those of an order from `start` to `stop`, cut to the rows of this process."""

    order: BatchOrder
    start: int
    stop: int
    shard: tuple[int, int]

    def plan_of(self, position: int) -> BatchPlan:
        return self.order.batch(position).take_shard(*self.shard)


def open_utterances(config: XTTSConfig, split: Split) -> FeatureStore | RecordingSource:
    """The store of a split, or its recordings, as `preprocessing_mode` says."""
    if config.data.preprocessing_mode == "on_the_fly":
        if split == "train" and config.training.durations == "stored":
            raise ConfigError(
                "training.durations is stored, but preprocessing_mode is on_the_fly, which has no store.",
                next_step="Set training.durations to search, or data.preprocessing_mode to precompute.",
            )
        return open_source(config.data, split)
    if config.data.data_service is not None:
        raise ConfigError(
            "data.data_service makes features on the fly, but preprocessing_mode is precompute.",
            next_step="Set data.preprocessing_mode to on_the_fly, or leave data.data_service out.",
        )
    return open_store(config, split)


def choose_stretch(
    utterances: Utterances,
    split: Split,
    config: XTTSConfig,
    plan: Plan,
    *,
    start: int,
    epochs: int | None,
    steps: int | None,
) -> Stretch:
    """It ends after `epochs` or `steps`, whichever comes first; without either it goes on for ever."""
    rows = utterances.rows_of_split(split)
    order = make_order(utterances.columns, rows, config, shuffle=split == "train", multiple_of=plan.num_replicas)
    ends = [_ENDLESS]
    if epochs is not None:
        ends.append(epochs * order.num_batches_per_epoch)
    if steps is not None:
        ends.append(start + steps)
    return Stretch(order, start, max(start, min(ends)), plan.shard)


def choose_side(
    utterances: FeatureStore | RecordingSource,
    stretch: Stretch,
    config: XTTSConfig,
    plan: Plan,
    ram_budget_bytes: int,
    known_winner: str,
    say: Say,
    *,
    has_durations: bool = False,
) -> DataSide:
    """The loader of a run: for a data device where the plan has one, else for batches of spectrograms."""
    num_reference_frames, seed = count_reference_frames(config.data), config.training.seed
    shapes = stretch.order.shapes
    if plan.mode is Mode.MULTI_GPU:
        if config.data.data_service is not None:
            raise ConfigError(
                f"data.data_service, {config.data.data_service}, and data.data_gpu both make features.",
                next_step="Leave one of the two out.",
            )
        if isinstance(utterances, FeatureStore):
            return serve_store(
                utterances,
                shapes,
                num_reference_frames,
                seed,
                plan.data_device,
                ram_budget_bytes,
                has_durations=has_durations,
            )
        return serve_recordings(
            utterances, config.data, shapes, num_reference_frames, seed, plan.data_device, ram_budget_bytes
        )
    loader: Loader
    messages: list[str] = []
    if isinstance(utterances, FeatureStore):
        loader = CachedLoader(utterances, num_reference_frames, seed, ram_budget_bytes, has_durations=has_durations)
    elif config.data.data_service is not None:
        loader, messages = open_service_loader(
            utterances,
            config.data,
            stretch.plan_of,
            start=stretch.start,
            stop=stretch.stop,
            num_reference_frames=num_reference_frames,
            seed=seed,
            ram_budget_bytes=ram_budget_bytes,
            say=say,
        )
    else:
        loader, messages = choose_on_the_fly_loader(
            utterances,
            config.data,
            num_reference_frames=num_reference_frames,
            seed=seed,
            ram_budget_bytes=ram_budget_bytes,
            num_race_threads=max(1, plan.num_workers) if config.data.auto_tune_performance else 0,
            known_winner=known_winner,
        )
    n_mels = utterances.n_mels
    room = BufferRoom(
        measure_buffer_bytes(shapes, n_mels, num_reference_frames),
        lambda memory: BatchBuffer(shapes, n_mels, num_reference_frames, memory),
    )
    return DataSide(loader, room, tuple(messages))
