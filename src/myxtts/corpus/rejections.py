"""Reasons for rejecting an utterance, and the rejection report: nothing is skipped silently.

A rejection names the transcript's file and line, the recording, the reason and what to do about it. The report is
written as it grows, so that a million rejections cost no memory.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from myxtts.storage.atomic import write_atomically

_NUM_EXAMPLES = 20
"""Rejections kept in memory, to show on the screen and in JSON output."""


class Reason(StrEnum):
    """Reason of a rejection; the value is the word used in reports."""

    MISSING_FILE = "missing-file"
    UNREADABLE = "unreadable"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    SILENT = "silent"
    TOO_SHORT = "too-short"
    TOO_LONG = "too-long"
    CLIPPED = "clipped"
    BAD_RATE = "bad-sample-rate"
    BAD_CHANNELS = "too-many-channels"
    WRONG_ENCODING = "wrong-encoding"
    BAD_LINE = "bad-line"
    MISSING_COLUMN = "missing-column"
    DUPLICATE_ID = "duplicate-id"
    DUPLICATE_AUDIO = "duplicate-audio"
    EMPTY_TEXT = "empty-text"
    UNKNOWN_SYMBOLS = "unknown-symbols"
    UNKNOWN_LANGUAGE = "unknown-language"
    TOO_MANY_TOKENS = "more-tokens-than-frames"
    OUTSIDE_ROOT = "outside-corpus"
    LEAK = "train-validation-leak"
    CHANGED = "changed-since-checked"


# Advice for the user by reason; {encoding} is filled in by `transcripts`.
WHAT_TO_DO: dict[Reason, str] = {
    Reason.MISSING_FILE: "Put the recording where the transcript says, or remove the line.",
    Reason.UNREADABLE: "Export the recording again from its source as WAV or FLAC.",
    Reason.TRUNCATED: "Copy the recording again from its source: the end of the file is missing.",
    Reason.EMPTY: "Record the clip again, or remove the line.",
    Reason.SILENT: "Record the clip again, or remove the line; --set data.silence_db=-90 accepts very quiet clips.",
    Reason.TOO_SHORT: "Join it with its neighbour, or accept it with --set data.min_duration_s=SECONDS.",
    Reason.TOO_LONG: "Cut it at a pause, or accept it with --set data.max_duration_s=SECONDS.",
    Reason.CLIPPED: "Record with less gain, or accept it with --set data.max_clipped_share=SHARE.",
    Reason.BAD_RATE: "Convert the recording to a rate between 8000 and 48000 Hz.",
    Reason.BAD_CHANNELS: "Mix the recording to mono or stereo, or raise data.max_channels.",
    Reason.WRONG_ENCODING: "Convert the transcript to UTF-8, e.g. iconv -f {encoding} -t UTF-8 FILE > NEW.",
    Reason.BAD_LINE: "Correct the line; the report says what cannot be read.",
    Reason.MISSING_COLUMN: "Add the missing column to the line, with the separator the other lines use.",
    Reason.DUPLICATE_ID: "Give every utterance its own id.",
    Reason.DUPLICATE_AUDIO: "Keep one of the two lines.",
    Reason.EMPTY_TEXT: "Write down what is said, or remove the line.",
    Reason.UNKNOWN_SYMBOLS: "Replace the symbols by words, or remove them.",
    Reason.UNKNOWN_LANGUAGE: "Use a language code such as en or fa, or --set data.text_frontend=characters.",
    Reason.TOO_MANY_TOKENS: "Check that the text belongs to this recording: it is too long for its sound.",
    Reason.OUTSIDE_ROOT: "Copy the recording into the corpus folder, or name its folder with --audio-root.",
    Reason.CHANGED: "Run myxtts prepare again, so that the corpus knows the new recording.",
    Reason.LEAK: "Remove one of the two: a validation clip must not be trained on.",
}


@dataclass(frozen=True, slots=True)
class Rejection:
    """One utterance, or one line, that cannot be used: `file` and `line` are those of the transcript."""

    id: str
    file: str
    line: int
    reason: Reason
    detail: str
    audio: str = ""
    what_to_do: str = ""

    def __post_init__(self) -> None:
        if not self.what_to_do:
            object.__setattr__(self, "what_to_do", WHAT_TO_DO[self.reason])


class AudioProblem(Exception):  # noqa: N818 -- a finding that becomes a rejection, not an error
    """A recording that cannot be used. `check` turns it into a `Rejection`; `detail` has the measured values."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class RejectionReport:
    """Writes rejections.json and rejections.csv as the corpus is read; keeps counts, and the first few to show.

    Both files become visible at the end of the `with` block; after an exception none does.
    """

    COLUMNS = ("id", "file", "line", "reason", "detail", "audio", "what_to_do")

    def __init__(self, folder: Path) -> None:
        self.counts: Counter[Reason] = Counter()
        self.examples: list[Rejection] = []
        self._folder = folder
        self._files = ExitStack()

    def __enter__(self) -> Self:
        # If the second file cannot be opened, the first one is removed at once.
        with ExitStack() as files:
            json_file = files.enter_context(write_atomically(self._folder / "rejections.json"))
            csv_file = files.enter_context(write_atomically(self._folder / "rejections.csv"))
            self._json = files.enter_context(_TextView(json_file))
            self._csv_text = files.enter_context(_TextView(csv_file))
            self._files = files.pop_all()
        # A spreadsheet takes a CSV for UTF-8 only behind a byte order mark; without it Persian turns to noise.
        self._csv_text.write("\ufeff")
        self._csv = csv.writer(self._csv_text)
        self._csv.writerow(self.COLUMNS)
        self._json.write("[")
        return self

    def add(self, rejection: Rejection) -> None:
        """Writes one rejection to both files and counts it."""
        row = asdict(rejection)
        self._json.write(",\n " if self.total else "\n ")
        json.dump(row, self._json, ensure_ascii=False)
        self._csv.writerow([_defuse(str(row[column])) for column in self.COLUMNS])
        self.counts[rejection.reason] += 1
        if len(self.examples) < _NUM_EXAMPLES:
            self.examples.append(rejection)

    @property
    def total(self) -> int:
        return self.counts.total()

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            self._json.write("\n]\n")
        self._files.__exit__(*error)


class _TextView(io.TextIOWrapper):
    """UTF-8 text over a binary file, which stays open at the end. Lone surrogates are written as escapes."""

    def __init__(self, binary: io.BufferedIOBase | object) -> None:
        super().__init__(binary, encoding="utf-8", errors="backslashreplace", newline="\n")  # type: ignore[arg-type]

    def __exit__(self, *_: object) -> None:
        self.flush()
        self.detach()


def _defuse(cell: str) -> str:
    """Prevents CSV injection: quotes a cell that a spreadsheet would run as a formula."""
    return f"'{cell}" if cell[:1] in ("=", "+", "@", "\t", "\r") else cell
