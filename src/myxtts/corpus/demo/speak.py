"""One speaker's clips: sentences are composed, spoken by espeak-ng, put in a room and written as WAV files.

What a clip holds depends on the seed, the speaker and its number alone, not on what was made before it or where.
"""

from __future__ import annotations

import os
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.demo.grammar import compose_sentence
from myxtts.corpus.demo.sentences_en import ENGLISH
from myxtts.corpus.demo.sentences_fa import PERSIAN
from myxtts.corpus.demo.voices import ESPEAK_VOICES, Speaker
from myxtts.errors import UsageError
from myxtts.files import explain_storage_errors
from myxtts.text.espeak import synthesize
from myxtts.text.normalize import normalize_text
from myxtts.types import Waveform

GRAMMARS = {"en": ENGLISH, "fa": PERSIAN}
WAV_FOLDER = "wavs"
MIN_DURATION_S, TYPICAL_DURATION_S, MAX_DURATION_S = 3.0, 6.7, 12.0
# How many clips hold two sentences, for longer ones and for pauses inside.
_SHARE_OF_PAIRS = 0.3
_MAX_TRIES_PER_SENTENCE = 1000


@dataclass(frozen=True, slots=True)
class Clip:
    id: str
    speaker_id: str
    text: str
    duration_s: float


def speak_clips(speaker: Speaker, total_s: float, seed: int, folder: Path) -> Iterator[Clip]:
    """Writes clips into the folder's `wavs` until they last about `total_s`, and names each as it is done."""
    spoken_s = 0.0
    num_clips = 0
    for number, text in enumerate(compose_sentences(speaker, seed)):
        sound = render_clip(speaker, number, text, seed)
        if not MIN_DURATION_S <= sound.duration_s <= MAX_DURATION_S:
            continue
        num_clips += 1
        clip = Clip(f"{speaker.id}_{num_clips:05}", speaker.id, text, sound.duration_s)
        _write_wav(folder / WAV_FOLDER / f"{clip.id}.wav", sound)
        yield clip
        spoken_s += sound.duration_s
        # The next clip would on average go as far beyond the end as this one stays before it.
        if spoken_s > total_s - TYPICAL_DURATION_S / 2:
            return


def compose_sentences(speaker: Speaker, seed: int) -> Iterator[str]:
    """The speaker's sentences, no two the same."""
    generator = np.random.default_rng([seed, speaker.number, 1])
    grammar = GRAMMARS[speaker.language]
    said: set[str] = set()
    while True:
        for _ in range(_MAX_TRIES_PER_SENTENCE):
            sentence = compose_sentence(grammar, generator)
            if generator.random() < _SHARE_OF_PAIRS:
                sentence = f"{sentence} {compose_sentence(grammar, generator)}"
            if sentence not in said:
                break
        else:
            raise UsageError(
                f"After {len(said):,} sentences there is nothing left for the speaker {speaker.id} to say.",
                next_step="Ask for fewer minutes or more speakers.",
            )
        said.add(sentence)
        yield sentence


def render_clip(speaker: Speaker, number: int, text: str, seed: int) -> Waveform:
    """The sentence as the speaker says it this time. It is read as the front end reads it, numbers included."""
    generator = np.random.default_rng([seed, speaker.number, 2, number])
    speech = synthesize(
        normalize_text(text, speaker.language),
        ESPEAK_VOICES[speaker.language],
        variant=speaker.variant,
        rate_wpm=speaker.rate_wpm + int(generator.integers(-6, 7)),
        pitch=speaker.pitch + int(generator.integers(-2, 3)),
        pitch_range=speaker.pitch_range + int(generator.integers(-4, 5)),
    )
    return Waveform(_put_in_room(speech, speaker, generator), speech.rate)


def _put_in_room(speech: Waveform, speaker: Speaker, generator: np.random.Generator) -> NDArray[np.float32]:
    """Speech at a level of its own, with a little silence around it, a few reflections and noise under all of it."""
    before, after = (int(generator.uniform(0.1, 0.35) * speech.rate) for _ in range(2))
    dry = np.pad(speech.samples, (before, after))
    wet = dry.copy()
    for delay_s, gain in speaker.reflections:
        shift = int(delay_s * speech.rate)
        wet[shift:] += gain * dry[:-shift]
    level = generator.uniform(0.05, 0.1)
    wet *= level / max(float(np.sqrt(np.mean(np.square(speech.samples)))), 1e-4)
    noise = generator.standard_normal(len(wet), np.float32)
    # The hiss of a room is weaker towards high frequencies.
    wet += speaker.noise_level * np.convolve(noise, np.asarray([0.4, 0.3, 0.2, 0.1], np.float32), mode="same")
    peak = float(np.max(np.abs(wet)))
    return np.asarray(wet * min(1.0, 0.95 / peak), np.float32)


def _write_wav(path: Path, sound: Waveform) -> None:
    samples = np.rint(sound.samples * 32767.0).astype("<i2")
    with explain_storage_errors(path, "write"), path.open("wb") as file:
        with wave.open(file, "wb") as wav:
            wav.setnchannels(1)
            wav.setsampwidth(2)
            wav.setframerate(sound.rate)
            wav.writeframes(samples.tobytes())
        file.flush()
        os.fsync(file.fileno())
