"""The settings: their names and defaults, what is refused, and in which words."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from myxtts.config.catalogue import FIELDS, META, SECTIONS, list_settings
from myxtts.config.schema import DataConfig, ModelConfig, TrainingConfig, XTTSConfig
from myxtts.errors import ConfigError

PERSIAN_LETTERS = re.compile(r"[\u0600-\u06ff]")


def test_without_presets_and_arguments_every_setting_has_its_declared_default() -> None:
    assert {setting.key: setting.value for setting in list_settings(XTTSConfig())} == {
        key: field.default for key, field in FIELDS.items()
    }


@pytest.mark.parametrize("key", FIELDS)
def test_every_setting_is_described_in_a_line_of_both_languages(key: str) -> None:
    for text in (FIELDS[key].description or "", META[key].fa):
        assert text.endswith(".")
        assert "\n" not in text
    assert PERSIAN_LETTERS.search(META[key].fa)


def test_no_two_settings_share_a_description() -> None:
    assert len({field.description for field in FIELDS.values()}) == len(FIELDS)
    assert len({meta.fa for meta in META.values()}) == len(FIELDS)


@pytest.mark.parametrize("key", FIELDS)
def test_every_setting_says_why_a_run_may_or_may_not_change_it(key: str) -> None:
    assert len(META[key].resume.reason.split()) >= 4


def test_the_shape_of_the_voice_model_is_no_setting_of_the_vocoder() -> None:
    of_the_voice = {key for key, meta in META.items() if meta.scope == "voice"}
    assert {key for key in FIELDS if key.startswith("model.")} < of_the_voice
    assert "training.crop_frames" in of_the_voice
    assert "data.batch_size" not in of_the_voice


def test_every_name_lives_in_one_place_only() -> None:
    names = [key.rpartition(".")[2] for key in FIELDS]
    assert len(names) == len(set(names))
    assert not set(names) & {*SECTIONS, "path", "flags"}


@pytest.mark.parametrize(
    "config",
    [
        XTTSConfig(batch_size=16, multi_gpu=True, visible_gpus="0,1", dropout=0.2),
        XTTSConfig(
            data={"batch_size": 16}, training={"multi_gpu": True, "visible_gpus": "0,1"}, model={"dropout": 0.2}
        ),
        XTTSConfig(
            data=DataConfig(batch_size=16),
            training=TrainingConfig(multi_gpu=True, visible_gpus="0,1"),
            model=ModelConfig(dropout=0.2),
        ),
        XTTSConfig(**{"data.batch_size": 16, "training.multi_gpu": True, "visible_gpus": [0, 1], "dropout": 0.2}),
    ],
)
def test_flat_nested_and_dotted_names_mean_the_same(config: XTTSConfig) -> None:
    assert (config.data.batch_size, config.training.multi_gpu, config.model.dropout) == (16, True, 0.2)
    assert config.training.visible_gpus == "0,1"
    assert config == XTTSConfig(batch_size=16, multi_gpu=True, visible_gpus="0,1", dropout=0.2)
    assert config != XTTSConfig(batch_size=16)


def test_a_section_given_as_an_object_leaves_the_rest_to_presets() -> None:
    config = XTTSConfig(model_size="tiny", model=ModelConfig(text_width=200))
    assert (config.model.text_width, config.model.decoder_width) == (200, 256)


def test_a_section_of_another_configuration_is_taken_whole() -> None:
    tiny = XTTSConfig(model_size="tiny")
    assert XTTSConfig(model_size="big", model=tiny.model).model == tiny.model


def test_a_key_given_flat_and_nested_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.batch_size is given twice: 4 .* and 8"):
        XTTSConfig(batch_size=4, data={"batch_size": 8})


@pytest.mark.parametrize(
    ("values", "suggestion"),
    [
        ({"bach_size": 3}, "data.batch_size"),
        ({"data": {"bach_size": 3}}, "data.batch_size"),
        ({"data.bufer_size": 3}, "data.buffer_size"),
        ({"training": {"batch_size": 3}}, "data.batch_size"),
        ({"model_sise": "tiny"}, "model_size"),
        ({"trainig": {}}, "training"),
        ({"xyzzy": 1}, "myxtts config"),
    ],
)
def test_an_unknown_key_names_the_nearest(values: dict[str, Any], suggestion: str) -> None:
    with pytest.raises(ConfigError) as caught:
        XTTSConfig(**values)
    assert "is not a setting" in caught.value.problem
    assert "(argument)" in caught.value.problem
    assert suggestion in caught.value.next_step


def test_an_unknown_key_of_a_section_used_alone_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"data\.bach_size .* Did you mean data\.batch_size\?"):
        DataConfig(bach_size=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("batch_size", 0, 'a whole number from 1 to 65536 or "auto"'),
        ("batch_size", "48", "a whole number"),
        ("batch_size", "yes", "a whole number"),
        ("batch_size", True, "a whole number"),
        ("batch_size", 32.0, "a whole number"),
        ("buffer_size", "yes", "a whole number from 1 to 10000"),
        ("num_workers", -1, 'a whole number from 0 to 1024 or "auto"'),
        ("multi_gpu", 1, "true or false"),
        ("multi_gpu", "yes", "true or false"),
        ("learning_rate", 0, "a number above 0.0 and up to 1.0"),
        ("learning_rate", float("nan"), "a number"),
        ("clip_norm", float("inf"), "a number above 0.0"),
        ("dropout", 1.0, "a number of at least 0.0 and below 1.0"),
        ("preprocessing_mode", "fast", '"precompute" or "on_the_fly"'),
        ("mixed_precision", "float16", 'true, false or "auto"'),
        ("language", "Englsh", "en (English)"),
        ("language", "no such language", "a code such as en"),
        ("train_data", 2024, "text or null"),
        ("train_data", "", "text or null (it is empty)"),
        ("train_data", "a\nb", "a control character"),
        ("train_data", "\udcff", "text or null"),
        ("run_name", "../elsewhere", "a name of letters"),
        ("data_service", "localhost", "an address such as"),
        ("data_service", "localhost:70000", "ports go from 1 to 65535"),
        ("visible_gpus", "0,0", "0 is named twice"),
        ("visible_gpus", [0, -1], "-1 is negative"),
        ("visible_gpus", "first", '"first" names no GPU'),
        ("model_gpu", "1;2", "names no GPU"),
        ("data_gpu", -1, "a whole number from 0"),
        ("model_size", "huge", '"tiny", "small", "normal" or "big"'),
        ("gpu_card", "voodoo2", '"rtx3090", "rtx3060"'),
        ("frame_budget", 0, "a whole number of at least 1 or null"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(key: str, value: object, allowed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        XTTSConfig(**{key: value})
    full = next(name for name in FIELDS if name.rpartition(".")[2] == key)
    assert caught.value.problem.startswith(f"{full} is ")
    assert "(argument)" in caught.value.problem
    assert allowed in caught.value.problem
    assert caught.value.next_step


def test_a_number_too_long_to_print_is_refused_like_any_other() -> None:
    with pytest.raises(ConfigError, match="batch_size is a number of 16610 bits"):
        XTTSConfig(batch_size=10**5000)


def test_several_wrong_values_are_all_named() -> None:
    with pytest.raises(ConfigError) as caught:
        DataConfig(batch_size=0, buffer_size=0)
    assert "data.batch_size is 0" in caught.value.problem
    assert "data.buffer_size is 0" in caught.value.problem
    assert "2 settings" in caught.value.next_step


@pytest.mark.parametrize("section", [DataConfig, ModelConfig, TrainingConfig, XTTSConfig])
@pytest.mark.parametrize("value", ["text", None, [1], 5])
def test_validating_something_else_than_settings_is_a_config_error(section: Any, value: object) -> None:
    with pytest.raises(ConfigError, match="settings by name"):
        section.model_validate(value)
    with pytest.raises(ConfigError):
        section.model_validate_json("{")


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        ({"fmax": 12_000.0}, ("data.fmax: argument", "data.sample_rate: default")),
        ({"sample_rate": 8000}, ("data.fmax: default", "data.sample_rate: argument")),
        ({"fmin": 8000.0}, ("data.fmin", "data.fmax")),
        ({"n_mels": 514}, ("data.n_mels", "data.n_fft")),
        ({"win_length": 2048}, ("data.win_length", "data.n_fft")),
        ({"hop_length": 1025}, ("data.hop_length", "data.win_length")),
        ({"min_duration_s": 30.0}, ("data.min_duration_s", "data.max_duration_s")),
        ({"frame_budget": 100, "max_mel_frames": 200}, ("data.frame_budget", "data.max_mel_frames")),
        (
            {"enable_eager_debug": True, "enable_xla_compilation": True},
            ("training.enable_eager_debug", "training.enable_xla_compilation"),
        ),
        (
            {"enable_graph_mode": False, "enable_xla_compilation": True},
            ("training.enable_graph_mode", "training.enable_xla_compilation"),
        ),
        ({"reference_width": 254}, ("model.reference_width", "model.attention_heads")),
        ({"block": "transformer", "text_width": 322}, ("model.text_width", "model.attention_heads")),
    ],
)
def test_settings_that_contradict_each_other_are_both_named(values: dict[str, Any], keys: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        XTTSConfig(**values)
    for key in keys:
        assert key in caught.value.problem
    assert any(key.partition(":")[0] in caught.value.next_step for key in keys)


@pytest.mark.parametrize(
    "values",
    [
        {"fmax": 11_025.0},
        {"fmax": 24_000.0, "sample_rate": 48_000},
        {"hop_length": 1024},
        {"frame_budget": 200, "max_mel_frames": 200},
        {"frame_budget": 100},
        {"data_gpu": 1, "model_gpu": "0,1"},
        {"enable_eager_debug": True},
        {"text_width": 322},
        {"silence_db": -60},
        {"val_share": 0},
    ],
)
def test_what_is_possible_is_accepted(values: dict[str, Any]) -> None:
    XTTSConfig(**values)


@pytest.mark.parametrize(
    ("given", "canonical"),
    [(1, 1), ("1", 1), ([1], 1), ("1, 2", "1,2"), ([2, 1], "2,1"), ((1, 2, 3), "1,2,3"), (None, None)],
)
def test_model_gpu_has_one_form(given: object, canonical: object) -> None:
    assert XTTSConfig(model_gpu=given).data.model_gpu == canonical


@pytest.mark.parametrize(("given", "canonical"), [(0, "0"), ("0, 1", "0,1"), ([0, 1], "0,1"), (None, None)])
def test_visible_gpus_has_one_form(given: object, canonical: object) -> None:
    assert XTTSConfig(visible_gpus=given).training.visible_gpus == canonical


def test_paths_may_be_path_objects() -> None:
    config = XTTSConfig(train_data=Path("corpus"), run_dir=Path("out") / "x")
    assert config.data.train_data == "corpus"
    assert config.training.run_path == Path("out/x")
    assert XTTSConfig(run_name="voice").training.run_path == Path("runs/voice")


@pytest.mark.parametrize("target", [XTTSConfig(), DataConfig()])
def test_a_configuration_cannot_be_changed(target: Any) -> None:
    with pytest.raises(ConfigError, match="model_copy"):
        target.batch_size = 3
    with pytest.raises(TypeError):
        XTTSConfig().origins["data.batch_size"] = "me"  # type: ignore[index]


def test_a_changed_copy_is_resolved_and_checked_anew() -> None:
    config = XTTSConfig(batch_size=4, text_width=64)
    changed = config.model_copy(update={"model_size": "big", "data.buffer_size": 9})
    assert (changed.data.batch_size, changed.data.buffer_size) == (4, 9)
    assert (changed.model.text_width, changed.model.decoder_width) == (64, 1280)
    assert (config.data.buffer_size, config.model.decoder_width) == (50, 512)
    assert config.model_copy() == config
    with pytest.raises(ConfigError, match="buffer_size"):
        config.model_copy(update={"buffer_size": 0})
    with pytest.raises(ConfigError, match="buffer_size"):
        config.data.model_copy(update={"buffer_size": 0})


def test_equal_configurations_are_equal_wherever_they_came_from() -> None:
    config = XTTSConfig(model_size="tiny", batch_size=16)
    for twin in (
        XTTSConfig.model_validate(config.model_dump()),
        XTTSConfig.model_validate_json(config.model_dump_json()),
        pickle.loads(pickle.dumps(config)),  # noqa: S301
        copy.deepcopy(config),
    ):
        assert twin == config
        assert hash(twin) == hash(config)
    assert "origins" not in config.model_dump_json()
    assert pickle.loads(pickle.dumps(config)).origins == config.origins  # noqa: S301
