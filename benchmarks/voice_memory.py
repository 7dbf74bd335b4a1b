"""Whether a training's memory stays flat over thousands of steps with validation and samples: a very small model."""

from __future__ import annotations

from statistics import median
from typing import Any

import psutil

from benchmarks.voice_data import make_config

_NUM_STEPS, _EARLY_STEP = 2000, 200
_STEPS_PER_ROUND = 40
_NUM_NEIGHBOURS = 20
_SMALL: dict[str, Any] = {
    "batch_size": 4,
    "reference_s": 1.0,
    "text_width": 16,
    "text_layers": 1,
    "decoder_width": 16,
    "decoder_layers": 1,
    "attention_heads": 2,
    "reference_width": 8,
    "reference_layers": 1,
    "num_latents": 2,
    "enable_xla_compilation": False,
}


class MemoryReader:
    """An observer that reads the resident memory after every step, in megabytes."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self.megabytes: list[float] = []
        self.num_rounds = 0

    def on_step(self, view: Any, record: Any) -> None:
        self.megabytes.append(self._process.memory_info().rss / 2**20)

    def on_checkpoint(self, view: Any) -> None:
        self.num_rounds += 1

    def on_end(self, view: Any, result: Any) -> None:
        pass


def measure_growth(folder: str) -> dict[str, float]:
    """Megabytes around step 200 and at the end, each the median over half a round."""
    from myxtts.training.trainer import Trainer

    config = make_config(
        folder, run_dir=f"{folder}/watched", steps=_NUM_STEPS, checkpoint_steps=_STEPS_PER_ROUND, **_SMALL
    )
    reader = MemoryReader()
    Trainer(config, say=lambda _line: None, make_observers=lambda: [reader]).fit()
    early = reader.megabytes[_EARLY_STEP - _NUM_NEIGHBOURS : _EARLY_STEP]
    late = reader.megabytes[-_NUM_NEIGHBOURS:]
    return {"early": median(early), "late": median(late), "num_rounds": float(reader.num_rounds)}
