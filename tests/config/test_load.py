"""Layers: defaults < preset < YAML < arguments < flags, and every value remembers its origin."""

from __future__ import annotations

from pathlib import Path

import pytest

from myxtts.config.catalogue import FIELDS
from myxtts.config.load import FlagValue
from myxtts.config.schema import DataConfig, XTTSConfig
from myxtts.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text("model_size: tiny\ngpu_card: rtx3060\ndata:\n  batch_size: 48\n  log_floor: 1e-6\nmodel:\n")
    return path


def test_each_layer_wins_over_the_one_below(file: Path) -> None:
    config = XTTSConfig.load(file, flags={"num_workers": 3}, buffer_size=9, num_workers=5)
    assert config.data.batch_size == 48  # the file over the preset's 8
    assert config.data.buffer_size == 9  # the argument over the preset's 8
    assert config.data.num_workers == 3  # the flag over the argument
    assert config.training.gradient_accumulation_steps == 2  # the preset over the default
    assert config.model.decoder_width == 256
    assert config.data.log_floor == 1e-6
    assert config.data.sample_rate == 22_050


def test_every_value_knows_its_origin(file: Path) -> None:
    config = XTTSConfig.load(
        file,
        flags={"num_workers": "3", "data.trim_db": "40", "training.seed": 7, "epochs": None},
        buffer_size=9,
    )
    assert set(config.origins) == set(FIELDS)
    expected = {
        "model_size": f"{file}:1",
        "gpu_card": f"{file}:2",
        "data.batch_size": f"{file}:4",
        "data.log_floor": f"{file}:5",
        "data.buffer_size": "argument",
        "data.num_workers": "--num-workers",
        "data.trim_db": "--set data.trim_db",
        "training.seed": "--set training.seed",
        "training.epochs": "default",
        "training.gradient_accumulation_steps": "preset rtx3060",
        "training.mixed_precision": "preset enhanced",
        "model.decoder_width": "preset tiny",
        "model.guidance_dropout": "default",
        "data.sample_rate": "default",
        "optimization_level": "default",
    }
    assert {key: config.origins[key] for key in expected} == expected


def test_nothing_given_is_the_plain_configuration() -> None:
    assert XTTSConfig.load() == XTTSConfig()


def test_a_flag_may_set_keys_of_other_names() -> None:
    keys = ("data.prefetch_to_gpu", "enhanced_gpu_prefetch")
    config = XTTSConfig.load(flags=[FlagValue(key, False, "--disable-gpu-prefetch") for key in keys])
    assert config.data.prefetch_to_gpu is config.data.enhanced_gpu_prefetch is False
    assert config.origins["data.prefetch_to_gpu"] == "--disable-gpu-prefetch"
    assert config.origins["data.enhanced_gpu_prefetch"] == "--disable-gpu-prefetch"


def test_selectors_may_be_flags_and_arguments(file: Path) -> None:
    assert XTTSConfig.load(file, flags={"model_size": "big"}).model.decoder_width == 1280
    assert XTTSConfig.load(file, model_size="normal").model.decoder_width == 768


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("data.batch_size", "48", 48),
        ("batch_size", "auto", "auto"),
        ("data.frame_budget", "null", None),
        ("data.log_floor", "1e-5", 1e-5),
        ("data.trim_silence", "false", False),
        ("data.train_data", "2024", "2024"),
        ("data.train_data", "null", None),
        ("data.model_gpu", "1", 1),
        ("data.model_gpu", "1,2", "1,2"),
        ("data.data_gpu", " 0 ", 0),
        ("training.run_name", "1e5", "1e5"),
        ("training.enable_xla_compilation", "true", True),
    ],
)
def test_text_of_a_flag_is_read_as_a_yaml_value(key: str, text: str, value: object) -> None:
    config = XTTSConfig.load(flags={key: text})
    section, _, name = next(full for full in FIELDS if full.endswith(key.rpartition(".")[2])).partition(".")
    result = getattr(getattr(config, section), name)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"data.batch_size": "yes"}, r"data\.batch_size is \"yes\" \(--set data\.batch_size\)"),
        ({"batch_size": "0"}, r"data\.batch_size is 0 \(--batch-size\)"),
        ({"data.bach_size": "3"}, r"data\.bach_size \(--set data\.bach_size\) is not a setting.*data\.batch_size"),
        ({"batch_size": 1, "data.batch_size": 2}, "given twice: 1 .--batch-size. and 2 .--set data.batch_size."),
    ],
)
def test_a_wrong_flag_is_named_as_it_was_typed(flags: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        XTTSConfig.load(flags=flags)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("data:\n  batch_size: 0\n", r"data\.batch_size is 0 \(.*config\.yaml:2\)"),
        ("data:\n\n  bach_size: 0\n", r"data\.bach_size \(.*config\.yaml:3\) is not a setting"),
        ("data: 5\n", r"data is 5 \(.*config\.yaml:1\), but it is a section"),
        ("data: [a]\n", "but it is a section"),
        ("data:\n  fmax: 12000\n", r"data\.fmax: .*config\.yaml:2, data\.sample_rate: default"),
        ("batch_size: 3\ndata:\n  batch_size: 4\n", r"given twice: 3 \(.*:1\) and 4 \(.*:3\)"),
        ("data:\n  trim_silence: yes\n", 'data.trim_silence is "yes" .* must be true or false'),
        ("data:\n  batch_size: 1_000\n", "a whole number"),
        ("data:\n  batch_size: [1]\n", "a whole number"),
        ("data:\n  batch_size:\n    deep: 1\n", "a whole number"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        XTTSConfig.load(path)


def test_flat_names_and_lists_work_in_the_file_too(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("batch_size: 4\ntraining:\n  visible_gpus: [0, 1]\n")
    config = XTTSConfig.load(str(path))
    assert config.data.batch_size == 4
    assert config.training.visible_gpus == "0,1"


def test_sections_may_be_overridden_as_mappings_and_objects(file: Path) -> None:
    assert XTTSConfig.load(file, data={"batch_size": 5}).data.batch_size == 5
    config = XTTSConfig.load(file, data=DataConfig(buffer_size=5))
    assert (config.data.batch_size, config.data.buffer_size) == (48, 5)
