"""Neural vocoder in the manner of Vocos (Siuzdak, 2023): ConvNeXt blocks at frame rate and an inverse STFT.

It predicts log magnitude and phase of every frequency of each frame, so that nothing is upsampled.
Shape legend: B batch, T frames, M mel bands, W width, F frequencies, S = T * hop_length samples.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated, Self

import tensorflow as tf
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from myxtts.errors import DataError, refuse
from myxtts.models.fourier import InverseTransform
from myxtts.models.layers import ConvolutionBlock, Linear, ModelLayer, Norm, count_steps
from myxtts.storage.json_file import JsonRefusedError, check_fields
from myxtts.types import Tensor

_CONTEXT_FRAMES = 3
"""Frames on either side that the first layer sees: a convolution with a kernel of 7."""
_MEL_MEAN, _MEL_DEVIATION = -5.0, 2.5
"""Brings log-mels, about -11.5 to 2, near to a mean of 0 and a deviation of 1."""
_Length = Annotated[int, Field(ge=1, le=16_384)]


# The limits are far above any useful size: they keep a damaged file from allocating absurd amounts of memory.
@dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(strict=True, extra="forbid"))
class VocoderConfig:
    """Architecture of a vocoder, and the spectrograms it was made for. The default has 10 million weights."""

    n_mels: Annotated[int, Field(ge=1, le=4096)]
    n_fft: _Length
    hop_length: _Length
    win_length: _Length
    width: Annotated[int, Field(ge=1, le=8192)] = 448
    num_blocks: Annotated[int, Field(ge=1, le=128)] = 8

    def __post_init__(self) -> None:
        if not self.hop_length <= self.win_length <= self.n_fft:
            raise _refuse(
                f"hop_length {self.hop_length}, win_length {self.win_length} and n_fft {self.n_fft} must rise"
            )

    @classmethod
    def tiny(cls, *, n_mels: int, n_fft: int, hop_length: int, win_length: int) -> Self:
        """1.7 million weights, which two CPU cores can train."""
        mel = {"n_mels": n_mels, "n_fft": n_fft, "hop_length": hop_length, "win_length": win_length}
        return cls(**mel, width=192, num_blocks=6)

    def to_json(self) -> dict[str, int]:
        return asdict(self)

    def refuse_more_than(self, num_values: int) -> None:
        """Raises DataError where a vocoder of this shape needs more than `num_values` weights.

        Building it would exhaust the memory before missing weights are noticed. A lower bound suffices: every block has
        a square matrix, and every frequency two rows in the head.
        """
        least = self.num_blocks * self.width**2 + self.width * (self.n_fft + self.n_mels)
        if least > num_values:
            raise _refuse(f"it is of a larger one than its {num_values:,} weights make")

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Reads what `to_json` gave; raises DataError for anything else."""
        try:
            return check_fields(data, cls)
        except JsonRefusedError as error:
            raise _refuse(str(error)) from error


def _refuse(problem: str) -> DataError:
    next_step = "Take the vocoder from the run that trained it, or use griffin_lim."
    return refuse("The vocoder's description", problem, next_step)


class Vocoder(ModelLayer):
    """Maps log-mels [B, T, M] to samples [B, T * hop_length]; frame t is centred on sample t * hop_length."""

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self._config = config
        self._num_frequencies = config.n_fft // 2 + 1
        self._inverse = InverseTransform(config.n_fft, config.hop_length, config.win_length)
        self.embedding = Linear((2 * _CONTEXT_FRAMES + 1) * config.n_mels, config.width)
        self.embedding_norm = Norm(config.width)
        self.blocks = [ConvolutionBlock(config.width) for _ in range(config.num_blocks)]
        self.final_norm = Norm(config.width)
        # float32: bfloat16 would round phases to 8 bits, which alone costs the signal-to-noise ratio 35 to 52 dB.
        self.head = Linear(config.width, 2 * self._num_frequencies, dtype="float32")
        # Log magnitudes follow from log-mels almost linearly: with this skip connection the blocks learn the residual.
        self.envelope = Linear(config.n_mels, self._num_frequencies, starts_at_zero=True, dtype="float32")

    @property
    def config(self) -> VocoderConfig:
        return self._config

    def call(self, mel_BTM: Tensor) -> Tensor:
        magnitude_BTF, phase_BTF = self.predict_polar(mel_BTM)
        return self._inverse(magnitude_BTF * tf.cos(phase_BTF), magnitude_BTF * tf.sin(phase_BTF))

    def predict_polar(self, mel_BTM: Tensor) -> tuple[Tensor, Tensor]:
        """Magnitude and phase, both float32 [B, T, F]."""
        log_magnitude_BTF, phase_BTF = self.predict_spectrum(mel_BTM)
        # A signal within -1..1 has magnitudes of at most the sum of the Hann window, win_length / 2.
        return tf.exp(tf.minimum(log_magnitude_BTF, math.log(self._config.win_length / 2))), phase_BTF

    def predict_spectrum(self, mel_BTM: Tensor) -> tuple[Tensor, Tensor]:
        """Log magnitude and phase, both float32 [B, T, F]."""
        normalized_BTM = (tf.cast(mel_BTM, tf.float32) - _MEL_MEAN) / _MEL_DEVIATION
        x_BTW = self.embedding_norm(self.embedding(_join_neighbours(normalized_BTM)))
        is_real_BT1 = tf.ones_like(x_BTW[:1, :, :1])
        for block in self.blocks:
            x_BTW = block(x_BTW, is_real_BT1)
        log_magnitude_BTF, phase_BTF = tf.split(self.head(self.final_norm(x_BTW)), 2, axis=-1)
        return log_magnitude_BTF + self.envelope(normalized_BTM), phase_BTF


def _join_neighbours(x_BTM: Tensor) -> Tensor:
    """Each frame with its neighbours side by side (im2col): a convolution becomes one matrix product."""
    num_frames = count_steps(x_BTM)
    padded = tf.pad(x_BTM, [[0, 0], [_CONTEXT_FRAMES, _CONTEXT_FRAMES], [0, 0]])
    return tf.concat([padded[:, start : start + num_frames] for start in range(2 * _CONTEXT_FRAMES + 1)], axis=-1)
