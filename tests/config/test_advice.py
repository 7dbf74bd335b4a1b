"""Slow combinations are named with the key, the value, the reason and what to set instead."""

from __future__ import annotations

from typing import Any

import pytest

from myxtts.config.advice import find_slow_settings
from myxtts.config.schema import XTTSConfig


@pytest.mark.parametrize("values", [{}, {"optimization_level": "experimental"}, {"gpu_card": "rtx3060"}])
def test_the_presets_are_not_slow(values: dict[str, Any]) -> None:
    assert find_slow_settings(XTTSConfig(**values)) == []


@pytest.mark.parametrize(
    ("values", "start", "instead"),
    [
        (
            {"preprocessing_mode": "on_the_fly", "use_tf_native_loading": False},
            "data.use_tf_native_loading is false",
            "Set it to true",
        ),
        ({"cache_verification": "full"}, 'data.cache_verification is "full"', '"sampled"'),
        ({"num_workers": 0}, "data.num_workers is 0", '"auto"'),
        ({"batch_size": 1}, "data.batch_size is 1", "8 or more"),
        ({"buffer_size": 1}, "data.buffer_size is 1", "8 or more"),
        ({"prefetch_to_gpu": False}, "data.prefetch_to_gpu is false", "true"),
        ({"enhanced_gpu_prefetch": False}, "data.enhanced_gpu_prefetch is false", "true"),
        ({"optimize_cpu_gpu_overlap": False}, "data.optimize_cpu_gpu_overlap is false", "true"),
        ({"enable_eager_debug": True}, "training.enable_eager_debug is true", "false"),
        ({"enable_graph_mode": False}, "training.enable_graph_mode is false", "true"),
        ({"checkpoint_steps": 49}, "training.checkpoint_steps is 49", "50 or more"),
    ],
)
def test_a_slow_setting_is_named_with_what_to_set_instead(values: dict[str, Any], start: str, instead: str) -> None:
    advice = find_slow_settings(XTTSConfig(**values))
    assert len(advice) == 1
    assert advice[0].startswith(f"{start}: ")
    assert instead in advice[0].partition(". ")[2]


@pytest.mark.parametrize(
    "values",
    [
        {"use_tf_native_loading": False},
        {"preprocessing_mode": "on_the_fly"},
        {"preprocessing_mode": "on_the_fly", "cache_verification": "full"},
        {"batch_size": 1, "frame_budget": 4000},
        {"buffer_size": 2},
        {"checkpoint_steps": 50},
    ],
)
def test_settings_that_do_not_matter_here_are_left_alone(values: dict[str, Any]) -> None:
    assert find_slow_settings(XTTSConfig(**values)) == []
