"""How fast recordings are checked, and whether memory stays flat as their number grows."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import soundfile

from benchmarks.harness import Measurement
from myxtts.config.schema import DataConfig
from myxtts.corpus.audio import AudioLimits, inspect_audio
from myxtts.corpus.demo import make_demo_corpus
from myxtts.runtime.timing import time_calls

_RATE_HZ = 22050

# Runs in a process of its own, so that the peak is that of this corpus alone.
_PREPARE_AND_REPORT_PEAK = """
import resource, sys
from pathlib import Path
from myxtts.config.schema import DataConfig
from myxtts.corpus.prepare import Recordings, prepare_corpus
folder = Path(sys.argv[1])
data = DataConfig(text_frontend="characters")
summary = prepare_corpus([Recordings(folder)], folder / "out", data, headers_only=True)
assert summary.num_rejected == 0, summary.reasons
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, summary.num_utterances / summary.elapsed_s)
"""


def measure_corpus() -> list[Measurement]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [*_measure_headers(folder), *_measure_memory(folder), *_measure_demo(folder)]


def _write_clips(folder: Path, num_clips: int) -> None:
    """Clips of half a second; beyond the first hundred they are links to those, each with its own name and line."""
    (folder / "wavs").mkdir(parents=True)
    generator = np.random.default_rng(0)
    lines = []
    for number in range(num_clips):
        path = folder / "wavs" / f"clip{number:06}.wav"
        if number < 100:
            soundfile.write(path, generator.normal(0, 0.1, _RATE_HZ), _RATE_HZ)
        else:
            path.hardlink_to(folder / "wavs" / f"clip{number % 100:06}.wav")
        lines.append(f"clip{number:06}|some words of number {number}\n")
    (folder / "metadata.csv").write_text("".join(lines), encoding="utf-8")


def _measure_headers(folder: Path) -> list[Measurement]:
    _write_clips(folder / "headers", 2000)
    paths = [str(path) for path in sorted((folder / "headers" / "wavs").iterdir())]
    limits = AudioLimits.from_config(DataConfig())
    seconds = time_calls(lambda: [inspect_audio(path, limits, headers_only=True) for path in paths], 3)
    return [Measurement("header checks, one thread", len(paths) / seconds, "files/s", "at least", 3000)]


def _measure_memory(folder: Path) -> list[Measurement]:
    peaks, rates = {}, {}
    for num_clips in (2_000, 20_000):
        corpus = folder / f"memory{num_clips}"
        _write_clips(corpus, num_clips)
        command = [sys.executable, "-c", _PREPARE_AND_REPORT_PEAK, str(corpus)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        peaks[num_clips], rates[num_clips] = float(printed[0]), float(printed[1])
    growth = peaks[20_000] / peaks[2_000]
    note = f"{peaks[2_000]:.0f} and {peaks[20_000]:.0f} MB"
    return [
        Measurement("peak memory of prepare, 20,000 against 2,000 files", growth, "x", "at most", 1.25, note),
        Measurement("prepare --quick, everything included", rates[20_000], "files/s", "at least", 1000),
    ]


def _measure_demo(folder: Path) -> list[Measurement]:
    seconds = time_calls(lambda: make_demo_corpus(folder / "demo", minutes=60.0), 1)
    return [Measurement("one hour of demo speech", seconds, "s", "at most", 45)]
