"""Puts spoken words in the place of written signs, with the right space on either side.

Rules mark their words with `say`; `settle_edges` turns the marks into spaces once every rule has run. A rule may
thus write words without looking at its neighbours, and a rule that runs later still sees where a word begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from myxtts.text.languages.unicode_cleanup import tidy

Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]
"""What to look for, and how to read it."""

EDGE = "\ue000"
"""Private-use, so clean text never holds it."""

_EDGES = re.compile(f"[ {EDGE}]*{EDGE}[ {EDGE}]*")
_STAYS_BEFORE_WORDS = frozenset("([{\"'«-—/")
_STAYS_AFTER_WORDS = frozenset(".,!?;:)]}\"'»…،؛؟-—/")


def say(words: str) -> str:
    return f"{EDGE}{words}{EDGE}"


def apply_rules(text: str, rules: Iterable[Rule]) -> str:
    for pattern, read in rules:
        text = _apply_rule(text, pattern, read)
    return text


def _apply_rule(text: str, pattern: re.Pattern[str], read: Callable[[re.Match[str]], str]) -> str:
    return pattern.sub(lambda match: say(read(match)), text)


def settle_edges(text: str) -> str:
    return tidy(_EDGES.sub(_choose_space, text))


def _choose_space(match: re.Match[str]) -> str:
    text, start, end = match.string, match.start(), match.end()
    if " " in match[0]:
        return " "
    if start > 0 and text[start - 1] in _STAYS_BEFORE_WORDS:
        return ""
    return "" if end < len(text) and text[end] in _STAYS_AFTER_WORDS else " "
