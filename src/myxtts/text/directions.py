"""Directions inside a text to be spoken: pauses, and words whose pronunciation is given as IPA.

    Good morning. [pause 0.8s] My name is [[ɹˈeɪzə]]. <break time="500ms"/> Bye.

Anything else that looks like a direction, such as [laughs] or <emphasis>, is refused with its place: spoken as letters
it would spoil the sentence. Plain brackets around figures, as in [1], and signs like < between numbers are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from myxtts.errors import DataError
from myxtts.text.lexicon import find_ipa_problem

MAX_PAUSE_S = 60.0
"""Of one direction."""
_MAX_WRITTEN_WORDS = 1000
"""Of one text: their names have three letters."""
_DIRECTION = re.compile(
    r"\[\[(?P<ipa>[^\[\]]*)\]\]"
    r"|\[\s*pause\s+(?P<pause>[^\[\]]*?)\s*\]"
    r"|<break\s+time\s*=\s*(?P<quote>[\"'])(?P<break>[^\"'<>]*)(?P=quote)\s*/?>"
    r"|(?P<unknown>\[\[|\]\]|\[\s*[^\W\d_][^\[\]]*\]|</?[A-Za-z!?][^<>]*>)"
)
_SECONDS = re.compile(r"(?P<number>\d{1,6}(?:\.\d{1,6})?)\s*(?P<unit>ms|s)")
_KNOWN = 'The directions are [pause 0.8s], <break time="800ms"/> and [[IPA]].'
_NAME_LETTERS = "".join(map(chr, range(0xA4D0, 0xA4F0)))
"""Letters of the Lisu script, 32 of them, which no language of ours uses and the normalisers leave as they are."""
_NAME_OPENING = "\ua4f0"
_NAME = re.compile(f"{_NAME_OPENING}[{_NAME_LETTERS}]{{2}}")


@dataclass(frozen=True, slots=True)
class Passage:
    """Text between two pauses, and the seconds of silence before it. Only the last may have no text."""

    text: str
    silence_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DirectedText:
    """A text without its directions. `written` has the IPA of each name that stands for a [[word]] in the passages."""

    passages: tuple[Passage, ...]
    written: Mapping[str, str]

    def restore(self, text: str) -> str:
        """Returns a part of the text with [[IPA]] in place of its names."""
        return _NAME.sub(lambda match: f"[[{self.written.get(match[0], match[0])}]]", text) if self.written else text


def read_directions(text: str) -> DirectedText:
    """Splits a text at its pauses and replaces [[IPA]] by names; raises DataError for what is not understood."""
    written: dict[str, str] = {}
    passages: list[Passage] = []
    spoken, silence_s = "", 0.0
    for part in _split(text):
        if isinstance(part, str):
            spoken += part
        elif part["ipa"] is not None:
            # A word of its own, also where it is written without spaces.
            is_joined = text[part.end() : part.end() + 1].isalnum() or text.startswith("[[", part.end())
            spoken += " " * bool(spoken and not spoken[-1].isspace())
            spoken += _name_written(part, written) + " " * is_joined
        else:
            if spoken.strip():
                passages.append(Passage(spoken, silence_s))
                spoken, silence_s = "", 0.0
            silence_s += _read_pause(part)
    if spoken.strip() or silence_s or not passages:
        passages.append(Passage(spoken, silence_s))
    return DirectedText(tuple(passages), written)


def remove_directions(text: str) -> str:
    """Returns the text without anything that looks like a direction, to judge what is left of it."""
    return _DIRECTION.sub(" ", text)


def _split(text: str) -> Iterator[str | re.Match[str]]:
    """Yields the text between directions, and the directions."""
    end = 0
    for match in _DIRECTION.finditer(text):
        yield text[end : match.start()]
        if match["unknown"] is not None:
            raise _refuse(match, f"the direction {match[0][:40]!r} is not understood", _KNOWN)
        yield match
        end = match.end()
    yield text[end:]


def _name_written(match: re.Match[str], written: dict[str, str]) -> str:
    """Returns the name that stands for [[IPA]] in the text, and notes its IPA under it."""
    ipa = match["ipa"].strip()
    if problem := find_ipa_problem(ipa):
        raise _refuse(match, f"the IPA in {match[0][:60]!r} {problem}", _KNOWN)
    if len(written) >= _MAX_WRITTEN_WORDS:
        raise _refuse(match, f"the text has more than {_MAX_WRITTEN_WORDS:,} words in IPA", "Say it in parts.")
    number = len(written)
    name = _NAME_OPENING + _NAME_LETTERS[number // 32] + _NAME_LETTERS[number % 32]
    written[name] = ipa
    return name


def _read_pause(match: re.Match[str]) -> float:
    length = match["pause"] if match["pause"] is not None else match["break"]
    found = _SECONDS.fullmatch(length.strip())
    if found is None:
        raise _refuse(match, f"the pause {match[0][:40]!r} has no length such as 0.8s or 800ms", _KNOWN)
    seconds = float(found["number"]) / (1000 if found["unit"] == "ms" else 1)
    if seconds > MAX_PAUSE_S:
        raise _refuse(match, f"the pause of {seconds:g} s is longer than {MAX_PAUSE_S:g} s", "Make it shorter.")
    return seconds


def _refuse(match: re.Match[str], problem: str, next_step: str) -> DataError:
    hint = " Write other remarks in round brackets." if match["unknown"] else ""
    return DataError(f"{_place(match)}: {problem}.", next_step=next_step + hint)


def _place(match: re.Match[str]) -> str:
    before = match.string[: match.start()]
    return f"Line {before.count(chr(10)) + 1}, character {len(before) - (before.rfind(chr(10)) + 1) + 1} of the text"
