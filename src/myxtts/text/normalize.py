"""Turns written text into the words one says, and long text into sentences.

`normalize_text` accepts any string, never raises, takes time proportional to its length and leaves its own output
unchanged. English and Persian have rules of their own; every other language gets the generic ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from myxtts.text.languages.en import normalize_english
from myxtts.text.languages.en_abbreviations import (
    CAPITAL_ABBREVIATIONS,
    NAME_ABBREVIATIONS,
    NUMBER_ABBREVIATIONS,
    PLAIN_ABBREVIATIONS,
    TITLES,
)
from myxtts.text.languages.fa import DOTTED, NUMBERED, normalize_persian
from myxtts.text.languages.generic import normalize_generic


def _list_last_parts(abbreviations: Iterable[str]) -> frozenset[str]:
    """What stands before the last full stop: "m" for "a.m."."""
    return frozenset(re.split(r"[. ]", abbreviation.lower())[-1] for abbreviation in abbreviations)


_NORMALIZERS: dict[str, Callable[[str], str]] = {"en": normalize_english, "fa": normalize_persian}

_ABBREVIATIONS: dict[str, frozenset[str]] = {
    "en": _list_last_parts([*TITLES, *NAME_ABBREVIATIONS, *CAPITAL_ABBREVIATIONS, *PLAIN_ABBREVIATIONS, "St", "vs"])
    - {"etc"},
    "fa": frozenset(letter for key in DOTTED for letter in key.split(".")),
    "de": frozenset("z b d h u a usw bzw ca nr dr prof str st hr fr vgl evtl ggf inkl mio mrd".split()),
    "fr": frozenset("m mm mme mlle dr st ste cf p ex env".split()),
    "es": frozenset("sr sra srta dr dra ud uds p ej pág núm".split()),
    "ru": frozenset("г гг т д п е к н э им ул стр руб др пр см".split()),
}
"""Words after which a full stop ends no sentence, in lower case."""

_BEFORE_NUMBER: dict[str, frozenset[str]] = {"en": frozenset(NUMBER_ABBREVIATIONS), "fa": frozenset(NUMBERED)}
"""The same, but only if a number follows."""

_DOTTED_ORDINALS = frozenset("cs da de et fi hr hu is lv nb no pl sk sl sr tr".split())
"""Languages that write "3. Mai" for the third of May."""

_SENTENCE_END = re.compile(
    r"[.!?\u2026\u061f\u06d4\u0964]++[\"'\u2019\u201d\u00bb)\]]*+(?=\s|\Z)"
    r"|[\u3002\uff01\uff1f]++[\u300d\u300f\u201d\uff09]*+"
    r"|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]++"
)
_LAST_WORD = re.compile(r"[^\W_]+\Z")
_NEXT_CHAR = re.compile(r"[^\s\"'\u2018\u201c\u00ab(\[]")
_LONGEST_ABBREVIATION = 16


def supported_normalizers() -> tuple[str, ...]:
    """The languages that have rules of their own."""
    return tuple(sorted(_NORMALIZERS))


def normalize_text(text: str, language: str) -> str:
    """NFC text with single spaces, ready for the phonemiser or the character tokenizer; case is kept.

    `language` is a code such as "en", "en-GB" or "zh_cn"; only its first part counts.
    """
    primary = _primary_subtag(language)
    normalize = _NORMALIZERS.get(primary)
    return normalize(text) if normalize else normalize_generic(text, primary)


def split_sentences(text: str, language: str) -> list[str]:
    """The sentences of `text` as they are written, without surrounding space; every word is in exactly one of them.

    A line break ends a sentence. A full stop does not where it belongs to an abbreviation, an initial or the number
    of a list, or where a small letter follows.
    """
    primary = _primary_subtag(language)
    sentences: list[str] = []
    start = 0
    for match in _SENTENCE_END.finditer(text):
        if _ends_sentence(match, primary) and not _is_list_number(text[start : match.start()], match):
            sentences.append(text[start : match.end()].strip())
            start = match.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def _primary_subtag(language: str) -> str:
    return re.split(r"[-_]", language.strip().lower(), maxsplit=1)[0]


def _ends_sentence(match: re.Match[str], language: str) -> bool:
    if match[0].isspace():
        return True
    follower = _NEXT_CHAR.search(match.string, match.end())
    if follower is not None and follower[0].islower():
        return False
    return match[0] != "." or not _belongs_to_word(match, follower[0] if follower else "", language)


def _belongs_to_word(stop: re.Match[str], next_char: str, language: str) -> bool:
    """Whether the full stop marks an abbreviation, an initial or an ordinal."""
    before = _LAST_WORD.search(stop.string, max(0, stop.start() - _LONGEST_ABBREVIATION), stop.start())
    if before is None or not next_char:
        return False
    word = before[0]
    if word.isdecimal():
        return language in _DOTTED_ORDINALS and len(word) <= 2
    if (len(word) == 1 and word.isupper()) or word.lower() in _ABBREVIATIONS.get(language, ()):
        return True
    return next_char.isdecimal() and word.lower() in _BEFORE_NUMBER.get(language, ())


def _is_list_number(sentence: str, stop: re.Match[str]) -> bool:
    return stop[0] == "." and sentence.strip().isdecimal() and bool(_NEXT_CHAR.search(stop.string, stop.end()))
