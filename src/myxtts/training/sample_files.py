"""Sample files of a run: WAV, PNG plots and an index, in one folder per step; with a small PNG writer.

    samples/step-000100/   01-en.wav   01-en.png (mel)   01-en.alignment.png   samples.json (index, written last)
    samples/recorded/      the recordings of the same sentences
    samples/real/          the recordings, converted to a spectrogram and back (the recordings themselves: vocoder)

Spectrograms and alignments are drawn with numpy and zlib alone. A picture is an array of palette indices [H, W], which
is also what an indexed PNG stores. The background is transparent and the axes (seconds, and bands or tokens) are
labelled with numbers only: pages add the caption and may be dark.

Shape legend: T frames, M mel bands, N tokens, Y values of one frame (M or N), H and W height and width in pixels.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from myxtts.storage.atomic import write_file
from myxtts.storage.json_file import try_read_json, write_json

INDEX_FILE_NAME = "samples.json"
REAL_FOLDER_NAME = "real"
RECORDED_FOLDER_NAME = "recorded"
GRIFFIN_LIM_FOLDER_NAME = "griffin_lim"
_STEP_PREFIX = "step-"


@dataclass(frozen=True, slots=True)
class Sample:
    """One synthesised or recorded sentence: samples, and plots as PNG. `about` holds id, text, language and speaker."""

    name: str
    sound: NDArray[np.float32]
    mel_picture: bytes
    alignment_picture: bytes = b""
    about: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SampleFiles:
    """Paths of the files of one sample, and its entry in the index; a file that is missing is None."""

    name: str
    about: Mapping[str, str]
    sound: Path | None
    mel: Path | None
    alignment: Path | None


def describe_failure(error: BaseException) -> str:
    """First line of an exception, for a warning: those of TensorFlow go on for pages."""
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def name_step_folder(step: int) -> str:
    return f"{_STEP_PREFIX}{step:06}"


def write_samples(folder: Path, samples: Sequence[Sample], rate_hz: int) -> None:
    """Writes WAV and PNG files of the samples, and then the index."""
    entries = []
    for sample in samples:
        files = {
            "sound": (f"{sample.name}.wav", encode_wav(sample.sound, rate_hz)),
            "mel": (f"{sample.name}.png", sample.mel_picture),
            "alignment": (f"{sample.name}.alignment.png", sample.alignment_picture),
        }
        written = {kind: file for kind, file in files.items() if file[1]}
        for file_name, content in written.values():
            write_file(folder / file_name, content)
        entries.append(
            {"name": sample.name, **sample.about, **{kind: file_name for kind, (file_name, _) in written.items()}}
        )
    # Last: a folder without an index was not finished, and is ignored.
    write_json(folder / INDEX_FILE_NAME, {"samples": entries}, ensure_ascii=False)


def list_steps(samples_path: Path) -> list[int]:
    """The steps whose samples are whole, in order."""
    names = (path.parent.name.removeprefix(_STEP_PREFIX) for path in samples_path.glob(f"*/{INDEX_FILE_NAME}"))
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def read_references(samples_path: Path, *, is_vocoder: bool) -> tuple[list[SampleFiles], list[SampleFiles]]:
    """The recordings, and the same through Griffin-Lim, for comparison; either may be missing."""
    names = (REAL_FOLDER_NAME, GRIFFIN_LIM_FOLDER_NAME) if is_vocoder else (RECORDED_FOLDER_NAME, REAL_FOLDER_NAME)
    recorded, copies = (read_samples(samples_path / name) for name in names)
    return recorded, copies


def read_samples(folder: Path) -> list[SampleFiles]:
    """The samples of a folder; none where its index is missing or is not one."""
    entries = (try_read_json(folder / INDEX_FILE_NAME, dict[str, Any]) or {}).get("samples")
    return [_locate(folder, entry) for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def encode_wav(samples: NDArray[np.floating], rate_hz: int, kind: str = "WAV") -> bytes:
    """Encodes a file of 16 bits, WAV or FLAC; samples beyond full scale are scaled down as a whole, not clipped."""
    peak = max(1.0, float(np.max(np.abs(samples), initial=0.0)))
    file = io.BytesIO()
    soundfile.write(file, np.asarray(samples, np.float32) / peak, rate_hz, format=kind, subtype="PCM_16")
    return file.getvalue()


def _locate(folder: Path, entry: Mapping[str, Any]) -> SampleFiles:
    def find(kind: str) -> Path | None:
        # The file name alone, so that an index cannot point outside its folder.
        path = folder / Path(str(entry.get(kind, ""))).name
        return path if path.is_file() else None

    about = {name: str(entry.get(name, "")) for name in ("id", "text", "language", "speaker")}
    return SampleFiles(str(entry.get("name", "")), about, find("sound"), find("mel"), find("alignment"))


Pixels = NDArray[np.uint8]

_WIDTH, _HEIGHT = 780, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 766, 12, 202
"""Edges of the plot in pixels; tick labels stand left of it and below it."""
_LOWEST, _HIGHEST = -11.0, 2.0
"""Range of natural logarithms of mel bands: the same for all pictures, so that they can be compared."""

_MAGMA = "000004 120d31 331067 59157e 7e2482 a3307e c83e73 e95462 fa7d5e fea973 fed395 fcfdbf"
_VIRIDIS = "440154 482173 433e85 38588c 2d708e 25858e 1e9b8a 2ab07f 52c569 86d549 c2df23 fde725"
"""Evenly spaced colours of the public-domain maps of these names, linearly interpolated in between."""
_NUM_COLOURS = 253
"""Colours of a map: 256 palette entries less the three below."""
_TRANSPARENT, _GREY, _ORANGE = _NUM_COLOURS, _NUM_COLOURS + 1, _NUM_COLOURS + 2
_OTHER_COLOURS = bytes.fromhex("ffffff 808690 ff7a59")
"""RGB of the three indices above; the grey is readable on white and on black."""

_GLYPHS = {
    "0": "01110 10001 10001 10001 10001 10001 01110",
    "1": "00100 01100 00100 00100 00100 00100 01110",
    "2": "01110 10001 00001 00010 00100 01000 11111",
    "3": "01110 10001 00001 00110 00001 10001 01110",
    "4": "00010 00110 01010 10010 11111 00010 00010",
    "5": "11111 10000 11110 00001 00001 10001 01110",
    "6": "01110 10000 10000 11110 10001 10001 01110",
    "7": "11111 00001 00010 00100 00100 01000 01000",
    "8": "01110 10001 10001 01110 10001 10001 01110",
    "9": "01110 10001 10001 01111 00001 00001 01110",
    ".": "0 0 0 0 0 0 1",
}
"""Rows of a bitmap font, from the top."""
_GLYPH_SCALE = 2
"""Pixels per dot of the font."""
_MAX_TICKS_X, _MAX_TICKS_Y = 8, 5


def draw_mel(mel_TM: NDArray[np.floating], frame_rate_hz: float) -> bytes:
    """A log-mel spectrogram over seconds."""
    shares_TM = (np.asarray(mel_TM, np.float32) - _LOWEST) / (_HIGHEST - _LOWEST)
    return _encode_png(_draw_plot(shares_TM, frame_rate_hz), _MAGMA)


def draw_alignment(weights_TN: NDArray[np.floating], token_T: NDArray[np.integer], frame_rate_hz: float) -> bytes:
    """The soft alignment of frames and tokens, and the monotonic path that was found in it, over seconds."""
    canvas_HW = _draw_plot(np.asarray(weights_TN, np.float32), frame_rate_hz)
    num_frames, num_tokens = weights_TN.shape
    token_W = np.asarray(token_T)[_choose_cells(num_frames, _RIGHT - _LEFT)]
    row_W = (_BOTTOM - (token_W + 0.5) * (_BOTTOM - _TOP) / num_tokens).astype(int)
    # Where the path climbs, the line is drawn from the row of the column before.
    for column, (row, row_before) in enumerate(zip(row_W, (row_W[0], *row_W), strict=False), _LEFT):
        canvas_HW[min(row, row_before) - 1 : max(row, row_before) + 1, column] = _ORANGE
    return _encode_png(canvas_HW, _VIRIDIS)


def _draw_plot(shares_TY: NDArray[np.float32], frame_rate_hz: float) -> Pixels:
    """Values as colours (0 is the first, 1 the last of the palette), and both axes; NaN gets the first colour."""
    num_frames, height = shares_TY.shape
    indices_TY = np.clip(np.nan_to_num(shares_TY * (_NUM_COLOURS - 1)), 0, _NUM_COLOURS - 1).astype(np.uint8)
    rows, columns = _choose_cells(height, _BOTTOM - _TOP)[::-1], _choose_cells(num_frames, _RIGHT - _LEFT)
    canvas_HW = np.full((_HEIGHT, _WIDTH), _TRANSPARENT, np.uint8)
    canvas_HW[_TOP:_BOTTOM, _LEFT:_RIGHT] = indices_TY.T[np.ix_(rows, columns)]
    for share, label in _choose_ticks(num_frames / frame_rate_hz, _MAX_TICKS_X):
        x = _LEFT + round(share * (_RIGHT - _LEFT - 2))
        canvas_HW[_BOTTOM : _BOTTOM + 6, x : x + 2] = _GREY
        _write(canvas_HW, label, x + 1 - label.shape[1] // 2, _BOTTOM + 12)
    for share, label in _choose_ticks(height, _MAX_TICKS_Y):
        y = _BOTTOM - 2 - round(share * (_BOTTOM - _TOP - 2))
        canvas_HW[y : y + 2, _LEFT - 6 : _LEFT] = _GREY
        _write(canvas_HW, label, _LEFT - 10 - label.shape[1], y + 1 - label.shape[0] // 2)
    return canvas_HW


def _choose_cells(num_cells: int, num_pixels: int) -> NDArray[np.intp]:
    """The cell under the middle of each pixel."""
    return ((np.arange(num_pixels) + 0.5) * num_cells / num_pixels).astype(np.intp)


def _choose_ticks(length: float, max_ticks: int) -> Iterator[tuple[float, NDArray[np.bool_]]]:
    """Round numbers from 0 to `length`: the share of the axis and the label of each."""
    power = 10.0 ** np.floor(np.log10(length / max_ticks))
    step = next(factor * power for factor in (1, 2, 5, 10) if length / (factor * power) <= max_ticks)
    num_decimals = max(0, -int(np.floor(np.log10(step) + 1e-9)))
    for number in range(int(length / step + 1e-9) + 1):
        yield number * step / length, _render(f"{number * step:.{num_decimals}f}")


def _render(text: str) -> NDArray[np.bool_]:
    """The pixels of a number, one empty column between its characters."""
    glyphs = [np.array([list(row) for row in _GLYPHS[character].split()]) == "1" for character in text]
    spaced = [np.pad(glyph, ((0, 0), (0, 1))) for glyph in glyphs]
    return np.kron(np.hstack(spaced)[:, :-1], np.ones((_GLYPH_SCALE, _GLYPH_SCALE), bool))


def _write(canvas_HW: Pixels, label: NDArray[np.bool_], left: int, top: int) -> None:
    left = min(max(left, 0), _WIDTH - label.shape[1])
    canvas_HW[top : top + label.shape[0], left : left + label.shape[1]][label] = _GREY


def _encode_png(canvas_HW: Pixels, colours: str) -> bytes:
    """An indexed PNG of 8 bits (W3C PNG specification): palette, one transparent index, rows without a filter."""
    anchors = np.array([list(bytes.fromhex(colour)) for colour in colours.split()])
    places = np.linspace(0, len(anchors) - 1, _NUM_COLOURS)
    palette = np.stack([np.interp(places, np.arange(len(anchors)), channel) for channel in anchors.T], axis=1)
    rows = np.pad(canvas_HW, ((0, 0), (1, 0)))
    height, width = canvas_HW.shape
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette.round().astype(np.uint8).tobytes() + _OTHER_COLOURS),
        (b"tRNS", b"\xff" * _TRANSPARENT + b"\x00"),
        (b"IDAT", zlib.compress(rows.tobytes(), 6)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
