"""The files of samples: sounds, pictures and an index in a folder for every step that was listened to."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from myxtts.files import write_atomically
from myxtts.models.strict_json import JsonRefusedError, parse_json_object

INDEX_FILE_NAME = "samples.json"
REAL_FOLDER_NAME = "real"
_STEP_PREFIX = "step-"
_MAX_INDEX_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class Sample:
    """One sentence as it sounds; pictures are PNG. `about` holds id, text, language and speaker."""

    name: str
    sound: NDArray[np.float32]
    mel_picture: bytes
    alignment_picture: bytes = b""
    about: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SampleFiles:
    """Where a sample lies, and what its index says about it; a file that is missing is None."""

    name: str
    about: Mapping[str, str]
    sound: Path | None
    mel: Path | None
    alignment: Path | None


def name_step_folder(step: int) -> str:
    return f"{_STEP_PREFIX}{step:06}"


def write_samples(folder: Path, samples: Sequence[Sample], rate_hz: int) -> None:
    entries = []
    for sample in samples:
        files = {
            "sound": (f"{sample.name}.wav", encode_wav(sample.sound, rate_hz)),
            "mel": (f"{sample.name}.png", sample.mel_picture),
            "alignment": (f"{sample.name}.alignment.png", sample.alignment_picture),
        }
        written = {kind: file for kind, file in files.items() if file[1]}
        for file_name, content in written.values():
            _write_file(folder / file_name, content)
        entries.append(
            {"name": sample.name, **sample.about, **{kind: file_name for kind, (file_name, _) in written.items()}}
        )
    # Last: a folder without it is one that was cut short.
    _write_file(folder / INDEX_FILE_NAME, json.dumps({"samples": entries}, ensure_ascii=False, indent=1).encode())


def list_steps(samples_path: Path) -> list[int]:
    """The steps whose samples are whole, in order."""
    names = (path.parent.name.removeprefix(_STEP_PREFIX) for path in samples_path.glob(f"*/{INDEX_FILE_NAME}"))
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def read_samples(folder: Path) -> list[SampleFiles]:
    """The samples of a folder; none where its index is missing or is not one."""
    try:
        entries = parse_json_object((folder / INDEX_FILE_NAME).read_bytes()[:_MAX_INDEX_BYTES]).get("samples")
    except (OSError, JsonRefusedError):
        return []
    return [_locate(folder, entry) for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def encode_wav(samples: NDArray[np.floating], rate_hz: int) -> bytes:
    """The bytes of a WAV file of 16 bits; what is louder than full scale is made to fit."""
    peak = max(1.0, float(np.max(np.abs(samples), initial=0.0)))
    file = io.BytesIO()
    soundfile.write(file, np.asarray(samples, np.float32) / peak, rate_hz, format="WAV", subtype="PCM_16")
    return file.getvalue()


def _locate(folder: Path, entry: Mapping[str, Any]) -> SampleFiles:
    def find(kind: str) -> Path | None:
        # Only names: an index cannot lead anywhere else.
        path = folder / Path(str(entry.get(kind, ""))).name
        return path if path.is_file() else None

    about = {name: str(entry.get(name, "")) for name in ("id", "text", "language", "speaker")}
    return SampleFiles(str(entry.get("name", "")), about, find("sound"), find("mel"), find("alignment"))


def _write_file(path: Path, content: bytes) -> None:
    with write_atomically(path) as file:
        file.write(content)
