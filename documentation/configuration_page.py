"""The page of all settings: a template in Markdown, with tables made from the schema.

The templates are `configuration.en.md` and `configuration.fa.md` in this folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from documentation.words import Language
from myxtts.cli.settings import SETTING_FLAGS
from myxtts.config.catalogue import FIELDS, META
from myxtts.config.choices import SELECTORS, list_presets
from myxtts.config.load import read_preset
from myxtts.config.setting import describe_allowed
from myxtts.config.values import Scalar, format_scalar

GROUPS: Mapping[str, Mapping[Language, str]] = {
    "model_size": {"en": "Presets to choose from", "fa": "انتخاب preset"},
    "data.train_data": {"en": "Corpus", "fa": "دیتاست"},
    "data.text_frontend": {"en": "Text", "fa": "متن"},
    "data.min_duration_s": {"en": "Recordings", "fa": "فایل‌های صوتی"},
    "data.sample_rate": {"en": "Features", "fa": "ویژگی‌ها"},
    "data.preprocessing_mode": {"en": "Feature cache", "fa": "کش ویژگی‌ها"},
    "data.batch_size": {"en": "Batches", "fa": "batchها"},
    "data.num_workers": {"en": "Loading", "fa": "بارگذاری داده"},
    "data.data_gpu": {"en": "Devices of the pipeline", "fa": "GPUهای پایپلاین داده"},
    "model.block": {"en": "Model", "fa": "مدل"},
    "training.run_name": {"en": "Run", "fa": "run"},
    "training.multi_gpu": {"en": "Devices of training", "fa": "GPUهای آموزش"},
    "training.durations": {"en": "Alignment, compilation and precision", "fa": "alignment، کامپایل و دقت عددی"},
    "training.gradient_accumulation_steps": {"en": "Optimiser", "fa": "optimizer"},
    "training.adapt": {"en": "Adaptation", "fa": "تطبیق با صدای جدید"},
}
"""Each group by the setting it begins with."""


_COLUMNS: Mapping[Language, tuple[str, ...]] = {
    "en": ("key and flag", "default", "allowed", "effect"),
    "fa": ("کلید و گزینه", "پیش‌فرض", "مقدارهای مجاز", "اثر"),
}
_KEY: Mapping[Language, str] = {"en": "key", "fa": "کلید"}
_FIXED_MARK = "⚑"
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
    settings = []
    for first, keys in group_keys().items():
        rows = "\n".join(_make_row(key, language) for key in keys)
        settings.append(f"## {GROUPS[first][language]}\n\n{_make_heading(_COLUMNS[language])}\n{rows}")
    presets = [f"### `{selector}`\n\n{_make_preset_table(selector, language)}" for selector in SELECTORS]
    template = Path(__file__).with_name(f"configuration.{language}.md").read_text(encoding="utf-8")
    return template.replace("<!-- settings -->", "\n\n".join(settings)).replace(
        "<!-- presets -->", "\n\n".join(presets)
    )


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


def _make_row(key: str, language: Language) -> str:
    field, meta = FIELDS[key], META[key]
    flag = next((f"<br>`{one.flag}`" for one in SETTING_FLAGS if key in one.keys), "")
    effect = field.description or "" if language == "en" else meta.fa
    mark = "" if meta.resume.action == "accept" else f" {_FIXED_MARK}"
    default = f"`{_show_scalar(field.default)}`"
    return _join_cells((f"`{key}`{flag}", default, _VALUES.sub(r"`\1\2`", say_allowed(key, language)), effect + mark))


def _make_preset_table(selector: str, language: Language) -> str:
    presets = {name: read_preset(selector, name) for name in list_presets(selector)}
    rows = [_make_heading((_KEY[language], *(f"`{name}`" for name in presets)))]
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
