"""Training data and settings of the vocoder. Batches are short segments of stored mels with their waveforms.

Opening it finds every fault of data and settings without loading TensorFlow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.config.catalogue import FIELDS, META, list_settings
from myxtts.config.schema import XTTSConfig
from myxtts.errors import ConfigError, DataError
from myxtts.features.definition import MelDefinition
from myxtts.pipeline.splits import open_store
from myxtts.pipeline.tune import measure_ram_budget
from myxtts.runtime.hardware import Hardware
from myxtts.runtime.plan import Plan
from myxtts.store.reader import FeatureStore
from myxtts.training.vocoder.audio import SegmentSource, SoundReader, open_sound_of
from myxtts.training.voice.data import describe_data, fingerprint_utterances, require_val_data
from myxtts.types import Say, Split

VOCODER_SPEC_FILE_NAME = "vocoder_spec.json"
NUM_WARM_STEPS = 10_000
"""Steps before the discriminators join: earlier they would judge mere noise, and on CPUs they cost too much."""
_USUAL: dict[str, Any] = {
    # Not `best`: spectral distances do not measure how much discriminators improve the sound.
    "training.bundle_weights": "latest",
    "training.learning_rate": 1e-3,
    "training.warmup_steps": 200,
    "training.clip_norm": 10.0,
    "training.gradient_accumulation_steps": 1,
}
"""Defaults of a vocoder where the user has not chosen a value; those of the schema are for the voice model."""
_OF_THE_VOICE = tuple(key for key, meta in META.items() if meta.scope == "voice")
"""Settings of the voice model alone: another value must not keep a vocoder run from being resumed."""
USUAL_RUN_NAME = "vocoder"
_NUM_SEGMENTS = {"tiny": 8}
_USUAL_NUM_SEGMENTS = 16
"""Segments of a batch, as in Vocos and HiFi-GAN; tiny models are for CPUs and take half as many."""
USUAL_FRAMES = 64
"""Frames of a segment: 16,384 samples with a hop of 256."""
_LONGEST_TRANSFORM = 2048
"""Longest FFT of the discriminators; the losses use twice that of the mel spectrogram."""


def resolve_vocoder_settings(config: XTTSConfig, say: Say) -> XTTSConfig:
    """Replaces defaults and presets, which are for the voice model, by those of a vocoder; user choices stay.

    Settings of the voice model alone are reset to their defaults.
    """
    update: dict[str, Any] = {key: value for key, value in _USUAL.items() if _is_preset(config, key)}
    if config.training.run_dir is None and _is_preset(config, "training.run_name"):
        update["training.run_name"] = USUAL_RUN_NAME
    num_segments = _NUM_SEGMENTS.get(config.model_size, _USUAL_NUM_SEGMENTS)
    if config.data.batch_size == "auto":
        say(f"Batch size: {num_segments} segments (batch_size is auto); fewer at a time where memory does not suffice.")
    if config.data.batch_size == "auto" or _is_preset(config, "data.batch_size"):
        update["data.batch_size"] = num_segments
    present = {setting.key: setting.value for setting in list_settings(config)}
    defaults = {key: FIELDS[key].get_default() for key in _OF_THE_VOICE}
    chosen = [key for key, value in defaults.items() if not _is_preset(config, key) and present[key] != value]
    if chosen:
        say(f"No effect on a vocoder: {', '.join(chosen)} (settings of the voice model).")
    return config.model_copy(update=update | defaults)


def _is_preset(config: XTTSConfig, key: str) -> bool:
    """Whether a value comes from a default or a preset, not from the user."""
    return config.origins.get(key, "default").startswith(("default", "preset"))


@dataclass(frozen=True)
class VocoderData:
    """The training split, cut into random segments of `num_frames`."""

    store: FeatureStore
    rows: NDArray[np.int64]
    sound: SoundReader
    source: SegmentSource
    num_segments: int
    num_frames: int

    @property
    def mel(self) -> MelDefinition:
        return self.store.settings.mel

    @property
    def num_batches_per_epoch(self) -> int:
        return self.source.num_batches_per_epoch

    def describe(self) -> str:
        return describe_data(self.store, self.rows, f"the feature cache {self.store.folder}")

    def fingerprint(self) -> dict[str, str]:
        """Fingerprint of the corpus, compared by --resume."""
        return {"corpus": fingerprint_utterances(self.store)}


def open_vocoder_data(config: XTTSConfig, plan: Plan, hardware: Hardware) -> VocoderData:
    """Opens the training split. Raises DataError or ConfigError for anything that prevents a training."""
    if config.data.preprocessing_mode != "precompute":
        raise ConfigError(
            "A vocoder is trained from a feature cache, but preprocessing_mode is on_the_fly.",
            next_step="Leave out --preprocessing-mode: missing features are computed first.",
        )
    num_segments = config.data.batch_size
    assert isinstance(num_segments, int), "batch_size was not resolved"
    num_segments = -(-num_segments // plan.num_replicas) * plan.num_replicas
    store, rows, sound = open_audio_split(config, "train", hardware)
    require_val_data(config)
    num_frames = count_segment_frames(store.settings.mel)
    source = SegmentSource(
        store, rows, sound, num_segments=num_segments, num_frames=num_frames, seed=config.training.seed
    )
    return VocoderData(store, rows, sound, source, num_segments, num_frames)


def open_audio_split(
    config: XTTSConfig, split: Split, hardware: Hardware
) -> tuple[FeatureStore, NDArray[np.int64], SoundReader]:
    """Opens the store of a split: its rows within `max_mel_frames`, and their waveforms."""
    store = open_store(config, split)
    rows = store.rows_of_split(split)
    if config.data.max_mel_frames is not None:
        rows = rows[store.columns["source_frames"][rows] <= config.data.max_mel_frames]
    if len(rows) == 0:
        raise DataError(
            f"The split {split} of the feature cache {store.folder} has no utterances.",
            next_step="Check the corpus with myxtts prepare, or raise data.max_mel_frames.",
        )
    budget_bytes = measure_ram_budget(hardware.available_ram_bytes, config.data.ram_budget_gb)
    return store, rows, open_sound_of(store, rows, config, split, budget_bytes)


def count_segment_frames(mel: MelDefinition) -> int:
    """Frames of a segment: at least 64, and at least twice the longest FFT of discriminators and losses."""
    least_samples = 2 * max(_LONGEST_TRANSFORM, 2 * mel.n_fft)
    return max(USUAL_FRAMES, -(-least_samples // mel.hop_length))
