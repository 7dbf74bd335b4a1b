"""Parses and formats scalar values: YAML 1.2 core schema, values in messages, GPU lists, paths, host:port.

Scalars follow YAML 1.2: `yes`, `no`, `on` and `off` are text, `012` is twelve, `1e-5` is a number.
"""

from __future__ import annotations

import json
import re
from pathlib import PurePath

Scalar = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
# Number formats of the YAML 1.2 core schema; 1.1 would read 012 as octal and 1:30 as 90.
_INTEGER = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_DECIMAL = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_PLAIN_TEXT = re.compile(r"[A-Za-z_/.][A-Za-z0-9_/.-]*")
_MUST_ESCAPE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")

_MAX_NUMBER_LENGTH = 64
"""Longer digit strings stay text: no setting needs them, and converting them takes quadratic time."""
_MAX_SHOWN_LENGTH = 60
_MAX_SHOWN_BITS = 256
"""Larger integers are shown by their size: 77 digits are shortened anyway, and Python refuses to print 4,300."""
_GPU_NUMBERS = re.compile(r"\s*-?[0-9]{1,4}\s*(?:,\s*-?[0-9]{1,4}\s*)*")
_MAX_PORT = 65535


def resolve_scalar(text: str) -> Scalar:
    """Parses an unquoted YAML scalar by the core schema; what is no number, boolean or null is text."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _MAX_NUMBER_LENGTH:
        return text
    if _INTEGER.fullmatch(text):
        return int(text, {"0x": 16, "0o": 8}.get(text[:2], 10))
    if _DECIMAL.fullmatch(text):
        return float(text)
    return text


def format_scalar(value: Scalar) -> str:
    """Formats `value` as a YAML scalar that reads back as the same value; text is quoted unless it is a plain word."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if _PLAIN_TEXT.fullmatch(value) and resolve_scalar(value) == value:
        return value
    # JSON strings are YAML strings, apart from the few characters that YAML does not allow unescaped.
    return _MUST_ESCAPE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def show_value(value: object) -> str:
    """`value` for a message: as a user would write it, on one line, shortened when long."""
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
    elif value is None or isinstance(value, bool):
        text = format_scalar(value)
    elif isinstance(value, int) and value.bit_length() > _MAX_SHOWN_BITS:
        text = f"a number of {value.bit_length()} bits"
    else:
        text = repr(value)
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= _MAX_SHOWN_LENGTH else f"{text[: _MAX_SHOWN_LENGTH - 3]}..."


def parse_gpu_numbers(value: object) -> tuple[int, ...]:
    """Parses GPU numbers from "0,1", [0, 1] or 0, in the order given; raises ValueError with a readable reason."""
    numbers: tuple[int, ...]
    if isinstance(value, str) and _GPU_NUMBERS.fullmatch(value):
        numbers = tuple(int(part) for part in value.split(","))
    elif isinstance(value, int) and not isinstance(value, bool):
        numbers = (value,)
    elif isinstance(value, list | tuple) and value and all(type(item) is int for item in value):
        numbers = tuple(value)
    else:
        raise ValueError(f"{show_value(value)} names no GPU")
    for number in numbers:
        if number < 0:
            raise ValueError(f"{number} is negative")
        if numbers.count(number) > 1:
            raise ValueError(f"{number} is named twice")
    return numbers


def format_gpu_numbers(numbers: tuple[int, ...]) -> str:
    """The canonical form: `0,1`."""
    return ",".join(str(number) for number in numbers)


def accept_path(value: object) -> object:
    """Turns Path objects into text; raises ValueError for empty paths and control characters."""
    if isinstance(value, PurePath):
        value = str(value)
    if isinstance(value, str) and not value.strip():
        raise ValueError("it is empty")
    if isinstance(value, str) and not value.isprintable():
        raise ValueError("it holds a control character")
    return value


def check_address(value: str | None) -> str | None:
    """Checks the port range of `host:port`; the pattern of the field has checked the form."""
    if value is not None and not 1 <= int(value.rpartition(":")[2]) <= _MAX_PORT:
        raise ValueError(f"ports go from 1 to {_MAX_PORT}")
    return value


_MAX_REPEATS = 100
"""More would be a typing error: the other speakers would hardly be heard."""


def parse_repeats(value: str | None) -> dict[str, int]:
    """Speakers and how often their clips are used in an epoch, of `anna=3,reza=2`. Raises ValueError."""
    repeats: dict[str, int] = {}
    for part in (value or "").split(","):
        name, sign, number = part.rpartition("=")
        if not part.strip():
            continue
        if not sign or not name.strip() or not number.strip().isdecimal() or not 1 <= int(number) <= _MAX_REPEATS:
            raise ValueError(f"{part.strip()!r} is not NAME=N with N from 1 to {_MAX_REPEATS}, such as anna=3")
        repeats[name.strip()] = int(number)
    return repeats


def check_repeats(value: str) -> str:
    parse_repeats(value)
    return value
