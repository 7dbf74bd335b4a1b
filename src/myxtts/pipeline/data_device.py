"""Multi-GPU mode: computes features on a data device and copies batches to the model's devices.

Numbers of samples and frames are handed to the graph in host memory: TensorFlow keeps 32-bit integers there for GPUs
too, and would copy them back.
Shape legend: B utterances, S samples, T frames, R frames of the reference, V samples of the reference, M mel bands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from myxtts.errors import HardwareError
from myxtts.features.definition import MelDefinition
from myxtts.features.mel_graph import GraphMel
from myxtts.pipeline.batch import LABELS, Arrays, BatchLayout, Loaded, adopt, allocate_aligned, share_out
from myxtts.pipeline.order import Shape
from myxtts.types import Batch, Tensor


class DataDeviceFeatures:
    """Turns host batches of waveforms into batches of log-mels on the data device. One thread calls it.

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
        return loaded.to_batch(self._compute(loaded.arrays))

    def warm(self, shapes: Sequence[Shape], layout: BatchLayout) -> None:
        """Traces the graphs of all shapes and runs each once, on empty batches."""
        memory = allocate_aligned(layout.num_bytes)
        for shape in shapes:
            memory[:] = 0
            self._compute(layout.view(shape, memory))

    def _compute(self, arrays: Arrays) -> dict[str, Tensor]:
        with tf.device(self.device):
            tensors = {array.name: tf.identity(adopt(arrays[array.name])) for array in LABELS}
            tensors["mel"], tensors["reference"], last = self._run(arrays)
            # Reading a number that depends on both waits for them.
            last.numpy()
        return tensors

    def _run(self, arrays: Arrays) -> tuple[Tensor, Tensor, Tensor]:
        waveforms = [adopt(arrays[name]) for name in ("samples", "reference_samples")]
        names = ("num_samples", "num_reference_samples", "reference_starts", "reference_lengths")
        numbers = [adopt(arrays[name]) for name in names]
        key = tuple(waveform.shape for waveform in waveforms)
        if key not in self._graphs:
            signature = [tf.TensorSpec.from_tensor(tensor) for tensor in (*waveforms, *numbers)]
            self._graphs[key] = self._trace(self._transform_waveforms, signature)
        return self._graphs[key](*map(tf.identity, waveforms), *numbers)

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

    def _transform_waveforms(
        self,
        samples_BS: Tensor,
        reference_BV: Tensor,
        num_samples_B: Tensor,
        num_reference_samples_B: Tensor,
        starts_B: Tensor,
        lengths_B: Tensor,
    ) -> tuple[Tensor, Tensor]:
        mel_BTM = self._transform(samples_BS, num_samples_B)
        uncropped_BTM = self._transform(reference_BV, num_reference_samples_B)
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


def cross_to(devices: Sequence[str]) -> Callable[[Batch], Batch]:
    """Copies batches from the data device to the model's: whole to one device, in equal shares of rows to several."""
    _refuse_missing(devices)
    return partial(share_out, devices=devices)


def _refuse_missing(devices: Sequence[str]) -> None:
    """TensorFlow would silently use the CPU in place of a device that does not exist."""
    existing = [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices()]
    missing = [device for device in devices if device.removeprefix("/") not in existing]
    if missing:
        raise HardwareError(
            f"There is no {', '.join(missing)} among the devices that TensorFlow sees: {', '.join(existing)}.",
            next_step="Set data.data_gpu and data.model_gpu to GPUs that exist.",
        )
