"""Log-mel spectrograms as TensorFlow operations: on any device, for one recording or a padded batch.

An item of a batch ends where its length says: it is reflected there, as if it were alone, and frames past its end
hold the logarithm of the floor.
Shape legend: B batch, S samples, T frames, N transform length, F frequencies, M mel bands.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from myxtts.features.definition import MelDefinition

Tensor = Any


class GraphMel:
    """Computes what `MelDefinition` says, inside a graph."""

    def __init__(self, definition: MelDefinition) -> None:
        self.definition = definition
        self._window_N = tf.constant(definition.window)
        self._filterbank_FM = tf.constant(definition.filterbank)

    def __call__(self, samples_BS: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Mel [B, T, M] and the number of frames [B] of each item; T is that of an item as long as S."""
        lengths_B = tf.cast(lengths_B, tf.int32)
        padded = self._reflect_at_lengths(samples_BS, lengths_B)
        num_frames = 1 + tf.shape(samples_BS)[1] // self.definition.hop_length
        mel_BTM = self._transform(padded, num_frames)
        frames_B = 1 + lengths_B // self.definition.hop_length
        is_real = tf.sequence_mask(frames_B, num_frames)[:, :, None]
        floor = tf.math.log(tf.constant(self.definition.log_floor, tf.float32))
        return tf.where(is_real, mel_BTM, floor), frames_B

    def single(self, samples_S: Tensor) -> Tensor:
        """Mel [T, M] of one recording."""
        margins = [self.definition.margin, self.definition.end_margin]
        padded = tf.pad(samples_S[None], [[0, 0], margins], "REFLECT")
        return self._transform(padded, 1 + tf.shape(samples_S)[0] // self.definition.hop_length)[0]

    def _reflect_at_lengths(self, samples_BS: Tensor, lengths_B: Tensor) -> Tensor:
        """Each item mirrored at its own two ends; what lies beyond is not looked at."""
        margin = self.definition.end_margin
        start = tf.reverse(samples_BS[:, 1 : self.definition.margin + 1], [1])
        body = tf.pad(samples_BS, [[0, 0], [0, margin]])
        # Past its end an item reads backwards: position L + k holds sample L - 2 - k.
        position = tf.range(margin)[None]
        mirrored = tf.gather(samples_BS, tf.maximum(lengths_B[:, None] - 2 - position, 0), batch_dims=1)
        place = tf.where(
            tf.sequence_mask(lengths_B, tf.shape(body)[1]),
            0,
            tf.minimum(tf.range(tf.shape(body)[1])[None] - lengths_B[:, None], margin - 1) + 1,
        )
        tail = tf.gather(tf.pad(mirrored, [[0, 0], [1, 0]]), place, batch_dims=1)
        return tf.concat([start, tf.where(place == 0, body, tail)], axis=1)

    def _transform(self, padded_BS: Tensor, num_frames: Tensor) -> Tensor:
        frames_BTN = self._frame(padded_BS, num_frames)
        spectrum = tf.signal.rfft(frames_BTN * self._window_N)[:, :, : len(self.definition.filterbank)]
        # Written out, this is a third faster on the host than the absolute value of a complex number.
        magnitude_BTF = tf.sqrt(tf.square(tf.math.real(spectrum)) + tf.square(tf.math.imag(spectrum)))
        mel_BTM = tf.matmul(magnitude_BTF, self._filterbank_FM)
        return tf.math.log(tf.maximum(mel_BTM, self.definition.log_floor))

    def _frame(self, padded_BS: Tensor, num_frames: Tensor) -> Tensor:
        hop, size = self.definition.hop_length, self.definition.n_fft
        if size % hop:
            return tf.signal.frame(padded_BS, size, hop)[:, :num_frames]
        # Whole hops make a frame: gluing shifted rows of hops copies each sample once, where framing gathers.
        num_parts = size // hop
        used = padded_BS[:, : (num_frames + num_parts - 1) * hop]
        rows = tf.reshape(used, [tf.shape(padded_BS)[0], num_frames + num_parts - 1, hop])
        return tf.concat([rows[:, part : part + num_frames] for part in range(num_parts)], axis=2)
