"""A recording, from its file to its samples and spectrogram, as TensorFlow operations: features.audio in a graph.

Shape legend: S samples, K recordings, T frames, R all frames of the recordings, M mel bands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import tensorflow as tf

from myxtts.features.audio import MAX_PEAK, MIN_PEAK, TRIM_BLOCK_S, TRIM_MARGIN_S
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.features.mel_graph import GraphMel, decode_wav
from myxtts.pipeline.resample_graph import GraphResampler
from myxtts.types import Tensor


class RecordingGraph:
    """Loads 16-bit WAV files that have one of `rates_hz`. Every operation is placed on the host."""

    def __init__(self, mel: MelDefinition, audio: AudioDefinition, rates_hz: Sequence[int]) -> None:
        self._audio = audio
        with tf.device("/CPU:0"):
            self._mel = GraphMel(mel)
            self._rates_hz = tf.constant(rates_hz, tf.int32)
            self._resamplers = [self._make_resampler(rate) for rate in rates_hz]

    def load_all(self, paths_K: Tensor, rate_numbers_K: Tensor, num_samples_K: Tensor) -> tuple[Tensor, Tensor]:
        """Spectrograms one behind the other [R, M], and how many frames each has [K].

        `rate_numbers` are places in `rates_hz`; they and `num_samples` are what the files must have. One recording is
        loaded after the other, which keeps its samples in the processor's cache; callers do several batches at once.
        """
        return _load_each(self.load, [None, self._mel.definition.n_mels], paths_K, rate_numbers_K, num_samples_K)

    def load_all_samples(self, paths_K: Tensor, rate_numbers_K: Tensor, num_samples_K: Tensor) -> tuple[Tensor, Tensor]:
        """As `load_all`, the samples that the spectrograms are made of [S of all], and how many each has [K]."""
        return _load_each(self.load_samples, [None], paths_K, rate_numbers_K, num_samples_K)

    def load(self, path: Tensor, rate_number: Tensor, num_samples: Tensor) -> Tensor:
        """The spectrogram [T, M] of one file."""
        return self._mel.single(self.load_samples(path, rate_number, num_samples))

    def load_samples(self, path: Tensor, rate_number: Tensor, num_samples: Tensor) -> Tensor:
        """The samples [S] of one file, resampled, trimmed and levelled."""
        samples_S, rate_hz = decode_wav(tf.io.read_file(path))
        is_as_checked = (tf.shape(samples_S)[0] == num_samples) & (rate_hz == self._rates_hz[rate_number])
        check = tf.debugging.Assert(is_as_checked, ["The recording has changed since it was checked:", path])
        with tf.control_dependencies([check]):
            samples_S = self._resample(samples_S, rate_number)
        if self._audio.trim_silence:
            samples_S = trim_silence(samples_S, self._audio.sample_rate, self._audio.trim_db)
        return level_samples(samples_S, self._audio)

    def _make_resampler(self, rate_hz: int) -> Callable[[Tensor], Tensor]:
        target_hz = self._audio.sample_rate
        return tf.identity if rate_hz == target_hz else GraphResampler(rate_hz, target_hz)

    def _resample(self, samples_S: Tensor, rate_number: Tensor) -> Tensor:
        if len(self._resamplers) == 1:
            return self._resamplers[0](samples_S)
        return tf.switch_case(rate_number, [partial(resample, samples_S) for resample in self._resamplers])


def _load_each(
    load: Callable[[Tensor, Tensor, Tensor], Tensor], element_shape: list[int | None], paths_K: Tensor, *facts_K: Tensor
) -> tuple[Tensor, Tensor]:
    """What `load` gives for each recording, one behind the other, and how long each part is [K]."""
    num_recordings = tf.shape(paths_K)[0]
    values = tf.TensorArray(tf.float32, num_recordings, infer_shape=False, element_shape=element_shape)
    lengths = tf.TensorArray(tf.int32, num_recordings, element_shape=[])

    def load_next(place: Tensor, values: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        loaded = load(paths_K[place], *(fact_K[place] for fact_K in facts_K))
        return place + 1, values.write(place, loaded), lengths.write(place, tf.shape(loaded)[0])

    with tf.device("/CPU:0"):
        _, values, lengths = tf.while_loop(
            lambda place, _values, _lengths: place < num_recordings,
            load_next,
            (tf.constant(0), values, lengths),
            parallel_iterations=1,
        )
        return values.concat(), lengths.stack()


def trim_silence(samples_S: Tensor, rate_hz: int, trim_db: float) -> Tensor:
    """Cuts both ends up to where the sound comes within `trim_db` of its loudest block; a small margin stays."""
    block, margin = max(1, int(TRIM_BLOCK_S * rate_hz)), int(TRIM_MARGIN_S * rate_hz)
    num_samples = tf.shape(samples_S)[0]
    num_blocks = num_samples // block
    blocks = tf.reshape(samples_S[: num_blocks * block], [num_blocks, block])
    energy = tf.reduce_sum(tf.square(blocks), axis=1)
    loud = tf.cast(tf.where(energy > tf.reduce_max(energy) * 10 ** (-trim_db / 10)), tf.int32)
    start = tf.maximum(0, tf.reduce_min(loud) * block - margin)
    stop = tf.minimum(num_samples, (tf.reduce_max(loud) + 1) * block + margin)
    is_trimmed = (num_blocks >= 2) & (tf.size(loud) > 0)
    return samples_S[tf.where(is_trimmed, start, 0) : tf.where(is_trimmed, stop, num_samples)]


def level_samples(samples_S: Tensor, definition: AudioDefinition) -> Tensor:
    """Brings the level to the target; a peak that would clip limits the gain."""
    if definition.loudness == "none":
        return samples_S
    peak = tf.maximum(tf.reduce_max(samples_S), -tf.reduce_min(samples_S))
    level = peak if definition.loudness == "peak" else tf.sqrt(tf.reduce_mean(tf.square(samples_S)))
    gain = tf.minimum(definition.loudness_target / level, MAX_PEAK / peak)
    return samples_S * tf.where(peak < MIN_PEAK, 1.0, gain)
