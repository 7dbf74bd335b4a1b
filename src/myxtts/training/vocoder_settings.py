"""Settings of a training as a vocoder takes them: what was not asked for gets the value that is good for a vocoder."""

from __future__ import annotations

from typing import Any

from myxtts.config.catalogue import FIELDS
from myxtts.config.schema import XTTSConfig
from myxtts.types import Say

VOCODER_SPEC_FILE_NAME = "vocoder_spec.json"
NUM_WARM_STEPS = 10_000
"""Steps before the critics join: sooner they judge noise, and a CPU has no time for them."""
_USUAL: dict[str, Any] = {
    # Critics make it sound better than distances of spectrograms can tell.
    "training.bundle_weights": "latest",
    "training.learning_rate": 1e-3,
    "training.warmup_steps": 200,
    "training.clip_norm": 10.0,
    "training.gradient_accumulation_steps": 1,
}
_OF_THE_VOICE = (
    *(key for key in FIELDS if key.startswith("model.")),
    "training.crop_frames",
    "training.text_patience_steps",
    "training.voice_stretch",
    "training.durations",
)
"""What only the voice model knows: another value must not keep a vocoder from going on."""
_RUN_NAME = "vocoder"
_NUM_SEGMENTS = {"tiny": 8}
_USUAL_NUM_SEGMENTS = 16


def resolve_vocoder_settings(config: XTTSConfig, say: Say) -> XTTSConfig:
    """Defaults and presets are those of the voice model; whatever the user chose stays."""
    update: dict[str, Any] = {key: value for key, value in _USUAL.items() if _is_preset(config, key)}
    if config.training.run_dir is None and _is_preset(config, "training.run_name"):
        update["training.run_name"] = _RUN_NAME
    num_segments = _NUM_SEGMENTS.get(config.model_size, _USUAL_NUM_SEGMENTS)
    if config.data.batch_size == "auto":
        say(f"Batch size: {num_segments} segments (batch_size is auto); fewer at a time where memory does not suffice.")
    if config.data.batch_size == "auto" or _is_preset(config, "data.batch_size"):
        update["data.batch_size"] = num_segments
    chosen = [key for key in _OF_THE_VOICE if not _is_preset(config, key)]
    if chosen:
        say(f"A vocoder has no use for {', '.join(chosen)}: they shape the voice model.")
    update |= {key: FIELDS[key].get_default() for key in _OF_THE_VOICE}
    return config.model_copy(update=update)


def _is_preset(config: XTTSConfig, key: str) -> bool:
    return config.origins.get(key, "default").startswith(("default", "preset"))
