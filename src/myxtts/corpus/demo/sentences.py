"""Sentences of the demo corpus, generated from templates and word lists.

Each language has a text file beside this module: `[sentence]` lists templates, `[kind]` the words for slots `{kind}`.
A word may contain slots itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

_FOLDER = Path(__file__).parent
_TEMPLATES = "sentence"
_SLOT = re.compile(r"\{([a-z_]+)\d*\}")
"""A slot; the figure only makes a second slot of a kind readable."""
_HEADING = re.compile(r"\[([a-z_]+)\]")
DEMO_LANGUAGES = tuple(sorted(path.stem for path in _FOLDER.glob("*.txt")))


@dataclass(frozen=True, slots=True)
class Grammar:
    """Templates of sentences, and by kind the words that may fill their slots."""

    templates: Sequence[str]
    words: Mapping[str, Sequence[str]]


@lru_cache
def load_grammar(language: str) -> Grammar:
    """Reads the templates and words of a language; lines that begin with # are comments."""
    lists: dict[str, list[str]] = {}
    for line in (_FOLDER / f"{language}.txt").read_text(encoding="utf-8").splitlines():
        heading = _HEADING.fullmatch(line)
        if heading:
            entries = lists[heading[1]] = []
        elif line and not line.startswith("#"):
            entries.append(line)
    return Grammar(lists.pop(_TEMPLATES), lists)


def compose_sentence(grammar: Grammar, generator: np.random.Generator) -> str:
    """Generates a sentence in which no word fills two slots of one kind; `{town}` and `{town2}` are of one kind."""
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
