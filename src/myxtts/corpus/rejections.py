"""Reasons for rejecting an utterance, and the rejection report: nothing is skipped silently.

A rejection names the transcript's file and line, the recording, the reason and what to do about it. The report is
written as it grows, so that a million rejections cost no memory.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from myxtts.storage.atomic import write_atomically

NUM_EXAMPLES = 20
"""Rejections kept in memory, to show on the screen and in JSON output, besides the first of each reason."""
_NUM_REASONS_SHOWN = 8


class Reason(StrEnum):
    """Reason of a rejection: the word used in reports, and the advice for the user."""

    what_to_do: str

    def __new__(cls, word: str, what_to_do: str) -> Self:
        reason = str.__new__(cls, word)
        reason._value_ = word
        reason.what_to_do = what_to_do
        return reason

    MISSING_FILE = "missing-file", "Put the recording where the transcript says, or remove the line."
    UNREADABLE = "unreadable", "Export the recording again from its source as WAV or FLAC."
    FOREIGN_FORMAT = (
        "unsupported-format",
        'Convert it: for f in *.webm; do ffmpeg -i "$f" "${f%.*}.wav"; done (the transcript may keep its names).',
    )
    TRUNCATED = "truncated", "Copy the recording again from its source: the end of the file is missing."
    EMPTY = "empty", "Record the clip again, or remove the line."
    SILENT = "silent", "Record the clip again, or remove the line; --set data.silence_db=-90 accepts very quiet clips."
    TOO_SHORT = "too-short", "Join it with its neighbour, or accept it with --set data.min_duration_s=SECONDS."
    TOO_LONG = (
        "too-long",
        "Cut it in its pauses (myxtts collect RECORDINGS --out CORPUS), or accept it: --set data.max_duration_s=60.",
    )
    CLIPPED = "clipped", "Record with less gain, or accept it with --set data.max_clipped_share=SHARE."
    BAD_RATE = "bad-sample-rate", "Convert the recording to a rate between 8000 and 48000 Hz."
    BAD_CHANNELS = "too-many-channels", "Mix the recording to mono or stereo, or raise data.max_channels."
    # {encoding} is filled in by `transcripts`.
    WRONG_ENCODING = "wrong-encoding", "Convert the transcript to UTF-8, e.g. iconv -f {encoding} -t UTF-8 FILE > NEW."
    BAD_LINE = "bad-line", "Correct the line; the report says what cannot be read."
    MISSING_COLUMN = "missing-column", "Add the missing column to the line, with the separator the other lines use."
    DUPLICATE_ID = "duplicate-id", "Give every utterance its own id."
    DUPLICATE_AUDIO = "duplicate-audio", "Keep one of the two lines."
    EMPTY_TEXT = "empty-text", "Write down what is said, or remove the line."
    UNKNOWN_SYMBOLS = "unknown-symbols", "Replace the symbols by words, or remove them."
    UNKNOWN_LANGUAGE = (
        "unknown-language",
        "Use a language code such as en or fa, or --set data.text_frontend=characters.",
    )
    TOO_MANY_TOKENS = (
        "more-tokens-than-frames",
        "Check that the text belongs to this recording: it is too long for its sound.",
    )
    DOUBTFUL_TEXT = ("doubtful-text", "Hear the clip, and accept or correct its text: myxtts studio CORPUS.")
    OTHER_VOICE = "other-voice", "Hear the clip, and accept it if it is the right speaker: myxtts studio CORPUS."
    NOISY = "noisy", "Record in a quieter place, or accept it with --min-snr DECIBELS."
    WRONG_SCRIPT = "wrong-script", "Give --language with the language that the text is in."
    OUTSIDE_ROOT = "outside-corpus", "Copy the recording into the corpus folder, or name its folder with --audio-root."
    LEAK = "train-validation-leak", "Remove one of the two: a validation clip must not be trained on."
    CHANGED = "changed-since-checked", "Run myxtts prepare again, so that the corpus knows the new recording."


@dataclass(frozen=True, slots=True)
class Rejection:
    """One utterance, or one line, that cannot be used: `file` and `line` are those of the transcript.

    For a place in a long recording `file` is the recording, and `line` is 0.
    """

    id: str
    file: str
    line: int
    reason: Reason
    detail: str
    audio: str = ""
    what_to_do: str = ""

    def __post_init__(self) -> None:
        if not self.what_to_do:
            object.__setattr__(self, "what_to_do", self.reason.what_to_do)
        for name in ("id", "file", "detail", "audio"):
            # Lone surrogates, of JSON and of file names, cannot be written as UTF-8.
            text = getattr(self, name).encode("utf-8", "backslashreplace").decode()
            object.__setattr__(self, name, text)

    @property
    def place(self) -> str:
        """File and line; a place in a recording has no line."""
        return f"{self.file}:{self.line}" if self.line else self.file


def describe_reasons(reasons: Mapping[str, int], examples: Iterable[Rejection]) -> list[str]:
    """Returns a line for each of the most frequent reasons: how many, the first example, and what to do."""
    first: dict[str, Rejection] = {}
    for example in examples:
        first.setdefault(example.reason, example)
    lines = []
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
        shown = first.get(reason)
        name = f" ({shown.id})" if shown and shown.id else ""
        place = f": {shown.place}{name}, {shown.detail}. {shown.what_to_do}" if shown else ""
        lines.append(f"{count:,} {reason}{place}")
    left = len(lines) - _NUM_REASONS_SHOWN
    return lines if left <= 0 else [*lines[:_NUM_REASONS_SHOWN], f"and {left} more reasons"]


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
        self._csv.writerow(field.name for field in fields(Rejection))
        self._json.write("[")
        return self

    def add(self, rejection: Rejection) -> None:
        """Writes one rejection to both files and counts it."""
        row = {field.name: getattr(rejection, field.name) for field in fields(Rejection)}
        self._json.write((",\n " if self.counts else "\n ") + json.dumps(row, ensure_ascii=False))
        self._csv.writerow(_defuse(str(cell)) for cell in row.values())
        if len(self.examples) < NUM_EXAMPLES or rejection.reason not in self.counts:
            self.examples.append(rejection)
        self.counts[rejection.reason] += 1

    @property
    def total(self) -> int:
        return self.counts.total()

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            self._json.write("\n]\n")
        self._files.__exit__(*error)


class _TextView(io.TextIOWrapper):
    """UTF-8 text over a binary file, which stays open at the end."""

    def __init__(self, binary: io.BufferedIOBase | object) -> None:
        super().__init__(binary, encoding="utf-8", newline="\n")  # type: ignore[arg-type]

    def __exit__(self, *_: object) -> None:
        self.flush()
        self.detach()


def _defuse(cell: str) -> str:
    """Prevents CSV injection: quotes a cell that a spreadsheet would run as a formula."""
    return f"'{cell}" if cell[:1] in ("=", "+", "@", "\t", "\r") else cell
