"""What the voice model learns from: flow, prior, durations, pitch, and speakers where they are labelled.

All randomness follows from the seed, the step and the utterances of the part, so that a resumed run is the same run,
and no two replicas or micro-batches draw alike.
Shape legend: B utterances, N tokens, S states, T frames, L frames of a crop, M mel bands.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from myxtts.models.alignment import Alignment
from myxtts.models.decoder import LEAST_REMAINING_TIME, make_frame_inputs
from myxtts.models.layers import draw_normal, draw_uniform, fold_seed
from myxtts.models.pitch import Pitch
from myxtts.models.prosody import Prosody, compute_frames, measure_pitch_error
from myxtts.models.reference_encoder import SpeakerClassifier, Voice, drop_voice
from myxtts.models.text_encoder import TextStates
from myxtts.models.xtts import XTTS
from myxtts.training.step import LossFunction, MicroBatch
from myxtts.training.voice.augment import VocalTractPerturbation
from myxtts.types import Tensor

CROP_FRAMES = 128
"""Where nothing else is said, as in validation: its numbers must not depend on how a run is trained."""
DIAGONAL_STEPS = 400
PRIOR_WEIGHT = 10.0
DURATION_WEIGHT = 0.5
PITCH_WEIGHT = 0.25
SPEAKER_WEIGHT = 0.1
_TIME_MEAN, _TIME_DEVIATION = -0.2, 1.1
_HASH_FACTOR = 1_000_003


class _Seeds(NamedTuple):
    """One seed for each thing that is random; those of dropout are None when not training."""

    crop: Tensor
    time: Tensor
    noise: Tensor
    guidance: Tensor
    reference: Tensor
    text: Tensor
    prosody: Tensor
    stretch: Tensor


def make_loss(
    seed: int,
    *,
    crop_frames: int = CROP_FRAMES,
    diagonal_steps: int = DIAGONAL_STEPS,
    use_stored_durations: bool = False,
    voice_stretch: float = 0.0,
) -> LossFunction:
    """The loss of XTTS for a train step. With `use_stored_durations` a part brings `durations`, frames by token [B, N],
    and alignments are not searched. The diagonal prior fades out over the first `diagonal_steps`. While training,
    voices are changed by up to `voice_stretch`."""
    assert crop_frames % 2 == 0, f"a crop of {crop_frames} frames does not make pairs"

    def compute_loss(model: XTTS, part: MicroBatch, training: bool, step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        seeds = _derive_seeds(seed, step, part, training)
        has_own_voice_B, is_changed = part["reference_lengths"] > 0, training and voice_stretch > 0
        if is_changed:
            part, is_stretched_B = VocalTractPerturbation(model.spec.band_hz, voice_stretch).stretch(
                part, seeds.stretch
            )
            has_own_voice_B &= ~is_stretched_B
        voice = model.encode_voice(part["reference"], part["reference_lengths"], seeds.reference)
        states = model.encode_text(part["tokens"], part["token_lengths"], part["language"], voice, seeds.text)
        mel_BTM, mel_lengths_B = model.normalize_mel(part["mel"]), part["mel_lengths"]
        alignment = model.align_states(
            states,
            mel_BTM,
            mel_lengths_B,
            diagonal_weight=_fade_out(step, diagonal_steps),
            durations_BN=part["durations"] if use_stored_durations else None,
        )
        pitch_BS = model.measure_pitch(part["mel"], mel_lengths_B, alignment)
        prosody = model.predict_prosody(states, part["token_lengths"], seeds.prosody)
        terms = {
            "flow": _measure_flow(
                model, states, pitch_BS, alignment, mel_BTM, mel_lengths_B, voice, seeds, crop_frames
            ),
            "prior": _measure_prior(states, alignment, mel_BTM, mel_lengths_B),
            "duration": _measure_durations(prosody.log_frames_BS, states, alignment),
            "pitch": _measure_pitch(prosody, pitch_BS, states, alignment),
        }
        is_used_B = tf.cast(alignment.is_aligned_B & (mel_lengths_B > 0), tf.float32)
        # Not a product alone: rows that are not used may hold anything, and zero times NaN is NaN.
        sums = {name: tf.reduce_sum(tf.where(is_used_B > 0, term_B, 0.0)) for name, term_B in terms.items()}
        loss = sums["flow"] + PRIOR_WEIGHT * sums["prior"]
        loss += DURATION_WEIGHT * sums["duration"] + PITCH_WEIGHT * sums["pitch"]
        sums["length_error"] = tf.reduce_sum(is_used_B * _measure_lengths(prosody.log_frames_BS, states, mel_lengths_B))
        is_real_B = tf.cast(mel_lengths_B > 0, tf.float32)
        sums["unaligned"] = tf.reduce_sum(is_real_B - is_used_B)
        if model.speaker_classifier is not None:
            is_heard_B = is_real_B * tf.cast(has_own_voice_B, tf.float32)
            sums["speaker"], accuracy = _measure_speakers(model.speaker_classifier, voice, part["speaker"], is_heard_B)
            # A mean over all utterances would count those as wrong that are nobody's.
            if not is_changed:
                sums["speaker_accuracy"] = accuracy
            loss += SPEAKER_WEIGHT * sums["speaker"]
        return loss, sums

    return compute_loss


def _derive_seeds(seed: int, step: Tensor, part: MicroBatch, training: bool) -> _Seeds:
    # As int32, which wraps around: seeds go up to 2**32.
    base_2 = tf.stack([tf.constant(seed - 2**32 if seed >= 2**31 else seed), tf.cast(step, tf.int32)])
    base_2 = fold_seed(base_2, _hash_utterances(part))
    seeds = _Seeds(*(fold_seed(base_2, number) for number in range(len(_Seeds._fields))))
    return seeds if training else seeds._replace(reference=None, text=None, prosody=None)


def _hash_utterances(part: MicroBatch) -> Tensor:
    """A number that differs between parts because their texts do."""
    tokens_BN = part["tokens"]
    num_rows, num_tokens = tokens_BN.shape
    weights = tf.reshape(tf.range(1, num_rows * num_tokens + 1) * _HASH_FACTOR, [num_rows, num_tokens])
    return tf.reduce_sum(tokens_BN * weights) + tf.reduce_sum(part["mel_lengths"])


def _fade_out(step: Tensor, num_steps: int) -> Tensor:
    return tf.maximum(1 - tf.cast(step, tf.float32) / max(1, num_steps), 0.0)


def _measure_prior(states: TextStates, alignment: Alignment, mel_BTM: Tensor, mel_lengths_B: Tensor) -> Tensor:
    """Half the squared distance of frames from the means of their states, by utterance."""
    means_BTM = tf.gather(states.means_BSM, alignment.state_BT, batch_dims=1)
    distance_BT = 0.5 * tf.reduce_mean(tf.square(mel_BTM - means_BTM), axis=-1)
    return _average(distance_BT, tf.sequence_mask(mel_lengths_B, mel_BTM.shape[1]))


def _measure_durations(log_frames_BS: Tensor, states: TextStates, alignment: Alignment) -> Tensor:
    wanted_BS = tf.math.log(tf.cast(tf.maximum(alignment.durations_BS, 1), tf.float32))
    return _average(tf.square(log_frames_BS - wanted_BS), states.is_state_BS & (alignment.durations_BS > 0))


def _measure_pitch(prosody: Prosody, pitch_BS: Pitch, states: TextStates, alignment: Alignment) -> Tensor:
    is_spoken_BS = states.is_state_BS & (alignment.durations_BS > 0)
    return _average(measure_pitch_error(prosody, pitch_BS, is_spoken_BS), is_spoken_BS)


def _measure_lengths(log_frames_BS: Tensor, states: TextStates, mel_lengths_B: Tensor) -> Tensor:
    """By what share the predicted length of an utterance is off, without the length factor."""
    predicted_B = tf.reduce_sum(compute_frames(log_frames_BS, states.is_state_BS, 1.0), axis=1)
    real_B = tf.cast(tf.maximum(mel_lengths_B, 1), tf.float32)
    return tf.abs(predicted_B - real_B) / real_B


def _measure_speakers(
    classifier: SpeakerClassifier, voice: Voice, speaker_B: Tensor, is_heard_B: Tensor
) -> tuple[Tensor, Tensor]:
    """Sums over the rows that are heard: of the loss, and of those that are recognised."""
    loss_B, is_right_B = classifier(voice.vector_BD, speaker_B)
    return tf.reduce_sum(is_heard_B * loss_B), tf.reduce_sum(is_heard_B * is_right_B)


def _measure_flow(
    model: XTTS,
    states: TextStates,
    pitch_BS: Pitch,
    alignment: Alignment,
    mel_BTM: Tensor,
    mel_lengths_B: Tensor,
    voice: Voice,
    seeds: _Seeds,
    crop_frames: int,
) -> Tensor:
    """How wrong the decoder's direction is, at a random place of a random line, on a random crop of each utterance."""
    num_rows = mel_BTM.shape[0]
    frame_BL, is_real_BL1 = _choose_crops(seeds.crop, mel_lengths_B, num_rows, crop_frames)
    inside_BL = tf.minimum(frame_BL, mel_BTM.shape[1] - 1)
    state_BL = tf.gather(alignment.state_BT, inside_BL, batch_dims=1)
    inputs = make_frame_inputs(states, pitch_BS, alignment.durations_BS, state_BL, frame_BL, is_real_BL1)
    clean_BLM = tf.gather(mel_BTM, inside_BL, batch_dims=1) * is_real_BL1
    time_B = tf.sigmoid(_TIME_MEAN + _TIME_DEVIATION * draw_normal(seeds.time, [num_rows]))
    time_B11 = time_B[:, None, None]
    noise_BLM = draw_normal(seeds.noise, clean_BLM.shape)
    noisy_BLM = (1 - time_B11) * noise_BLM + time_B11 * clean_BLM
    if seeds.text is not None and model.spec.has_many_speakers:
        voice = drop_voice(voice, draw_uniform(seeds.guidance, [num_rows]) >= model.config.guidance_dropout)
    guess_BLM = model.decoder(noisy_BLM, inputs, time_B, voice)
    # Divided by the time that is left, an error of the end is one of the velocity.
    error_BLM = (guess_BLM - clean_BLM) / tf.maximum(1 - time_B11, LEAST_REMAINING_TIME)
    return _average(tf.reduce_mean(tf.square(error_BLM), axis=-1), is_real_BL1[..., 0] > 0)


def _choose_crops(seed_2: Tensor, mel_lengths_B: Tensor, num_rows: int, crop_frames: int) -> tuple[Tensor, Tensor]:
    """The numbers of the frames of each crop, and which of them the utterance has."""
    num_spare_B = tf.maximum(mel_lengths_B - crop_frames, 0)
    share_B = draw_uniform(seed_2, [num_rows])
    start_B = tf.minimum(tf.cast(share_B * tf.cast(num_spare_B + 1, tf.float32), tf.int32), num_spare_B)
    frame_BL = start_B[:, None] + tf.range(crop_frames)
    is_real_BL = tf.cast(frame_BL < mel_lengths_B[:, None], tf.float32)
    return frame_BL, is_real_BL[..., None]


def _average(values_BT: Tensor, is_counted_BT: Tensor) -> Tensor:
    """The mean over what counts, by row; 0 where nothing does."""
    counted_BT = tf.cast(is_counted_BT, tf.float32)
    return tf.reduce_sum(values_BT * counted_BT, axis=1) / tf.maximum(tf.reduce_sum(counted_BT, axis=1), 1.0)
