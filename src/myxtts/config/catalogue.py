"""All settings by name: which exist, what is declared of each, and which one a misspelt name was meant to be."""

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

    # A type checker cannot know the files of a folder.
    ModelSize = str
    OptimizationLevel = str
    GpuCard = str
else:
    ModelSize, OptimizationLevel, GpuCard = (Literal[tuple(list_presets(selector))] for selector in SELECTORS)


class Selectors(Section):
    """The settings at the top of a configuration, which choose presets."""

    model_size: ModelSize = setting(
        "small", "Preset of the model's shape.", fa="پیش‌تنظیم اندازه و شکل مدل.", resume=accept(ONLY_PRESET)
    )
    optimization_level: OptimizationLevel = setting(
        "enhanced",
        "Preset of compilation, precision and tuning: plain, usual, or the fastest that may fail.",
        fa="پیش‌تنظیم کامپایل، دقت اعداد و تنظیم خودکار: ساده، معمول، یا سریع‌ترین که شاید شکست بخورد.",
        resume=accept(ONLY_PRESET),
    )
    gpu_card: GpuCard | None = setting(
        None,
        "Preset of batch size, threads and buffer for a graphics card.",
        fa="پیش‌تنظیم اندازهٔ دسته، شمار رشته‌های پردازشی و اندازهٔ میان‌گیر برای یک کارت گرافیک.",
        resume=accept(ONLY_PRESET),
    )


SECTIONS: Mapping[str, type[Section]] = {"data": DataConfig, "model": ModelConfig, "training": TrainingConfig}
_ALL_SECTIONS: tuple[type[Section], ...] = (Selectors, *SECTIONS.values())

FIELDS: Mapping[str, FieldInfo] = {
    dotted_key(section, name): field for section in _ALL_SECTIONS for name, field in section.model_fields.items()
}
"""Every setting by its full name: model_size, data.batch_size, ..."""

META: Mapping[str, Meta] = {key: read_meta(field) for key, field in FIELDS.items()}
"""What `setting` was given for each."""

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
    """The setting that was most likely meant: by its own name in whatever section, else by the whole name."""
    section, _, last = name.rpartition(".")
    if last in _FULL_NAMES:
        return _FULL_NAMES[last]
    nearest = find_nearest(last, [*_FULL_NAMES] if section else [*_FULL_NAMES, *SECTIONS])
    return _FULL_NAMES.get(nearest, nearest) if nearest else find_nearest(name, FIELDS)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a resolved configuration: its value, where that came from, and its declaration."""

    key: str
    value: Scalar
    origin: str
    default: Scalar
    description: str
    allowed: str


def list_settings(config: XTTSConfig) -> list[Setting]:
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


def _look_up(config: XTTSConfig, key: str) -> Scalar:
    section, _, name = key.rpartition(".")
    value = getattr(getattr(config, section) if section else config, name)
    assert value is None or isinstance(value, str | int | float), key
    return value
