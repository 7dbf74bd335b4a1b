"""What travels between the packages.

Shape legend: S samples, B utterances, N tokens, T frames, M mel bands, R frames of the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Split = Literal["train", "val", "test"]
Say = Callable[[str], None]
"""Takes one message for the user: a line of progress, or a warning."""
PageLanguage = Literal["en", "fa"]
PAGE_LANGUAGES: tuple[PageLanguage, ...] = ("en", "fa")
"""Languages of the pages and reports that the tools write; those of speech are in `text.languages`."""
Tensor = Any
"""A TensorFlow tensor; `Any`, because TensorFlow ships no types and must not be imported here."""
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Utterance:
    """One recording with what is said in it. `audio` is an absolute path; nothing here is decoded yet."""

    id: str
    audio: str
    text: str
    speaker: str
    language: str
    phonemes: str | None = None
    split: Split = "train"
    num_samples: int = 0
    sample_rate_hz: int = 0
    num_channels: int = 1
    checksum: int = 0
    """crc32c of the audio file's bytes, taken when it was checked."""

    @property
    def duration_s(self) -> float:
        return self.num_samples / self.sample_rate_hz if self.sample_rate_hz else 0.0


@dataclass(frozen=True, slots=True)
class Waveform:
    """Mono sound: `samples` is float32 [S] in -1..1."""

    samples: NDArray[np.float32]
    rate: int

    @property
    def duration_s(self) -> float:
        return len(self.samples) / self.rate


@dataclass(frozen=True, slots=True)
class Batch:
    """What one training step sees. Arrays are numpy on the host and tensors on a device; shapes are static.

    A row behind `num_real` fills the shape: its lengths are 0 and its id is ''. `speaker` and `language` number the
    names of the store; `reference` is sound of another clip of the same speaker. Where several devices train, `shares`
    holds the rows of each, in order, on its device; the whole then lies where it was put together.
    """

    position: int
    ids: tuple[str, ...]
    num_real: int
    tokens: Any  # int32 [B, N]
    token_lengths: Any  # int32 [B]
    mel: Any  # float32 [B, T, M]
    mel_lengths: Any  # int32 [B]
    speaker: Any  # int32 [B]
    language: Any  # int32 [B]
    reference: Any  # float32 [B, R, M]
    reference_lengths: Any  # int32 [B]
    durations: Any = None  # int32 [B, N], the frames of each token, where they are taken from the store
    shares: tuple[Batch, ...] = ()
