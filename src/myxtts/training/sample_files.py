"""The files of samples: sounds, pictures and an index in a folder for every step that was listened to."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from myxtts.storage.atomic import write_atomically
from myxtts.storage.json_file import try_read_json

INDEX_FILE_NAME = "samples.json"
REAL_FOLDER_NAME = "real"
_STEP_PREFIX = "step-"


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
    entries = (try_read_json(folder / INDEX_FILE_NAME, dict[str, Any]) or {}).get("samples")
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


# Spectrograms and alignments as PNG, without words and without a background: pages caption them and may be dark.
#
# Shape legend: T frames, M mel bands, N tokens.

_GREY = "#808690"
"""Readable on white and on black."""
_WIDTH_INCHES, _HEIGHT_INCHES, _DOTS_PER_INCH = 5.2, 1.6, 150
_LOWEST, _HIGHEST = -11.0, 2.0
"""Natural logarithms of mel bands: one scale for all pictures, so that they can be compared."""


def draw_mel(mel_TM: NDArray[np.floating], frame_rate_hz: float) -> bytes:
    """A log-mel spectrogram over seconds."""
    return _get_easel("magma", _LOWEST, _HIGHEST).draw(mel_TM, frame_rate_hz)


def draw_alignment(weights_TN: NDArray[np.floating], token_T: NDArray[np.integer], frame_rate_hz: float) -> bytes:
    """How well every frame fits every token, and the path that was chosen, over seconds."""
    return _get_easel("viridis", 0.0, 1.0).draw(weights_TN, frame_rate_hz, np.asarray(token_T) + 0.5)


class _Figure:
    """One figure that every picture of a kind is drawn on.

    A figure is thousands of objects in a circle, which nothing but a full garbage collection frees. In a process with
    a model these are rare, and dozens of megabytes would pile up between two of them.
    """

    def __init__(self, colours: str, lowest: float, highest: float) -> None:
        self._lock = threading.Lock()
        self._figure = Figure((_WIDTH_INCHES, _HEIGHT_INCHES), dpi=_DOTS_PER_INCH)
        FigureCanvasAgg(self._figure)
        self._figure.patch.set_alpha(0.0)
        self._axes = self._figure.add_subplot()
        self._axes.tick_params(colors=_GREY, labelsize=8, length=3)
        for spine in self._axes.spines.values():
            spine.set_visible(False)
        self._image = self._axes.imshow(
            np.zeros((1, 1), np.float32),
            origin="lower",
            aspect="auto",
            interpolation="nearest",
            cmap=colours,
            vmin=lowest,
            vmax=highest,
        )
        (self._path,) = self._axes.step([], [], where="post", color="#ff7a59", linewidth=1.1)

    def draw(
        self, values_TY: NDArray[np.floating], frame_rate_hz: float, path_T: NDArray[np.floating] | None = None
    ) -> bytes:
        num_frames, height = values_TY.shape
        path_T = np.zeros(0) if path_T is None else path_T
        file = io.BytesIO()
        with self._lock:
            self._image.set_data(np.asarray(values_TY, np.float32).T)
            self._image.set_extent((0, num_frames / frame_rate_hz, 0, height))
            self._path.set_data(np.arange(len(path_T)) / frame_rate_hz, path_T)
            self._figure.subplots_adjust(left=0.1, right=0.95, bottom=0.15, top=0.95)
            self._figure.tight_layout()
            self._figure.savefig(file, format="png", transparent=True, metadata={"Software": None})
        return file.getvalue()


@cache
def _get_easel(colours: str, lowest: float, highest: float) -> _Figure:
    return _Figure(colours, lowest, highest)
