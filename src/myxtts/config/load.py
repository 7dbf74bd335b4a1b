"""Resolves a configuration from its layers (defaults < presets < YAML < arguments < flags) and writes it as YAML.

Each layer is a flat mapping of full keys to values with their origin (file and line, flag, preset), which messages and
listings name. Layers are merged by dict update, later ones winning; only the merged result is validated, so a value
that is overridden need not be valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from myxtts.config.catalogue import FIELDS, SECTIONS, Selectors, find_key, list_settings
from myxtts.config.choices import SELECTORS, list_presets
from myxtts.config.section import ARGUMENT_ORIGIN, DEFAULT_ORIGIN, Section, dotted_key
from myxtts.config.setting import accepts_text
from myxtts.config.values import format_scalar, resolve_scalar, show_value
from myxtts.config.yaml import read_yaml
from myxtts.errors import ConfigError
from myxtts.storage.atomic import write_file

if TYPE_CHECKING:
    from myxtts.config.schema import XTTSConfig

RESOLVED_FILE_NAME = "config.yaml"
"""Written into the folders of runs, corpora and stores; --resume compares the settings with those of the run's."""


class Entry(NamedTuple):
    """A value of one layer and its origin, such as `config.yaml:12`; `old_name` if it was given under one."""

    value: object
    origin: str
    old_name: str = ""


class FlagValue(NamedTuple):
    """A value from the command line with the flag as typed, since --format sets `data.corpus_format`."""

    key: str
    value: object
    flag: str


Layer = dict[str, Entry]
"""Entries by full key."""


class Resolved(NamedTuple):
    """Result of the resolution: validated sections, and the origin of each value by full key."""

    selectors: Selectors
    sections: dict[str, Section]
    origins: dict[str, str]


def resolve_settings(given: Layer) -> Resolved:
    """Merges defaults < presets < `given` and validates the result section by section.

    The selectors in `given` are validated first, because they decide which presets are merged.
    """
    selector_values = {key: entry.value for key, entry in given.items() if key in Selectors.model_fields}
    selectors = Selectors.build(selector_values, {key: given[key].origin for key in selector_values})
    entries: Layer = {}
    for selector in SELECTORS:
        name = getattr(selectors, selector)
        if name is not None:
            entries |= {key: Entry(value, f"preset {name}") for key, value in read_preset(selector, name).items()}
    entries |= given
    origins = {key: entries[key].origin if key in entries else DEFAULT_ORIGIN for key in FIELDS}
    sections = {name: _build_section(section, entries, origins) for name, section in SECTIONS.items()}
    return Resolved(selectors, sections, origins)


def _build_section(section: type[Section], entries: Layer, origins: Mapping[str, str]) -> Section:
    """Validates one section from merged entries and defaults, so that errors can name the origin of each value."""
    values: dict[str, object] = {}
    for name, field in section.model_fields.items():
        key = dotted_key(section, name)
        values[name] = entries[key].value if key in entries else field.default
    return section.build(values, origins)


def read_preset(selector: str, name: str) -> Mapping[str, object]:
    """Returns the settings of one preset by full key, for instance of `model_size` `tiny`."""
    return _read_presets(selector)[name]


@cache
def _read_presets(selector: str) -> Mapping[str, Mapping[str, object]]:
    """Reads all presets of a selector; each gets every key that any of them states, at its default if unstated.

    So a preset overrides a weaker selector also where its value is the default.
    """
    stated = {name: read_file_layer(path) for name, path in list_presets(selector).items()}
    keys = [key for key in FIELDS if any(key in layer for layer in stated.values())]
    return {
        name: MappingProxyType({key: layer[key].value if key in layer else FIELDS[key].default for key in keys})
        for name, layer in stated.items()
    }


def read_file_layer(path: str | Path) -> Layer:
    """Reads a YAML file as a layer; the origin of each entry is `file:line`."""
    data, lines = read_yaml(path)
    place = "".join(char if char.isprintable() else "?" for char in str(path))
    return _collect_layer(data, lambda names: f"{place}:{lines[names]}")


def collect_argument_layer(values: Mapping[str, object]) -> Layer:
    """Makes the layer of Python keyword arguments."""
    return _collect_layer(values, lambda _: ARGUMENT_ORIGIN)


def _collect_layer(values: Mapping[str, object], find_origin: Callable[[tuple[str, ...]], str]) -> Layer:
    """Flattens nested sections and short names to full keys. `find_origin` maps the path of names to an origin."""
    layer: Layer = {}
    for name, value in values.items():
        if name not in SECTIONS:
            _add_entry(layer, name, Entry(value, find_origin((name,))))
            continue
        for key, nested in _open_section(name, value, find_origin((name,))).items():
            _add_entry(layer, f"{name}.{key}", Entry(nested, find_origin((name, key))))
    return layer


def collect_flag_layer(flags: Mapping[str, object] | Iterable[FlagValue]) -> Layer:
    """Makes the layer of the command line: None means the flag was not given, and text is parsed as a YAML scalar."""
    if isinstance(flags, Mapping):
        flags = [FlagValue(name, value, _name_flag(name)) for name, value in flags.items()]
    layer: Layer = {}
    for name, value, flag in flags:
        if value is not None:
            key = find_key(name, flag)
            _add_entry(layer, name, Entry(_parse_flag_text(key, value) if isinstance(value, str) else value, flag))
    return layer


def _add_entry(layer: Layer, name: str, entry: Entry) -> None:
    """Adds a setting under its full name; ConfigError if it is there already, flat and in its section."""
    key = find_key(name, entry.origin)
    if key in layer:
        raise ConfigError(
            f"{key} is given twice: {show_value(layer[key].value)} ({layer[key].origin}) "
            f"and {show_value(entry.value)} ({entry.origin}).",
            next_step="Keep one of the two.",
        )
    is_old = name.rpartition(".")[2] != key.rpartition(".")[2]
    layer[key] = entry._replace(old_name=name) if is_old else entry


def _open_section(name: str, value: object, origin: str) -> Mapping[str, object]:
    """Returns the settings under a section key, which may be null, a mapping or a section object."""
    if value is None:
        return {}
    if isinstance(value, SECTIONS[name]):
        # Only what was set explicitly: the rest is still open to presets and files.
        return {key: getattr(value, key) for key in value.model_fields_set}
    if isinstance(value, Mapping):
        return value
    raise ConfigError(
        f"{name} is {show_value(value)} ({origin}), but it is a section of settings.",
        next_step=f"Put settings under it, such as {name}.{next(iter(SECTIONS[name].model_fields))}.",
    )


def _name_flag(name: str) -> str:
    """Reconstructs the flag of a key given without one: `--batch-size`, but `--set data.batch_size` if dotted."""
    return f"--set {name}" if "." in name else f"--{name.replace('_', '-')}"


def _parse_flag_text(key: str, text: str) -> object:
    """Parses a YAML scalar, except for settings of type str: a path called 2024 stays text."""
    if accepts_text(FIELDS[key]):
        return None if text == "null" else text
    return resolve_scalar(text.strip())


def format_yaml(config: XTTSConfig) -> str:
    """Formats every setting as YAML by section; values that are not the default carry their origin as a comment."""
    lines: list[str] = []
    section = ""
    for setting in list_settings(config):
        home, _, name = setting.key.rpartition(".")
        if home != section:
            section = home
            lines += ["", f"{section}:"]
        indent = "  " if section else ""
        comment = f"  # {setting.origin}" if setting.value != setting.default else ""
        lines.append(f"{indent}{name}: {format_scalar(setting.value)}{comment}")
    return "\n".join(lines) + "\n"


def write_resolved(config: XTTSConfig, directory: str | Path) -> Path:
    """Writes `config.yaml` into `directory` atomically, creating the folder; returns the path."""
    path = Path(directory) / RESOLVED_FILE_NAME
    write_file(path, format_yaml(config).encode())
    return path
