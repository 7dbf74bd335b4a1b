"""Reads sentences of our own: "+" behind a word marks ezafe, and {…} is the reading of a homograph in Latin letters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from myxtts.text.persian.words import split_words
from persian.treebank import TaggedWord

_MARKED = re.compile(r"(?P<word>[^\s+{}]+?)(?P<reading>\{[^}]*\})?(?P<ezafe>\+)?(?P<rest>[.،؟!؛:»]*)(?=\s|\Z)")
_WRITTEN = re.compile("(?:[\u0650\u0654]|ه\u200cی|[اوه]\u200c?های|[^\u200c]های|\u200cهای)\\Z")


@dataclass(frozen=True, slots=True)
class MarkedWord:
    word: str
    ezafe: bool
    reading: str


def read_sentences(path: Path) -> list[list[MarkedWord]]:
    """Returns the sentences word by word, marks of punctuation included."""
    sentences = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            sentences.append(_read(line.strip()))
    return sentences


def _read(line: str) -> list[MarkedWord]:
    words = []
    for match in _MARKED.finditer(line):
        parts = split_words(match["word"])
        words += [MarkedWord(part, False, "") for part in parts[:-1]]
        reading = (match["reading"] or "").strip("{}")
        words.append(MarkedWord(parts[-1], bool(match["ezafe"]), reading))
        words += [MarkedWord(mark, False, "") for mark in match["rest"]]
    return words


def list_tagged(sentences: list[list[MarkedWord]]) -> list[list[TaggedWord]]:
    return [[TaggedWord(word.word, "", word.ezafe) for word in words] for words in sentences]
