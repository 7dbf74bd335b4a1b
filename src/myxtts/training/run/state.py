"""State of a training: `RunState` holds its numbers, `TrainingState` the variables of model, EMA and optimizer.

A checkpoint keeps both, and they are restored bit by bit. Variables are those of Keras or TensorFlow; of them only
`numpy`, `assign`, `shape` and `dtype` are used, so that single-device and mirrored variables work alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeFloat, NonNegativeInt, ValidationError

from myxtts.errors import refuse
from myxtts.storage.tensor_file import Array

Variable = Any
_CHECKPOINT = "The checkpoint"
MODEL, AVERAGE, OPTIMIZER, START = "model", "average", "optimizer", "start"
"""The usual groups of variables; `average` is the EMA of the weights, `start` what an adaptation pulls them towards."""
_OLD_LEARNING_RATE = "optimizer/00001"
"""Learning rate in older checkpoints; it follows from the step."""


class _State(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Best(_State):
    """The checkpoint with the lowest validation score so far."""

    step: NonNegativeInt
    score: FiniteFloat


class Patience(_State):
    """Counter of early stopping: the lowest score so far, and the evaluations in a row without improvement."""

    best_step: NonNegativeInt | None = None
    best_score: FiniteFloat | None = None
    num_without_improvement: NonNegativeInt = 0

    def note(self, step: int, score: float) -> bool:
        """Takes a score; returns whether it is the lowest so far. A score that is not finite never is."""
        is_best = math.isfinite(score) and (self.best_score is None or score < self.best_score)
        if is_best:
            self.best_step, self.best_score, self.num_without_improvement = step, score, 0
        else:
            self.num_without_improvement += 1
        return is_best


class Clock(_State):
    """Time used by all sessions of a run with `training.minutes`, and the last step estimated from it."""

    spent_s: NonNegativeFloat = 0.0
    total_steps: NonNegativeInt | None = None


class GuardState(_State):
    """State of the guard, so that a resumed training judges as one that was never interrupted."""

    losses: list[FiniteFloat] = Field(default_factory=list)
    num_good_in_row: NonNegativeInt = 0
    num_recent_rollbacks: NonNegativeInt = 0
    is_in_spike: bool = False
    num_skipped: NonNegativeInt = 0
    num_rollbacks: NonNegativeInt = 0


class DurationsLook(_State):
    """The last look at the alignments of a few training utterances, to see whether they still change.

    `frames` are the durations of all their tokens, `num_stable` the looks in a row with hardly a change.
    """

    step: NonNegativeInt
    frames: list[NonNegativeInt]
    num_stable: NonNegativeInt = 0


class WrittenDurations(_State):
    """The step since which the run trains with durations that it wrote, and the fingerprint of their file."""

    step: NonNegativeInt
    fingerprint: str


class RunState(_State):
    """All numbers of a run that decide what happens next. The loop, its guard and its callbacks update it."""

    step: NonNegativeInt
    """Optimizer steps that are done, skipped ones among them."""
    feed_position: NonNegativeInt
    """Number of the next batch of the feed."""
    loader_name: str = ""
    """Loader of the batches: measured and chosen once per run, because another one may differ in the last bit."""
    text_frozen_step: NonNegativeInt | None = None
    """Step since which text encoder and prosody predictor are frozen."""
    clock: Clock | None = None
    best: Best | None = None
    early_stopping: Patience | None = None
    text_patience: Patience | None = None
    guard: GuardState = Field(default_factory=GuardState)
    durations_look: DurationsLook | None = None
    durations: WrittenDurations | None = None
    """None while alignments are searched in every step, or durations are those of the store."""

    def to_json(self) -> dict[str, Any]:
        return self.model_dump()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunState:
        """Reads the output of `to_json` of this version or of 0.1; raises DataError for anything else."""
        try:
            return cls.model_validate(_upgrade(values) if "tuning" in values else dict(values))
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(map(str, first["loc"]))
            raise refuse(_CHECKPOINT, f"{name} in its state is {str(first['input'])[:80]!r}: {first['msg']}") from error


def _upgrade(old: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the state of version 0.1, which had loader, freezing and clock in `tuning` and no patience."""
    tuning, guard = old["tuning"], old.get("guard")
    if not isinstance(tuning, dict) or not isinstance(guard, dict):
        raise refuse(_CHECKPOINT, f"tuning or guard in its state is {str(tuning)[:80]!r}")
    is_best_known = old.get("best_step") is not None and old.get("best_score") is not None
    return {
        "step": old.get("step"),
        "feed_position": old.get("feed_position"),
        "loader_name": tuning.get("loader_name", ""),
        "text_frozen_step": tuning.get("text_rest_step"),
        "clock": tuning.get("time"),
        "best": {"step": old["best_step"], "score": old["best_score"]} if is_best_known else None,
        "guard": {name: value for name, value in guard.items() if name in GuardState.model_fields},
    }


class TrainingState:
    """The variables of a training in groups: those of the model, their averages, those of the optimizer.

    Names within a group must not change from one process to the next. An optimizer must be built, so that it has all
    its variables.
    """

    def __init__(self, groups: Mapping[str, Mapping[str, Variable]]) -> None:
        self._variables: dict[str, Variable] = {
            f"{group}/{name}": variable for group, named in groups.items() for name, variable in named.items()
        }

    def collect(self) -> dict[str, Array]:
        """Every variable as an array on the host, by its stable name."""
        return {name: np.asarray(variable.numpy()) for name, variable in self._variables.items()}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Assigns every variable; raises DataError and changes nothing unless all names, shapes and dtypes match."""
        problems = list(self._find_mismatches(arrays))
        if problems:
            more = f", and {len(problems) - 5} more" if len(problems) > 5 else ""
            raise refuse(
                _CHECKPOINT,
                f"it does not fit this model and optimizer: {', '.join(problems[:5])}{more}",
                "Use the configuration that the run was started with, or another --run-name.",
            )
        for name, variable in self._variables.items():
            variable.assign(arrays[name])

    def _find_mismatches(self, arrays: Mapping[str, Array]) -> Iterable[str]:
        for name, variable in self._variables.items():
            if name not in arrays:
                yield f"{self._describe(name)} is missing"
                continue
            shape, array = tuple(variable.shape), arrays[name]
            if array.shape != shape:
                yield f"{self._describe(name)} has the shape {list(array.shape)} instead of {list(shape)}"
            elif array.dtype.name != _name_dtype(variable):
                yield f"{self._describe(name)} is of type {array.dtype.name} instead of {_name_dtype(variable)}"
        yield from (
            f"{name} is not known"
            for name in arrays
            if name not in self._variables and not name.endswith(_OLD_LEARNING_RATE)
        )

    def _describe(self, name: str) -> str:
        """Name of a variable, with its Keras path where the name is only a number."""
        variable = self._variables[name]
        path = str(getattr(variable, "path", None) or getattr(variable, "name", "")).removesuffix(":0")
        return f"{name} ({path})" if name.rpartition("/")[2].isdecimal() and path else name


def select_synthesis_weights(arrays: Mapping[str, Array], start_mix: float = 0.0) -> dict[str, Array]:
    """Weights of a bundle, in float32: EMA values, and model variables without an EMA, such as calibration.

    `start_mix` is the share of the starting weights in the EMA values.
    """
    averages = select_group(arrays, AVERAGE)
    if start_mix:
        start = select_group(arrays, START)
        averages = {name: mix_weights(average, start[name], start_mix) for name, average in averages.items()}
    selected = select_group(arrays, MODEL) | averages
    return {name: np.asarray(array, np.float32) for name, array in selected.items()}


def mix_weights(trained: Array, start: Array, share: float) -> Array:
    """Linear interpolation between the trained weights and a `share` of the starting ones."""
    mixed: Array = trained + np.asarray(share, trained.dtype) * (start - trained)
    return mixed


def select_group(arrays: Mapping[str, Array], group: str) -> dict[str, Array]:
    """The arrays of one group, without its name in front."""
    return {name.partition("/")[2]: array for name, array in arrays.items() if name.startswith(f"{group}/")}


def _name_dtype(variable: Variable) -> str:
    """Name of a dtype such as `float32`: Keras variables have a string, TensorFlow variables a DType."""
    return str(getattr(variable.dtype, "name", variable.dtype))
