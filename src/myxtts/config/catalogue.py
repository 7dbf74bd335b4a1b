"""All settings by name: which exist, where each lives, and which one a misspelt name was meant to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import Field
from pydantic.fields import FieldInfo

from myxtts.config.data import DataConfig
from myxtts.config.model import ModelConfig
from myxtts.config.section import Section, describe_unknown_key, dotted_key, find_nearest
from myxtts.config.training import TrainingConfig
from myxtts.config.values import Scalar, describe_allowed
from myxtts.errors import ConfigError

# The settings at the top of a configuration, which choose presets: model size, optimisation level, GPU card.


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


SECTIONS: Mapping[str, type[Section]] = {"data": DataConfig, "model": ModelConfig, "training": TrainingConfig}
_ALL_SECTIONS: tuple[type[Section], ...] = (Selectors, *SECTIONS.values())

FIELDS: Mapping[str, FieldInfo] = {
    dotted_key(section, name): field for section in _ALL_SECTIONS for name, field in section.model_fields.items()
}
"""Every setting by its full name: model_size, data.batch_size, ..."""

_FULL_NAMES = {key.rpartition(".")[2]: key for key in FIELDS}
assert len(_FULL_NAMES) == len(FIELDS), "a name in two sections would make the flat form ambiguous"


def find_key(name: str, origin: str) -> str:
    """The full name of the setting called `name`, which may be given with or without its section."""
    if name in FIELDS:
        return name
    if name in _FULL_NAMES:
        return _FULL_NAMES[name]
    problem, next_step = describe_unknown_key(name, origin, _find_nearest_key(name))
    raise ConfigError(problem, next_step=next_step)


def _find_nearest_key(name: str) -> str | None:
    section, _, last = name.rpartition(".")
    if last in _FULL_NAMES:
        return _FULL_NAMES[last]
    nearest = find_nearest(last, [*_FULL_NAMES] if section else [*_FULL_NAMES, *SECTIONS])
    return _FULL_NAMES.get(nearest, nearest) if nearest else find_nearest(name, FIELDS)


# Lists every setting of a configuration with its origin and meaning, for `myxtts config` and the documentation.


@dataclass(frozen=True, slots=True)
class Setting:
    key: str
    value: Scalar
    origin: str
    default: Scalar
    description: str
    allowed: str


class ResolvedConfig(Protocol):
    """What is needed of an XTTSConfig, whose module builds on this one."""

    @property
    def origins(self) -> Mapping[str, str]: ...


def list_settings(config: ResolvedConfig) -> list[Setting]:
    """All settings in the order of the schema."""
    return [
        Setting(
            key=key,
            value=_look_up(config, key),
            origin=config.origins[key],
            default=field.default,
            description=field.description or "",
            allowed=describe_allowed(field),
        )
        for key, field in FIELDS.items()
    ]


def _look_up(config: object, key: str) -> Scalar:
    value = config
    for name in key.split("."):
        value = getattr(value, name)
    assert value is None or isinstance(value, str | int | float), key
    return value
