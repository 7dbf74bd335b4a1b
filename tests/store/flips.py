"""Single bits flipped in the files of a store, and what becomes of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SUFFIXES = {".mel", ".tokens", ".pcm", ".durations", ".index", ".json"}


def list_store_files(folder: Path) -> list[Path]:
    """Everything that makes a store: its state, generation, indexes and data; not the report of rejections."""
    files = (path for path in folder.rglob("*") if path.suffix in SUFFIXES and "rejections" not in path.name)
    return sorted(files)


def choose_bit(folder: Path, generator: random.Random) -> tuple[Path, int]:
    """A file and one of its bits. By weight alone spectrograms would take nearly all, so half go by file."""
    files = list_store_files(folder)
    weights = [path.stat().st_size for path in files] if generator.random() < 0.5 else None
    path = generator.choices(files, weights)[0]
    return path, generator.randrange(8 * path.stat().st_size)


def flip_bit(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    flip_bit(path, bit)
    try:
        yield
    finally:
        flip_bit(path, bit)
