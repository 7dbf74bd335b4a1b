"""Splits text into pieces of at most `MAX_PIECE_TOKENS`: sentences, and clauses of long sentences; reads text files.

What cannot be synthesised raises an error, or is left out and reported; the model itself is not needed here. Pieces are
bounded because the engine traces graphs of fixed shapes; they are also what a stream is delivered in.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.formats.tables import (
    find_delimiter,
    looks_like_heading,
    parse_json_row,
    pick_fields,
    read_column_name,
    read_first_cells,
)
from myxtts.corpus.transcripts import BadLine, read_first_lines, read_records
from myxtts.errors import DataError, UsageError, refuse
from myxtts.storage.regular_file import FileRefusedError, read_regular
from myxtts.text.directions import DirectedText, read_directions
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
TURN_PAUSE_S = 0.5
"""Silence before a piece, at speed 1; the pauses inside a piece come from the model."""

_MAX_FILE_BYTES = 10_000_000
_MAX_LINES = 100_000
_MAX_STDIN_CHARACTERS = 1_000_000
"""Bounds what is read from a pipe that never ends; a character has at most 4 bytes in UTF-8."""
_ID = re.compile(r"[^\W_][\w.-]{0,99}(?<!\.)")
"""Ids become file names: no separators, no leading dot or hyphen, no trailing dot."""
_NEWLINES = "\n\t\r\v\f\x1c\x1d\x1e\x85"
"""Control characters that are kept, since they separate lines and words."""
_CLAUSE_END = re.compile(r"[,;:،؛—–…](?=\s)|(?<=\s)-(?=\s)")
_SPACE = re.compile(r"\s+")

_Voice = TypeVar("_Voice")


@dataclass(frozen=True, slots=True)
class Piece:
    """Input of one call of the model: ids [N], and the silence before it; without ids it is only silence.

    `pause_s` is divided by the speed, `silence_s`, which the text asks for, is not. `text` is normalised, `written` is
    the sentence that it belongs to, number `sentence`, as it was given. `unknown` lists symbols that are left out.
    """

    text: str
    ids: NDArray[np.int32]
    pause_s: float
    unknown: tuple[str, ...]
    language: str
    frontend: FrontEnd
    sentence: int = 0
    written: str = ""
    silence_s: float = 0.0


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

    Directions inside the text are checked in this call. Raises DataError at the end where nothing can be said.
    """
    directed = read_directions(text)
    return _plan_passages(text, directed, language, frontend.with_entries(directed.written))


def _plan_passages(text: str, directed: DirectedText, language: str, frontend: FrontEnd) -> Iterator[Piece]:
    is_first, number = True, 0
    for passage in directed.passages:
        silence_s = passage.silence_s
        for sentence in split_sentences(passage.text, language):
            pause_s = 0.0 if is_first or silence_s else SENTENCE_PAUSE_S
            for part, encoding in _encode_parts(frontend.normalize(sentence, language), language, frontend):
                if not _is_speakable(encoding, frontend):
                    continue
                unknown, written = tuple(filter(_is_missed, encoding.unknown)), directed.restore(sentence)
                yield Piece(part, encoding.ids, pause_s, unknown, language, frontend, number, written, silence_s)
                is_first, pause_s, silence_s = False, CLAUSE_PAUSE_S, 0.0
            number += 1
        if silence_s:
            nothing = np.zeros(0, np.int32)
            yield Piece("", nothing, 0.0, (), language, frontend, number, silence_s=silence_s)
    if is_first:
        raise DataError(
            f"Nothing in the text {text.strip()[:40]!r} can be said in the language {language!r} by this model.",
            next_step="Check that text and language belong together.",
        )


def join_turns(turns: Iterable[tuple[_Voice, Sequence[Piece]]]) -> Iterator[tuple[Piece, _Voice]]:
    """Yields the pieces of a dialogue with their voices: a pause stands between turns, and sentences are counted on."""
    num_sentences = 0
    for voice, pieces in turns:
        for place, piece in enumerate(pieces):
            is_joint = place == 0 and num_sentences > 0 and not piece.silence_s
            pause_s = TURN_PAUSE_S if is_joint else piece.pause_s
            yield replace(piece, pause_s=pause_s, sentence=num_sentences + piece.sentence), voice
        num_sentences += 1 + max(piece.sentence for piece in pieces)


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
    """One text of a file: `id` is the name of the output file, `place` is path and line number for errors.

    `language` and `speaker` are '' where the file names none.
    """

    id: str
    text: str
    place: str
    language: str = ""
    speaker: str = ""


_Rows = list[tuple[int, dict[str, str]]]
"""Line numbers and named fields."""


def read_texts(path: Path) -> list[TextLine]:
    """Reads the texts of a file, one a line; empty lines are left out.

    A table whose first line names its columns, and a .jsonl file, need `text` and may have `id` and `language`. A .csv
    or .tsv file without such a line has an id and a text, with | or a tab between. Texts without ids are numbered, with
    at least four digits, so that output files sort in order.
    """
    numbered = _read_lines(path)
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".ndjson"):
        rows = [(number, _parse_object(line, f"{path}:{number}")) for number, line in numbered]
    elif columns := _read_columns(path):
        rows = _read_table(path, columns)
    elif suffix in (".csv", ".tsv"):
        separator = "\t" if suffix == ".tsv" else "|"
        rows = [(number, _split_row(line, f"{path}:{number}", separator)) for number, line in numbered]
    else:
        rows = [(number, {"text": line}) for number, line in numbered]
    if not 0 < len(rows) <= _MAX_LINES:
        raise DataError(
            f"{path} holds {len(rows):,} texts, but 1 to {_MAX_LINES:,} are said in one go.",
            next_step="Write one text a line.",
        )
    return _name_texts(rows, path)


def read_dialogue(source: Path | str) -> list[TextLine]:
    """Reads a dialogue from a file or from a text: each line is the name of a voice, a colon and what it says."""
    if isinstance(source, Path):
        numbered = [(f"{source}:{number}", line) for number, line in _read_lines(source)]
    else:
        numbered = [(f"Line {number}", line) for number, line in enumerate(source.splitlines(), 1) if line.strip()]
    lines = []
    for place, line in numbered:
        speaker, _, said = map(str.strip, line.partition(":"))
        if not speaker or not said:
            raise DataError(
                f"{place}: {line[:40]!r} is not a voice, a colon and what it says.",
                next_step="Write lines such as: anna: Good morning.",
            )
        lines.append(TextLine("", said, place, speaker=speaker))
    return lines


def read_stdin() -> str:
    """Returns the text of standard input; `check_text` refuses one that is too long, or not UTF-8."""
    return sys.stdin.buffer.read(4 * _MAX_STDIN_CHARACTERS).decode("utf-8-sig", "surrogateescape")


def _read_lines(path: Path) -> list[tuple[int, str]]:
    """Returns the lines of a file that are not empty, with their numbers."""
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
    return [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]


def _read_columns(path: Path) -> dict[str, int]:
    """Returns the positions of the columns that the first line of a table names; {} where it is no heading.

    In a file that is not called a table, every cell must be the name of a known column, and there must be two.
    """
    cells = read_first_cells(path)
    columns = {name: position for position, cell in enumerate(cells) if (name := read_column_name(cell))}
    if path.suffix.lower() in (".csv", ".tsv"):
        is_heading = looks_like_heading(cells) and ("text" in columns or len(columns) > 1)
    else:
        is_heading = "text" in columns and len(columns) == len(cells) > 1
    if is_heading and "text" not in columns:
        raise DataError(
            f"{path} has the columns {', '.join(cells)[:200]}, and none of them is the text.",
            next_step="Call the column of the texts: text.",
        )
    return columns if is_heading else {}


def _read_table(path: Path, columns: dict[str, int]) -> _Rows:
    rows = []
    for record in islice(read_records(path, find_delimiter(read_first_lines(path, 1))), 1, None):
        if isinstance(record, BadLine):
            raise DataError(f"{path}:{record.number}: {record.detail}.", next_step="Correct the line.")
        number, cells = record
        if len(cells) <= max(columns.values()):
            raise DataError(
                f"{path}:{number} has {len(cells)} columns, its heading names {max(columns.values()) + 1}.",
                next_step="Correct the line; a text with the separator in it needs quotes.",
            )
        rows.append((number, {name: cells[position].strip() for name, position in columns.items()}))
    return rows


def _parse_object(line: str, place: str) -> dict[str, str]:
    values = parse_json_row(line)
    fields = values if isinstance(values, str) else pick_fields(values)
    if isinstance(fields, str) or "text" not in fields:
        problem = fields if isinstance(fields, str) else "the object has no text"
        raise DataError(f"{place}: {problem}.", next_step='Write a line such as {"id": "a", "text": "Hello."}.')
    return fields


def _split_row(line: str, place: str, separator: str) -> dict[str, str]:
    """Splits a row without a heading into id and text."""
    id, found, text = line.partition(separator)
    if not found:
        form = "id|text" if separator == "|" else "id, tab, text"
        raise DataError(
            f"{place}: {line[:40]!r} is not of the form {form}.",
            next_step="Correct the line, name the columns in the first line, or give texts without ids in a .txt file.",
        )
    return {"id": id.strip(), "text": text.strip()}


def _name_texts(rows: _Rows, path: Path) -> list[TextLine]:
    """Checks the ids, which become file names, so they must differ even where case is ignored; numbers other texts."""
    num_digits = max(4, len(str(len(rows))))
    texts: list[TextLine] = []
    seen: dict[str, str] = {}
    for count, (number, fields) in enumerate(rows, 1):
        place, id = f"{path}:{number}", fields.get("id", f"{count:0{num_digits}}")
        if not _ID.fullmatch(id):
            raise DataError(
                f"{place}: the id {id[:40]!r} cannot be the name of a file.",
                next_step="Use letters, figures, hyphens and underscores, or leave out the ids.",
            )
        if id.lower() in seen:
            raise DataError(
                f"{place}: the id {id!r} is already that of {seen[id.lower()]}.", next_step="Give each its own id."
            )
        seen[id.lower()] = place
        texts.append(TextLine(id, fields["text"], place, fields.get("language", "")))
    return texts
