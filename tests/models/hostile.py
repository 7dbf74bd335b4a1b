"""Bundles that someone tampered with, and a process that reads them under watch.

Each entry of HOSTILE changes a good bundle and says which words the refusal must have.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from myxtts.config.schema import ModelConfig
from myxtts.errors import MyXTTSError
from myxtts.models.bundle import Bundle, read_bundle, write_bundle

MEL = {"sample_rate": 22050, "n_fft": 1024, "hop_length": 256, "n_mels": 80, "fmax": 8000.0}
WEIGHTS, DESCRIPTION, VOCODER, FRONTEND = "model.safetensors", "bundle.json", "vocoder.safetensors", "frontend.json"


def make_bundle(**changes: Any) -> Bundle:
    generator = np.random.default_rng(3)
    config = ModelConfig(text_width=16, text_layers=1, decoder_width=16, decoder_layers=1, reference_width=16)
    fields: dict[str, Any] = {
        "model_config": config,
        "model_spec": {"factor_sizes": [40, 3], "n_mels": 80, "speakers": ["a", "b"], "mel_deviation": 2.0},
        "mel": MEL,
        "audio": {"trim_silence": True},
        "frontend": b'{"format": "myxtts-frontend"}',
        "frontend_fingerprint": "abc",
        "vocoder": {"kind": "vocos", "mel": dict(MEL)},
        "weights": {
            "text_encoder/dense/kernel": generator.normal(size=(16, 20)).astype(np.float32),
            "decoder/dense/kernel": generator.normal(size=(16, 20)).astype(np.float32),
        },
        "vocoder_weights": {"head/kernel": generator.normal(size=(4, 6)).astype(np.float32)},
        "notes": {"step": 1000},
    }
    return Bundle(**fields | changes)


class Planted:
    """Pickled, it makes a file as soon as anyone unpickles it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (self._path,))


def plant_pickle(folder: Path) -> bytes:
    return pickle.dumps(Planted(str(folder / "planted")))


def plant_zip(folder: Path) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("data.pkl", plant_pickle(folder))
    return packed.getvalue()


def edit_description(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / DESCRIPTION
    fields = json.loads(path.read_bytes())
    change(fields)
    path.write_text(json.dumps(fields), encoding="utf-8")


def replace_weights(folder: Path, content: bytes, name: str = WEIGHTS) -> None:
    """Puts other bytes in the place of a file, with the right checksum: whoever tampers can compute one."""
    (folder / name).write_bytes(content)
    edit_description(folder, lambda fields: fields["checksums"].update({name: google_crc32c.value(content)}))


def make_tensors(heading: str | dict[str, Any], data: bytes = b"", length: int | None = None) -> bytes:
    raw = (heading if isinstance(heading, str) else json.dumps(heading)).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def describe(shape: list[Any], begin: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def of_weights(make: Callable[[Path], bytes]) -> Callable[[Path], None]:
    return lambda folder: replace_weights(folder, make(folder))


def of_heading(heading: str | dict[str, Any], num_bytes: int = 0, length: int | None = None) -> Callable[[Path], None]:
    return of_weights(lambda _: make_tensors(heading, bytes(num_bytes), length))


def of_description(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return lambda folder: edit_description(folder, change)


def of_text(text: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / DESCRIPTION).write_text(text, encoding="utf-8")

    return change


def link(name: str, target: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return change


def make_pipe(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    os.mkfifo(folder / WEIGHTS)


def make_folder(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).mkdir()


def make_endless(folder: Path) -> None:
    """A file with a hole: it claims a terabyte and takes no space."""
    os.truncate(folder / WEIGHTS, 1 << 40)


def describe_by_pickle(folder: Path) -> None:
    (folder / DESCRIPTION).write_bytes(plant_pickle(folder))


def spoil(folder: Path) -> None:
    weights = make_bundle().weights
    weights["decoder/dense/kernel"][3, 3] = np.nan
    raw = make_tensors(
        {name: describe(list(a.shape), 1280 * n, 1280 * n + 1280) for n, (name, a) in enumerate(weights.items())},
        b"".join(array.tobytes() for array in weights.values()),
    )
    replace_weights(folder, raw)


def flip_a_bit(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[-3] ^= 4
    (folder / name).write_bytes(content)


HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "pickle as weights": (of_weights(plant_pickle), "heading claims"),
    "pickle as description": (describe_by_pickle, "not JSON"),
    "zip as weights": (of_weights(plant_zip), "heading claims"),
    "heading of 2**63 bytes": (of_heading("{}", length=1 << 63), "heading claims"),
    "heading longer than the file": (of_heading("{}", length=1_000_000), "cut short"),
    "overlapping tensors": (of_heading({"a": describe([2], 0, 8), "b": describe([2], 4, 12)}, 12), "overlaps"),
    "the same bytes twice": (of_heading({"a": describe([2], 0, 8), "b": describe([2], 0, 8)}, 8), "overlaps"),
    "a gap between tensors": (of_heading({"a": describe([2], 0, 8), "b": describe([2], 16, 24)}, 24), "gap"),
    "trailing bytes": (of_weights(lambda folder: (folder / WEIGHTS).read_bytes() + b"#!/bin/sh"), "none of them"),
    "truncated": (of_weights(lambda folder: (folder / WEIGHTS).read_bytes()[:-100]), "cut short"),
    "empty file": (of_weights(lambda _: b""), "0 bytes"),
    "unknown dtype": (of_heading({"a": describe([1], 0, 8, "OBJECT")}, 8), "not known"),
    "float64 weights": (of_heading({"a": describe([2], 0, 16, "F64")}, 16), "not float32"),
    "negative shape": (of_heading({"a": describe([-1, -2], 0, 8)}, 8), "shape.0"),
    "huge shape": (of_heading({"a": describe([2**62, 2**62], 0, 8)}, 8), "impossible"),
    "huge shape of nothing": (of_heading({"a": describe([0, 2**62], 0, 0)}), "impossible"),
    "shape beyond its bytes": (of_heading({"a": describe([100], 0, 8)}, 8), "do not fit its shape"),
    "true as a size": (of_heading({"a": describe([True], 0, 4)}, 4), "shape.0"),
    "negative offsets": (of_heading({"a": describe([2], -8, 0)}), "data_offsets.0"),
    "duplicate tensor": (
        of_heading('{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"F32"}}'),
        "twice",
    ),
    "too many tensors": (of_heading({f"t{n}": describe([0], 0, 0) for n in range(20_001)}), "more than 20,000"),
    "path in a tensor's name": (of_heading({"../../etc/cron": describe([1], 0, 4)}, 4), "no name"),
    "heading nested deeply": (of_heading('{"a":' * 100_000), "not JSON"),
    "heading that is a list": (of_heading("[1, 2]"), "no JSON object"),
    "heading that is not UTF-8": (of_weights(lambda _: struct.pack("<Q", 4) + b"\xff\xfe{}"), "not JSON"),
    "weights that are NaN": (spoil, "NaN or infinite"),
    "model larger than its weights": (
        of_description(lambda fields: fields["model_config"].update(decoder_width=8192, decoder_layers=128)),
        "larger model",
    ),
    "a billion speakers": (of_description(lambda fields: fields["model_spec"].update(num=10**9)), "larger model"),
    "wrong checksum of the weights": (lambda folder: flip_a_bit(folder, WEIGHTS), "checksum"),
    "wrong checksum of the front end": (lambda folder: flip_a_bit(folder, FRONTEND), "checksum"),
    "link out of the folder": (link(WEIGHTS, "/etc/passwd"), "cannot be read"),
    "link of the description": (link(DESCRIPTION, "/etc/passwd"), "cannot be read"),
    "pipe in place of a file": (make_pipe, "not a file"),
    "folder in place of a file": (make_folder, "not a file"),
    "a terabyte of nothing": (make_endless, "more than"),
    "file names with a path": (
        of_description(lambda fields: fields["checksums"].update({"../../etc/passwd": 0})),
        "checksums",
    ),
    "description nested deeply": (of_text("[" * 1_000_000), "not JSON"),
    "description nested less deeply": (
        of_description(lambda f: f.update(notes=json.loads("[" * 50 + "]" * 50))),
        "deep",
    ),
    "description of endless digits": (of_text('{"version": ' + "9" * 1_000_000 + "}"), "digits"),
    "description with NaN": (of_description(lambda fields: fields["mel"].update(fmax=float("nan"))), "NaN"),
    "description with 1e999": (of_text('{"version": 1e999}'), "out of range"),
    "description of five megabytes": (of_text('{"a": "' + "x" * 5_000_000 + '"}'), "more than"),
    "description with a key twice": (of_text('{"format": "a", "format": "myxtts-bundle"}'), "twice"),
    "description of another version": (of_description(lambda fields: fields.update(version=2)), "version"),
    "description with more to it": (of_description(lambda fields: fields.update(run="rm -rf /")), "run"),
    "unknown setting of the model": (
        of_description(lambda f: f["model_config"].update(code="import os")),
        "model.code",
    ),
    "mel of another vocoder": (of_description(lambda fields: fields["mel"].update(hop_length=300)), "hop_length"),
    "pickle as vocoder": (lambda folder: replace_weights(folder, plant_pickle(folder), VOCODER), "heading claims"),
}

_FORBIDDEN_EVENTS = (
    "exec",
    "compile",
    "import",
    "pickle.find_class",
    "subprocess.Popen",
    "marshal.loads",
    "mmap.__new__",
)
_FORBIDDEN_STARTS = ("os.", "socket.", "ctypes.", "shutil.", "code.", "cpython.run", "urllib.")
_ALLOWED_NAMES = {WEIGHTS, DESCRIPTION, VOCODER, FRONTEND}


def read_under_watch(root: str) -> dict[str, Any]:
    """Reads the bundle in each folder of `root`; gives what was said, how long it took and what else was done."""
    good = Path(root) / "good"
    write_bundle(good, make_bundle())
    read_bundle(good)
    events: list[str] = []
    is_watching = False

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if not is_watching:
            return
        if event in _FORBIDDEN_EVENTS or event.startswith(_FORBIDDEN_STARTS):
            events.append(f"{event} {arguments}")
        if (
            event == "open"
            and str(arguments[0]) not in (_ALLOWED_NAMES | {str(folder)})
            and not _is_number(arguments[0])
        ):
            events.append(f"open {arguments}")

    folder = good
    _read(folder)
    sys.addaudithook(watch)
    found = {}
    for folder in sorted(Path(root).iterdir()):
        started = time.process_time()
        is_watching = True
        message = _read(folder)
        is_watching = False
        seconds = time.process_time() - started
        found[folder.name] = {"message": message, "seconds": seconds, "events": list(events)}
        events.clear()
    is_watching = True
    Path(__file__).read_bytes()
    is_watching = False
    return found | {"a look elsewhere": {"events": events}}


def _is_number(value: object) -> bool:
    return isinstance(value, int)


def _read(folder: Path) -> str:
    try:
        read_bundle(folder)
    except MyXTTSError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    print(json.dumps(read_under_watch(sys.argv[1])))
