"""Aligns a text with a recording of it, without a trained model: finds where each sentence begins and ends.

Each sentence is synthesised by espeak-ng, and the recording is aligned with the synthesised cepstra by monotonic
alignment search, as dynamic time warping does. The cepstra of both are normalised, and the synthesised ones get the
level and the noise of the recording. Long pauses are shortened before, since espeak-ng does not make them.

The alignment is made three times: after the first two the synthesised sounds are adapted to the recording's voice,
which tells the text from other speech far better. Between sentences the path may stay in a *gap*, at a price, for
speech that the text does not have, and it may pass over a sentence that is not in the recording. Whether a sentence is
what is spoken at its place is tested with decoys: if the same sounds in another order fit nearly as well, the text is
in doubt.

Shape legend: T frames of 32 ms, Q coefficients, M mel bands, S states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import soxr
from numpy.typing import NDArray
from scipy.fft import dct, idct

from myxtts.text.espeak import synthesize
from myxtts.text.normalize import normalize_text
from myxtts.text.phonemes import find_voice, split_clauses
from myxtts.tools.collect.activity import (
    CEPSTRA_PER_RECORD,
    NUM_COEFFICIENTS,
    NUM_MELS,
    RATE_HZ,
    RECORD_S,
    RECORD_SAMPLES,
    Activity,
    compute_mel,
)
from myxtts.tools.collect.adapt import Sounds
from myxtts.tools.collect.cuts import Pause
from myxtts.tools.collect.search import Skips, search_path
from myxtts.types import Floats

_WINDOW_STATES = 1000
"""32 s of synthesised speech, in which the place of the recording is looked for."""
_KEPT_PAUSE_RECORDS = 6
"""Of a longer pause, in the alignment: 0.2 s."""
_JUMP_COSTS = np.array([0.6, 0.0, 0.3, 1.5], np.float32)
"""Of staying in a state, and of moving on by one, two or three: slower or faster than espeak-ng speaks."""
_SPEECH_RANGE_DB = 35.0
"""Below the loudest frame; synthesised silence at both ends of a sentence is left out."""
_SPEECH_GAP_COST, _PAUSE_GAP_COST = 0.9, 0.6
"""Of a frame of speech and of a pause in a gap, as shares of the mean distance between any two frames. Speech and its
own text cost about 0.72, speech and another text 0.8, and more where the text is too short for it."""
_NEAREST_GAP_COSTS = (1.0, 0.95)
"""The same for speech after each adaptation, as a share of the distance to the most similar sounds of the text. Speech
and its own text cost about 0.87 and 0.79 of that, speech and another text 1 or more."""
_STRANGE_COST = 12.0
"""Of beginning to leave out speech, so that a single word is not left out because it fits badly."""
_MISSING_COST = 40.0
"""Of a sentence that is not in the recording."""
_NUM_COMPARED = 600
"""Sounds of the text, drawn at random, among which the most similar ones are looked for."""
_BORDER, _STRANGE, _BESIDE_STRANGE = -1, -2, -3
_GAP = (_BESIDE_STRANGE, _STRANGE, _BESIDE_STRANGE, _BORDER)
"""States between two sentences. The last one is the pause between them, which is reached from the sentence at once or
through the others: speech that belongs to no sentence, with a pause before and behind it."""
_BORDER_COST, _BESIDE_STRANGE_COST = 2.0, 4.0
"""Of a frame of speech there, instead of a pause, as shares of the mean distance between any two frames."""
_FORBIDDEN = 1e6
_MAX_DECOY_RATIO = 0.9
"""Of the costs of a text and its decoys: 0.36 to 0.84 for right texts, 0.93 and more for wrong ones."""
_MAX_HALF_RATIO, _MIN_HALVED_FRAMES = 0.94, 60
"""The same for each half of a sentence of two seconds or more: up to 0.88 for right texts."""
_NUM_PARTS = 5
"""Of the sentences; each is judged by what was learned from the others."""
_UNLIKE = "its sound is not like the text"
_MIN_STRANGE_S = 0.5
_MIN_RUN_FRAMES = 4
"""Of a sentence, before its first pause or behind its last: 0.13 s."""
_MIN_TEMPO, _MAX_TEMPO = 0.6, 1.5
"""Of a sentence, as a share of the usual ratio between its length and the synthesised one."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a sentence is spoken, to 32 ms and without regard to pauses. `doubt` is '' where nothing speaks against it.

    `is_alone` says that speech follows which belongs to no sentence.
    """

    start_s: float
    end_s: float
    doubt: str = ""
    is_alone: bool = False


def align_sentences(
    activity: Activity,
    pauses: Sequence[Pause],
    sentences: Sequence[str],
    language: str,
    progress: Callable[[float], None] = lambda _: None,
) -> list[Placed]:
    """Returns the place of each sentence, in order. `progress` gets the share that is done.

    Where a sentence is missing and other speech of its length is at its place, that gets the text, with a doubt.

    Raises MissingExtraError without espeak-ng, DataError where it has no voice for the language.
    """
    voice = find_voice(language)
    spoken = [_synthesize_mel(sentence, language, voice) for sentence in sentences]
    recorded = _condense(activity, pauses)
    states = _make_states(spoken, recorded)
    sounds = Sounds(states.frames[states.owners >= 0], int(np.count_nonzero(~recorded.is_pause)))
    path_T = _align(recorded, states, sounds, progress)
    judge = _Judge(recorded, states, sounds, path_T)
    sentence_T = states.owners[path_T]
    is_strange_T = (sentence_T < 0) & ~recorded.is_pause
    placed: list[Placed] = []
    usual_frames = states.count_frames() * _measure_tempo(sentence_T[~recorded.is_pause], states)
    borders = np.searchsorted(np.maximum.accumulate(sentence_T), np.arange(len(sentences) + 1))
    behind = 0
    for number in range(len(sentences)):
        own = slice(borders[number], borders[number + 1])
        frames = own.start + _find_spoken((sentence_T[own] == number) & ~recorded.is_pause[own])
        is_found = len(frames) > 0
        if not is_found:
            frames = behind + np.flatnonzero(is_strange_T[behind : own.start])
        doubt = _judge_tempo(len(frames) / usual_frames[number])
        if not is_found and doubt:
            behind_s = placed[-1].end_s if placed else 0.0
            placed.append(Placed(behind_s, behind_s, "it is not in the recording"))
            continue
        doubt = doubt or (judge.judge(number, frames) if is_found else _UNLIKE)
        behind = int(frames[-1]) + 1
        num_strange = np.count_nonzero(is_strange_T[behind : own.stop])
        start_s, end_s = recorded.records[frames[0]] * RECORD_S, (recorded.records[frames[-1]] + 1) * RECORD_S
        placed.append(Placed(start_s, end_s, doubt, bool(num_strange * RECORD_S > _MIN_STRANGE_S)))
    return placed


def _measure_tempo(sentence_T: NDArray[np.int64], states: _States) -> float:
    """Returns how many frames of the recording one of the synthesised text takes, as the median of the sentences."""
    counts = states.count_frames()
    spoken = np.bincount(sentence_T[sentence_T >= 0], minlength=len(counts))
    return float(np.median((spoken / counts)[spoken > 0])) if spoken.any() else 1.0


def _align(
    recorded: _Recorded, states: _States, sounds: Sounds, progress: Callable[[float], None]
) -> NDArray[np.int64]:
    """Searches, adapts the states to the voice, and searches again; returns the path [T]."""
    num_rounds = 1 + len(_NEAREST_GAP_COSTS)

    def count(num_done: int) -> Callable[[float], None]:
        return lambda share: progress((num_done + share) / num_rounds)

    gap_cost = _SPEECH_GAP_COST * _measure_chance(recorded.frames, states.frames)
    path_T = _search(recorded, states, gap_cost, count(0))
    for num_done, share_of_nearest in enumerate(_NEAREST_GAP_COSTS, 1):
        scaled, adapted = _adapt(recorded, states, sounds, path_T)
        gap_cost_T = share_of_nearest * _measure_nearest(scaled, adapted)
        path_T = _search(scaled, adapted, gap_cost_T, count(num_done))
    return path_T


class _Judge:
    """Says whether sentences are spoken where the path has them, by sounds that were learned from other sentences.

    Sounds that were learned from a wrong text, too, would speak for it, in a short recording above all.
    """

    def __init__(self, recorded: _Recorded, states: _States, sounds: Sounds, path_T: NDArray[np.int64]) -> None:
        owners_T = states.owners[path_T]
        self._parts = [
            _adapt(recorded, states, sounds, path_T, owners_T % _NUM_PARTS != part) for part in range(_NUM_PARTS)
        ]

    def judge(self, number: int, frames: NDArray[np.int64]) -> str:
        recorded, states = self._parts[number % _NUM_PARTS]
        return _judge_sound(recorded.frames[frames], states.of_sentence(number))


def _find_spoken(is_own_T: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Returns the frames of a sentence, without a bit of the speech beyond the pause before or behind it.

    The path is free to put a sound or two there.
    """
    runs = np.split(frames := np.flatnonzero(is_own_T), np.flatnonzero(np.diff(frames) > 1) + 1)
    while len(runs) > 1 and len(runs[0]) < _MIN_RUN_FRAMES:
        runs.pop(0)
    while len(runs) > 1 and len(runs[-1]) < _MIN_RUN_FRAMES:
        runs.pop()
    return np.concatenate(runs)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """Cepstra [T, Q] of the recording without the middles of long pauses, and the records [T] that they come from.

    `noise` [M] is the log-mel of its pauses, `level` the mean log-mel of its speech.
    """

    frames: Floats
    records: NDArray[np.int64]
    is_pause: NDArray[np.bool_]
    noise: Floats
    level: float


@dataclass(frozen=True, slots=True)
class _States:
    """Frames [S, Q] of the synthesised text; `owners` [S] are the numbers of their sentences, below 0 in a gap."""

    frames: Floats
    owners: NDArray[np.int64]

    def count_frames(self) -> NDArray[np.int64]:
        """Returns the number of frames of each sentence."""
        return np.bincount(self.owners[self.owners >= 0])

    def of_sentence(self, number: int) -> Floats:
        first, last = np.searchsorted(np.maximum.accumulate(self.owners), [number, number + 1])
        own: Floats = self.frames[first:last][self.owners[first:last] == number]
        return own


def _adapt(
    recorded: _Recorded,
    states: _States,
    sounds: Sounds,
    path_T: NDArray[np.int64],
    is_used_T: NDArray[np.bool_] | None = None,
) -> tuple[_Recorded, _States]:
    """Returns the states in the voice of the recording, and both in units of what still differs."""
    is_own_S, is_seen_T = states.owners >= 0, (states.owners[path_T] >= 0) & ~recorded.is_pause
    if is_used_T is not None:
        is_seen_T &= is_used_T
    place_S = np.cumsum(is_own_S) - 1
    own_SQ, deviation_Q = sounds.adapt(recorded.frames[is_seen_T], place_S[path_T[is_seen_T]])
    frames_SQ = np.zeros_like(states.frames)
    frames_SQ[is_own_S] = own_SQ / deviation_Q
    return replace(recorded, frames=recorded.frames / deviation_Q), replace(states, frames=frames_SQ)


def _measure_nearest(recorded: _Recorded, states: _States) -> Floats:
    """Returns how near each frame [T] is to the most similar sounds of the text, wherever they are in it."""
    own_SQ = states.frames[states.owners >= 0]
    sounds_SQ = np.random.default_rng(0).permutation(own_SQ)[:_NUM_COMPARED]
    blocks = np.array_split(recorded.frames, len(recorded.frames) // 1000 + 1)
    shares = [np.percentile(_measure_distances(block, sounds_SQ), 10, axis=1) for block in blocks]
    return np.concatenate(shares).astype(np.float32)


def _search(
    recorded: _Recorded, states: _States, strange_cost: Floats | float, progress: Callable[[float], None]
) -> NDArray[np.int64]:
    """Returns the state of each frame. `strange_cost`, for all or [T], is what it costs to leave out speech."""
    chance = _measure_chance(recorded.frames, states.frames)
    of_speech = {_BORDER: _BORDER_COST * chance, _BESIDE_STRANGE: _BESIDE_STRANGE_COST * chance, _STRANGE: strange_cost}
    gap_costs = {
        kind: np.where(recorded.is_pause, _PAUSE_GAP_COST * chance, cost).astype(np.float32)
        for kind, cost in of_speech.items()
    }
    num_frames, num_states = len(recorded.frames), len(states.frames)

    def cost_of_block(start: int, stop: int, first: int, last: int) -> Floats:
        costs = _measure_distances(recorded.frames[start:stop], states.frames[first:last])
        for kind, gap_cost_T in gap_costs.items():
            costs[:, states.owners[first:last] == kind] = gap_cost_T[start:stop, None]
        return costs

    jump_costs = _make_jump_costs(states.owners)
    return search_path(
        num_frames,
        num_states,
        cost_of_block,
        jump_costs,
        window=_WINDOW_STATES,
        skips=_list_skips(states.owners),
        progress=lambda done: progress(done / num_frames),
    )


def _make_jump_costs(owners: NDArray[np.int64]) -> Floats:
    """Returns what it costs to enter each state [J, S]: how a sentence goes on, and the ways through a gap."""
    jump_costs = np.repeat(np.append(_JUMP_COSTS, _FORBIDDEN)[:, None], len(owners), axis=1).astype(np.float32)
    is_strange, is_border = owners == _STRANGE, owners == _BORDER
    jump_costs[0, owners < 0] = 0.0
    jump_costs[1, is_strange] = _STRANGE_COST
    jump_costs[2:, is_strange] = _FORBIDDEN
    jump_costs[2:4, is_border] = _FORBIDDEN
    jump_costs[len(_GAP), is_border] = 0.0
    behind_gap = np.flatnonzero(is_border)[:-1] + 1
    jump_costs[3, behind_gap] = _FORBIDDEN
    return jump_costs


def _list_skips(owners: NDArray[np.int64]) -> Skips:
    """A sentence may be missing in the recording: the border behind it can be entered from the one before it."""
    origins, borders = np.full(len(owners), -1), np.flatnonzero(owners == _BORDER)
    origins[borders[1:]] = borders[:-1]
    return Skips(origins, _MISSING_COST)


def _synthesize_mel(sentence: str, language: str, voice: str) -> Floats:
    """Returns the log-mel of a sentence in espeak's voice, without silence at its ends; at least one frame."""
    words = " ".join(split_clauses(normalize_text(sentence, language)).parts)
    speech = synthesize(words, voice)
    samples = soxr.resample(speech.samples, speech.rate, RATE_HZ, quality="HQ")
    samples = np.pad(samples, (0, max(RECORD_SAMPLES - len(samples), -len(samples) % RECORD_SAMPLES)))
    level_db = 10 * np.log10(np.square(samples).reshape(-1, RECORD_SAMPLES).mean(axis=1) + 1e-10)
    loud = np.flatnonzero(level_db >= level_db.max() - _SPEECH_RANGE_DB)
    return compute_mel(samples)[CEPSTRA_PER_RECORD * loud[0] : CEPSTRA_PER_RECORD * (loud[-1] + 1)]


def _halve(cepstra: Floats) -> Floats:
    """Averages the cepstra of each record."""
    pairs = cepstra.reshape(-1, CEPSTRA_PER_RECORD, cepstra.shape[1])
    return np.asarray(pairs.mean(axis=1), np.float32)


def _condense(activity: Activity, pauses: Sequence[Pause]) -> _Recorded:
    """Normalises the cepstra of a recording and shortens its pauses."""
    is_kept = np.ones(len(activity.speech), bool)
    is_pause = np.zeros(len(activity.speech), bool)
    for pause in pauses:
        start, stop = round(pause.start_s / RECORD_S), round(pause.end_s / RECORD_S)
        is_pause[start:stop] = True
        if stop - start > _KEPT_PAUSE_RECORDS:
            is_kept[start + _KEPT_PAUSE_RECORDS // 2 : stop - _KEPT_PAUSE_RECORDS // 2] = False
    cepstra = _halve(activity.read_cepstra(0, len(activity.speech)))
    speech = cepstra[~is_pause]
    silence_Q = cepstra[is_pause].mean(axis=0) if is_pause.any() else speech.min(axis=0)
    mean_Q, deviation_Q = speech.mean(axis=0), speech.std(axis=0) + 1e-3
    return _Recorded(
        np.asarray((cepstra[is_kept] - mean_Q) / deviation_Q, np.float32),
        np.flatnonzero(is_kept),
        is_pause[is_kept],
        _to_mel(silence_Q),
        float(_to_mel(mean_Q).mean()),
    )


def _to_mel(cepstrum_Q: Floats) -> Floats:
    """Inverts the cosine transform: a smooth log-mel spectrum."""
    return np.asarray(idct(np.pad(cepstrum_Q, (0, NUM_MELS - NUM_COEFFICIENTS)), norm="ortho"), np.float32)


def _make_states(spoken: Sequence[Floats], recorded: _Recorded) -> _States:
    """Puts the synthesised sentences behind each other, with gaps between, before and behind them.

    They are shifted to the level of the recording and get its noise, which covers quiet sounds in both then.
    """
    level = np.concatenate(spoken).mean()
    noisy = [np.logaddexp(mel_TM - level + recorded.level, recorded.noise) for mel_TM in spoken]
    frames = [_halve(dct(mel_TM, axis=1, norm="ortho")[:, :NUM_COEFFICIENTS]) for mel_TM in noisy]
    everything = np.concatenate(frames)
    mean_Q, deviation_Q = everything.mean(axis=0), everything.std(axis=0) + 1e-3
    gap_frames, gap_numbers = np.zeros((len(_GAP), NUM_COEFFICIENTS)), np.array(_GAP)
    parts, numbers = [gap_frames], [gap_numbers]
    for number, frames_TQ in enumerate(frames):
        parts += [(frames_TQ - mean_Q) / deviation_Q, gap_frames]
        numbers += [np.full(len(frames_TQ), number), gap_numbers]
    return _States(np.concatenate(parts).astype(np.float32), np.concatenate(numbers))


def _measure_distances(one_TQ: Floats, other_SQ: Floats) -> Floats:
    """Euclidean distances [T, S]."""
    squares = np.square(one_TQ).sum(axis=1)[:, None] + np.square(other_SQ).sum(axis=1)[None]
    return np.asarray(np.sqrt(np.maximum(squares - 2 * one_TQ @ other_SQ.T, 0)), np.float32)


def _measure_chance(recorded_TQ: Floats, synthesised_SQ: Floats) -> float:
    """Mean distance between frames that are drawn at random."""
    draw = np.random.default_rng(0)
    return float(_measure_distances(draw.choice(recorded_TQ, 500), draw.choice(synthesised_SQ, 500)).mean())


def _judge_tempo(tempo: float) -> str:
    """Says whether a sentence would be spoken far faster or slower than the others."""
    if tempo < _MIN_TEMPO:
        return f"it would be spoken {1 / max(tempo, 0.01):.1f} times as fast as the rest"
    return f"it would be spoken {tempo:.1f} times as slowly as the rest" if tempo > _MAX_TEMPO else ""


def _judge_sound(frames_TQ: Floats, states_SQ: Floats) -> str:
    """Compares the costs of a sentence with those of its decoys: its halves swapped, reversed, and both."""
    swapped_SQ = np.roll(states_SQ, len(states_SQ) // 2, axis=0)
    own_T = _align_alone(frames_TQ, states_SQ)
    decoys = [_align_alone(frames_TQ, decoy) for decoy in (swapped_SQ, states_SQ[::-1], swapped_SQ[::-1])]
    decoy_T = np.mean(decoys, axis=0) + 1e-3
    ratio = own_T.mean() / decoy_T.mean()
    if ratio > _MAX_DECOY_RATIO:
        return f"its sound is hardly like the text ({ratio:.2f} of chance)"
    # The text may be right for one half, and the other half be speech that the text does not have.
    for name, half in (("first", slice(0, len(own_T) // 2)), ("second", slice(len(own_T) // 2, None))):
        if len(own_T) >= _MIN_HALVED_FRAMES and own_T[half].mean() > _MAX_HALF_RATIO * decoy_T[half].mean():
            return f"the sound of its {name} half is not like the text"
    return ""


def _align_alone(frames_TQ: Floats, states_SQ: Floats) -> Floats:
    """Returns the cost of each frame on the cheapest path through the states of one sentence."""
    distances_TS = _measure_distances(frames_TQ, states_SQ)
    jump_costs = np.repeat(_JUMP_COSTS[:, None], len(states_SQ), axis=1)
    path_T = search_path(
        len(frames_TQ),
        len(states_SQ),
        lambda start, stop, first, last: distances_TS[start:stop, first:last],
        jump_costs,
        window=_WINDOW_STATES,
    )
    jumps = np.clip(np.diff(path_T, prepend=path_T[0] - 1), 0, len(_JUMP_COSTS) - 1)
    return np.asarray(distances_TS[np.arange(len(path_T)), path_T] + _JUMP_COSTS[jumps], np.float32)
