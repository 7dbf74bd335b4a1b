"""Whether an exported model speaks faster than with TensorFlow: real-time factor, and start to first sound.

Both engines take turns, and a figure is the ratio of their medians.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.alone import QuietMoments
from benchmarks.harness import Measurement

_NUM_TURNS, _NUM_STARTS = 7, 3
_PATIENCE_S = 120.0
_HEADER_BYTES = 4096
"""More than the header of a stream: what lies behind it is sound."""
_FIRST_WORD = "Good morning."
_TEXT = "The path went on between the hills until the evening came. Nobody had walked there for many years."


def measure_export(run: Path) -> list[Measurement]:
    with tempfile.TemporaryDirectory() as name:
        exported = export(run, Path(name) / "exported")
        original_rtf, exported_rtf = compare_factors(run, exported)
        original_s, exported_s = compare_starts(run, exported)
    return [
        Measurement(
            "real-time factor on onnxruntime, relative to TensorFlow",
            exported_rtf / original_rtf,
            "",
            "at most",
            0.8,
            f"{exported_rtf:.3f} and {original_rtf:.3f}",
        ),
        Measurement(
            "process start to first sound of an exported model, relative to TensorFlow",
            exported_s / original_s,
            "",
            "at most",
            0.2,
            f"{exported_s:.2f} s and {original_s:.2f} s",
        ),
        Measurement("process start to first sound of an exported model", exported_s, "s", "at most", 1.5),
    ]


def export(run: Path, out: Path) -> Path:
    from myxtts.export.folder import export_onnx
    from myxtts.synthesis.loaded_bundle import choose_vocoder, load_bundle

    loaded, vocoder = choose_vocoder(load_bundle(run), "auto")
    export_onnx(loaded, vocoder, out, "float32", lambda _line: None)
    return out


def compare_factors(*folders: Path) -> list[float]:
    """Seconds of computing by second of speech, of each folder's engine."""
    from myxtts.synthesis.synthesizer import Synthesizer

    speakers, quiet = [Synthesizer.load(folder) for folder in folders], QuietMoments(_PATIENCE_S)
    factors: list[list[float]] = [[] for _ in folders]
    for turn in range(_NUM_TURNS + 1):
        for speaker, found in zip(speakers, factors, strict=True):
            quiet.wait()
            started = time.perf_counter()
            wave = speaker.say(_TEXT, voice=speaker.voices()[0], language="en", seed=1)
            if turn:
                found.append((time.perf_counter() - started) / wave.duration_s)
    return [median(found) for found in factors]


def compare_starts(*folders: Path) -> list[float]:
    """Seconds from the start of a process until sound comes out of it."""
    from myxtts.synthesis.loaded_bundle import load_bundle

    times: list[list[float]] = [[] for _ in folders]
    quiet = QuietMoments(_PATIENCE_S)
    for _ in range(_NUM_STARTS):
        for folder, found in zip(folders, times, strict=True):
            voice = load_bundle(folder).list_voices()[0]
            asked = ("--model", str(folder), "--voice", voice, "--language", "en", "--out", "-")
            quiet.wait()
            started = time.perf_counter()
            command = [sys.executable, "-m", "myxtts", "synth", _FIRST_WORD, *asked]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
                sound = process.stdout.read(_HEADER_BYTES) if process.stdout else b""
                found.append(time.perf_counter() - started)
                process.communicate()
            if len(sound) < _HEADER_BYTES:
                raise RuntimeError(f"the model in {folder} says nothing")
    return [median(found) for found in times]
