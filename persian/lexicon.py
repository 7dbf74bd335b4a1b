"""Makes the lexicon: how FarsDat's words are spoken, and a list of our own, which wins.

Our own list, `lexicon.txt`, has a word and its sound in Latin letters on each line: A is ɑ, S ʃ, C tʃ, j dʒ, Z ʒ, y j,
' the glottal stop; q, x and the others are as in IPA. Of FarsDat a word is taken where its letters and its phonemes
have the same consonants, in the reading that is most frequent.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path

from myxtts.text.persian.homographs import load_homographs
from myxtts.text.persian.words import fold_word, is_persian
from persian.farsdat import SpokenWord, has_same_consonants, to_ipa

_LATIN = {"A": "ɑ", "S": "ʃ", "C": "tʃ", "j": "dʒ", "Z": "ʒ", "y": "j", "g": "ɡ", "'": "ʔ", "u": "uː", "O": "o"}
_SAME = "abdefhiklmnopqrstvxz"
_VOWEL_SIGNS = re.compile("[\u064b-\u0652\u0670]")
_MIN_COUNT = 3
_MAX_PARTS = 2
"""Half-spaces and one: longer compounds are read by their parts."""


def latin_to_ipa(latin: str) -> str:
    """Raises ValueError for a letter that the list does not use."""
    if unknown := set(latin) - set(_LATIN) - set(_SAME):
        raise ValueError(f"{latin}: there is no letter {', '.join(sorted(unknown))} (see the top of this module)")
    return "".join(_LATIN.get(letter, letter) for letter in latin)


def collect_entries(sentences: list[list[SpokenWord]], known: frozenset[str], own_list: Path) -> dict[str, str]:
    """Returns IPA by word, without ezafe and without a glottal stop at the start.

    `known` are the folded words of the treebanks: what only FarsDat has must occur there more than once, because it has
    many words that were written together by mistake.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for spoken in (spoken for words in sentences for spoken in words if _is_usable(spoken)):
        counts[spoken.word][_base_ipa(spoken)] += 1
    entries = {}
    for word, readings in sorted(counts.items()):
        best, count = min(readings.items(), key=lambda item: (-item[1], item[0]))
        if count * 2 > readings.total() and (count >= _MIN_COUNT or fold_word(word) in known):
            entries[word] = best
    for line in own_list.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            word, latin = line.split()
            entries[word] = latin_to_ipa(latin)
    homographs = load_homographs()
    return {word: ipa for word, ipa in sorted(entries.items()) if not homographs.always_decides(fold_word(word))}


def _is_usable(word: SpokenWord) -> bool:
    if not word.phonemes or not is_persian(word.word) or _VOWEL_SIGNS.search(word.word):
        return False
    parts = word.word.count("\u200c") + 1
    if word.word.endswith(("های", "\u200cی", "هایی")):
        return False
    return parts <= _MAX_PARTS and word.num_spoken == 1 and has_same_consonants(word)


def _base_ipa(word: SpokenWord) -> str:
    """The phonemes of a word without its ezafe; the ی behind ا and و stays, as it is written."""
    phonemes = word.phonemes
    if word.has_ezafe:
        phonemes = phonemes[:-1]
        if (phonemes.endswith("y") and fold_word(word.word)[-1] not in "ی") or phonemes.endswith("iy"):
            phonemes = phonemes[:-1]
    return to_ipa(phonemes).removeprefix("ʔ")
