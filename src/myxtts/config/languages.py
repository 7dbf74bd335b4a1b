"""Names of languages: one canonical code for every spelling of a language, from languages.json.

A row of the table is: canonical code, English names, scripts, other codes (ISO 639-2 and 639-3, codes of countries
that are taken for a language), native names. A canonical code is a primary code such as `de`. A region is part of it
only where espeak-ng has a voice of its own for that region, such as `pt-br` or `en-gb`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from myxtts.errors import DataError

_MAX_NAME_LENGTH = 100
_MAX_CODE_LENGTH = 3
_CODE = re.compile(r"[a-z]{2,3}(?:-[a-z0-9]{1,8})*")
_ENCODING = re.compile(r"[.@].*")
"""Behind a POSIX locale such as de_DE.UTF-8."""
_LETTER_SPELLINGS = str.maketrans("يىك", "ییک")


class LanguageName(NamedTuple):
    """English name of a language, and the scripts that it is written in, by their Unicode names."""

    title: str
    scripts: tuple[str, ...]


@lru_cache(maxsize=1)
def _load_table() -> tuple[dict[str, LanguageName], dict[str, str]]:
    """Returns the languages by canonical code, and the canonical code by every folded spelling."""
    rows: dict[str, list[str]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    languages: dict[str, LanguageName] = {}
    spellings: dict[str, str] = {}
    for code, (names, scripts, codes, native) in rows.items():
        languages[code] = LanguageName(names.partition(",")[0], tuple(scripts.split()))
        for spelling in (code, *codes.split(), *names.split(","), *native.split(",")):
            if folded := _fold(spelling):
                assert spellings.setdefault(folded, code) == code, spelling
    return languages, spellings


def _fold(name: str) -> str:
    """Returns a spelling in lower case without accents, with single hyphens for spaces and underscores."""
    plain = unicodedata.normalize("NFKD", name.casefold()).translate(_LETTER_SPELLINGS)
    plain = "".join(char for char in plain if unicodedata.category(char) not in ("Mn", "Cf"))
    return "-".join(re.findall(r"[^\W_]+", plain))


@lru_cache(maxsize=4096)
def canonical_language(name: str) -> str:
    """Returns the one code of a language, for any spelling of it: EN, en-US, de_DE, german, Deutsch, farsi, فارسی.

    A code of two or three letters that is not in the table is returned as it is, in lower case: there are thousands of
    languages, and a character model needs no more. Raises DataError for any other unknown name.
    """
    _, spellings = _load_table()
    written = name.strip()[:_MAX_NAME_LENGTH]
    folded = code = _fold(_ENCODING.sub("", written))
    is_phrase = len(written.split()) > 1
    while code:
        # "no such language" is not Norwegian: behind a code, regions are joined by hyphens.
        is_name = code == folded or not is_phrase or len(code) > _MAX_CODE_LENGTH
        if code in spellings and is_name:
            return spellings[code]
        # What follows the last hyphen is a region, such as the US of en-US or of "English (US)".
        code = code.rpartition("-")[0]
    if _CODE.fullmatch(folded) and not is_phrase:
        return folded
    raise DataError(f"There is no language {written[:40]!r}.", next_step=suggest_language(name))


def find_code(name: str) -> str:
    """Returns the canonical code of a language, "" for a name that is unknown."""
    try:
        return canonical_language(name)
    except DataError:
        return ""


def describe_language(name: str) -> LanguageName | None:
    """Returns the name and the scripts of a language, given in any spelling; None where the table does not have it."""
    languages, _ = _load_table()
    code = find_code(name)
    return languages.get(code) or languages.get(code.partition("-")[0])


def suggest_language(name: str) -> str:
    """Returns a hint with the languages whose codes or names are similar."""
    languages, spellings = _load_table()
    folded = _fold(name[:_MAX_NAME_LENGTH])
    near = dict.fromkeys(spellings[match] for match in get_close_matches(folded, spellings, n=3, cutoff=0.6))
    if not near:
        return "Use a code such as en, de or fa, or the name of the language in English."
    return f"Did you mean {' or '.join(f'{code} ({languages[code].title})' for code in near)}?"
