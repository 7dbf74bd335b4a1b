"""Pairs of sounds for a blind comparison: two models say the same sentences, and recordings are mixed in.

Sentences are held-out ones of the first run's corpus, whose recordings can be mixed in, or the lines of a file. All
sounds have the same level of speech, since the louder of two sounds better. Which model is heard first, and the order
of the pairs, follow from a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from myxtts.config.load import RESOLVED_FILE_NAME
from myxtts.corpus.audio import FRAME_S, AudioLimits, measure_levels
from myxtts.corpus.corpus_file import open_corpus
from myxtts.errors import DataError, MyXTTSError, UsageError
from myxtts.features.audio import load_recording
from myxtts.features.wave_file import encode_sound
from myxtts.pipeline.splits import choose_store_folder_of_split
from myxtts.store.reader import FeatureStore
from myxtts.synthesis.loaded_bundle import LoadedBundle, VoiceLike
from myxtts.synthesis.sentences import read_texts
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.training.run.resume import load_run_settings
from myxtts.types import Utterance, Waveform

RECORDING = "recording"
_TARGET_DB = -26.0
"""Level of speech of all sounds."""
_MAX_PEAK = 0.99
_RECORDED_SHARE = 4
"""One of so many sentences is also heard as a recording beside a model."""
_MAX_SECONDS = 15.0
"""Longer sentences tire a listener, who cannot compare their beginnings any more."""
_SOUND_ENDING = ".flac"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text to compare, in a language and a voice; `recording` is the same text by that voice, if there is one."""

    text: str
    language: str | None = None
    voice: VoiceLike = None
    recording: Waveform | None = None


class Side(NamedTuple):
    """One of the two models: its name in the result, and what speaks with it."""

    name: str
    synthesizer: Synthesizer


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sounds of one sentence in the order in which they are heard; `names` say what they are."""

    text: str
    names: tuple[str, str]
    sounds: tuple[bytes, bytes]


def read_sentences(path: Path, voice: VoiceLike, language: str | None) -> list[Sentence]:
    """The lines of a file as sentences without recordings."""
    return [Sentence(line.text, line.language or language, voice) for line in read_texts(path)]


def choose_sentences(
    run: Path, loaded: LoadedBundle, number: int, voice: VoiceLike, language: str | None
) -> list[Sentence]:
    """Held-out sentences of a run's corpus, evenly spaced, in the voices of their speakers unless `voice` is given."""
    held_out = [row for row in _read_held_out(run) if row.duration_s <= _MAX_SECONDS]
    known = set(loaded.list_voices())
    if voice is None and loaded.spec.has_many_speakers:
        held_out = [row for row in held_out if row.speaker in known]
    if language is not None:
        code = loaded.find_language(language)
        held_out = [row for row in held_out if row.language == code]
    if not held_out:
        raise DataError(
            f"The corpus of {run} has no held-out sentence that both models could say.",
            next_step="Give sentences with --texts FILE, and a voice with --voice.",
        )
    places = np.unique(np.linspace(0, len(held_out) - 1, min(number, len(held_out))).round().astype(int))
    limits = AudioLimits.from_config(load_run_settings(run).data)
    sentences = []
    for row in (held_out[place] for place in places):
        own = row.speaker if voice is None and row.speaker in known else voice
        recording = load_recording(row.audio, loaded.audio, limits).wave if voice is None else None
        sentences.append(Sentence(row.text, row.language, own, recording))
    return sentences


def _read_held_out(run: Path) -> list[Utterance]:
    """Utterances of the validation split of a run's corpus."""
    if not (run / RESOLVED_FILE_NAME).is_file():
        raise UsageError(
            f"{run} is not the folder of a run, so it has no held-out sentences.", next_step="Give --texts FILE."
        )
    try:
        store = FeatureStore.open(choose_store_folder_of_split(load_run_settings(run).data, "val"))
        corpus = open_corpus(Path(store.state.origin.corpus))
    except MyXTTSError as error:
        raise type(error)(
            f"The held-out sentences of {run} cannot be read: {error.problem}", next_step="Give --texts FILE."
        ) from error
    return [row for row in corpus.utterances() if row.split == "val"]


def make_pairs(
    sentences: Sequence[Sentence],
    sides: tuple[Side, Side],
    *,
    seed: int,
    progress: Callable[[int], None] = lambda _done: None,
) -> list[Pair]:
    """Synthesises each sentence with both models, adds pairs with recordings, and shuffles everything by the seed."""
    generator = np.random.default_rng(seed)
    pairs: list[Pair] = []
    for number, sentence in enumerate(sentences):
        spoken = {side.name: _speak(side.synthesizer, sentence, seed) for side in sides}
        pairs.append(_order(sentence.text, spoken, generator))
        if sentence.recording is not None and number % _RECORDED_SHARE == 0:
            name = sides[(number // _RECORDED_SHARE) % len(sides)].name
            beside = {RECORDING: _encode(sentence.recording), name: spoken[name]}
            pairs.append(_order(sentence.text, beside, generator))
        progress(number + 1)
    return [pairs[place] for place in generator.permutation(len(pairs))]


def _order(text: str, sounds: dict[str, bytes], generator: np.random.Generator) -> Pair:
    first, second = (list(sounds)[place] for place in generator.permutation(2))
    return Pair(text, (first, second), (sounds[first], sounds[second]))


def _speak(synthesizer: Synthesizer, sentence: Sentence, seed: int) -> bytes:
    return _encode(synthesizer.say(sentence.text, sentence.voice, sentence.language, seed=seed))


def _encode(wave: Waveform) -> bytes:
    return encode_sound(match_level(wave), _SOUND_ENDING)


def match_level(wave: Waveform) -> Waveform:
    """Scales a sound so that its speech has the common level, without clipping."""
    size = max(1, round(FRAME_S * wave.rate))
    num_frames = len(wave.samples) // size
    peak = float(np.abs(wave.samples).max(initial=0.0))
    if num_frames == 0 or peak == 0.0:
        return wave
    frames: NDArray[np.float32] = wave.samples[: num_frames * size].reshape(num_frames, size)
    level_db = measure_levels(np.square(frames).mean(axis=1)).level_db
    gain = min(10 ** ((_TARGET_DB - level_db) / 20), _MAX_PEAK / peak)
    return Waveform(wave.samples * np.float32(gain), wave.rate)


def name_sides(first: Path, second: Path, steps: Iterable[int] | None) -> tuple[str, str]:
    """Names of the two models in the result: folders, and steps where checkpoints are compared; always different."""
    labels = [str(first), str(second)]
    if steps is not None:
        labels = [f"{label}, step {step}" for label, step in zip(labels, steps, strict=True)]
    if labels[0] == labels[1]:
        raise UsageError(
            f"Both models are {labels[0]}.", next_step="Name two runs, or two checkpoints: --checkpoints STEP,STEP."
        )
    return labels[0], labels[1]
