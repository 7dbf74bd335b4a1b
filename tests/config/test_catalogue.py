"""The listing behind `myxtts config`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import myxtts
from myxtts.cli.settings import SETTING_FLAGS
from myxtts.config.catalogue import FIELDS, Setting, list_settings
from myxtts.config.choices import SELECTORS
from myxtts.config.schema import XTTSConfig


def test_a_setting_tells_all_about_itself() -> None:
    listing = {setting.key: setting for setting in list_settings(XTTSConfig(batch_size=4))}
    assert listing["data.batch_size"] == Setting(
        key="data.batch_size",
        value=4,
        origin="argument",
        default=32,
        description="Utterances in a batch; auto finds what fits.",
        allowed='a whole number from 1 to 65536 or "auto"',
    )
    assert listing["model_size"].origin == "default"
    assert listing["model.text_width"].origin == "preset small"


def test_what_is_allowed_is_said_for_every_setting() -> None:
    allowed = {setting.key: setting.allowed for setting in list_settings(XTTSConfig())}
    assert allowed["data.trim_silence"] == "true or false"
    assert allowed["data.trim_db"] == "a number above 0.0 and up to 120.0"
    assert allowed["training.mixed_precision"] == 'true, false or "auto"'
    assert allowed["data.data_gpu"] == "a whole number from 0 to 9999 or null"
    assert allowed["model.dropout"] == "a number of at least 0.0 and below 1.0"
    assert all(allowed.values())


def test_every_setting_is_read_somewhere() -> None:
    """A setting that nothing reads would be promised on the page of settings and do nothing."""
    source = Path(myxtts.__file__).parent
    code = "\n".join(path.read_text(encoding="utf-8") for path in source.rglob("*.py") if path.parent.name != "config")
    names = {key.rpartition(".")[2] for key in FIELDS} - set(SELECTORS)
    assert [name for name in names if not re.search(rf"\.{name}\b", code)] == []


def test_every_flag_sets_settings_that_exist() -> None:
    assert {key for flag in SETTING_FLAGS for key in flag.keys} <= set(FIELDS)


def test_names_to_choose_from_are_known_without_loading_the_schema() -> None:
    code = (
        "import sys; from myxtts.config.choices import SELECTORS, list_presets; "
        "assert all(list_presets(selector) for selector in SELECTORS); "
        "sys.exit(bool({'pydantic', 'yaml', 'numpy'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
