"""Screenshots of pages by a headless Chromium, where one is installed, as arrays of pixels."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(_CHROMIUM is None, reason="no Chromium to draw the page with")


def photograph(page: Path, folder: Path, width: int, height: int) -> NDArray[np.float32]:
    """What a window of this size shows of a page, as pixels [H, W, 3] from 0 to 1."""
    import tensorflow as tf

    picture = folder / "page.png"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1"]
    places = [f"--user-data-dir={folder / 'browser'}", f"--window-size={width},{height}", f"--screenshot={picture}"]
    subprocess.run([str(_CHROMIUM), *flags, *places, page.as_uri()], timeout=120, capture_output=True, check=True)
    pixels: NDArray[np.float32] = tf.io.decode_png(picture.read_bytes(), channels=3).numpy() / np.float32(255)
    return pixels
