"""Brings a cloned voice nearer to its recording, by what the model says with it.

A model that was trained on few speakers draws a new voice towards theirs. So it synthesises a fixed text with the new
voice, and what it did is compared with the recording: the average log-mel, band by band, whose difference is added to
every frame of this voice (equalizer); the mean and the spread of F0, which predicted F0 is moved to; and the embedding
that the reference encoder finds in it, whose difference is added to the embedding that synthesis is asked for.
Shape legend: T frames, M mel bands.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from myxtts.models.pitch_combs import measure_f0_range
from myxtts.synthesis.voices import SpeakerEmbedding
from myxtts.types import Floats

_LOUD_RANGE = 3.5
"""Frames within this distance of the loudest count as speech: natural logarithm of the magnitude, 30 dB."""
_MAX_GAIN = 1.2
"""Most that a band is changed, natural logarithm: 10 dB. A telephone's missing band is not copied in full."""
_SMOOTHING = np.hanning(9)[1:-1] / np.hanning(9).sum()
"""Weights of neighbouring bands: a few seconds of other words differ in single bands by chance."""
_CORRECTION = 0.7
"""Share of the difference of embeddings that is added: a step that is a little short does not overshoot."""
_MAX_F0_SHIFT = 1.5
"""Most that F0 is moved, in thirds of an octave: half an octave. The tracker may be wrong by a whole one."""
_MAX_F0_FACTOR = 1.5
"""Most that the spread of F0 grows. Predicted F0 is an average over ways to say a sentence, so it moves too little."""
_NUM_PROMPTS = 2
_COUNTING = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12."
"""Text for languages that the project has no sentences of: every front end reads numbers."""


def choose_calibration(languages: Sequence[str], wanted: str) -> tuple[str, list[str]]:
    """A language of the model, `wanted` if possible, and texts in it whose average spectrum is measured."""
    # Not at the top: it would delay the first word of voices that need no calibration.
    from myxtts.corpus.prompts import PROMPT_LANGUAGES, read_prompts

    known = [language for language in (wanted, *PROMPT_LANGUAGES, *languages) if language in languages]
    if known[0] not in PROMPT_LANGUAGES:
        return known[0], [_COUNTING]
    return known[0], list(read_prompts(known[0])[:_NUM_PROMPTS])


def design_equalizer(recorded: Sequence[Floats], drawn: Sequence[Floats]) -> Floats:
    """Offsets [M] for log-mels of the model, so that their average is that of the recordings; their mean is 0."""
    difference_M = _average_speech(recorded) - _average_speech(drawn)
    padded = np.pad(difference_M - difference_M.mean(), len(_SMOOTHING) // 2, mode="edge")
    smooth_M = np.convolve(padded, _SMOOTHING, "valid")
    gains_M: Floats = np.clip(smooth_M - smooth_M.mean(), -_MAX_GAIN, _MAX_GAIN).astype(np.float32)
    return gains_M


def match_f0(recorded: Sequence[Floats], drawn: Sequence[Floats], band_hz: Sequence[float]) -> Floats | None:
    """Factor and offset [2] of predicted F0, so that its mean and spread are those of the recordings.

    None where F0 cannot be read from one of them. The spread never becomes smaller.
    """
    wanted, found = measure_f0_range(recorded, band_hz), measure_f0_range(drawn, band_hz)
    if wanted is None or found is None:
        return None
    factor = float(np.clip(wanted.deviation / max(found.deviation, 1e-3), 1.0, _MAX_F0_FACTOR))
    mean = found.mean + float(np.clip(wanted.mean - found.mean, -_MAX_F0_SHIFT, _MAX_F0_SHIFT))
    return np.array([factor, mean - factor * found.mean], np.float32)


def correct_embedding(voice: SpeakerEmbedding, heard: SpeakerEmbedding) -> SpeakerEmbedding:
    """The embedding to ask for instead of `voice`, where the model's speech sounds like `heard`; as long as before."""
    vector = voice.vector + _CORRECTION * (voice.vector - heard.vector)
    vector *= np.linalg.norm(voice.vector) / max(float(np.linalg.norm(vector)), float(np.finfo(np.float32).tiny))
    return SpeakerEmbedding(vector, voice.latents + np.float32(_CORRECTION) * (voice.latents - heard.latents))


def _average_speech(mels: Sequence[Floats]) -> Floats:
    """Mean log-mel [M] of the frames of speech, without pauses."""
    joined_TM = np.concatenate(mels).astype(np.float64)
    level_T = np.logaddexp.reduce(joined_TM, axis=1)
    mean_M: Floats = joined_TM[level_T > level_T.max() - _LOUD_RANGE].mean(axis=0)
    return mean_M
