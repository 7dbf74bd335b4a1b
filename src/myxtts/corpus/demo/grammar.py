"""Sentences from templates: each `{slot}` is filled from a list of words, which may hold slots of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_SLOT = re.compile(r"\{([a-z_]+)\d*\}")


@dataclass(frozen=True, slots=True)
class Grammar:
    templates: Sequence[str]
    words: Mapping[str, Sequence[str]]


def compose_sentence(grammar: Grammar, generator: np.random.Generator) -> str:
    """A sentence in which no word stands twice for the same kind of slot; `{town}` and `{town2}` are of one kind."""
    used: dict[str, set[str]] = {}

    def fill(match: re.Match[str]) -> str:
        kind = match[1]
        taken = used.setdefault(kind, set())
        left = [word for word in grammar.words[kind] if word not in taken]
        assert left, f"a template uses {kind} more often than there are words"
        word = _choose(left, generator)
        taken.add(word)
        return _SLOT.sub(fill, word)

    sentence = _SLOT.sub(fill, _choose(grammar.templates, generator))
    return sentence[0].upper() + sentence[1:]


def _choose(options: Sequence[str], generator: np.random.Generator) -> str:
    return options[int(generator.integers(len(options)))]
