"""Registry of languages with their own normaliser, espeak-ng voice or sentence rules; others get the generic rules.

Number formats of languages without a normaliser of their own are in `generic.NUMBER_STYLES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from myxtts.config.languages import canonical_language, find_code
from myxtts.text.languages import by_table, en_abbreviations, fa
from myxtts.text.languages.en import normalize_english

__all__ = ["LANGUAGES", "Language", "canonical_language", "find_code", "find_language", "find_primary_code"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """Rules of one language. Abbreviations are written without their last full stop, in lower case."""

    normalize: Callable[[str], str] | None = None
    """Converts written text to spoken words; None for the generic rules."""
    espeak_voice: str = ""
    """The voice of espeak-ng, where it would choose another one for the code of the language."""
    abbreviations: frozenset[str] = frozenset()
    """Words after which a full stop ends no sentence."""
    abbreviations_before_number: frozenset[str] = frozenset()
    """The same, but only if a number follows."""
    has_dotted_ordinals: bool = False
    """Whether "3. Mai" is the third of May."""


_UNKNOWN = Language()
LANGUAGES: dict[str, Language] = {
    "en": Language(
        normalize=normalize_english,
        espeak_voice="en-us",
        abbreviations=en_abbreviations.LAST_PARTS,
        abbreviations_before_number=frozenset(en_abbreviations.NUMBER_ABBREVIATIONS),
    ),
    "fa": Language(
        normalize=fa.normalize_persian,
        abbreviations=frozenset(letter for key in fa.DOTTED for letter in key.split(".")),
        abbreviations_before_number=frozenset(fa.NUMBERED),
    ),
    **{
        code: Language(
            normalize=partial(by_table.normalize_by_table, language=code),
            abbreviations=by_table.list_abbreviations(code),
            abbreviations_before_number=by_table.list_number_abbreviations(code),
            has_dotted_ordinals=code in ("de", "tr"),
        )
        for code in by_table.TABLE_LANGUAGES
    },
    "ru": Language(abbreviations=frozenset("г гг т д п е к н э им ул стр руб др пр см".split())),
    **{code: Language(has_dotted_ordinals=True) for code in "cs da et fi hr hu is lv nb no pl sk sl sr".split()},
}


def find_primary_code(language: str) -> str:
    """Returns the canonical code without a region: "en" of "en-GB" or "English"; "" for a name that is unknown."""
    return find_code(language).partition("-")[0]


def find_language(language: str) -> Language:
    """Returns the rules of a language, given in any spelling that `canonical_language` understands."""
    return LANGUAGES.get(find_primary_code(language), _UNKNOWN)
