"""State of a training: `RunState` holds its numbers, `TrainingState` the variables of model, EMA and optimizer.

A checkpoint keeps both, and they come back bit by bit. Variables are those of Keras or TensorFlow; of them only
`numpy`, `assign`, `shape` and `dtype` are used, so that one device and several mirrored ones are served alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeFloat, NonNegativeInt, ValidationError

from myxtts.errors import DataError
from myxtts.storage.tensor_file import Array

Variable = Any
MODEL, AVERAGE, OPTIMIZER = "model", "average", "optimizer"
"""The usual groups of variables; `average` is the EMA of the weights."""


class _State(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Best(_State):
    """The checkpoint with the lowest validation score so far."""

    step: NonNegativeInt
    score: FiniteFloat


class Patience(_State):
    """The lowest score so far, and the evaluations in a row that have not improved on it."""

    best_step: NonNegativeInt | None = None
    best_score: FiniteFloat | None = None
    num_without_improvement: NonNegativeInt = 0

    def note(self, step: int, score: float) -> bool:
        """Whether this score is the lowest so far; one that is not finite never is."""
        is_best = math.isfinite(score) and (self.best_score is None or score < self.best_score)
        if is_best:
            self.best_step, self.best_score, self.num_without_improvement = step, score, 0
        else:
            self.num_without_improvement += 1
        return is_best


class Clock(_State):
    """Of a run that lasts `training.minutes`: time used by all sessions, and the last step that follows from it."""

    spent_s: NonNegativeFloat = 0.0
    total_steps: NonNegativeInt | None = None


class GuardState(_State):
    """What the guard remembers, so that a resumed training judges as one that was never interrupted."""

    losses: list[FiniteFloat] = Field(default_factory=list)
    num_good_in_row: NonNegativeInt = 0
    num_recent_rollbacks: NonNegativeInt = 0
    is_in_spike: bool = False
    num_skipped: NonNegativeInt = 0
    num_rollbacks: NonNegativeInt = 0


class RunState(_State):
    """Every number that decides what happens next. The loop, its guard and its callbacks change it in place."""

    step: NonNegativeInt
    """Optimizer steps that are done, skipped ones among them."""
    feed_position: NonNegativeInt
    """Number of the next batch of the feed."""
    loader_name: str = ""
    """What loads the batches: chosen by measuring once, because another one may differ in the last bit."""
    text_frozen_step: NonNegativeInt | None = None
    """Since when text encoder and prosody predictor are frozen."""
    clock: Clock | None = None
    best: Best | None = None
    early_stopping: Patience | None = None
    text_patience: Patience | None = None
    guard: GuardState = Field(default_factory=GuardState)

    def to_json(self) -> dict[str, Any]:
        return self.model_dump()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunState:
        """Raises DataError for anything but what `to_json` gives, now or in an earlier version."""
        try:
            return cls.model_validate(_upgrade(values) if "tuning" in values else dict(values))
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(map(str, first["loc"]))
            raise _refuse(f"{name} in its state is {str(first['input'])[:80]!r}: {first['msg']}") from error


def _upgrade(old: Mapping[str, Any]) -> dict[str, Any]:
    """A state as 0.1 wrote it, which kept loader, freezing and clock in a free dictionary and no patience at all."""
    tuning, guard = old["tuning"], old.get("guard")
    if not isinstance(tuning, dict) or not isinstance(guard, dict):
        raise _refuse(f"tuning or guard in its state is {str(tuning)[:80]!r}")
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

    Names within a group must not change from one process to the next: models of this package name their weights, and
    `number_variables` names others. An optimizer must be built, so that it has all its variables.
    """

    def __init__(self, groups: Mapping[str, Mapping[str, Variable]]) -> None:
        self._variables: dict[str, Variable] = {
            f"{group}/{name}": variable for group, named in groups.items() for name, variable in named.items()
        }

    def collect(self) -> dict[str, Array]:
        """Every variable as an array on the host, by its stable name."""
        return {name: np.asarray(variable.numpy()) for name, variable in self._variables.items()}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Gives every variable its value; raises DataError and changes nothing unless all of them fit."""
        problems = list(self._find_mismatches(arrays))
        if problems:
            more = f", and {len(problems) - 5} more" if len(problems) > 5 else ""
            raise _refuse(f"it does not fit this model and optimizer: {', '.join(problems[:5])}{more}")
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
        yield from (f"{name} is not known" for name in arrays if name not in self._variables)

    def _describe(self, name: str) -> str:
        """A name, and what Keras calls the variable where the name is a mere number."""
        variable = self._variables[name]
        path = str(getattr(variable, "path", None) or getattr(variable, "name", "")).removesuffix(":0")
        return f"{name} ({path})" if name.rpartition("/")[2].isdecimal() and path else name


def number_variables(variables: Sequence[Variable]) -> dict[str, Variable]:
    """Names by order, for the variables of an optimizer: Keras puts numbers into their names that change."""
    return {f"{number:05}": variable for number, variable in enumerate(variables)}


def select_synthesis_weights(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The weights of a bundle: averages, and variables of the model that have none, such as statistics."""
    return select_group(arrays, MODEL) | select_group(arrays, AVERAGE)


def select_group(arrays: Mapping[str, Array], group: str) -> dict[str, Array]:
    """The arrays of one group, without its name in front."""
    return {name.partition("/")[2]: array for name, array in arrays.items() if name.startswith(f"{group}/")}


def _name_dtype(variable: Variable) -> str:
    """`float32`, whether a variable says it as a text or as a type of TensorFlow."""
    return str(getattr(variable.dtype, "name", variable.dtype))


def _refuse(problem: str) -> DataError:
    return DataError(
        f"The checkpoint cannot be used: {problem}.",
        next_step="Use the configuration that the run was begun with, or choose another training.run_name.",
    )
