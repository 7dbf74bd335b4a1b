"""Declares settings: default, description in English and Persian, resume rule and scope, attached to pydantic fields.

The field's annotation gives type and limits, `setting` the rest. Messages, `myxtts config`, the page of all settings,
the check before `--resume` and the vocoder's configuration read it from here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import Field
from pydantic.fields import FieldInfo

from myxtts.config.choices import join_with_or
from myxtts.config.values import Scalar, show_value

Scope = Literal["both", "voice"]
"""Which model a setting is for: the voice model and its vocoder, or the voice model alone."""

# Reasons to refuse --resume with another value, each the end of a sentence in the message.
NEW_SHAPES = "the weights would have other shapes"
NEW_WEIGHTS = "other weights would be trained, whose moments the checkpoint does not hold"
NEW_FEATURES = "the model would be trained on other features than before"
NEW_TOKENS = "the same text would give other ids"
NEW_SELECTION = "other utterances would be trained on, in another order"
NEW_BATCHES = "batches would hold other utterances, so that the position in the corpus means another place"
NEW_LOSS = "the loss would measure something else"
NEW_SCORES = "scores of the validation could not be compared with those before"

# Reasons to accept another value on --resume.
ONLY_PRESET = "it only chooses presets, and what they set is compared by itself"
ONLY_PLACE = "the content found there is compared, not the place"
ONLY_SPEED = "it changes how fast batches come, not what is in them"
ONLY_DEVICE = "a step gives the same weights wherever it is computed, up to rounding"
ONLY_REBUILD = "a feature cache that was rebuilt differently is noticed by its fingerprint"
ONLY_STOP = "it only says when to stop or when to give up"
FROM_NOW_ON = "it takes effect from this step on"
NEW_END = "training ends at another step, and the learning rate falls towards that step"


class Resume(NamedTuple):
    """Resume rule of a setting: the action of `--resume` when the value differs from that of the run, and its reason.

    `refuse_switch` refuses to turn the setting on or off (from or to 0), and accepts any other change.
    """

    action: Literal["accept", "refuse", "refuse_switch"]
    reason: str

    def judge(self, old: Scalar, new: Scalar) -> Resume:
        """Returns the rule for a change from `old` to `new`, with `refuse_switch` decided either way."""
        if self.action != "refuse_switch":
            return self
        return accept(FROM_NOW_ON) if bool(old) == bool(new) else refuse(self.reason)


def accept(reason: str) -> Resume:
    return Resume("accept", reason)


def refuse(reason: str) -> Resume:
    return Resume("refuse", reason)


def refuse_switch(reason: str) -> Resume:
    return Resume("refuse_switch", reason)


class Words(NamedTuple):
    """A text in both languages of the documentation."""

    en: str
    fa: str


@dataclass(frozen=True, slots=True)
class Meta:
    """The part of a declaration that pydantic has no field for, kept in `json_schema_extra`."""

    fa: str
    resume: Resume
    scope: Scope
    allowed: Words | None
    old_name: str


def setting(
    default: Scalar,
    en: str,
    *,
    fa: str,
    resume: Resume,
    scope: Scope = "both",
    allowed: Words | None = None,
    old_name: str = "",
) -> Any:
    """Declares a setting: `en` and `fa` describe it in a sentence, `resume` says whether a run may change it.

    `allowed` describes the accepted values where annotation and limits do not say it all, such as for a pattern.
    `old_name` is an earlier name, still accepted in files (those of runs too), on the command line and in Python.
    """
    meta = Meta(fa, resume, scope, allowed, old_name)
    # Any, because a field is declared with the type of its value and pydantic replaces this object by it.
    return Field(default=default, description=en, json_schema_extra=asdict(meta))


def read_meta(field: FieldInfo) -> Meta:
    """Returns what `setting` stored in the field."""
    assert isinstance(field.json_schema_extra, dict), "the field was not declared by `setting`"
    extra: dict[str, Any] = dict(field.json_schema_extra)
    allowed = extra["allowed"] and Words(*extra["allowed"])
    return Meta(extra["fa"], Resume(*extra["resume"]), extra["scope"], allowed, extra["old_name"])


_KINDS: dict[object, str] = {int: "a whole number", float: "a number", str: "text", NoneType: "null"}
# Attribute names of annotated_types constraints, which pydantic makes of Field(ge=..., ...).
_LIMITS = {"ge": "of at least", "gt": "above", "le": "up to", "lt": "below"}


def describe_allowed(field: FieldInfo) -> str:
    """Returns the accepted values in plain words, for instance `a whole number of at least 1 or "auto"`."""
    if allowed := read_meta(field).allowed:
        return allowed.en
    return join_with_or(list(_describe_parts(field.annotation, field.metadata)))


def accepts_text(field: FieldInfo) -> bool:
    """Whether any text may be given (so that 2024 on the command line is a name, not a number)."""
    kinds = get_args(field.annotation) or (field.annotation,)
    return any(kind is str or get_args(kind)[:1] == (str,) for kind in kinds)


def _describe_parts(annotation: Any, metadata: Iterable[object]) -> Iterable[str]:
    """Yields the alternatives of a type annotation in words, unions and Annotated limits resolved recursively."""
    if get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _describe_parts(member, metadata)
    elif get_origin(annotation) is Annotated:
        member, *nested = get_args(annotation)
        yield from _describe_parts(member, [*metadata, *_unwrap(nested)])
    elif get_origin(annotation) is Literal:
        yield from (show_value(value) for value in get_args(annotation))
    elif annotation is bool:
        yield from ("true", "false")
    else:
        limits = _describe_limits(metadata) if annotation in (int, float) else ""
        yield f"{_KINDS[annotation]}{limits}"


def _unwrap(metadata: Iterable[object]) -> Iterable[object]:
    """Yields constraint objects; `Field(ge=1)` inside Annotated holds them in its own metadata."""
    for item in metadata:
        yield from item.metadata if isinstance(item, FieldInfo) else (item,)


def _describe_limits(metadata: Iterable[object]) -> str:
    """Puts ge, gt, le and lt constraints into words: ` from 1 to 8`, ` above 0`."""
    limits = {name: value for item in metadata for name in _LIMITS if (value := getattr(item, name, None)) is not None}
    if set(limits) == {"ge", "le"}:
        return f" from {limits['ge']} to {limits['le']}"
    parts = [f"{words} {limits[name]}" for name, words in _LIMITS.items() if name in limits]
    return f" {' and '.join(parts)}" if parts else ""
