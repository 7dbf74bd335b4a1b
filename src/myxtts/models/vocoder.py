"""Neural vocoder: a source-filter model whose filters are drawn by ConvNeXt blocks at frame rate, as in Vocos.

The source is a pulse train at F0, which is read from the mel spectrogram, and white noise. For every frequency of each
frame the network predicts the gain and phase of the pulses and the gain of the noise; an inverse STFT gives the
samples. Harmonics are exact, and their phases run on from frame to frame without being learnt, so that less than an
hour on two CPU cores trains it, without discriminators (compare DDSP, Engel et al., 2020). The noise is a table, so
that the same mel always gives the same samples.

Synthesised mels are smoother than those of recordings, and the network then gets the level of weak consonants wrong. So
`call` corrects the finished samples: every mel band gets the energy that it has in the mel.

A vocoder without `band_hz` in its description has no source: it predicts magnitude and phase itself, as Vocos does.
Shape legend: B batch, T frames, M mel bands, W width, F frequencies, H hop_length, S = T * H samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from myxtts.errors import DataError, refuse
from myxtts.models.fourier import ForwardTransform, InverseTransform
from myxtts.models.layers import ConvolutionBlock, Linear, ModelLayer, Norm, count_steps
from myxtts.models.pitch import PitchTracker
from myxtts.models.pitch_combs import MIDDLE_HZ
from myxtts.storage.json_file import JsonRefusedError, check_fields
from myxtts.types import Tensor

_CONTEXT_FRAMES = 3
"""Frames on either side that the first layer sees: a convolution with a kernel of 7."""
_MEL_MEAN, _MEL_DEVIATION = -5.0, 2.5
"""Brings log-mels, about -11.5 to 2, near to a mean of 0 and a deviation of 1."""
_LOG_GAIN_START = -2.0
"""Log gain of both sources before training: about that of quiet speech."""
_PULSE_SHARE = 0.98
"""Harmonics reach up to this share of half the sample rate."""
_LEAST_SINE = 1e-3
"""Nearer to a pulse than this, the closed form of the sum of cosines is 0 / 0, and its limit is taken."""
_LEAST_POWER, _LEAST_BAND, _LEAST_WEIGHT = 1e-12, 1e-5, 1e-10
"""Keep logarithms, gradients and quotients of silence finite."""
NUM_CORRECTIONS = 2
"""One or two make the speech clearer, by the word errors of a recogniser; six make it worse."""
_MAX_LOG_GAIN = 2.5
"""A band is corrected by at most this factor, 22 dB."""
NOISE_SAMPLES = 65_536
"""Length of the table of white noise, 3 s: its repetition cannot be heard."""
_Length = Annotated[int, Field(ge=1, le=16_384)]


# The limits are far above any useful size: they keep a damaged file from allocating absurd amounts of memory.
@dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(strict=True, extra="forbid"))
class VocoderConfig:
    """Architecture of a vocoder, and the spectrograms it was made for. The default has 10 million weights.

    With `band_hz`, the centres of the mel bands, it has a source at F0, which needs `sample_rate` too.
    """

    n_mels: Annotated[int, Field(ge=1, le=4096)]
    n_fft: _Length
    hop_length: _Length
    win_length: _Length
    width: Annotated[int, Field(ge=1, le=8192)] = 448
    num_blocks: Annotated[int, Field(ge=1, le=128)] = 8
    sample_rate: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    band_hz: Annotated[tuple[float, ...], Field(max_length=4096)] = ()

    def __post_init__(self) -> None:
        if not self.hop_length <= self.win_length <= self.n_fft:
            raise _refuse(
                f"hop_length {self.hop_length}, win_length {self.win_length} and n_fft {self.n_fft} must rise"
            )
        if self.band_hz and (len(self.band_hz) != self.n_mels or self.sample_rate == 0):
            raise _refuse(f"band_hz has {len(self.band_hz)} values for {self.n_mels} bands, or sample_rate is missing")

    @property
    def has_source(self) -> bool:
        """Whether it filters pulses at F0 and noise. Bands that are too coarse for F0 make a vocoder without source."""
        return bool(self.band_hz)

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

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


class Source(NamedTuple):
    """What excites the filters: F0 in Hz and voicing, both [B, T], and where the table of noise is entered [B]."""

    hz: Tensor
    voicing: Tensor
    noise_start: Tensor


Transform = Callable[[Tensor], tuple[Tensor, Tensor]]
"""STFT of samples [B, S]: real and imaginary parts [B, T, F]."""


class Vocoder(ModelLayer):
    """Maps log-mels [B, T, M] to samples [B, T * hop_length]; frame t is centred on sample t * hop_length."""

    def __init__(self, config: VocoderConfig, bands_FM: NDArray[np.float32]) -> None:
        """`bands_FM` are the weights of the mel bands over the lower frequencies, as they made the spectrograms."""
        super().__init__()
        self._config, self._bands = config, _Bands(bands_FM, config.n_fft // 2 + 1)
        sizes = config.n_fft, config.hop_length, config.win_length
        self._transform, self._inverse = ForwardTransform(*sizes), InverseTransform(*sizes)
        self._f0_tracker = PitchTracker(config.band_hz)
        num_frequencies = config.n_fft // 2 + 1
        # F0 and voicing beside the bands. The head draws gain and phase of the pulses, and the gain of the noise.
        num_inputs, num_gains = (config.n_mels + 2, 2) if config.has_source else (config.n_mels, 1)
        self.embedding = Linear((2 * _CONTEXT_FRAMES + 1) * num_inputs, config.width)
        self.embedding_norm = Norm(config.width)
        self.blocks = [ConvolutionBlock(config.width) for _ in range(config.num_blocks)]
        self.final_norm = Norm(config.width)
        # float32: bfloat16 would round phases to 8 bits, which alone costs the signal-to-noise ratio 35 to 52 dB.
        self.head = Linear(config.width, (num_gains + 1) * num_frequencies, dtype="float32")
        # Log magnitudes follow from log-mels almost linearly: with this skip connection the blocks learn the residual.
        self.envelope = Linear(config.n_mels, num_gains * num_frequencies, starts_at_zero=True, dtype="float32")

    @property
    def config(self) -> VocoderConfig:
        return self._config

    def call(self, mel_BTM: Tensor) -> Tensor:
        samples_BS = self.filter_source(mel_BTM)
        for _ in range(NUM_CORRECTIONS if self._config.has_source else 0):
            samples_BS = self._inverse(*self.correct_spectrum(mel_BTM, *self._transform(samples_BS)))
        return samples_BS

    def filter_source(self, mel_BTM: Tensor, source: Source | None = None) -> Tensor:
        """Samples without the correction of their bands, as training compares them.

        `source` replaces the F0 that is read from the spectrogram by a better one, which training has.
        """
        return self._inverse(*self.predict_spectrum(mel_BTM, self._transform, source))

    def correct_spectrum(self, mel_BTM: Tensor, real_BTF: Tensor, imaginary_BTF: Tensor) -> tuple[Tensor, Tensor]:
        """Gives every mel band of a spectrum the energy that the spectrogram says.

        It must be the spectrum of samples: that of `predict_spectrum` is changed by the overlap of frames, and
        correcting it makes the speech less clear.
        """
        gain_BTF = self._bands.measure_gain(real_BTF, imaginary_BTF, mel_BTM)
        return real_BTF * gain_BTF, imaginary_BTF * gain_BTF

    def track(self, mel_BTM: Tensor) -> Source:
        """The source of a spectrogram. Its F0 is 0.5 % off in half of the voiced frames."""
        hz_BT, voicing_BT = self._f0_tracker.track_hz(tf.cast(mel_BTM, tf.float32))
        return Source(hz_BT, voicing_BT, tf.zeros_like(hz_BT[:, 0], tf.int32))

    def predict_spectrum(
        self, mel_BTM: Tensor, transform: Transform, source: Source | None = None
    ) -> tuple[Tensor, Tensor]:
        """Real and imaginary parts of the spectrum, both float32 [B, T, F]; `transform` is the STFT of the source."""
        normalized_BTM = (tf.cast(mel_BTM, tf.float32) - _MEL_MEAN) / _MEL_DEVIATION
        if not self._config.has_source:
            (log_gain_BTF,), phase_BTF = self._predict(normalized_BTM, normalized_BTM)
            return _from_polar(self._limit(log_gain_BTF), phase_BTF)
        source = source or self.track(mel_BTM)
        octaves_BT = 2 * tf.math.log(source.hz / MIDDLE_HZ) * source.voicing
        inputs = tf.concat([normalized_BTM, octaves_BT[..., None], 2 * source.voicing[..., None] - 1], axis=-1)
        (log_pulses_BTF, log_noise_BTF), phase_BTF = self._predict(inputs, normalized_BTM)
        filter_real, filter_imaginary = _from_polar(self._limit(log_pulses_BTF + _LOG_GAIN_START), phase_BTF)
        noise_gain = self._limit(log_noise_BTF + _LOG_GAIN_START)
        hop, rate = self._config.hop_length, self._config.sample_rate
        pulse_real, pulse_imaginary = transform(make_pulses(source.hz, rate, hop))
        noise_real, noise_imaginary = transform(_read_noise(source.noise_start, count_steps(mel_BTM) * hop))
        return (
            pulse_real * filter_real - pulse_imaginary * filter_imaginary + noise_real * noise_gain,
            pulse_real * filter_imaginary + pulse_imaginary * filter_real + noise_imaginary * noise_gain,
        )

    def _predict(self, inputs_BTM: Tensor, normalized_BTM: Tensor) -> tuple[list[Tensor], Tensor]:
        """Log gains, one or two, and phase, all float32 [B, T, F]."""
        x_BTW = self.embedding_norm(self.embedding(_join_neighbours(inputs_BTM)))
        is_real_BT1 = tf.ones_like(x_BTW[:1, :, :1])
        for block in self.blocks:
            x_BTW = block(x_BTW, is_real_BT1)
        num_gains = 2 if self._config.has_source else 1
        *gains, phase_BTF = tf.split(self.head(self.final_norm(x_BTW)), num_gains + 1, axis=-1)
        envelopes = tf.split(self.envelope(normalized_BTM), num_gains, axis=-1)
        return [gain + envelope for gain, envelope in zip(gains, envelopes, strict=True)], phase_BTF

    def _limit(self, log_gain: Tensor) -> Tensor:
        """Gains up to the magnitude of a signal within -1..1: at most the sum of the Hann window, win_length / 2."""
        return tf.exp(tf.minimum(log_gain, math.log(self._config.win_length / 2)))


class _Bands:
    """Compares the mel bands of a spectrum with those of a spectrogram."""

    def __init__(self, bands_FM: NDArray[np.float32], num_frequencies: int) -> None:
        self._bands_FM = np.pad(bands_FM, [(0, num_frequencies - len(bands_FM)), (0, 0)])
        # A frequency takes the mean gain of its bands; those above all bands take that of the highest.
        shares_FM = self._bands_FM / np.maximum(self._bands_FM.sum(axis=1, keepdims=True), _LEAST_WEIGHT)
        shares_FM[np.flatnonzero(self._bands_FM.any(axis=1)).max(initial=0) + 1 :, -1] = 1
        self._shares_MF = np.ascontiguousarray(shares_FM.T)

    def measure_gain(self, real_BTF: Tensor, imaginary_BTF: Tensor, mel_BTM: Tensor) -> Tensor:
        """Factor of every frequency [B, T, F] that brings each band to its energy in the spectrogram."""
        magnitude_BTF = tf.sqrt(tf.square(real_BTF) + tf.square(imaginary_BTF) + _LEAST_POWER)
        made_BTM = tf.math.log(tf.maximum(tf.matmul(magnitude_BTF, self._bands_FM), _LEAST_BAND))
        wanted_BTM = tf.maximum(tf.cast(mel_BTM, tf.float32), math.log(_LEAST_BAND))
        gain_BTM = tf.exp(tf.clip_by_value(wanted_BTM - made_BTM, -_MAX_LOG_GAIN, _MAX_LOG_GAIN))
        return tf.matmul(gain_BTM, self._shares_MF)


def make_pulses(hz_BT: Tensor, rate_hz: int, hop_length: int) -> Tensor:
    """Pulse train [B, T * hop_length] with F0 `hz_BT`: cosines at all multiples of F0 below half the rate, power 1.

    F0 is interpolated between frames. The sum of K cosines of x is (sin((K + 1/2) x) / sin(x / 2) - 1) / 2.
    """
    next_BT = tf.concat([hz_BT[:, 1:], hz_BT[:, -1:]], axis=1)
    share_H = np.arange(hop_length, dtype=np.float32) / hop_length
    hz_BTH = hz_BT[..., None] * (1 - share_H) + next_BT[..., None] * share_H
    within_BTH = tf.cumsum(hz_BTH / rate_hz, axis=2)
    # Whole cycles are taken off before they add up, because float32 would lose the phase in long sentences.
    cycles_BT = within_BTH[..., -1] - tf.floor(within_BTH[..., -1])
    phase_BTH = tf.cumsum(cycles_BT, axis=1, exclusive=True)[..., None] + within_BTH
    half_BTH = math.pi * (phase_BTH - tf.floor(phase_BTH))
    num_harmonics = tf.floor(_PULSE_SHARE * rate_hz / 2 / hz_BTH)
    sine_BTH = tf.sin(half_BTH)
    is_pulse = tf.abs(sine_BTH) < _LEAST_SINE
    quotient = tf.sin((2 * num_harmonics + 1) * half_BTH) / tf.where(is_pulse, 1.0, sine_BTH)
    pulses_BTH = tf.where(is_pulse, num_harmonics, (quotient - 1) / 2) * tf.sqrt(2 / num_harmonics)
    return tf.reshape(pulses_BTH, [-1, count_steps(hz_BT) * hop_length])


def _read_noise(starts_B: Tensor, num_samples: Any) -> Tensor:
    """White noise [B, S] of power 1 from the table, from `starts_B` on."""
    # RandomState gives the same numbers in every version of numpy.
    table = tf.constant(np.random.RandomState(0).standard_normal(NOISE_SAMPLES), tf.float32)
    return tf.gather(table, (starts_B[:, None] + tf.range(num_samples)) % NOISE_SAMPLES)


def _from_polar(magnitude: Tensor, phase: Tensor) -> tuple[Tensor, Tensor]:
    return magnitude * tf.cos(phase), magnitude * tf.sin(phase)


def _join_neighbours(x_BTM: Tensor) -> Tensor:
    """Each frame with its neighbours side by side (im2col): a convolution becomes one matrix product."""
    num_frames = count_steps(x_BTM)
    padded = tf.pad(x_BTM, [[0, 0], [_CONTEXT_FRAMES, _CONTEXT_FRAMES], [0, 0]])
    return tf.concat([padded[:, start : start + num_frames] for start in range(2 * _CONTEXT_FRAMES + 1)], axis=-1)
