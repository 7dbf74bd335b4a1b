"""Persian letters: Arabic and other look-alikes become the Persian letter, half-spaces stand only where they mean
something, and what is explicitly written (vowel signs, hamza, ezafe on a final he) is kept.
"""

from __future__ import annotations

import re

from myxtts.text.languages.unicode_cleanup import ZWJ, ZWNJ, FoldTable, clean_unicode, tidy

LETTERS = "\u0621-\u063a\u0641-\u064a\u066e\u066f\u0671-\u06d3\u06d5\u06ee\u06ef\u06fa-\u06fc\u06ff\u0750-\u077f"
VOWEL_SIGNS = "\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed"
LETTER = f"[{LETTERS}{VOWEL_SIGNS}]"
WORD_CHAR = f"[{LETTERS}{VOWEL_SIGNS}{ZWNJ}]"
"""One character of a Persian word, half-spaces included."""

_HAMZA_ABOVE = "\u0654"
_HAMZA_BELOW = "\u0655"

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
    text = clean_unicode(text, _TABLE)
    text = _LEGACY_HALF_SPACE.sub(ZWNJ, text)
    text = _IDLE_HALF_SPACE.sub("", text)
    text = _EZAFE_HAMZA.sub(f"ه{_HAMZA_ABOVE}", text)
    return tidy(text.replace(f"ی{_HAMZA_ABOVE}", "ئ"))
