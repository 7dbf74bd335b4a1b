"""The whole state of a training as named arrays and plain numbers, taken and given back bit by bit.

Variables are those of Keras or TensorFlow; of them only `numpy`, `assign`, `shape` and `dtype` are used, so that the
same code serves one device and variables mirrored over several.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from myxtts.errors import DataError
from myxtts.storage.tensor_file import Array

Variable = Any
MODEL, AVERAGE, OPTIMIZER = "model", "average", "optimizer"
"""The usual groups of variables."""
_NUMBER = re.compile(r"_\d+$")


@dataclass(frozen=True)
class Progress:
    """Where a training stands, besides its arrays. `tuning` is what was measured and must not be measured again."""

    step: int = 0
    """Optimiser steps that are done, skipped ones among them."""
    feed_position: int = 0
    """Number of the next batch of the feed."""
    num_skipped: int = 0
    num_rollbacks: int = 0
    best_step: int | None = None
    best_score: float | None = None
    micro_batch_size: int | None = None
    accumulation: int | None = None
    tuning: dict[str, Any] = field(default_factory=dict)
    guard: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Progress:
        """Raises DataError for anything but what `to_json` gives."""
        expected = {field.name for field in fields(cls)}
        if set(values) != expected:
            names = ", ".join(sorted(set(values) ^ expected))
            raise _complain(f"its state has too few or too many parts: {names}")
        for name, value in values.items():
            if not _is_plausible(name, value):
                raise _complain(f"its {name} is {str(value)[:80]!r}")
        return cls(**values)


class TrainingState:
    """The variables of a training in groups: those of the model, their running averages, those of the optimizer.

    Names within a group must not change from one process to the next: models of this package name their weights, and
    `name_variables` and `number_variables` name others. An optimizer must be built, so that it has all its variables.
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
            raise _complain(f"it does not fit this model and optimiser: {', '.join(problems[:5])}{more}")
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
            elif array.dtype.name != name_dtype(variable):
                yield f"{self._describe(name)} is of type {array.dtype.name} instead of {name_dtype(variable)}"
        yield from (f"{name} is not known" for name in arrays if name not in self._variables)

    def _describe(self, name: str) -> str:
        """A name, and what Keras calls the variable where that says more."""
        path = _find_path(self._variables[name])
        return f"{name} ({path})" if name.rpartition("/")[2].isdecimal() and path else name


def number_variables(variables: Sequence[Variable]) -> dict[str, Variable]:
    """Names by order, for the variables of an optimizer: in their own names are numbers that change."""
    return {f"{number:05}": variable for number, variable in enumerate(variables)}


def name_variables(variables: Sequence[Variable]) -> dict[str, Variable]:
    """A unique name for each variable that depends on nothing but the structure of its model.

    Keras numbers layers over the life of a process: the second model made there has dense_5 where the first had dense.
    So in each part of a path the number is counted anew, and the name of the model itself is left out.
    """
    known: dict[str, dict[str, str]] = {}
    named: dict[str, Variable] = {}
    for variable in variables:
        parts = _find_path(variable).split("/")
        name = ""
        for part in parts[1:] or parts:
            name = f"{name}/{_count_anew(part, known.setdefault(name, {}))}".lstrip("/")
        number = 1
        unique = name
        while unique in named:
            number += 1
            unique = f"{name}~{number}"
        named[unique] = variable
    return named


def name_dtype(variable: Variable) -> str:
    """`float32` whether a variable says it as a text or as a type of TensorFlow."""
    return str(getattr(variable.dtype, "name", variable.dtype))


def select_synthesis_weights(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The weights a model shall speak with: averages, and variables of the model that have none, such as statistics."""
    return select_group(arrays, MODEL) | select_group(arrays, AVERAGE)


def select_group(arrays: Mapping[str, Array], group: str) -> dict[str, Array]:
    """The arrays of one group, without its name in front."""
    return {name.partition("/")[2]: array for name, array in arrays.items() if name.startswith(f"{group}/")}


def _count_anew(part: str, siblings: dict[str, str]) -> str:
    if part not in siblings:
        base = _NUMBER.sub("", part)
        number = sum(_NUMBER.sub("", other) == base for other in siblings)
        siblings[part] = f"{base}_{number}" if number else base
    return siblings[part]


def _find_path(variable: Variable) -> str:
    return str(getattr(variable, "path", None) or getattr(variable, "name", "")).removesuffix(":0")


def _is_plausible(name: str, value: object) -> bool:
    if name in ("tuning", "guard"):
        return isinstance(value, dict)
    if name == "best_score":
        return value is None or (isinstance(value, int | float) and math.isfinite(value))
    may_be_missing = name in ("best_step", "micro_batch_size", "accumulation")
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return is_count or (may_be_missing and value is None)


def _complain(problem: str) -> DataError:
    return DataError(
        f"The checkpoint cannot be used: {problem}.",
        next_step="Use the configuration that the run was begun with, or choose another training.run_name.",
    )
