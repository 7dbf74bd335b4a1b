"""A model speaks through a vocoder that was trained apart from it, if that was made for its spectrograms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synthesis.small_models import MEL, make_vocoder, write_run, write_small_bundle

from myxtts.errors import ConfigError, DataError
from myxtts.synthesis.loaded_bundle import choose_vocoder, load_bundle
from myxtts.synthesis.synthesizer import Synthesizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_bundle(tmp_path_factory.mktemp("model") / "bundle")


def test_a_trained_vocoder_makes_sound_of_the_right_length(tmp_path: Path, model: Path) -> None:
    speaker = Synthesizer.load(model, vocoder=write_run(tmp_path / "vocoder", make_vocoder()))
    for num_frames in (3, 90, 300):
        mel_TM = np.random.default_rng(0).normal(-5, 1, (num_frames, MEL.n_mels)).astype(np.float32)
        samples = speaker.engine.make_sound(mel_TM, 0)
        assert samples.shape == (num_frames * MEL.hop_length,)
        assert np.isfinite(samples).all()
        assert np.abs(samples).max() > 0
    plain = Synthesizer.load(model)
    assert not plain.loaded.has_neural_vocoder
    assert np.abs(plain.engine.make_sound(mel_TM, 0) - samples).max() > 1e-3


def test_a_vocoder_for_other_spectrograms_is_refused_by_name(tmp_path: Path, model: Path) -> None:
    other = write_run(tmp_path / "vocoder", make_vocoder(replace(MEL, hop_length=64)))
    with pytest.raises(ConfigError, match="hop_length 128 against 64"):
        choose_vocoder(load_bundle(model), str(other))


def test_a_choice_that_is_neither_a_kind_nor_a_folder_is_refused(tmp_path: Path, model: Path) -> None:
    with pytest.raises(ConfigError, match="no vocoder 'wavenet'"):
        choose_vocoder(load_bundle(model), "wavenet")
    with pytest.raises(DataError, match="There is no vocoder in"):
        choose_vocoder(load_bundle(model), tmp_path)


def remove_one(weights: dict[str, Any]) -> dict[str, Any]:
    return {name: array for name, array in weights.items() if name != "head.bias"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda v: replace(v, weights=remove_one(v.weights)), "head.bias is missing"),
        (lambda v: replace(v, weights={**v.weights, "head.bias": np.zeros(3, np.float32)}), "has the shape"),
        (lambda v: replace(v, config={**v.config, "width": 8192, "num_blocks": 128}), "larger one"),
        (lambda v: replace(v, config={**v.config, "width": 10**9}), "width"),
        (lambda v: replace(v, config={**v.config, "depth": 1}), "depth is not known"),
        (lambda v: replace(v, config={**v.config, "n_mels": 30}), "n_mels"),
    ],
)
def test_weights_and_shapes_that_do_not_fit_are_refused(tmp_path: Path, model: Path, change: Any, words: str) -> None:
    place = write_run(tmp_path / "vocoder", change(make_vocoder()))
    with pytest.raises((DataError, ConfigError), match=words):
        Synthesizer.load(model, vocoder=place)
