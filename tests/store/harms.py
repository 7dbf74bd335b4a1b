"""What may happen to a data file of a store while it is read."""

from __future__ import annotations

import mmap
import os
from pathlib import Path


def cut(shard: Path) -> None:
    """At the end of a page: what is missing of a page reads as zeros until the files are looked at again."""
    os.truncate(shard, shard.stat().st_size // 2 // mmap.PAGESIZE * mmap.PAGESIZE)


def cut_to_nothing(shard: Path) -> None:
    os.truncate(shard, 0)


def overwrite(shard: Path) -> None:
    size = shard.stat().st_size
    with shard.open("r+b") as file:
        file.seek(64)
        file.write(os.urandom(size - 64))


def write_anew(shard: Path) -> None:
    """As `open(path, "wb")` does: the same file, first cut to nothing."""
    content = os.urandom(shard.stat().st_size)
    shard.write_bytes(content)


def remove(shard: Path) -> None:
    shard.unlink()


def replace(shard: Path) -> None:
    other = shard.with_suffix(".other")
    other.write_bytes(os.urandom(shard.stat().st_size))
    other.replace(shard)


def forbid(shard: Path) -> None:
    shard.chmod(0)


def touch(shard: Path) -> None:
    os.utime(shard)


HARMFUL = {"cut": cut, "cut to nothing": cut_to_nothing, "overwrite": overwrite, "write anew": write_anew}
HARMLESS = {"remove": remove, "replace": replace, "forbid": forbid, "touch": touch}
HARMS = {**HARMFUL, **HARMLESS}
