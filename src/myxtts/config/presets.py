"""The presets that ship with the package: YAML files of ordinary settings, applied between defaults and the user's."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from myxtts.config.catalogue import find_key
from myxtts.config.safe_yaml import parse_yaml
from myxtts.config.selectors import Selectors

_FILE_PREFIXES = {"model_size": "size", "optimization_level": "level", "gpu_card": "card"}


def find_presets(selectors: Selectors) -> list[tuple[str, Mapping[str, object]]]:
    """Name and settings (by full key) of every preset that is selected, the stronger ones last: a card knows better
    than a model size what fits into its memory."""
    chosen = ((selector, getattr(selectors, selector)) for selector in _FILE_PREFIXES)
    return [(name, read_preset(selector, name)) for selector, name in chosen if name is not None]


@cache
def read_preset(selector: str, name: str) -> Mapping[str, object]:
    """The settings of one preset, such as the model_size called tiny."""
    file_name = f"{_FILE_PREFIXES[selector]}-{name}.yaml"
    text = files("myxtts.config").joinpath("presets", file_name).read_text("utf-8")
    data, _ = parse_yaml(text, file_name)
    settings: dict[str, object] = {}
    for section, values in data.items():
        assert isinstance(values, dict), f"{file_name}: {section} is no section"
        settings |= {find_key(f"{section}.{key}", file_name): value for key, value in values.items()}
    return MappingProxyType(settings)
