"""JSON files: read through a pydantic model, appended to line by line, or followed while another process writes them.

A file may come from anywhere, so reading is strict: a regular file of bounded size, UTF-8, no duplicate keys, no NaN,
no endless numbers or nesting, and exactly the fields and types of the model.
"""

from __future__ import annotations

import json
import math
import os
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from myxtts.errors import DAMAGED_FILE, DataError, StorageError, refuse, warn_user
from myxtts.storage.atomic import pass_fault_point, write_file
from myxtts.storage.regular_file import (
    FileRefusedError,
    explain_read_errors,
    open_descriptor,
    open_output,
    open_regular,
    read_log_lines,
    read_regular,
)
from myxtts.types import Say

_MAX_NUMBER_LENGTH = 40
"""Digits of a number: Python takes quadratic time to convert longer ones, and nothing here needs them."""
_MAX_DEPTH = 12
"""Nesting of objects and lists: our own files stay below half of it."""
_MAX_ERRORS_SHOWN = 3
_DEFAULT_MAX_BYTES = 10_000_000
"""Checked before reading, so that a wrong path cannot fill the memory."""
_BACKLOG_BYTES = 256 * 1024
"""Tail of an existing file that `JsonTail` starts with: some thousand steps."""
_MAX_LINE_BYTES = 1024 * 1024
"""Longer unfinished lines are skipped by `JsonTail`: the file is not one of JSON lines."""

Item = TypeVar("Item")
Listed = Annotated[tuple[Item, ...], Field(strict=False)]
"""A tuple that JSON writes as a list."""


class JsonRefusedError(FileRefusedError):
    """Why a text is not acceptable as JSON of a certain model."""


def _check_version(value: int) -> int:
    if value != 1:
        raise ValueError(f"should be 1, found {value}")
    return value


VersionOne = Annotated[int, AfterValidator(_check_version)]
"""Version field of formats with a single version; Literal[1] would accept true, which equals 1."""


class FileModel(BaseModel):
    """The fields of a JSON file: exact types (true is no number), finite numbers, no field besides those declared."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


NO_OTHER_FIELDS = ConfigDict(extra="forbid", allow_inf_nan=False)
"""The `__pydantic_config__` of a dataclass that is read from JSON."""
Model = TypeVar("Model")
"""Type that a JSON object is validated against: a FileModel, a dataclass, or dict[str, ...]."""


@cache
def _adapt(model: Any) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def read_json(
    path: Path,
    model: type[Model],
    *,
    what: str = "",
    max_bytes: int = _DEFAULT_MAX_BYTES,
    next_step: str = DAMAGED_FILE,
) -> Model:
    """Reads and validates a JSON file; raises DataError with file, field and `next_step`. `what` names its kind.

    A file that is not there raises FileNotFoundError, since for many callers that is no error.
    """
    place = f"{what} {path}".lstrip()
    with explain_read_errors(lambda reason: refuse(place, reason, next_step), is_optional=True):
        return parse_json(read_regular(path, max_bytes), model)


def try_read_json(path: Path, model: type[Model], max_bytes: int = _DEFAULT_MAX_BYTES) -> Model | None:
    """As `read_json` for optional files: returns None where it is missing or cannot be used."""
    try:
        return read_json(path, model, max_bytes=max_bytes)
    except (FileNotFoundError, NotADirectoryError, DataError):
        return None


def write_json(path: Path, content: Mapping[str, Any], *, ensure_ascii: bool = True) -> None:
    """Writes an indented JSON file atomically; raises ValueError for NaN and infinity."""
    write_file(path, json.dumps(content, indent=1, allow_nan=False, ensure_ascii=ensure_ascii).encode())


def parse_json(raw: bytes, model: type[Model]) -> Model:
    """Parses and validates the content of a whole file; raises JsonRefusedError."""
    parse_json_object(raw)
    return parse_json_line(raw, model)


def check_fields(value: object, model: type[Model]) -> Model:
    """Validates JSON that was parsed before; raises JsonRefusedError."""
    return parse_json_line(json.dumps(value), model)


def parse_json_line(line: bytes | str, model: type[Model]) -> Model:
    """Parses and validates one of very many lines; raises JsonRefusedError.

    pydantic parses and checks in one pass, which is faster than json.loads alone, but does not see duplicate keys.
    """
    try:
        return cast("Model", _adapt(cast("Any", model)).validate_json(line, strict=True))
    except ValidationError as error:
        raise JsonRefusedError(_describe(error)) from error


def _describe(error: ValidationError) -> str:
    """Formats the first few validation errors, each with its field and the value found."""
    problems = []
    for one in error.errors(include_url=False)[:_MAX_ERRORS_SHOWN]:
        field = _shorten(".".join(map(str, one["loc"]))) or "it"
        if one["type"] == "missing":
            problems.append(f"{field} is missing")
        elif one["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            problems.append(f"{field} is not known")
        elif one["type"] == "json_invalid":
            problems.append(f"it is not JSON ({_shorten(str(one['ctx']['error']))})")
        elif one["type"] == "value_error":
            problems.append(f"{field} {_shorten(str(one['ctx']['error']))}")
        else:
            problem = one["msg"].replace("Input should be", "should be")
            problems.append(f"{field} {problem}, found {reprlib.repr(one['input'])}")
    return "; ".join(problems)


def parse_json_object(raw: bytes) -> dict[str, Any]:
    """Parses a JSON object strictly; raises JsonRefusedError for duplicate keys, NaN, huge numbers and deep nesting."""
    try:
        value = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_refuse_duplicates,
            parse_int=_parse_int,
            parse_float=_parse_float,
            parse_constant=_refuse_constant,
        )
    except JsonRefusedError:
        raise
    except (ValueError, RecursionError) as error:
        raise JsonRefusedError(f"it is not JSON ({_shorten(str(error))})") from error
    if not isinstance(value, dict):
        raise JsonRefusedError("it holds no JSON object")
    _refuse_depth(value)
    return value


def is_number(value: object) -> bool:
    """Whether a JSON value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole_number(value: object) -> bool:
    """Whether a JSON value is a whole number of at least 0; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise JsonRefusedError(f"it names {_shorten(twice)!r} twice")
    return fields


def _parse_int(text: str) -> int:
    if len(text) > _MAX_NUMBER_LENGTH:
        raise JsonRefusedError(f"it holds a number of {len(text)} digits")
    return int(text)


def _parse_float(text: str) -> float:
    value = float(text) if len(text) <= _MAX_NUMBER_LENGTH else math.inf
    if not math.isfinite(value):
        raise JsonRefusedError(f"it holds the number {_shorten(text)}, which is out of range")
    return value


def _refuse_constant(text: str) -> float:
    raise JsonRefusedError(f"it holds {text}, which is no number")


def _refuse_depth(value: object) -> None:
    """Walks level by level, not recursively, and refuses nesting that could overflow the stack of recursive code."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        inside: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inside += item.values()
            elif isinstance(item, list):
                inside += item
        if not inside:
            return
        level = inside
    raise JsonRefusedError(f"it is nested more than {_MAX_DEPTH} deep")


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}…"


class JsonLines:
    """Append-only log of JSON objects, one a line, each with its training `step`.

    A failing write is counted and warned of once, but does not stop the training. Torn last lines are tolerated.
    """

    def __init__(self, path: Path, warn: Say = warn_user) -> None:
        self.path = path
        self._warn = warn
        self.num_lost = 0

    def append(self, fields: Mapping[str, Any]) -> bool:
        """Appends a line in one write, NaN and infinity as null; returns whether it was written."""
        line = json.dumps(_make_plain(fields), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"
        try:
            with open_output(self.path, append=True) as file:
                pass_fault_point("append")
                if not ends_with_newline(self.path):
                    line = "\n" + line
                file.write(line.encode("utf-8", "backslashreplace"))
        except OSError as error:
            self.num_lost += 1
            if self.num_lost == 1:
                reason = error.strerror or str(error)
                self._warn(f"Could not write to {self.path}: {reason}. Training continues without these lines.")
            return False
        return True

    def read(self) -> Iterator[dict[str, Any]]:
        """Yields the complete lines; one that a kill cut short is left out."""
        try:
            with open_regular(self.path) as file:
                for line in read_log_lines(file):
                    fields = _parse_line(line)
                    if fields is not None:
                        yield fields
        except (FileNotFoundError, NotADirectoryError):
            return
        except FileRefusedError as error:
            raise refuse(self.path, str(error), "Remove what is there.") from error
        except OSError as error:
            problem = f"it cannot be read ({error.strerror})"
            raise refuse(self.path, problem, "Remove what is there, or check its disk.") from error

    def drop_after(self, step: int) -> None:
        """Removes lines of steps after the checkpoint that training resumes from: they will be written again."""
        kept = [fields for fields in self.read() if not _is_after(fields, step)]
        if not self.path.exists():
            return
        lines = "".join(json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n" for fields in kept)
        try:
            write_file(self.path, lines.encode("utf-8", "backslashreplace"))
        except StorageError as error:
            self._warn(f"{error} The file keeps lines of steps that are done again.")


def ends_with_newline(path: Path) -> bool:
    """False where a kill cut the last line short."""
    with open_regular(path) as file:
        if file.seek(0, os.SEEK_END) == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _is_after(fields: Mapping[str, Any], step: int) -> bool:
    value = fields.get("step")
    return isinstance(value, int) and value > step


def _make_plain(value: Any) -> Any:
    """The same content with str keys and lists, and null for NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {str(name): _make_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_make_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


class JsonTail:
    """Follows a file of JSON lines that another process appends to, like `tail -F`: `read` returns the new objects.

    It starts near the end of a long file, waits for the rest of a half-written line, and starts again where the file
    was truncated or replaced. What is no JSON object is left out.
    """

    def __init__(self, path: Path, backlog_bytes: int = _BACKLOG_BYTES) -> None:
        """`backlog_bytes` is how much of the end of a long file the first call reads."""
        self._path, self._backlog_bytes = path, backlog_bytes
        self._file: IO[bytes] | None = None
        self._rest = b""
        self._is_skipping = False
        self.changed_at: float | None = None
        """Modification time of the file at the last `read`, by the clock of its file system."""
        self.was_replaced = False
        """Whether the last `read` found the file truncated or replaced, so that it returned older lines again."""

    def read(self) -> list[dict[str, Any]]:
        """Returns the objects added since the last call; none for a file that cannot be read, without an error."""
        self.was_replaced = False
        try:
            return self._parse(self._read_new_bytes())
        except (OSError, FileRefusedError):
            self.close()
            return []

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None
        self._rest, self._is_skipping = b"", False

    def _read_new_bytes(self) -> bytes:
        """Returns the bytes appended since the last call; reopens the file where it was replaced."""
        status = self._path.stat()
        self.changed_at = status.st_mtime
        if self._file is not None and not self._is_same(self._file, status):
            self.close()
            self.was_replaced = True
        if self._file is None:
            self._file = os.fdopen(open_descriptor(self._path), "rb", buffering=0)
        if status.st_size - self._file.tell() > self._backlog_bytes:
            # Only recent lines matter, and reading all of a long run would take seconds.
            self._file.seek(status.st_size - self._backlog_bytes)
            self._rest, self._is_skipping = b"", True
        return self._file.read(self._backlog_bytes)

    @staticmethod
    def _is_same(file: IO[bytes], status: os.stat_result) -> bool:
        """False where another file has taken the name, or this one has become shorter than what was read."""
        own = os.fstat(file.fileno())
        return (own.st_dev, own.st_ino) == (status.st_dev, status.st_ino) and file.tell() <= status.st_size

    def _parse(self, content: bytes) -> list[dict[str, Any]]:
        """The objects of complete lines; an incomplete last line is kept for the next call."""
        *lines, self._rest = (self._rest + content).split(b"\n")
        if len(self._rest) > _MAX_LINE_BYTES:
            self._rest, self._is_skipping = b"", True
        if lines and self._is_skipping:
            self._is_skipping = False
            lines = lines[1:]
        return [fields for line in lines if (fields := _parse_line(line)) is not None]


def _parse_line(line: bytes) -> dict[str, Any] | None:
    """The object of a line; None for a line that was cut short or is no object."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
