"""Multi-GPU mode: computes features on a data device and copies batches to the model's devices.

Numbers of samples and frames are handed to the graph in host memory: TensorFlow keeps 32-bit integers there for GPUs
too, and would copy them back.
Shape legend: B utterances, S samples, T frames, R frames of the reference, V samples of the reference, M mel bands, W
numbers of the vector of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from myxtts.errors import HardwareError
from myxtts.features.definition import MelDefinition
from myxtts.features.mel_graph import GraphMel
from myxtts.pipeline.batch import Arrays, BatchLayout, Loaded, allocate_aligned
from myxtts.pipeline.order import Shape
from myxtts.pipeline.packed import (
    Packed,
    PackedArray,
    PackedBatch,
    PackedLayout,
    adopt,
    cut_vector,
    join_vector,
    pack_views,
)
from myxtts.types import BATCH, Batch, Tensor

_NUMBERS = ("num_samples", "num_reference_samples", "reference_starts", "reference_lengths")
"""Arrays that the graph takes from host memory."""


class _Graph(NamedTuple):
    """Gives the vector of each share, and a number that is there when all of them are."""

    run: Callable[..., tuple[list[Tensor], Tensor]]
    layout: PackedLayout


class DataDeviceFeatures:
    """Turns host batches of waveforms into batches of log-mels on the data device. One thread calls it.

    A batch comes to the device in one copy, and leaves the graph as one vector for each of `num_shares` equal shares of
    its rows. There is one graph for each batch shape. A call returns when the features are there, so that what waits
    behind it is ready, and the time it takes is the device's.
    """

    def __init__(
        self, device: str, definition: MelDefinition, mel_dtype: str, num_reference_frames: int, num_shares: int = 1
    ) -> None:
        _refuse_missing([device])
        self.device, self._definition, self._mel_dtype = device, definition, mel_dtype
        self._num_reference_frames, self._num_shares = num_reference_frames, num_shares
        self._padding = float(np.log(definition.log_floor))
        self._graphs: dict[PackedLayout, _Graph] = {}
        self.num_traces = 0
        with tf.device(device):
            self._mel = GraphMel(definition)

    def __call__(self, loaded: Loaded) -> PackedBatch:
        """The batch on the data device, with a piece for each share."""
        return PackedBatch(loaded.plan.position, loaded.ids, loaded.plan.num_real, self._compute(loaded.arrays))

    def warm(self, shapes: Sequence[Shape], layout: BatchLayout) -> None:
        """Traces the graphs of all shapes and runs each once, on empty batches."""
        memory = allocate_aligned(layout.num_bytes)
        for shape in shapes:
            memory[:] = 0
            self._compute(layout.view(shape, memory))

    def _compute(self, arrays: Arrays) -> list[Packed]:
        packed = pack_views(arrays)
        numbers = [adopt(arrays[name]) for name in _NUMBERS]
        if packed.layout not in self._graphs:
            signature = [tf.TensorSpec.from_tensor(tensor) for tensor in (packed.vector, *numbers)]
            self._graphs[packed.layout] = self._trace(packed.layout, signature)
        graph = self._graphs[packed.layout]
        with tf.device(self.device):
            vectors, last = graph.run(tf.identity(packed.vector), *numbers)
            # Reading a number that depends on the features waits for them.
            last.numpy()
        return [Packed(vector_W, graph.layout) for vector_W in vectors]

    def _trace(self, layout: PackedLayout, signature: Sequence[tf.TensorSpec]) -> _Graph:
        layout_of_share: PackedLayout = ()

        def compute_on_device(vector_W: Tensor, *numbers: Tensor) -> tuple[list[Tensor], Tensor]:
            nonlocal layout_of_share
            self.num_traces += 1
            with tf.device(self.device):
                carriers = cut_vector(Packed(vector_W, layout))
                carriers["mel"], carriers["reference"] = self._transform_waveforms(carriers, *numbers)
                present = [array for array in BATCH if array.name in carriers]
                rows = {array.name: tf.split(carriers[array.name], self._num_shares) for array in present}
                layout_of_share = tuple(
                    PackedArray(array.name, array.dtype, tuple(rows[array.name][0].shape)) for array in present
                )
                shares = [{name: rows[name][number] for name in rows} for number in range(self._num_shares)]
                vectors = [join_vector(share) for share in shares]
                return vectors, vectors[-1][0]

        run = tf.function(compute_on_device, input_signature=signature, autograph=False).get_concrete_function()
        return _Graph(run, layout_of_share)

    # What follows is traced.

    def _transform_waveforms(
        self,
        carriers: dict[str, Tensor],
        num_samples_B: Tensor,
        num_reference_samples_B: Tensor,
        starts_B: Tensor,
        lengths_B: Tensor,
    ) -> tuple[Tensor, Tensor]:
        mel_BTM = self._transform(carriers["samples"], num_samples_B)
        uncropped_BTM = self._transform(carriers["reference_samples"], num_reference_samples_B)
        offsets = tf.range(self._num_reference_frames)[None]
        is_real = offsets < lengths_B[:, None]
        reference_BRM = tf.gather(uncropped_BTM, tf.where(is_real, starts_B[:, None] + offsets, 0), batch_dims=1)
        return mel_BTM, tf.where(is_real[:, :, None], reference_BRM, self._padding)

    def _transform(self, samples_BS: Tensor, lengths_B: Tensor) -> Tensor:
        """Log-mels [B, T, M]; silence gives the padding, and so does a row without samples."""
        mel_BTM, _ = self._mel(samples_BS, lengths_B)
        num_frames = self._definition.count_frames(samples_BS.shape[1])
        # Rounded as other loaders round what they keep: training must not depend on how features are loaded.
        rounded = tf.cast(tf.cast(mel_BTM, self._mel_dtype), tf.float32)
        return tf.ensure_shape(rounded, [samples_BS.shape[0], num_frames, self._definition.n_mels])


def cross_to(devices: Sequence[str]) -> Callable[[PackedBatch], Batch]:
    """Copies batches from the data device to the model's: whole to one device, a share of the rows to each of several.

    Each crosses in one copy.
    """
    _refuse_missing(devices)
    return lambda batch: batch.to_devices(devices)


def _refuse_missing(devices: Sequence[str]) -> None:
    """TensorFlow would silently use the CPU in place of a device that does not exist."""
    existing = [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices()]
    missing = [device for device in devices if device.removeprefix("/") not in existing]
    if missing:
        raise HardwareError(
            f"There is no {', '.join(missing)} among the devices that TensorFlow sees: {', '.join(existing)}.",
            next_step="Set data.data_gpu and data.model_gpu to GPUs that exist.",
        )
