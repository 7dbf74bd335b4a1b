"""`open_batches`: the feed that training uses, for tools, notebooks and one's own models as well.

with open_batches(config, split="train", epochs=1) as batches:
    for batch in batches:
        ...
    batches.stats()
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from myxtts.config.schema import DataConfig, XTTSConfig
from myxtts.corpus.open import is_prepared, open_corpus
from myxtts.errors import ConfigError, DataError
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.pipeline.budget import BufferSizes, fit_buffers, measure_ram_budget
from myxtts.pipeline.buffers import BatchBuffer, measure_buffer_bytes
from myxtts.pipeline.cached import CachedLoader
from myxtts.pipeline.device import copy_to_host, make_device_transfer
from myxtts.pipeline.feed import Feed, Loader, WarmUp
from myxtts.pipeline.on_the_fly import choose_on_the_fly_loader
from myxtts.pipeline.order import BatchOrder
from myxtts.pipeline.source import RecordingSource
from myxtts.pipeline.telemetry import Telemetry
from myxtts.pipeline.tune import FeedSettings, Limits, Tuner
from myxtts.runtime.hardware import Hardware, detect_hardware
from myxtts.runtime.plan import Mode, Plan, choose_plan
from myxtts.store.precompute import choose_store_folder
from myxtts.store.reader import FeatureStore
from myxtts.store.settings import StoreSettings, describe_differences, list_differences
from myxtts.store.verify import check_before_training
from myxtts.types import Split

_ENDLESS = 1 << 60


def open_batches(
    config: XTTSConfig,
    *,
    split: Split = "train",
    epochs: int | None = None,
    steps: int | None = None,
    start: int = 0,
    framework: Literal["tensorflow", "numpy"] = "tensorflow",
    hardware: Hardware | None = None,
    telemetry_file: Path | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> Feed:
    """Batches of a split, from the feature store or made on the fly, on the device that the plan names.

    It ends after `epochs` or `steps`, whichever comes first; without either it goes on for ever. `start` is the
    position to begin at: the number of batches that were seen before.
    """
    machine = hardware or detect_hardware()
    plan = choose_plan(config, machine)
    utterances, loader, messages = _open_loader(config, machine)
    order = make_order(utterances.columns, utterances.rows_of_split(split), config, shuffle=split == "train")
    num_reference_frames = count_reference_frames(config.data)
    stop = _find_stop(order, start, epochs, steps)
    sizes = fit_buffers(
        plan.buffer_size,
        plan.prefetch_buffer_size,
        measure_buffer_bytes(order.shapes, utterances.n_mels, num_reference_frames),
        machine.available_ram_bytes,
        config.data.ram_budget_gb,
        _find_free_vram(plan, machine),
    )
    for line in (*plan.describe(), *plan.warnings, *messages, *sizes.messages):
        say(line)
    return Feed(
        order,
        loader,
        copy_to_host if framework == "numpy" else make_device_transfer(plan.model_devices[0]),
        lambda: BatchBuffer(order.shapes, utterances.n_mels, num_reference_frames),
        start=start,
        stop=stop,
        num_workers=plan.num_workers,
        buffer_size=sizes.in_memory,
        prefetch_size=sizes.on_device,
        telemetry=Telemetry(telemetry_file),
        warm_up=_plan_warm_up(plan, say),
        tuner=_make_tuner(config, plan, sizes, machine),
    )


class Utterances(Protocol):
    """What is known of the utterances before any is loaded: a feature store or a corpus of recordings."""

    @property
    def columns(self) -> dict[str, NDArray[Any]]: ...
    @property
    def n_mels(self) -> int: ...
    def rows_of_split(self, split: str) -> NDArray[np.int64]: ...


def _open_loader(config: XTTSConfig, machine: Hardware) -> tuple[Utterances, Loader, list[str]]:
    """Where utterances come from, as `preprocessing_mode` says, and what there is to say about it."""
    num_reference_frames, seed = count_reference_frames(config.data), config.training.seed
    if config.data.preprocessing_mode == "precompute":
        store = open_store(config)
        return store, CachedLoader(store, num_reference_frames, seed), []
    if config.data.train_data is None:
        raise ConfigError("No corpus is named.", next_step="Set data.train_data.")
    source = RecordingSource.open(open_corpus(config.data.train_data), config.data)
    loader, messages = choose_on_the_fly_loader(
        source,
        config.data,
        num_reference_frames=num_reference_frames,
        seed=seed,
        ram_budget_bytes=measure_ram_budget(machine.available_ram_bytes, config.data.ram_budget_gb),
    )
    return source, loader, messages


def open_store(config: XTTSConfig) -> FeatureStore:
    """The feature store of the configuration: made with these settings, looked over as `cache_verification` says."""
    data = config.data
    if data.train_data is None and data.cache_dir is None:
        raise ConfigError("Neither a corpus nor a store is named.", next_step="Set data.train_data or data.cache_dir.")
    store = FeatureStore.open(choose_store_folder(data, Path(data.train_data or "")))
    _refuse_stale_store(store, data)
    check_before_training(store, data.cache_verification, config.training.seed)
    return store


def _refuse_stale_store(store: FeatureStore, data: DataConfig) -> None:
    """Features made with other settings than these would train another model than was asked for."""
    wanted = StoreSettings(
        mel=MelDefinition.from_config(data),
        audio=AudioDefinition.from_config(data),
        mel_dtype=data.mel_dtype,
        # Sounds that are kept beside the features do no harm.
        has_pcm=data.store_pcm or store.settings.has_pcm,
        frontend=store.settings.frontend,
    )
    if data.train_data is not None and is_prepared(Path(data.train_data)):
        wanted = replace(wanted, frontend=open_corpus(data.train_data).load_frontend().fingerprint())
    differences = list_differences(store.settings, wanted)
    if differences:
        raise DataError(
            f"The features in {store.folder} were made with other settings: {describe_differences(differences)}.",
            next_step="Run myxtts precompute with these settings, or change them back.",
        )


def make_order(
    columns: dict[str, NDArray[Any]], rows: NDArray[np.int64], config: XTTSConfig, *, shuffle: bool
) -> BatchOrder:
    """The order of a split under the batch settings; `max_mel_frames` leaves longer utterances out."""
    data = config.data
    if data.max_mel_frames is not None:
        rows = rows[columns["mel_length"][rows] <= data.max_mel_frames]
    if len(rows) == 0:
        raise DataError(
            "The split has no utterances that fit max_mel_frames.",
            next_step="Raise data.max_mel_frames, or check the corpus with myxtts prepare.",
        )
    if data.batch_size == "auto":
        raise ConfigError(
            "batch_size is auto, which only training can resolve.", next_step="Give data.batch_size a number."
        )
    return BatchOrder(
        rows,
        columns["mel_length"][rows],
        columns["tokens_length"][rows],
        columns["speaker"][rows],
        seed=config.training.seed,
        batch_size=data.batch_size,
        frame_budget=data.frame_budget,
        num_shapes=data.num_shapes,
        shuffle=shuffle,
    )


def count_reference_frames(data: DataConfig) -> int:
    return max(1, round(data.reference_s * data.sample_rate / data.hop_length))


def _plan_warm_up(plan: Plan, say: Callable[[str], None]) -> WarmUp | None:
    """In Multi-GPU mode the data side starts first; otherwise the model takes what there is."""
    if plan.mode is not Mode.MULTI_GPU:
        return None
    return WarmUp(num_ready=max(1, plan.buffer_size // 2), delay_s=plan.model_start_delay_s, say=say)


def _make_tuner(config: XTTSConfig, plan: Plan, sizes: BufferSizes, machine: Hardware) -> Tuner | None:
    if not config.data.auto_tune_performance:
        return None
    # Never deeper than asked for: fresh buffers cost more page faults than the bursts of a start that they absorb.
    limits = Limits(max(plan.num_workers, machine.num_cpus), sizes.in_memory)
    return Tuner(FeedSettings(plan.num_workers, sizes.in_memory), limits)


def _find_stop(order: BatchOrder, start: int, epochs: int | None, steps: int | None) -> int:
    ends = [_ENDLESS]
    if epochs is not None:
        ends.append(epochs * order.num_batches_per_epoch)
    if steps is not None:
        ends.append(start + steps)
    return max(start, min(ends))


def _find_free_vram(plan: Plan, machine: Hardware) -> int | None:
    used = [gpu for gpu in machine.gpus if f"/GPU:{gpu.index}" in plan.model_devices]
    return min((gpu.free_memory_bytes for gpu in used), default=None)
