"""Loss of the voice model: conditional flow matching, Gaussian prior, durations, F0, speakers and phones.

Weights and labels of the terms are in `training.terms`. All randomness follows from the seed, the step and the
utterances of the micro-batch, so that a resumed run is the same run, and no two replicas or micro-batches draw alike.
Shape legend: B utterances, N tokens, S states, T frames, L frames of a crop, M mel bands.
"""

# ruff: noqa: N815 - fields carry the shape of their tensors

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from myxtts.models.alignment import Alignment
from myxtts.models.decoder import LEAST_REMAINING_TIME, make_frame_inputs
from myxtts.models.layers import draw_normal, draw_uniform, fold_seed, fold_seeds
from myxtts.models.pitch import Pitch
from myxtts.models.prosody import Prosody, compute_frames
from myxtts.models.reference_encoder import Voice, drop_voice
from myxtts.models.text_encoder import STATES_PER_TOKEN, TextStates, unpack_factors
from myxtts.models.xtts import XTTS
from myxtts.training.micro_batches import MicroBatch
from myxtts.training.terms import VOICE, add_weighted
from myxtts.training.voice.augment import VocalTractPerturbation
from myxtts.types import Tensor

CROP_FRAMES = 128
"""Crop of the flow loss in validation, whatever `training.crop_frames` is: runs stay comparable."""
DIAGONAL_STEPS = 400
"""Steps over which the diagonal prior of the alignment fades out: by then the means of the states differ enough."""
_TIME_MEAN, _TIME_DEVIATION = -0.2, 1.1
"""Mean and deviation of logit(t): most samples are in the middle of the path, a little nearer to the noise (t = 0)."""
_HASH_FACTOR = 1_000_003
"""A large prime: multiples of it, wrapping around in int32, are the weights of the token positions."""


class _Seeds(NamedTuple):
    """Seeds of the random choices, numbered by position; those of dropout are None when not training."""

    crop: Tensor
    time: Tensor
    noise: Tensor
    guidance: Tensor
    reference: Tensor
    text: Tensor
    prosody: Tensor
    warp: Tensor


class _Decoded(NamedTuple):
    """A random crop of each utterance: the recording, what the decoder predicts of it from noise, and its symbols."""

    clean_BLM: Tensor
    predicted_BLM: Tensor
    time_B: Tensor
    symbol_BL: Tensor
    is_real_BL: Tensor


class MeasuredPart(NamedTuple):
    """Voice, encoded text, alignment and F0 of a micro-batch, as its loss was computed from them."""

    voice: Voice
    states: TextStates
    alignment: Alignment
    pitch_BS: Pitch


class VoiceLoss:
    """The loss of XTTS for a train step.

    `diagonal_steps` of 0 leave the diagonal prior of the alignment out. With `use_stored_durations` a micro-batch
    brings `durations`, frames by token [B, N], and alignments are not searched. While training, mel frequencies are
    warped by up to `voice_augmentation`.
    """

    def __init__(
        self,
        seed: int,
        *,
        crop_frames: int = CROP_FRAMES,
        diagonal_steps: int = DIAGONAL_STEPS,
        use_stored_durations: bool = False,
        voice_augmentation: float = 0.0,
    ) -> None:
        assert crop_frames % 2 == 0, f"a crop of {crop_frames} frames does not make pairs"
        self._seed, self._crop_frames, self._diagonal_steps = seed, crop_frames, diagonal_steps
        self._use_stored_durations, self._voice_augmentation = use_stored_durations, voice_augmentation

    def __call__(self, model: XTTS, part: MicroBatch, training: bool, step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the weighted loss and its terms, each as a sum over the rows that have it.

        A step divides all sums by the number of all real rows, so that an utterance weighs the same whatever is in the
        batch beside it; `average_terms` makes the figures that are shown comparable with those of validation.
        """
        loss, sums, _ = self.measure(model, part, training, step)
        return loss, sums

    def measure(
        self, model: XTTS, part: MicroBatch, training: bool, step: Tensor
    ) -> tuple[Tensor, dict[str, Tensor], MeasuredPart]:
        """The loss and its terms, and what they were computed from."""
        seeds = _derive_seeds(self._seed, step, part, training)
        has_speaker_B, is_warped = part["reference_lengths"] > 0, training and self._voice_augmentation > 0
        if is_warped:
            part, is_warped_B = VocalTractPerturbation(model.spec.band_hz, self._voice_augmentation).warp(
                part, seeds.warp
            )
            has_speaker_B &= ~is_warped_B
        voice = model.encode_voice(part["reference"], part["reference_lengths"], seeds.reference)
        sums, measured = self._sum_aligned(model, part, voice, step, seeds)
        if model.speaker_classifier is not None:
            is_counted_B = tf.cast((part["mel_lengths"] > 0) & has_speaker_B, tf.float32)
            loss_B, is_right_B = model.speaker_classifier(voice.vector_BD, part["speaker"])
            sums["speaker"] = tf.reduce_sum(is_counted_B * loss_B)
            # Warped rows have no speaker label: averaged over all rows they would lower the accuracy.
            if not is_warped:
                sums["speaker_accuracy"] = tf.reduce_sum(is_counted_B * is_right_B)
        assert sums.keys() <= {term.name for term in VOICE.terms}, f"{list(sums)} must be declared as terms"
        return add_weighted(VOICE.terms, sums), sums, measured

    def _weigh_diagonal(self, step: Tensor) -> Tensor | None:
        """Weight of the diagonal prior: 1 at the first step, 0 after `diagonal_steps`; None where it is left out."""
        if self._diagonal_steps == 0:
            return None
        return tf.maximum(1 - tf.cast(step, tf.float32) / self._diagonal_steps, 0.0)

    def _sum_aligned(
        self, model: XTTS, part: MicroBatch, voice: Voice, step: Tensor, seeds: _Seeds
    ) -> tuple[dict[str, Tensor], MeasuredPart]:
        """Sums over the utterances that can be aligned, and the number of those that cannot."""
        states = model.encode_text(part["tokens"], part["token_lengths"], part["language"], voice, seeds.text)
        mel_BTM, mel_lengths_B = model.normalize_mel(part["mel"]), part["mel_lengths"]
        alignment = model.align_states(
            states,
            mel_BTM,
            mel_lengths_B,
            diagonal_weight=self._weigh_diagonal(step),
            durations_BN=part["durations"] if self._use_stored_durations else None,
        )
        pitch_BS = model.measure_pitch(part["mel"], mel_lengths_B, alignment)
        prosody = model.predict_prosody(states, part["token_lengths"], seeds.prosody)
        crops = _choose_crops(seeds.crop, mel_lengths_B, mel_BTM.shape[0], self._crop_frames)
        decoded = _decode_crops(model, part, states, pitch_BS, alignment, mel_BTM, crops, voice, seeds)
        by_row = {
            "flow": _flow_loss(decoded),
            "prior": _prior_loss(states, alignment, mel_BTM, mel_lengths_B),
            "duration": _duration_loss(prosody, states, alignment),
            "pitch": _pitch_loss(prosody, pitch_BS, states, alignment),
            **_phone_losses(model, decoded),
            "length_error": _length_error(prosody, states, mel_lengths_B),
        }
        is_real_B = mel_lengths_B > 0
        is_aligned_B = alignment.is_aligned_B & is_real_B
        # tf.where, not a product: unused rows may hold NaN, and zero times NaN is NaN.
        sums = {name: tf.reduce_sum(tf.where(is_aligned_B, term_B, 0.0)) for name, term_B in by_row.items()}
        sums["unaligned"] = tf.math.count_nonzero(is_real_B & ~is_aligned_B, dtype=tf.float32)
        return sums, MeasuredPart(voice, states, alignment, pitch_BS)


def average_terms(means: dict[str, float]) -> dict[str, float]:
    """Means over all rows of a step as means over the rows that could be aligned, for the terms that only those have.

    Validation shows the same means; otherwise these terms would sink while more rows cannot be aligned.
    """
    share = 1 - means["unaligned"]
    of_aligned = {term.name for term in VOICE.terms if term.over == "aligned"}
    return {name: mean / share if share > 0 and name in of_aligned else mean for name, mean in means.items()}


def _derive_seeds(seed: int, step: Tensor, part: MicroBatch, training: bool) -> _Seeds:
    """Derives the seeds of all random choices from (seed, step) and a hash of the utterances."""
    # As int32, which wraps around: seeds go up to 2**32.
    base_2 = tf.stack([tf.constant(seed - 2**32 if seed >= 2**31 else seed), tf.cast(step, tf.int32)])
    base_2 = fold_seed(base_2, _hash_utterances(part))
    seeds = _Seeds(*fold_seeds(base_2, len(_Seeds._fields)))
    return seeds if training else seeds._replace(reference=None, text=None, prosody=None)


def _hash_utterances(part: MicroBatch) -> Tensor:
    """Hash of tokens and lengths, by which the seeds of micro-batches differ."""
    tokens_BN = part["tokens"]
    num_rows, num_tokens = tokens_BN.shape
    weights = tf.reshape(tf.range(1, num_rows * num_tokens + 1) * _HASH_FACTOR, [num_rows, num_tokens])
    return tf.reduce_sum(tokens_BN * weights) + tf.reduce_sum(part["mel_lengths"])


def _prior_loss(states: TextStates, alignment: Alignment, mel_BTM: Tensor, mel_lengths_B: Tensor) -> Tensor:
    """Negative log-likelihood of frames under a unit Gaussian around the mean of their state, by utterance.

    That is half the mean squared distance, without the constant.
    """
    means_BTM = tf.gather(states.means_BSM, alignment.state_BT, batch_dims=1)
    distance_BT = 0.5 * tf.reduce_mean(tf.square(mel_BTM - means_BTM), axis=-1)
    return _average(distance_BT, tf.sequence_mask(mel_lengths_B, mel_BTM.shape[1]))


def _duration_loss(prosody: Prosody, states: TextStates, alignment: Alignment) -> Tensor:
    """Mean squared error of log frames per state, by utterance."""
    wanted_BS = tf.math.log(tf.cast(tf.maximum(alignment.durations_BS, 1), tf.float32))
    return _average(tf.square(prosody.log_frames_BS - wanted_BS), _find_spoken(states, alignment))


def _pitch_loss(prosody: Prosody, pitch_BS: Pitch, states: TextStates, alignment: Alignment) -> Tensor:
    """Squared error of F0 in voiced states plus cross-entropy of the voicing of all, by utterance."""
    is_spoken_BS = _find_spoken(states, alignment)
    f0_error_BS = pitch_BS.voicing * tf.square(prosody.f0_BS - pitch_BS.f0)
    voicing_error_BS = tf.nn.sigmoid_cross_entropy_with_logits(pitch_BS.voicing, prosody.voicing_logit_BS)
    return _average(tf.where(is_spoken_BS, f0_error_BS + voicing_error_BS, 0.0), is_spoken_BS)


def _find_spoken(states: TextStates, alignment: Alignment) -> Tensor:
    """States that were given at least one frame [B, S]."""
    return states.is_state_BS & (alignment.durations_BS > 0)


def _length_error(prosody: Prosody, states: TextStates, mel_lengths_B: Tensor) -> Tensor:
    """Relative error of the predicted length of an utterance, without the length factor."""
    predicted_B = tf.reduce_sum(compute_frames(prosody.log_frames_BS, states.is_state_BS, 1.0), axis=1)
    real_B = tf.cast(tf.maximum(mel_lengths_B, 1), tf.float32)
    return tf.abs(predicted_B - real_B) / real_B


def _decode_crops(
    model: XTTS,
    part: MicroBatch,
    states: TextStates,
    pitch_BS: Pitch,
    alignment: Alignment,
    mel_BTM: Tensor,
    crops: tuple[Tensor, Tensor],
    voice: Voice,
    seeds: _Seeds,
) -> _Decoded:
    """Predicts the clean spectrogram of one random crop of each utterance, at a random time of the flow.

    t is logit-normal.
    """
    num_rows, (frame_BL, is_real_BL1) = mel_BTM.shape[0], crops
    inside_BL = tf.minimum(frame_BL, mel_BTM.shape[1] - 1)
    state_BL = tf.gather(alignment.state_BT, inside_BL, batch_dims=1)
    inputs = make_frame_inputs(states, pitch_BS, alignment.durations_BS, state_BL, frame_BL, is_real_BL1)
    clean_BLM = tf.gather(mel_BTM, inside_BL, batch_dims=1) * is_real_BL1
    time_B = tf.sigmoid(_TIME_MEAN + _TIME_DEVIATION * draw_normal(seeds.time, [num_rows]))
    time_B11 = time_B[:, None, None]
    noise_BLM = draw_normal(seeds.noise, clean_BLM.shape)
    noisy_BLM = (1 - time_B11) * noise_BLM + time_B11 * clean_BLM
    if seeds.text is not None and model.spec.has_many_speakers:
        # Classifier-free guidance needs a decoder that also works without a voice.
        voice = drop_voice(voice, draw_uniform(seeds.guidance, [num_rows]) >= model.config.guidance_dropout)
    predicted_BLM = model.decoder(noisy_BLM, inputs, time_B, voice)
    symbols_BN = unpack_factors(part["tokens"], model.spec.factor_sizes)[0]
    symbol_BL = tf.gather(symbols_BN, state_BL // STATES_PER_TOKEN, batch_dims=1)
    return _Decoded(clean_BLM, predicted_BLM, time_B, symbol_BL, is_real_BL1[..., 0] > 0)


def _flow_loss(decoded: _Decoded) -> Tensor:
    """Conditional flow matching loss by utterance.

    The decoder predicts the clean spectrogram (x-prediction); dividing its error by 1 - t gives the velocity error.
    """
    remaining_B11 = tf.maximum(1 - decoded.time_B[:, None, None], LEAST_REMAINING_TIME)
    # v = (x1 - x_t) / (1 - t), so an error in x1 divided by 1 - t is the error in velocity.
    error_BLM = (decoded.predicted_BLM - decoded.clean_BLM) / remaining_B11
    return _average(tf.reduce_mean(tf.square(error_BLM), axis=-1), decoded.is_real_BL)


def _phone_losses(model: XTTS, decoded: _Decoded) -> dict[str, Tensor]:
    """Losses of the phone classifier and of the decoder by it, by utterance; none where the model has no classifier.

    The classifier learns the symbols of the recording. The decoder learns by the Kullback-Leibler divergence of what
    the classifier reads in its prediction from what it reads in the recording.
    """
    if model.phone_classifier is None:
        return {}
    recorded_BLV = model.phone_classifier(decoded.clean_BLM)
    loss_BL = tf.nn.sparse_softmax_cross_entropy_with_logits(decoded.symbol_BL, recorded_BLV)
    wanted_BLV = tf.stop_gradient(recorded_BLV)
    logs_BLV = tf.nn.log_softmax(model.phone_classifier(decoded.predicted_BLM, is_frozen=True))
    divergence_BLV = tf.nn.softmax(wanted_BLV) * (tf.nn.log_softmax(wanted_BLV) - logs_BLV)
    return {
        "phone": _average(tf.reduce_sum(divergence_BLV, axis=-1), decoded.is_real_BL),
        "phone_classifier": _average(loss_BL, decoded.is_real_BL),
    }


def _choose_crops(seed_2: Tensor, mel_lengths_B: Tensor, num_rows: int, crop_frames: int) -> tuple[Tensor, Tensor]:
    """Frame numbers [B, L] of one random crop per utterance, and a mask of those that the utterance has."""
    num_spare_B = tf.maximum(mel_lengths_B - crop_frames, 0)
    share_B = draw_uniform(seed_2, [num_rows])
    start_B = tf.minimum(tf.cast(share_B * tf.cast(num_spare_B + 1, tf.float32), tf.int32), num_spare_B)
    frame_BL = start_B[:, None] + tf.range(crop_frames)
    is_real_BL = tf.cast(frame_BL < mel_lengths_B[:, None], tf.float32)
    return frame_BL, is_real_BL[..., None]


def _average(values_BT: Tensor, is_counted_BT: Tensor) -> Tensor:
    """The masked mean by row; 0 where the mask is empty."""
    counted_BT = tf.cast(is_counted_BT, tf.float32)
    return tf.reduce_sum(values_BT * counted_BT, axis=1) / tf.maximum(tf.reduce_sum(counted_BT, axis=1), 1.0)
