"""Base class of the configuration models: immutable and strict, with pydantic's errors turned into a ConfigError.

Every message names the key, the value, its origin and what is allowed instead. pydantic would name Python types and its
own error codes; here each key is reported once, in the words of `setting.describe_allowed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from myxtts.config.setting import describe_allowed, read_meta
from myxtts.config.values import show_value
from myxtts.errors import ConfigError

ARGUMENT_ORIGIN = "argument"
DEFAULT_ORIGIN = "default"


class Contradiction(ValueError):  # noqa: N818 (pydantic collects ValueErrors; users meet it as a ConfigError)
    """Raised by a validator where settings of a section exclude each other; `keys` are names without the section."""

    def __init__(self, problem: str, *, keys: tuple[str, ...], next_step: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.keys = keys
        self.next_step = next_step


class Section(BaseModel):
    """A group of settings. `section_name` is its name in YAML, empty for the settings at the top."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True, allow_inf_nan=False)
    section_name: ClassVar[str] = ""

    def __init__(self, **values: Any) -> None:
        self._fill_fields(values, {})

    @classmethod
    def list_old_names(cls) -> dict[str, str]:
        """Earlier names of settings, with the present ones."""
        declared = {name: field for name, field in cls.model_fields.items() if field.json_schema_extra}
        return {old: name for name, field in declared.items() if (old := read_meta(field).old_name)}

    @model_validator(mode="before")
    @classmethod
    def _rename(cls, values: Any) -> Any:
        """Gives values under an old name to the present one."""
        old_names = cls.list_old_names()
        if not isinstance(values, Mapping) or not old_names.keys() & values.keys():
            return values
        for old, name in old_names.items():
            if old in values and name in values:
                advice = f"Keep {name}: {old} is its old name."
                raise Contradiction(f"{name} and {old} are the same setting", keys=(name,), next_step=advice)
        return {old_names.get(name, name): value for name, value in values.items()}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            present = type(self).list_old_names().get(name)
            return super().__getattr__(name) if present is None else getattr(self, present)

    @classmethod
    def build(cls, values: Mapping[str, object], origins: Mapping[str, str]) -> Self:
        """As the constructor, with the origin of each value (by dotted key) for the messages."""
        section = cls.__new__(cls)
        section._fill_fields(values, origins)
        return section

    def _fill_fields(self, values: Mapping[str, object], origins: Mapping[str, str]) -> None:
        """Validates `values` into this instance; subclasses replace `__init__` but not this."""
        with _translate_errors(type(self), values, origins):
            BaseModel.__init__(self, **values)

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        with _translate_errors(cls, {}, {}):
            return super().model_validate(obj, **options)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        with _translate_errors(cls, {}, {}):
            return super().model_validate_json(json_data, **options)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Returns a copy with the values of `update`, validated; pydantic's own does not validate them."""
        if not update:
            return super().model_copy(deep=deep)
        return type(self)(**{**dict(self), **update})

    def __setattr__(self, name: str, value: object) -> None:
        """Raises ConfigError with the way to make a changed copy; pydantic would raise a ValidationError."""
        if name.startswith("_"):
            super().__setattr__(name, value)
            return
        raise ConfigError(
            f"{dotted_key(type(self), name)} cannot be changed: a configuration never changes once it is made.",
            next_step=f"Make a changed copy with config.model_copy(update={{{name!r}: {show_value(value)}}}).",
        )


def dotted_key(section: type[Section], name: str) -> str:
    """The full name of a setting: `data.batch_size`, or `model_size` at the top."""
    return f"{section.section_name}.{name}" if section.section_name else name


def find_nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the closest match by difflib at its default cutoff, or None."""
    matches = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


@contextmanager
def _translate_errors(
    section: type[Section], values: Mapping[str, object], origins: Mapping[str, str]
) -> Iterator[None]:
    """Turns pydantic's ValidationError into one ConfigError with a line for each key."""
    try:
        yield
    except ValidationError as error:
        problems: dict[str, tuple[str, str]] = {}
        for detail in error.errors(include_url=False):
            name = str(detail["loc"][0]) if detail["loc"] else ""
            if name not in problems:
                problems[name] = _describe_problem(section, name, detail, values, origins)
        listing, next_step = next(iter(problems.values()))
        if len(problems) > 1:
            listing = "\n".join(problem for problem, _ in problems.values())
            next_step = f"Correct these {len(problems)} settings."
        raise ConfigError(listing, next_step=next_step) from None


def _describe_problem(
    section: type[Section], name: str, detail: Any, values: Mapping[str, object], origins: Mapping[str, str]
) -> tuple[str, str]:
    """Returns problem and next step for one pydantic error: contradiction, unknown key or refused value."""
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, Contradiction):
        named = [dotted_key(section, key) for key in cause.keys]
        places = ", ".join(f"{key}: {origins.get(key, _guess_origin(key, values))}" for key in named)
        return f"{cause.problem} ({places}).", cause.next_step
    if not name:
        return f"{section.__name__} needs settings by name, not {show_value(detail['input'])}.", "Pass key=value pairs."
    key = dotted_key(section, name)
    origin = origins.get(key, ARGUMENT_ORIGIN)
    if name not in section.model_fields:
        nearest = find_nearest(name, section.model_fields)
        return describe_unknown_key(key, origin, dotted_key(section, nearest) if nearest else None)
    field = section.model_fields[name]
    value = values.get(name, detail["input"])
    allowed = describe_allowed(field)
    reason = f" ({cause})" if isinstance(cause, ValueError) else ""
    instead = "" if field.default is None else f" to use {show_value(field.default)}"
    return (
        f"{key} is {show_value(value)} ({origin}), but it must be {allowed}{reason}.",
        f"Change it, or leave it out{instead}.",
    )


def _guess_origin(key: str, values: Mapping[str, object]) -> str:
    """For sections built directly in Python, where no layer recorded origins."""
    return ARGUMENT_ORIGIN if key.rpartition(".")[2] in values else DEFAULT_ORIGIN


def describe_unknown_key(key: str, origin: str, nearest: str | None) -> tuple[str, str]:
    """Problem and next step for a key that does not exist; `nearest` is the full name it may have been meant to be."""
    next_step = f"Did you mean {nearest}?" if nearest else "Run `myxtts config` to see all settings."
    return f"{key} ({origin}) is not a setting.", next_step
