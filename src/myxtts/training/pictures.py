"""Spectrograms and alignments as PNG, without words and without a background: pages caption them and may be dark.

Shape legend: T frames, M mel bands, N tokens.
"""

from __future__ import annotations

import io
from typing import Any

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
    figure, axes = _make_figure()
    axes.imshow(
        np.asarray(mel_TM, np.float32).T,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        cmap="magma",
        vmin=_LOWEST,
        vmax=_HIGHEST,
        extent=(0, len(mel_TM) / frame_rate_hz, 0, mel_TM.shape[1]),
    )
    return _encode(figure)


def draw_alignment(weights_TN: NDArray[np.floating], token_T: NDArray[np.integer], frame_rate_hz: float) -> bytes:
    """How well every frame fits every token, and the path that was chosen, over seconds."""
    figure, axes = _make_figure()
    num_frames, num_tokens = weights_TN.shape
    axes.imshow(
        np.asarray(weights_TN, np.float32).T,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        cmap="viridis",
        vmin=0,
        vmax=1,
        extent=(0, num_frames / frame_rate_hz, 0, num_tokens),
    )
    time_s = np.arange(num_frames) / frame_rate_hz
    axes.step(time_s, np.asarray(token_T) + 0.5, where="post", color="#ff7a59", linewidth=1.1)
    return _encode(figure)


def _make_figure() -> tuple[Figure, Any]:
    # Made without pyplot, which would keep every figure until it is told to forget it.
    figure = Figure((_WIDTH_INCHES, _HEIGHT_INCHES), dpi=_DOTS_PER_INCH, layout="tight")
    FigureCanvasAgg(figure)
    figure.patch.set_alpha(0.0)
    axes = figure.add_subplot()
    axes.tick_params(colors=_GREY, labelsize=8, length=3)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure, axes


def _encode(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", transparent=True, metadata={"Software": None})
    return file.getvalue()
