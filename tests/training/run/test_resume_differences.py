"""Every setting is known to be harmless or harmful to a run that goes on."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal, get_args, get_origin

import pytest

from myxtts.config.catalogue import FIELDS, META
from myxtts.config.schema import XTTSConfig
from myxtts.errors import ConfigError
from myxtts.training.run.resume import accept_or_refuse, compare, compare_fingerprints

DEFAULT = XTTSConfig()


def list_literals(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [value for member in get_args(annotation) for value in list_literals(member)]


def change(key: str) -> XTTSConfig:
    """The default configuration with another value of this setting: the first that fits its type, limits and others."""
    field = FIELDS[key]
    candidates = [*list_literals(field.annotation), True, False, 1, 0.5, "other", "fa", "localhost:5050", "1", "anna=2"]
    if type(field.default) in (int, float):
        kind = type(field.default)
        candidates = [field.default * 2, kind(field.default / 2), *candidates]
    for value in candidates:
        with suppress(ConfigError):
            changed = XTTSConfig(**{key: value})
            if compare(DEFAULT, changed):
                return changed
    raise AssertionError(f"no other value found for {key}")


@pytest.mark.parametrize("key", FIELDS)
def test_a_changed_setting_is_found_and_judged(key: str) -> None:
    changed = change(key)
    found = {difference.key: difference for difference in compare(DEFAULT, changed)}
    assert key in found
    # A preset changes others as well, each judged by itself.
    assert set(found) == {key} or key in ("model_size", "optimization_level", "gpu_card")
    difference = found[key]
    assert difference.is_harmful == (META[key].resume.judge(difference.old, difference.new).action == "refuse")
    if difference.is_harmful:
        with pytest.raises(ConfigError) as caught:
            accept_or_refuse([difference], override=False)
        assert key in caught.value.problem
        assert difference.reason in caught.value.problem
        assert "--force" in caught.value.next_step
        if difference.is_impossible:
            with pytest.raises(ConfigError, match=key):
                accept_or_refuse([difference], override=True)
        else:
            assert accept_or_refuse([difference], override=True)[0].startswith(f"Accepted because of --force: {key}")
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


def test_another_corpus_or_store_is_harmful() -> None:
    old = {"corpus": "a" * 64, "store": "b" * 64}
    assert compare_fingerprints(old, dict(old)) == []
    assert compare_fingerprints({}, old) == []
    (difference,) = compare_fingerprints(old, {**old, "store": "c" * 64})
    assert difference.is_harmful
    assert difference.describe().startswith("the store: ")
