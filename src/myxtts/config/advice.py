"""Lint of a valid configuration: finds settings that starve the accelerator, and says what to set instead.

Judges the values alone, without looking at the machine or measuring anything; `myxtts config` prints the findings as
warnings. `myxtts diagnose` measures.
"""

from __future__ import annotations

from collections.abc import Iterator

from myxtts.config.schema import DataConfig, TrainingConfig, XTTSConfig
from myxtts.config.values import show_value

MIN_SENSIBLE_CHECKPOINT_STEPS = 50
"""Smaller values of `checkpoint_steps` are reported; a rule of thumb, not a limit of the schema."""
MIN_SENSIBLE_BUFFER_SIZE = 2
"""With one batch, loading cannot run ahead of the step at all."""


def find_slow_settings(config: XTTSConfig) -> list[str]:
    """Returns one or two sentences for each setting that slows training down: key, value, reason, remedy."""
    return [*_find_slow_loading(config.data), *_find_slow_feeding(config.data), *_find_slow_steps(config.training)]


def _find_slow_loading(data: DataConfig) -> Iterator[str]:
    """Yields settings by which making or reading one batch takes longer than it must."""
    if data.preprocessing_mode == "on_the_fly" and not data.use_tf_native_loading:
        yield _advise(
            "data.use_tf_native_loading",
            False,
            "with preprocessing_mode on_the_fly, Python decodes every recording in every epoch",
            'Set it to true, or data.preprocessing_mode to "precompute".',
        )
    if data.preprocessing_mode == "precompute" and data.cache_verification == "full":
        yield _advise(
            "data.cache_verification", "full", "the whole store is read before the first step", 'Set it to "sampled".'
        )
    if data.num_workers == 0:
        yield _advise(
            "data.num_workers", 0, "loading then waits for the step and the step for loading", 'Set it to "auto".'
        )
    if data.batch_size == 1 and data.frame_budget is None:
        yield _advise(
            "data.batch_size", 1, "one utterance hardly fills a device", "Set it to 8 or more, or data.frame_budget."
        )


def _find_slow_feeding(data: DataConfig) -> Iterator[str]:
    """Yields settings by which the device waits for a batch that is ready on the host."""
    if data.buffer_size < MIN_SENSIBLE_BUFFER_SIZE:
        yield _advise(
            "data.buffer_size", data.buffer_size, "one slow recording then stops the device", "Set it to 8 or more."
        )
    if not data.prefetch_to_gpu:
        yield _advise("data.prefetch_to_gpu", False, "every step waits for its batch to be copied", "Set it to true.")
    elif not data.enhanced_gpu_prefetch:
        yield _advise("data.enhanced_gpu_prefetch", False, "only one batch is ready on the device", "Set it to true.")
    if not data.optimize_cpu_gpu_overlap:
        yield _advise(
            "data.optimize_cpu_gpu_overlap", False, "loader threads compete with the step for cores", "Set it to true."
        )


def _find_slow_steps(training: TrainingConfig) -> Iterator[str]:
    """Yields settings by which the step itself runs uncompiled or is interrupted."""
    if training.enable_eager_debug:
        yield _advise(
            "training.enable_eager_debug", True, "every operation runs by itself", "Set it to false to train."
        )
    elif not training.enable_graph_mode:
        yield _advise("training.enable_graph_mode", False, "every step is interpreted by Python", "Set it to true.")
    if training.checkpoint_steps < MIN_SENSIBLE_CHECKPOINT_STEPS:
        yield _advise(
            "training.checkpoint_steps",
            training.checkpoint_steps,
            "training stops for a checkpoint every few steps",
            f"Set it to {MIN_SENSIBLE_CHECKPOINT_STEPS} or more.",
        )


def _advise(key: str, value: object, why: str, instead: str) -> str:
    return f"{key} is {show_value(value)}: {why}. {instead}"
