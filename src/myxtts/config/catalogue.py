"""Registry of all settings by full name, with their declarations; finds keys by short name and suggests corrections.

Built once at import from the fields of the section models, so that a setting is declared in one place only. Names are
unique over all sections, which is what allows the flat form `batch_size` beside `data.batch_size`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic.fields import FieldInfo

from myxtts.config.choices import SELECTORS, list_presets
from myxtts.config.data import DataConfig
from myxtts.config.model import ModelConfig
from myxtts.config.section import Section, describe_unknown_key, dotted_key, find_nearest
from myxtts.config.setting import ONLY_PRESET, Meta, accept, describe_allowed, read_meta, setting
from myxtts.config.training import TrainingConfig
from myxtts.config.values import Scalar
from myxtts.errors import ConfigError

if TYPE_CHECKING:
    from myxtts.config.schema import XTTSConfig

    # The Literal types below are built from file names at import time, which a type checker cannot evaluate.
    ModelSize = str
    OptimizationLevel = str
    GpuCard = str
else:
    ModelSize, OptimizationLevel, GpuCard = (Literal[tuple(list_presets(selector))] for selector in SELECTORS)


class Selectors(Section):
    """Top-level settings, each of which selects a preset; the allowed values are the files in `config/presets`."""

    model_size: ModelSize = setting(
        "small", "Preset of the model's size.", fa="preset اندازه و شکل مدل.", resume=accept(ONLY_PRESET)
    )
    optimization_level: OptimizationLevel = setting(
        "enhanced",
        "Preset of compilation and precision: for debugging, as usual, or with all optimisations.",
        fa="preset کامپایل، دقت عددی و تنظیم خودکار: برای دیباگ، معمول، یا با همهٔ بهینه‌سازی‌ها.",
        resume=accept(ONLY_PRESET),
    )
    gpu_card: GpuCard | None = setting(
        None,
        "Preset of batch size, threads and buffer for a graphics card.",
        fa="preset اندازهٔ batch، تعداد تردها و اندازهٔ بافر برای یک کارت گرافیک.",
        resume=accept(ONLY_PRESET),
    )


SECTIONS: Mapping[str, type[Section]] = {"data": DataConfig, "model": ModelConfig, "training": TrainingConfig}
_ALL_SECTIONS: tuple[type[Section], ...] = (Selectors, *SECTIONS.values())

FIELDS: Mapping[str, FieldInfo] = {
    dotted_key(section, name): field for section in _ALL_SECTIONS for name, field in section.model_fields.items()
}
"""Every setting by its full name: model_size, data.batch_size, ..."""

META: Mapping[str, Meta] = {key: read_meta(field) for key, field in FIELDS.items()}
"""The declaration of each setting: Persian description, resume rule, scope, wording of the allowed values."""

_FULL_NAMES = {key.rpartition(".")[2]: key for key in FIELDS}
assert len(_FULL_NAMES) == len(FIELDS), "a name in two sections would make the flat form ambiguous"
_OLD_NAMES = {
    written: dotted_key(section, name)
    for section in _ALL_SECTIONS
    for old, name in section.list_old_names().items()
    for written in (old, dotted_key(section, old))
}
assert not _OLD_NAMES.keys() & {*FIELDS, *_FULL_NAMES}, "an old name is that of another setting"


def find_key(name: str, origin: str) -> str:
    """Returns the full key of `name`, given with or without its section: `batch_size` -> `data.batch_size`.

    `name` may be an old one. Raises ConfigError, with the nearest known key, where there is none. `origin` says in
    the message who asked.
    """
    if name in FIELDS:
        return name
    if name in _FULL_NAMES:
        return _FULL_NAMES[name]
    if name in _OLD_NAMES:
        return _OLD_NAMES[name]
    problem, next_step = describe_unknown_key(name, origin, _find_nearest_key(name))
    raise ConfigError(problem, next_step=next_step)


def _find_nearest_key(name: str) -> str | None:
    """Returns the key that a misspelt `name` most resembles, or None.

    A right name in the wrong section comes first, then the last component alone, then the whole dotted name.
    """
    section, _, last = name.rpartition(".")
    if last in _FULL_NAMES:
        return _FULL_NAMES[last]
    nearest = find_nearest(last, [*_FULL_NAMES] if section else [*_FULL_NAMES, *SECTIONS])
    return _FULL_NAMES.get(nearest, nearest) if nearest else find_nearest(name, FIELDS)


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of `myxtts config`: a resolved value, its origin and its declaration."""

    key: str
    value: Scalar
    origin: str
    default: Scalar
    description: str
    allowed: str


def list_settings(config: XTTSConfig) -> list[Setting]:
    """Lists all settings of a resolved configuration in the order of the schema."""
    return [
        Setting(
            key=key,
            value=look_up(config, key),
            origin=config.origins[key],
            default=field.default,
            description=field.description or "",
            allowed=describe_allowed(field),
        )
        for key, field in FIELDS.items()
    ]


def look_up(config: XTTSConfig, key: str) -> Scalar:
    """Returns the value of a full key; at the top level there is no section to go through."""
    section, _, name = key.rpartition(".")
    value = getattr(getattr(config, section) if section else config, name)
    assert value is None or isinstance(value, str | int | float), key
    return value
