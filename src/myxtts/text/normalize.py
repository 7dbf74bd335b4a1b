"""Text normalisation (written text to spoken words) and sentence splitting.

`normalize_text` accepts any string, takes time proportional to its length and leaves its own output unchanged. English
and Persian have rules of their own; every other language gets the generic ones. It raises nothing but
MissingExtraError, where a number of a generic language needs the extra `numbers`.
"""

from __future__ import annotations

import re

from myxtts.text.languages import Language, find_language, find_primary_code
from myxtts.text.languages.fa import LATEST_RULES, PersianRules, normalize_persian
from myxtts.text.languages.generic import normalize_generic

_SENTENCE_END = re.compile(
    # A run that is followed by a letter is looked at once, not from each of its marks.
    r"(?<![.!?\u2026\u061f\u06d4\u0964])[.!?\u2026\u061f\u06d4\u0964]++[\"'\u2019\u201d\u00bb)\]]*+(?=\s|\Z)"
    r"|[\u3002\uff01\uff1f]++[\u300d\u300f\u201d\uff09]*+"
    r"|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]++"
)
_LAST_WORD = re.compile(r"[^\W_]+\Z")
_NEXT_CHAR = re.compile(r"[^\s\"'\u2018\u201c\u00ab(\[]")
_LONGEST_ABBREVIATION = 16
"""Characters searched before a full stop: longer than any known abbreviation, and keeps the search linear."""


def normalize_text(text: str, language: str, persian_rules: PersianRules = LATEST_RULES) -> str:
    """Returns NFC text with single spaces, ready for the phonemiser or the character tokenizer; case is kept.

    `language` is any spelling of a language such as "en", "en-GB" or "German"; its region does not count.
    """
    if find_primary_code(language) == "fa":
        return normalize_persian(text, persian_rules)
    normalize = find_language(language).normalize
    return normalize(text) if normalize else normalize_generic(text, find_primary_code(language))


def split_sentences(text: str, language: str) -> list[str]:
    """Returns the sentences of `text` as they are written, without surrounding space; no word is lost or repeated.

    A line break ends a sentence. A full stop does not where it belongs to an abbreviation, an initial or the number
    of a list, or where a small letter follows.
    """
    known = find_language(language)
    sentences: list[str] = []
    start = 0
    for match in _SENTENCE_END.finditer(text):
        if _ends_sentence(match, known) and not _is_list_number(match, start):
            sentences.append(text[start : match.end()].strip())
            start = match.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def _ends_sentence(match: re.Match[str], language: Language) -> bool:
    """Whether a mark or line break ends a sentence."""
    if match[0].isspace():
        return True
    follower = _NEXT_CHAR.search(match.string, match.end())
    if follower is not None and follower[0].islower():
        return False
    return match[0] != "." or not _belongs_to_word(match, follower[0] if follower else "", language)


def _belongs_to_word(stop: re.Match[str], next_char: str, language: Language) -> bool:
    """Whether the full stop marks an abbreviation, an initial or an ordinal."""
    before = _LAST_WORD.search(stop.string, max(0, stop.start() - _LONGEST_ABBREVIATION), stop.start())
    if before is None or not next_char:
        return False
    word = before[0]
    if word.isdecimal():
        return language.has_dotted_ordinals and len(word) <= 2
    if (len(word) == 1 and word.isupper()) or word.lower() in language.abbreviations:
        return True
    return next_char.isdecimal() and word.lower() in language.abbreviations_before_number


def _is_list_number(stop: re.Match[str], start: int) -> bool:
    """Whether nothing but a number stands between `start` and a full stop, as in the lines of a list."""
    if stop[0] != "." or stop.start() - start > _LONGEST_ABBREVIATION:
        return False
    number = stop.string[start : stop.start()].strip()
    return number.isdecimal() and bool(_NEXT_CHAR.search(stop.string, stop.end()))
