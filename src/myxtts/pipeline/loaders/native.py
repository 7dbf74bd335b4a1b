"""Loader that reads, decodes, resamples and computes log-mels inside the TensorFlow graph.

A batch is one call into the graph, in which no Python runs. Recordings that TensorFlow cannot decode are loaded by the
Python loader; which these are is found once, when the loader is made. The same batches are available as a
`tf.data.Dataset` of graph operations only, to be serialised or run by a tf.data service.
Shape legend: P batches, U utterances in use, B utterances of a batch, N tokens, T frames, V all frames that a batch
reads, M mel bands, R frames of the reference.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.corpus.audio import AudioLimits
from myxtts.errors import DataError
from myxtts.pipeline.batch import FEATURES, hash_crops
from myxtts.pipeline.loaders.python import PythonLoader
from myxtts.pipeline.loaders.recording_graph import GraphReader
from myxtts.pipeline.order import BatchPlan
from myxtts.pipeline.recordings import RecordingSource, Survey, survey_recordings
from myxtts.runtime.hardware import count_cpus
from myxtts.types import Tensor

_NUM_READY = 2
_AXES = {"position": "", "ids": "B", "num_real": "", **{array.name: array.axes for array in FEATURES}}
"""The elements of the dataset, named like the fields of `Batch`, and the axes of each."""


class TFNativeDataLoader(PythonLoader):
    """Loads batches from recordings inside the TensorFlow graph, or makes a `tf.data.Dataset` of them. Thread-safe.

    `survey` says which recordings the graph loads. One that has changed is noticed by its length and rate, not by its
    checksum, which the graph has no operation for.
    """

    name = "native"

    def __init__(
        self,
        source: RecordingSource,
        limits: AudioLimits,
        num_reference_frames: int,
        seed: int,
        ram_budget_bytes: int = 0,
        survey: Survey | None = None,
    ) -> None:
        super().__init__(source, limits, num_reference_frames, seed, ram_budget_bytes)
        self.survey = survey or survey_recordings(source)
        self._reader = GraphReader(source, self.survey, super().load_rows)

    def load_rows(self, rows: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        return self._reader.read(rows)

    def dataset(self, plans: Sequence[BatchPlan], *, num_parallel_calls: int | None = None) -> tf.data.Dataset:
        """The batches of the plans in order, as dictionaries named like the fields of `Batch`.

        It holds no Python, so it can be serialised and sent to a tf.data service, whose workers must see the
        recordings under the same paths. Nothing is kept in memory between epochs. As many batches are made at a time as
        there are processors, or `num_parallel_calls`.
        """
        used = np.unique([row for plan in plans for row in plan.list_distinct_rows()])
        foreign = used[~self.survey.is_native[used]]
        if len(foreign):
            kinds = ", ".join(sorted(self.survey.obstacles))
            raise DataError(
                f"{len(foreign):,} of {len(used):,} recordings cannot be decoded by TensorFlow alone ({kinds}), such "
                f"as {self._source.audio_path(int(foreign[0]))}.",
                next_step="Convert them to 16-bit WAV files, or load without data.data_service.",
            )
        sizes = {**_find_common_sizes(plans), "R": self._num_reference_frames, "M": self._source.n_mels}
        with tf.device("/CPU:0"):
            assembler = _GraphAssembler(self._source, self._reader, used, self._num_reference_frames)
            return _make_dataset(
                assembler, _slice_plans(plans, used, self._seed), sizes, num_parallel_calls or count_cpus()
            )


def _make_dataset(
    assembler: _GraphAssembler, plans: dict[str, Tensor], sizes: dict[str, int | None], num_parallel_calls: int
) -> tf.data.Dataset:
    """`plans` have one row per batch; `sizes` are those of the axes, None where batches differ."""

    def assemble(plan: dict[str, Tensor]) -> dict[str, Tensor]:
        batch = assembler.assemble(plan)
        return {
            name: tf.ensure_shape(batch[name], [sizes[axis] for axis in axes.split()]) for name, axes in _AXES.items()
        }

    batches = tf.data.Dataset.from_tensor_slices(plans)
    batches = batches.map(assemble, num_parallel_calls=num_parallel_calls, deterministic=True)
    options = tf.data.Options()
    # Ending a dataset that tunes itself can take seconds, and there is nothing here to tune.
    options.autotune.enabled = False
    return batches.prefetch(_NUM_READY).with_options(options)


def _slice_plans(plans: Sequence[BatchPlan], used_U: NDArray[np.int64], seed: int) -> dict[str, Tensor]:
    """What differs from batch to batch [P, ...]; rows are indices into the tables of the utterances in use."""
    num_real = [plan.num_real for plan in plans]

    def join(columns: Sequence[NDArray[Any]]) -> Tensor:
        real = [column[:count] for column, count in zip(columns, num_real, strict=True)]
        return tf.RaggedTensor.from_row_lengths(np.concatenate(real), num_real)

    return {
        "position": np.array([plan.position for plan in plans], np.int64),
        "shape": np.array([(p.shape.num_utterances, p.shape.num_frames, p.shape.num_tokens) for p in plans], np.int32),
        "rows": join([np.searchsorted(used_U, plan.rows).astype(np.int32) for plan in plans]),
        "references": join([np.searchsorted(used_U, plan.references).astype(np.int32) for plan in plans]),
        "crop_hashes": join([hash_crops(plan, seed) for plan in plans]),
    }


def _find_common_sizes(plans: Sequence[BatchPlan]) -> dict[str, int | None]:
    """The sizes that all batches have in common, which a model can be compiled for."""
    sizes = {
        "B": {plan.shape.num_utterances for plan in plans},
        "T": {plan.shape.num_frames for plan in plans},
        "N": {plan.shape.num_tokens for plan in plans},
    }
    return {axis: values.pop() if len(values) == 1 else None for axis, values in sizes.items()}


class _GraphAssembler:
    """`AssemblingLoader` as graph operations: tables of the utterances in use are constants of the graph."""

    def __init__(
        self, source: RecordingSource, reader: GraphReader, used_U: NDArray[np.int64], num_reference_frames: int
    ) -> None:
        self._graph, self._num_reference_frames = reader.graph, num_reference_frames
        self._mel_dtype = source.mel_dtype
        self._padding = float(np.log(source.mel_definition.log_floor))
        self._paths = tf.constant([os.fsencode(source.audio_path(row)) for row in used_U.tolist()])
        self._ids = tf.constant([source.id_of(row).encode("utf-8", "surrogatepass") for row in used_U.tolist()])
        self._rate_numbers = tf.constant(reader.rate_numbers[used_U])
        self._num_samples = tf.constant(source.columns["num_samples"][used_U].astype(np.int32))
        self._speaker, self._language = (
            tf.constant(source.columns[name][used_U].astype(np.int32)) for name in ("speaker", "language")
        )
        tokens = source.read_tokens(used_U)
        self._token_lengths = tf.constant([len(ids) for ids in tokens], tf.int32)
        self._tokens = tf.constant(np.concatenate(tokens))
        self._token_starts = tf.cumsum(self._token_lengths, exclusive=True)

    def assemble(self, plan: dict[str, Tensor]) -> dict[str, Tensor]:
        rows, references, shape = plan["rows"], plan["references"], plan["shape"]
        num_utterances, num_frames, num_tokens = tf.unstack(shape)
        num_real = tf.shape(rows)[0]

        def pad(values: Tensor) -> Tensor:
            return tf.pad(values, [[0, num_utterances - num_real]])

        mel_VM, starts, lengths = self._load(tf.concat([rows, references], axis=0))
        mel_lengths, token_lengths = lengths[:num_real], tf.gather(self._token_lengths, rows)
        self._check(mel_lengths, token_lengths, num_frames, rows)
        crop_starts, crop_lengths = self._find_crops(lengths[num_real:], plan["crop_hashes"])
        crop_starts, crop_lengths = pad(crop_starts + starts[num_real:]), pad(crop_lengths)
        token_starts = tf.gather(self._token_starts, rows)
        return {
            "position": plan["position"],
            "ids": _pad_strings(tf.gather(self._ids, rows), num_utterances),
            "num_real": num_real,
            "tokens": _gather_rows(self._tokens, pad(token_starts), pad(token_lengths), num_tokens, 0),
            "token_lengths": pad(token_lengths),
            "mel": _gather_rows(mel_VM, pad(starts[:num_real]), pad(mel_lengths), num_frames, self._padding),
            "mel_lengths": pad(mel_lengths),
            "speaker": pad(tf.gather(self._speaker, rows)),
            "language": pad(tf.gather(self._language, rows)),
            "reference": _gather_rows(mel_VM, crop_starts, crop_lengths, self._num_reference_frames, self._padding),
            "reference_lengths": crop_lengths,
        }

    def _load(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-mels one behind the other, and for each of `rows` where its own begins and how long it is."""
        # A reference is often another utterance of the batch.
        distinct, number_of = tf.unique(rows)
        tables = (self._paths, self._rate_numbers, self._num_samples)
        mel_VM, lengths = self._graph.load_all(*(tf.gather(table, distinct) for table in tables))
        # Rounded as other loaders round what they keep: what is trained on must not depend on the way it is loaded.
        rounded = tf.cast(tf.cast(mel_VM, self._mel_dtype), tf.float32)
        starts = tf.cumsum(lengths, exclusive=True)
        return rounded, tf.gather(starts, number_of), tf.gather(lengths, number_of)

    def _check(self, mel_lengths: Tensor, token_lengths: Tensor, num_frames: Tensor, rows: Tensor) -> None:
        ids = tf.gather(self._ids, rows)
        can_align, fits = token_lengths <= mel_lengths, mel_lengths <= num_frames
        tf.debugging.Assert(tf.reduce_all(can_align), ["More tokens than frames of sound:", ids[~can_align]])
        tf.debugging.Assert(tf.reduce_all(fits), ["More frames of sound than the batch has:", ids[~fits]])

    def _find_crops(self, num_frames: Tensor, crop_hashes: Tensor) -> tuple[Tensor, Tensor]:
        """First frame and number of frames of each reference, as `AssemblingLoader` does."""
        num_spare = tf.maximum(0, num_frames - self._num_reference_frames)
        starts = crop_hashes % tf.cast(num_spare + 1, tf.uint64)
        return tf.cast(starts, tf.int32), tf.minimum(num_frames, self._num_reference_frames)


def _gather_rows(flat: Tensor, starts_B: Tensor, lengths_B: Tensor, width: Tensor, padding: float) -> Tensor:
    """Sections of `flat` as rows of equal width [B, width, ...], padded behind their length."""
    offsets = tf.range(width)[None]
    is_real = offsets < lengths_B[:, None]
    values = tf.gather(flat, tf.where(is_real, starts_B[:, None] + offsets, 0))
    mask = tf.reshape(is_real, tf.concat([tf.shape(is_real), tf.ones(len(flat.shape) - 1, tf.int32)], axis=0))
    return tf.where(mask, values, tf.cast(padding, flat.dtype))


def _pad_strings(strings: Tensor, size: Tensor) -> Tensor:
    return tf.concat([strings, tf.fill([size - tf.shape(strings)[0]], "")], axis=0)
