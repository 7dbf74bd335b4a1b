"""All settings by name: which exist, where each lives, and which one a misspelt name was meant to be."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic.fields import FieldInfo

from myxtts.config.data_config import DataConfig
from myxtts.config.model_config import ModelConfig
from myxtts.config.section import Section, describe_unknown_key, dotted_key, find_nearest
from myxtts.config.selectors import Selectors
from myxtts.config.training_config import TrainingConfig
from myxtts.errors import ConfigError

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
