"""Persian punctuation: ، ؛ ؟ after Persian words, and one way of spacing around marks, quotes and brackets."""

from __future__ import annotations

import re

from myxtts.text.languages.fa_letters import LETTER, LETTERS

_PERSIAN_MARKS = {",": "،", ";": "؛", "?": "؟"}
_IS_PERSIAN = re.compile(f"[{LETTERS}]")

# A full stop is left alone inside names such as ".com", and dots are never pushed together into an ellipsis.
_SPACE_BEFORE_MARK = re.compile(r" (?=[،؛؟,;?!:»)\]}])|(?<![.…]) (?=…|\.(?:[\s»)\]}\"']|$))")
_SPACE_AFTER_OPENING = re.compile(r"(?<=[«(\[{]) ")
_MISSING_AFTER_MARK = re.compile(rf"(?<=[،؛؟!:»)\]…])(?=[{LETTERS}«(\[])|(?<=:)(?=\")")
_MISSING_AFTER_STOP = re.compile(rf"(?<={LETTER}{LETTER}\.)(?=[{LETTERS}«(\[])")
_MISSING_BEFORE_OPENING = re.compile(rf"(?<={LETTER})(?=[«(\[])")


def remove_stray_spaces(text: str) -> str:
    return _SPACE_AFTER_OPENING.sub("", _SPACE_BEFORE_MARK.sub("", text))


def repair_punctuation(text: str) -> str:
    text = remove_stray_spaces(_use_persian_marks(text))
    text = _MISSING_AFTER_MARK.sub(" ", text)
    text = _MISSING_AFTER_STOP.sub(" ", text)
    return _MISSING_BEFORE_OPENING.sub(" ", text)


def _use_persian_marks(text: str) -> str:
    """A comma belongs to the script of the last letter before it, or of the first one after it."""
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
