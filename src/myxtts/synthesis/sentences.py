"""Splits text into pieces of at most `MAX_PIECE_TOKENS`: sentences, and clauses of long sentences; reads text files.

What cannot be synthesised raises an error, or is left out and reported; the model itself is not needed here. Pieces are
bounded because the engine traces graphs of fixed shapes; they are also what a stream is delivered in.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DataError, UsageError, refuse
from myxtts.storage.regular_file import FileRefusedError, read_regular
from myxtts.text.frontend import FrontEnd
from myxtts.text.normalize import split_sentences
from myxtts.text.tokenizer import Encoding

MAX_TEXT_LENGTH = 20_000
"""Characters of one request, about twenty minutes of speech."""
MAX_PIECE_TOKENS = 256
"""The largest text shape that the engine traces; at some 14 phonemes a second about 18 s of speech."""
_MAX_PIECE_LENGTH = 240
"""Characters; more are cut before they are counted in tokens."""
SENTENCE_PAUSE_S = 0.3
CLAUSE_PAUSE_S = 0.12
"""Silence before a piece, at speed 1; the pauses inside a piece come from the model."""

_MAX_FILE_BYTES = 10_000_000
_MAX_LINES = 100_000
_ID = re.compile(r"[^\W_][\w.-]{0,99}(?<!\.)")
"""Ids become file names: no separators, no leading dot or hyphen, no trailing dot."""
_NEWLINES = "\n\t\r\v\f\x1c\x1d\x1e\x85"
"""Control characters that are kept, since they separate lines and words."""
_CLAUSE_END = re.compile(r"[,;:،؛—–…](?=\s)|(?<=\s)-(?=\s)")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Piece:
    """Input of one call of the model: ids [N], and the pause before it. `unknown` lists symbols that are left out."""

    text: str
    ids: NDArray[np.int32]
    pause_s: float
    unknown: tuple[str, ...]


def check_text(text: str) -> str:
    """Returns the text without control characters; raises DataError where it is too long, has lone surrogates, or has
    no letter or figure."""
    if len(text) > MAX_TEXT_LENGTH:
        raise DataError(
            f"The text has {len(text):,} characters, more than the {MAX_TEXT_LENGTH:,} that are said in one go.",
            next_step="Say it in parts, such as one chapter or paragraph at a time (myxtts synth --file).",
        )
    broken = next((character for character in text if "\ud800" <= character <= "\udfff"), None)
    if broken is not None:
        raise DataError(
            f"The text holds {broken!a}, half of a character, so it was not read as UTF-8.",
            next_step="Save or pass the text as UTF-8.",
        )
    cleaned = "".join(character if _is_kept(character) else " " for character in text)
    if not any(character.isalnum() for character in cleaned):
        shown = "is empty" if not cleaned.strip() else f"is {cleaned.strip()[:40]!r}, which has no letter or figure"
        raise DataError(f"There is nothing to say: the text {shown}.", next_step="Give at least one word.")
    return cleaned


def plan_pieces(text: str, language: str, frontend: FrontEnd) -> Iterator[Piece]:
    """Yields the pieces of a text that `check_text` returned, in order, each encoded when it is consumed.

    Raises DataError at the end where no piece has any phoneme or letter.
    """
    is_first = True
    for sentence in split_sentences(text, language):
        pause_s = 0.0 if is_first else SENTENCE_PAUSE_S
        for part, encoding in _encode_parts(frontend.normalize(sentence, language), language, frontend):
            if not _is_speakable(encoding, frontend):
                continue
            yield Piece(part, encoding.ids, pause_s, tuple(filter(_is_missed, encoding.unknown)))
            is_first, pause_s = False, CLAUSE_PAUSE_S
    if is_first:
        raise DataError(
            f"Nothing in the text {text.strip()[:40]!r} can be said in the language {language!r} by this model.",
            next_step="Check that text and language belong together.",
        )


def cut_text(text: str, max_length: int) -> list[str]:
    """Splits a text into parts of at most `max_length` characters by halving: behind a clause, else between words.

    A part without a space is cut in its middle. No character but the spaces around a cut is lost.
    """
    assert max_length > 0, max_length
    text = text.strip()
    if len(text) <= max_length:
        return [text] if text else []
    place = _find_cut(text)
    return cut_text(text[:place], max_length) + cut_text(text[place:], max_length)


def _is_kept(character: str) -> bool:
    """Whether a character is kept: all but control, private-use and unassigned code points."""
    return character in _NEWLINES or unicodedata.category(character) not in ("Cc", "Co", "Cn")


def _encode_parts(normalized: str, language: str, frontend: FrontEnd) -> Iterator[tuple[str, Encoding]]:
    """Yields parts of a sentence with their tokens; one of more than MAX_PIECE_TOKENS is halved and encoded again."""
    parts = cut_text(normalized, _MAX_PIECE_LENGTH)
    while parts:
        part = parts.pop(0)
        (encoding,) = frontend.encode_normalized([part], [language])
        if len(encoding.ids) <= MAX_PIECE_TOKENS:
            yield part, encoding
        elif len(part) > 1:
            parts = cut_text(part, (len(part) + 1) // 2) + parts
        else:
            raise DataError(
                f"The character {part!r} alone gives {len(encoding.ids)} tokens; {MAX_PIECE_TOKENS} are said at once.",
                next_step="Leave it out, or check the lexicon of the model.",
            )


def _is_speakable(encoding: Encoding, frontend: FrontEnd) -> bool:
    """Whether the tokens hold a phoneme or letter, not only punctuation."""
    return any(character.isalnum() for character in frontend.tokenizer.decode(encoding.ids))


def _is_missed(symbol: str) -> bool:
    """Whether an unknown symbol is worth a warning: punctuation and spaces have no sound of their own."""
    return any(unicodedata.category(character)[0] not in "PZ" for character in symbol)


def _find_cut(text: str) -> int:
    """Returns the position of the cut: the clause end, else the space, nearest to the middle, if one is in the middle
    half of the text; else the middle."""
    middle = len(text) // 2
    first, last = len(text) // 4, len(text) - len(text) // 4
    for pattern in (_CLAUSE_END, _SPACE):
        places = [match.end() for match in pattern.finditer(text, first, last)]
        if places:
            return min(places, key=lambda place: abs(place - middle))
    return middle


@dataclass(frozen=True, slots=True)
class TextLine:
    """One text of a file: `id` is the name of the output file, `place` is path and line number for errors."""

    id: str
    text: str
    place: str


def read_texts(path: Path) -> list[TextLine]:
    """Reads the texts of a file, one a line, or `id|text` in a .csv file; empty lines are left out.

    Without ids the texts are numbered, with at least four digits, so that output files sort in order.
    """
    try:
        lines = read_regular(path, _MAX_FILE_BYTES).decode("utf-8-sig").splitlines()
    except FileRefusedError as error:
        raise refuse(path, str(error), "Name a text file; say a long one in several parts.") from error
    except OSError as error:
        raise UsageError(
            f"The texts in {path} cannot be read: {error.strerror}.", next_step="Name a text file, one text a line."
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 (byte {error.start:,}).", next_step="Save the file as UTF-8 text."
        ) from error
    numbered = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    if not 0 < len(numbered) <= _MAX_LINES:
        raise DataError(
            f"{path} holds {len(numbered):,} texts, but 1 to {_MAX_LINES:,} are said in one go.",
            next_step="Write one text a line.",
        )
    if path.suffix.lower() == ".csv":
        return _parse_rows(numbered, path)
    num_digits = max(4, len(str(len(numbered))))
    return [
        TextLine(f"{count:0{num_digits}}", line, f"{path}:{number}") for count, (number, line) in enumerate(numbered, 1)
    ]


def _parse_rows(numbered: list[tuple[int, str]], path: Path) -> list[TextLine]:
    """Parses `id|text` lines; ids become file names, so they must differ even where case is ignored."""
    rows: list[TextLine] = []
    seen: dict[str, str] = {}
    for number, line in numbered:
        name, bar, text = line.partition("|")
        place, name = f"{path}:{number}", name.strip()
        if not bar or not _ID.fullmatch(name):
            raise DataError(
                f"{place}: {line[:40]!r} is not of the form id|text, with an id that can be a file name.",
                next_step="Correct the line, or give the texts without ids in a .txt file.",
            )
        if name.lower() in seen:
            raise DataError(
                f"{place}: the id {name!r} is already that of {seen[name.lower()]}.", next_step="Give each its own id."
            )
        seen[name.lower()] = place
        rows.append(TextLine(name, text.strip(), place))
    return rows
