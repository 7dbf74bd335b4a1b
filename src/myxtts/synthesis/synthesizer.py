"""The synthesiser: a text and a voice in, sound out, whole or sentence by sentence.

Loading this module does not load TensorFlow; making a `Synthesizer` does, after everything else has been checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

from myxtts.errors import warn_user
from myxtts.models.spec import DEFAULT_NUM_STEPS
from myxtts.synthesis.join import PieceJoiner
from myxtts.synthesis.options import SpeechOptions
from myxtts.synthesis.package import Package, VoiceLike, VoiceSource, read_package
from myxtts.synthesis.sentences import Piece
from myxtts.synthesis.vocoders import VocoderChoice, equip_package
from myxtts.synthesis.voices import VoicePrint, average_prints
from myxtts.types import Say, Waveform

_NUM_UNKNOWN_SHOWN = 10


class Synthesizer:
    """A model that is ready to speak.

    >>> speaker = Synthesizer.load("runs/anna")
    >>> wave = speaker.say("Good morning.", voice="reference.wav", language="en")
    """

    def __init__(
        self, package: Package, *, vocoder: VocoderChoice = "auto", use_xla: bool = False, warn: Say = warn_user
    ) -> None:
        from myxtts.synthesis.acoustic import AcousticModel

        self.package, kind = equip_package(package, vocoder)
        self.acoustic = AcousticModel(self.package, vocoder=kind, use_xla=use_xla)
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
        self, pieces: Iterable[Piece], voice: VoicePrint, language: str, options: SpeechOptions
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

    def resolve(self, source: VoiceSource) -> VoicePrint:
        """A voice that `package.find_voice` gave, heard by the model where it is still a recording."""
        if isinstance(source, VoicePrint):
            return source
        return average_prints([self.acoustic.encode_reference(reference) for reference in source])

    def encode_voice(self, voice: VoiceLike) -> VoicePrint:
        """The voice in one recording, or the average of several, to be used again or saved."""
        return self.resolve(self.package.find_voice(voice, self._warn))

    def save_voice(self, name: str, voice: VoiceLike) -> Path:
        """Keeps a voice beside the model, to be used by its name."""
        return self.package.voices.save(name, self.encode_voice(voice))

    def load_voice(self, name: str) -> VoicePrint:
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
