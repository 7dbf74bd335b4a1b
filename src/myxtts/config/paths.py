"""Checks of settings that are text naming something outside: a file, a folder, an address."""

from __future__ import annotations

from pathlib import PurePath

MAX_PORT = 65535


def accept_path(value: object) -> object:
    """Path objects become text; characters that no path on disk should hold are refused."""
    if isinstance(value, PurePath):
        value = str(value)
    if isinstance(value, str) and not value.strip():
        raise ValueError("it is empty")
    if isinstance(value, str) and not value.isprintable():
        raise ValueError("it holds a control character")
    return value


def check_address(value: str | None) -> str | None:
    """`host:port`, with a port that exists."""
    if value is not None and not 1 <= int(value.rpartition(":")[2]) <= MAX_PORT:
        raise ValueError(f"ports go from 1 to {MAX_PORT}")
    return value
