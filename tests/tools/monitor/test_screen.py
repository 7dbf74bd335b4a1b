"""The terminal view as a terminal would show it, at two widths, with few and many GPUs."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import numpy as np
import pynvml
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console
from tests.browser import needs_chromium, photograph
from tests.runtime.fake_nvml import FakeNvml
from tests.tools.fake_watch import GappyNvml, make_busy_gpus, play_watch

from myxtts.tools.charts import draw_sparkline
from myxtts.tools.monitor.screen import describe_in_a_line, draw_view, print_view, show_live, show_plain
from myxtts.tools.monitor.watch import Monitor


def capture(monitor: Monitor, width: int, height: int) -> Console:
    """What a terminal of this size shows of the last look."""
    assert monitor.last_view is not None
    console = Console(record=True, width=width, height=height, force_terminal=True, file=io.StringIO())
    console.print(draw_view(monitor.last_view, width, height))
    return console


def capture_lines(monitor: Monitor, width: int, height: int) -> list[str]:
    return capture(monitor, width, height).export_text().rstrip("\n").splitlines()


@pytest.mark.parametrize("num_gpus", [0, 1, 2, 8])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_view_fits_its_terminal_and_shows_every_gpu(tmp_path: Path, num_gpus: int, width: int, height: int) -> None:
    monitor = play_watch(tmp_path / "voice", FakeNvml(make_busy_gpus(num_gpus)), 40)
    lines = capture_lines(monitor, width, height)
    text = "\n".join(lines)
    assert all(len(line) <= width for line in lines)
    assert len(lines) <= height
    # Nothing is cut but a path that is too long, and of that the end stays.
    (run_line,) = [line for line in lines if line.startswith("Run ")]
    assert "/voice  running, step 800, epoch 3.90, loss 3.225" in run_line
    assert "…" not in text.replace("Run …", "")
    for part in ("CPU", "AU       99.0 %", "AU: no data wait", "wait      1.0 ms", "40.0 batches", "utt/s"):
        assert part in text
    for number in range(num_gpus):
        assert f"{97 - number} %" in text
        assert f"{20.1 - number:.1f}" in text
    assert ("No NVIDIA GPU: the NVIDIA driver finds no GPU." in lines) == (num_gpus == 0)
    assert "█" in text


def test_a_gpu_with_room_shows_all_its_numbers(tmp_path: Path) -> None:
    gpus = make_busy_gpus(1)
    gpus[0].throttle_reasons = pynvml.nvmlClocksEventReasonSwThermalSlowdown
    text = "\n".join(capture_lines(play_watch(tmp_path, FakeNvml(gpus), 3), 80, 24))
    for part in (
        "GPU 0 NVIDIA GeForce RTX 4090",
        "PCIe gen 4 x16",
        "util   97 %",
        "memory 20.1 of 24.0 GiB",
        "power 350 of 450 W",
        "heat 67 °C",
        "clock 2520 of 3105 MHz, memory 10501 MHz",
        "PCIe in 1.20 out 0.30 GB/s",
        "throttled: too hot (driver's limit)",
        f"processes {os.getpid()} ",
        "! throttling: GPU 0 is throttled: too hot (driver's limit).",
    ):
        assert part in text


def test_what_may_not_be_read_or_is_not_reported_is_shown_as_such(tmp_path: Path) -> None:
    gaps: dict[str, int | Exception] = {
        "nvmlDeviceGetComputeRunningProcesses": pynvml.NVML_ERROR_NO_PERMISSION,
        "nvmlDeviceGetClockInfo": pynvml.NVML_ERROR_NO_PERMISSION,
        "nvmlDeviceGetPowerUsage": pynvml.NVML_ERROR_NOT_SUPPORTED,
        "nvmlDeviceGetPcieThroughput": pynvml.NVML_ERROR_NOT_SUPPORTED,
        "nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_NOT_SUPPORTED,
    }
    one = "\n".join(capture_lines(play_watch(tmp_path / "one", GappyNvml(make_busy_gpus(1), gaps), 2), 80, 24))
    for part in ("processes denied", "clock denied", "power n/a", "memory n/a", "PCIe in and out n/a"):
        assert part in one
    assert "denied: this user may not read it; n/a: not reported by this GPU" in one
    many = capture_lines(play_watch(tmp_path / "many", GappyNvml(make_busy_gpus(8), gaps), 2), 80, 24)
    assert many[2].split() == ["0", "97", "%", "██", "n/a", "n/a", "67", "°C", "denied", "n/a", "denied"]


def test_lost_gpus_and_warnings_are_shown_in_few_lines(tmp_path: Path) -> None:
    gpus = make_busy_gpus(8)
    for gpu in gpus:
        gpu.used_memory_bytes = round(gpu.memory_bytes * 0.99)
    gpus[5].lost = True
    monitor = play_watch(tmp_path / "voice", FakeNvml(gpus), 12, wait_s=lambda step: 0.5 if step % 10 == 0 else 0.0)
    lines = capture_lines(monitor, 80, 20)
    assert len(lines) == 20
    assert "  5 lost: it no longer answers" in lines
    warnings = [line for line in lines if line.startswith("!")]
    assert warnings[0].startswith("! lost GPU: GPU 5 is lost")
    assert any("The same holds for GPU 1, 2, 3, 4, 6, 7." in line for line in lines)
    assert warnings[-1] == "! 2 more warnings"
    tall = "\n".join(capture_lines(monitor, 120, 100))
    assert "more warning" not in tall
    assert "repeat every 10 steps" in tall


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120, 200])
def test_any_width_is_survived(tmp_path: Path, width: int) -> None:
    monitor = play_watch(tmp_path / ("a long name " * 9), FakeNvml(make_busy_gpus(3)), 3)
    assert all(len(line) <= max(40, width) for line in capture_lines(monitor, max(40, width), 24))
    assert monitor.last_view is not None
    draw_view(monitor.last_view, width, 3)


def test_live_view_draws_at_each_look_and_leaves_the_screen_as_it_was(tmp_path: Path) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, height=24)
    monitor = play_watch(tmp_path, FakeNvml(make_busy_gpus(1)), 2)
    assert monitor.last_view is not None
    with show_live(console) as show:
        before = screen.getvalue().count("myxtts monitor")
        for _ in range(3):
            show(monitor.last_view)
    shown = screen.getvalue()
    assert shown.count("myxtts monitor") - before == 3
    assert "\x1b[?1049h" in shown
    assert shown.rstrip().endswith(("\x1b[?1049l\x1b[?25h", "\x1b[?25h\x1b[?1049l"))


def test_busy_time_of_the_gpu_is_its_utilisation(tmp_path: Path) -> None:
    monitor = play_watch(tmp_path / "voice", FakeNvml(make_busy_gpus(1)), 12, device_busy=0.42, wall_share=0.93)
    text = "\n".join(capture_lines(monitor, 120, 40))
    assert "AU       42.0 %" in text
    assert "AU: GPU busy, step 100.0 ms, 93 % of wall clock" in text
    assert monitor.last_view is not None
    assert "AU 42 % (GPU busy), wait" in describe_in_a_line(monitor.last_view)
    assert monitor.summarize()["run"]["device_busy"]["mean"] == pytest.approx(0.42)


def test_where_there_is_no_terminal_a_line_says_it(tmp_path: Path) -> None:
    gpus = make_busy_gpus(2)
    gpus[1].lost = True
    monitor = play_watch(tmp_path / "voice", FakeNvml(gpus), 2, wait_s=lambda _step: 0.1)
    assert monitor.last_view is not None
    line = describe_in_a_line(monitor.last_view)
    assert "GPU 0 97 %, 20.1 GiB; GPU 1 lost;" in line
    assert "AU 50 % (no data wait), wait 100.0 ms, buffer 40.0, 79.9 utterances/s" in line
    assert line.endswith("warnings: lost GPU, starvation")
    file = io.StringIO()
    console = Console(file=file, width=80)
    show = show_plain(console)
    show(monitor.last_view)
    show(monitor.last_view)
    assert file.getvalue() == f"{line}\n"
    print_view(console, monitor.last_view)
    assert "\x1b" not in file.getvalue()
    assert "Ctrl-C" not in file.getvalue()


@given(st.lists(st.one_of(st.floats(), st.just(float("nan"))), max_size=50), st.sampled_from([None, 0.0, 100.0]))
@example([sys.float_info.min, -1.0], None)
def test_a_sparkline_has_a_character_for_each_value(values: list[float], top: float | None) -> None:
    assert len(draw_sparkline(values, top)) == len(values)


def test_a_sparkline_rises_with_its_values() -> None:
    assert draw_sparkline([0, 12.5, 25, 50, 99, 100, 500, float("nan"), -1], 100) == "▁▂▃▅███ ▁"
    assert draw_sparkline([0, 2, 4], None) == "▁▅█"
    assert draw_sparkline([0, 2, 4], None, is_ascii=True) == "_=#"


@needs_chromium
def test_captures_are_pictures_of_a_dark_terminal_with_text_and_histories(tmp_path: Path) -> None:
    page = tmp_path / "captures.html"
    drawings = []
    for num_gpus, width in ((8, 80), (2, 120)):
        monitor = play_watch(tmp_path / f"run {width}", FakeNvml(make_busy_gpus(num_gpus)), 40)
        drawings.append(capture(monitor, width, 24).export_svg(title="myxtts monitor", unique_id=f"w{width}"))
    page.write_text(f"<!DOCTYPE html><meta charset='utf-8'><body style='margin:0'>{''.join(drawings)}")
    pixels = photograph(page, tmp_path, 1200, 1400)
    for terminal in np.array_split(pixels[:1200], 2):
        assert (terminal.max(axis=-1) < 0.3).mean() > 0.3
        assert (terminal.min(axis=-1) > 0.7).mean() > 0.005
        assert (terminal[..., 2] - terminal[..., 0] > 0.15).mean() > 0.005
