"""Chooses the loader of a run and the layout of its host buffers, from configuration, plan and recordings.

feature store         CachedLoader; a data GPU would have nothing to compute
recordings            TFNativeDataLoader where TensorFlow decodes them, else PythonLoader; with a data GPU
                      WaveformLoader, and the GPU computes log-mels
data.data_service     ServiceLoader
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from myxtts.config.schema import DataConfig, XTTSConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.errors import ConfigError
from myxtts.pipeline.batch import BatchLayout, Loader
from myxtts.pipeline.loaders.python import PythonLoader
from myxtts.pipeline.loaders.store import CachedLoader
from myxtts.pipeline.loaders.waveforms import WaveformLoader, WaveformReader, make_waveform_layout
from myxtts.pipeline.order import Shape
from myxtts.pipeline.recordings import RecordingSource, Survey, survey_recordings
from myxtts.pipeline.service.loader import open_service_loader
from myxtts.pipeline.splits import BatchRange, count_reference_frames
from myxtts.runtime.plan import Mode, Plan
from myxtts.runtime.timing import time_in_turns
from myxtts.store.reader import FeatureStore
from myxtts.types import Say

_NUM_CLIPS = 16
_NUM_ROUNDS = 3
_NOTICEABLY_FASTER = 0.9
"""Python replaces TF-native loading only below this share of its time; measurements vary by less."""

ReadRows = Callable[[Sequence[int]], object]


@dataclass(frozen=True, slots=True)
class LoaderSetup:
    """A loader, the layout of the buffers it fills, and messages that tell what was chosen and why."""

    loader: Loader
    layout: BatchLayout
    messages: tuple[str, ...]


def choose_loader(
    utterances: FeatureStore | RecordingSource,
    batches: BatchRange,
    config: XTTSConfig,
    plan: Plan,
    ram_budget_bytes: int,
    known_loader: str,
    say: Say,
    *,
    has_durations: bool = False,
) -> LoaderSetup:
    """The loader of a run: for a data device where the plan has one, else for whole batches of log-mels.

    `known_loader` is the name of the loader with which an earlier part of the same run was loaded; '' if none.
    """
    data, shapes = config.data, batches.shapes
    num_reference_frames, seed = count_reference_frames(data), config.training.seed
    if plan.mode is Mode.MULTI_GPU:
        if data.data_service is not None:
            raise ConfigError(
                f"data.data_service, {data.data_service}, and data.data_gpu both compute features.",
                next_step="Leave out one of the two.",
            )
        return choose_for_data_device(
            utterances, data, shapes, num_reference_frames, seed, plan.data_device, ram_budget_bytes
        )
    loader: Loader
    messages: list[str] = []
    if isinstance(utterances, FeatureStore):
        loader = CachedLoader(utterances, num_reference_frames, seed, ram_budget_bytes)
    elif data.data_service is not None:
        loader, messages = open_service_loader(
            utterances, data, batches, num_reference_frames, seed, ram_budget_bytes, say
        )
    else:
        num_threads = max(1, plan.num_workers) if data.auto_tune_performance else 0
        loader, messages = choose_on_the_fly_loader(
            utterances, data, num_reference_frames, seed, ram_budget_bytes, num_threads, known_loader
        )
    layout = BatchLayout.of_features(shapes, utterances.n_mels, num_reference_frames, has_durations=has_durations)
    return LoaderSetup(loader, layout, tuple(messages))


def choose_for_data_device(
    utterances: FeatureStore | RecordingSource,
    data: DataConfig,
    shapes: Sequence[Shape],
    num_reference_frames: int,
    seed: int,
    data_device: str,
    ram_budget_bytes: int = 0,
) -> LoaderSetup:
    """Chooses loader and host buffers when a GPU is set aside for data.

    Recordings are decoded, resampled, trimmed and levelled on the host and turned into log-mels on the GPU. Raises
    ConfigError for stored features, which leave nothing to compute: `choose_plan` falls back where it knows of them.
    """
    if isinstance(utterances, FeatureStore):
        raise ConfigError(
            f"The plan has {data_device} compute features, but they are stored in {utterances.folder}.",
            next_step="Leave data.data_gpu out, or set data.preprocessing_mode to on_the_fly.",
        )
    survey, message = _find_native_recordings(utterances, data)
    reader = WaveformReader(utterances, AudioLimits.from_config(data), ram_budget_bytes, survey)
    return LoaderSetup(
        WaveformLoader(utterances, reader, num_reference_frames, seed),
        make_waveform_layout(shapes, utterances.mel_definition, num_reference_frames),
        (message, f"{data_device} computes the mel features; the CPU reads and decodes the recordings."),
    )


def choose_on_the_fly_loader(
    source: RecordingSource,
    data: DataConfig,
    num_reference_frames: int,
    seed: int,
    ram_budget_bytes: int = 0,
    num_threads: int = 0,
    known_loader: str = "",
) -> tuple[Loader, list[str]]:
    """The native loader where it is wanted and there is a recording it can decode, else the one in Python.

    With `num_threads` both are timed where both can load everything, and the faster one is taken; with `known_loader`
    the one of that name. TensorFlow is imported only if it is used.
    """
    limits = AudioLimits.from_config(data)
    python = PythonLoader(source, limits, num_reference_frames, seed, ram_budget_bytes)
    survey, message = _find_native_recordings(source, data)
    if survey is None:
        return python, [message]
    if known_loader == PythonLoader.name:
        return python, ["Loader: Python, as before in this run."]
    from myxtts.pipeline.loaders.native import TFNativeDataLoader

    native = TFNativeDataLoader(source, limits, num_reference_frames, seed, ram_budget_bytes, survey)
    if num_threads == 0 or known_loader:
        return native, [message]
    result = compare_speed(native.load_rows, python.load_rows, np.flatnonzero(survey.is_native), num_threads)
    return (python if result.faster == python.name else native), [message, result.describe()]


def _find_native_recordings(source: RecordingSource, data: DataConfig) -> tuple[Survey | None, str]:
    """Which recordings TensorFlow decodes, None if it decodes none of them; and the same in words."""
    if not data.use_tf_native_loading:
        return None, "Loader: Python, because data.use_tf_native_loading is false."
    survey = survey_recordings(source)
    if survey.num_native == 0:
        return None, f"Loader: Python, because no recording is a 16-bit WAV file ({survey.describe_obstacles()})."
    num_python = len(source) - survey.num_native
    if num_python == 0:
        return survey, f"Loader: TensorFlow-native for all {len(source):,} recordings."
    return survey, (
        f"Loader: TensorFlow-native for {survey.num_native:,} of {len(source):,} recordings, Python for "
        f"{num_python:,}: {survey.describe_obstacles()}."
    )


@dataclass(frozen=True, slots=True)
class SpeedComparison:
    """Seconds per clip of native and Python loading, all threads together."""

    native_s: float
    python_s: float

    @property
    def faster(self) -> str:
        """Native, unless Python is faster by more than measurements vary."""
        return "python" if self.python_s < self.native_s * _NOTICEABLY_FASTER else "native"

    def describe(self) -> str:
        times = f"{self.python_s * 1e3:,.1f} ms per clip through Python, {self.native_s * 1e3:,.1f} ms TF-native"
        if self.faster == "native":
            return f"Measured {times}: TensorFlow-native loading is used."
        return (
            f"Measured {times}: Python is used. To keep TensorFlow-native loading: --set "
            "data.auto_tune_performance=false. Much faster than both: compute features once with myxtts precompute."
        )


def compare_speed(
    read_native: ReadRows, read_python: ReadRows, rows: NDArray[np.integer], num_threads: int
) -> SpeedComparison:
    """Loads the same clips in both ways, alternately, with as many threads as the run will have."""
    chosen = rows[np.linspace(0, len(rows) - 1, min(_NUM_CLIPS, len(rows))).astype(int)].tolist()
    shares = [share for share in (chosen[number::num_threads] for number in range(num_threads)) if share]
    with ThreadPoolExecutor(len(shares)) as pool:
        ways = {
            "native": lambda: list(pool.map(read_native, shares)),
            "python": lambda: list(pool.map(read_python, shares)),
        }
        seconds = time_in_turns(ways, _NUM_ROUNDS)
    return SpeedComparison(min(seconds["native"]) / len(chosen), min(seconds["python"]) / len(chosen))
