"""Readings of Persian words that the recordings of a corpus decided, in readings.jsonl beside the corpus file.

Each line is an utterance: its id, its text, and the words that are read otherwise than the front end would. The file is
made by `precompute --refine-with`, and people may change it: a word without `gain` was set by hand and stays, a line
that is removed gives the utterance back to the front end, and so does a text that has changed since.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Self

import google_crc32c
from pydantic import Field

from myxtts.errors import DataError, refuse
from myxtts.storage.atomic import write_file
from myxtts.storage.json_file import FileModel, JsonRefusedError, Listed, parse_json_line
from myxtts.storage.regular_file import explain_read_errors, read_regular
from myxtts.text.frontend import FrontEnd
from myxtts.text.languages import find_primary_code
from myxtts.text.lexicon import find_ipa_problem
from myxtts.text.persian.reading import Choice
from myxtts.types import Utterance

READINGS_FILE_NAME = "readings.jsonl"
_MAX_BYTES = 500_000_000
_CHUNK_UTTERANCES = 256
_ADVICE = "Correct the line, or remove it: the front end then reads this text as before."


class ReadingOfWord(FileModel):
    """How one word is read. `gain` is how much likelier the recording is than with the front end's own reading, as
    the logarithm of the odds; None where a person chose the reading.
    """

    place: Annotated[int, Field(ge=0)]
    word: Annotated[str, Field(min_length=1)]
    ezafe: bool
    ipa: str = ""
    gain: float | None = None

    @classmethod
    def of(cls, choice: Choice, gain: float) -> Self:
        return cls(place=choice.place, word=choice.word, ezafe=choice.ezafe, ipa=choice.ipa, gain=gain)

    def to_choice(self) -> Choice:
        return Choice(self.place, self.word, self.ezafe, self.ipa)


class UtteranceReadings(FileModel):
    """A line of the file."""

    id: Annotated[str, Field(min_length=1)]
    text: str
    words: Listed[ReadingOfWord]

    @property
    def choices(self) -> tuple[Choice, ...]:
        return tuple(word.to_choice() for word in self.words)


Readings = Mapping[str, UtteranceReadings]
"""By the id of the utterance."""


def load_readings(folder: Path) -> Readings:
    """Reads the file in the folder of a corpus; no file is no readings. Raises DataError at a line that is wrong."""
    found = {}
    for number, line in enumerate(_read(folder).splitlines(), start=1):
        if line.strip():
            reading = _parse_line(line, f"{folder / READINGS_FILE_NAME}:{number}")
            found[reading.id] = reading
    return found


def checksum_readings(folder: Path, checksum: int) -> int:
    """Returns the crc32c of a corpus file, extended by its readings; the same where there are none."""
    return int(google_crc32c.extend(checksum, _read(folder)))


def _read(folder: Path) -> bytes:
    path = folder / READINGS_FILE_NAME
    if not path.exists():
        return b""
    with explain_read_errors(lambda reason: refuse(path, reason, "Remove the file, or restore it from a backup.")):
        return read_regular(path, _MAX_BYTES)


def _parse_line(line: bytes, place: str) -> UtteranceReadings:
    try:
        reading = parse_json_line(line, UtteranceReadings)
    except JsonRefusedError as error:
        raise DataError(f"{place} cannot be read ({error}).", next_step=_ADVICE) from error
    for word in reading.words:
        problem = find_ipa_problem(word.ipa) if word.ipa else ""
        if problem:
            raise DataError(f"{place}: {word.ipa!r} {problem}.", next_step=_ADVICE)
    return reading


def save_readings(folder: Path, readings: Iterable[UtteranceReadings]) -> Path:
    """Writes the file, whole or not at all; without readings it is removed."""
    path = folder / READINGS_FILE_NAME
    lines = [json.dumps(item.model_dump(exclude_defaults=True), ensure_ascii=False) for item in readings if item.words]
    if not lines:
        path.unlink(missing_ok=True)
        return path
    write_file(path, "".join(f"{line}\n" for line in lines).encode("utf-8"))
    return path


def apply_readings(utterances: Iterator[Utterance], readings: Readings, frontend: FrontEnd) -> Iterator[Utterance]:
    """Yields the utterances, those with readings with the IPA of their text. IPA of the corpus itself comes first."""
    while chunk := list(islice(utterances, _CHUNK_UTTERANCES)):
        known = [one for one in chunk if _is_valid(one, readings)]
        ipa = iter(_phonemize(known, readings, frontend))
        for utterance in chunk:
            yield replace(utterance, phonemes=next(ipa)) if _is_valid(utterance, readings) else utterance


def _is_valid(utterance: Utterance, readings: Readings) -> bool:
    found = readings.get(utterance.id)
    if found is None or utterance.phonemes or found.text != utterance.text:
        return False
    return find_primary_code(utterance.language) == "fa"


def _phonemize(utterances: Sequence[Utterance], readings: Readings, frontend: FrontEnd) -> list[str]:
    texts = [frontend.normalize(one.text, "fa") for one in utterances]
    return frontend.phonemize_chosen(texts, "fa", [readings[one.id].choices for one in utterances]) if texts else []
