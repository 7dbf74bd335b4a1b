"""Proof that an exported model speaks as the original: durations, spectrograms, sound, and how long both take.

Every voice says sentences with both engines, in every language unless there are many voices. Languages without
sentences here, and front ends that cannot run, are tested with random tokens.

Durations are rounded sums: where a border of two states lies half-way between two frames, the last bit of the sum
decides, and that differs between runtimes. Such a border may be moved by a frame; spectrograms are then compared with
the durations of the original.
Shape legend: N tokens, S states, T frames, R frames of a reference, M mel bands.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.demo.sentences import DEMO_LANGUAGES, compose_sentence, load_grammar
from myxtts.errors import ConfigError, MyXTTSError
from myxtts.synthesis.base_engine import Engine
from myxtts.synthesis.exported import Dtype, Proof
from myxtts.synthesis.loaded_bundle import LoadedBundle
from myxtts.synthesis.options import SpeechOptions
from myxtts.synthesis.timing import TimedText
from myxtts.synthesis.voices import SpeakerEmbedding
from myxtts.text.languages import find_code
from myxtts.types import Floats

LARGEST_DIFFERENCE = 1e-3
"""Of a value of a log-mel in float32, and of a speaker embedding."""
MEAN_DIFFERENCES: dict[Dtype, float] = {"float32": LARGEST_DIFFERENCE, "float16": 0.01, "int8": 0.1}
"""Mean absolute difference of log-mels (natural logarithm) that a dtype may cost: 0.1 is 0.9 dB."""
_MAX_MOVED_SHARE = 0.1
"""Of the sentences that may have a border that was rounded otherwise. One in 64 was seen."""
_NUM_SENTENCES = 3
_SEVERAL_VOICES, _MANY_VOICES = 3, 16
"""With more voices than the first number each says one sentence in each language, with more than the second in one."""
_RANDOM_LENGTHS = (9, 40, 90)
_NUM_REFERENCE_FRAMES = 301
_SEED = 11


@dataclass
class _Measures:
    """Sums over the sentences that both engines have said."""

    num_sentences: int = 0
    num_moved: int = 0
    num_values: int = 0
    total: float = 0.0
    largest: float = 0.0
    speech_s: float = 0.0
    took_s: dict[str, float] = field(default_factory=lambda: {"tensorflow": 0.0, "onnx": 0.0})

    def finish(self) -> Proof:
        return Proof(
            num_sentences=self.num_sentences,
            num_moved=self.num_moved,
            largest_difference=self.largest,
            mean_difference=self.total / self.num_values,
            real_time_factor=self.took_s["onnx"] / self.speech_s,
            tensorflow_real_time_factor=self.took_s["tensorflow"] / self.speech_s,
        )


def prove(
    original: Engine, exported: Engine, loaded: LoadedBundle, voices: dict[str, SpeakerEmbedding], dtype: Dtype
) -> Proof:
    """Lets both engines speak and returns what was measured; raises ConfigError where they differ too much."""
    _compare_encoders(original, exported, loaded)
    measures = _Measures()
    for place, language in enumerate(loaded.spec.languages):
        sentences = list_sentences(loaded, language)
        for number, name in enumerate(choose_voices(list(voices), place, len(loaded.spec.languages))):
            asked = sentences if len(voices) <= _SEVERAL_VOICES else [sentences[number % len(sentences)]]
            for ids in asked:
                _compare_speech(original, exported, loaded, (name, voices[name]), language, ids, measures)
    proof = measures.finish()
    if proof.num_moved > max(1, _MAX_MOVED_SHARE * proof.num_sentences):
        raise _refuse(f"durations are rounded otherwise in {proof.num_moved} sentences", "float32")
    limit = MEAN_DIFFERENCES[dtype]
    if proof.mean_difference > limit:
        raise _refuse(f"the mean difference of spectrograms is {proof.mean_difference:.2g}, above {limit:g}", dtype)
    if dtype == "float32" and proof.largest_difference > LARGEST_DIFFERENCE:
        differs = f"{proof.largest_difference:.2g}, above {LARGEST_DIFFERENCE:g}"
        raise _refuse(f"the largest difference of spectrograms is {differs}", dtype)
    return proof


def choose_voices(names: list[str], place: int, num_languages: int) -> list[str]:
    """The voices that speak the language at this place: all, but many take turns, so that each speaks one language."""
    step = min(num_languages, len(names)) if len(names) > _MANY_VOICES else 1
    return names[place % step :: step]


def list_sentences(loaded: LoadedBundle, language: str) -> list[NDArray[np.int32]]:
    """Token ids of several sentences: of the demo corpus where it knows the language, else random ones."""
    generator = np.random.default_rng(_SEED)
    code = find_code(language).partition("-")[0]
    if code in DEMO_LANGUAGES:
        texts = [compose_sentence(load_grammar(code), generator) for _ in range(_NUM_SENTENCES)]
        try:
            return [piece.ids for text in texts for piece in loaded.plan(text, language) if len(piece.ids)]
        except MyXTTSError:
            # Its front end needs what is not installed: the graphs can be compared without.
            pass
    size = prod(loaded.spec.factor_sizes)
    return [generator.integers(1, size, length).astype(np.int32) for length in _RANDOM_LENGTHS]


def _compare_encoders(original: Engine, exported: Engine, loaded: LoadedBundle) -> None:
    generator = np.random.default_rng(_SEED)
    spread = loaded.spec.mel_deviation
    mel_RM = generator.normal(loaded.spec.mel_mean, spread, (_NUM_REFERENCE_FRAMES, loaded.spec.n_mels))
    first, second = (engine.encode_reference(mel_RM.astype(np.float32)) for engine in (original, exported))
    difference = max(np.abs(first.vector - second.vector).max(), np.abs(first.latents - second.latents).max())
    if difference > LARGEST_DIFFERENCE:
        raise _refuse(f"speaker embeddings differ by {difference:.2g}, above {LARGEST_DIFFERENCE:g}", "float32")


def _compare_speech(
    original: Engine,
    exported: Engine,
    loaded: LoadedBundle,
    named: tuple[str, SpeakerEmbedding],
    language: str,
    ids: NDArray[np.int32],
    measures: _Measures,
) -> None:
    """Says one sentence with both engines and adds up what differs."""
    name, voice = named
    results: dict[str, tuple[TimedText, Floats]] = {}
    if not measures.num_sentences:
        # TensorFlow traces and onnxruntime allocates at the first call.
        for engine in (original, exported):
            _speak(engine, ids, language, voice)
    for kind, engine in _alternate(original, exported, measures.num_sentences):
        started = time.perf_counter()
        results[kind] = _speak(engine, ids, language, voice)
        measures.took_s[kind] += time.perf_counter() - started
    (timed, mel_TM), (other, other_TM) = results["tensorflow"], results["onnx"]
    # TensorFlow pads the states of a text.
    frames_S = timed.state_frames[: len(other.state_frames)]
    if not np.array_equal(frames_S, other.state_frames):
        if not is_rounded_otherwise(frames_S, other.state_frames):
            raise _refuse(f"the voice {name!r} gets other durations in {language}", "float32")
        measures.num_moved += 1
        other_TM = exported.decode(replace(other, state_frames=frames_S), voice, SpeechOptions(seed=_SEED))
    difference_TM = np.abs(mel_TM - other_TM)
    measures.num_sentences += 1
    measures.num_values += difference_TM.size
    measures.total += float(difference_TM.sum(dtype=np.float64))
    measures.largest = max(measures.largest, float(difference_TM.max(initial=0.0)))
    measures.speech_s += len(mel_TM) * loaded.mel.hop_length / loaded.mel.sample_rate


def is_rounded_otherwise(first_S: NDArray[np.int32], second_S: NDArray[np.int32]) -> bool:
    """Whether durations differ by one border of two states, and by one frame."""
    moved_S = np.cumsum(first_S) - np.cumsum(second_S)
    return int(np.abs(moved_S).sum()) == 1


def _alternate(original: Engine, exported: Engine, number: int) -> Iterator[tuple[str, Any]]:
    """Both engines, the other one first every time."""
    engines = [("tensorflow", original), ("onnx", exported)]
    return iter(engines if number % 2 == 0 else engines[::-1])


def _speak(engine: Engine, ids: NDArray[np.int32], language: str, voice: SpeakerEmbedding) -> tuple[TimedText, Floats]:
    """The text with its durations, and the log-mel; the sound is made for the sake of its time."""
    timed = engine.time_text(ids, language, voice)
    mel_TM = engine.decode(timed, voice, SpeechOptions(seed=_SEED))
    engine.make_sound(mel_TM, _SEED)
    return timed, mel_TM


def _refuse(problem: str, dtype: Dtype) -> ConfigError:
    advice = "Export it without --dtype." if dtype != "float32" else "Report it with the versions of pip freeze."
    return ConfigError(f"The exported model does not speak as the original: {problem}.", next_step=advice)
