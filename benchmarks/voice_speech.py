"""How fast a `tiny` model speaks, and when the first sentence of a long text is out."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.voice_data import make_config

_NUM_RUNS = 5
SPOKEN = " ".join(
    (
        "The path went on between the hills until the evening came.",
        "Nobody had walked there for many years.",
        "At the end of it stood a house with a red door and two windows.",
        "A lamp was burning behind one of them, and somebody was singing.",
        "We knocked, waited for a while, and knocked again.",
        "Then the song was over and the door opened slowly.",
    )
)


def measure_speech(folder: str) -> dict[str, float]:
    """Seconds of computing by seconds of speech; sentences begun, and the share of all time, when the first is out."""
    from myxtts.synthesis.synthesizer import Synthesizer

    synthesizer = Synthesizer.load(train_briefly(folder))
    voice = synthesizer.encode_voice(next(iter(sorted((Path(folder) / "recordings" / "wavs").glob("*.wav")))))
    num_begun = _count_sentences(synthesizer)
    factors, shares, begun = [], [], []
    spoken_s = num_sentences = 0.0
    for run in range(_NUM_RUNS + 1):
        num_begun[0] = 0
        started = time.perf_counter()
        parts, arrivals_s = [], []
        for part in synthesizer.stream(SPOKEN, voice=voice, language="en", seed=1, num_steps=8):
            arrivals_s.append(time.perf_counter() - started)
            parts.append(len(part.samples))
            if len(parts) == 1:
                begun.append(num_begun[0])
        spoken_s, num_sentences = sum(parts) / synthesizer.rate, float(len(parts))
        if run:
            factors.append(arrivals_s[-1] / spoken_s)
            shares.append(arrivals_s[0] / arrivals_s[-1])
    return {
        "real_time_factor": median(factors),
        "first_share": median(shares),
        "num_begun": float(max(begun)),
        "spoken_s": spoken_s,
        "num_sentences": num_sentences,
    }


def train_briefly(folder: str) -> Path:
    """A run whose model says nothing yet, but takes as long for it: lengths are calibrated with every bundle."""
    from myxtts.training.trainer import Trainer

    config = make_config(folder, run_dir=f"{folder}/spoken", steps=2, enable_xla_compilation=False)
    return Trainer(config, say=lambda _line: None).fit().run_path


def _count_sentences(synthesizer: Any) -> list[int]:
    """A number that rises when the spectrogram of another sentence is begun."""
    counted, make_mel = [0], synthesizer.engine.make_mel

    def make_counted(*arguments: Any) -> Any:
        counted[0] += 1
        return make_mel(*arguments)

    synthesizer.engine.make_mel = make_counted
    return counted
