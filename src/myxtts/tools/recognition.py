"""Words as an outside recogniser hears them: the user's command, and how far its words are from the right ones."""

from __future__ import annotations

import shlex
import subprocess
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from myxtts.errors import ConfigError, UsageError

_TIMEOUT_S = 300.0
_WAV, _LANGUAGE = "{wav}", "{language}"


@dataclass(frozen=True, slots=True)
class Mistakes:
    """Edits between what was to be said and what was heard, and how much was to be said."""

    num_word_edits: int
    num_words: int
    num_character_edits: int
    num_characters: int


class Recogniser:
    """Runs a command such as `my-asr --language {language} {wav}`, without a shell; what it prints is what it heard."""

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

    def hear(self, path: Path, language: str) -> str:
        command = [part.replace(_WAV, str(path)).replace(_LANGUAGE, language) for part in self._parts]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _complain(command, str(error)) from error
        if done.returncode != 0:
            words = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise _complain(command, words[-1][:200] if words else f"it ended with {done.returncode}")
        return done.stdout.decode("utf-8", "replace")


def count_mistakes(said: str, heard: str) -> Mistakes:
    """Both texts are compared without case and punctuation; normalise numbers before."""
    right, wrong = _list_words(said), _list_words(heard)
    characters = " ".join(right)
    return Mistakes(count_edits(right, wrong), len(right), count_edits(characters, " ".join(wrong)), len(characters))


def count_edits(one: Sequence[object], other: Sequence[object]) -> int:
    """The fewest items to insert, delete or replace that make one of the other."""
    before = list(range(len(other) + 1))
    for place, item in enumerate(one, 1):
        row = [place]
        for column, candidate in enumerate(other, 1):
            row.append(min(before[column] + 1, row[-1] + 1, before[column - 1] + (item != candidate)))
        before = row
    return before[-1]


def _list_words(text: str) -> list[str]:
    """Words in lower case; marks inside a word vanish, all others part words."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(
        character if unicodedata.category(character)[0] in "LMN" else "" if character in "'’\u200c\u200d" else " "
        for character in folded
    )
    return kept.split()


def _complain(command: Sequence[str], problem: str) -> ConfigError:
    return ConfigError(
        f"The recogniser {shlex.join(command)[:200]} failed: {problem}.",
        next_step="Run it by hand on a WAV file; it must print what it hears and end with 0.",
    )
