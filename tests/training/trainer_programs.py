"""A corpus small enough to train on in seconds, and trainings of it as programs of their own."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import soundfile
from tests.conftest import RATE_HZ, synthesize_clip

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.store.precompute import precompute
from myxtts.training.callbacks import Record, TrainResult

if TYPE_CHECKING:
    from myxtts.training.loop import TrainingLoop

NUM_CLIPS = 24
TINY: dict[str, Any] = {
    "text_frontend": "characters",
    "max_bad_share": 0.5,
    "val_share": 0.1,
    "batch_size": 4,
    "num_shapes": 2,
    "n_mels": 8,
    "reference_s": 0.5,
    "text_width": 16,
    "text_layers": 1,
    "decoder_width": 16,
    "decoder_layers": 1,
    "attention_heads": 2,
    "reference_width": 8,
    "reference_layers": 1,
    "num_latents": 2,
    "warmup_steps": 2,
    "log_steps": 1,
    "enable_xla_compilation": False,
}
COARSE = {"n_fft": 512, "win_length": 512, "hop_length": 512}
"""Half as many frames as usual, for eager steps, which search an alignment frame by frame."""


def write_recordings(folder: Path, speakers: tuple[str, ...] = ("anna", "ben")) -> Path:
    """Clips of different lengths with a manifest."""
    (folder / "wavs").mkdir(parents=True)
    rows = ["id|audio|text|speaker|language\n"]
    for number in range(NUM_CLIPS):
        clip = synthesize_clip(0.6 + 0.02 * number, seed=number)
        soundfile.write(folder / "wavs" / f"clip{number:02}.wav", clip, RATE_HZ)
        rows.append(f"clip{number:02}|wavs/clip{number:02}.wav|Clip {chr(97 + number)}.|{speakers[number % 2]}|en\n")
    (folder / "metadata.csv").write_text("".join(rows), encoding="utf-8")
    return folder


def make_data(folder: Path, **settings: Any) -> XTTSConfig:
    """A corpus and its store in `folder`, and a configuration to train on them."""
    config = XTTSConfig(**{**TINY, "train_data": folder / "corpus", "cache_dir": folder / "store", **settings})
    prepare_corpus([Recordings(write_recordings(folder / "recordings"), "manifest")], folder / "corpus", config.data)
    precompute(open_corpus(folder / "corpus"), folder / "store", config.data, num_threads=1)
    return config


class KillAfter:
    """A callback that kills its own process, as a power cut would, once a step is done."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_step(self, loop: TrainingLoop, record: Record | None) -> None:
        if loop.step >= self._step:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_checkpoint(self, loop: TrainingLoop) -> None:
        pass

    def on_end(self, loop: TrainingLoop, result: TrainResult) -> None:
        pass


class ScoreBySteps:
    """A callback that validates by looking up the score of a step, and notes that it did."""

    def __init__(self, scores: Mapping[str, float]) -> None:
        self._scores = scores

    def on_step(self, loop: TrainingLoop, record: Record | None) -> None:
        pass

    def on_checkpoint(self, loop: TrainingLoop) -> None:
        score = self._scores.get(str(loop.step), 100.0)
        loop.run.metrics.append({"step": loop.step, "validation": {"score": score}})
        loop.note_score(score)

    def on_end(self, loop: TrainingLoop, result: TrainResult) -> None:
        pass


class FreezeAt:
    """A callback that freezes the text side from the checkpoint of a step on."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_step(self, loop: TrainingLoop, record: Record | None) -> None:
        pass

    def on_checkpoint(self, loop: TrainingLoop) -> None:
        if loop.step >= self._step:
            loop.freeze_text("The test says so.")

    def on_end(self, loop: TrainingLoop, result: TrainResult) -> None:
        pass


def train(
    config_file: str,
    settings: dict[str, Any],
    kill_after: int | None = None,
    scores: Mapping[str, float] | None = None,
    freeze_at: int | None = None,
    is_validated: bool = False,
    overhear: Callable[[str], None] = lambda _line: None,
    heard_file: str = "",
    **options: Any,
) -> dict[str, Any]:
    """Trains in this process; gives the result, and what the user was told."""
    from myxtts.training.trainer import Trainer

    config = XTTSConfig.load(config_file, **settings)
    if not is_validated:
        leave_out_costly_parts(is_graph=config.training.enable_graph_mode)
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        overhear(line)
        if heard_file:
            Path(heard_file).write_text("\n".join(lines), encoding="utf-8")

    observers: list[Any] = [] if scores is None else [ScoreBySteps(scores)]
    observers += [] if freeze_at is None else [FreezeAt(freeze_at)]
    observers += [] if kill_after is None else [KillAfter(kill_after)]
    if observers:
        options["make_observers"] = lambda: observers
    result = Trainer(config, say=say, **options).fit()
    return {"step": result.step, "losses": result.losses, "lines": lines, "reason": result.reason}


def leave_out_costly_parts(is_graph: bool = False) -> None:
    """Validation, samples and the calibration of a bundle take longer than such a training itself."""
    import tensorflow as tf

    from myxtts.models.xtts import XTTS
    from myxtts.training.task import PreparedTask

    PreparedTask.make_callbacks = lambda _task: []  # type: ignore[method-assign, assignment]
    # A bundle is calibrated by speech of one Euler step, and without a graph that would be traced for two calls.
    XTTS.decode.__kwdefaults__ = {**(XTTS.decode.__kwdefaults__ or {}), "num_steps": 1}
    if not is_graph:
        tf.config.run_functions_eagerly(True)


def main() -> None:
    """`python -m tests.training.trainer_programs CONFIG SETTINGS OPTIONS`, the last two as JSON."""
    config_file, settings, options = sys.argv[1:]
    print(json.dumps(train(config_file, json.loads(settings), **json.loads(options))))


if __name__ == "__main__":
    main()
