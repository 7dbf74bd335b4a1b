"""Normaliser of the languages that have a table of words: abbreviations, amounts (`quantities`) and signs.

The tables are the JSON files <code>.json beside this module; English and Persian have rules of their own. Normalised
text has no figure, sign or abbreviation of the table left, so it passes through unchanged.
"""

from __future__ import annotations

import re
from functools import lru_cache

from myxtts.text.languages.generic import EDGE, LETTER, apply_rules, either, load_table, say, settle_edges, split_keys
from myxtts.text.languages.quantities import FRACTION_BAR, Quantities
from myxtts.text.languages.unicode_cleanup import FoldTable, clean_unicode

TABLE_LANGUAGES = ("ar", "de", "es", "fr", "it", "nl", "tr")
_FOLDING = FoldTable({FRACTION_BAR: FRACTION_BAR, "²": "²", "³": "³", "٪": "%", "؉": "‰"})
_SIGN_BETWEEN_NUMBERS = re.compile(f"{EDGE}[.,:/]{EDGE}")
_NO_CENTS = re.compile(r"(?<=\d),[-—]{1,2}(?![-\w])")
"""The dash of 12,- €."""
_TIMES = re.compile(r"(?<=\d) ?x ?(?=\d)")
_DECADE_APOSTROPHE = re.compile(r"(?<!\w)'(?=\d\d(?!\d))")
"""Before the years of a decade: gli anni '80."""
_DRAWN_LINE = re.compile(r"([+=])\1++")


class TableNormalizer:
    """The compiled rules of one language."""

    def __init__(self, language: str) -> None:
        table = load_table(language)
        self._quantities = Quantities(language)
        self._words = split_keys(table["abbreviations"])
        self._before_number = split_keys(table["before_number"])
        self._counted = split_keys(table["units"]) | split_keys(table["currencies"])
        keys = (*self._words, *self._before_number)
        self._keys = {_fold_key(key): key for key in keys} | {key.replace(" ", ""): key for key in keys}
        self._abbreviation = re.compile(rf"(?<!{LETTER})(?:{_join_keys(self._words)})")
        self._numbered = re.compile(rf"(?<!{LETTER})({_join_keys(self._before_number)}) ?(?=\d)")
        self._endings = tuple(table["ending"].split())
        self._signs: dict[str, str] = table["signs"]
        self._sign = re.compile(f"[{re.escape(''.join(self._signs))}]")
        self._powers = {sign: noun.forms[-1] for sign, noun in self._quantities.units.items() if sign[-1] in "²³"}
        self._powers |= table["powers"]
        self._power = re.compile(rf"(?<![^\W\d_])(?:{either(self._powers)})|[²³]")

    def normalize(self, text: str) -> str:
        text = _NO_CENTS.sub("", clean_unicode(text, _FOLDING))
        text = _TIMES.sub(" × ", _DECADE_APOSTROPHE.sub("", text))
        text = self._numbered.sub(lambda match: say(self._before_number[self._find_key(match[1])]), text)
        text = settle_edges(self._abbreviation.sub(self._expand, text))
        text = settle_edges(_SIGN_BETWEEN_NUMBERS.sub(EDGE, apply_rules(text, self._quantities.rules)))
        # Units that no number took, such as the minutes of "1 € min.", are abbreviations after all.
        text = self._abbreviation.sub(self._expand, text)
        text = self._sign.sub(lambda match: say(self._signs[match[0]]), _DRAWN_LINE.sub(" ", text))
        return settle_edges(self._power.sub(lambda match: say(self._powers[match[0]]), text))

    def _find_key(self, written: str) -> str:
        plain = written.replace(" ", "")
        return self._keys.get(plain) or self._keys[_fold_key(plain)]

    def _expand(self, match: re.Match[str]) -> str:
        """Expands an abbreviation, unless it is a unit behind a number. Its full stop may end the sentence too."""
        key, text = self._find_key(match[0]), match.string
        if key in self._counted and text[max(0, match.start() - 2) : match.start()].rstrip()[-1:].isdecimal():
            return match[0]
        words = self._words[key]
        if key[0].islower() and match[0][0].isupper():
            words = words[0].upper() + words[1:]
        follower = text[match.end() : match.end() + 2]
        starts_sentence = key.endswith(self._endings) and follower[:1] == " " and follower[1:].isupper()
        keeps_stop = key.endswith(".") and (starts_sentence or not follower)
        return say(words) + ("." if keeps_stop else "")


@lru_cache
def _load_normalizer(language: str) -> TableNormalizer:
    return TableNormalizer(language)


def normalize_by_table(text: str, language: str) -> str:
    """Returns a text of a language of `TABLE_LANGUAGES` as it is spoken."""
    return _load_normalizer(language).normalize(text)


def list_abbreviations(language: str) -> frozenset[str]:
    """Last parts of the abbreviations after which a full stop ends no sentence, in lower case: b of z.B."""
    table = load_table(language)
    endings = tuple(table["ending"].split())
    keys = [key for key in split_keys(table["abbreviations"]) if key.endswith(".") and not key.endswith(endings)]
    parts = (re.split(r"[. ]", key[:-1])[-1].lower() for key in keys)
    return frozenset(part for part in parts if part)


def list_number_abbreviations(language: str) -> frozenset[str]:
    """The same for abbreviations that stand before a number: nr of Nr."""
    return frozenset(key[:-1].lower() for key in split_keys(load_table(language)["before_number"]) if key.endswith("."))


def _fold_key(key: str) -> str:
    """A key as it is found: without spaces, and with its first letter small."""
    plain = key.replace(" ", "")
    return plain[0].lower() + plain[1:]


def _join_keys(keys: dict[str, str]) -> str:
    return "|".join(_make_pattern(key) for key in sorted(keys, key=len, reverse=True))


def _make_pattern(key: str) -> str:
    """A capital may begin a key, as at the start of a sentence, and a space may follow each full stop inside: z. B."""
    first = f"[{key[0]}{key[0].upper()}]" if key[0].islower() and len(key[0].upper()) == 1 else re.escape(key[0])
    rest = re.escape(key[1:]).replace(r"\.", r"\. ?").removesuffix(" ?")
    return first + rest + (rf"(?!{LETTER})" if key[-1].isalnum() else "")
