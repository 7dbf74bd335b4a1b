"""The page of a watch: whole without anything outside, in two languages, in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import matplotlib.image
import numpy as np
import pynvml
import pytest
from tests.runtime.fake_nvml import FakeNvml
from tests.tools.fake_watch import GappyNvml, make_busy_gpus, play_watch
from tests.tools.test_run_report import Outline

from myxtts.errors import StorageError
from myxtts.tools.monitor.page import make_monitor_page, write_monitor_report
from myxtts.tools.monitor.watch import Monitor
from myxtts.tools.monitor_words import make_monitor_words

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def monitor(tmp_path_factory: pytest.TempPathFactory) -> Monitor:
    """Two GPUs, of which one swings and one is lost, in a run that comes in bursts."""
    gpus = make_busy_gpus(2)

    def change(number: int) -> None:
        gpus[0].utilization_percent = 2 if number % 6 < 3 else 45
        gpus[0].temperature_c = 60 + number // 5
        gpus[1].lost = number > 40

    folder = tmp_path_factory.mktemp("runs") / "<b>voice</b>"
    return play_watch(folder, FakeNvml(gpus), 60, change=change, wait_s=lambda step: 0.5 if step % 20 == 0 else 0.001)


def test_page_is_whole_and_needs_nothing_outside(monitor: Monitor, tmp_path: Path) -> None:
    page = write_monitor_report(monitor, tmp_path / "page.html").read_text(encoding="utf-8")
    outline = Outline(page)
    assert not outline.addresses
    assert not re.search(r"https?://|@import|url\(|<script|<link", page)
    # Four of the run, six of each GPU, two of the machine.
    assert outline.count["svg"] == 4 + 6 + 6 + 2
    for text in (
        "60 samples in 2.0 min",
        "GPU 0 busy",
        "GPU 0 swings between 2 % and 45 %",
        "repeat every 20 steps",
        "GPU 1 is lost",
        "oscillation",
        "<b>voice</b>",
        "Batches in the buffer",
    ):
        assert text in outline.text
    assert "<b>voice" not in page


def test_persian_page_reads_from_right_to_left(monitor: Monitor) -> None:
    outline = Outline(make_monitor_page(monitor, make_monitor_words("fa")).render())
    assert outline.attributes["html"] == {"lang": "fa", "dir": "rtl"}
    for text in ("هشدارها", "نوسان", "کارت گرافیک ۱ از دست رفته است", "میان‌گیر", "۶۰ نمونه"):
        assert text in outline.text
    for text in ("Warnings", "swings", "Busy"):
        assert text not in outline.text


@pytest.mark.parametrize("num_gpus", [0, 1, 8])
@pytest.mark.parametrize("lang", ["en", "fa"])
def test_any_number_of_gpus_and_any_gap_makes_a_page(tmp_path: Path, num_gpus: int, lang: str) -> None:
    gaps: dict[str, int | Exception] = {
        "nvmlDeviceGetUtilizationRates": pynvml.NVML_ERROR_NOT_SUPPORTED,
        "nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_NOT_SUPPORTED,
        "nvmlDeviceGetComputeRunningProcesses": pynvml.NVML_ERROR_NO_PERMISSION,
    }
    monitor = play_watch(tmp_path / "run", GappyNvml(make_busy_gpus(num_gpus), gaps), 1)
    words = make_monitor_words(lang)
    outline = Outline(make_monitor_page(monitor, words).render())
    assert outline.text.count(words.say("denied")) == num_gpus
    assert ("No NVIDIA GPU" in outline.text) == (num_gpus == 0 and lang == "en")


def test_a_page_that_cannot_be_written_is_an_error(monitor: Monitor, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError):
        write_monitor_report(monitor, tmp_path / "file" / "page.html")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium to draw the page with")
@pytest.mark.parametrize("lang", ["en", "fa"])
def test_page_is_not_blank_in_a_browser(monitor: Monitor, tmp_path: Path, lang: str) -> None:
    path = write_monitor_report(monitor, tmp_path / "page.html", lang=lang)  # type: ignore[arg-type]
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,2600"]
    home, picture = f"--user-data-dir={tmp_path / 'browser'}", tmp_path / "page.png"
    command = [str(CHROMIUM), *flags, home, f"--screenshot={picture}", path.as_uri()]
    subprocess.run(command, timeout=90, capture_output=True, check=True)
    pixels = matplotlib.image.imread(picture)[..., :3]
    assert pixels.shape[:2] == (2600, 1200)
    assert all(part.std() > 0.01 for part in np.array_split(pixels, 5))
    assert (pixels[..., 2] - pixels[..., 0] > 0.3).mean() > 0.001
    # The heading stands at the side from which the language is read.
    ink = (pixels[60:130].max(axis=-1) < 0.5).mean(axis=0)
    left, right = ink[:600].sum(), ink[600:].sum()
    assert (left > 3 * right) if lang == "en" else (right > 3 * left)
