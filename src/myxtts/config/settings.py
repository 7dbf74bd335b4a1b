"""Lists every setting of a configuration with its origin and meaning, for `myxtts config` and the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from myxtts.config.allowed import describe_allowed
from myxtts.config.catalogue import FIELDS
from myxtts.config.scalars import Scalar


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
