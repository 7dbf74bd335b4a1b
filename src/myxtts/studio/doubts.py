"""Reasons to doubt a clip: those of `collect`, of a file (`--doubts`), and a few that need no decoding.

A doubt is a number from 0 to 1 with reasons. Clips are shown by falling doubt; from `DOUBTFUL` on they count as
doubtful until the user has confirmed, corrected or dropped them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from myxtts.corpus.formats.edited import DOUBTFUL_FILE
from myxtts.errors import refuse
from myxtts.storage.json_file import JsonRefusedError, Listed, parse_json_line
from myxtts.storage.regular_file import explain_read_errors, open_regular, read_log_lines
from myxtts.studio.sound import LIMITS
from myxtts.tools.words import mark

DOUBTFUL = 0.5
_MIN_CLIPS_TO_COMPARE = 10
"""With fewer clips the usual pace of a speaker cannot be estimated."""
_NOTICED = 0.25
"""Smaller differences of pace are usual."""
_LETTERS = mark("{found} letters a second, {usual} are usual")
_MISSING = mark("the recording is missing or cannot be read")
_EMPTY = mark("there is no text")
_LENGTH = mark("{found} s long, and clips have {low} to {high} s")
_OF_COLLECT = mark(
    {
        r"its voice is \S+ times as far from the main voice as is usual": "it sounds like another voice",
        r"(?P<found>\S+) % of the samples are at full scale, .*": "clipped: {found} % of the samples are at full scale",
        r"the speech is (?P<found>\S+) dB above the noise, .*": "noisy: the speech is only {found} dB above the noise",
        r"its sound is hardly like the text \(.*\)": "the sound is hardly like the text",
        r"its sound is not like the text": "the sound is not like the text",
        r"the sound of its first half is not like the text": "the sound of the first half is not like the text",
        r"the sound of its second half is not like the text": "the sound of the second half is not like the text",
        r"no pause is near its start": "there is no pause at its start: words may be missing, or too many",
        r"no pause is near its end": "there is no pause at its end: words may be missing, or too many",
        r"it would be spoken (?P<found>\S+) times as fast as the rest": "the text is long for the sound: it would be "
        "spoken {found} times as fast as the rest",
        r"it would be spoken (?P<found>\S+) times as slowly as the rest": "the text is short for the sound: it would "
        "be spoken {found} times as slowly as the rest",
        r"its subtitle overlaps another one by (?P<found>\S+) s": "its subtitle overlaps another one by {found} s: "
        "words may be missing, or too many",
        r"there is no text for it": "there is no text",
        r"(?P<found>\S+) letters a second, (?P<usual>\S+) are usual": "{found} letters a second, {usual} are usual",
    }
)
"""What `collect` writes, as patterns, and how the page says it."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A text that the page translates, with values for its placeholders."""

    text: str
    values: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "values": dict(self.values)}


@dataclass(frozen=True, slots=True)
class Doubt:
    """How likely something is wrong with a clip, and why."""

    value: float = 0.0
    reasons: tuple[Reason, ...] = ()

    def join(self, other: Doubt) -> Doubt:
        return Doubt(max(self.value, other.value), self.reasons + other.reasons)


NO_DOUBT = Doubt()


class _Line(BaseModel):
    """A line of a file of doubts; other fields are for other tools."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False)
    id: str
    doubt: Annotated[float, Field(ge=0, le=1)]
    reasons: Listed[str] = ()


class _Doubtful(BaseModel):
    """A line of `doubtful.jsonl`, which `collect` writes; its other fields are those of the manifest."""

    model_config = ConfigDict(extra="ignore")
    id: str
    doubt: str = ""


def read_doubts(path: Path) -> dict[str, Doubt]:
    """Reads a file of doubts, one JSON object a line: {"id", "doubt": 0..1, "reasons": [...]}; raises DataError."""
    doubts: dict[str, Doubt] = {}
    for number, line in _read_lines(path):
        try:
            found = parse_json_line(line, _Line)
        except JsonRefusedError as error:
            example = '{"id": "clip_1", "doubt": 0.9, "reasons": ["noise"]}'
            raise refuse(path, f"line {number}: {error}", f"Write lines such as {example}.") from error
        doubts[found.id] = Doubt(found.doubt, tuple(map(Reason, found.reasons)))
    return doubts


def read_collect_doubts(folder: Path) -> dict[str, Doubt]:
    """Reads why `collect` does not use its doubtful clips; lines that cannot be read are reported by `prepare`."""
    doubts: dict[str, Doubt] = {}
    for _, line in _read_lines(folder / DOUBTFUL_FILE):
        try:
            found = parse_json_line(line, _Doubtful)
        except JsonRefusedError:
            continue
        doubts[found.id] = Doubt(1.0, (_explain_collect(found.doubt),) if found.doubt else ())
    return doubts


def _explain_collect(doubt: str) -> Reason:
    """The reason in words for the page, without the code of the rejection before it; unknown ones as they are."""
    detail = doubt.partition(": ")[2]
    for pattern, text in _OF_COLLECT.items():
        found = re.fullmatch(pattern, detail)
        if found:
            return Reason(text, found.groupdict())
    return Reason(doubt)


def _read_lines(path: Path) -> Iterable[tuple[int, bytes]]:
    explained = explain_read_errors(lambda reason: refuse(path, reason, "Name a file of JSON lines."))
    with explained, open_regular(path) as file:
        for number, line in enumerate(read_log_lines(file), 1):
            if line.strip():
                yield number, line


def find_doubts(clips: Iterable[tuple[str, str, str, float | None]]) -> dict[str, Doubt]:
    """Returns doubts by what is known without decoding, for (id, speaker, text, seconds or None where it is missing).

    The letters a second are compared with the median of the same speaker.
    """
    clips = list(clips)
    paces: dict[str, list[float]] = {}
    for _, speaker, text, seconds in clips:
        if seconds and _count_letters(text):
            paces.setdefault(speaker, []).append(_count_letters(text) / seconds)
    usual = {
        speaker: float(np.median(rates)) for speaker, rates in paces.items() if len(rates) >= _MIN_CLIPS_TO_COMPARE
    }
    doubts = {id: _judge(text, seconds, usual.get(speaker)) for id, speaker, text, seconds in clips}
    return {id: doubt for id, doubt in doubts.items() if doubt.value}


def _judge(text: str, seconds: float | None, usual: float | None) -> Doubt:
    if seconds is None:
        return Doubt(1.0, (Reason(_MISSING),))
    found = NO_DOUBT
    if not LIMITS.min_duration_s <= seconds <= LIMITS.max_duration_s:
        low, high = f"{LIMITS.min_duration_s:g}", f"{LIMITS.max_duration_s:g}"
        found = Doubt(1.0, (Reason(_LENGTH, {"found": f"{seconds:.1f}", "low": low, "high": high}),))
    if not _count_letters(text):
        return found.join(Doubt(1.0, (Reason(_EMPTY),)))
    if usual is None or not seconds:
        return found
    pace = _count_letters(text) / seconds
    # Twice or half the usual pace is a doubt of 0.5, four times or a quarter of it one of 0.9.
    value = min(0.9, abs(math.log2(pace / usual)) / 2)
    if value < _NOTICED:
        return found
    return found.join(Doubt(round(value, 2), (Reason(_LETTERS, {"found": f"{pace:.0f}", "usual": f"{usual:.0f}"}),)))


def _count_letters(text: str) -> int:
    return sum(letter.isalnum() for letter in text)
