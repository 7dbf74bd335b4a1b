"""Times of a spoken text: frames of each token, times of words and sentences, and subtitles from them.

Shape legend: N tokens, S states of tokens, T frames, M mel bands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DataError, UsageError
from myxtts.features.definition import MelDefinition
from myxtts.storage.atomic import write_atomically
from myxtts.synthesis.sentences import Piece
from myxtts.text.explain import ExplainedWord
from myxtts.text.frontend import FrontEnd
from myxtts.text.inventory import SPACE, SPECIALS
from myxtts.text.ipa import parse_word, split_ipa
from myxtts.text.tokenizer import CharacterTokenizer, PhonemeTokenizer
from myxtts.types import Floats, Waveform

MAX_FRAMES = 6144
"""The longest piece that can be synthesised."""
_SILENCE_RANGE = 3.5
"""Frames this far below the loudest are silence: natural logarithm of the magnitude, 30 dB."""
_FRAMES_BEFORE, _FRAMES_BEHIND = 8, 12
"""Silent frames that stay at the ends of a piece, about 0.1 s: soft consonants are among them."""
SUBTITLE_ENDINGS = (".srt", ".vtt", ".json")


@dataclass(frozen=True, eq=False)
class TimedText:
    """A text with its durations: `state_frames` are the frames of each state, 0 behind the last of `num_tokens` tokens.

    `states` is the rest of what the decoder needs, as arrays of its engine; the last is F0 and voicing [1, S, 2].
    """

    states: tuple[Any, ...]
    state_frames: NDArray[np.int32]
    states_per_token: int
    num_tokens: int

    @property
    def num_frames(self) -> int:
        return int(self.state_frames.sum())

    def change_f0(self, factor: float, offset: float) -> TimedText:
        """The same text with other F0: that of every state times `factor`, and `offset` more."""
        *others, pitch_1S2 = self.states
        changed = pitch_1S2 * np.array([factor, 1.0], np.float32) + np.array([offset, 0.0], np.float32)
        return replace(self, states=(*others, changed))

    @property
    def token_frames(self) -> NDArray[np.int32]:
        """Frames of each token."""
        by_token: NDArray[np.int32] = self.state_frames.reshape(-1, self.states_per_token).sum(axis=1)[
            : self.num_tokens
        ]
        return by_token

    def stretch(self, num_frames: int) -> TimedText:
        """Returns the text with all durations scaled so that it lasts exactly `num_frames`."""
        ends_S = np.floor(np.cumsum(self.state_frames, dtype=np.float64) * (num_frames / self.num_frames) + 0.5)
        return replace(self, state_frames=np.diff(ends_S, prepend=0).astype(np.int32))


def trim_silence(timed: TimedText, mel_TM: Floats) -> tuple[TimedText, Floats]:
    """Cuts long silence off both ends of a piece: cloned voices begin like their recordings, with noise and a pause."""
    level_T = np.logaddexp.reduce(mel_TM, axis=1)
    heard = np.flatnonzero(level_T > level_T.max() - _SILENCE_RANGE)
    start, stop = max(0, heard[0] - _FRAMES_BEFORE), min(len(mel_TM), heard[-1] + 1 + _FRAMES_BEHIND)
    ends_S = np.clip(np.cumsum(timed.state_frames), start, stop) - start
    return replace(timed, state_frames=np.diff(ends_S, prepend=0).astype(np.int32)), mel_TM[start:stop]


def check_length(timed: TimedText, mel: MelDefinition) -> None:
    """Raises DataError for a prediction of more than `MAX_FRAMES`."""
    if timed.num_frames > MAX_FRAMES:
        seconds = timed.num_frames * mel.hop_length / mel.sample_rate
        raise DataError(
            f"The model would take {seconds:.0f} s to say {timed.num_tokens} tokens.",
            next_step="Raise the speed, or train the model longer: its durations are not good yet.",
        )


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word as it is spoken, and when, in seconds from the beginning of the sound."""

    word: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class TimedSentence:
    """A sentence as it is written, when it is spoken, and its words as they are spoken."""

    text: str
    start_s: float
    end_s: float
    words: tuple[TimedWord, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SpokenPiece:
    """The sound of a piece, `silence_s` of silence at its beginning included, and the frames of its tokens [N]."""

    piece: Piece
    wave: Waveform
    silence_s: float
    token_frames: NDArray[np.int32]


def time_sentences(parts: Iterable[SpokenPiece], frame_s: float) -> list[TimedSentence]:
    """Returns the times of the sentences whose pieces follow each other; `frame_s` is how long a frame lasts."""
    sentences: list[TimedSentence] = []
    last, start_s = -1, 0.0
    for part in parts:
        piece, speech_s = part.piece, start_s + part.silence_s
        start_s += part.wave.duration_s
        if not len(piece.ids):
            continue
        words = time_words(piece, part.token_frames, frame_s, speech_s)
        if piece.sentence == last:
            before = sentences.pop()
            speech_s, words = before.start_s, before.words + words
        sentences.append(TimedSentence(piece.written or piece.text, round(speech_s, 4), round(start_s, 4), words))
        last = piece.sentence
    return sentences


def time_words(piece: Piece, frames_N: NDArray[np.int32], frame_s: float, start_s: float) -> tuple[TimedWord, ...]:
    """Returns the words of a piece with their times; `frames_N` are those of its tokens.

    A word without a sound, such as an emoji, lasts no time. Pauses and punctuation belong to no word; the space between
    two words belongs to the second.
    """
    explained = piece.frontend.explain_normalized(piece.text, piece.language)
    ends_s = start_s + np.concatenate([[0], np.cumsum(frames_N)]) * frame_s
    spans = _locate_words(piece.ids, piece.frontend, explained)
    assert not spans or spans[-1][1] < len(ends_s), f"{spans[-1]} of {len(ends_s)} tokens"
    return tuple(
        TimedWord(word.word, round(float(ends_s[first]), 4), round(float(ends_s[last]), 4))
        for word, (first, last) in zip(explained, spans, strict=True)
    )


def _locate_words(
    ids_N: NDArray[np.int32], frontend: FrontEnd, words: Sequence[ExplainedWord]
) -> list[tuple[int, int]]:
    """Returns for each word its first token, and the one behind its last."""
    tokenizer = frontend.tokenizer
    if isinstance(tokenizer, PhonemeTokenizer):
        symbols = tokenizer.inventory.unpack(ids_N)[:, 0]
        is_sound = symbols >= len(SPECIALS)
        is_space = symbols == SPECIALS.index(SPACE)
        lengths = [
            sum(len(parse_word(piece, tokenizer.inventory)[0]) for piece in split_ipa(word.ipa)) for word in words
        ]
    else:
        assert isinstance(tokenizer, CharacterTokenizer), f"{type(tokenizer)} has no words"
        # Each character of a word is a token; spaces are none of its own.
        decoded = tokenizer.decode(ids_N)
        is_sound = np.array([False, *(not character.isspace() for character in decoded), False])
        is_space = np.array([False, *map(_is_joint, " " + decoded, decoded), False])
        lengths = [len(tokenizer.canonicalize(word.word).replace(" ", "")) for word in words]
    places = np.flatnonzero(is_sound)
    cuts = np.concatenate([[0], np.cumsum(lengths)])
    # Letters that only a whole clause has, such as those of a liaison, are shared out.
    scale = len(places) / cuts[-1] if cuts[-1] else 0.0
    bounds = np.floor(cuts * scale + 0.5).astype(int)
    # Between two words without a mark there is no pause: what the space lasts is the beginning of the next sound, as
    # the times of espeak-ng show.
    starts = places - is_space[np.maximum(places - 1, 0)]
    return [
        (int(starts[first]), int(places[last - 1]) + 1) if last > first else _stand_between(places, first)
        for first, last in pairwise(bounds.tolist())
    ]


def _is_joint(before: str, character: str) -> bool:
    """Whether a character is a space behind a letter, not behind punctuation."""
    return character.isspace() and before.isalnum()


def _stand_between(places: NDArray[np.intp], index: int) -> tuple[int, int]:
    """The span of a word without tokens: none, before the next sound."""
    place = int(places[index]) if index < len(places) else int(places[-1]) + 1 if len(places) else 0
    return place, place


def check_subtitle_path(path: Path) -> Path:
    """Returns the path; raises UsageError for the ending of a format that cannot be written."""
    if path.suffix.lower() not in SUBTITLE_ENDINGS:
        raise UsageError(
            f"Subtitles cannot be written as {path.suffix or 'a file without an ending'} ({path}).",
            next_step=f"Use one of {', '.join(SUBTITLE_ENDINGS)}.",
        )
    return path


def write_subtitles(path: Path, sentences: Sequence[TimedSentence]) -> None:
    """Writes sentences as SubRip (.srt), WebVTT with a time for each word (.vtt), or JSON (.json)."""
    ending = check_subtitle_path(path).suffix.lower()
    if ending == ".json":
        lines: Iterable[str] = [json.dumps({"sentences": [asdict(item) for item in sentences]}, ensure_ascii=False)]
    else:
        lines = _list_srt_lines(sentences) if ending == ".srt" else _list_vtt_lines(sentences)
    with write_atomically(path) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())


def _list_srt_lines(sentences: Iterable[TimedSentence]) -> Iterator[str]:
    for number, sentence in enumerate(sentences, 1):
        span = f"{_format_time(sentence.start_s, ',')} --> {_format_time(sentence.end_s, ',')}"
        yield from (str(number), span, _join_lines(sentence.text), "")


def _list_vtt_lines(sentences: Iterable[TimedSentence]) -> Iterator[str]:
    yield from ("WEBVTT", "")
    for sentence in sentences:
        yield f"{_format_time(sentence.start_s)} --> {_format_time(sentence.end_s)}"
        yield " ".join(f"<{_format_time(word.start_s)}><c>{_escape(word.word)}</c>" for word in sentence.words)
        yield ""


def _format_time(seconds: float, point: str = ".") -> str:
    """Hours, minutes, seconds and milliseconds."""
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{point}{rest % 1000:03}"


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def _escape(word: str) -> str:
    return word.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
