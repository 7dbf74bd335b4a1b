"""Data types that the packages exchange: utterances, waveforms, and the batch with the shapes of its arrays.

Shape legend: S samples, B utterances, N tokens, T frames, M mel bands, R frames of the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Split = Literal["train", "val", "test"]
Say = Callable[[str], None]
"""Takes one message for the user: a line of progress, or a warning."""
Progress = Callable[[int, int], None]
"""Takes the number of utterances that are done, and of those among them that were rejected or are broken."""
PageLanguage = Literal["en", "fa"]
PAGE_LANGUAGES: tuple[PageLanguage, ...] = ("en", "fa")
"""Languages of the pages and reports that the tools write; those of speech are in `text.languages`."""
DEFAULT_NOISE_SCALE = 0.2
"""Standard deviation of the initial noise in synthesis (temperature); training uses 1."""
NO_GUIDANCE = 1.0
"""Guidance scale at which the unconditional prediction cancels out and is not computed."""
Tensor = Any
"""A TensorFlow tensor; `Any`, because TensorFlow ships no types and must not be imported here."""
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Utterance:
    """One clip of a corpus with its text. `audio` is an absolute path; nothing is decoded yet."""

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
class Array:
    """One array of a batch: `axes` are letters of the shape legend, as in "B T M"; "BT M" joins the first two axes.

    `pad` is the value behind the end of an utterance: zero, or the logarithm of the smallest mel energy.
    """

    name: str
    dtype: str
    axes: str
    pad: Literal["zero", "log_floor"] = "zero"

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape, from the size of each letter."""
        return tuple(prod(sizes[letter] for letter in axis) for axis in self.axes.split())


def _array(dtype: str, axes: str, pad: str = "zero") -> dict[str, str]:
    """Metadata that makes a field of `Batch` an array of the batch."""
    return {"dtype": dtype, "axes": axes, "pad": pad}


@dataclass(frozen=True, slots=True)
class Batch:
    """Input of one training step. Arrays are numpy on the host and tensors on a device; shapes are static.

    Rows from `num_real` on only fill the shape: their lengths are 0 and their id is ''. `speaker` and `language` are
    indices into the names of the cache; `reference` is a crop of another clip of the same speaker; `durations`, the
    frames of each token, are there only if training takes them from the cache. Where several devices train, `shares`
    holds the rows of each, in order, on its device; the whole batch then stays where it was assembled.
    """

    position: int
    ids: tuple[str, ...]
    num_real: int
    tokens: Any = field(metadata=_array("int32", "B N"))
    token_lengths: Any = field(metadata=_array("int32", "B"))
    mel: Any = field(metadata=_array("float32", "B T M", pad="log_floor"))
    mel_lengths: Any = field(metadata=_array("int32", "B"))
    speaker: Any = field(metadata=_array("int32", "B"))
    language: Any = field(metadata=_array("int32", "B"))
    reference: Any = field(metadata=_array("float32", "B R M", pad="log_floor"))
    reference_lengths: Any = field(metadata=_array("int32", "B"))
    durations: Any = field(default=None, metadata=_array("int32", "B N"))
    shares: tuple[Batch, ...] = ()

    def arrays(self) -> dict[str, Any]:
        """The arrays or tensors of this batch by name; without `durations` where there are none."""
        named = {array.name: getattr(self, array.name) for array in BATCH}
        return {name: values for name, values in named.items() if values is not None}


BATCH = tuple(Array(declared.name, **declared.metadata) for declared in fields(Batch) if declared.metadata)
"""The arrays of a batch. Host buffers, padding, dataset shapes, transfers and micro-batches are derived from it."""
