"""Persian orthography: folds Arabic and other look-alike letters, drops idle half-spaces, repairs punctuation.

Signs that are written explicitly (short vowels, hamza, ezafe on a final he) are kept, because they tell the
phonemiser how to read the word. Punctuation becomes ، ؛ ؟ after Persian words, with one way of spacing around marks,
quotes and brackets. `fa.normalize_persian` calls these steps.
"""

from __future__ import annotations

import re

from myxtts.text.languages.unicode_cleanup import ZWJ, ZWNJ, FoldTable, clean_unicode, tidy

LETTERS = "\u0621-\u063a\u0641-\u064a\u066e\u066f\u0671-\u06d3\u06d5\u06ee\u06ef\u06fa-\u06fc\u06ff\u0750-\u077f"
"""Arabic-script letters, as ranges of a regular-expression class."""
VOWEL_SIGNS = "\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed"
"""Combining signs on letters: short vowels, doubling, Quranic marks."""
LETTER = f"[{LETTERS}{VOWEL_SIGNS}]"
WORD_CHAR = f"[{LETTERS}{VOWEL_SIGNS}{ZWNJ}]"
"""One character of a Persian word, half-spaces included."""

_HAMZA_ABOVE = "\u0654"
_HAMZA_BELOW = "\u0655"

# Letters of Arabic, Urdu, Kurdish and other alphabets, and the Persian letter that they are typed for.
_LETTER_FORMS = {
    **dict.fromkeys("يىےۍېۑ", "ی"),
    **dict.fromkeys("كڪڬڭڮ", "ک"),
    **dict.fromkeys("ةەہھۃۿ", "ه"),
    **dict.fromkeys("إٱٳ", "ا"),
    "ٲ": "أ",
    "ۓ": "ئ",
    "ۀ": f"ه{_HAMZA_ABOVE}",
    "ۂ": f"ه{_HAMZA_ABOVE}",
    _HAMZA_BELOW: "",
}

# Signs that have a Persian form or meaning, and that `clean_unicode` would fold otherwise.
_SIGN_FORMS = {
    "«": "«",
    "»": "»",
    "\u201c": "«",
    "\u201d": "»",
    "٪": "%",
    "۔": ".",
    # A written fraction keeps its own bar, because "/" between digits is the decimal sign in Persian.
    "\u2044": "\u2044",
    "²": "²",
    "³": "³",
    "\u200b": ZWNJ,
    ZWJ: "",
}

_TABLE = FoldTable(_LETTER_FORMS | _SIGN_FORMS)

# Old word processors wrote the half-space as a "not" sign.
_LEGACY_HALF_SPACE = re.compile(f"(?<={LETTER})[¬{ZWNJ}]+(?=[{LETTERS}])")
_EZAFE_HAMZA = re.compile(f"ه{ZWNJ}?ء(?!{LETTER})")
# These letters never join the next one, so a half-space after them changes neither look nor sound.
_IDLE_HALF_SPACE = re.compile(f"(?<=[اآأدذرزژوؤء]){ZWNJ}")


def clean_persian_letters(text: str) -> str:
    """Runs `clean_unicode` with the Persian table, then repairs half-spaces and hamza."""
    text = clean_unicode(text, _TABLE)
    text = _LEGACY_HALF_SPACE.sub(ZWNJ, text)
    text = _IDLE_HALF_SPACE.sub("", text)
    text = _EZAFE_HAMZA.sub(f"ه{_HAMZA_ABOVE}", text)
    return tidy(text.replace(f"ی{_HAMZA_ABOVE}", "ئ"))


_PERSIAN_MARKS = {",": "،", ";": "؛", "?": "؟"}
_IS_PERSIAN = re.compile(f"[{LETTERS}]")

# A full stop is left alone inside names such as ".com", and dots are never pushed together into an ellipsis.
_SPACE_BEFORE_MARK = re.compile(r" (?=[،؛؟,;?!:»)\]}])|(?<![.…]) (?=…|\.(?:[\s»)\]}\"']|$))")
_SPACE_AFTER_OPENING = re.compile(r"(?<=[«(\[{]) ")
_MISSING_AFTER_MARK = re.compile(rf"(?<=[،؛؟!:»)\]…])(?=[{LETTERS}«(\[])|(?<=:)(?=\")")
_MISSING_AFTER_STOP = re.compile(rf"(?<={LETTER}{LETTER}\.)(?=[{LETTERS}«(\[])")
_MISSING_BEFORE_OPENING = re.compile(rf"(?<={LETTER})(?=[«(\[])")


def remove_stray_spaces(text: str) -> str:
    """Removes spaces before closing marks and after opening ones."""
    return _SPACE_AFTER_OPENING.sub("", _SPACE_BEFORE_MARK.sub("", text))


def repair_punctuation(text: str) -> str:
    """Uses Persian marks, removes stray spaces, and adds those that are missing behind and before marks."""
    text = remove_stray_spaces(_use_persian_marks(text))
    text = _MISSING_AFTER_MARK.sub(" ", text)
    text = _MISSING_AFTER_STOP.sub(" ", text)
    return _MISSING_BEFORE_OPENING.sub(" ", text)


def _use_persian_marks(text: str) -> str:
    """Replaces , ; ? by ، ؛ ؟ where the last letter before the mark is Persian, or the first after it."""
    if not any(mark in text for mark in _PERSIAN_MARKS):
        return text
    first_letter = next((char for char in text if char.isalpha()), "")
    follows_persian = _IS_PERSIAN.match(first_letter) is not None
    chars: list[str] = []
    for char in text:
        if char.isalpha():
            follows_persian = _IS_PERSIAN.match(char) is not None
        chars.append(_PERSIAN_MARKS.get(char, char) if follows_persian else char)
    return "".join(chars)
