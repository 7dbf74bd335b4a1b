"""Files of texts to say: one text a line, or `id|text` in a .csv file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from myxtts.errors import DataError, UsageError

_MAX_FILE_BYTES = 10_000_000
_MAX_LINES = 100_000
_ID = re.compile(r"[^\W_][\w.-]{0,99}(?<!\.)")


@dataclass(frozen=True, slots=True)
class TextLine:
    """A text, the name of the file it is spoken into, and where it stands."""

    id: str
    text: str
    place: str


def read_texts(path: Path) -> list[TextLine]:
    """The texts of a file, in order; lines that are empty are left out."""
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise DataError(
                f"{path} has {path.stat().st_size:,} bytes, more than {_MAX_FILE_BYTES:,}.",
                next_step="Say it in several parts.",
            )
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
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
