"""Pronunciation of one Persian word: vowels from the lexicon, endings by rule, ezafe, and stress.

lexicon.tsv has the words that espeak-ng reads wrong; inflected forms of them are built from their endings. Stress is on
the last syllable of nouns, adjectives and adverbs, before their unstressed endings (ezafe, indefinite ی, pronouns), and
on the prefix or the stem of verbs. Symbols are those of espeak-ng's Persian voice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from myxtts.text.persian.words import fold_word, load_words

LEXICON_FILE = "lexicon.tsv"
VOWELS = "aeiouɑ"
_VOWEL = re.compile(f"[{VOWELS}]ː?")
_STRESS = str.maketrans("", "", "ˈˌ")
_LENGTH = re.compile("(?<=[aeioɑ])ː")
_GLIDE = re.compile("(?<=i)(?=[aeouɑ])")
_HIATUS = re.compile(f"(?<=[aeɑoː])(?=[{VOWELS}])")
_FINAL_DOUBLE = re.compile(r"(?P<letter>[^aeiouɑː])(?P=letter)\Z")

# Endings as they are written and as they sound behind a consonant; the stressed ones move the stress to themselves.
_NOUN_ENDINGS = {
    "هایشان": "hˈɑjeʃɑn",
    "هایمان": "hˈɑjemɑn",
    "هایتان": "hˈɑjetɑn",
    "هایی": "hˈɑʔi",
    "هایم": "hˈɑjam",
    "هایت": "hˈɑjat",
    "هایش": "hˈɑjaʃ",
    "های": "hˈɑj",
    "ها": "hˈɑ",
    "ترین": "tarˈin",
    "تر": "tˈar",
    "شان": "eʃɑn",
    "مان": "emɑn",
    "تان": "etɑn",
    "ی": "i",
    "م": "am",
    "ت": "at",
    "ش": "aʃ",
}
_ENDINGS_BEHIND_HE = {"ام": "ʔam", "ات": "ʔat", "اش": "ʔaʃ", "ای": "ʔi", "اند": "ʔand", "ایم": "ʔim", "اید": "ʔid"}
_HALF_SPACE_BEHIND_HE = "ه\u200cا"
_MIN_BASE = 2

# Where the stress of a verb is: on the negative or the present prefix, else before the personal ending.
_VERB_PREFIX = re.compile(rf"nemi|mi|(?:na|ne|be|bo)(?=[^{VOWELS}])|bi(?=j?ɑ)")
_PERSONAL_ENDING = re.compile(rf"(?P<stem>.*[{VOWELS}].*?)(?:am|im|and|(?<=[td])(?:id|i))\Z")
_UNSTRESSED_TAGS = frozenset("PCI")
_FIRST_SYLLABLE = frozenset(
    "ولی اما اگر مگر شاید باید بلکه یعنی آری بلی خیلی حتی لیکن آیا البته بله زیرا گرچه اگرچه".split()
)


def split_plural(word: str) -> tuple[str, str]:
    """Returns a folded word without its plural ending, and the IPA of the ending; '' where it has none."""
    for ending, sound in _NOUN_ENDINGS.items():
        if ending.startswith("ها") and word.endswith(ending) and len(word) - len(ending) >= _MIN_BASE:
            return word.removesuffix(ending), sound
    return word, ""


def clean_espeak(ipa: str) -> str:
    """Returns IPA of espeak-ng for one word without stress, with length on u only, and no two vowels side by side."""
    plain = _LENGTH.sub("", ipa.translate(_STRESS)).replace(" ", "")
    return _HIATUS.sub("ʔ", _GLIDE.sub("j", re.sub("u(?!ː)", "uː", plain)))


def add_ezafe(ipa: str, word: str) -> str:
    """Adds the linking vowel: `e` behind a consonant, `je` behind a vowel. `word` is folded."""
    if word.endswith(("ای", "وی")) and ipa.endswith("j"):
        return f"{ipa}e"
    return f"{ipa}je" if ipa[-1:] in f"{VOWELS}ː" else f"{ipa}e"


def drop_ezafe(ipa: str, word: str) -> str:
    """Removes the ezafe that espeak-ng reads in every word in ای and وی, as in چای."""
    return ipa[:-1] if ipa.endswith(("ɑje", "uːje", "oje")) and word.endswith(("ای", "وی")) else ipa


def place_stress(ipa: str, tag: str, word: str) -> str:
    """Puts the mark of stress before a vowel. `tag` is the part of speech, and `ipa` is without ezafe."""
    if "ˈ" in ipa:
        return ipa
    vowels = [match.start() for match in _VOWEL.finditer(ipa)]
    # `e` alone is است of the colloquial register, which leans on the word before.
    if not vowels or ipa == "e" or (tag[0] in _UNSTRESSED_TAGS and len(vowels) == 1):
        return ipa
    place = vowels[-1]
    if word in _FIRST_SYLLABLE:
        place = vowels[0]
    elif tag[0] == "V":
        place = _find_verb_stress(ipa, vowels)
    return f"{ipa[:place]}ˈ{ipa[place:]}"


def _find_verb_stress(ipa: str, vowels: list[int]) -> int:
    prefix = _VERB_PREFIX.match(ipa)
    if prefix and len(vowels) > 1:
        return vowels[0]
    stem = _PERSONAL_ENDING.fullmatch(ipa)
    inside = [place for place in vowels if stem and place < stem.end("stem")]
    return inside[-1] if inside else vowels[-1]


class Pronunciations:
    """IPA by folded word, without stress where it is on the last syllable."""

    def __init__(self, entries: Mapping[str, str]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, written: str) -> str | None:
        """Returns the IPA of a word or of an inflected form of one; a doubled last consonant is kept."""
        word = fold_word(written)
        known = self._entries.get(word)
        if known is not None:
            return known
        if _HALF_SPACE_BEHIND_HE in written:
            # داده‌ای is داده with an ending, not داد in the plural.
            return self._find_behind_he(word)
        is_base_form = word in load_words().nominals
        for ending, sound in _NOUN_ENDINGS.items():
            if is_base_form and ending[-1] in "متش":
                # قیمت is a word, not قیم with a pronoun.
                continue
            base = self._entries.get(word.removesuffix(ending)) if word.endswith(ending) else None
            if base and len(word) - len(ending) >= _MIN_BASE:
                joined = _join(base, sound)
                if joined:
                    return joined
        return self._find_behind_he(word)

    def _find_behind_he(self, word: str) -> str | None:
        for ending, sound in _ENDINGS_BEHIND_HE.items():
            if word.endswith(f"ه{ending}") and (base := self._entries.get(word.removesuffix(ending))):
                return _mark_last(base) + sound if base.endswith("e") else None
        return None


def _join(base: str, sound: str) -> str | None:
    """Joins a base and an ending; None where the sound of the seam is not that of a consonant and an ending."""
    if sound[0] in "ht":
        return _FINAL_DOUBLE.sub(r"\g<letter>", base) + sound
    if base[-1] in f"{VOWELS}ː":
        return None
    # An indefinite ی has no stress, one that makes adjectives and abstract nouns has; the latter are more frequent.
    return f"{base}i" if sound == "i" else _mark_last(base) + sound


def _mark_last(ipa: str) -> str:
    vowels = [match.start() for match in _VOWEL.finditer(ipa)]
    return ipa if "ˈ" in ipa or not vowels else f"{ipa[: vowels[-1]]}ˈ{ipa[vowels[-1] :]}"


def shorten_last(ipa: str) -> str:
    """Drops the second of two equal consonants at the end, which is only heard before a vowel: haqq, but haqqe."""
    return _FINAL_DOUBLE.sub(r"\g<letter>", ipa)


@lru_cache(maxsize=1)
def load_pronunciations() -> Pronunciations:
    """Reads the shipped lexicon when it is first needed."""
    entries: dict[str, str] = {}
    text = Path(__file__).with_name(LEXICON_FILE).read_text(encoding="utf-8")
    for line in text.splitlines()[1:]:
        word, _, ipa = line.partition("\t")
        entries[fold_word(word)] = ipa
    return Pronunciations(entries)
