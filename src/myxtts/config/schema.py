"""`XTTSConfig`: the root model of the configuration, validated and immutable, with the origin of each value."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from pydantic import Field, PrivateAttr

from myxtts.config.catalogue import Selectors, list_settings
from myxtts.config.data import DataConfig
from myxtts.config.load import (
    Entry,
    FlagValue,
    Layer,
    collect_argument_layer,
    collect_flag_layer,
    format_yaml,
    read_file_layer,
    resolve_settings,
)
from myxtts.config.model import ModelConfig
from myxtts.config.training import TrainingConfig

__all__ = ["PATH_KEYS", "DataConfig", "ModelConfig", "TrainingConfig", "XTTSConfig"]

PATH_KEYS = (
    *("data.train_data", "data.val_data", "data.cache_dir", "data.lexicon", "data.persian_homographs"),
    "training.run_dir",
)
"""Settings that are paths; relative ones are seen from the working folder."""


class XTTSConfig(Selectors):
    """The whole configuration: sections `data`, `model` and `training`, and the preset selectors.

    Settings are given flat (`XTTSConfig(batch_size=32)`), dotted (`load(**{"data.batch_size": 32})`) or by section
    (`XTTSConfig(data={"batch_size": 32})`). Defaults < preset < YAML < arguments < flags.
    """

    data: DataConfig = Field(description="Corpus, features and data pipeline.")
    model: ModelConfig = Field(description="Shape of the model.")
    training: TrainingConfig = Field(description="The training run.")

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)
    _given: Layer = PrivateAttr(default_factory=dict)

    def __init__(self, **values: Any) -> None:
        self._resolve(collect_argument_layer(values))

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        flags: Mapping[str, object] | Iterable[FlagValue] | None = None,
        **overrides: object,
    ) -> Self:
        """Loads the YAML file `path`, with `overrides` above it and `flags` above both.

        `flags` come from a command line, by key or as FlagValue: None means "not given", and text is read as a YAML
        value, so that `--set data.batch_size=48` gives a number.
        """
        given = read_file_layer(path) if path is not None else {}
        given |= collect_argument_layer(overrides)
        given |= collect_flag_layer(flags or ())
        config = cls.__new__(cls)
        config._resolve(given)
        return config

    def _resolve(self, given: Layer) -> None:
        """Fills the fields from the layers in `given`, which are kept so that `model_copy` can resolve them again."""
        resolved = resolve_settings(given)
        self._fill_fields({**dict(resolved.selectors), **resolved.sections}, resolved.origins)
        self._origins = resolved.origins
        self._given = given

    @property
    def origins(self) -> Mapping[str, str]:
        """Origin of each value by full key: "default", "preset small", "config.yaml:12", "--batch-size"."""
        return MappingProxyType(self._origins)

    def list_old_settings(self) -> list[tuple[str, str, str]]:
        """Settings that were given under an old name: that name, the present key, and where it was given."""
        return [(entry.old_name, key, entry.origin) for key, entry in self._given.items() if entry.old_name]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Returns a copy with the settings of `update` (flat, dotted or by section), resolved and validated again.

        Resolving again lets `update` change a selector: `model_size` brings the other settings of its preset along.
        """
        copy = super().model_copy(deep=deep)
        if update:
            copy._resolve(self._given | collect_argument_layer(update))
        return copy

    def anchor_paths(self, folder: str | Path) -> Self:
        """Returns a copy whose relative paths are absolute, as seen from `folder`; the origins of values stay."""
        anchored: Layer = {}
        for setting in list_settings(self):
            if setting.key in PATH_KEYS and setting.value is not None:
                path = os.path.normpath(Path(folder).absolute() / str(setting.value))
                anchored[setting.key] = Entry(path, setting.origin)
        copy = super().model_copy()
        if anchored:
            copy._resolve(self._given | anchored)
        return copy

    def to_yaml(self) -> str:
        """All settings as YAML that `load` reads back as an equal configuration."""
        return format_yaml(self)

    def __eq__(self, other: object) -> bool:
        # Configurations with equal values are equal, whatever their origins.
        return isinstance(other, XTTSConfig) and dict(self) == dict(other)

    def __hash__(self) -> int:
        return hash(tuple(dict(self).values()))
