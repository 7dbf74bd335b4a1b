"""Compares the configuration of a resumed run with the one it was begun with, and accepts or refuses each difference.

A setting is refused if it changes the shapes of weights, the features, the order of the utterances or the loss: the run
would continue as a different one. The declaration of each setting (`META`) says which it is, and why.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from myxtts.config.catalogue import META, list_settings
from myxtts.config.schema import PATH_KEYS, XTTSConfig
from myxtts.config.setting import NEW_SELECTION, NEW_SHAPES
from myxtts.config.values import Scalar, show_value
from myxtts.errors import ConfigError

_OTHER_CONTENT = f"its content has changed: {NEW_SELECTION}"
_CHANGED = {
    "durations": "utterances would be aligned in another way",
    "front end": "its texts or the text rules of this version of myxtts have changed: tokens would differ",
}
"""Reasons by the name of a fingerprint, where it is not `_OTHER_CONTENT`."""


@dataclass(frozen=True)
class Difference:
    """A setting, or a fingerprint, that is not what it was when the run was begun."""

    key: str
    old: Scalar
    new: Scalar
    is_harmful: bool
    reason: str
    is_impossible: bool = False
    """Whether the weights of the run cannot fit it, so that it is refused even with --override."""

    def describe(self) -> str:
        return f"{self.key}: {show_value(self.old)} → {show_value(self.new)} ({self.reason})"


def compare(old: XTTSConfig, new: XTTSConfig) -> list[Difference]:
    """Every setting that differs, in the order of the schema."""
    differences = []
    for before, after in zip(list_settings(old), list_settings(new), strict=True):
        # As text, because true and 1 are equal in Python.
        if repr(before.value) == repr(after.value) or _is_same_place(before.key, before.value, after.value):
            continue
        rule = META[before.key].resume
        action, reason = rule.judge(before.value, after.value)
        is_harmful = action == "refuse"
        # A switch adds variables to the checkpoint or takes some away.
        is_impossible = is_harmful and (reason == NEW_SHAPES or rule.action == "refuse_switch")
        differences.append(Difference(before.key, before.value, after.value, is_harmful, reason, is_impossible))
    return differences


def _is_same_place(key: str, old: Scalar, new: Scalar) -> bool:
    """Whether two paths lead to the same file or folder, spelt in two ways."""
    return key in PATH_KEYS and None not in (old, new) and os.path.realpath(str(old)) == os.path.realpath(str(new))


def compare_fingerprints(old: Mapping[str, str], new: Mapping[str, str]) -> list[Difference]:
    """The inputs of a run (corpus, store, durations) whose fingerprints have changed."""
    return [
        Difference(f"the {name}", _shorten(old[name]), _shorten(new[name]), True, _CHANGED.get(name, _OTHER_CONTENT))
        for name in sorted(set(old) & set(new))
        if old[name] != new[name]
    ]


def accept_or_refuse(differences: Sequence[Difference], *, override: bool) -> list[str]:
    """Sentences for the user about the differences.

    Raises ConfigError if one is harmful and not overridden, and if one is impossible whether overridden or not.
    """
    harmful = [difference for difference in differences if difference.is_harmful]
    impossible = [difference for difference in harmful if difference.is_impossible]
    if harmful and (impossible or not override):
        listing = "".join(f"\n  {difference.describe()}" for difference in (impossible if override else harmful))
        next_step = "Set them back, choose another training.run_name, or add --override to go on all the same."
        if impossible:
            next_step = (
                "Set them back. --override cannot help: the weights of the run do not fit. To begin a new run with as "
                "many of them as fit, use --run-name NAME --init-from RUN instead of --resume."
            )
        raise ConfigError(
            f"The run was begun with other settings, and cannot go on with these:{listing}\n",
            next_step=next_step,
            details={"differences": [[d.key, d.old, d.new, d.reason] for d in harmful]},
        )
    return [
        f"{'Overridden' if difference.is_harmful else 'Changed since the run was begun'}: {difference.describe()}."
        for difference in differences
    ]


def _shorten(fingerprint: str) -> str:
    return fingerprint if len(fingerprint) <= 12 else f"{fingerprint[:12]}…"
