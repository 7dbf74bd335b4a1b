"""Trainings of a vocoder for processes that have TensorFlow loaded already and fork for each of them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.training.trainer_programs import KillAfter

from myxtts.config.schema import XTTSConfig
from myxtts.models.vocoder_bundle import find_vocoder
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.training.loop import TrainingLoop
from myxtts.training.task import PreparedTask
from myxtts.training.trainer import Trainer
from myxtts.training.vocoder.validation import VocoderValidation

__all__ = ["TrainingLoop", "VocoderValidation", "say", "train"]


def train(
    settings: dict[str, Any],
    kill_after: int | None = None,
    is_watched: bool = False,
    part: Any = "vocoder",
    **options: Any,
) -> dict[str, Any]:
    """Trains; gives the result, and what the user was told."""
    lines: list[str] = []
    config = XTTSConfig(**settings)
    observers: list[Any] = [KillAfter(kill_after)] if kill_after is not None else []
    if not is_watched:
        PreparedTask.make_callbacks = lambda _task: []  # type: ignore[method-assign, assignment]
    trainer = Trainer(config, part=part, say=lines.append, make_observers=lambda: observers, **options)
    result = asdict(trainer.fit())
    return {"lines": lines, **{name: str(v) if isinstance(v, Path) else v for name, v in result.items()}}


def say(model: str, vocoder: str) -> dict[str, Any]:
    """What a model says through a vocoder."""
    speaker = Synthesizer.load(model, vocoder=vocoder, warn=lambda _: None)
    mel_TM = speaker.engine.make_mel(*_plan(speaker))
    samples = speaker.engine.make_sound(mel_TM, 0)
    hop_length = speaker.loaded.mel.hop_length
    has_vocoder = speaker.loaded.has_neural_vocoder
    return {
        "num_samples": len(samples),
        "expected": len(mel_TM) * hop_length,
        "peak": float(abs(samples).max()),
        "is_neural": has_vocoder,
        "step": find_vocoder(Path(vocoder if vocoder != "auto" else model)).notes.get("step"),
    }


def _plan(speaker: Synthesizer) -> tuple[Any, ...]:
    from myxtts.synthesis.options import SpeechOptions

    (piece,) = speaker.loaded.plan("Words of a clip.", "en")
    voice = speaker.resolve(speaker.loaded.find_voice("anna"))
    return piece.ids, "en", voice, SpeechOptions(num_steps=1)
