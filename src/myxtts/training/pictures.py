"""Spectrograms and alignments as PNG, without words and without a background: pages caption them and may be dark.

Shape legend: T frames, M mel bands, N tokens.
"""

from __future__ import annotations

import io
import threading
from functools import cache

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

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


class _Easel:
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
def _get_easel(colours: str, lowest: float, highest: float) -> _Easel:
    return _Easel(colours, lowest, highest)
