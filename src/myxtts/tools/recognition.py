"""Runs the user's speech recogniser (ASR) on recordings, and compares its transcript with a text (WER, CER)."""

from __future__ import annotations

import shlex
import subprocess
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from myxtts.errors import ConfigError, UsageError

_TIMEOUT_S = 300.0
"""For one recording: the recogniser is a new process each time and may have to load its model."""
_WAV, _LANGUAGE = "{wav}", "{language}"
"""Placeholders in the command of the recogniser."""


@dataclass(frozen=True, slots=True)
class Mistakes:
    """Edit distance between recognised and reference text in words and characters, and the length of the reference."""

    num_word_edits: int
    num_words: int
    num_character_edits: int
    num_characters: int


class Recogniser:
    """External speech recogniser (ASR): a command such as `my-asr --language {language} {wav}` that prints the text.

    Runs once per recording and without a shell, so that paths need no quoting.
    """

    def __init__(self, command: str) -> None:
        try:
            self._parts = shlex.split(command)
        except ValueError as error:
            raise UsageError(
                f"The command {command!r} cannot be read: {error}.", next_step="Close its quotation marks."
            ) from error
        if not any(_WAV in part for part in self._parts):
            raise UsageError(
                f"The command {command!r} does not say where the recording goes.",
                next_step=f"Put {_WAV} where the path belongs: --asr-command 'my-asr {_WAV}'.",
            )

    def transcribe(self, path: Path, language: str) -> str:
        """Returns what the command prints. Raises ConfigError where it fails or takes longer than five minutes."""
        command = [part.replace(_WAV, str(path)).replace(_LANGUAGE, language) for part in self._parts]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _recogniser_failed(command, str(error)) from error
        if done.returncode != 0:
            words = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise _recogniser_failed(command, words[-1][:200] if words else f"it ended with {done.returncode}")
        return done.stdout.decode("utf-8", "replace")


def _recogniser_failed(command: Sequence[str], problem: str) -> ConfigError:
    return ConfigError(
        f"The recogniser {shlex.join(command)[:200]} failed: {problem}.",
        next_step="Run it by hand on a WAV file; it must print the recognised text and exit with 0.",
    )


def count_mistakes(said: str, recognised: str) -> Mistakes:
    """Counts word and character edits between `said` (reference) and `recognised` (ASR), ignoring case and marks."""
    right, wrong = _list_words(said), _list_words(recognised)
    characters = " ".join(right)
    return Mistakes(count_edits(right, wrong), len(right), count_edits(characters, " ".join(wrong)), len(characters))


def count_edits(one: Sequence[object], other: Sequence[object]) -> int:
    """Levenshtein distance between two sequences, in memory of one row."""
    before = list(range(len(other) + 1))
    for place, item in enumerate(one, 1):
        row = [place]
        for column, candidate in enumerate(other, 1):
            row.append(min(before[column] + 1, row[-1] + 1, before[column - 1] + (item != candidate)))
        before = row
    return before[-1]


def _list_words(text: str) -> list[str]:
    """Splits into case-folded words; apostrophes and zero-width joiners are removed, other signs separate words."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(
        character if unicodedata.category(character)[0] in "LMN" else "" if character in "'’\u200c\u200d" else " "
        for character in folded
    )
    return kept.split()
