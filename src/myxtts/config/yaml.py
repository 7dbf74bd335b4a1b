"""Reads a YAML file as plain data with the line of every key; refuses tags, anchors, aliases and duplicate keys.

Values are built from parser events, so no tag can construct an object and an alias is refused before it expands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import yaml

from myxtts.config.values import Scalar, resolve_scalar, show_value
from myxtts.errors import ConfigError
from myxtts.storage.regular_file import FileRefusedError, open_regular

MAX_YAML_BYTES = 1_000_000
"""A complete configuration has a few kilobytes; a larger file is most likely another one."""
MAX_YAML_DEPTH = 20
"""Settings nest two levels; the limit keeps the recursive builder from overflowing the stack."""

YamlData = Scalar | list["YamlData"] | dict[str, "YamlData"]
KeyLines = dict[tuple[str, ...], int]
"""Line of each key, by the names that lead to it: ("data", "batch_size") -> 12."""

# The parser in C (libyaml) where PyYAML was built with it.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
_CORE_TAG = "tag:yaml.org,2002:"
_TAG_TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (float, int), "bool": (bool,), "null": (type(None),)}


def read_yaml(path: str | Path) -> tuple[dict[str, YamlData], KeyLines]:
    """Returns the mapping in the file `path`, and the line of each key. Raises ConfigError with file:line:column."""
    raw = _read_limited(Path(path))
    return parse_yaml(_decode(raw, str(path)), str(path))


def parse_yaml(text: str, name: str) -> tuple[dict[str, YamlData], KeyLines]:
    """As `read_yaml`, for text; `name` stands for the file in messages. An empty document is an empty mapping."""
    _refuse_control_characters(text, name)
    builder = _Builder(name)
    try:
        data = builder.build(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        problem = error.problem or error.context or "it cannot be parsed"
        raise ConfigError(
            f"{place}: this is not valid YAML: {problem}.",
            next_step="Check the indentation, colons and quotes on that line and the one before.",
        ) from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{name}: this is not valid YAML: {reason}.", next_step="Save the file as plain UTF-8 text."
        ) from None
    return data, builder.lines


class _Builder:
    """Recursive-descent builder over PyYAML's event stream, which has neither resolved tags nor expanded aliases."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: KeyLines = {}

    def build(self, events: Iterator[Any]) -> dict[str, YamlData]:
        """Consumes the events of exactly one document whose root is a mapping or empty."""
        next(events)  # the start of the stream
        if isinstance(next(events), yaml.StreamEndEvent):
            return {}
        first = next(events)
        data = self._read_node(first, events, ())
        next(events)  # the end of the document
        following = next(events)
        if not isinstance(following, yaml.StreamEndEvent):
            self._refuse(following, "a second document begins here", "Keep one document in the file.")
        if data is None:
            return {}
        if not isinstance(data, dict):
            self._refuse(
                first,
                f"the file holds {_name_kind(data)}, not settings",
                "Write lines such as 'data:' and 'key: value'.",
            )
        return data

    def _read_node(self, event: Any, events: Iterator[Any], path: tuple[str, ...], depth: int = 1) -> YamlData:
        """Builds a value from its first event, recursively; `path` are the keys that lead to it."""
        if isinstance(event, yaml.AliasEvent):
            self._refuse(event, f"the alias *{event.anchor} is not allowed", "Write the value out where it is needed.")
        if event.anchor is not None:
            self._refuse(event, f"the anchor &{event.anchor} is not allowed", "Write the value out where it is needed.")
        if isinstance(event, yaml.ScalarEvent):
            return self._read_scalar(event)
        if depth > MAX_YAML_DEPTH:
            self._refuse(event, f"more than {MAX_YAML_DEPTH} levels are nested", "Settings need two levels at most.")
        if isinstance(event, yaml.SequenceStartEvent):
            self._check_tag(event, "seq")
            return [self._read_node(item, events, path, depth + 1) for item in iter(lambda: _next_item(events), None)]
        assert isinstance(event, yaml.MappingStartEvent)
        self._check_tag(event, "map")
        return self._read_mapping(events, path, depth)

    def _read_mapping(self, events: Iterator[Any], path: tuple[str, ...], depth: int) -> dict[str, YamlData]:
        """Reads key-value pairs up to the end of the mapping; refuses duplicate keys and records lines."""
        mapping: dict[str, YamlData] = {}
        # Lists may hold several mappings under one path, so duplicates are looked for here and not in `lines`.
        first_lines: dict[str, int] = {}
        for event in iter(lambda: _next_item(events), None):
            key = self._read_key(event, events)
            line = event.start_mark.line + 1
            if key in first_lines:
                self._refuse(
                    event,
                    f"the key {show_value(key)} is here a second time; the first is on line {first_lines[key]}",
                    "Keep one of the two.",
                )
            first_lines[key] = line
            self.lines[(*path, key)] = line
            mapping[key] = self._read_node(next(events), events, (*path, key), depth + 1)
        return mapping

    def _read_key(self, event: Any, events: Iterator[Any]) -> str:
        """Returns a key; raises ConfigError unless it is a scalar that resolves to text."""
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._refuse(event, "a list or mapping cannot be a key", "Keys are plain names.")
        key = self._read_node(event, events, ())
        if not isinstance(key, str):
            self._refuse(event, f"the key {show_value(key)} is not a name", "Keys are plain names such as batch_size.")
        return key

    def _read_scalar(self, event: Any) -> Scalar:
        """Resolves a plain scalar with `resolve_scalar`; quoted ones are text. Of tags only core ones are allowed."""
        text: str = event.value
        if event.tag is None:
            return resolve_scalar(text) if event.implicit[0] else text
        kind = event.tag.removeprefix(_CORE_TAG)
        if kind == "str":
            return text
        if kind not in _TAG_TYPES or kind == event.tag:
            self._refuse_tag(event)
        value = resolve_scalar(text)
        if not isinstance(value, _TAG_TYPES[kind]):
            self._refuse(event, f"{show_value(text)} is no {kind}", "Leave the tag out.")
        return value

    def _check_tag(self, event: Any, kind: str) -> None:
        if event.tag not in (None, _CORE_TAG + kind):
            self._refuse_tag(event)

    def _refuse_tag(self, event: Any) -> NoReturn:
        self._refuse(event, f"the tag {show_value(event.tag)} is not allowed", "Leave the tag out.")

    def _refuse(self, event: Any, problem: str, next_step: str) -> NoReturn:
        """Raises ConfigError with file, line and column of the event."""
        mark = event.start_mark
        raise ConfigError(f"{self.name}:{mark.line + 1}:{mark.column + 1}: {problem}.", next_step=next_step)


def _next_item(events: Iterator[Any]) -> Any:
    """Returns the next event inside a list or mapping, None at its end."""
    event = next(events)
    return None if isinstance(event, yaml.CollectionEndEvent) else event


def _name_kind(data: YamlData) -> str:
    return "a list" if isinstance(data, list) else f"the single value {show_value(data)}"


def _read_limited(path: Path) -> bytes:
    """Reads a regular file of bounded size; a pipe or device would block or never end."""
    try:
        with open_regular(path, MAX_YAML_BYTES) as file:
            return file.read(MAX_YAML_BYTES)
    except FileRefusedError as error:
        raise ConfigError(f"{path}: {error}.", next_step="Name a YAML file, such as config.yaml.") from None
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            f"{path}: there is no such file.", next_step="Check the path, or leave it out to use the defaults."
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{path}: the file cannot be read: {error.strerror}.", next_step="Check its permissions and its disk."
        ) from None
    except ValueError:
        raise ConfigError(f"{path}: this is not a file name.", next_step="Check the path.") from None


def _decode(raw: bytes, name: str) -> str:
    """Decodes UTF-8 with or without a byte order mark; the error names line and column of the wrong byte."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Latin-1 maps every byte to one character, so that places in both agree.
        raise ConfigError(
            f"{_name_place(raw.decode('latin-1'), error.start, name)}: the byte 0x{raw[error.start]:02x} is not UTF-8.",
            next_step="Save the file as UTF-8.",
        ) from None


def _refuse_control_characters(text: str, name: str) -> None:
    """Checked before parsing, because PyYAML's ReaderError has no line."""
    match = _CONTROL.search(text)
    if match is not None:
        raise ConfigError(
            f"{_name_place(text, match.start(), name)}: the control character U+{ord(match[0]):04X} is not allowed.",
            next_step="Delete it; the file may be damaged.",
        )


def _name_place(text: str, index: int, name: str) -> str:
    return f"{name}:{text.count(chr(10), 0, index) + 1}:{index - text.rfind(chr(10), 0, index)}"
