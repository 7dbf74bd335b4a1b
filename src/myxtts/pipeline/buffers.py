"""Memory for batches that is touched once and used again and again: fresh pages would cost more than the copying.

Shape legend: B utterances, N tokens, T frames, M mel bands, R frames of the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from myxtts.pipeline.buckets import Shape


@dataclass(frozen=True, slots=True)
class HostBatch:
    """Views of a buffer in the shape of one batch. They change when the buffer is filled again."""

    tokens: NDArray[np.int32]
    token_lengths: NDArray[np.int32]
    mel: NDArray[np.float32]
    mel_lengths: NDArray[np.int32]
    speaker: NDArray[np.int32]
    language: NDArray[np.int32]
    reference: NDArray[np.float32]
    reference_lengths: NDArray[np.int32]


class BatchBuffer:
    """Room for one batch of any of the shapes."""

    def __init__(self, shapes: Sequence[Shape], n_mels: int, num_reference_frames: int) -> None:
        self._n_mels, self._num_reference_frames = n_mels, num_reference_frames
        most = max(shape.num_utterances for shape in shapes)
        self._tokens = np.zeros(max(shape.num_utterances * shape.num_tokens for shape in shapes), np.int32)
        self._mel = np.zeros(max(shape.num_utterances * shape.num_frames for shape in shapes) * n_mels, np.float32)
        self._reference = np.zeros(most * num_reference_frames * n_mels, np.float32)
        self._numbers = np.zeros((5, most), np.int32)

    def view(self, shape: Shape) -> HostBatch:
        size, n_mels = shape.num_utterances, self._n_mels
        num_reference_frames = self._num_reference_frames
        token_lengths, mel_lengths, speaker, language, reference_lengths = self._numbers[:, :size]
        return HostBatch(
            tokens=self._tokens[: size * shape.num_tokens].reshape(size, shape.num_tokens),
            token_lengths=token_lengths,
            mel=self._mel[: size * shape.num_frames * n_mels].reshape(size, shape.num_frames, n_mels),
            mel_lengths=mel_lengths,
            speaker=speaker,
            language=language,
            reference=self._reference[: size * num_reference_frames * n_mels].reshape(
                size, num_reference_frames, n_mels
            ),
            reference_lengths=reference_lengths,
        )


def measure_buffer_bytes(shapes: Sequence[Shape], n_mels: int, num_reference_frames: int) -> int:
    """What one buffer weighs, without making it."""
    most = max(shape.num_utterances for shape in shapes)
    num_tokens = max(shape.num_utterances * shape.num_tokens for shape in shapes)
    num_mel = max(shape.num_utterances * shape.num_frames for shape in shapes) * n_mels
    return 4 * (num_tokens + num_mel + most * num_reference_frames * n_mels + 5 * most)
