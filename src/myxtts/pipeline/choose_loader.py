"""Which loader serves a run and what it fills, as configuration and plan say."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from myxtts.config.schema import DataConfig, XTTSConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.errors import ConfigError
from myxtts.features.definition import MelDefinition
from myxtts.pipeline.batch import BatchBuffer, HostBatch, Loader, measure_buffer_bytes
from myxtts.pipeline.buckets import Shape
from myxtts.pipeline.feed import BufferFactory
from myxtts.pipeline.loaders.frames import FrameBuffer, FrameLoader, measure_frame_buffer_bytes
from myxtts.pipeline.loaders.python import PythonLoader, check_lengths
from myxtts.pipeline.loaders.store import StoreLoader
from myxtts.pipeline.loaders.waveforms import RecordedSamples, SampleBuffer, SampleLoader, measure_sample_buffer_bytes
from myxtts.pipeline.order import BatchOrder, BatchPlan
from myxtts.pipeline.recordings import RecordingSource, Survey, survey_recordings
from myxtts.pipeline.service.loader import open_service_loader
from myxtts.pipeline.splits import count_reference_frames, make_order, open_source, open_store
from myxtts.runtime.plan import Mode, Plan
from myxtts.store.reader import FeatureStore
from myxtts.types import Say, Split

# Which of two ways to load recordings is faster on this machine, found by trying both on a few of them.

ReadRows = Callable[[Sequence[int]], object]

_NUM_CLIPS = 16
_NUM_ROUNDS = 3
_WORTH_A_CHANGE = 0.9


@dataclass(frozen=True, slots=True)
class RaceResult:
    """Seconds per clip of the two ways, all threads together."""

    native_s: float
    python_s: float

    @property
    def winner(self) -> str:
        """The way in the graph, unless the other is faster by more than measurements vary."""
        return "python" if self.python_s < self.native_s * _WORTH_A_CHANGE else "native"

    def describe(self) -> str:
        times = f"{self.python_s * 1e3:.2g} ms per clip through Python, {self.native_s * 1e3:.2g} ms TF-native"
        if self.winner == "native":
            return f"Measured {times}: TF-native loading is kept."
        return (
            f"Measured {times}: Python loads. Set data.auto_tune_performance to false to keep TF-native loading, and "
            "compute features once with myxtts precompute to be far faster than both."
        )


def race_loaders(
    read_native: ReadRows, read_python: ReadRows, rows: NDArray[np.integer], num_threads: int
) -> RaceResult:
    """Loads the same clips in both ways, in turn, with as many threads as the run will have."""
    chosen = rows[np.linspace(0, len(rows) - 1, min(_NUM_CLIPS, len(rows))).astype(int)].tolist()
    shares = [share for share in (chosen[number::num_threads] for number in range(num_threads)) if share]
    ways = {"native": read_native, "python": read_python}
    best = dict.fromkeys(ways, float("inf"))
    with ThreadPoolExecutor(len(shares)) as pool:
        for round_number in range(_NUM_ROUNDS + 1):
            for name, read in ways.items():
                started = time.perf_counter()
                list(pool.map(read, shares))
                # The first round makes the graph and brings the files into memory.
                if round_number:
                    best[name] = min(best[name], (time.perf_counter() - started) / len(chosen))
    return RaceResult(best["native"], best["python"])


# Which loader makes features on the fly, decided once and said in words.


def choose_on_the_fly_loader(
    source: RecordingSource,
    data: DataConfig,
    *,
    num_reference_frames: int,
    seed: int,
    ram_budget_bytes: int = 0,
    num_race_threads: int = 0,
    known_winner: str = "",
) -> tuple[Loader, list[str]]:
    """The native loader where it is wanted and there is a recording it can decode, else the one in Python.

    With `num_race_threads` both are tried where both can load everything, and the faster one is taken; `known_winner`
    is the name of the loader that an earlier part of the same run has taken. The messages say which, and why.
    TensorFlow is imported only if it is used.
    """
    limits = AudioLimits.from_config(data)
    python = PythonLoader(source, limits, num_reference_frames, seed, ram_budget_bytes)
    if not data.use_tf_native_loading:
        return python, ["Recordings are loaded through Python: data.use_tf_native_loading is false."]
    survey = survey_recordings(source)
    if survey.num_native == 0:
        return python, [f"Recordings are loaded through Python: none is a 16-bit WAV file ({_list_obstacles(survey)})."]
    if known_winner == PythonLoader.name:
        return python, ["Recordings are loaded through Python, as in the part of the run before this."]
    from myxtts.pipeline.loaders.native import TFNativeDataLoader

    native = TFNativeDataLoader(source, limits, num_reference_frames, seed, ram_budget_bytes, survey)
    messages = [_describe(survey, len(source))]
    if num_race_threads == 0 or known_winner:
        return native, messages
    rows = np.flatnonzero(survey.is_native)
    result = race_loaders(native.load_rows, python.load_rows, rows, num_race_threads)
    messages.append(result.describe())
    return (python if result.winner == python.name else native), messages


def _describe(survey: Survey, num_recordings: int) -> str:
    num_python = num_recordings - survey.num_native
    if num_python == 0:
        return f"TF-native loading serves all {num_recordings:,} recordings."
    verb = "go" if num_python > 1 else "goes"
    served = f"TF-native loading serves {survey.num_native:,} of {num_recordings:,} recordings"
    return f"{served}; {num_python:,} {verb} through Python: {_list_obstacles(survey)}."


def _list_obstacles(survey: Survey) -> str:
    counts = survey.obstacles.most_common()
    return ", ".join(name if len(counts) == 1 else f"{count:,} {name}" for name, count in counts)


# What Multi-GPU mode loads on the host and leaves to the data device, decided once and said in words.

_LITTLE_TO_DO = (
    "Features are stored, so the data GPU has little to do: without data_gpu and with multi_gpu: true it could train "
    "as well."
)


@dataclass(frozen=True, slots=True)
class LoaderSetup:
    """A loader and the buffers it fills; `messages` say what the data device does."""

    loader: Loader
    room: BufferFactory
    messages: tuple[str, ...]


def serve_store(
    store: FeatureStore,
    shapes: Sequence[Shape],
    num_reference_frames: int,
    seed: int,
    data_device: str,
    ram_budget_bytes: int = 0,
    *,
    has_durations: bool = False,
) -> LoaderSetup:
    """From stored features, which the data device pads and casts."""
    return LoaderSetup(
        FrameLoader(store, num_reference_frames, seed, ram_budget_bytes, has_durations=has_durations),
        _make_frame_room(shapes, store, num_reference_frames),
        (f"{data_device} pads and casts stored spectrograms.", _LITTLE_TO_DO),
    )


def serve_recordings(
    source: RecordingSource,
    data: DataConfig,
    shapes: Sequence[Shape],
    num_reference_frames: int,
    seed: int,
    data_device: str,
    ram_budget_bytes: int = 0,
) -> LoaderSetup:
    """From recordings: the host decodes, resamples, trims and levels, the data device makes spectrograms."""
    survey, messages = _survey(source, data, num_reference_frames, seed)
    reader = RecordedSamples(source, AudioLimits.from_config(data), ram_budget_bytes, survey)

    def check_batch(batch: HostBatch, plan: BatchPlan) -> None:
        check_lengths(batch, plan, source)

    definition = source.mel_definition
    loader = SampleLoader(source, source.read_tokens, reader, definition, num_reference_frames, seed, check_batch)
    room = _make_sample_room(shapes, definition, num_reference_frames)
    division = f"{data_device} makes the spectrograms; the host reads and decodes recordings for it."
    return LoaderSetup(loader, room, (*messages, division))


def _survey(
    source: RecordingSource, data: DataConfig, num_reference_frames: int, seed: int
) -> tuple[Survey | None, list[str]]:
    """Which recordings the graph decodes, as without a data device; None if all go through Python."""
    loader, messages = choose_on_the_fly_loader(source, data, num_reference_frames=num_reference_frames, seed=seed)
    return getattr(loader, "survey", None), messages


def _make_sample_room(shapes: Sequence[Shape], definition: MelDefinition, num_reference_frames: int) -> BufferFactory:
    return BufferFactory(
        measure_sample_buffer_bytes(shapes, definition, num_reference_frames),
        lambda memory: SampleBuffer(shapes, definition, num_reference_frames, memory),
    )


def _make_frame_room(shapes: Sequence[Shape], store: FeatureStore, num_reference_frames: int) -> BufferFactory:
    n_mels, dtype = store.n_mels, store.mel_dtype
    return BufferFactory(
        measure_frame_buffer_bytes(shapes, n_mels, num_reference_frames, dtype),
        lambda memory: FrameBuffer(shapes, n_mels, num_reference_frames, dtype, memory),
    )


# The loader for precomputed features: copies rows of the mapped store into a batch buffer.
#
# Shape legend: B utterances, T frames, M mel bands.


class CachedLoader(StoreLoader):
    """Fills batches from a feature store. Any number of threads may call it.

    A store that fits `ram_budget_bytes` is read into memory as a whole when the first batch is announced.
    """

    name = "cached"

    def fill(self, plan: BatchPlan, buffer: BatchBuffer) -> HostBatch:
        batch = buffer.view(plan.shape)
        num_real, padding = plan.num_real, self._assembler.padding
        rows, voices = plan.rows[:num_real], plan.references[:num_real]
        self._assembler.fill_labels(batch, plan)
        batch.mel_lengths[:num_real] = self._store.copy_mels(rows, batch.mel[:num_real], padding)
        batch.mel_lengths[num_real:] = 0
        batch.mel[num_real:] = padding
        mels = dict(zip(voices.tolist(), self._store.read_mels(voices), strict=True))
        self._assembler.fill_references(batch, plan, mels.__getitem__)
        return self._add_durations(batch, plan)


_ENDLESS = 1 << 60


class Utterances(Protocol):
    """What is known of the utterances before any is loaded: a feature store or a corpus of recordings."""

    @property
    def columns(self) -> dict[str, NDArray[Any]]: ...
    @property
    def n_mels(self) -> int: ...
    def rows_of_split(self, split: str) -> NDArray[np.int64]: ...


@dataclass(frozen=True, slots=True)
class BatchRange:
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
) -> BatchRange:
    """It ends after `epochs` or `steps`, whichever comes first; without either it goes on for ever."""
    rows = utterances.rows_of_split(split)
    order = make_order(utterances.columns, rows, config, shuffle=split == "train", multiple_of=plan.num_replicas)
    ends = [_ENDLESS]
    if epochs is not None:
        ends.append(epochs * order.num_batches_per_epoch)
    if steps is not None:
        ends.append(start + steps)
    return BatchRange(order, start, max(start, min(ends)), plan.shard)


def choose_side(
    utterances: FeatureStore | RecordingSource,
    stretch: BatchRange,
    config: XTTSConfig,
    plan: Plan,
    ram_budget_bytes: int,
    known_winner: str,
    say: Say,
    *,
    has_durations: bool = False,
) -> LoaderSetup:
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
    room = BufferFactory(
        measure_buffer_bytes(shapes, n_mels, num_reference_frames),
        lambda memory: BatchBuffer(shapes, n_mels, num_reference_frames, memory),
    )
    return LoaderSetup(loader, room, tuple(messages))
