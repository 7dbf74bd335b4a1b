"""Training segments of the vocoder: log-mel frames with the samples they were computed from.

The samples are kept in the store (`data.cache_waveforms`) or decoded from the recordings; both give the same values.
Which segments a batch holds follows from the store, the seed and the number of the batch alone, so that a run resumes
exactly. Every position of the corpus is equally likely.
Shape legend: B segments, T frames, M mel bands, S = T * hop_length samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.corpus_file import is_prepared, open_corpus
from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.errors import DataError
from myxtts.features.audio import load_recording
from myxtts.features.extract import quantize_samples
from myxtts.pipeline.batch import Arrays, BatchLayout, Loader, measure_axes
from myxtts.pipeline.loaders.python import MelMemory
from myxtts.pipeline.order import NO_ROW, BatchPlan, Shape
from myxtts.pipeline.splits import choose_corpus
from myxtts.store.layout import Part
from myxtts.store.reader import FeatureStore
from myxtts.types import Array, Split

_FULL_SCALE = 32767
"""16-bit sample value of 1.0 in a store."""
_AGAIN = "Run myxtts precompute to update the features."


class StoredSound:
    """Waveforms that a store keeps beside its spectrograms (`data.cache_waveforms`).

    `origin` is a sentence on where they come from.
    """

    def __init__(self, store: FeatureStore) -> None:
        assert store.settings.has_pcm, f"{store.folder} has no sound"
        self._store = store
        self.origin = f"Audio: from the feature cache {store.folder}."

    def read(self, row: int) -> NDArray[np.int16]:
        """Samples [S] of a row; full scale is 32767. Any number of threads may call it."""
        samples: NDArray[np.int16] = self._store.read_part(row, "pcm")
        return samples


class RecordedSound:
    """Waveforms decoded from the recordings as for features; cached in memory up to `budget_bytes`."""

    def __init__(
        self, store: FeatureStore, rows: NDArray[np.int64], paths: dict[str, str], place: Path, budget_bytes: int
    ) -> None:
        """`paths` maps ids of utterances to recordings; `place` is the path of their corpus."""
        self._store = store
        self._paths = {int(row): paths[store.id_of(int(row))] for row in rows}
        self._limits = store.state.origin.limits
        self._memory = MelMemory(budget_bytes, "int16")
        self.origin = (
            f"Audio: from the recordings of {place}, because the feature cache has none. What does not fit into "
            "memory is "
            "decoded again for every segment; myxtts precompute --set data.cache_waveforms=true avoids that."
        )

    def read(self, row: int) -> NDArray[np.int16]:
        kept = self._memory.find(row)
        if kept is not None:
            return kept
        try:
            samples = self._load(row)
        except AudioProblem as problem:
            raise DataError(
                f"The audio of {self._store.id_of(row)} cannot be read from {self._paths[row]}: {problem.detail} "
                f"({problem.reason}).",
                next_step=_AGAIN,
            ) from problem
        return self._memory.keep(row, quantize_samples(samples))  # type: ignore[arg-type]

    def _load(self, row: int) -> NDArray[np.float32]:
        """Decodes a recording; raises AudioProblem if it has changed since its features were computed."""
        columns, settings = self._store.columns, self._store.settings
        recording = load_recording(self._paths[row], settings.audio, self._limits)
        expected = int(columns["source_crc"][row])
        if expected and recording.checksum != expected:
            raise AudioProblem(Reason.CHANGED, "the recording has changed since its features were made")
        samples = recording.wave.samples
        if settings.mel.count_frames(len(samples)) != int(columns["mel_length"][row]):
            raise AudioProblem(Reason.CHANGED, "it gives another number of frames than were stored")
        return samples


SoundReader = StoredSound | RecordedSound


def open_sound_of(
    store: FeatureStore, rows: NDArray[np.int64], config: XTTSConfig, split: Split, budget_bytes: int
) -> SoundReader:
    """Opens a reader for these rows; raises DataError where neither store nor recordings have their samples."""
    if store.settings.has_pcm:
        return StoredSound(store)
    place = _find_corpus(store, config, split)
    wanted = {store.id_of(int(row)) for row in rows}
    paths = {one.id: one.audio for one in open_corpus(place).utterances() if one.id in wanted}
    missing = sorted(wanted - set(paths))
    if missing:
        raise DataError(
            f"The feature cache {store.folder} has no audio, and {len(missing):,} of its utterances are not in the "
            f"corpus {place}, such as {missing[0]}.",
            next_step=_AGAIN,
        )
    return RecordedSound(store, rows, paths, place, budget_bytes)


def _find_corpus(store: FeatureStore, config: XTTSConfig, split: Split) -> Path:
    """Path of the corpus: the configured one, else the one that the store was made from."""
    places = [Path(store.state.origin.corpus)]
    if config.data.train_data is not None:
        places.insert(0, choose_corpus(config.data, split))
    for place in places:
        if is_prepared(place):
            return place
    raise DataError(
        f"The feature cache {store.folder} has no audio, which a vocoder needs, and the corpus "
        f"{places[-1]} does not exist.",
        next_step="Name the prepared corpus with --train-data, or run myxtts precompute with "
        "--set data.cache_waveforms=true.",
    )


SEGMENT_ARRAYS = (
    Array("mel", "float32", "B T M", pad="log_floor"),
    Array("samples", "float32", "B S"),
    Array("mel_lengths", "int32", "B"),
)
"""The arrays of a batch of segments. `mel_lengths` are their real frames; shorter clips are padded with silence."""


def make_segment_layout(shapes: Sequence[Shape], n_mels: int, hop_length: int) -> BatchLayout:
    """The buffers of batches of segments of these shapes."""
    measure = partial(measure_axes, n_mels=n_mels, num_reference_frames=0)
    return BatchLayout(SEGMENT_ARRAYS, shapes, lambda shape: {**measure(shape), "S": shape.num_frames * hop_length})


class SegmentSource(Loader):
    """Chooses the random segments of every batch, and reads them: the order of a feed and its loader in one.

    In a plan of it `rows` are the clips that segments are cut from, and `keys` the frames at which they begin.
    """

    name = "segments"

    def __init__(
        self,
        store: FeatureStore,
        rows: NDArray[np.int64],
        sound: SoundReader,
        *,
        num_segments: int,
        num_frames: int,
        seed: int = 0,
    ) -> None:
        """`rows` are the rows of the store to take segments from, usually those of a split."""
        if len(rows) == 0:
            raise DataError(
                f"The feature cache in {store.folder} has no utterances to train a vocoder on.",
                next_step="Run myxtts prepare and myxtts precompute on recordings.",
            )
        # Sorted by the hash of the id, because a repair of the store may number rows differently.
        self._rows = rows[np.argsort(store.columns["id_hash"][rows], kind="stable")]
        self._store, self._sound, self._seed = store, sound, seed
        self._parts: tuple[Part, ...] = ("mel", "pcm") if store.settings.has_pcm else ("mel",)
        self.shapes = (Shape(num_segments, num_frames, 0),)
        self._hop_length = store.settings.mel.hop_length
        self._silence = np.float32(np.log(store.settings.mel.log_floor))
        lengths = store.columns["mel_length"][self._rows].astype(np.int64)
        self._num_frames_in_all = int(lengths.sum())
        # The last frame is centred near the end of the clip; only the others are followed by a whole hop of samples.
        # Running total of the frames at which a segment may begin, at least one in each clip.
        self._num_starts = np.cumsum(np.maximum(lengths - 1 - num_frames, 0) + 1)

    @property
    def num_batches_per_epoch(self) -> int:
        """Number of batches that hold as many frames as the clips."""
        (shape,) = self.shapes
        return max(1, -(-self._num_frames_in_all // (shape.num_utterances * shape.num_frames)))

    def make_layout(self, shapes: Sequence[Shape]) -> BatchLayout:
        """The buffers of batches of these shapes, which `fill` takes."""
        return make_segment_layout(shapes, self._store.n_mels, self._hop_length)

    def batch(self, position: int) -> BatchPlan:
        """The segments of a batch.

        A start is drawn uniformly from all possible starts of all clips; the generator is seeded by (seed, position).
        """
        (shape,) = self.shapes
        generator = np.random.default_rng([self._seed, position])
        drawn = generator.integers(0, self._num_starts[-1], shape.num_utterances)
        clips = np.searchsorted(self._num_starts, drawn, side="right")
        starts = drawn - np.where(clips > 0, self._num_starts[clips - 1], 0)
        epoch, no_references = position // self.num_batches_per_epoch, np.full(len(drawn), NO_ROW)
        return BatchPlan(position, epoch, self._rows[clips], no_references, shape, starts.astype(np.uint64))

    def fill(self, plan: BatchPlan, arrays: Arrays) -> Arrays:
        assert plan.keys is not None
        rows, starts = plan.rows.tolist(), plan.keys.tolist()
        with self._store.guard_reads(rows, self._parts):
            for number, (row, start) in enumerate(zip(rows, starts, strict=True)):
                arrays["mel_lengths"][number] = self._copy_mel(row, start, arrays["mel"][number])
                self._copy_samples(row, start, arrays["samples"][number])
        return arrays

    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]:
        return tuple(map(self._store.id_of, plan.rows.tolist()))

    def _copy_mel(self, row: int, start: int, out_TM: NDArray[np.float32]) -> int:
        mel_TM = self._store.read_mel(row)[start : start + len(out_TM)]
        out_TM[: len(mel_TM)] = mel_TM
        out_TM[len(mel_TM) :] = self._silence
        return len(mel_TM)

    def _copy_samples(self, row: int, start: int, out_S: NDArray[np.float32]) -> None:
        first = start * self._hop_length
        pcm = self._sound.read(row)[first : first + len(out_S)]
        np.multiply(pcm, np.float32(1 / _FULL_SCALE), out=out_S[: len(pcm)], dtype=np.float32)
        out_S[len(pcm) :] = 0
