"""Persian text normaliser: repairs letters, half-spaces and punctuation, and spells numbers, signs and abbreviations.

Latin words stay for the phonemiser, which switches the language. The rules that need a digit leave none, and each
repair runs on the output of those before it, so normalised text passes through unchanged.

The half-space (ZWNJ) is put where a space or nothing was typed: می‌خواهم, کتاب‌ها, بزرگ‌تر, رفته‌ام, خانه‌ی. Words
are joined from left to right. Whether a word may follow is judged by its first part only, and whether one may be
followed by its whole ending, so text that has been joined once is left as it is.
"""

from __future__ import annotations

import re
from typing import Literal

from myxtts.text.languages import fa_numbers
from myxtts.text.languages.fa_codes import read_codes
from myxtts.text.languages.fa_letters import (
    LETTERS,
    WORD_CHAR,
    clean_persian_letters,
    remove_stray_spaces,
    repair_punctuation,
)
from myxtts.text.languages.fa_numbers import CURRENCIES, NUMBER_WORDS, TABLE, spell_integer
from myxtts.text.languages.generic import SCORE, VERSION, Rule, apply_rules, join_numbers, say, settle_edges
from myxtts.text.languages.unicode_cleanup import ZWNJ, tidy

PersianRules = Literal[1, 2]
"""Version of the readings of numbers and signs that a front end was made with."""
LATEST_RULES: PersianRules = 2

# Endings that are joined to the word before: plurals, comparatives, and endings after a silent he.
_PLURALS = frozenset("ها های هایی هایم هایت هایش هایمان هایتان هایشان هاست".split())
_DEGREES = frozenset("تر ترین تری ترها ترین‌ها".split())
_AFTER_HE = frozenset("ام ای اند اش ات ایم اید ی اشان اتان امان".split())
# Words that take no plural and no comparison, and after which "تر" means wet.
_NEVER_INFLECTED = frozenset("و یا که از به در با را تا بر اگر هم چشم خشک ای".split())

_NON_JOINING = frozenset("اآأدذرزژوؤء")
"""Letters that never join the next one: no half-space is needed after them."""
_SOUNDED_HE = ("اه", "وه")
"""Endings of words in which the final he is a consonant, such as راه and کوه."""
_MIN_LETTERS_BEFORE_ENDING = 3
"""Shorter words in he, such as که, به and ده, take no joined ending."""
_TAIL_LENGTH = 16
"""Enough of the word before to judge by; longer than any word in the lists above."""

_PHRASE = re.compile(f"[{LETTERS}]{WORD_CHAR}*+(?: [{LETTERS}]{WORD_CHAR}*+)*+")


VERB_PREFIXES = frozenset({"می", "نمی"})
"""Prefixes of the present and the imperfect, affirmative and negative."""

# Stems and endings from which GLUED_FORMS is built; the spoken ones are colloquial.
_PRESENT_STEMS, _PAST_STEMS, _SPOKEN_STEMS = (
    TABLE[name].split() for name in ("present_stems", "past_stems", "spoken_stems")
)
_PRESENT_ENDINGS = "م ی د یم ید ند".split()
_PAST_ENDINGS = ["", "م", "ی", "یم", "ید", "ند"]
_SPOKEN_ENDINGS = "م ی ه ن یم ین".split()
_SPOKEN_EXTRA = "میخواد میاد میام میای میاین نمیخواد نمیاد نمیام نمیای نمیاین".split()

# Adjectives that look like verbs with a prefix: hazel (میشی), and "of a square" (میدانی).
_NOT_VERBS = frozenset({"میشی", "میدانی"})


def _list_glued_forms() -> frozenset[str]:
    bodies = [stem + ending for stem in _PRESENT_STEMS for ending in _PRESENT_ENDINGS]
    bodies += [stem + ending for stem in _PAST_STEMS for ending in _PAST_ENDINGS]
    bodies += [stem + ending for stem in _SPOKEN_STEMS for ending in _SPOKEN_ENDINGS]
    forms = {prefix + body for prefix in VERB_PREFIXES for body in bodies}
    return frozenset(forms.union(_SPOKEN_EXTRA) - _NOT_VERBS)


GLUED_FORMS = _list_glued_forms()
"""Finite forms written in one piece with می or نمی, such as میخواهم and نمیدانم."""

_PERSONAL_ENDING = re.compile(r"..*(?:[مدتنهی]|[مدی](?:ش|شان|تان|مان))")
_INFLECTED_ENDINGS = tuple(_PLURALS | _DEGREES)
_FUNCTION_WORDS = frozenset(
    "که به در از با تا بر را و یا هم این آن است هست نیست بود نبود نه چه همه من تن خود چند بعد هنوز همین همان چون "
    "برای سپس ولی اما امسال گذشته آینده روزه میلادی".split()
)


def repair_half_spaces(text: str) -> str:
    """Joins the words of each run of Persian words; punctuation, digits and Latin words end a run."""
    return _PHRASE.sub(lambda match: _join_words(match[0].split(" ")), text)


def _join_words(words: list[str]) -> str:
    """Joins words that belong together: by a half-space, or by nothing behind a letter that never joins (ا د ر و …)."""
    pieces: list[str] = []
    tail = ""
    for word in map(_split_glued_prefix, words):
        gap = " "
        if tail and _belong_together(tail, word):
            gap = "" if tail[-1] in _NON_JOINING else ZWNJ
        tail = (word if gap == " " else f"{tail}{gap}{word}")[-_TAIL_LENGTH:]
        pieces += [gap, word]
    return "".join(pieces[1:])


def _split_glued_prefix(word: str) -> str:
    """Puts a half-space behind the prefix of a verb that was written in one piece with it: میخواهم, نمیدانم."""
    first, mark, rest = word.partition(ZWNJ)
    if first not in GLUED_FORMS:
        return word
    prefix_length = 2 if first.startswith("می") else 3
    return f"{first[:prefix_length]}{ZWNJ}{first[prefix_length:]}{mark}{rest}"


def _belong_together(left: str, right: str) -> bool:
    """Whether two words are a prefix and its verb, a noun and its plural or degree, or a silent ه and its ending."""
    if left in VERB_PREFIXES:
        return _looks_like_verb(right.partition(ZWNJ)[0])
    if right in _PLURALS or right in _DEGREES:
        return len(left) > 1 and left not in _NEVER_INFLECTED
    return right in _AFTER_HE and _ends_in_silent_he(left)


def _ends_in_silent_he(word: str) -> bool:
    """As in خانه, where the last letter is a vowel; in راه and کوه it is a consonant."""
    last = word.rpartition(ZWNJ)[2]
    return last.endswith("ه") and len(last) >= _MIN_LETTERS_BEFORE_ENDING and not last.endswith(_SOUNDED_HE)


def _looks_like_verb(word: str) -> bool:
    """Whether `word` can stand after a separate می: it has a personal ending and is no function word.

    The noun می (wine, or the month of May) is rare enough that an ending is good evidence.
    """
    if word in VERB_PREFIXES or word in _FUNCTION_WORDS or word in NUMBER_WORDS:
        return False
    return _PERSONAL_ENDING.fullmatch(word) is not None and not word.endswith(_INFLECTED_ENDINGS)


DOTTED: dict[str, str] = TABLE["dotted"]
"""Eras and halves of the day. A space may follow the first full stop, and another full stop the second letter."""

NUMBERED: dict[str, str] = TABLE["before_number"]
"""Letters that stand for a word before a number."""

_DOTTED_KEYS = "|".join(key.replace(".", r"\. ?") for key in DOTTED)
_DOTTED = re.compile(rf"(?<!{WORD_CHAR})(?:{_DOTTED_KEYS})(?!{WORD_CHAR})\.?")
_NUMBERED = re.compile(rf"(?<!{WORD_CHAR})({'|'.join(sorted(NUMBERED, key=len, reverse=True))})\.? ?(?=\d)")

_OPERATIONS: dict[str, str] = TABLE["operations"]
_OPERATION = re.compile(r"(?<=\d) ?([+=×*÷<>]) ?(?=-?\d)")
_PREFIXES = {"#": "شماره", "№": "شماره", "~": "حدود", "+": "مثبت"}
_PREFIX = re.compile(r"(?<!\w)([#№~+]) ?(?=\d)")

# The order matters: what is more specific comes first, and MEASURE takes every digit that is left.
_NUMBER_RULES: tuple[Rule, ...] = (
    (fa_numbers.YEAR_FIRST, fa_numbers.read_date),
    (fa_numbers.DAY_FIRST, fa_numbers.read_date),
    (fa_numbers.SHORT_YEAR, fa_numbers.read_date),
    (fa_numbers.TIME, fa_numbers.read_time),
    (fa_numbers.CHRISTIAN_YEAR, fa_numbers.read_christian_year),
    (SCORE, join_numbers(spell_integer, " به ")),
    (VERSION, fa_numbers.read_version),
    (fa_numbers.DIGIT_CHAIN, join_numbers(spell_integer, " ")),
    (fa_numbers.ORDINAL, fa_numbers.read_ordinal),
    (fa_numbers.CENTURY, fa_numbers.read_ordinal),
    (fa_numbers.FRACTION, fa_numbers.read_fraction),
    (fa_numbers.COMMON_FRACTION, fa_numbers.read_common_fraction),
    (fa_numbers.PERCENT_FIRST, fa_numbers.read_percent_first),
    (fa_numbers.MONEY, fa_numbers.read_money),
    (fa_numbers.MEASURE, fa_numbers.read_measure),
)

_SIGNS: dict[str, str] = TABLE["signs"] | {sign: currency.name for sign, currency in CURRENCIES.items()}
_SIGN = re.compile("[" + re.escape("".join(_SIGNS)) + "]")
_AND_SIGN = re.compile(r"(?<![A-Za-z])&|&(?![A-Za-z])")


def normalize_persian(text: str, rules: PersianRules = LATEST_RULES) -> str:
    """Returns Persian text as it is spoken.

    Order: letters, codes, abbreviations, numbers, signs; half-spaces and punctuation last, because number words need
    them too. `rules` 1 are those of models that were made before `fa_codes`.
    """
    text = remove_stray_spaces(clean_persian_letters(text))
    if rules > 1:
        text = settle_edges(read_codes(text))
    text = settle_edges(_expand_abbreviations(text))
    text = settle_edges(_read_signs(_read_numbers(text)))
    return tidy(repair_punctuation(repair_half_spaces(text)))


def _expand_abbreviations(text: str) -> str:
    text = _DOTTED.sub(_expand_dotted, text)
    return _NUMBERED.sub(lambda match: say(NUMBERED[match[1]]), text)


def _expand_dotted(match: re.Match[str]) -> str:
    """Expands an era or half of the day; a full stop at the very end also ends the sentence."""
    key = match[0].replace(" ", "").rstrip(".")
    ends_sentence = match[0].endswith(".") and match.end() == len(match.string)
    return say(DOTTED[key]) + ("." if ends_sentence else "")


def _read_numbers(text: str) -> str:
    """Reads telephone numbers before signs, because their plus belongs to them; then every number."""
    text = apply_rules(text, [(fa_numbers.PHONE, fa_numbers.read_phone)])
    text = _OPERATION.sub(lambda match: say(_OPERATIONS[match[1]]), text)
    text = _PREFIX.sub(lambda match: say(_PREFIXES[match[1]]), text)
    return apply_rules(text, _NUMBER_RULES)


def _read_signs(text: str) -> str:
    text = _SIGN.sub(lambda match: say(_SIGNS[match[0]]), text)
    return _AND_SIGN.sub(say("و"), text)
