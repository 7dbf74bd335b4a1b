"""The user's pronunciation lexicon: one word, a tab and its IPA per line; `#` starts a comment line.

A word matches whole words of the text in any case, before the normaliser: an entry for z.B. or Dr. is taken as it is.
The file may be UTF-8 with or without a byte order mark. Entries are checked against the phone inventory when the file
is read, so that `Phonemizer` can use them as they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from myxtts.errors import DataError, refuse
from myxtts.storage.regular_file import FileRefusedError, read_regular
from myxtts.text.inventory import PUNCTUATION, STANDARD_INVENTORY
from myxtts.text.ipa import parse_word, split_ipa

MAX_ENTRIES = 2_000_000
"""Of a lexicon inside frontend.json, which may come from anywhere."""
_MAX_LEXICON_BYTES = 100_000_000
_MAX_WORD_LENGTH = 200
_TEXT_END = re.compile(r"\s*+\Z")
_MAX_IPA_LENGTH = 1000
PROTECTED_DOT = "\ua4f8"
"""A letter of the Lisu script that looks like a full stop. It stands for one inside a word of the lexicon, because
normaliser and phonemiser leave letters as they are."""
_SPELLINGS = str.maketrans(f"يىك’{PROTECTED_DOT}", "ییک'.")
"""Arabic yeh and kaf, which many keyboards type for the Persian letters, curved apostrophes and protected dots."""


@dataclass(frozen=True)
class Lexicon:
    """IPA by word, as `fold_word` writes it."""

    entries: Mapping[str, str]

    def find(self, word: str) -> str | None:
        return self.entries.get(fold_word(word))

    def protect_dots(self, text: str) -> str:
        """Replaces the full stops of words of the lexicon, such as z.B. or Dr., so that they reach the phonemiser.

        The normaliser would expand them, and the phonemiser would take the full stop for a pause. At the end of the
        text the full stop ends the sentence too.
        """
        if self._dotted is None:
            return text
        return self._dotted.sub(_protect, text)

    @cached_property
    def _dotted(self) -> re.Pattern[str] | None:
        words = sorted((word for word in self.entries if "." in word), key=len, reverse=True)
        if not words:
            return None
        return re.compile(rf"(?<![^\W_])(?:{'|'.join(map(re.escape, words))})(?![^\W_])", re.IGNORECASE)


def _protect(match: re.Match[str]) -> str:
    ends_text = match[0].endswith(".") and _TEXT_END.match(match.string, match.end()) is not None
    return match[0].replace(".", PROTECTED_DOT) + ("." if ends_text else "")


def fold_word(word: str) -> str:
    """Returns the key of a word: case-folded, NFC, Persian letters for Arabic ones, straight apostrophes."""
    return unicodedata.normalize("NFC", word.casefold()).translate(_SPELLINGS)


def load_lexicon(path: Path) -> Lexicon:
    """Reads a lexicon; raises DataError with path and line for a line that cannot be used or a repeated word."""
    try:
        text = read_regular(path, _MAX_LEXICON_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise DataError(
            f"The lexicon {path} cannot be read: {error.strerror}.", next_step="Check the path in data.lexicon."
        ) from error
    except FileRefusedError as error:
        raise refuse(f"The lexicon {path}", str(error), "Check the path in data.lexicon.") from error
    except UnicodeDecodeError as error:
        bad_line = error.object[: error.start].count(b"\n") + 1
        raise DataError(f"{path}:{bad_line} is not UTF-8.", next_step="Save the lexicon as UTF-8.") from error
    entries: dict[str, str] = {}
    lines_by_word: dict[str, int] = {}
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        word, ipa = _read_line(line, f"{path}:{number}")
        if word in entries:
            raise DataError(
                f"{path}:{number} gives {word!r} again; it was at line {lines_by_word[word]}.",
                next_step="Keep one of the two lines.",
            )
        entries[word] = ipa
        lines_by_word[word] = number
    return Lexicon(entries)


def check_entries(entries: Mapping[str, str], place: str) -> Lexicon:
    """Makes a lexicon from untrusted data, such as frontend.json; `place` names the data in errors."""
    if len(entries) > MAX_ENTRIES:
        raise _unusable(place, f"has a lexicon of {len(entries):,} words, more than {MAX_ENTRIES:,}")
    for word, ipa in entries.items():
        if not word or word != fold_word(word):
            raise _unusable(place, f"has an entry {word!r} in its lexicon that is not a folded word")
        _check_ipa(word, ipa, place)
    return Lexicon(entries)


def _read_line(line: str, place: str) -> tuple[str, str]:
    """Parses one line into folded word and IPA; raises DataError."""
    word, tab, ipa = line.partition("\t")
    word, ipa = word.strip(), ipa.strip()
    if not tab:
        raise _unusable(place, f"has no tab between a word and its IPA: {line.strip()[:60]!r}")
    if not word or not ipa:
        raise _unusable(place, "has no word before the tab" if not word else f"has no IPA for {word!r}")
    if len(word.split()) > 1:
        raise _unusable(place, f"has {word!r}, which is more than one word")
    _check_ipa(word, ipa, place)
    return fold_word(word), ipa


def find_ipa_problem(ipa: str) -> str:
    """Returns what is wrong with IPA, such as "has punctuation"; '' where it can be spoken."""
    if not ipa or len(ipa) > _MAX_IPA_LENGTH:
        return f"is longer than {_MAX_IPA_LENGTH:,} characters" if ipa else "is empty"
    pieces = split_ipa(ipa)
    if any(piece in PUNCTUATION for piece in pieces):
        return "has punctuation; a long vowel is written ː, not :"
    unknown = [sign for piece in pieces for sign in parse_word(piece, STANDARD_INVENTORY)[1]]
    return f"has signs that are not known IPA: {' '.join(unknown)}" if unknown else ""


def _check_ipa(word: str, ipa: str, place: str) -> None:
    """Raises DataError where a word or its IPA cannot be used."""
    if len(word) > _MAX_WORD_LENGTH:
        raise _unusable(place, f"is too long at {word[:30]!r}…")
    if problem := find_ipa_problem(ipa):
        raise _unusable(place, f"gives {word!r} the IPA {ipa[:60]!r}, which {problem}")


def _unusable(place: str, problem: str) -> DataError:
    return DataError(f"{place} {problem}.", next_step="Write a word, a tab and its IPA, for example: tomato\ttəmˈeɪtoʊ")
