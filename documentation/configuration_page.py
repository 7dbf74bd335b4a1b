"""The page of all settings, made from the schema: key, flag, default, allowed values, effect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from documentation.configuration_words import GROUPS, PAGE_WORDS, ConfigurationWords
from documentation.persian_settings import PERSIAN_DESCRIPTIONS, say_allowed_in_persian
from documentation.words import Language
from myxtts.cli.settings import SETTING_FLAGS
from myxtts.config.catalogue import FIELDS
from myxtts.config.load import read_preset
from myxtts.config.values import Scalar, describe_allowed, format_scalar
from myxtts.training.run.resume_check import HARMFUL

_VALUES = re.compile(r'"([^"]*)"|\b(true|false|null)\b')
_PRESETS: Mapping[str, tuple[str, ...]] = {
    "model_size": ("tiny", "small", "normal", "big"),
    "optimization_level": ("basic", "enhanced", "experimental"),
    "gpu_card": ("rtx4090", "rtx3090", "rtx3060"),
}


def make_configuration_page(language: Language) -> str:
    """The whole page as Markdown; the same schema gives the same page."""
    words = PAGE_WORDS[language]
    parts = [words.introduction, f"## {words.layers}\n\n{words.layers_text}"]
    for group in list_groups():
        rows = "\n".join(_make_row(key, language, words) for key in group.keys)
        parts.append(f"## {GROUPS[group.name][language]}\n\n{_make_heading(words.columns)}\n{rows}")
    parts.append(f"## {words.presets}\n\n{words.presets_text}")
    for selector, names in _PRESETS.items():
        parts.append(f"### `{selector}`\n\n{_make_preset_table(selector, names, words)}")
    return "\n\n".join(parts) + "\n"


class Group:
    """Settings that belong together, in the order of the schema."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.keys: list[str] = []


def list_groups() -> list[Group]:
    """A group begins with the key that `GROUPS` names and ends where the next begins."""
    groups: list[Group] = []
    for key in FIELDS:
        if key in GROUPS:
            groups.append(Group(key))
        assert groups, f"{key} comes before the first group"
        groups[-1].keys.append(key)
    return groups


def describe_setting(key: str, language: Language) -> str:
    return FIELDS[key].description or "" if language == "en" else PERSIAN_DESCRIPTIONS[key]


def _make_row(key: str, language: Language, words: ConfigurationWords) -> str:
    field = FIELDS[key]
    allowed = describe_allowed(field)
    allowed = allowed if language == "en" else say_allowed_in_persian(allowed)
    flag = next((f"<br>`{one.flag}`" for one in SETTING_FLAGS if key in one.keys), "")
    effect = describe_setting(key, language) + (f" {words.fixed_mark}" if key in HARMFUL else "")
    default = f"`{format_scalar(_read_default(field.default))}`"
    cells = (f"`{key}`{flag}", default, _VALUES.sub(r"`\1\2`", allowed), effect)
    return f"| {' | '.join(cells)} |"


def _read_default(value: object) -> Scalar:
    assert value is None or isinstance(value, str | int | float), value
    return value


def _make_preset_table(selector: str, names: tuple[str, ...], words: ConfigurationWords) -> str:
    presets = {name: read_preset(selector, name) for name in names}
    keys = dict.fromkeys(key for preset in presets.values() for key in preset)
    return "\n".join((_make_heading((words.key, *(f"`{name}`" for name in names))), *_compare_presets(keys, presets)))


def _compare_presets(keys: Mapping[str, object], presets: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    for key in keys:
        values = (format_scalar(_read_default(preset[key])) if key in preset else "" for preset in presets.values())
        yield f"| `{key}` | {' | '.join(f'`{value}`' if value else '' for value in values)} |"


def _make_heading(columns: tuple[str, ...]) -> str:
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
