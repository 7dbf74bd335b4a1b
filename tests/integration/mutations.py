"""Changes to files that are seen in the wild or sent on purpose: bytes, JSON, tables of tensors, texts."""

from __future__ import annotations

import json
import os
import random
import struct
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from myxtts.store.layout import PARTS

Draw = random.Random
GIANT_BYTES = 30 << 30
NUM_MELS = 20
"""Of the stores that are altered."""


# Mutations of bytes. --------------------------------------------------------------------------------------------------


def flip_bits(path: Path, draw: Draw) -> None:
    raw = bytearray(path.read_bytes())
    for _ in range(draw.randint(1, 8)):
        raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
    path.write_bytes(raw)


def flip_near_the_start(path: Path, draw: Draw) -> None:
    raw = bytearray(path.read_bytes())
    raw[draw.randrange(min(64, len(raw)))] = draw.randrange(256)
    path.write_bytes(raw)


def cut(path: Path, draw: Draw) -> None:
    os.truncate(path, draw.randrange(path.stat().st_size))


def append_noise(path: Path, draw: Draw) -> None:
    with path.open("ab") as file:
        file.write(draw.randbytes(draw.randint(1, 2000)))


def fill_with_noise(path: Path, draw: Draw) -> None:
    path.write_bytes(draw.randbytes(draw.choice([1, 7, 100, path.stat().st_size or 1])))


def empty(path: Path, _: Draw) -> None:
    path.write_bytes(b"")


def grow_sparse(path: Path, _: Draw) -> None:
    os.truncate(path, GIANT_BYTES)


def become_sparse(path: Path, _: Draw) -> None:
    path.write_bytes(b"")
    os.truncate(path, GIANT_BYTES)


def become_a_pipe(path: Path, _: Draw) -> None:
    path.unlink()
    os.mkfifo(path)


def become_a_folder(path: Path, _: Draw) -> None:
    path.unlink()
    path.mkdir()


def become_a_device(path: Path, draw: Draw) -> None:
    path.unlink()
    path.symlink_to(draw.choice(["/dev/zero", "/dev/random", "/dev/tty", "/proc/kmsg"]))


def become_a_link(path: Path, draw: Draw) -> None:
    path.unlink()
    path.symlink_to(draw.choice([path.name, "nowhere", "/etc/passwd", ".."]))


def disappear(path: Path, _: Draw) -> None:
    path.unlink()


def repeat(path: Path, _: Draw) -> None:
    path.write_bytes(path.read_bytes() * 3)


def deepen(path: Path, draw: Draw) -> None:
    path.write_bytes(draw.choice([b"[", b'{"a":']) * 200_000)


BYTE_MUTATIONS = [
    flip_bits,
    flip_bits,
    flip_near_the_start,
    cut,
    cut,
    append_noise,
    fill_with_noise,
    empty,
    grow_sparse,
    become_sparse,
    become_a_pipe,
    become_a_folder,
    become_a_device,
    become_a_link,
    disappear,
    repeat,
    deepen,
]

# Mutations of JSON. ---------------------------------------------------------------------------------------------------

STRANGE_VALUES = [
    "true",
    "false",
    "null",
    "-1",
    "0",
    "1.5",
    "1e999",
    "NaN",
    "-Infinity",
    "9" * 40,
    "9" * 5000,
    str(2**31),
    str(2**63),
    '""',
    '"\\ud800"',
    '"\\u0000"',
    '"../../etc/passwd"',
    '"' + "x" * 100_000 + '"',
    "[]",
    "{}",
    "[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]",
    '"en"',
    "[1, 2, 3]",
]


def spoil_json(text: str, draw: Draw) -> str:
    """Replaces, removes, repeats or adds one value anywhere in a JSON object."""
    value = json.loads(text)
    marker = "@@@strange@@@"
    holder, key = choose_place(value, draw)
    how = draw.randrange(5)
    if how == 0:
        del holder[key]
        return json.dumps(value, ensure_ascii=False)
    if how == 1 and isinstance(holder, dict):
        holder[draw.choice(["other", "", "\\", "name"])] = 1
        return json.dumps(value, ensure_ascii=False)
    if how == 2 and isinstance(holder, dict):
        first = next(iter(value))
        return "{" + json.dumps(first) + ": 1, " + json.dumps(value, ensure_ascii=False)[1:]
    holder[key] = marker
    return json.dumps(value, ensure_ascii=False).replace(json.dumps(marker), draw.choice(STRANGE_VALUES), 1)


def choose_place(value: Any, draw: Draw) -> tuple[Any, Any]:
    """A container inside a JSON value, and a key of it."""
    holder, key = value, draw.choice(list(value))
    while isinstance(holder[key], dict | list) and holder[key] and draw.random() < 0.8:
        holder = holder[key]
        key = draw.choice(list(holder)) if isinstance(holder, dict) else draw.randrange(len(holder))
    return holder, key


def spoil_json_file(path: Path, draw: Draw) -> None:
    path.write_bytes(spoil_json(path.read_text("utf-8"), draw).encode("utf-8", "surrogatepass"))


def spoil_json_line(path: Path, draw: Draw) -> None:
    lines = path.read_text("utf-8").splitlines()
    number = draw.randrange(len(lines))
    lines[number] = spoil_json(lines[number], draw)
    path.write_bytes(("\n".join(lines) + "\n").encode("utf-8", "surrogatepass"))


def spoil_checked_json(path: Path, draw: Draw) -> None:
    """As `spoil_json_file`, with a checksum that matches."""
    content = spoil_json(json.loads(path.read_text("utf-8"))["content"], draw)
    outer = {"crc32c": google_crc32c.value(content.encode("utf-8", "surrogatepass")), "content": content}
    path.write_text(json.dumps(outer, indent=1), encoding="utf-8")


def spoil_tensor_heading(path: Path, draw: Draw) -> None:
    """Another value in the heading of a safetensors file, whose length is right."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    heading = spoil_json(raw[8 : 8 + length].decode(), draw).encode("utf-8", "surrogatepass")
    path.write_bytes(struct.pack("<Q", len(heading)) + heading + raw[8 + length :])


def spoil_index(path: Path, draw: Draw) -> None:
    """Other bytes in an index of the store, with a checksum that matches."""
    raw = bytearray(path.read_bytes())
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(64, len(raw))
        raw[place] = draw.choice([0, 1, 255, raw[place] ^ 0x80])
    sizes = bytes(raw[8:36])
    crc = google_crc32c.extend(google_crc32c.value(sizes), bytes(raw[64:]))
    raw[36:40] = struct.pack("<I", crc)
    path.write_bytes(raw)


def spoil_shard(path: Path, draw: Draw) -> None:
    """Impossible values in a data file of the store, with checksums in the index that match."""
    raw = bytearray(path.read_bytes())
    place = 64 + 4 * draw.randrange((len(raw) - 64) // 4)
    number = draw.choice([struct.pack("<f", float("nan")), struct.pack("<f", float("inf")), struct.pack("<i", -5)])
    raw[place : place + 4] = draw.choice([number, struct.pack("<i", 2**31 - 1)])
    path.write_bytes(raw)
    refit_index(path)


def refit_index(path: Path) -> None:
    """Writes the checksums of all records of a data file into the indexes that refer to them."""
    from myxtts.store.index import COLUMNS, read_index
    from myxtts.store.layout import align

    part, data = path.suffix[1:], path.read_bytes()
    assert part in PARTS
    width = 4 * (NUM_MELS if part == "mel" else 1)
    for index_path in path.parent.glob("*.index"):
        table, raw = read_index(index_path), bytearray(index_path.read_bytes())
        (num_text_bytes,) = struct.unpack("<Q", raw[20:28])
        start = 64 + align(num_text_bytes)
        for name, kind in COLUMNS.items():
            num_bytes = len(table) * np.dtype(kind).itemsize
            if name == f"{part}_crc":
                columns = [
                    table.columns[f"{part}_{field}"].tolist() for field in ("segment", "offset", "length", "crc")
                ]
                crcs = [
                    google_crc32c.value(data[offset : offset + align(length * width)])
                    if length and segment == int(path.stem)
                    else crc
                    for segment, offset, length, crc in zip(*columns, strict=True)
                ]
                raw[start : start + num_bytes] = np.array(crcs, kind).tobytes()
            start += align(num_bytes)
        crc = google_crc32c.extend(google_crc32c.value(bytes(raw[8:36])), bytes(raw[64:]))
        raw[36:40] = struct.pack("<I", crc)
        index_path.write_bytes(raw)


def spoil_text(path: Path, draw: Draw) -> None:
    """Other characters in a text file."""
    text = path.read_text("utf-8")
    strange = [
        "\0",
        "\ud800",
        "\u202e",
        "\t",
        "|",
        "'",
        '"',
        "\n",
        ": ",
        "&a ",
        "*a",
        "!!python/object:os.system ",
        "9" * 5000,
    ]
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(text) + 1)
        text = text[:place] + draw.choice(strange) + text[place:]
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
