"""The colloquial register: how words that are written formally are said in everyday Persian.

Verbs are built from stems and endings (می‌خواهم → می‌خوام, بروند → برن), some words are listed (خانه → خونه), and
endings are changed by rule (کتاب‌ها → کتابا, خودشان → خودشون, رفتند → رفتن, خوب است → خوبه). What no rule names is
said as it is in the formal register. IPA is without stress where it is on the last syllable.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from myxtts.text.persian.homographs import Context
from myxtts.text.persian.pronounce import VOWELS
from myxtts.text.persian.words import ZWNJ, fold_word, load_words

TABLE_FILE = "colloquial.tsv"
_PREFIXES = {"می": "mˈi", "نمی": "nˈemi", "ب": "bˈe", "ن": "nˈa"}
_ENDINGS = {"م": "am", "ی": "i", "د": "e", "یم": "im", "ید": "in", "ند": "an"}
_ENDINGS_BEHIND_VOWEL = {"م": "m", "ی": "j", "د": "d", "یم": "jm", "ید": "jn", "ند": "n"}
_PAST_ENDINGS = {"": "", "م": "am", "ی": "i", "یم": "im", "ید": "in", "ند": "an"}
_SAID_OTHERWISE = frozenset("آمد توانست دانست خواند ماند راند رساند نشاند".split())
"""Past stems that differ from the formal ones in all persons."""


@lru_cache(maxsize=1)
def _list_forms() -> dict[str, str]:
    """Returns IPA by folded word: forms of verbs, and words, from the stems and words of the table."""
    table: dict[str, dict[str, str]] = {"present": {}, "past": {}, "word": {}}
    for line in Path(__file__).with_name(TABLE_FILE).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            kind, word, ipa = line.split("\t")
            table[kind][word] = ipa
    forms: dict[str, str] = {}
    for stem, spoken in table["present"].items():
        endings = _ENDINGS_BEHIND_VOWEL if spoken.endswith("ɑ") else _ENDINGS
        for prefix, sound in _PREFIXES.items():
            for ending, said in endings.items():
                forms[_write(prefix, stem, ending)] = _join(sound, spoken) + said
    for stem, spoken in table["past"].items():
        for ending, said in _PAST_ENDINGS.items():
            if ending in ("ید", "ند") or stem in _SAID_OTHERWISE:
                forms[stem + ending] = _mark_stem(spoken, said)
                forms[f"ن{_behind_prefix(stem)}{ending}"] = _join("nˈa", spoken) + said
                forms[f"می{stem}{ending}"] = _join("mˈi", spoken) + said
                forms[f"نمی{stem}{ending}"] = _join("nˈemi", spoken) + said
    # بدهی is rather a debt, and نبرد a battle.
    forms = {form: ipa for form, ipa in forms.items() if form not in load_words().nominals}
    return forms | {fold_word(word): ipa for word, ipa in table["word"].items()}


def _write(prefix: str, stem: str, ending: str) -> str:
    """Writes a folded form of the present: گو has a ی before its ending (می‌گویم), and ب joins آ by a ی (بیاورم)."""
    if prefix in "بن":
        return f"{prefix}{_behind_prefix(stem)}{ending}"
    return f"{prefix}{stem}{ending}"


def _behind_prefix(stem: str) -> str:
    return f"یا{stem[1:]}" if stem.startswith("آ") else f"ی{stem}" if stem.startswith("ا") else stem


def _join(prefix: str, stem: str) -> str:
    if stem[0] in VOWELS:
        # میاد, بیاد, نیاد: a glide joins the vowels.
        return f"{prefix[:-1]}ij{stem}" if prefix[-1] in "ea" else f"{prefix}j{stem}"
    if prefix == "bˈe" and stem in ("kon", "xor"):
        return f"bˈo{stem}"
    return prefix + stem


def _mark_stem(spoken: str, ending: str) -> str:
    """Puts the stress of a past form on the last syllable of its stem."""
    place = max(index for index, sign in enumerate(spoken) if sign in VOWELS)
    return f"{spoken[:place]}ˈ{spoken[place:]}{ending}"


def find_colloquial(word: str, context: Context) -> str | None:
    """Returns the colloquial IPA of a folded word in its context; None where it is said as in the formal register."""
    if word == "است":
        before = context.neighbour(-1)
        return "e" if before != "." and fold_word(before)[-1] not in "اوه" else None
    return _list_forms().get(word)


_PLURAL = re.compile(r"(?<=[^aeiouɑː])hˈ?ɑ(?=$|j|ʔ)")
_PLURAL_LETTERS = re.compile(f"(?:{ZWNJ})?ها(?:ی|یی|یم|یت|یش|یمان|یتان|یشان)?\\Z")
_PRONOUNS = ("مان", "تان", "شان")


def soften(ipa: str, word: str, tag: str) -> str:
    """Changes the endings of formal IPA: plurals, pronouns, and persons of verbs. `word` is as it is written."""
    folded, known = fold_word(word), load_words()
    if _is_plural(word, folded):
        ipa = _PLURAL.sub("ˈɑ", ipa)
    if folded.endswith(_PRONOUNS) and ipa.endswith("ɑn") and known.has_pronoun(folded):
        ipa = f"{ipa[:-2]}uːn"
    if tag[0] == "V" and folded.endswith("ند") and ipa.endswith("and"):
        return ipa[:-1]
    return ipa


def _is_plural(word: str, folded: str) -> bool:
    """Whether a word ends in ها behind a half-space, or behind a word that is known: not تنها."""
    ending = _PLURAL_LETTERS.search(word)
    if ending is None:
        return False
    nominals = load_words().nominals
    is_known = fold_word(word[: ending.start()]) in nominals and folded not in nominals
    return is_known or ending[0].startswith(ZWNJ)
