"""Persian words as tagger and tables know them: tokens of a text, folded spellings, what spelling says of ezafe.

Ezafe is the vowel that links a word to what follows it. It may be written: a kasra at the end, hamza or ی on a silent
he, ی behind ا and و. The rules here always hold; what they leave open is the tagger's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ZWNJ = "\u200c"
_KASRA, _HAMZA_ABOVE = "\u0650", "\u0654"

_TOKEN = re.compile(r"[^\W_](?:[\w\u200c\u064b-\u065f\u0670'’-]*[\w\u064b-\u065f\u0670])?|[^\w\s]")
_SIGNS = re.compile("[\u064b-\u065f\u0670\u200c\u200d]")
_FOLDED = str.maketrans("أإٱيىك", "ااایی" + "ک")
_PERSIAN = re.compile("[\u0620-\u06ff]")
_WRITTEN_EZAFE = re.compile(f"(?P<base>.*?)(?:{_KASRA}|(?<=ه){_HAMZA_ABOVE}|(?<=ه){ZWNJ}ی{_KASRA}?)\\Z")
_PLURAL_EZAFE = re.compile(f".{{2,}}(?:{ZWNJ}|[اآدذرزژو])?های\\Z")

_NEVER_LINKED = frozenset(
    "و یا که از به با را اگر چون زیرا ولی اما بلکه هم نیز این آن همین همان هر هیچ چند یک بسیار خیلی فقط حتی آیا مگر "
    "شاید باید من او ما شما آن‌ها آنها ایشان وی است هست نیست بود نبود شد نشد می نمی پس تا برای همچنین بنابراین هنوز "
    "اکنون الان دیگری یکی کسی چیزی هرگز تو چه کدام چنین چنان بعضی برخی ناگهان همیشه حالا سپس بالاخره گاهی اینجا آنجا "
    "دیشب البته تقریبا واقعا کاملا معمولا".split()
)
"""Words that have no ezafe in any context, or one that is part of their sound, as in برای."""
_BLESSINGS = frozenset(
    "صلیاللهعلیهوآله صلیاللهعلیه علیهالسلام علیهمالسلام سلاماللهعلیها رحمتاللهعلیه رضیاللهعنه عجلاللهفرجه".split()
)
"""Phrases behind a name, in one folded word."""
_NEVER_FOLLOW = _BLESSINGS.union("و یا که را از به با تا است هست نیست بود نبود شد هم نیز ولی اما زیرا اگر".split())
"""Words that never stand behind an ezafe."""
_ENDINGS_WITHOUT = ("هایی", "ترین", "هایم", "هایت", "هایش", "هایمان", "هایتان", "هایشان")
"""Indefinite plurals, superlatives and plurals with a pronoun."""


WORDS_FILE = "words.txt"
_PRONOUNS = ("مان", "تان", "شان", "م", "ت", "ش")
_MIN_BASE = 2


@dataclass(frozen=True, slots=True)
class KnownWords:
    """Folded words of the treebanks: base forms of nouns, names and adjectives, and forms that are verbs only."""

    nominals: frozenset[str]
    verbs: frozenset[str]

    def has_pronoun(self, word: str) -> bool:
        """Whether a folded word is a known one with a possessive pronoun: پدرم, خانه‌اش, صدایت."""
        if word in self.nominals:
            return False
        for ending in _PRONOUNS:
            base = word.removesuffix(ending)
            if base == word or len(base) < _MIN_BASE:
                continue
            if base in self.nominals and base[-1] not in "اوه":
                return True
            # خانه‌ام has an alef before the pronoun, صدایم a ye.
            if base[:-1] in self.nominals and (base[-2:-1], base[-1]) in _SEAMS:
                return True
        return False

    def has_linking_ye(self, word: str) -> bool:
        """Whether a folded word is a known one in ا or و with the ی that writes its ezafe: صدای, عموی."""
        return word.endswith(("ای", "وی")) and word not in self.nominals and word[:-1] in self.nominals


_SEAMS = frozenset({("ه", "ا"), ("ا", "ی"), ("و", "ی")})


@lru_cache(maxsize=1)
def load_words() -> KnownWords:
    """Reads the shipped list when it is first needed: nouns and adjectives in the first line, verbs in the second."""
    text = Path(__file__).with_name(WORDS_FILE).read_text(encoding="utf-8")
    nominals, verbs = (frozenset(line.split()) for line in text.splitlines()[1:3])
    return KnownWords(nominals, verbs)


def split_words(text: str) -> list[str]:
    """Returns the words and marks of punctuation of a normalised text."""
    return _TOKEN.findall(text)


@lru_cache(maxsize=50_000)
def fold_word(word: str) -> str:
    """Returns a word without half-spaces and vowel signs, as features and tables know it."""
    return _SIGNS.sub("", word).translate(_FOLDED)


def is_persian(word: str) -> bool:
    return _PERSIAN.search(word) is not None


def split_written_ezafe(word: str) -> tuple[str, bool]:
    """Returns a word without the kasra, hamza or ی that writes its ezafe, and whether there was one."""
    found = _WRITTEN_EZAFE.fullmatch(word)
    return (found["base"], True) if found and len(found["base"]) > 1 else (word, False)


def judge_ezafe(word: str, following: str) -> bool | None:
    """Returns whether a word has ezafe as far as spelling and the word behind it decide; None where they do not.

    `following` is '' at the end of a text, and may be a mark of punctuation.
    """
    if split_written_ezafe(word)[1]:
        return True
    if not is_persian(word) or not following[:1].isalnum():
        return False
    return _judge_folded(word, fold_word(following) in _NEVER_FOLLOW)


@lru_cache(maxsize=50_000)
def _judge_folded(word: str, stands_before_function_word: bool) -> bool | None:
    folded, known = fold_word(word), load_words()
    if stands_before_function_word or folded in _NEVER_LINKED | _BLESSINGS or folded.endswith(_ENDINGS_WITHOUT):
        return False
    if word.endswith(f"ه{ZWNJ}ای") or folded in known.verbs or known.has_pronoun(folded):
        return False
    return True if _PLURAL_EZAFE.fullmatch(word) or known.has_linking_ye(folded) else None
