"""`Synthesizer`: text and a reference voice to a waveform, whole or streamed sentence by sentence.

Importing this module does not import TensorFlow; making a `Synthesizer` does, after everything else has been checked,
unless onnxruntime speaks: for an exported model, and a bundle with graphs, as the base model.
A text is split into pieces (`sentences`), each is synthesised (`engine`), levelled and joined (`PieceJoiner`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack

import numpy as np

from myxtts.errors import DataError, StorageError, warn_user
from myxtts.features.griffin_lim import fade_ends
from myxtts.runtime.load_tensorflow import explain_missing_tensorflow, has_tensorflow
from myxtts.synthesis.cloning import choose_calibration, correct_embedding, design_equalizer, match_f0
from myxtts.synthesis.loaded_bundle import (
    KnownVocoder,
    LoadedBundle,
    VocoderChoice,
    VoiceLike,
    choose_vocoder,
    load_bundle,
)
from myxtts.synthesis.options import SPEED_LIMITS, SpeechArguments, SpeechOptions
from myxtts.synthesis.sentences import Piece, join_turns
from myxtts.synthesis.timing import SpokenPiece, TimedSentence, time_sentences, trim_silence
from myxtts.synthesis.voices import SpeakerEmbedding, VoiceSource, average_embeddings
from myxtts.types import Floats, Say, Waveform

if TYPE_CHECKING:
    from myxtts.synthesis.base_engine import Engine

_FADE_S = 0.005
"""At both ends of a piece, so that joints do not click."""
_BLOCK_S = 0.02
"""Block length of the level measurement."""
_QUIET_DB = 30.0
"""Blocks this far below the loudest one count as pauses."""
_MAX_PEAK = 0.99
"""Of full scale: the gain is limited so that no sample clips."""
_MAX_GAIN = 2.0
"""At most 6 dB up or down: levels are evened out, not a whisper turned into a shout."""


class PieceJoiner:
    """Joins the pieces of one text: same RMS of the speech, faded ends, silence between them.

    The first piece sets the level of the others: scaled to `target_rms`, or as it is without one.
    """

    def __init__(self, rate_hz: int, target_rms: float | None) -> None:
        self._rate_hz = rate_hz
        self._target_rms = target_rms
        self._target_speech_rms: float | None = None

    def join(self, samples: Floats, pause_s: float) -> Floats:
        """Returns the piece, levelled and faded, with `pause_s` of silence before it."""
        levelled = fade_ends(self._level(samples), int(_FADE_S * self._rate_hz))
        return np.concatenate([np.zeros(int(pause_s * self._rate_hz), np.float32), levelled])

    def _level(self, samples: Floats) -> Floats:
        """Scales a piece so that its speech has the target RMS, within the limits of gain and peak."""
        level, peak = self._measure_speech(samples), float(np.abs(samples).max(initial=0.0))
        if level <= 0.0:
            return samples
        if self._target_speech_rms is None:
            whole = float(np.sqrt(np.mean(np.square(samples))))
            self._target_speech_rms = level if self._target_rms is None else level * self._target_rms / whole
        gain = float(np.clip(self._target_speech_rms / level, 1 / _MAX_GAIN, _MAX_GAIN))
        return samples * np.float32(min(gain, _MAX_PEAK / peak))

    def _measure_speech(self, samples: Floats) -> float:
        """Returns the RMS of the blocks with speech, so that pauses inside a piece do not raise its gain."""
        block = max(1, int(_BLOCK_S * self._rate_hz))
        num_blocks = len(samples) // block
        if num_blocks == 0:
            return float(np.sqrt(np.mean(np.square(samples)))) if len(samples) else 0.0
        energy = np.mean(np.square(samples[: num_blocks * block].reshape(num_blocks, block)), axis=1)
        loud = energy[energy >= energy.max() * 10 ** (-_QUIET_DB / 10)]
        return float(np.sqrt(loud.mean()))


_NUM_UNKNOWN_SHOWN = 10


def _open_engine(loaded: LoadedBundle, vocoder: KnownVocoder, *, use_xla: bool) -> Engine:
    """The engine of a model: onnxruntime for an exported one or a bundle with graphs, else TensorFlow.

    XLA is of TensorFlow; an exported model has no use for it.
    """
    if use_xla:
        loaded = loaded.without_graphs()
    if not loaded.needs_tensorflow:
        from myxtts.synthesis.onnx_engine import OnnxEngine

        return OnnxEngine(loaded, vocoder=vocoder)
    if not has_tensorflow():
        raise explain_missing_tensorflow(", or give the folder of an exported model.")
    from myxtts.synthesis.engine import SpeechEngine

    return SpeechEngine(loaded, vocoder=vocoder, use_xla=use_xla)


class Synthesizer:
    """Speaks with a trained model. Thread-safe: a lock is held for one sentence at a time.

    >>> speaker = Synthesizer.load("runs/anna")
    >>> wave = speaker.say("Good morning.", voice="reference.wav", language="en")
    """

    def __init__(
        self, loaded: LoadedBundle, *, vocoder: VocoderChoice = "auto", use_xla: bool = False, warn: Say = warn_user
    ) -> None:
        self.loaded, kind = choose_vocoder(loaded, vocoder)
        self.engine = _open_engine(self.loaded, kind, use_xla=use_xla)
        self._warn = warn
        # The engine is not thread-safe. Held for one sentence, never while a caller consumes the stream.
        self._lock = threading.Lock()

    @classmethod
    def load(
        cls,
        path: Path | str | None = None,
        *,
        vocoder: VocoderChoice = "auto",
        use_xla: bool = False,
        warn: Say = warn_user,
    ) -> Self:
        """Loads the model of a run or bundle, or without a path the base model that comes with the package.

        `vocoder` is auto, griffin_lim, neural, or a folder with a vocoder.
        """
        return cls(load_bundle(path, warn), vocoder=vocoder, use_xla=use_xla, warn=warn)

    @property
    def rate(self) -> int:
        """Sample rate of the waveforms, in Hz."""
        return self.loaded.mel.sample_rate

    @property
    def languages(self) -> tuple[str, ...]:
        return self.loaded.spec.languages

    def say(
        self, text: str, voice: VoiceLike = None, language: str | None = None, **options: Unpack[SpeechArguments]
    ) -> Waveform:
        """Synthesises the whole text; the same seed gives the same samples.

        `voice` is a recording, several of them (averaged), the name of a saved voice, an embedding of `encode_voice`,
        or a mixture such as {"anna": 0.7, "reza": 0.3}; None is the model's only or default voice. The options are
        those of `SpeechOptions`.
        """
        return self.say_timed(text, voice, language, **options)[0]

    def say_timed(
        self, text: str, voice: VoiceLike = None, language: str | None = None, **options: Unpack[SpeechArguments]
    ) -> tuple[Waveform, list[TimedSentence]]:
        """As `say`, with the times of its sentences and words."""
        return self.say_dialogue([(voice, text)], language, **options)

    def stream(
        self, text: str, voice: VoiceLike = None, language: str | None = None, **options: Unpack[SpeechArguments]
    ) -> Iterator[Waveform]:
        """As `say`, but yields each sentence before the next is begun. Wrong arguments raise in this call."""
        checked, chosen = SpeechOptions(**options), self.loaded.choose_voice(voice, language, text, self._warn)
        pieces = self.loaded.plan(text, chosen.language)
        embedding = self.resolve(chosen.source)
        return (part.wave for part in self.speak(((piece, embedding) for piece in pieces), checked))

    def say_dialogue(
        self,
        turns: Iterable[tuple[VoiceLike, str]],
        language: str | None = None,
        **options: Unpack[SpeechArguments],
    ) -> tuple[Waveform, list[TimedSentence]]:
        """Says texts one after another, each in its own voice; returns one sound, and the times in it."""
        checked, planned = SpeechOptions(**options), []
        for voice, text in turns:
            chosen = self.loaded.choose_voice(voice, language, text, self._warn)
            pieces = list(self.loaded.plan(text, chosen.language))
            planned.append((self.resolve(chosen.source), pieces))
        return self.join(self.speak(join_turns(planned), checked))

    def speak(self, pieces: Iterable[tuple[Piece, SpeakerEmbedding]], options: SpeechOptions) -> Iterator[SpokenPiece]:
        """Synthesises pieces one after another, each in its voice; warns once of symbols that are left out.

        Pauses before pieces are divided by the speed, as durations are; silence that the text asks for is not. Where
        the options say how long all of it lasts, all pieces are timed before the first is decoded.
        """
        audio = self.loaded.audio
        joiner = PieceJoiner(self.rate, audio.loudness_target if audio.loudness == "rms" else None)
        has_warned, speed = False, options.speed
        if options.seconds is not None:
            pieces = list(pieces)
            speed, frames = self._fit(pieces, options.seconds)
        for number, (piece, voice) in enumerate(pieces):
            if piece.unknown and not has_warned:
                has_warned = True
                self._warn(_describe_unknown(piece))
            silence_s = piece.silence_s + piece.pause_s / speed
            if not len(piece.ids):
                nothing = np.zeros(int(silence_s * self.rate), np.float32)
                yield SpokenPiece(piece, Waveform(nothing, self.rate), silence_s, piece.ids)
                continue
            seed = _derive_seed(options.seed, number)
            with self._lock:
                timed = self.engine.time_text(piece.ids, piece.language, voice, options.speed)
                timed = timed if options.seconds is None else timed.stretch(frames[number])
                mel_TM = self.engine.decode(timed, voice, replace(options, seed=seed))
                if options.seconds is None:
                    timed, mel_TM = trim_silence(timed, mel_TM)
                samples = self.engine.make_sound(mel_TM, seed)
            wave = Waveform(joiner.join(samples, silence_s), self.rate)
            yield SpokenPiece(piece, wave, silence_s, timed.token_frames)

    def join(self, parts: Iterable[SpokenPiece]) -> tuple[Waveform, list[TimedSentence]]:
        """Joins what `speak` yields to one sound; returns it with the times of its sentences."""
        parts = list(parts)
        samples = np.concatenate([part.wave.samples for part in parts])
        return Waveform(samples, self.rate), time_sentences(parts, self.loaded.mel.hop_length / self.rate)

    def _fit(self, pieces: Sequence[tuple[Piece, SpeakerEmbedding]], seconds: float) -> tuple[float, list[int]]:
        """Returns the speed at which all pieces last `seconds`, and the frames of each.

        Raises DataError where they would have to be said too fast or too slowly.
        """
        with self._lock:
            natural = [
                self.engine.time_text(piece.ids, piece.language, voice).num_frames if len(piece.ids) else 0
                for piece, voice in pieces
            ]
        frame_s = self.loaded.mel.hop_length / self.rate
        own_s = sum(natural) * frame_s + sum(piece.pause_s for piece, _ in pieces)
        silence_s = sum(piece.silence_s for piece, _ in pieces)
        speed = own_s / (seconds - silence_s) if seconds > silence_s else float("inf")
        if not SPEED_LIMITS[0] <= speed <= SPEED_LIMITS[1]:
            fastest, slowest = (own_s / limit + silence_s for limit in reversed(SPEED_LIMITS))
            raise DataError(
                f"The text cannot be said in {seconds:g} s; at its own speed it takes {own_s + silence_s:.1f} s.",
                next_step=f"Give from {fastest:.1f} to {slowest:.1f} s.",
            )
        ends = np.floor(np.cumsum(natural) / speed + 0.5).astype(int)
        return speed, np.diff(ends, prepend=0).tolist()

    def resolve(self, source: VoiceSource) -> SpeakerEmbedding:
        """Returns the embedding of a voice from `loaded.find_voice`; recordings are encoded by the model.

        A saved voice of an earlier state of the model is saved again, with a warning that says so.
        """
        if source.embedding is not None:
            return source.embedding
        if source.mixed:
            weights = [weight for _, weight in source.mixed]
            return average_embeddings([self.resolve(part) for part, _ in source.mixed], weights)
        with self._lock:
            voice = average_embeddings([self.engine.encode_reference(mel_RM) for mel_RM in source.references])
            voice = self._match_recording(voice, source)
        if source.name:
            self._warn(f"The voice {source.name!r} was saved with an earlier checkpoint: it is computed again.")
            try:
                notes = {"language": source.language, "consent": source.consent}
                self.loaded.voices.save(source.name, voice, source.references, **notes)
            except StorageError as error:
                self._warn(f"It could not be saved, so it will be made again the next time too. {error}")
        return voice

    def _match_recording(self, voice: SpeakerEmbedding, source: VoiceSource) -> SpeakerEmbedding:
        """The voice with corrected embedding, equalizer and F0, for which the model says sentences; hold the lock."""
        language, texts = choose_calibration(self.loaded.spec.languages, source.language)
        pieces = [piece for text in texts for piece in self.loaded.plan(text, language) if len(piece.ids)]
        if not pieces:
            return voice

        def match(asked: SpeakerEmbedding) -> tuple[SpeakerEmbedding, SpeakerEmbedding]:
            """The voice with its equalizer and F0, and what the reference encoder hears of it with the equalizer."""
            drawn = [self.engine.make_mel(piece.ids, language, asked, SpeechOptions()) for piece in pieces]
            equalizer = design_equalizer(source.references, drawn)
            f0_change = match_f0(source.references, drawn, self.loaded.spec.band_hz)
            matched = replace(asked, equalizer=equalizer, f0_change=f0_change)
            return matched, self.engine.encode_reference(np.concatenate(drawn) + equalizer)

        plain, heard = match(voice)
        corrected, heard_then = match(correct_embedding(voice, heard))
        return corrected if heard_then.compare(voice) > heard.compare(voice) else plain

    def encode_voice(self, voice: VoiceLike) -> SpeakerEmbedding:
        """Returns the speaker embedding of one recording, or the average of several, to be used again or saved."""
        return self.resolve(self.loaded.find_voice(voice, self._warn))

    def save_voice(self, name: str, voice: VoiceLike, *, language: str = "", consent: str = "") -> Path:
        """Saves a voice beside the model, to be used by its name, with what is needed to make it again after more
        training: the log-mels of its recordings.

        `language` becomes the one that the voice speaks unless asked otherwise; `consent` says who agreed to its use.
        """
        name, source = self.loaded.check_new_name(name), self.loaded.find_voice(voice, self._warn)
        language = self.loaded.find_language(language) if language else source.language
        consent = consent or source.consent
        return self.loaded.voices.save(
            name, self.resolve(source), source.references, language=language, consent=consent
        )

    def voices(self) -> list[str]:
        """Lists the names that `voice` may be."""
        return self.loaded.list_voices()


def _derive_seed(seed: int, number: int) -> int:
    """Returns a seed of 31 bits for each piece, so that no two begin with the same noise; it must fit an int32."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0]) & 0x7FFFFFFF


def _describe_unknown(piece: Piece) -> str:
    symbols = " ".join(dict.fromkeys(piece.unknown[:1000]))
    shown = symbols if len(symbols) <= _NUM_UNKNOWN_SHOWN * 4 else f"{symbols[: _NUM_UNKNOWN_SHOWN * 4]}…"
    return f"In {piece.text[:40]!r} the model cannot say {shown}; it is left out here and later."
