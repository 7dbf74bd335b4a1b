"""XTTS acoustic model: text and a reference log-mel in, log-mel out; voice cloning without fine-tuning.

Text encoder, speaker encoder, monotonic alignment search (training), prosody predictor and flow-matching decoder.
Synthesis has two phases: `predict_durations` (text to states, durations and F0) and `decode` (Euler steps of the flow).
Shapes are static, randomness comes in as seeds. Log-mels are natural logarithms, normalised inside as the spec says.

Shape legend: B utterances, N tokens, S states (2N), T frames, M mel bands, R reference frames, K latents, D voice.
"""

# ruff: noqa: N815 - fields carry the shape of their tensors

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from myxtts.config.choices import DEFAULT_NUM_STEPS
from myxtts.config.model import ModelConfig
from myxtts.models.alignment import (
    Alignment,
    expand_durations,
    score_diagonal,
    score_states,
    search_alignment,
    split_durations,
    sum_by_token,
)
from myxtts.models.decoder import STACKED_FRAMES, FlowDecoder, FrameInputs, PhoneClassifier, make_frame_inputs
from myxtts.models.layers import count_steps, draw_normal, iterate_weights, mask_steps
from myxtts.models.modulation import NUM_TAPS, filter_frames, make_neutral_taps
from myxtts.models.pitch import Pitch, PitchTracker, average_by_state
from myxtts.models.prosody import Prosody, ProsodyPredictor, compute_frames, round_frames
from myxtts.models.reference_encoder import ReferenceEncoder, SpeakerClassifier, Voice, drop_voice
from myxtts.models.spec import ModelSpec
from myxtts.models.text_encoder import TextEncoder, TextStates
from myxtts.types import DEFAULT_NOISE_SCALE, NO_GUIDANCE, Tensor


class SpokenText(NamedTuple):
    """An encoded text with durations and F0: what `decode` needs beside the voice."""

    states: TextStates
    durations_BS: Tensor
    durations_BN: Tensor
    mel_lengths_B: Tensor
    pitch_BS: Pitch


class XTTS(keras.Model):  # type: ignore[misc]
    """The acoustic model, a Keras model: text and a reference in, log-mels out.

    All weights are created in the constructor.

    Make it in the scope of the strategy, under the dtype policy to compute in. `length_factor` and `modulation_taps`
    are calibrated, not trained. With `is_search_chunked` alignments are searched in chunks of frames: faster on GPUs,
    with the same result.
    """

    is_search_chunked: bool = False

    def __init__(self, config: ModelConfig, spec: ModelSpec) -> None:
        super().__init__()
        self._config, self._spec = config, spec
        self._pitch_tracker = PitchTracker(spec.band_hz)
        self.reference_encoder = ReferenceEncoder(config, spec.n_mels)
        self.text_encoder = TextEncoder(config, spec)
        self.prosody_predictor = ProsodyPredictor(config)
        self.decoder = FlowDecoder(config, spec.n_mels)
        self.speaker_classifier = (
            SpeakerClassifier(config.reference_width, len(spec.speakers)) if spec.has_many_speakers else None
        )
        self.phone_classifier = PhoneClassifier(spec.n_mels, spec.factor_sizes[0]) if config.phone_classifier else None
        self.length_factor = self.add_weight((), "ones", dtype="float32", trainable=False, name="length_factor")
        self.modulation_taps = self.add_weight(
            (NUM_TAPS,), _fill_neutral, dtype="float32", trainable=False, name="modulation_taps"
        )
        self.built = True

    @property
    def config(self) -> ModelConfig:
        return self._config

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    @property
    def text_side(self) -> tuple[Any, ...]:
        """The layers that learn from texts alone, which training freezes when they begin to overfit."""
        return self.text_encoder, self.prosody_predictor

    def named_weights(self) -> dict[str, Any]:
        """All weights by names that depend on the configuration alone."""
        return dict(iterate_weights(self))

    def set_length_factor(self, factor: float) -> None:
        """Sets the factor of predicted durations; see `calibrate_length_factor`."""
        self.length_factor.assign(factor)

    def set_modulation_taps(self, taps_K: Tensor) -> None:
        """Sets the FIR filter over time of synthesised log-mels; see `design_taps`."""
        self.modulation_taps.assign(taps_K)

    def normalize_mel(self, mel_BTM: Tensor) -> Tensor:
        return (tf.cast(mel_BTM, tf.float32) - tf.constant(self._spec.mel_mean)) / self._spec.mel_deviation

    def restore_mel(self, normalised_BTM: Tensor) -> Tensor:
        return normalised_BTM * self._spec.mel_deviation + tf.constant(self._spec.mel_mean)

    def encode_voice(self, reference_BRM: Tensor, reference_lengths_B: Tensor, seed_2: Tensor = None) -> Voice:
        """Speaker embedding and latents of each reference; zeros for rows without frames."""
        voice: Voice = self.reference_encoder(self.normalize_mel(reference_BRM), reference_lengths_B, seed_2)
        return voice

    def encode_text(
        self, tokens_BN: Tensor, token_lengths_B: Tensor, language_B: Tensor, voice: Voice, seed_2: Tensor = None
    ) -> TextStates:
        """Encodes tokens, conditioned on language and voice; without a seed there is no dropout."""
        states: TextStates = self.text_encoder(tokens_BN, token_lengths_B, language_B, voice, seed_2)
        return states

    def encode_part(self, part: Mapping[str, Tensor]) -> tuple[Voice, TextStates]:
        """Voice and encoded text of a micro-batch, without dropout."""
        voice = self.encode_voice(part["reference"], part["reference_lengths"])
        return voice, self.encode_text(part["tokens"], part["token_lengths"], part["language"], voice)

    def align_states(
        self,
        states: TextStates,
        mel_BTM: Tensor,
        mel_lengths_B: Tensor,
        *,
        diagonal_weight: Tensor = None,
        durations_BN: Tensor = None,
        is_search_compiled: bool = False,
    ) -> Alignment:
        """Aligns normalised frames to states; with `durations_BN` only the split of each token is searched."""
        scores_BTS = score_states(mel_BTM, states.means_BSM)
        if durations_BN is not None:
            return split_durations(durations_BN, scores_BTS, states.is_state_BS, mel_lengths_B)
        if diagonal_weight is not None:
            scores_BTS += diagonal_weight * score_diagonal(states.is_state_BS, mel_lengths_B, mel_BTM.shape[1])
        return search_alignment(
            scores_BTS,
            states.is_state_BS,
            mel_lengths_B,
            is_chunked=self.is_search_chunked,
            is_compiled=is_search_compiled,
        )

    def align(self, part: Mapping[str, Tensor], *, is_search_compiled: bool = False) -> Alignment:
        """The best alignment of a micro-batch; its `token_durations_BN` are what a feature cache keeps."""
        _, states = self.encode_part(part)
        mel_BTM = self.normalize_mel(part["mel"])
        return self.align_states(states, mel_BTM, part["mel_lengths"], is_search_compiled=is_search_compiled)

    def track_pitch(self, mel_BTM: Tensor, mel_lengths_B: Tensor) -> Pitch:
        """F0 and voicing of each frame of the recording."""
        return self._pitch_tracker.measure(mel_BTM, mel_lengths_B)

    def measure_pitch(self, mel_BTM: Tensor, mel_lengths_B: Tensor, alignment: Alignment) -> Pitch:
        """F0 and voicing of each state in the recording."""
        frames = self.track_pitch(mel_BTM, mel_lengths_B)
        return average_by_state(frames, alignment.state_BT, alignment.durations_BS.shape[1], mel_lengths_B)

    def predict_prosody(self, states: TextStates, token_lengths_B: Tensor, seed_2: Tensor = None) -> Prosody:
        """Log durations, F0 and voicing of each state."""
        is_real_BN1 = mask_steps(token_lengths_B, count_steps(states.features_BNW))
        prosody: Prosody = self.prosody_predictor(states.features_BNW, is_real_BN1, seed_2)
        return prosody

    def predict_durations(
        self, tokens_BN: Tensor, token_lengths_B: Tensor, language_B: Tensor, voice: Voice, *, speed: Tensor = 1.0
    ) -> SpokenText:
        """First phase of synthesis: text encoding, durations and F0."""
        return self.time_text(self.encode_text(tokens_BN, token_lengths_B, language_B, voice), token_lengths_B, speed)

    def time_text(self, states: TextStates, token_lengths_B: Tensor, speed: Tensor = 1.0) -> SpokenText:
        """Predicted durations and F0 of an encoded text."""
        prosody = self.predict_prosody(states, token_lengths_B)
        factor = tf.convert_to_tensor(self.length_factor) / speed
        durations_BS = round_frames(compute_frames(prosody.log_frames_BS, states.is_state_BS, factor))
        num_frames_B = tf.reduce_sum(durations_BS, axis=1)
        return SpokenText(states, durations_BS, sum_by_token(durations_BS), num_frames_B, prosody.pitch)

    def decode(
        self,
        spoken: SpokenText,
        voice: Voice,
        *,
        num_frames: int,
        num_steps: int = DEFAULT_NUM_STEPS,
        noise_scale: Tensor = DEFAULT_NOISE_SCALE,
        guidance: float = NO_GUIDANCE,
        seed: int | Tensor = 0,
        is_filtered: bool = True,
    ) -> Tensor:
        """Second phase: the log-mel [B, num_frames, M] by `num_steps` Euler steps from scaled noise.

        Frames behind an utterance's length are undefined; longer utterances are cut off. `guidance` is the scale of
        classifier-free guidance, `is_filtered` the modulation filter.
        """
        padded_frames = -(-num_frames // STACKED_FRAMES) * STACKED_FRAMES
        inputs = self.repeat_states(spoken, padded_frames)
        # Drawn with time as the first axis, so that the noise of a frame does not depend on the padding of the batch.
        seed_2 = tf.stack([tf.cast(seed, tf.int32), 0])
        noise_TBM = draw_normal(seed_2, [padded_frames, *inputs.means_BTM.shape[::2]])
        x_BTM = tf.transpose(noise_TBM, [1, 0, 2]) * noise_scale

        def advance(step: Tensor, x_BTM: Tensor) -> tuple[Tensor, Tensor]:
            return step + 1, self.advance(x_BTM, inputs, voice, step, num_steps, guidance)

        # Without `maximum_iterations`: a second condition would hide the number of iterations from XLA.
        _, x_BTM = tf.while_loop(lambda step, _: step < num_steps, advance, (tf.constant(0), x_BTM))
        lengths_B = tf.minimum(spoken.mel_lengths_B, num_frames)
        return self.finish_mel((x_BTM * inputs.is_real_BT1)[:, :num_frames], lengths_B, is_filtered=is_filtered)

    def advance(
        self,
        x_BTM: Tensor,
        inputs: FrameInputs,
        voice: Voice,
        step: Tensor,
        num_steps: int | Tensor,
        guidance: float | Tensor = NO_GUIDANCE,
    ) -> Tensor:
        """One Euler step of the flow, from time `step` / `num_steps`. A `guidance` of 1 must be a Python number."""
        time = tf.cast(step, tf.float32) / tf.cast(num_steps, tf.float32)
        clean_BTM = self._predict_clean(x_BTM, inputs, time, voice, guidance)
        return x_BTM + (clean_BTM - x_BTM) / tf.cast(num_steps - step, tf.float32)

    def finish_mel(self, x_BTM: Tensor, lengths_B: Tensor, *, is_filtered: bool = True) -> Tensor:
        """The log-mel of the end of the flow, with the modulation filter."""
        if is_filtered:
            x_BTM = filter_frames(x_BTM, lengths_B, tf.convert_to_tensor(self.modulation_taps))
        return self.restore_mel(x_BTM)

    def synthesize_mel(
        self,
        tokens_BN: Tensor,
        token_lengths_B: Tensor,
        language_B: Tensor,
        voice: Voice,
        *,
        num_frames: int,
        speed: Tensor = 1.0,
        **options: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Both phases: the log-mel, its lengths in frames (at most `num_frames`), durations of tokens.

        `options` are those of `decode`.
        """
        spoken = self.predict_durations(tokens_BN, token_lengths_B, language_B, voice, speed=speed)
        mel_BTM = self.decode(spoken, voice, num_frames=num_frames, **options)
        return mel_BTM, tf.minimum(spoken.mel_lengths_B, num_frames), spoken.durations_BN

    def repeat_states(self, spoken: SpokenText, num_frames: int | Tensor) -> FrameInputs:
        """Repeats the states over their frames, as input of the decoder (length regulator)."""
        num_rows = spoken.durations_BS.shape[0]
        return make_frame_inputs(
            spoken.states,
            spoken.pitch_BS,
            spoken.durations_BS,
            expand_durations(spoken.durations_BS, num_frames),
            tf.tile(tf.range(num_frames)[None], [num_rows, 1]),
            mask_steps(spoken.mel_lengths_B, num_frames),
        )

    def _predict_clean(
        self, x_BTM: Tensor, inputs: FrameInputs, time: Tensor, voice: Voice, guidance: float | Tensor
    ) -> Tensor:
        """Clean spectrogram predicted by the decoder, with classifier-free guidance where the scale is not 1.

        That is the unconditional prediction plus `guidance` times the difference to the conditional one.
        """
        time_B = tf.fill([x_BTM.shape[0]], time)
        clean_BTM = self.decoder(x_BTM, inputs, time_B, voice)
        is_unguided = not tf.is_tensor(guidance) and guidance == NO_GUIDANCE
        if is_unguided or not self._spec.has_many_speakers:
            return clean_BTM
        nobody = drop_voice(voice, tf.zeros_like(time_B))
        without_BTM = self.decoder(x_BTM, inputs, time_B, nobody)
        return without_BTM + guidance * (clean_BTM - without_BTM)


def _fill_neutral(shape: tuple[int, ...], dtype: Any = None) -> Tensor:
    return tf.constant(make_neutral_taps(), dtype, shape)
