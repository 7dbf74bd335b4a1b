"""Settings of a training run: devices, compilation, precision, optimiser, and where the run is kept."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from myxtts.config.section import Contradiction, Section
from myxtts.config.values import accept_path, format_gpu_numbers, parse_gpu_numbers


class TrainingConfig(Section):
    section_name: ClassVar[str] = "training"

    # The run.
    run_name: str = Field(
        default="run",
        pattern=r"^\w[\w.-]{0,99}$",
        json_schema_extra={"allowed": "a name of letters, digits, dots, dashes and underscores, up to 100 long"},
        description="Name of the run.",
    )
    run_dir: str | None = Field(default=None, description="Folder of the run; null means runs/ followed by run_name.")
    checkpoint_steps: int = Field(default=1000, ge=1, description="Steps from one checkpoint to the next.")
    keep_checkpoints: int = Field(
        default=3, ge=1, le=1000, description="Newest checkpoints that are kept, besides the best one."
    )
    bundle_weights: Literal["latest", "best"] = Field(
        default="best", description="Weights that the bundle holds: the latest, or those with the best score."
    )
    log_steps: int = Field(default=10, ge=1, description="Steps from one line of metrics.jsonl to the next.")
    sample_steps: int = Field(
        default=0, ge=0, description="Steps from one set of spoken samples to the next; 0 speaks with each checkpoint."
    )
    early_stopping: int = Field(
        default=0, ge=0, description="Validations in a row without improvement that end training; 0 means never."
    )
    text_patience_steps: int = Field(
        default=2000,
        ge=0,
        description="Steps without improvement on held-out texts after which the text side rests; 0 means never.",
    )
    seed: int = Field(
        default=0, ge=0, le=2**32 - 1, description="Start of all randomness; the same seed gives the same run."
    )
    steps: int | None = Field(
        default=None, ge=1, description="Optimiser steps after which training ends; null means no limit."
    )
    epochs: int | None = Field(
        default=None, ge=1, description="Passes over the corpus after which training ends; null means no limit."
    )
    minutes: float | None = Field(
        default=None,
        gt=0.0,
        description="Minutes after which training ends, the learning rate falling towards it; null means no limit.",
    )

    # Devices.
    multi_gpu: bool = Field(default=False, description="Mirror the model over all visible GPUs.")
    visible_gpus: str | None = Field(
        default=None,
        json_schema_extra={"allowed": 'GPU numbers such as "0" or "0,1" or null'},
        description="GPUs that may be used; null means all.",
    )

    # Alignment.
    durations: Literal["search", "stored"] = Field(
        default="search",
        description="Where durations of tokens come from: searched in every step, or written to the store before.",
    )

    # Compilation and precision.
    enable_graph_mode: bool = Field(
        default=True, description="Compile the training step into a graph; off runs it eagerly."
    )
    enable_xla_compilation: bool | Literal["auto"] = Field(
        default="auto", description="Compile the step with XLA; auto does so where it pays."
    )
    enable_eager_debug: bool = Field(
        default=False, description="Run every operation eagerly, for stepping through with a debugger."
    )
    mixed_precision: bool | Literal["auto"] = Field(
        default="auto", description="Compute in 16 bits; auto does so in bfloat16 where the device has it."
    )

    # The step.
    crop_frames: int = Field(
        default=128,
        ge=32,
        le=8192,
        multiple_of=2,
        description="Frames of each utterance that the decoder learns from at a step, chosen at random.",
        json_schema_extra={"allowed": "an even number from 32 to 8192"},
    )
    voice_stretch: float = Field(
        default=0.1,
        ge=0.0,
        le=0.5,
        description="By what share voices are made higher or lower at random, so that more are heard; 0 means never.",
    )
    gradient_accumulation_steps: int = Field(
        default=1, ge=1, le=1024, description="Batches whose gradients are summed into one optimiser step."
    )
    learning_rate: float = Field(
        default=1.2e-3, gt=0.0, le=1.0, description="Highest learning rate, reached after the warm-up."
    )
    warmup_steps: int = Field(default=250, ge=0, description="Steps over which the learning rate rises from zero.")
    weight_decay: float = Field(default=0.01, ge=0.0, le=1.0, description="Weight decay of AdamW.")
    clip_norm: float = Field(default=2.0, gt=0.0, description="Longest gradient; longer ones are scaled down to it.")
    ema_decay: float = Field(
        default=0.999,
        ge=0.0,
        lt=1.0,
        description="Decay of the averaged weights used for synthesis; 0 turns averaging off.",
    )

    @property
    def run_path(self) -> Path:
        """The folder of the run."""
        return Path(self.run_dir) if self.run_dir is not None else Path("runs") / self.run_name

    @field_validator("run_dir", mode="before")
    @classmethod
    def _accept_path(cls, value: object) -> object:
        return accept_path(value)

    @field_validator("visible_gpus", mode="before")
    @classmethod
    def _canonicalise_visible_gpus(cls, value: object) -> str | None:
        return None if value is None else format_gpu_numbers(parse_gpu_numbers(value))

    @model_validator(mode="after")
    def _refuse_compiling_eager_steps(self) -> Self:
        if self.enable_xla_compilation is not True:
            return self
        if self.enable_eager_debug:
            raise Contradiction(
                "enable_eager_debug and enable_xla_compilation are both true, but a compiled step cannot run eagerly",
                keys=("enable_eager_debug", "enable_xla_compilation"),
                next_step="Drop training.enable_xla_compilation to debug, or training.enable_eager_debug to train.",
            )
        if not self.enable_graph_mode:
            raise Contradiction(
                "enable_xla_compilation is true and enable_graph_mode is false, but XLA compiles graphs",
                keys=("enable_xla_compilation", "enable_graph_mode"),
                next_step="Drop training.enable_xla_compilation, or set training.enable_graph_mode to true.",
            )
        return self
