"""Fixed utterances for validation, samples and calibration: the same in every process and after a resume.

Shape legend: B utterances, N tokens, T frames, M mel bands, R frames of the reference.
"""

# ruff: noqa: N815 - fields carry the shape of their arrays

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.corpus_file import is_prepared, open_corpus
from myxtts.corpus.rejections import AudioProblem
from myxtts.features.audio import load_recording
from myxtts.features.definition import AudioDefinition
from myxtts.pipeline.open import open_batches
from myxtts.pipeline.splits import choose_corpus
from myxtts.runtime.hardware import detect_hardware
from myxtts.training.micro_batches import MicroBatch
from myxtts.types import Batch, Split, Utterance

NUM_UTTERANCES = 16
"""Utterances of a validation."""
_CANDIDATES_PER_UTTERANCE = 4
"""Utterances loaded for each one that is kept, so that there are enough short ones."""
_LONGEST_S = 6.0
"""Utterances up to this length are preferred: longer ones take more time and memory."""
_ROUND_FRAMES, _ROUND_TOKENS = 16, 8
"""Padding of frames and tokens to these multiples."""
_ON_THIS_HOST: dict[str, Any] = {
    "data.num_shapes": 1,
    "data.frame_budget": None,
    "data.data_service": None,
    "data.data_gpu": None,
    "data.model_gpu": None,
    "training.multi_gpu": False,
    "training.visible_gpus": None,
}
"""Settings for one local batch of one shape, which leaves utterances in the order of their hashes: the first ones are a
random sample of all."""


@dataclass(frozen=True, slots=True)
class FixedUtterance:
    """One utterance without padding; `reference_RM` has no frames where there is no other clip of the speaker."""

    id: str
    tokens_N: NDArray[np.int32]
    mel_TM: NDArray[np.float32]
    speaker: int
    language: int
    reference_RM: NDArray[np.float32]

    @property
    def num_frames(self) -> int:
        return len(self.mel_TM)


def load_fixed_utterances(
    config: XTTSConfig, num_utterances: int = NUM_UTTERANCES, split: Split = "val"
) -> list[FixedUtterance]:
    """Loads the same utterances at every call, up to 6 s where possible, ordered by the hashes of their ids.

    Raises DataError where the split is empty. Every process of a cluster gets all of them, so that all scores agree.
    """
    num_candidates = num_utterances * _CANDIDATES_PER_UTTERANCE
    alone = config.model_copy(update=_ON_THIS_HOST | {"data.batch_size": num_candidates})
    hardware = replace(detect_hardware(), gpus=(), cluster=None)
    with open_batches(alone, split=split, steps=1, framework="numpy", hardware=hardware) as batches:
        candidates = [utterance for batch in batches for utterance in _copy_utterances(batch)]
    longest_frames = _LONGEST_S * config.data.sample_rate / config.data.hop_length
    # A stable sort: utterances within the limit keep their order; longer ones follow, shortest first.
    candidates.sort(key=lambda utterance: max(0.0, utterance.num_frames - longest_frames))
    return candidates[:num_utterances]


def choose_sentences(utterances: Sequence[FixedUtterance], num_sentences: int) -> list[FixedUtterance]:
    """Utterances that cover as many languages, then speakers, as possible; the first of each."""
    chosen: list[FixedUtterance] = []
    rest = list(utterances)
    while rest and len(chosen) < num_sentences:
        languages = [utterance.language for utterance in chosen]
        voices = [(utterance.language, utterance.speaker) for utterance in chosen]
        best = min(rest, key=lambda one: (languages.count(one.language), voices.count((one.language, one.speaker))))
        chosen.append(best)
        rest = [utterance for utterance in rest if utterance is not best]
    return chosen


def pack_part(
    utterances: Sequence[FixedUtterance], num_rows: int | None = None, among: Sequence[FixedUtterance] = ()
) -> MicroBatch:
    """Packs utterances into a micro-batch, padded to multiples of a few frames and tokens beyond the longest.

    With `among` it is padded to the longest of those as well, so that all micro-batches of a set have one shape. Rows
    beyond the utterances are padding.
    """
    num_rows, among = num_rows or len(utterances), (*utterances, *among)
    assert 0 < len(utterances) <= num_rows, f"{len(utterances)} utterances for {num_rows} rows"
    n_mels = utterances[0].mel_TM.shape[1]
    num_frames = _round_up(max(utterance.num_frames for utterance in among), _ROUND_FRAMES)
    num_tokens = _round_up(max(len(utterance.tokens_N) for utterance in among), _ROUND_TOKENS)
    num_reference = max(1, *(len(utterance.reference_RM) for utterance in among))
    arrays: dict[str, NDArray[Any]] = {
        "tokens": np.zeros((num_rows, num_tokens), np.int32),
        "mel": np.zeros((num_rows, num_frames, n_mels), np.float32),
        "reference": np.zeros((num_rows, num_reference, n_mels), np.float32),
    }
    names = ("token_lengths", "mel_lengths", "reference_lengths", "speaker", "language")
    arrays |= {name: np.zeros(num_rows, np.int32) for name in names}
    for row, one in enumerate(utterances):
        for name, lengths, values in (
            ("tokens", "token_lengths", one.tokens_N),
            ("mel", "mel_lengths", one.mel_TM),
            ("reference", "reference_lengths", one.reference_RM),
        ):
            arrays[name][row, : len(values)] = values
            arrays[lengths][row] = len(values)
        arrays["speaker"][row], arrays["language"][row] = one.speaker, one.language
    with tf.device("/CPU:0"):
        return {name: tf.constant(array) for name, array in arrays.items()}


def find_in_corpus(
    config: XTTSConfig, utterances: Sequence[FixedUtterance], split: Split = "val"
) -> dict[str, Utterance]:
    """The utterances in the corpus, by id; none where it is missing, because a store can be used without it."""
    if config.data.train_data is None:
        return {}
    path = choose_corpus(config.data, split)
    if not is_prepared(path):
        return {}
    wanted = {utterance.id for utterance in utterances}
    return {one.id: one for one in open_corpus(path).utterances() if one.id in wanted}


def load_recorded(config: XTTSConfig, utterances: Iterable[Utterance]) -> dict[str, NDArray[np.float32]]:
    """Samples of the recordings by id, at the sample rate of the model; files that cannot be read are left out."""
    definition, limits = AudioDefinition.from_config(config.data), AudioLimits.from_config(config.data)
    recorded = {}
    for one in utterances:
        with suppress(AudioProblem):
            recorded[one.id] = load_recording(one.audio, definition, limits).wave.samples
    return recorded


def _copy_utterances(batch: Batch) -> list[FixedUtterance]:
    """Copies the rows of a batch without their padding: the buffer of a batch is reused."""
    names = ("tokens", "token_lengths", "mel", "mel_lengths", "speaker", "language", "reference", "reference_lengths")
    arrays = {name: np.asarray(getattr(batch, name)) for name in names}
    return [
        FixedUtterance(
            batch.ids[row],
            arrays["tokens"][row, : arrays["token_lengths"][row]].copy(),
            arrays["mel"][row, : arrays["mel_lengths"][row]].astype(np.float32),
            int(arrays["speaker"][row]),
            int(arrays["language"][row]),
            arrays["reference"][row, : arrays["reference_lengths"][row]].astype(np.float32),
        )
        for row in range(batch.num_real)
    ]


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step
