"""Segments of clips for training a vocoder: mel frames with the samples they were made of.

Which segments a step sees follows from the store, the seed and the number of the step alone, so that a run resumes
exactly. Every place of the corpus is as likely as any other.
Shape legend: B segments, T frames, M mel bands, S = T * hop_length samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DataError
from myxtts.store.reader import FeatureStore

_FULL_SCALE = 32767
"""The 16-bit sample that stands for 1.0 in a store."""


@dataclass(frozen=True, slots=True)
class Segments:
    """`lengths` are the frames that come from a clip; a shorter clip is followed by silence."""

    mel: NDArray[np.float32]  # [B, T, M]
    samples: NDArray[np.float32]  # [B, S]
    lengths: NDArray[np.int32]  # [B]

    def to_part(self) -> dict[str, Any]:
        """What a training step takes."""
        return {"mel": self.mel, "samples": self.samples, "lengths": self.lengths}


class SegmentSource:
    """Call it with the number of a step; get its segments. Any number of threads may call it."""

    def __init__(
        self, store: FeatureStore, rows: NDArray[np.int64], *, num_segments: int, num_frames: int, seed: int = 0
    ) -> None:
        """`rows` are those of the store to take segments from, such as the ones of a split."""
        _require_sound(store, rows)
        self._store, self._rows, self._seed = store, rows, seed
        self._num_segments, self._num_frames = num_segments, num_frames
        self._hop_length = store.settings.mel.hop_length
        self._silence = np.float32(np.log(store.settings.mel.log_floor))
        # The last frame of a clip is centred close to its end: a whole hop of samples follows each of the others.
        num_whole_frames = store.columns["pcm_length"][rows].astype(np.int64) // self._hop_length
        self._num_places = np.cumsum(np.maximum(num_whole_frames - num_frames, 0) + 1)

    def __call__(self, step: int) -> Segments:
        shape = (self._num_segments, self._num_frames)
        mel_BTM = np.empty((*shape, self._store.n_mels), np.float32)
        samples_BS = np.empty((self._num_segments, self._num_frames * self._hop_length), np.float32)
        lengths_B = np.empty(self._num_segments, np.int32)
        for place, (row, start) in enumerate(self.choose(step)):
            lengths_B[place] = self._copy_mel(row, start, mel_BTM[place])
            self._copy_samples(row, start, samples_BS[place])
        return Segments(mel_BTM, samples_BS, lengths_B)

    def choose(self, step: int) -> list[tuple[int, int]]:
        """Row and first frame of each segment of a step."""
        generator = np.random.default_rng([self._seed, step])
        places = generator.integers(0, self._num_places[-1], self._num_segments)
        clips = np.searchsorted(self._num_places, places, side="right")
        starts = places - np.where(clips > 0, self._num_places[clips - 1], 0)
        return [(int(self._rows[clip]), int(start)) for clip, start in zip(clips, starts, strict=True)]

    def _copy_mel(self, row: int, start: int, out_TM: NDArray[np.float32]) -> int:
        mel_TM = self._store.read_mel(row)[start : start + len(out_TM)]
        out_TM[: len(mel_TM)] = mel_TM
        out_TM[len(mel_TM) :] = self._silence
        return len(mel_TM)

    def _copy_samples(self, row: int, start: int, out_S: NDArray[np.float32]) -> None:
        first = start * self._hop_length
        pcm = self._store.read_part(row, "pcm")[first : first + len(out_S)]
        np.multiply(pcm, np.float32(1 / _FULL_SCALE), out=out_S[: len(pcm)], dtype=np.float32)
        out_S[len(pcm) :] = 0


def _require_sound(store: FeatureStore, rows: NDArray[np.int64]) -> None:
    if len(rows) == 0:
        raise DataError(
            f"The store in {store.folder} has no utterances to train a vocoder on.",
            next_step="Run myxtts prepare and myxtts precompute on recordings.",
        )
    if not store.settings.has_pcm:
        raise DataError(
            f"The store in {store.folder} holds spectrograms without their sound, and a vocoder needs both.",
            next_step="Run myxtts precompute with --set data.store_pcm=true.",
        )
