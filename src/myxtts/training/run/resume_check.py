"""Resuming with another configuration: each setting that differs is either harmless or would spoil the run.

Harmful is what changes the shapes of weights, the features, the order of the utterances or the loss: the run would go
on as something else than it was begun as. Everything else may change between one session and the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from myxtts.config.catalogue import FIELDS, list_settings
from myxtts.config.schema import XTTSConfig
from myxtts.config.values import Scalar, show_value
from myxtts.errors import ConfigError

_SHAPES = "the weights would have other shapes"
_FEATURES = "the model would hear other features than it learnt from"
_TEXT = "the same text would give other ids"
_CHOICE = "other utterances would be trained on, in another order"
_ORDER = "batches would hold other utterances, so that the position in the corpus means another place"
_LOSS = "the loss would measure something else"
_SCORE = "scores of the validation could not be compared with those before"

HARMFUL: Mapping[str, str] = {
    "data.val_data": _SCORE,
    "data.corpus_format": _CHOICE,
    "data.language": _TEXT,
    "data.val_share": _CHOICE,
    "data.split_by": _CHOICE,
    "data.text_frontend": _TEXT,
    "data.lexicon": _TEXT,
    "data.min_duration_s": _CHOICE,
    "data.max_duration_s": _CHOICE,
    "data.max_source_rate_hz": _CHOICE,
    "data.max_channels": _CHOICE,
    "data.silence_db": _CHOICE,
    "data.max_clipped_share": _CHOICE,
    "data.trim_silence": _FEATURES,
    "data.trim_db": _FEATURES,
    "data.loudness": _FEATURES,
    "data.loudness_target": _FEATURES,
    "data.sample_rate": _FEATURES,
    "data.n_fft": _FEATURES,
    "data.hop_length": _FEATURES,
    "data.win_length": _FEATURES,
    "data.n_mels": _SHAPES,
    "data.fmin": _FEATURES,
    "data.fmax": _FEATURES,
    "data.log_floor": _FEATURES,
    "data.max_mel_frames": _CHOICE,
    "data.reference_s": _FEATURES,
    "data.preprocessing_mode": _ORDER,
    "data.mel_dtype": _FEATURES,
    "data.batch_size": _ORDER,
    "data.frame_budget": _ORDER,
    "data.num_shapes": _ORDER,
    "model.block": _SHAPES,
    "model.text_width": _SHAPES,
    "model.text_layers": _SHAPES,
    "model.text_context": _SHAPES,
    "model.decoder_width": _SHAPES,
    "model.decoder_layers": _SHAPES,
    "model.attention_heads": "attention would be cut into other heads",
    "model.reference_width": _SHAPES,
    "model.reference_layers": _SHAPES,
    "model.num_latents": _SHAPES,
    "model.dropout": _LOSS,
    "model.guidance_dropout": _LOSS,
    "training.seed": "all randomness, the order of the utterances among it, would be another",
    "training.gradient_accumulation_steps": _ORDER,
    "training.ema_decay": "turning the average of the weights on or off leaves it without its past",
}

_PRESET = "it only chooses presets, and what they set is compared by itself"
_PLACE = "the content found there is compared, not the place"
_SPEED = "it changes how fast batches come, not what is in them"
_DEVICE = "a step gives the same weights wherever it is computed, up to rounding"
_RATE = "it takes effect from this step on"
_STOP = "it only says when to stop or when to give up"

HARMLESS: Mapping[str, str] = {
    "model_size": _PRESET,
    "optimization_level": _PRESET,
    "gpu_card": _PRESET,
    "data.train_data": _PLACE,
    "data.cache_dir": _PLACE,
    "data.max_bad_share": _STOP,
    "data.store_pcm": "stored sound is not trained on",
    "data.cache_verification": "it says how much is checked, not what is read",
    "data.auto_rebuild_token_cache": "a store that was rebuilt differently is noticed by its fingerprint",
    "data.auto_rebuild_mel_cache": "a store that was rebuilt differently is noticed by its fingerprint",
    "data.num_workers": _SPEED,
    "data.buffer_size": _SPEED,
    "data.prefetch_buffer_size": _SPEED,
    "data.ram_budget_gb": _SPEED,
    "data.use_tf_native_loading": "both loaders give the same features, up to rounding",
    "data.prefetch_to_gpu": _SPEED,
    "data.enhanced_gpu_prefetch": _SPEED,
    "data.optimize_cpu_gpu_overlap": _SPEED,
    "data.auto_tune_performance": _SPEED,
    "data.data_service": _SPEED,
    "data.data_gpu": _DEVICE,
    "data.model_gpu": _DEVICE,
    "data.model_start_delay": _SPEED,
    "training.run_name": _PLACE,
    "training.run_dir": _PLACE,
    "training.checkpoint_steps": "it only says when to save",
    "training.keep_checkpoints": "it only says how much is kept",
    "training.bundle_weights": "it only says which of the saved weights speak",
    "training.log_steps": "it only says how often numbers are written down",
    "training.sample_steps": "samples are heard, not trained on",
    "training.early_stopping": _STOP,
    "training.text_patience_steps": "a text side that rests goes on resting, and another is judged from this step on",
    "training.steps": "training ends at another step, and the learning rate falls towards that step",
    "training.epochs": "training ends at another step, and the learning rate falls towards that step",
    "training.minutes": "training ends at another step, and the learning rate falls towards that step",
    "training.durations": _RATE,
    "training.multi_gpu": _DEVICE,
    "training.visible_gpus": _DEVICE,
    "training.enable_graph_mode": _DEVICE,
    "training.enable_xla_compilation": _DEVICE,
    "training.enable_eager_debug": _DEVICE,
    "training.mixed_precision": "weights stay in 32 bits, whatever the step is computed in",
    "training.crop_frames": _RATE,
    "training.voice_stretch": _RATE,
    "training.learning_rate": _RATE,
    "training.warmup_steps": _RATE,
    "training.weight_decay": _RATE,
    "training.clip_norm": _RATE,
}

_OTHER_CONTENT = f"its content has changed: {_CHOICE}"
_CHANGED = {"durations": "utterances would be aligned in another way"}
_UNKNOWN = "nobody has said yet whether it may change within a run"


@dataclass(frozen=True)
class Difference:
    """A setting, or a fingerprint, that is not what it was when the run was begun."""

    key: str
    old: Scalar
    new: Scalar
    is_harmful: bool
    reason: str

    def describe(self) -> str:
        return f"{self.key}: {show_value(self.old)} → {show_value(self.new)} ({self.reason})"


def compare(old: XTTSConfig, new: XTTSConfig) -> list[Difference]:
    """Every setting that differs, in the order of the schema."""
    before = {setting.key: setting.value for setting in list_settings(old)}
    after = {setting.key: setting.value for setting in list_settings(new)}
    # Text compares a true with a 1 as what they are: different.
    changed = [key for key in FIELDS if repr(before[key]) != repr(after[key])]
    return [_classify(key, before[key], after[key]) for key in changed]


def compare_fingerprints(old: Mapping[str, str], new: Mapping[str, str]) -> list[Difference]:
    """What is not as it was of the things a run depends on: the corpus, the store."""
    return [
        Difference(f"the {name}", _shorten(old[name]), _shorten(new[name]), True, _CHANGED.get(name, _OTHER_CONTENT))
        for name in sorted(set(old) & set(new))
        if old[name] != new[name]
    ]


def accept_or_refuse(differences: Sequence[Difference], *, override: bool) -> list[str]:
    """What to tell the user about the differences. Raises ConfigError if one is harmful and not overridden."""
    harmful = [difference for difference in differences if difference.is_harmful]
    if harmful and not override:
        listing = "".join(f"\n  {difference.describe()}" for difference in harmful)
        raise ConfigError(
            f"The run was begun with other settings, and cannot go on with these:{listing}\n",
            next_step="Set them back, choose another training.run_name, or add --override to go on all the same.",
            details={"differences": [[d.key, d.old, d.new, d.reason] for d in harmful]},
        )
    return [
        f"{'Overridden' if difference.is_harmful else 'Changed since the run was begun'}: {difference.describe()}."
        for difference in differences
    ]


def _classify(key: str, old: Scalar, new: Scalar) -> Difference:
    if key == "training.ema_decay" and old and new:
        return Difference(key, old, new, False, _RATE)
    if key in HARMLESS:
        return Difference(key, old, new, False, HARMLESS[key])
    return Difference(key, old, new, True, HARMFUL.get(key, _UNKNOWN))


def _shorten(fingerprint: str) -> str:
    return fingerprint if len(fingerprint) <= 12 else f"{fingerprint[:12]}…"
