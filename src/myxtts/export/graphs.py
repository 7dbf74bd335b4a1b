"""The graphs of synthesis, for any length: reference encoder, text and durations, decoder, vocoder.

Shape legend: N tokens, S states, T frames, R frames of a reference, M mel bands, D width of a speaker embedding, K
latents, H channels of a state, F frequencies, W = T * hop_length samples.

    encode_reference  mel [1, R, M]
                      -> vector [1, D], latents [1, K, D]
    predict           tokens [1, N], language [1], vector, latents, speed []
                      -> means [1, S, M], hidden [1, S, H], pitch [1, S, 2], durations [1, S]
    decode            means, hidden, pitch, durations, vector, latents, noise [1, T', M], num_steps [], guidance []
                      -> mel [1, T, M]
    griffin_lim       mel, turns [T, F]
                      -> samples [W]
    vocoder           mel
                      -> samples [W]

T is the sum of the durations. `noise` is already scaled and has T' frames, T rounded up to an even number; `turns` are
initial phases from 0 to 1. Integers are int32, only `num_steps` is int64.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import tensorflow as tf

from myxtts.export.conversion import Branch, Graph, Loop, Part
from myxtts.export.sound_graphs import GriffinLimGraph, make_vocoder_function
from myxtts.models.decoder import FrameInputs
from myxtts.models.pitch import Pitch
from myxtts.models.reference_encoder import Voice
from myxtts.models.text_encoder import TextStates, count_hidden_channels
from myxtts.models.xtts import SpokenText
from myxtts.synthesis.engine import build_model, build_vocoder
from myxtts.synthesis.loaded_bundle import KnownVocoder, LoadedBundle
from myxtts.types import NO_GUIDANCE, Tensor

ENCODE, PREDICT, DECODE, GRIFFIN_LIM, VOCODER = "encode_reference", "predict", "decode", "griffin_lim", "vocoder"
_FRAME_INPUTS = ("frame_means", "frame_hidden", "frame_position", "frame_pitch", "is_real")


class SynthesisGraphs:
    """Model and vocoder of a bundle, and the graphs that they become."""

    def __init__(self, loaded: LoadedBundle, vocoder: KnownVocoder) -> None:
        self.loaded, self.vocoder = loaded, vocoder
        self.model = build_model(loaded)
        config, spec = loaded.bundle.model_config, loaded.spec
        num_hidden = count_hidden_channels(config)
        self._voice = (
            describe("vector", [1, config.reference_width]),
            describe("latents", [1, config.num_latents, config.reference_width]),
        )
        self._states = (
            describe("means", [1, None, spec.n_mels]),
            describe("hidden", [1, None, num_hidden]),
            describe("pitch", [1, None, 2]),
            describe("durations", [1, None], tf.int32),
        )
        widths = (spec.n_mels, num_hidden, 2, 2, 1)
        self._frames = tuple(
            describe(name, [1, None, width]) for name, width in zip(_FRAME_INPUTS, widths, strict=True)
        )
        self._noise = describe("noise", [1, None, spec.n_mels])
        self._mel = describe("mel", [1, None, spec.n_mels])

    def list_graphs(self) -> list[Graph]:
        """All graphs, in the order of synthesis."""
        return [self.encoder, self.predictor, self.decoder, self.sound]

    @property
    def encoder(self) -> Graph:
        return _wrap(Part(ENCODE, self._encode, (self._mel,), ("vector", "latents")))

    @property
    def predictor(self) -> Graph:
        inputs = (
            describe("tokens", [1, None], tf.int32),
            describe("language", [1], tf.int32),
            *self._voice,
            describe("speed", []),
        )
        return _wrap(Part(PREDICT, self._predict, inputs, tuple(spec.name for spec in self._states)))

    @property
    def decoder(self) -> Graph:
        """The decoder with a loop over its steps; with a guidance of 1 the unconditional prediction is not computed."""
        guidance = describe("guidance", [])
        # Ends in "_end" because a loop gives its last values such names.
        end = describe("noise_end", self._noise.shape)
        begin = Part("expand", self._expand, (*self._states, self._noise, guidance), (*_FRAME_INPUTS, "is_unguided"))
        plain, guided = self._make_steps(guidance)
        steps = Branch("is_unguided", plain, guided) if self.loaded.spec.has_many_speakers else plain
        finish = Part("restore", self._restore, (end, self._states[3]), ("mel",))
        inputs = (*self._states, *self._voice, self._noise, describe("num_steps", [], tf.int64), guidance)
        return Graph(DECODE, (begin, steps, finish), inputs, ("mel",))

    @property
    def sound(self) -> Graph:
        """The vocoder: neural, or Griffin-Lim with a loop over its iterations."""
        if self.vocoder == "neural":
            function = make_vocoder_function(build_vocoder(self.loaded), self.loaded.mel)
            return _wrap(Part(VOCODER, function, (self._mel,), ("samples",)))
        search, hop = self.griffin_lim, self.loaded.mel.hop_length
        turns = describe("turns", [None, search.num_frequencies])
        spectrum, last = (describe(name, [None, 2 * search.num_frequencies]) for name in ("spectrum", "last"))
        magnitude = describe("magnitude", turns.shape)
        fixed = (describe("target", [None, self.loaded.spec.n_mels]), describe("gain", [None, hop]))
        carried = ("spectrum", "last", "magnitude")
        names = (*carried, "target", "gain", "num_iterations")

        def start(mel_BTM: Tensor, turns_TF: Tensor) -> tuple[Tensor, ...]:
            return *search.start(mel_BTM, turns_TF), tf.constant(search.num_iterations, tf.int64)

        stages = (
            Part("start", start, (self._mel, turns), names),
            Loop(
                Part(
                    "iterate",
                    search.iterate,
                    (spectrum, last, magnitude, *fixed, describe("step", [], tf.int32)),
                    tuple(f"{name}_next" for name in carried),
                ),
                "num_iterations",
                carried,
            ),
            Part("end", search.finish, (describe("spectrum_end", spectrum.shape), fixed[1]), ("samples",)),
        )
        return Graph(GRIFFIN_LIM, stages, (self._mel, turns), ("samples",))

    @cached_property
    def griffin_lim(self) -> GriffinLimGraph:
        return GriffinLimGraph(self.loaded.mel)

    def _make_steps(self, guidance: tf.TensorSpec) -> tuple[Loop, Loop]:
        """The loop over the steps of the decoder, without and with guidance."""
        counts = (describe("step", [], tf.int32), describe("num_steps", [], tf.int64))
        inputs = (self._noise, *counts, *self._voice, *self._frames)
        plain = Part("advance", self._advance, inputs, ("noise_next",))
        guided = Part("advance_guided", self._advance_guided, (guidance, *inputs), ("noise_next",))
        return Loop(plain, "num_steps", ("noise",)), Loop(guided, "num_steps", ("noise",))

    def _encode(self, mel_BRM: Tensor) -> tuple[Tensor, Tensor]:
        voice = self.model.encode_voice(mel_BRM, tf.reshape(tf.shape(mel_BRM)[1], [1]))
        return voice.vector_BD, voice.latents_BKD

    def _predict(
        self, tokens_BN: Tensor, language_B: Tensor, vector_BD: Tensor, latents_BKD: Tensor, speed: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        lengths_B = tf.reshape(tf.shape(tokens_BN)[1], [1])
        voice = Voice(vector_BD, latents_BKD)
        spoken = self.model.predict_durations(tokens_BN, lengths_B, language_B, voice, speed=speed)
        pitch_BS2 = tf.stack(spoken.pitch_BS, axis=-1)
        return spoken.states.means_BSM, spoken.states.hidden_BSH, pitch_BS2, spoken.durations_BS

    def _expand(
        self,
        means_BSM: Tensor,
        hidden_BSH: Tensor,
        pitch_BS2: Tensor,
        durations_BS: Tensor,
        noise_BTM: Tensor,
        guidance: Tensor,
    ) -> tuple[Tensor, ...]:
        """Conditioning by frame, and whether there is no guidance."""
        states = TextStates(None, means_BSM, hidden_BSH, durations_BS > 0)
        pitch = Pitch(pitch_BS2[..., 0], pitch_BS2[..., 1])
        spoken = SpokenText(states, durations_BS, None, tf.reduce_sum(durations_BS, axis=1), pitch)
        return *self.model.repeat_states(spoken, tf.shape(noise_BTM)[1]), tf.equal(guidance, NO_GUIDANCE)

    def _advance(
        self,
        noise_BTM: Tensor,
        step: Tensor,
        num_steps: Tensor,
        vector_BD: Tensor,
        latents_BKD: Tensor,
        *inputs: Tensor,
        guidance: Any = NO_GUIDANCE,
    ) -> tuple[Tensor]:
        voice, num_steps = Voice(vector_BD, latents_BKD), tf.cast(num_steps, tf.int32)
        return (self.model.advance(noise_BTM, FrameInputs(*inputs), voice, step, num_steps, guidance),)

    def _advance_guided(self, guidance: Tensor, *tensors: Tensor) -> tuple[Tensor]:
        return self._advance(*tensors, guidance=guidance)

    def _restore(self, end_BTM: Tensor, durations_BS: Tensor) -> tuple[Tensor]:
        lengths_B = tf.reduce_sum(durations_BS, axis=1)
        return (self.model.finish_mel(end_BTM[:, : lengths_B[0]], lengths_B),)


def describe(name: str, shape: Any, dtype: tf.DType = tf.float32) -> tf.TensorSpec:
    return tf.TensorSpec(shape, dtype, name)


def _wrap(part: Part) -> Graph:
    return Graph(part.name, (part,), part.inputs, part.outputs)
