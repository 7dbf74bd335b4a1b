"""Says in plain words what a setting accepts, from its annotation and limits: one source for messages and docs."""

from __future__ import annotations

from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from myxtts.config.scalars import show_value

_KINDS: dict[object, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    NoneType: "null",
}
_LIMITS = ("ge", "gt", "le", "lt")


def describe_allowed(field: FieldInfo) -> str:
    """For instance `a whole number of at least 1 or "auto"`."""
    if isinstance(field.json_schema_extra, dict) and "allowed" in field.json_schema_extra:
        return str(field.json_schema_extra["allowed"])
    parts = list(_describe_parts(field.annotation, field.metadata))
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"


def accepts_text(field: FieldInfo) -> bool:
    """Whether any text may be given (so that 2024 on the command line is a name, not a number)."""
    return field.annotation is str or str in get_args(field.annotation)


def _describe_parts(annotation: Any, metadata: Iterable[object]) -> Iterable[str]:
    if get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _describe_parts(member, metadata)
    elif get_origin(annotation) is Annotated:
        member, *nested = get_args(annotation)
        yield from _describe_parts(member, [*metadata, *_unwrap(nested)])
    elif get_origin(annotation) is Literal:
        yield from (show_value(value) for value in get_args(annotation))
    elif annotation is bool:
        yield from ("true", "false")
    else:
        limits = _describe_limits(metadata) if annotation in (int, float) else ""
        yield f"{_KINDS[annotation]}{limits}"


def _unwrap(metadata: Iterable[object]) -> Iterable[object]:
    for item in metadata:
        yield from item.metadata if isinstance(item, FieldInfo) else (item,)


def _describe_limits(metadata: Iterable[object]) -> str:
    limits = {name: value for item in metadata for name in _LIMITS if (value := getattr(item, name, None)) is not None}
    if set(limits) == {"ge", "le"}:
        return f" from {limits['ge']} to {limits['le']}"
    words = {"ge": "of at least", "gt": "above", "le": "up to", "lt": "below"}
    parts = [f"{words[name]} {limits[name]}" for name in _LIMITS if name in limits]
    return f" {' and '.join(parts)}" if parts else ""
