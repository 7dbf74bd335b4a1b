"""Presets are ordinary settings in files that ship with the package."""

from __future__ import annotations

from importlib.resources import files

import pytest

from myxtts.config.presets import read_preset
from myxtts.config.schema import DataConfig, ModelConfig, TrainingConfig, XTTSConfig

SIZES = ("tiny", "small", "normal", "big")
LEVELS = ("basic", "enhanced", "experimental")
CARDS = ("rtx4090", "rtx3090", "rtx3060")
ALL = [
    *(("model_size", name) for name in SIZES),
    *(("optimization_level", name) for name in LEVELS),
    *(("gpu_card", name) for name in CARDS),
]


@pytest.mark.parametrize(("selector", "name"), ALL)
def test_every_preset_is_a_valid_configuration(selector: str, name: str) -> None:
    config = XTTSConfig(**{selector: name})
    for key, value in read_preset(selector, name).items():
        section, _, setting = key.partition(".")
        assert getattr(getattr(config, section), setting) == value
        assert config.origins[key] == f"preset {name}"


def test_every_preset_file_can_be_selected_and_says_what_it_is_for() -> None:
    folder = files("myxtts.config").joinpath("presets")
    found = {entry.name for entry in folder.iterdir()}
    prefixes = {"model_size": "size", "optimization_level": "level", "gpu_card": "card"}
    assert found == {f"{prefixes[selector]}-{name}.yaml" for selector, name in ALL}
    for name in found:
        assert folder.joinpath(name).read_text("utf-8").startswith("# ")


def test_only_a_card_overrules_a_model_size_and_only_in_its_batch() -> None:
    sizes, levels, cards = (
        {key for kind, name in ALL if kind == selector for key in read_preset(selector, name)}
        for selector in ("model_size", "optimization_level", "gpu_card")
    )
    assert sizes & cards == {"data.batch_size"}
    assert not levels & (sizes | cards)
    assert XTTSConfig(model_size="tiny").data.batch_size == 8
    assert XTTSConfig(model_size="tiny", gpu_card="rtx4090").data.batch_size == 32


@pytest.mark.parametrize("names", [SIZES, LEVELS, CARDS])
def test_presets_of_one_kind_set_the_same_keys(names: tuple[str, ...]) -> None:
    selector = {SIZES: "model_size", LEVELS: "optimization_level", CARDS: "gpu_card"}[names]
    assert len({frozenset(read_preset(selector, name)) for name in names}) == 1


def test_the_default_presets_are_the_defaults() -> None:
    config = XTTSConfig(model_size="small", optimization_level="enhanced")
    assert (config.data, config.model, config.training) == (DataConfig(), ModelConfig(), TrainingConfig())


def test_sizes_grow() -> None:
    widths = [XTTSConfig(model_size=name).model.decoder_width for name in SIZES]
    assert widths == sorted(set(widths)) == [256, 512, 768, 1280]


@pytest.mark.parametrize(
    ("card", "expected"), [("rtx4090", (32, 24, 32, 1)), ("rtx3090", (24, 16, 24, 1)), ("rtx3060", (8, 8, 8, 2))]
)
def test_cards_set_batch_workers_buffer_and_accumulation(card: str, expected: tuple[int, ...]) -> None:
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
