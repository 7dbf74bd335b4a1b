"""Finds texts in a script that their language does not use, such as Persian text that is said to be English.

espeak-ng reads foreign letters by their names, so a model trained on such texts learns nothing useful. A text counts as
wrong where more than `MAX_FOREIGN_SHARE` of its letters are of other scripts: foreign words and names inside are fine.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from myxtts.config.languages import canonical_language, describe_language
from myxtts.errors import DataError

MAX_FOREIGN_SHARE = 2 / 3
"""Of the letters of one text: "iPhone 15 Pro را خریدم" is Persian, with 58 % of its letters Latin."""
_MIN_LETTERS = 4
"""Shorter texts are not judged: OK, TV and x² occur in every language."""
_MAX_WRONG_TEXTS = 0.5
"""Share of the texts of a corpus in the wrong script that `check_scripts` accepts."""
_LANGUAGE_OF_SCRIPT = dict(
    pair.split("=")
    for pair in (
        "Latin=en Arabic=ar Cyrillic=ru Devanagari=hi Hebrew=he CJK=zh Hangul=ko Greek=el Myanmar=my Ethiopic=am "
        "Bengali=bn Gurmukhi=pa Sinhala=si Oriya=or"
    ).split()
)
"""The language that is suggested for a script where it is not the name of the script itself."""
_PERSIAN_LETTERS, _URDU_LETTERS = frozenset("پچژگکی"), frozenset("ٹڈڑںےہھ")
_NO_SCRIPT = frozenset({"Modifier", "Feminine", "Masculine", "Ideographic", "Combining", ""})
"""First words of the Unicode names of letters that belong to no script."""


class WrongScript(NamedTuple):
    """Why a text cannot be in its language. `language` is the code of one that is written in the text's script."""

    problem: str
    language: str

    @property
    def next_step(self) -> str:
        return f"Give --language {self.language}, or the language that the text is in."


def wrong_script(text: str, language: str) -> WrongScript | None:
    """Returns what is wrong with the script of a text; None where it fits, or where the language is not known."""
    described = describe_language(language)
    counts = _count_scripts(text)
    num_letters = counts.total()
    if described is None or num_letters < _MIN_LETTERS:
        return None
    foreign = {script: count for script, count in counts.items() if script not in described.scripts}
    share = sum(foreign.values()) / num_letters
    if share <= MAX_FOREIGN_SHARE:
        return None
    found = max(foreign, key=foreign.__getitem__)
    code = canonical_language(language)
    problem = (
        f"the text is in {_name_script(found)} ({share:.0%} of its letters are foreign), "
        f"but {described.title} ({code}) is written in {' or '.join(map(_name_script, described.scripts))}"
    )
    return WrongScript(problem, _suggest_language(text, found, foreign))


def guess_language(text: str, languages: Iterable[str]) -> str | None:
    """Returns the one of these languages that the script of a text shows; None where it does not show one.

    Languages in another script than Latin come first: Latin names and words occur in texts of all of them.
    """
    counts = _count_scripts(text)
    shares = {}
    for language in languages:
        described = describe_language(language)
        if described is not None and counts:
            shares[language] = sum(counts[script] for script in described.scripts) / counts.total()
    fitting = [language for language, share in shares.items() if share >= 1 - MAX_FOREIGN_SHARE]
    in_latin = [language for language in fitting if _is_in_latin(language)]
    others = [language for language in fitting if language not in in_latin]
    found = others or in_latin
    if len(found) > 1 and others:
        suggested = _suggest_language(text, max(counts, key=counts.__getitem__), counts)
        found = [language for language in others if canonical_language(language) == suggested]
    return found[0] if len(found) == 1 else None


def _is_in_latin(language: str) -> bool:
    described = describe_language(language)
    return described is not None and "Latin" in described.scripts


def check_scripts(texts: Iterable[tuple[str, str, str]]) -> None:
    """Raises DataError where most texts of a language are in another script; each comes with language and place."""
    totals: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    examples: dict[str, tuple[str, WrongScript]] = {}
    for text, language, place in texts:
        totals[language] += 1
        if problem := wrong_script(text, language):
            wrong[language] += 1
            examples.setdefault(language, (place, problem))
    for language, num_wrong in wrong.items():
        if num_wrong > _MAX_WRONG_TEXTS * totals[language]:
            place, problem = examples[language]
            raise DataError(
                f"{num_wrong:,} of {totals[language]:,} texts in the language {language!r} cannot be in it. "
                f"The first is {place}: {problem.problem}.",
                next_step=f"Prepare the corpus again: {problem.next_step}",
            )


def _count_scripts(text: str) -> Counter[str]:
    """Counts the letters of each script. Characters are counted first: a text has far fewer different ones."""
    counts: Counter[str] = Counter()
    for char, count in Counter(text).items():
        if script := _find_script(char):
            counts[script] += count
    return counts


@lru_cache(maxsize=4096)
def _find_script(char: str) -> str:
    """Returns the script of a letter by its Unicode name, which begins with it; "" for other characters."""
    if unicodedata.category(char)[0] != "L":
        return ""
    plain = unicodedata.normalize("NFKC", char)[0]
    script = re.split("[ -]", unicodedata.name(plain, ""), maxsplit=1)[0]
    script = script if script == "CJK" else script.title()
    return "" if script in _NO_SCRIPT else script


def _name_script(script: str) -> str:
    return "Chinese characters" if script == "CJK" else f"{script} script"


def _suggest_language(text: str, script: str, foreign: Iterable[str]) -> str:
    if not {"Hiragana", "Katakana"}.isdisjoint(foreign):
        return "ja"
    if script == "Arabic":
        letters = set(text)
        return "ur" if letters & _URDU_LETTERS else "fa" if letters & _PERSIAN_LETTERS else "ar"
    return _LANGUAGE_OF_SCRIPT.get(script) or canonical_language(script)
