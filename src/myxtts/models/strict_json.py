"""Reads JSON from files that nobody vouches for: small, flat, without duplicate keys, NaN or endless numbers."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

_MAX_NUMBER_LENGTH = 40
_MAX_DEPTH = 12


class JsonRefusedError(ValueError):
    """What is wrong with a text that was to be JSON, in words that complete "it cannot be used: ..."."""


def parse_json_object(raw: bytes) -> dict[str, Any]:
    """The object that `raw` holds; raises JsonRefusedError for anything else or anything out of the ordinary."""
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
