"""What every loader does with features once it has them: putting them into the arrays of a batch.

Shape legend: B utterances, N tokens, T frames, M mel bands, R frames of the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from myxtts.pipeline.buffers import HostBatch
from myxtts.pipeline.order import NO_ROW, BatchPlan, hash_numbers

_CROP_SALT = 4

ReadMel = Callable[[int], NDArray[Any]]
"""Gives the spectrogram [T, M] of a row, as float16 or float32."""


ReadTokens = Callable[[NDArray[np.integer[Any]]], Sequence[NDArray[np.int32]]]
"""Gives the tokens of many rows."""


class UtteranceTable(Protocol):
    """Utterances by row: a feature store, or the recordings of a corpus."""

    @property
    def columns(self) -> dict[str, NDArray[Any]]: ...
    def id_of(self, row: int) -> str: ...


class BatchAssembler:
    """Fills the arrays of a batch, those behind its last utterance included: buffers are used again and again."""

    def __init__(
        self,
        table: UtteranceTable,
        read_tokens: ReadTokens,
        num_reference_frames: int,
        seed: int,
        log_floor: float,
    ) -> None:
        self._table, self._read_tokens = table, read_tokens
        self._num_reference_frames, self._seed = num_reference_frames, seed
        self.padding = float(np.log(log_floor))

    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]:
        return tuple("" if row == NO_ROW else self._table.id_of(int(row)) for row in plan.rows)

    def fill_labels(self, batch: HostBatch, plan: BatchPlan) -> None:
        """Tokens, speakers and languages."""
        rows = plan.rows[: plan.num_real]
        batch.tokens[:] = 0
        batch.token_lengths[len(rows) :] = 0
        for place, tokens in enumerate(self._read_tokens(rows)):
            batch.tokens[place, : len(tokens)] = tokens
            batch.token_lengths[place] = len(tokens)
        for name in ("speaker", "language"):
            values = getattr(batch, name)
            values[: len(rows)] = self._table.columns[name][rows]
            values[len(rows) :] = 0

    def fill_mels(self, batch: HostBatch, plan: BatchPlan, read_mel: ReadMel) -> None:
        for place, row in enumerate(plan.rows):
            mel_TM = read_mel(int(row)) if row != NO_ROW else batch.mel[place, :0]
            length = len(mel_TM)
            batch.mel[place, :length] = mel_TM
            batch.mel[place, length:] = self.padding
            batch.mel_lengths[place] = length

    def fill_references(self, batch: HostBatch, plan: BatchPlan, read_mel: ReadMel) -> None:
        """A stretch of each reference clip."""
        hashes = hash_crops(plan, self._seed)
        for place, row in enumerate(plan.references):
            if row == NO_ROW:
                batch.reference[place] = self.padding
                batch.reference_lengths[place] = 0
                continue
            mel_TM = read_mel(int(row))
            start, length = find_crop(len(mel_TM), self._num_reference_frames, int(hashes[place]))
            batch.reference[place, :length] = mel_TM[start : start + length]
            batch.reference[place, length:] = self.padding
            batch.reference_lengths[place] = length


def hash_crops(plan: BatchPlan, seed: int) -> NDArray[np.uint64]:
    """For each utterance a number that decides where its reference starts: of itself, the seed and the epoch."""
    return hash_numbers(plan.rows if plan.keys is None else plan.keys, seed, plan.epoch, _CROP_SALT)


def find_crop(num_frames: int, num_reference_frames: int, crop_hash: int) -> tuple[int, int]:
    """First frame and number of frames of a reference: all of a clip that is shorter than asked for."""
    num_spare = max(0, num_frames - num_reference_frames)
    return crop_hash % (num_spare + 1), min(num_frames, num_reference_frames)
