"""Recordings loaded inside the TensorFlow graph, by row: their log-mels, or the samples these are computed from.

    GraphReader (rows -> arrays) ─> RecordingGraph (read, decode, check, trim, level, log-mel) ─> GraphResampler

The same steps as `features.audio` takes on the host, as graph operations.
Shape legend: S samples, K recordings, T frames, V all frames or samples of the recordings, M mel bands, Q blocks,
N samples of a block, F frequencies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, gcd

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.errors import DataError
from myxtts.features.audio import MAX_PEAK, MIN_PEAK, TRIM_BLOCK_S, TRIM_MARGIN_S
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.features.mel_graph import GraphMel, decode_wav
from myxtts.pipeline.loaders.python import explain_problem
from myxtts.pipeline.recordings import RecordingSource, Survey, name_obstacle
from myxtts.types import Tensor

_SIGNATURE = [tf.TensorSpec([None], kind) for kind in (tf.string, tf.int32, tf.int32)]

# As soxr's HQ: flat to 0.913 of the lower Nyquist frequency, 20 bits (126 dB) down from there to the end.
_PASS_BAND_END, _STOP_BAND_START = 0.913, 1.0
_ATTENUATION_DB = 126.0
_MIN_BLOCK_SAMPLES = 4096


LoadRows = Callable[[Sequence[int]], dict[int, NDArray[np.float32]]]
"""Gives log-mels, or samples, by row."""


class GraphReader:
    """Loads rows of a source inside the graph, log-mels or samples, as far as the survey says that it can.

    `load_in_python` loads the others; where the graph fails, it finds what is wrong with the recording. Any number of
    threads may call it.
    """

    def __init__(
        self, source: RecordingSource, survey: Survey, load_in_python: LoadRows, *, gives_samples: bool = False
    ) -> None:
        self._source, self._is_native, self._load_in_python = source, survey.is_native, load_in_python
        rows_hz = source.columns["sample_rate_hz"]
        rates_hz = np.unique(rows_hz[survey.is_native])
        self.rate_numbers = np.searchsorted(rates_hz, rows_hz).astype(np.int32)
        self.graph = RecordingGraph(source.mel_definition, source.audio_definition, rates_hz.tolist())
        load_all = self.graph.load_all_samples if gives_samples else self.graph.load_all
        self._load_all = tf.function(load_all, input_signature=_SIGNATURE, autograph=False)

    def read(self, rows: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """By row its values; many are views of one array: copy what is kept."""
        in_graph = [row for row in rows if self._is_native[row]]
        others = [row for row in rows if not self._is_native[row]]
        return (self._read_in_graph(in_graph) if in_graph else {}) | self._load_in_python(others)

    def _read_in_graph(self, rows: list[int]) -> dict[int, NDArray[np.float32]]:
        paths = [os.fsencode(self._source.audio_path(row)) for row in rows]
        num_samples = self._source.columns["num_samples"][rows].astype(np.int32)
        try:
            with tf.device("/CPU:0"):
                values, lengths = self._load_all(paths, self.rate_numbers[rows], num_samples)
        except tf.errors.OpError as error:
            raise self._explain(rows, error) from error
        stops = np.cumsum(lengths.numpy()).tolist()
        # A view of the tensor's memory, which lives as long as the view.
        flat = np.asarray(memoryview(values))
        return {row: flat[start:stop] for row, start, stop in zip(rows, [0, *stops], stops, strict=False)}

    def _explain(self, rows: Sequence[int], error: tf.errors.OpError) -> DataError:
        """Finds what is wrong by loading each recording in Python: TensorFlow does not say which one it was."""
        for row in rows:
            try:
                self._load_in_python([row])
            except DataError as problem:
                return problem
            if name_obstacle(self._source, row):
                changed = AudioProblem(Reason.CHANGED, "the recording has changed since it was checked")
                return explain_problem(self._source, row, changed)
        names = ", ".join(self._source.id_of(row) for row in rows)
        return DataError(
            f"TensorFlow could not load these utterances: {names}. It says: {' '.join(error.message.split())}",
            next_step="Set data.use_tf_native_loading to false, which loads them through Python.",
        )


class RecordingGraph:
    """Loads 16-bit WAV files that have one of `rates_hz`. Every operation is placed on the host."""

    def __init__(self, mel: MelDefinition, audio: AudioDefinition, rates_hz: Sequence[int]) -> None:
        self._audio = audio
        with tf.device("/CPU:0"):
            self._mel = GraphMel(mel)
            self._rates_hz = tf.constant(rates_hz, tf.int32)
            self._resamplers = [self._make_resampler(rate) for rate in rates_hz]

    def load_all(self, paths_K: Tensor, rate_numbers_K: Tensor, num_samples_K: Tensor) -> tuple[Tensor, Tensor]:
        """Log-mels one behind the other [V, M], and how many frames each has [K].

        `rate_numbers` are indices into `rates_hz`; they and `num_samples` are what the files must have. One recording
        is loaded after the other, which keeps its samples in the processor's cache; callers load several batches at
        once.
        """
        return _load_each(self.load, [None, self._mel.definition.n_mels], paths_K, rate_numbers_K, num_samples_K)

    def load_all_samples(self, paths_K: Tensor, rate_numbers_K: Tensor, num_samples_K: Tensor) -> tuple[Tensor, Tensor]:
        """As `load_all`, the samples that log-mels are computed from [V], and how many each has [K]."""
        return _load_each(self.load_samples, [None], paths_K, rate_numbers_K, num_samples_K)

    def load(self, path: Tensor, rate_number: Tensor, num_samples: Tensor) -> Tensor:
        """The log-mel [T, M] of one file."""
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

    def load_next(index: Tensor, values: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        loaded = load(paths_K[index], *(fact_K[index] for fact_K in facts_K))
        return index + 1, values.write(index, loaded), lengths.write(index, tf.shape(loaded)[0])

    with tf.device("/CPU:0"):
        _, values, lengths = tf.while_loop(
            lambda index, _values, _lengths: index < num_recordings,
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


class GraphResampler:
    """Resampler in TensorFlow operations: turns samples [S] of one rate into as many of another as soxr gives.

    Overlap-save FFT convolution with a Kaiser-windowed sinc (pass band and stop-band depth of soxr HQ); then the
    spectrum of each block is truncated or zero-padded to the new rate. Blocks overlap by the length of the filter, so
    its length costs nothing, and any two rates will do.
    """

    def __init__(self, rate_hz: int, target_rate_hz: int) -> None:
        common = gcd(rate_hz, target_rate_hz)
        self._ratio = rate_hz / target_rate_hz
        num_in, num_out = rate_hz // common, target_rate_hz // common
        half_width, filter_taps = design_filter(rate_hz, target_rate_hz)
        # A block is `num_units` times the shortest section that has whole samples at both rates.
        num_overlapping = ceil(half_width / num_in)
        num_units = 1
        while num_units * num_in < _MIN_BLOCK_SAMPLES or num_units < 8 * num_overlapping:
            num_units *= 2
        self._block_in, self._block_out = num_units * num_in, num_units * num_out
        self._overlap_in, self._overlap_out = num_overlapping * num_in, num_overlapping * num_out
        self._step = self._block_in - 2 * self._overlap_in
        self._response_F = tf.constant(self._measure_response(filter_taps))

    def __call__(self, samples_S: Tensor) -> Tensor:
        num_samples = tf.shape(samples_S)[0]
        num_blocks = -(-num_samples // self._step)
        num_missing = num_blocks * self._step - num_samples
        padded = tf.pad(samples_S, [[self._overlap_in, num_missing + self._overlap_in]])
        blocks_QN = tf.signal.frame(padded, self._block_in, self._step)
        spectrum_QF = tf.signal.rfft(blocks_QN)[:, : self._response_F.shape[0]] * self._response_F
        num_added = self._block_out // 2 + 1 - self._response_F.shape[0]
        if num_added:
            spectrum_QF = tf.pad(spectrum_QF, [[0, 0], [0, num_added]])
        resampled_QN = tf.signal.irfft(spectrum_QF, [self._block_out])
        kept = resampled_QN[:, self._overlap_out : self._block_out - self._overlap_out]
        num_resampled = tf.cast(tf.floor(tf.cast(num_samples, tf.float64) / self._ratio + 0.5), tf.int32)
        return tf.reshape(kept, [-1])[:num_resampled]

    def _measure_response(self, filter_taps: NDArray[np.float64]) -> NDArray[np.complex64]:
        """The filter's spectrum [F] over a block, up to the highest frequency that both rates hold."""
        half = len(filter_taps) // 2
        around_zero = np.zeros(self._block_in)
        around_zero[np.arange(-half, half + 1)] = filter_taps
        num_shared = min(self._block_in, self._block_out) // 2 + 1
        # Symmetric around zero, so the spectrum is real.
        response = np.fft.rfft(around_zero).real[:num_shared] * self._block_out / self._block_in
        return response.astype(np.complex64)


def design_filter(rate_hz: int, target_rate_hz: int) -> tuple[float, NDArray[np.float64]]:
    """Half the width in samples, and the taps of the low-pass filter at `rate_hz`, an odd number around the centre."""
    lower_rate_hz = min(rate_hz, target_rate_hz)
    transition = np.pi * (_STOP_BAND_START - _PASS_BAND_END) * lower_rate_hz / rate_hz
    # Kaiser's formulas for the length and the shape of the window.
    half_width = (_ATTENUATION_DB - 8) / (2.285 * transition) / 2
    beta = 0.1102 * (_ATTENUATION_DB - 8.7)
    cutoff = (_PASS_BAND_END + _STOP_BAND_START) / 2 * lower_rate_hz / rate_hz
    offsets = np.arange(-int(half_width), int(half_width) + 1)
    taps = np.sinc(cutoff * offsets) * np.i0(beta * np.sqrt(1 - (offsets / half_width) ** 2))
    return float(half_width), taps / taps.sum()
