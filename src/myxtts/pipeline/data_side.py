"""What Multi-GPU mode loads on the host and leaves to the data device, decided once and said in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from myxtts.config.schema import DataConfig
from myxtts.corpus.listen import AudioLimits
from myxtts.features.definition import MelDefinition
from myxtts.pipeline.buckets import Shape
from myxtts.pipeline.feed import BufferRoom
from myxtts.pipeline.loader import Loader
from myxtts.pipeline.on_the_fly import choose_on_the_fly_loader
from myxtts.pipeline.order import BatchPlan
from myxtts.pipeline.python import check_lengths
from myxtts.pipeline.sample_readers import RecordedSamples
from myxtts.pipeline.samples import SampleBuffer, SampleLoader, measure_sample_buffer_bytes
from myxtts.pipeline.source import RecordingSource
from myxtts.pipeline.stored_frames import FrameBuffer, FrameLoader, measure_frame_buffer_bytes
from myxtts.store.reader import FeatureStore

if TYPE_CHECKING:
    from myxtts.pipeline.buffers import HostBatch
    from myxtts.pipeline.wav_layout import Survey

_LITTLE_TO_DO = (
    "Features are stored, so the data GPU has little to do: without data_gpu and with multi_gpu: true it could train "
    "as well."
)


@dataclass(frozen=True, slots=True)
class DataSide:
    """A loader and the buffers it fills; `messages` say what the data device does."""

    loader: Loader
    room: BufferRoom
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
) -> DataSide:
    """From stored features, which the data device pads and casts."""
    return DataSide(
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
) -> DataSide:
    """From recordings: the host decodes, resamples, trims and levels, the data device makes spectrograms."""
    survey, messages = _survey(source, data, num_reference_frames, seed)
    reader = RecordedSamples(source, AudioLimits.from_config(data), ram_budget_bytes, survey)

    def check_batch(batch: HostBatch, plan: BatchPlan) -> None:
        check_lengths(batch, plan, source)

    definition = source.mel_definition
    loader = SampleLoader(source, source.read_tokens, reader, definition, num_reference_frames, seed, check_batch)
    room = _make_sample_room(shapes, definition, num_reference_frames)
    division = f"{data_device} makes the spectrograms; the host reads and decodes recordings for it."
    return DataSide(loader, room, (*messages, division))


def _survey(
    source: RecordingSource, data: DataConfig, num_reference_frames: int, seed: int
) -> tuple[Survey | None, list[str]]:
    """Which recordings the graph decodes, as without a data device; None if all go through Python."""
    loader, messages = choose_on_the_fly_loader(source, data, num_reference_frames=num_reference_frames, seed=seed)
    return getattr(loader, "survey", None), messages


def _make_sample_room(shapes: Sequence[Shape], definition: MelDefinition, num_reference_frames: int) -> BufferRoom:
    return BufferRoom(
        measure_sample_buffer_bytes(shapes, definition, num_reference_frames),
        lambda memory: SampleBuffer(shapes, definition, num_reference_frames, memory),
    )


def _make_frame_room(shapes: Sequence[Shape], store: FeatureStore, num_reference_frames: int) -> BufferRoom:
    n_mels, dtype = store.n_mels, store.mel_dtype
    return BufferRoom(
        measure_frame_buffer_bytes(shapes, n_mels, num_reference_frames, dtype),
        lambda memory: FrameBuffer(shapes, n_mels, num_reference_frames, dtype, memory),
    )
