"""Pictures of spectrograms and alignments: PNG files with axes that another decoder reads, made without matplotlib."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.training.sample_files import draw_alignment, draw_mel

GENERATOR = np.random.default_rng(0)
SHORT_TM, LONG_TM = GENERATOR.normal(-5, 2, (40, 80)), GENERATOR.normal(-5, 2, (400, 80))
LEFT, RIGHT, TOP, BOTTOM = 52, 766, 12, 202
GREY, ORANGE, TRANSPARENT = [0x80, 0x86, 0x90, 255], [0xFF, 0x7A, 0x59, 255], [255, 255, 255, 0]


def decode(picture: bytes) -> NDArray[np.uint8]:
    pixels: NDArray[np.uint8] = tf.io.decode_png(picture, channels=4).numpy()
    return pixels


def is_colour(pixels: NDArray[np.uint8], colour: list[int]) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = (pixels == np.array(colour, np.uint8)).all(axis=-1)
    return same


def test_the_same_numbers_give_the_same_picture() -> None:
    first = draw_mel(SHORT_TM, 86.0)
    assert draw_mel(LONG_TM, 86.0) != first
    assert draw_mel(SHORT_TM, 86.0) == first
    weights_TN, token_T = GENERATOR.random((40, 12)), np.arange(40) // 4
    alignment = draw_alignment(weights_TN, token_T, 86.0)
    assert draw_alignment(weights_TN, token_T // 2, 86.0) != alignment
    assert draw_alignment(weights_TN, token_T, 86.0) == alignment


def test_low_bands_and_early_frames_are_at_the_bottom_left() -> None:
    mel_TM = np.full((100, 80), -11.0)
    mel_TM[:50, :40] = 2.0
    plot = decode(draw_mel(mel_TM, 86.0))[TOP:BOTTOM, LEFT:RIGHT]
    middle_row, middle_column = (BOTTOM - TOP) // 2, (RIGHT - LEFT) // 2
    brightness = plot[..., :3].mean(axis=-1)
    assert (brightness[middle_row:, :middle_column] > 200).all()
    brightness[middle_row:, :middle_column] = 0
    assert (brightness < 10).all()


def test_values_off_the_scale_and_nan_are_drawn() -> None:
    mel_TM = np.full((10, 4), np.nan)
    mel_TM[5], mel_TM[6] = np.inf, -np.inf
    column = decode(draw_mel(mel_TM, 86.0))[TOP, LEFT:RIGHT, :3].mean(axis=-1)
    assert (column > 200).mean() == pytest.approx(0.1, abs=0.01)
    assert (column < 10).mean() == pytest.approx(0.9, abs=0.01)


def test_the_background_is_transparent_and_the_axes_are_grey() -> None:
    pixels = decode(draw_mel(LONG_TM, 100.0))
    assert (pixels[TOP:BOTTOM, LEFT:RIGHT, 3] == 255).all()
    around = np.ones(pixels.shape[:2], bool)
    around[TOP:BOTTOM, LEFT:RIGHT] = False
    is_grey, is_clear = is_colour(pixels, GREY), is_colour(pixels, TRANSPARENT)
    assert (is_grey | is_clear)[around].all()
    # 4 seconds: a tick of two pixels every half second, from edge to edge.
    starts = np.flatnonzero(np.diff(is_grey[BOTTOM + 1, LEFT - 1 : RIGHT + 1].astype(int)) == 1)
    assert len(starts) == 9
    assert np.ptp(np.diff(starts)) <= 1
    # 80 bands: ticks at 0, 20, 40, 60 and 80, each with a label at its left.
    assert (np.diff(is_grey[TOP - 1 : BOTTOM + 1, LEFT - 2].astype(int)) == 1).sum() == 5
    assert is_grey[TOP:BOTTOM, : LEFT - 10].any()


@pytest.mark.parametrize("num_frames", [1, 3, 40, 100, 5000])
def test_any_length_has_a_handful_of_labels(num_frames: int) -> None:
    pixels = decode(draw_mel(np.zeros((num_frames, 80)), 86.13))
    num_ticks = (np.diff(is_colour(pixels, GREY)[BOTTOM + 1].astype(int)) == 1).sum()
    assert 3 <= num_ticks <= 9


def test_the_path_of_an_alignment_climbs_without_a_gap() -> None:
    token_T = np.repeat(np.arange(10), 7)
    pixels = decode(draw_alignment(np.zeros((70, 10)), token_T, 86.0))
    is_path = is_colour(pixels, ORANGE)
    assert not is_path[:, :LEFT].any()
    columns = is_path[:, LEFT:RIGHT]
    assert columns.any(axis=0).all()
    middle = np.array([np.flatnonzero(column).mean() for column in columns.T])
    assert (np.diff(middle) <= 10).all()
    first, last = np.flatnonzero(columns[:, 0]).max(), np.flatnonzero(columns[:, -1]).min()
    assert BOTTOM - first < 19
    assert last - TOP < 19
    assert (columns[:, 1:] & columns[:, :-1]).any(axis=0).all()


def test_nothing_draws_with_matplotlib() -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None; import numpy as np; "
        "from myxtts.training.sample_files import draw_mel; sys.exit(not draw_mel(np.zeros((4, 4)), 86.0))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
