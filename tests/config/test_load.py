"""Layers: defaults < preset < YAML < arguments < flags, and every value remembers its origin."""

from __future__ import annotations

import errno
import os
from importlib.resources import files
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from myxtts.config.catalogue import FIELDS
from myxtts.config.choices import SELECTORS, list_presets
from myxtts.config.load import FlagValue, read_file_layer, read_preset, write_resolved
from myxtts.config.schema import DataConfig, ModelConfig, TrainingConfig, XTTSConfig
from myxtts.errors import ConfigError, StorageError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text("model_size: tiny\ngpu_card: rtx3060\ndata:\n  batch_size: 48\n  log_floor: 1e-6\nmodel:\n")
    return path


def test_each_layer_wins_over_the_one_below(file: Path) -> None:
    config = XTTSConfig.load(file, flags={"num_workers": 3}, buffer_size=9, num_workers=5)
    assert config.data.batch_size == 48  # the file over the preset's 64
    assert config.data.buffer_size == 9  # the argument over the preset's 16
    assert config.data.num_workers == 3  # the flag over the argument
    assert config.training.crop_frames == 256  # the preset over the default
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
        "training.crop_frames": "preset tiny",
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


SIZES = list_presets("model_size")
ALL = [(selector, name) for selector in SELECTORS for name in list_presets(selector)]


@pytest.mark.parametrize(("selector", "name"), ALL)
def test_every_preset_is_a_valid_configuration(selector: str, name: str) -> None:
    config = XTTSConfig(**{selector: name})
    for key, value in read_preset(selector, name).items():
        section, _, setting = key.partition(".")
        assert getattr(getattr(config, section), setting) == value
        assert config.origins[key] == f"preset {name}"


@pytest.mark.parametrize(("selector", "name"), ALL)
def test_a_preset_says_what_it_is_for_and_states_only_what_differs_from_the_defaults(selector: str, name: str) -> None:
    path = list_presets(selector)[name]
    assert path.read_text("utf-8").startswith("# ")
    stated = {key: entry.value for key, entry in read_file_layer(path).items()}
    assert not {key for key, value in stated.items() if value == FIELDS[key].default}


def test_every_preset_file_belongs_to_a_selector() -> None:
    folder = files("myxtts.config").joinpath("presets")
    assert {entry.name for entry in folder.iterdir()} == set(SELECTORS)
    assert list(SIZES) == ["tiny", "small", "normal", "big"]


def test_only_a_card_overrules_a_model_size_and_only_in_its_batch() -> None:
    sizes, levels, cards = (
        {key for kind, name in ALL if kind == selector for key in read_preset(selector, name)} for selector in SELECTORS
    )
    assert sizes & cards == {"data.batch_size"}
    assert not levels & (sizes | cards)
    assert XTTSConfig(model_size="tiny").data.batch_size == 8
    assert XTTSConfig(model_size="tiny", gpu_card="rtx4090").data.batch_size == 96


@pytest.mark.parametrize("selector", SELECTORS)
def test_presets_of_one_kind_set_the_same_keys(selector: str) -> None:
    assert len({tuple(read_preset(selector, name)) for name in list_presets(selector)}) == 1


def test_the_default_presets_are_the_defaults() -> None:
    config = XTTSConfig(model_size="small", optimization_level="enhanced")
    assert (config.data, config.model, config.training) == (DataConfig(), ModelConfig(), TrainingConfig())


def test_sizes_grow() -> None:
    widths = [XTTSConfig(model_size=name).model.decoder_width for name in SIZES]
    assert widths == sorted(set(widths)) == [256, 512, 768, 1280]


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("rtx4090", (96, 24, 24, 1)),
        ("rtx3090", (96, 16, 24, 1)),
        ("rtx3060", (64, 8, 16, 1)),
        ("a100", (128, "auto", 32, 1)),
        ("h100", (128, "auto", 32, 1)),
    ],
)
def test_cards_set_batch_workers_and_buffer_and_need_no_accumulation(
    card: str, expected: tuple[int | str, ...]
) -> None:
    config = XTTSConfig(gpu_card=card)
    data = config.data
    accumulation = config.training.gradient_accumulation_steps
    assert (data.batch_size, data.num_workers, data.buffer_size, accumulation) == expected


def test_levels_go_from_plain_to_everything() -> None:
    basic, experimental = (XTTSConfig(optimization_level=name) for name in ("basic", "experimental"))
    assert basic.training.enable_xla_compilation is basic.training.mixed_precision is False
    assert basic.data.auto_tune_performance is False
    assert experimental.training.enable_xla_compilation is experimental.training.mixed_precision is True
    assert experimental.data.prefetch_buffer_size > XTTSConfig().data.prefetch_buffer_size


TEXTS = {
    "data.language": st.sampled_from(["en", "fa", "no", "pt-br", "zh-Hant"]),
    "data.data_service": st.sampled_from([None, "localhost:5050", "[::1]:80"]),
    "data.repeat_speakers": st.sampled_from([None, "anna=3", "a=b=2, reza=100"]),
    "data.model_gpu": st.sampled_from([None, 1, "1,2,3", [2, 0]]),
    "training.crop_frames": st.integers(16, 4096).map(lambda half: 2 * half),
    "training.visible_gpus": st.sampled_from([None, "0", "1,0", [0, 1]]),
    "training.run_name": st.sampled_from(["run", "1e5", "null", "صدا", "a.b-c_d"]),
}
PATHS = st.one_of(
    st.none(),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20),
    st.sampled_from(["null", "true", "~", "- x", "a: b", "C:\\data", "#x", "'", '"', "*x", "1e5", "0,1", "%", "@a"]),
)
# Drawn together below, because they limit each other.
LINKED = {
    *("data.sample_rate", "data.fmin", "data.fmax", "data.n_fft", "data.win_length", "data.hop_length", "data.n_mels"),
    *("data.min_duration_s", "data.max_duration_s", "data.frame_budget", "data.max_mel_frames"),
    *("training.enable_xla_compilation", "training.enable_eager_debug", "training.enable_graph_mode"),
    *("model.attention_heads", "model.reference_width", "model.text_width", "model.decoder_width"),
}


def read_limits(metadata: list[Any]) -> dict[str, Any]:
    flat = [nested for item in metadata for nested in (item.metadata if isinstance(item, FieldInfo) else [item])]
    return {name: getattr(item, name) for item in flat for name in ("ge", "gt", "le", "lt") if hasattr(item, name)}


def draw_type(annotation: Any, metadata: list[Any]) -> st.SearchStrategy[Any]:
    limits = read_limits(metadata)
    if get_origin(annotation) is Literal:
        return st.sampled_from(get_args(annotation))
    if get_origin(annotation) is Annotated:
        kind, *nested = get_args(annotation)
        return draw_type(kind, nested)
    if get_args(annotation):
        return st.one_of([draw_type(kind, metadata) for kind in get_args(annotation)])
    if annotation is NoneType:
        return st.none()
    if annotation is bool:
        return st.booleans()
    if annotation is int:
        return st.integers(limits["ge"], limits.get("le", 10**9))
    assert annotation is float
    low, high = limits.get("ge", limits.get("gt")), limits.get("le", limits.get("lt", 1e6))
    return st.floats(low, high, exclude_min="gt" in limits, exclude_max="lt" in limits)


def draw_field(key: str, field: FieldInfo) -> st.SearchStrategy[Any]:
    if key in TEXTS:
        return TEXTS[key]
    return PATHS.filter(is_path) if field.annotation == str | None else draw_type(field.annotation, field.metadata)


def is_path(text: str | None) -> bool:
    return text is None or (text.isprintable() and bool(text.strip()))


@st.composite
def draw_linked(draw: st.DrawFn) -> dict[str, Any]:
    rate = draw(st.integers(8000, 48_000))
    fmax = draw(st.floats(1.0, rate / 2))
    n_fft = draw(st.integers(16, 16_384))
    window = draw(st.integers(2, n_fft))
    longest = draw(st.floats(0.1, 3600.0))
    heads = draw(st.sampled_from([1, 2, 3, 8]))
    eager = draw(st.booleans())
    return {
        "sample_rate": rate,
        "fmax": fmax,
        "fmin": draw(st.floats(0.0, fmax, exclude_max=True)),
        "n_fft": n_fft,
        "win_length": window,
        "hop_length": draw(st.integers(1, window)),
        "n_mels": draw(st.integers(1, min(1024, n_fft // 2 + 1))),
        "max_duration_s": longest,
        "min_duration_s": draw(st.floats(0.0, longest, exclude_max=True)),
        "max_mel_frames": draw(st.none() | st.integers(1, 1000)),
        "frame_budget": draw(st.none() | st.integers(1000, 10**6)),
        "attention_heads": heads,
        **{f"{name}_width": 24 * draw(st.integers(1, 64)) for name in ("reference", "text", "decoder")},
        "enable_eager_debug": eager,
        "enable_xla_compilation": draw(st.sampled_from([False, "auto"] if eager else [True, False, "auto"])),
    }


FREE = st.fixed_dictionaries(
    {}, optional={key: draw_field(key, field) for key, field in FIELDS.items() if key not in LINKED}
)


@settings(max_examples=150, deadline=None)
@given(free=FREE, linked=draw_linked())
def test_any_valid_configuration_is_read_back_as_an_equal_one(
    tmp_path_factory: pytest.TempPathFactory, free: dict[str, Any], linked: dict[str, Any]
) -> None:
    config = XTTSConfig(**free, **linked)
    path = write_resolved(config, tmp_path_factory.getbasetemp() / "any")
    loaded = XTTSConfig.load(path)
    assert loaded == config
    assert loaded.to_yaml().splitlines()[0] == f"model_size: {config.model_size}" + (
        f"  # {path}:1" if config.model_size != "small" else ""
    )


def test_sections_keep_their_order_and_changed_values_their_origin() -> None:
    text = XTTSConfig(batch_size=4, gpu_card="rtx3060").to_yaml()
    assert text.index("\ndata:\n") < text.index("\nmodel:\n") < text.index("\ntraining:\n")
    assert "  batch_size: 4  # argument\n" in text
    assert "  buffer_size: 16  # preset rtx3060\n" in text
    assert "  sample_rate: 22050\n" in text


def test_a_file_name_cannot_smuggle_settings_into_the_comments(tmp_path: Path) -> None:
    source = tmp_path / "a\n  batch_size: 7\n#.yaml"
    source.write_text("data:\n  buffer_size: 4\n")
    config = XTTSConfig.load(source)
    assert XTTSConfig.load(write_resolved(config, tmp_path / "run")) == config


def test_the_run_folder_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "x"
    assert write_resolved(XTTSConfig(), folder) == folder / "config.yaml"
    assert [path.name for path in folder.iterdir()] == ["config.yaml"]


def test_content_reaches_the_disk_before_its_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[str, bool]] = []
    real_fsync = os.fsync

    def record_fsync(descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append(("folder" if target.is_dir() else "file", (tmp_path / "config.yaml").exists()))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record_fsync)
    write_resolved(XTTSConfig(), tmp_path)
    assert synced == [("file", False), ("folder", True)]


@pytest.mark.parametrize(
    ("code", "next_step"),
    [
        (errno.ENOSPC, "Free some space"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permissions"),
        (errno.EIO, "Check the disk"),
    ],
)
def test_a_failing_disk_leaves_the_old_file_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, next_step: str
) -> None:
    write_resolved(XTTSConfig(batch_size=1), tmp_path)

    def fail(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match=os.strerror(code)) as caught:
        write_resolved(XTTSConfig(batch_size=2), tmp_path)
    assert next_step in caught.value.next_step
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]
    assert XTTSConfig.load(tmp_path / "config.yaml").data.batch_size == 1


def test_a_file_in_the_way_of_the_folder_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(StorageError, match="run"):
        write_resolved(XTTSConfig(), tmp_path / "run")


def test_a_truncated_file_is_never_mistaken_for_the_whole(tmp_path: Path) -> None:
    whole = XTTSConfig(batch_size=4, seed=9).to_yaml()
    path = tmp_path / "config.yaml"
    path.write_text(whole[: whole.index("seed: 9") + len("see")])
    with pytest.raises(ConfigError):
        XTTSConfig.load(path)
