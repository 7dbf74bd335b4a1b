"""The page of all settings, made from the schema: key, flag, default, allowed values, effect."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from documentation.configuration_words import GROUPS, PAGE_WORDS, ConfigurationWords
from documentation.words import Language
from myxtts.cli.settings import SETTING_FLAGS
from myxtts.config.catalogue import FIELDS, META
from myxtts.config.choices import SELECTORS, list_presets
from myxtts.config.load import read_preset
from myxtts.config.setting import describe_allowed
from myxtts.config.values import Scalar, format_scalar

_VALUES = re.compile(r'"([^"]*)"|\b(true|false|null)\b')
_PERSIAN_PHRASES: tuple[tuple[str, str], ...] = (
    (r"\ba whole number\b", "عدد صحیح"),
    (r"\ba number\b", "عدد"),
    (r'(?<!")\btext\b(?!")', "متن"),
    (r"\bof at least (\S+)", r"از `\1` به بالا"),
    (r"\bfrom (\S+) to (\S+)", r"از `\1` تا `\2`"),
    (r"\babove (\S+)", r"بیشتر از `\1`"),
    (r"\bup to (\S+)", r"حداکثر `\1`"),
    (r"\bbelow (\S+)", r"کمتر از `\1`"),
    (r" and ", " و "),
    (r" or ", " یا "),
    (r", ", "، "),
)
"""The words of `describe_allowed`, longer phrases first."""


def make_configuration_page(language: Language) -> str:
    """The whole page as Markdown; the same schema gives the same page."""
    words = PAGE_WORDS[language]
    parts = [words.introduction, f"## {words.layers}\n\n{words.layers_text}"]
    for first, keys in group_keys().items():
        rows = "\n".join(_make_row(key, language, words) for key in keys)
        parts.append(f"## {GROUPS[first][language]}\n\n{_make_heading(words.columns)}\n{rows}")
    parts.append(f"## {words.presets}\n\n{words.presets_text}")
    parts += [f"### `{selector}`\n\n{_make_preset_table(selector, words)}" for selector in SELECTORS]
    return "\n\n".join(parts) + "\n"


def group_keys() -> Mapping[str, list[str]]:
    """Settings in the order of the schema; a group begins with the key that `GROUPS` names."""
    groups: dict[str, list[str]] = {}
    for key in FIELDS:
        if key in GROUPS:
            groups[key] = []
        assert groups, f"{key} comes before the first group"
        groups[next(reversed(groups))].append(key)
    return groups


def say_allowed(key: str, language: Language) -> str:
    """The accepted values in plain words; values stay as one writes them."""
    allowed = describe_allowed(FIELDS[key])
    if language == "en":
        return allowed
    if declared := META[key].allowed:
        return declared.fa
    for english, persian in _PERSIAN_PHRASES:
        allowed = re.sub(english, persian, allowed)
    return allowed


def _make_row(key: str, language: Language, words: ConfigurationWords) -> str:
    field, meta = FIELDS[key], META[key]
    flag = next((f"<br>`{one.flag}`" for one in SETTING_FLAGS if key in one.keys), "")
    effect = field.description or "" if language == "en" else meta.fa
    mark = "" if meta.resume.action == "accept" else f" {words.fixed_mark}"
    default = f"`{_show_scalar(field.default)}`"
    return _join_cells((f"`{key}`{flag}", default, _VALUES.sub(r"`\1\2`", say_allowed(key, language)), effect + mark))


def _make_preset_table(selector: str, words: ConfigurationWords) -> str:
    presets = {name: read_preset(selector, name) for name in list_presets(selector)}
    rows = [_make_heading((words.key, *(f"`{name}`" for name in presets)))]
    for key in next(iter(presets.values())):
        rows.append(_join_cells((f"`{key}`", *(f"`{_show_scalar(preset[key])}`" for preset in presets.values()))))
    return "\n".join(rows)


def _show_scalar(value: object) -> str:
    assert isinstance(value, Scalar), value
    return format_scalar(value)


def _make_heading(columns: Sequence[str]) -> str:
    return f"{_join_cells(columns)}\n|{'---|' * len(columns)}"


def _join_cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
