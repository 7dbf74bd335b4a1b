"""Lint of a valid configuration: finds settings that starve the accelerator, and says what to set instead.

Judges the values alone, without looking at the machine or measuring anything; `myxtts config` prints the findings as
warnings. `myxtts diagnose` measures.
"""

from __future__ import annotations

from collections.abc import Iterator

from myxtts.config.catalogue import look_up
from myxtts.config.schema import DataConfig, TrainingConfig, XTTSConfig
from myxtts.config.values import show_value

_Finding = tuple[str, str, str]
"""Key of a setting, why its value is slow, and what to do instead."""
MIN_SENSIBLE_CHECKPOINT_STEPS = 50
"""Smaller values of `checkpoint_steps` are reported; a rule of thumb, not a limit of the schema."""
MIN_SENSIBLE_BUFFER_SIZE = 2
"""With one batch, loading cannot run ahead of the step at all."""


def find_slow_settings(config: XTTSConfig) -> list[str]:
    """Returns one or two sentences for each setting that slows training down: key, value, reason, remedy."""
    found = [*_find_slow_loading(config.data), *_find_slow_feeding(config.data), *_find_slow_steps(config.training)]
    return [f"{key} is {show_value(look_up(config, key))}: {why}. {instead}" for key, why, instead in found]


def _find_slow_loading(data: DataConfig) -> Iterator[_Finding]:
    """Yields settings by which making or reading one batch takes longer than it must."""
    if data.preprocessing_mode == "on_the_fly" and not data.use_tf_native_loading:
        yield (
            "data.use_tf_native_loading",
            "with preprocessing_mode on_the_fly, Python decodes every recording in every epoch",
            'Set it to true, or data.preprocessing_mode to "precompute".',
        )
    if data.preprocessing_mode == "precompute" and data.cache_verification == "full":
        yield "data.cache_verification", "the whole feature cache is read before the first step", 'Set it to "sampled".'
    if data.num_workers == 0:
        yield "data.num_workers", "loading then waits for the step and the step for loading", 'Set it to "auto".'
    if data.batch_size == 1 and data.frame_budget is None:
        yield "data.batch_size", "one utterance hardly fills a device", "Set it to 8 or more, or data.frame_budget."


def _find_slow_feeding(data: DataConfig) -> Iterator[_Finding]:
    """Yields settings by which the device waits for a batch that is ready on the host."""
    if data.buffer_size < MIN_SENSIBLE_BUFFER_SIZE:
        yield "data.buffer_size", "one slow recording then stops the device", "Set it to 8 or more."
    if not data.prefetch_to_gpu:
        yield "data.prefetch_to_gpu", "every step waits for its batch to be copied", "Set it to true."
    elif not data.enhanced_gpu_prefetch:
        yield "data.enhanced_gpu_prefetch", "only one batch is ready on the device", "Set it to true."
    if not data.optimize_cpu_gpu_overlap:
        yield "data.optimize_cpu_gpu_overlap", "loader threads compete with the step for cores", "Set it to true."


def _find_slow_steps(training: TrainingConfig) -> Iterator[_Finding]:
    """Yields settings by which the step itself runs uncompiled or is interrupted."""
    if training.enable_eager_debug:
        yield "training.enable_eager_debug", "every operation runs by itself", "Set it to false to train."
    elif not training.enable_graph_mode:
        yield "training.enable_graph_mode", "every step is interpreted by Python", "Set it to true."
    if training.checkpoint_steps < MIN_SENSIBLE_CHECKPOINT_STEPS:
        instead = f"Set it to {MIN_SENSIBLE_CHECKPOINT_STEPS} or more."
        yield "training.checkpoint_steps", "training stops for a checkpoint every few steps", instead
