"""Synthesises fixed validation sentences during training: samples/step-000100/01-en.wav with mel and alignment plots.

To compare with, the folder `recorded` holds the recordings, and `real` their copy synthesis (same vocoder). A failure
here never stops a training. Memory use is constant: one graph of one shape, and no plot is kept.
Shape legend: B utterances, N tokens, S states, T frames, M mel bands.
"""

# ruff: noqa: N815 - fields carry the shape of their tensors

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.config.choices import DEFAULT_NUM_STEPS
from myxtts.errors import MyXTTSError, warn_user
from myxtts.models.alignment import score_states
from myxtts.models.text_encoder import STATES_PER_TOKEN
from myxtts.models.xtts import XTTS
from myxtts.training.micro_batches import MicroBatch
from myxtts.training.sample_files import (
    REAL_FOLDER_NAME,
    RECORDED_FOLDER_NAME,
    Sample,
    describe_failure,
    draw_alignment,
    draw_mel,
    name_step_folder,
    write_samples,
)
from myxtts.training.voice.validation_set import FixedUtterance, pack_part
from myxtts.types import Say, Tensor

MakeSound = Callable[[NDArray[np.floating]], NDArray[np.float32]]
"""Vocoder: turns a log-mel spectrogram [T, M] into samples; Griffin-Lim or a neural one."""

_SPARE_SHARE = 1.25
"""Longest synthesised sentence, in multiples of the longest recording; the rest is cut off."""
_MAX_NAME_LENGTH = 16
SAMPLE_FAILURES = (OSError, RuntimeError, ValueError, ArithmeticError, MemoryError, MyXTTSError, tf.errors.OpError)
"""Errors of disk, device, audio encoder, or of arithmetic with a model that is hardly trained: they become warnings."""


class _Synthesized(NamedTuple):
    """Log-mels with lengths, soft alignment of the recording by token, and the token of each frame."""

    mel_BTM: Tensor
    lengths_B: Tensor
    weights_BTN: Tensor
    token_BT: Tensor


class SampleWriter(ABC):
    """Writes the samples of a step, and with the first ones those to compare with. A failure becomes a warning."""

    def __init__(self, samples_path: Path, sample_rate_hz: int, warn: Say) -> None:
        self._samples_path, self._rate_hz, self._warn = samples_path, sample_rate_hz, warn
        self._has_others = False

    @abstractmethod
    def _render(self, step: int) -> list[Sample]:
        """Synthesises the samples with the present weights."""

    @abstractmethod
    def _render_others(self) -> dict[str, list[Sample]]:
        """The samples to compare with, by folder: the same for all steps."""

    def write(self, step: int) -> list[Sample]:
        """Synthesises and writes the samples of a step, and returns them."""
        try:
            if not self._has_others:
                for folder_name, others in self._render_others().items():
                    write_samples(self._samples_path / folder_name, others, self._rate_hz)
                self._has_others = True
            samples = self._render(step)
            write_samples(self._samples_path / name_step_folder(step), samples, self._rate_hz)
        except SAMPLE_FAILURES as error:
            self._warn(f"The samples of step {step} could not be made: {describe_failure(error)}. Training continues.")
            return []
        return samples


class VoiceSamples(SampleWriter):
    """Synthesises the texts of the utterances in the voices of their references.

    `texts` are transcripts by id, `recorded` the samples of the recordings by id, which may be missing.
    """

    def __init__(
        self,
        model: XTTS,
        utterances: Sequence[FixedUtterance],
        samples_path: Path,
        make_sound: MakeSound,
        sample_rate_hz: int,
        *,
        texts: Mapping[str, str] | None = None,
        recorded: Mapping[str, NDArray[np.float32]] | None = None,
        warn: Say = warn_user,
    ) -> None:
        assert utterances, "there is nothing to synthesise"
        super().__init__(samples_path, sample_rate_hz, warn)
        self._model, self._utterances = model, list(utterances)
        self._make_sound, self._texts, self._recorded = make_sound, texts or {}, recorded or {}
        self._names = [self._name_sample(number, one) for number, one in enumerate(self._utterances, start=1)]
        self._part = pack_part(self._utterances)
        self._run_graph: Any = tf.function(self._synthesize, autograph=False)

    @property
    def num_traces(self) -> int:
        return int(self._run_graph.experimental_get_tracing_count())

    def _synthesize(self, part: MicroBatch) -> _Synthesized:
        """Log-mels with predicted durations, and the alignment of the recordings for the plots.

        The soft alignment is the softmax over states of the frame scores, added up by token; the hard one is the
        Viterbi path.
        """
        model = self._model
        voice = model.encode_voice(part["reference"], part["reference_lengths"])
        num_frames = int(_SPARE_SHARE * part["mel"].shape[1])
        mel_BTM, lengths_B, _ = model.synthesize_mel(
            part["tokens"],
            part["token_lengths"],
            part["language"],
            voice,
            num_frames=num_frames,
            num_steps=DEFAULT_NUM_STEPS,
            seed=0,
        )
        states = model.encode_text(part["tokens"], part["token_lengths"], part["language"], voice)
        real_BTM = model.normalize_mel(part["mel"])
        alignment = model.align_states(states, real_BTM, part["mel_lengths"])
        scores_BTS = tf.where(states.is_state_BS[:, None], score_states(real_BTM, states.means_BSM), -float("inf"))
        weights_BTS = tf.nn.softmax(scores_BTS)
        weights_BTN = weights_BTS[..., 0::STATES_PER_TOKEN] + weights_BTS[..., 1::STATES_PER_TOKEN]
        return _Synthesized(mel_BTM, lengths_B, weights_BTN, alignment.state_BT // STATES_PER_TOKEN)

    def _render(self, step: int) -> list[Sample]:
        """Vocodes and draws each sentence; one that fails is left out with a warning."""
        made = _Synthesized(*(tensor.numpy() for tensor in self._run_graph(self._part)))
        samples = []
        frame_rate_hz = self._model.spec.frame_rate_hz
        for row, (name, utterance) in enumerate(zip(self._names, self._utterances, strict=True)):
            mel_TM = made.mel_BTM[row, : made.lengths_B[row]]
            weights_TN = made.weights_BTN[row, : utterance.num_frames, : len(utterance.tokens_N)]
            try:
                if len(mel_TM) == 0 or not np.isfinite(mel_TM).all():
                    raise ValueError("the model gave no spectrogram, or one that is not finite")
                samples.append(
                    Sample(
                        name,
                        self._make_sound(mel_TM),
                        draw_mel(mel_TM, frame_rate_hz),
                        draw_alignment(weights_TN, made.token_BT[row, : utterance.num_frames], frame_rate_hz),
                        self._describe(utterance),
                    )
                )
            except SAMPLE_FAILURES as error:
                reason = describe_failure(error)
                self._warn(f"Sample {name} of step {step} could not be made: {reason}. Training continues.")
        return samples

    def _render_others(self) -> dict[str, list[Sample]]:
        """The recordings, and their copy synthesis: the recorded log-mels through the same vocoder."""
        copies, recorded = [], []
        for name, one in zip(self._names, self._utterances, strict=True):
            picture, about = draw_mel(one.mel_TM, self._model.spec.frame_rate_hz), self._describe(one)
            copies.append(Sample(name, self._make_sound(one.mel_TM), picture, b"", about))
            if one.id in self._recorded:
                recorded.append(Sample(name, self._recorded[one.id], picture, b"", about))
        return {REAL_FOLDER_NAME: copies, RECORDED_FOLDER_NAME: recorded}

    def _describe(self, utterance: FixedUtterance) -> dict[str, str]:
        spec = self._model.spec
        return {
            "id": utterance.id,
            "text": self._texts.get(utterance.id, ""),
            "language": spec.languages[utterance.language],
            "speaker": spec.speakers[utterance.speaker],
        }

    def _name_sample(self, number: int, utterance: FixedUtterance) -> str:
        """Number and language, such as `01-en`, in characters that are safe in file names."""
        language = self._model.spec.languages[utterance.language]
        plain = "".join(letter for letter in language if letter.isascii() and (letter.isalnum() or letter == "-"))
        return f"{number:02}-{plain[:_MAX_NAME_LENGTH] or 'any'}"
