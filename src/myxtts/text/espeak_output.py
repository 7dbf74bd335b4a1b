"""What espeak-ng prints as IPA, made IPA: no language tags, no leftovers of its own ASCII spelling, whole tones.

Where a voice defines no IPA for a phone, espeak prints its internal mnemonic with some letters replaced. The tables
come from listing what all its voices print.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from myxtts.text.inventory import VOWELS

# Between phones, when one was asked for. It occurs in no phone's name.
SEPARATOR = "|"
# Voices that number their tones.
TONAL_LANGUAGES = frozenset({"cmn", "yue", "hak", "vi", "th", "shn", "my"})

_LANGUAGE_TAG = re.compile(r"\(([a-zA-Z][a-zA-Z0-9]{1,8}(?:-[a-zA-Z0-9]+)*)\)")
_SUPERSCRIPTS = str.maketrans("123456789", "¹²³⁴⁵⁶⁷⁸⁹")

_EVERYWHERE: Mapping[str, str] = {
    "t.": "ʈ",
    "d.": "ɖ",
    "n.": "ɳ",
    "l.": "ɭ",
    "r.": "ɽ",
    "s.": "ʂ",
    "z.": "ʐ",
    "i.": "ɨ",
    'u"': "ʉ",
    "ʰχ": "χ",
    "_h": "ʰ",
    "S": "ʃ",
    "Z": "ʒ",
    "N": "ŋ",
    "X": "χ",
    "K": "ɬ",
    "A": "ɑ",
    "Φ": "ɸ",
    "?": "ʔ",
    ":": "ː",
    "#": "\u0325",
    "[": "\u032a",
}
# For the parts in the voice's own language, before the general table.
_BY_LANGUAGE: Mapping[str, Mapping[str, str]] = {
    "cmn": {"o-": "ɤ", "nɡ": "ŋ", "h": "ʰ"},
    "yue": {"nɡ": "ŋ"},
    "hak": {"o-": "ɤ"},
    "ko": {"p-": "p\u0348", "t-": "t\u0348", "k-": "k\u0348", "q-": "k\u0348", "d-": "t\u0348", "s-": "s\u0348"},
    "ky": {"l-": "ɫ"},
    "ar": {"a.": "aˤ", "i.": "iˤ", "u.": "uˤ"},
}
# Variants of a phone that espeak tells apart by a sign or a figure and IPA does not; both marks mean a modified
# consonant, and nothing that is heard after a vowel.
_PALATAL_OR_EJECTIVE = re.compile(rf"(?P<vowel>[{VOWELS}][\u0300-\u036fː]*)?(?P<mark>[\^`])")
_VARIANT_SIGNS = re.compile(r"[-+_.\"~0-9]")
# A glide at the start of a word is a phone of its own; length and stress with nothing to bear them are not heard.
_FIRST_GLIDE = re.compile(r"(?<!\S)([ˈˌ]?)([ʲʰʷ])")
_GLIDE_LETTERS = {"ʲ": "j", "ʰ": "h", "ʷ": "w"}
_BORNE_BY_NOTHING = re.compile(r"(?<!\S)ː+|[ˈˌ]+(?=[ʲː]*(?:\s|$))")


def _compile(table: Mapping[str, str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(key) for key in sorted(table, key=len, reverse=True)))


_EVERYWHERE_PATTERN = _compile(_EVERYWHERE)
_LANGUAGE_PATTERNS = {language: _compile(table) for language, table in _BY_LANGUAGE.items()}


def is_tonal(voice: str) -> bool:
    return voice.partition("-")[0] in TONAL_LANGUAGES


def clean_ipa(printed: str, voice: str) -> str:
    """IPA from what espeak printed for `voice`: stress marks, letters and modifiers, one space between words."""
    own_language = voice.partition("-")[0]
    pattern = _LANGUAGE_PATTERNS.get(own_language)
    parts = []
    for language, part in _split_by_language(printed, own_language):
        if pattern and language == own_language:
            parts.append(pattern.sub(lambda match: _BY_LANGUAGE[own_language][match[0]], part))
        else:
            parts.append(part)
    ipa = _EVERYWHERE_PATTERN.sub(lambda match: _EVERYWHERE[match[0]], "".join(parts))
    ipa = _PALATAL_OR_EJECTIVE.sub(_resolve_mark, ipa)
    ipa = _FIRST_GLIDE.sub(lambda match: match[1] + _GLIDE_LETTERS[match[2]], _VARIANT_SIGNS.sub("", ipa))
    return " ".join(_BORNE_BY_NOTHING.sub("", ipa).split())


def restore_tones(printed_ipa: str, printed_mnemonics: str, voice: str) -> str:
    """The printed IPA with whole tones as superscript figures, read from the mnemonics of the same text.

    In IPA espeak prints only the first figure of a tone, which makes one of two tones of Mandarin, and prints 3 as the
    vowel ɜ. Both texts were printed with separators, so that phones correspond one to one.
    """
    ipa_words, mnemonic_words = printed_ipa.split(), printed_mnemonics.split()
    if len(ipa_words) != len(mnemonic_words):
        mnemonic_words = [""] * len(ipa_words)
    own_language = language = voice.partition("-")[0]
    words = []
    for ipa_word, mnemonic_word in zip(ipa_words, mnemonic_words, strict=True):
        phones = [phone for phone in ipa_word.split(SEPARATOR) if phone]
        names: list[str] = [name for name in mnemonic_word.split(SEPARATOR) if name and name[0] not in "_;"]
        if len(names) != len(phones):
            names = phones
        for index, phone in enumerate(phones):
            if tag := _LANGUAGE_TAG.fullmatch(phone):
                language = tag[1].partition("-")[0]
            elif language == own_language:
                phones[index] = _put_tone(phone, names[index])
        words.append("".join(phones))
    return " ".join(words)


def _split_by_language(printed: str, own_language: str) -> list[tuple[str, str]]:
    """The printed phones with the language each part is in; espeak changes it in the middle for foreign words."""
    pieces = _LANGUAGE_TAG.split(printed)
    languages = [own_language, *(tag.partition("-")[0] for tag in pieces[1::2])]
    return list(zip(languages, pieces[::2], strict=True))


def _put_tone(phone: str, name: str) -> str:
    tone = re.search(r"(?<=[^\d'ˈˌ,])\d+$", name)
    if tone is None:
        # Without its mnemonic a phone still shows the first figure, 3 in disguise.
        tone = re.search(r"(?<=[^\d'ˈˌ,])[\dɜ]$", name)
    if tone is None:
        return phone
    return re.sub(r"[\dɜ]$", "", phone) + tone[0].replace("ɜ", "3").translate(_SUPERSCRIPTS)


def _resolve_mark(match: re.Match[str]) -> str:
    if match["vowel"]:
        return match["vowel"]
    return {"^": "ʲ", "`": "ʼ"}[match["mark"]]
