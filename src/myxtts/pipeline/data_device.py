"""The work of a data device in Multi-GPU mode: from what the host loaded to features, and on to the model's devices.

Numbers of samples and frames are handed to the graph from the host's memory: TensorFlow keeps 32-bit integers there
for GPUs too, and would fetch them back.
Shape legend: B utterances, S samples, T frames, F frames of all utterances, R frames of the reference, M mel bands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.errors import HardwareError
from myxtts.features.definition import MelDefinition
from myxtts.features.mel_graph import GraphMel
from myxtts.pipeline.batch import allocate_aligned
from myxtts.pipeline.buckets import Shape
from myxtts.pipeline.device import ARRAYS, hand_over_arrays, list_arrays, make_sharing
from myxtts.pipeline.feed import BufferFactory
from myxtts.pipeline.load_ahead import Loaded
from myxtts.pipeline.loaders.waveforms import Sound
from myxtts.types import Batch, Tensor

_SOUNDS = ("mel", "reference")


class DataDeviceFeatures:
    """Turns batches of `Sound` or `Frames` into batches of tensors on the data device. One thread calls it.

    There is one graph for each batch shape. A call returns when the features are there, so that what waits behind it
    is ready, and the time it takes is the device's.
    """

    def __init__(self, device: str, definition: MelDefinition, mel_dtype: str, num_reference_frames: int) -> None:
        _refuse_missing([device])
        self.device, self._definition, self._mel_dtype = device, definition, mel_dtype
        self._num_reference_frames = num_reference_frames
        self._padding = float(np.log(definition.log_floor))
        self._graphs: dict[tuple[Any, ...], Callable[..., tuple[Tensor, Tensor, Tensor]]] = {}
        self.num_traces = 0
        with tf.device(device):
            self._mel = GraphMel(definition)

    def __call__(self, loaded: Loaded) -> Batch:
        """The batch with all its arrays as tensors on the data device."""
        return self.compute(hand_over_arrays(loaded))

    def compute(self, batch: Batch) -> Batch:
        """The same of a batch whose `mel` and `reference` are sounds or frames."""
        compute = self._compute_of_sound if isinstance(batch.mel, Sound) else self._compute_of_frames
        with tf.device(self.device):
            labels = [name for name in list_arrays(batch) if name not in _SOUNDS]
            tensors = {name: tf.identity(_adopt(getattr(batch, name))) for name in labels}
            tensors["mel"], tensors["reference"], last = compute(batch)
            # Reading a number that is made of both waits for them.
            last.numpy()
        return replace(batch, **tensors)

    def warm(self, shapes: Sequence[Shape], room: BufferFactory) -> None:
        """Makes the graphs of all shapes and runs each once, on empty batches."""
        memory = allocate_aligned(room.num_bytes)
        for shape in shapes:
            memory[:] = 0
            view = room.make(memory).view(shape)
            arrays = {name: getattr(view, name) for name in ARRAYS}
            self.compute(Batch(position=0, ids=("",) * shape.num_utterances, num_real=0, **arrays))

    def _compute_of_sound(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        clips, voices = batch.mel, batch.reference
        numbers = (clips.num_samples, voices.num_samples, voices.first_frames, batch.reference_lengths)
        inputs = [_adopt(array) for array in (clips.samples, voices.samples, *numbers)]
        key = (clips.samples.shape, voices.samples.shape)
        if key not in self._graphs:
            self._graphs[key] = self._trace(self._transform_sound, [tf.TensorSpec.from_tensor(x) for x in inputs])
        return self._graphs[key](*map(tf.identity, inputs[:2]), *inputs[2:])

    def _compute_of_frames(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        frames, voices = batch.mel, batch.reference
        size, dtype = len(batch.mel_lengths), frames.values.dtype
        key = (dtype, size, frames.num_frames)
        if key not in self._graphs:
            flat, numbers = tf.TensorSpec([None, self._definition.n_mels], dtype), tf.TensorSpec([size], tf.int32)
            pad = partial(self._pad_frames, frames.num_frames)
            self._graphs[key] = self._trace(pad, [flat, flat, numbers, numbers])
        values = [tf.identity(_adopt(array)) for array in (frames.values, voices.values)]
        return self._graphs[key](*values, *map(_adopt, (batch.mel_lengths, batch.reference_lengths)))

    def _trace(
        self, compute: Callable[..., tuple[Tensor, Tensor]], signature: Sequence[tf.TensorSpec]
    ) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
        def compute_on_device(*inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            self.num_traces += 1
            with tf.device(self.device):
                mel_BTM, reference_BRM = compute(*inputs)
                return mel_BTM, reference_BRM, mel_BTM[0, 0, 0] + reference_BRM[0, 0, 0]

        graph: Callable[..., tuple[Tensor, Tensor, Tensor]] = tf.function(
            compute_on_device, input_signature=signature, autograph=False
        ).get_concrete_function()
        return graph

    # What follows is traced.

    def _transform_sound(
        self,
        clips_BS: Tensor,
        voices_BS: Tensor,
        num_samples_B: Tensor,
        num_voice_samples_B: Tensor,
        first_frames_B: Tensor,
        voice_lengths_B: Tensor,
    ) -> tuple[Tensor, Tensor]:
        mel_BTM = self._transform(clips_BS, num_samples_B)
        voice_BTM = self._transform(voices_BS, num_voice_samples_B)
        place = tf.range(self._num_reference_frames)[None]
        is_real = place < voice_lengths_B[:, None]
        reference_BRM = tf.gather(voice_BTM, tf.where(is_real, first_frames_B[:, None] + place, 0), batch_dims=1)
        return mel_BTM, tf.where(is_real[:, :, None], reference_BRM, self._padding)

    def _transform(self, samples_BS: Tensor, lengths_B: Tensor) -> Tensor:
        """Spectrograms [B, T, M]; silence gives the padding, and so does a place without samples."""
        mel_BTM, _ = self._mel(samples_BS, lengths_B)
        num_frames = self._definition.count_frames(samples_BS.shape[1])
        # Rounded as other loaders round what they keep: what is trained on must not depend on the way it is loaded.
        rounded = tf.cast(tf.cast(mel_BTM, self._mel_dtype), tf.float32)
        return tf.ensure_shape(rounded, [samples_BS.shape[0], num_frames, self._definition.n_mels])

    def _pad_frames(
        self, num_frames: int, mel_FM: Tensor, voices_FM: Tensor, lengths_B: Tensor, voice_lengths_B: Tensor
    ) -> tuple[Tensor, Tensor]:
        mel_BTM = self._pad(mel_FM, lengths_B, num_frames)
        return mel_BTM, self._pad(voices_FM, voice_lengths_B, self._num_reference_frames)

    def _pad(self, flat_FM: Tensor, lengths_B: Tensor, num_frames: int) -> Tensor:
        place = tf.range(num_frames)[None]
        is_real = place < lengths_B[:, None]
        starts_B = tf.cumsum(lengths_B, exclusive=True)
        values = tf.cast(tf.gather(flat_FM, tf.where(is_real, starts_B[:, None] + place, 0)), tf.float32)
        return tf.where(is_real[:, :, None], values, self._padding)


def cross_to(devices: Sequence[str]) -> Callable[[Batch], Batch]:
    """Copies batches from the data device to the model's.

    To one device goes the whole batch. For several the rows are cut into equal shares, in order, one for each; the
    whole then stays on the data device.
    """
    _refuse_missing(devices)
    share_out = make_sharing(devices)

    def cross(batch: Batch) -> Batch:
        # Rows are cut where they lie: without a device, TensorFlow would fetch them to the first one to cut them there.
        with tf.device(batch.mel.device):
            return share_out(batch)

    return cross


def _adopt(array: NDArray[Any]) -> Tensor:
    """A tensor of the host that looks at the same memory."""
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def _refuse_missing(devices: Sequence[str]) -> None:
    """TensorFlow would take the CPU in place of a device that does not exist, and say nothing."""
    existing = [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices()]
    missing = [device for device in devices if device.removeprefix("/") not in existing]
    if missing:
        raise HardwareError(
            f"There is no {', '.join(missing)} among the devices that TensorFlow sees: {', '.join(existing)}.",
            next_step="Set data.data_gpu and data.model_gpu to GPUs that exist.",
        )
