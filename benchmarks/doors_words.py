"""How far the word times of `synth --subtitles` are from the words in the sound, on the demo voice.

espeak-ng says the sentences too, and tells when each of its words begins. Both sounds are aligned by dynamic time
warping of their log-mels, which carries espeak's times over to the sound of the model. The demo model has learnt from
espeak-ng, so both say the same phones in nearly the same voice.
Shape legend: T frames of espeak's sound, U frames of the model's, M mel bands.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Measurement
from myxtts.corpus.demo.sentences import compose_sentence, load_grammar
from myxtts.corpus.demo.speak import Speaker, choose_speakers
from myxtts.features.mel import HostMel
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.text.phonemes import find_voice
from myxtts.types import Waveform

_NUM_SENTENCES = 20
_LIMIT_MS = 40.0
_WORD_EVENT, _END_OF_LIST = 1, 0
_SYNCHRONOUS, _UTF8, _BY_CHARACTER = 2, 1, 1
_RATE, _PITCH, _RANGE = 1, 3, 4


class _Event(ctypes.Structure):
    """espeak_EVENT of speak_lib.h."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position_ms", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    )


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


class EspeakClock:
    """espeak-ng with its events: sound and the beginning of each word."""

    def __init__(self) -> None:
        import espeakng_loader

        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        path = str(espeakng_loader.get_data_path()).encode()
        self.rate_hz = int(self._library.espeak_Initialize(_SYNCHRONOUS, 0, path, 0))
        self._sound: list[bytes] = []
        self._starts_s: dict[int, float] = {}
        self._callback = _Callback(self._collect)

    def speak(self, text: str, speaker: Speaker) -> tuple[Waveform, list[float]]:
        """Returns the sound of a text and when each of its words begins, in seconds."""
        self._sound.clear()
        self._starts_s.clear()
        self._library.espeak_SetVoiceByName(f"{find_voice(speaker.language)}+{speaker.variant}".encode())
        for parameter, value in ((_RATE, speaker.rate_wpm), (_PITCH, speaker.pitch), (_RANGE, speaker.pitch_range)):
            self._library.espeak_SetParameter(parameter, value, 0)
        # The product uses the same library in this process, and sets its own callback.
        self._library.espeak_SetSynthCallback(self._callback)
        encoded = text.encode()
        self._library.espeak_Synth(encoded, len(encoded) + 1, 0, _BY_CHARACTER, 0, _UTF8, None, None)
        samples = np.frombuffer(b"".join(self._sound), np.int16) / np.float32(32768)
        return Waveform(samples.astype(np.float32), self.rate_hz), [self._starts_s[at] for at in sorted(self._starts_s)]

    def _collect(
        self, samples: ctypes._Pointer[ctypes.c_short], num_samples: int, events: ctypes._Pointer[_Event]
    ) -> int:
        if samples and num_samples > 0:
            self._sound.append(ctypes.string_at(samples, 2 * num_samples))
        place = 0
        while events[place].type != _END_OF_LIST:
            if events[place].type == _WORD_EVENT:
                self._starts_s.setdefault(events[place].text_position, events[place].audio_position_ms / 1000)
            place += 1
        return 0


def measure_words(model: Path) -> list[Measurement]:
    """Median distance of the beginning of a word from where espeak's times, carried over, put it."""
    errors_ms, num_sentences = collect_errors_ms(Synthesizer.load(model), _NUM_SENTENCES)
    note = f"{len(errors_ms)} words of {num_sentences} sentences in English and Persian, against espeak-ng's own events"
    return [Measurement("word times, median error", median(errors_ms), "ms", "at most", _LIMIT_MS, note)]


def collect_errors_ms(synthesizer: Synthesizer, num_sentences: int) -> tuple[list[float], int]:
    """Errors of all words of new sentences, and how many sentences have as many words in espeak's events as in ours."""
    clock, generator = EspeakClock(), np.random.default_rng(11)
    speakers = choose_speakers(["en", "fa"], 8, seed=0)
    errors_ms: list[float] = []
    num_used = 0
    for number in range(num_sentences):
        speaker = speakers[number % len(speakers)]
        text = compose_sentence(load_grammar(speaker.language), generator)
        found = _measure_sentence(synthesizer, clock, speaker, text)
        errors_ms += found
        num_used += bool(found)
    return errors_ms, num_used


def _measure_sentence(synthesizer: Synthesizer, clock: EspeakClock, speaker: Speaker, text: str) -> list[float]:
    spoken, sentences = synthesizer.say_timed(text, voice=speaker.id, language=speaker.language)
    starts_s = [word.start_s for sentence in sentences for word in sentence.words]
    normalized = synthesizer.loaded.frontend.normalize(text, speaker.language)
    original, espeak_s = clock.speak(normalized, speaker)
    if len(espeak_s) != len(starts_s):
        return []
    mel = synthesizer.loaded.mel
    host = HostMel(mel)
    frame_s = mel.hop_length / mel.sample_rate
    path_T = warp(host(original.samples), host(spoken.samples))
    frames = np.clip(np.round(np.array(espeak_s) / frame_s).astype(int), 0, len(path_T) - 1)
    return [
        1000 * abs(float(place) * frame_s - start_s) for place, start_s in zip(path_T[frames], starts_s, strict=True)
    ]


def warp(one_TM: NDArray[np.floating], other_UM: NDArray[np.floating]) -> NDArray[np.float64]:
    """The frame of the second sound that belongs to each frame of the first, by dynamic time warping."""
    one_TM, other_UM = (mel - mel.mean(axis=0) for mel in (one_TM, other_UM))
    cost_TU = np.abs(one_TM[:, None] - other_UM[None]).mean(axis=2)
    total_TU = np.full((len(one_TM) + 1, len(other_UM) + 1), np.inf)
    total_TU[0, 0] = 0.0
    for row, costs in enumerate(cost_TU, 1):
        best = np.minimum(total_TU[row - 1, 1:], total_TU[row - 1, :-1])
        for column in range(1, len(costs) + 1):
            total_TU[row, column] = costs[column - 1] + min(best[column - 1], total_TU[row, column - 1])
    row, column = len(one_TM), len(other_UM)
    places: list[list[int]] = [[] for _ in range(len(one_TM))]
    while row and column:
        places[row - 1].append(column - 1)
        moves = {
            (row - 1, column - 1): total_TU[row - 1, column - 1],
            (row - 1, column): total_TU[row - 1, column],
            (row, column - 1): total_TU[row, column - 1],
        }
        row, column = min(moves, key=lambda move: moves[move])
    return np.array([np.mean(found) for found in places])
