"""Every setting is known to be harmless or harmful to a run that goes on."""

from __future__ import annotations

from typing import Any

import pytest

from myxtts.config.catalogue import FIELDS
from myxtts.config.schema import XTTSConfig
from myxtts.errors import ConfigError
from myxtts.training.run.resume_check import HARMFUL, HARMLESS, accept_or_refuse, compare, compare_fingerprints

# For each setting a value that is not its default.
OTHER_VALUES: dict[str, Any] = {
    "model_size": "tiny",
    "optimization_level": "basic",
    "gpu_card": "rtx3060",
    "data.corpus_format": "vctk",
    "data.language": "fa",
    "data.split_by": "speaker",
    "data.text_frontend": "characters",
    "data.loudness": "peak",
    "data.preprocessing_mode": "on_the_fly",
    "data.mel_dtype": "float16",
    "data.cache_verification": "full",
    "data.batch_size": 7,
    "training.crop_frames": 256,
    "training.voice_stretch": 0.2,
    "training.text_patience_steps": 500,
    "data.num_workers": 3,
    "data.frame_budget": 5000,
    "data.max_mel_frames": 900,
    "data.ram_budget_gb": 2.0,
    "data.data_service": "10.0.0.5:5050",
    "data.data_gpu": 0,
    "data.model_gpu": 1,
    "data.fmax": 7000.0,
    "data.n_fft": 2048,
    "data.win_length": 512,
    "model.block": "transformer",
    "training.run_dir": "elsewhere",
    "training.run_name": "other",
    "training.bundle_weights": "latest",
    "training.durations": "stored",
    "training.steps": 10,
    "training.epochs": 10,
    "training.minutes": 10.0,
    "training.visible_gpus": "0",
    "training.enable_xla_compilation": False,
    "training.mixed_precision": False,
}
DEFAULT = XTTSConfig()


def choose_other_value(key: str) -> Any:
    if key in OTHER_VALUES:
        return OTHER_VALUES[key]
    default = FIELDS[key].default
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return default * 2 if key.startswith("model.") else default + 1
    if isinstance(default, float):
        return default * 0.9 if default else 1.0
    return "other"


def change(key: str) -> XTTSConfig:
    return XTTSConfig(**{key.rpartition(".")[2]: choose_other_value(key)})


def test_every_setting_is_classified_once_with_a_reason() -> None:
    assert set(HARMFUL) | set(HARMLESS) == set(FIELDS)
    assert not set(HARMFUL) & set(HARMLESS)
    assert all(len(reason.split()) >= 4 for reason in (*HARMFUL.values(), *HARMLESS.values()))


@pytest.mark.parametrize("key", FIELDS)
def test_a_changed_setting_is_found_and_judged(key: str) -> None:
    changed = change(key)
    found = {difference.key: difference for difference in compare(DEFAULT, changed)}
    assert key in found
    # A preset changes others as well, each judged by itself.
    assert set(found) == {key} or key in ("model_size", "optimization_level", "gpu_card")
    difference = found[key]
    is_new_decay = key == "training.ema_decay"
    assert difference.is_harmful == (key in HARMFUL and not is_new_decay)
    if difference.is_harmful:
        with pytest.raises(ConfigError) as caught:
            accept_or_refuse([difference], override=False)
        assert key in caught.value.problem
        assert difference.reason in caught.value.problem
        assert "--override" in caught.value.next_step
        assert accept_or_refuse([difference], override=True)[0].startswith(f"Overridden: {key}")
    else:
        assert key in accept_or_refuse([difference], override=False)[0]


def test_equal_configurations_have_no_difference() -> None:
    assert compare(DEFAULT, XTTSConfig()) == []
    assert accept_or_refuse([], override=False) == []


def test_the_refusal_shows_old_and_new_value_and_only_what_is_harmful() -> None:
    old, new = XTTSConfig(batch_size=32, seed=1, steps=5), XTTSConfig(batch_size=16, seed=2, steps=9)
    with pytest.raises(ConfigError) as caught:
        accept_or_refuse(compare(old, new), override=False)
    assert "data.batch_size: 32 → 16" in caught.value.problem
    assert "training.seed: 1 → 2" in caught.value.problem
    assert "training.steps" not in caught.value.problem


@pytest.mark.parametrize(("old", "new", "is_harmful"), [(0.0, 0.99, True), (0.99, 0.0, True), (0.9, 0.99, False)])
def test_the_average_may_change_its_pace_but_not_come_or_go(old: float, new: float, is_harmful: bool) -> None:
    (difference,) = compare(XTTSConfig(ema_decay=old), XTTSConfig(ema_decay=new))
    assert difference.is_harmful == is_harmful


def test_the_size_of_the_model_counts_by_what_it_sets() -> None:
    found = compare(XTTSConfig(model_size="small"), XTTSConfig(model_size="tiny"))
    harmful = {difference.key for difference in found if difference.is_harmful}
    assert "model_size" not in harmful
    assert "model.decoder_width" in harmful


def test_a_setting_that_nobody_judged_is_taken_as_harmful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("myxtts.training.run.resume_check.HARMLESS", {})
    (difference,) = compare(XTTSConfig(steps=1), XTTSConfig(steps=2))
    assert difference.is_harmful
    assert "nobody" in difference.reason


def test_another_corpus_or_store_is_harmful() -> None:
    old = {"corpus": "a" * 64, "store": "b" * 64}
    assert compare_fingerprints(old, dict(old)) == []
    assert compare_fingerprints({}, old) == []
    (difference,) = compare_fingerprints(old, {**old, "store": "c" * 64})
    assert difference.is_harmful
    assert difference.describe().startswith("the store: ")
