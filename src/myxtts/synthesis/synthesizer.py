"""The synthesiser: a text and a voice in, sound out, whole or sentence by sentence.

Loading this module does not load TensorFlow; making a `Synthesizer` does, after everything else has been checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from myxtts.errors import ConfigError, warn_user
from myxtts.models.spec import DEFAULT_NUM_STEPS
from myxtts.synthesis.loaded_bundle import (
    LoadedBundle,
    VocoderChoice,
    VoiceLike,
    VoiceSource,
    equip_package,
    read_package,
)
from myxtts.synthesis.sentences import Piece
from myxtts.synthesis.voices import SpeakerEmbedding, average_prints
from myxtts.types import Floats, Say, Waveform

# How a text is said, checked as soon as it is written down.

_LIMITS = {"speed": (0.25, 4.0), "num_steps": (1, 200), "guidance": (0.0, 10.0), "noise_scale": (0.0, 2.0)}
_MAX_SEED = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechOptions:
    """None leaves a number to the model. `guidance` above 1 leans on the voice; sampling begins at `noise_scale`."""

    speed: float = 1.0
    seed: int = 0
    num_steps: int = DEFAULT_NUM_STEPS
    guidance: float | None = None
    noise_scale: float | None = None

    def __post_init__(self) -> None:
        for name, (lowest, highest) in _LIMITS.items():
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and lowest <= value <= highest):
                raise ConfigError(
                    f"{name} is {value}, but it must be from {lowest:g} to {highest:g}.", next_step=f"Change {name}."
                )
        if not 0 <= self.seed <= _MAX_SEED:
            raise ConfigError(
                f"The seed is {self.seed}, but it must be from 0 to 2**63 - 1.", next_step="Change the seed."
            )


# Pieces of speech made fit to follow each other: one level, soft ends, silence between them.

_FADE_S = 0.005
_BLOCK_S = 0.02
_QUIET_DB = 30.0
_MAX_PEAK = 0.99
_MAX_GAIN = 2.0
"""Pieces are brought nearer to each other, not turned into something else."""


class PieceJoiner:
    """Takes the pieces of one text in order. Without a target level the first piece decides."""

    def __init__(self, rate_hz: int, target_rms: float | None) -> None:
        self._rate_hz = rate_hz
        self._target_rms = target_rms
        self._target_speech_rms: float | None = None

    def join(self, samples: Floats, pause_s: float) -> Floats:
        """The piece at its level behind a pause."""
        levelled = fade_ends(self._level(samples), int(_FADE_S * self._rate_hz))
        return np.concatenate([np.zeros(int(pause_s * self._rate_hz), np.float32), levelled])

    def _level(self, samples: Floats) -> Floats:
        level, peak = self._measure_speech(samples), float(np.abs(samples).max(initial=0.0))
        if level <= 0.0:
            return samples
        if self._target_speech_rms is None:
            whole = float(np.sqrt(np.mean(np.square(samples))))
            self._target_speech_rms = level if self._target_rms is None else level * self._target_rms / whole
        gain = float(np.clip(self._target_speech_rms / level, 1 / _MAX_GAIN, _MAX_GAIN))
        return samples * np.float32(min(gain, _MAX_PEAK / peak))

    def _measure_speech(self, samples: Floats) -> float:
        """RMS of the parts in which someone speaks: pauses inside a piece do not make it louder."""
        block = max(1, int(_BLOCK_S * self._rate_hz))
        num_blocks = len(samples) // block
        if num_blocks == 0:
            return float(np.sqrt(np.mean(np.square(samples)))) if len(samples) else 0.0
        energy = np.mean(np.square(samples[: num_blocks * block].reshape(num_blocks, block)), axis=1)
        loud = energy[energy >= energy.max() * 10 ** (-_QUIET_DB / 10)]
        return float(np.sqrt(loud.mean()))


def fade_ends(samples: Floats, num_samples: int) -> Floats:
    """A copy that begins and ends in silence."""
    num_samples = min(num_samples, len(samples) // 2)
    rise = np.sin(np.linspace(0, np.pi / 2, num_samples, dtype=np.float32)) ** 2
    faded = np.array(samples, np.float32)
    faded[:num_samples] *= rise
    faded[len(faded) - num_samples :] *= rise[::-1]
    return faded


_NUM_UNKNOWN_SHOWN = 10


class Synthesizer:
    """A model that is ready to speak.

    >>> speaker = Synthesizer.load("runs/anna")
    >>> wave = speaker.say("Good morning.", voice="reference.wav", language="en")
    """

    def __init__(
        self, package: LoadedBundle, *, vocoder: VocoderChoice = "auto", use_xla: bool = False, warn: Say = warn_user
    ) -> None:
        from myxtts.synthesis.engine import SpeechEngine

        self.package, kind = equip_package(package, vocoder)
        self.acoustic = SpeechEngine(self.package, vocoder=kind, use_xla=use_xla)
        self._warn = warn

    @classmethod
    def load(
        cls, path: Path | str, *, vocoder: VocoderChoice = "auto", use_xla: bool = False, warn: Say = warn_user
    ) -> Self:
        """The model of a run or bundle; `vocoder` is auto, griffin_lim, neural, or the folder of a trained one."""
        return cls(read_package(path), vocoder=vocoder, use_xla=use_xla, warn=warn)

    @property
    def rate(self) -> int:
        """Samples a second of everything it says."""
        return self.package.mel.sample_rate

    @property
    def languages(self) -> tuple[str, ...]:
        return self.package.spec.languages

    def say(
        self,
        text: str,
        voice: VoiceLike = None,
        language: str | None = None,
        *,
        speed: float = 1.0,
        seed: int = 0,
        num_steps: int = DEFAULT_NUM_STEPS,
        guidance: float | None = None,
        noise_scale: float | None = None,
    ) -> Waveform:
        """The whole text as sound; the same seed gives the same samples.

        `voice` is a recording, several of them (averaged), the name of a saved voice, or what `encode_voice` gave.
        """
        parts = list(
            self.stream(
                text,
                voice,
                language,
                speed=speed,
                seed=seed,
                num_steps=num_steps,
                guidance=guidance,
                noise_scale=noise_scale,
            )
        )
        return Waveform(np.concatenate([part.samples for part in parts]), self.rate)

    def stream(
        self,
        text: str,
        voice: VoiceLike = None,
        language: str | None = None,
        *,
        speed: float = 1.0,
        seed: int = 0,
        num_steps: int = DEFAULT_NUM_STEPS,
        guidance: float | None = None,
        noise_scale: float | None = None,
    ) -> Iterator[Waveform]:
        """As `say`, sentence by sentence: each is given before the next is begun. Mistakes are raised at once."""
        options = SpeechOptions(speed=speed, seed=seed, num_steps=num_steps, guidance=guidance, noise_scale=noise_scale)
        language = self.package.find_language(language)
        pieces = self.package.plan(text, language)
        return self.speak(pieces, self.resolve(self.package.find_voice(voice, self._warn)), language, options)

    def speak(
        self, pieces: Iterable[Piece], voice: SpeakerEmbedding, language: str, options: SpeechOptions
    ) -> Iterator[Waveform]:
        """Says the pieces of a plan one after another."""
        audio = self.package.audio
        joiner = PieceJoiner(self.rate, audio.loudness_target if audio.loudness == "rms" else None)
        is_told = False
        for number, piece in enumerate(pieces):
            if piece.unknown and not is_told:
                is_told = True
                self._warn(_describe_unknown(piece))
            seed = _derive_seed(options.seed, number)
            mel_TM = self.acoustic.make_mel(piece.ids, language, voice, replace(options, seed=seed))
            samples = joiner.join(self.acoustic.make_sound(mel_TM, seed), piece.pause_s / options.speed)
            yield Waveform(samples, self.rate)

    def resolve(self, source: VoiceSource) -> SpeakerEmbedding:
        """A voice that `package.find_voice` gave, heard by the model where it is still a recording."""
        if isinstance(source, SpeakerEmbedding):
            return source
        return average_prints([self.acoustic.encode_reference(reference) for reference in source])

    def encode_voice(self, voice: VoiceLike) -> SpeakerEmbedding:
        """The voice in one recording, or the average of several, to be used again or saved."""
        return self.resolve(self.package.find_voice(voice, self._warn))

    def save_voice(self, name: str, voice: VoiceLike) -> Path:
        """Keeps a voice beside the model, to be used by its name."""
        return self.package.voices.save(name, self.encode_voice(voice))

    def load_voice(self, name: str) -> SpeakerEmbedding:
        return self.package.voices.load(name)

    def voices(self) -> list[str]:
        """The names that `voice` may be."""
        return self.package.list_voices()


def _derive_seed(seed: int, number: int) -> int:
    """A seed of 31 bits for each piece, so that no two begin with the same noise."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0]) & 0x7FFFFFFF


def _describe_unknown(piece: Piece) -> str:
    symbols = " ".join(dict.fromkeys(piece.unknown[:1000]))
    shown = symbols if len(symbols) <= _NUM_UNKNOWN_SHOWN * 4 else f"{symbols[: _NUM_UNKNOWN_SHOWN * 4]}…"
    return f"In {piece.text[:40]!r} the model cannot say {shown}; it is left out, as it will be further on."
