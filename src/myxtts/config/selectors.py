"""The settings at the top of a configuration, which choose presets: model size, optimisation level, GPU card."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from myxtts.config.section import Section


class Selectors(Section):
    model_size: Literal["tiny", "small", "normal", "big"] = Field(
        default="small", description="Preset of the model's shape."
    )
    optimization_level: Literal["basic", "enhanced", "experimental"] = Field(
        default="enhanced",
        description="Preset of compilation, precision and tuning: plain, usual, or the fastest that may fail.",
    )
    gpu_card: Literal["rtx4090", "rtx3090", "rtx3060"] | None = Field(
        default=None, description="Preset of batch size, threads and buffer for a graphics card."
    )
