"""Text cut into clauses that a phonemiser may see and the punctuation between them, with everything else named.

espeak-ng drops punctuation and can end the whole process on odd input: stray hyphens, words of hundreds of letters,
rare symbols. So it is given letters, figures and a few symbols that are read aloud, in pieces of bounded length.
Quotation marks, brackets and invisible signs have no sound and are left out; other symbols, like emoji, are unknown.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from myxtts.text.inventory import PUNCTUATION
from myxtts.text.ipa import PUNCTUATION_SPELLINGS

MAX_CLAUSE_LENGTH = 400
_MAX_WORD_LENGTH = 60

_READ_ALOUD = frozenset("%&@#+=*/°§×÷±$£€¥₹₽₺₴₪₩₫﷼¢‰")
_APOSTROPHES = frozenset("'’ʼ‘´`′")
_HYPHENS = frozenset("-\u2010\u2011")
_QUOTATION_MARKS = frozenset('"“”„‟«»‹›＂')
_JOINERS = frozenset("\u200c\u200d")
_INSIDE_WORDS = frozenset(".,:٫٬")
_QUOTES_AND_BRACKETS = frozenset({"Ps", "Pe", "Pi", "Pf"})

# A full stop before a letter or figure belongs to its word, as in 3.5 or e.g. or a web address, unless a space was
# forgotten after a sentence; commas and colons belong to a number when figures stand on both sides.
_PAUSE = re.compile(
    r"(\.{2,}|[!?;—…]"
    r"|(?<!\d)[,:]|[,:](?!\d)"
    r"|\.(?![^\W_])|(?<=[a-z\u0600-\u06ff]{2})\.(?=[A-Z\u0600-\u06ff])"
    r"|(?<!\S)-+(?!\S)|-{2,})"
)
_HYPHEN_BESIDE_NOTHING = re.compile(r"(?<![^\W_])-|-(?![^\W_])")
# As in "and/or"; between figures it is a fraction or a date.
_SLASH_BETWEEN_WORDS = re.compile(r"(?<!\d)/|/(?!\d)")
_REPEATED_APOSTROPHE = re.compile(r"'{2,}")


@dataclass(frozen=True, slots=True)
class Clauses:
    """`parts` are clauses to speak and, as single characters of PUNCTUATION, the marks between them."""

    parts: tuple[str, ...]
    unknown: tuple[str, ...]


class _Cleaner(dict[int, str]):
    """What each character becomes, decided when it is first met."""

    def __missing__(self, code: int) -> str:
        cleaned = _clean_character(chr(code))
        self[code] = " " if cleaned is None else cleaned
        return self[code]


_CLEANER = _Cleaner()


def split_clauses(text: str, max_clause_length: int = MAX_CLAUSE_LENGTH) -> Clauses:
    """The clauses and pauses of a text, and each occurrence of a character that cannot be spoken."""
    unspeakable = {character for character in set(text) if _clean_character(character) is None}
    unknown = tuple(character for character in text if character in unspeakable) if unspeakable else ()
    parts: list[str] = []
    for index, piece in enumerate(_PAUSE.split(text.translate(_CLEANER))):
        if index % 2:
            mark = _name_pause(piece)
            if not (parts and parts[-1] == mark):
                parts.append(mark)
        else:
            parts += _bound_clause(piece, max_clause_length)
    return Clauses(tuple(parts), unknown)


def _clean_character(character: str) -> str | None:
    """The character as the phonemiser may see it, nothing where it has no sound, None where it cannot be spoken."""
    if character in PUNCTUATION_SPELLINGS:
        # Unlike the marks of English, these never stand inside a number or a word.
        return f"{PUNCTUATION_SPELLINGS[character]} "
    if character in _APOSTROPHES:
        return "'"
    if character in _HYPHENS:
        return "-"
    category = unicodedata.category(character)
    if character.isspace() or character == "_" or character in _QUOTATION_MARKS or category in _QUOTES_AND_BRACKETS:
        return " "
    if category == "Cf" and character not in _JOINERS:
        return ""
    is_speech = category[0] in "LMN" or character in _JOINERS or character in _INSIDE_WORDS
    is_kept = is_speech or character in _READ_ALOUD or character in PUNCTUATION
    return character if is_kept else None


def _name_pause(written: str) -> str:
    if written.startswith("-"):
        return "—"
    return "…" if len(written) > 1 else written


def _bound_clause(piece: str, max_length: int) -> list[str]:
    """The words of a piece, without what is odd at their edges, in clauses up to a length."""
    smoothed = _SLASH_BETWEEN_WORDS.sub(" ", _REPEATED_APOSTROPHE.sub(" ", _HYPHEN_BESIDE_NOTHING.sub(" ", piece)))
    clauses: list[str] = []
    for word in smoothed.split():
        trimmed = word.strip("'.,:٫٬\u200c\u200d")
        for start in range(0, len(trimmed), _MAX_WORD_LENGTH):
            part = trimmed[start : start + _MAX_WORD_LENGTH]
            if clauses and len(clauses[-1]) + len(part) < max_length:
                clauses[-1] += f" {part}"
            else:
                clauses.append(part)
    return clauses
