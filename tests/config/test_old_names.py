"""Settings keep working under their old names: in files, of runs too, on the command line and in Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from myxtts.config.catalogue import find_key
from myxtts.config.schema import DataConfig, TrainingConfig, XTTSConfig
from myxtts.errors import ConfigError
from myxtts.training.run.resume import compare, load_run_settings

OLD_NAMES = {
    "training.voice_stretch": "training.voice_augmentation",
    "training.text_patience_steps": "training.text_freeze_patience_steps",
    "data.store_pcm": "data.cache_waveforms",
}


@pytest.mark.parametrize(("old", "key"), OLD_NAMES.items())
def test_an_old_name_is_found_with_and_without_its_section(old: str, key: str) -> None:
    assert find_key(old, "here") == find_key(old.rpartition(".")[2], "here") == key


def test_an_old_name_sets_the_present_one_and_is_remembered(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("training:\n  voice_stretch: 0.2\nstore_pcm: true\n", encoding="utf-8")
    config = XTTSConfig.load(file, flags={"training.text_patience_steps": "7"})
    assert (config.training.voice_augmentation, config.training.text_freeze_patience_steps) == (0.2, 7)
    assert config.data.cache_waveforms is True
    assert config.list_old_settings() == [
        ("training.voice_stretch", "training.voice_augmentation", f"{file}:2"),
        ("store_pcm", "data.cache_waveforms", f"{file}:3"),
        ("training.text_patience_steps", "training.text_freeze_patience_steps", "--set training.text_patience_steps"),
    ]
    assert "voice_stretch" not in config.to_yaml()


def test_old_names_work_in_python() -> None:
    assert XTTSConfig(voice_stretch=0.3).training.voice_augmentation == 0.3
    assert XTTSConfig(training={"voice_stretch": 0.3}).training.voice_augmentation == 0.3
    assert XTTSConfig().model_copy(update={"voice_stretch": 0.3}).training.voice_augmentation == 0.3
    assert DataConfig(store_pcm=True).cache_waveforms is True  # type: ignore[call-arg]
    assert TrainingConfig.model_validate_json('{"text_patience_steps": 3}').text_freeze_patience_steps == 3
    assert XTTSConfig(voice_augmentation=0.3).training.voice_stretch == 0.3  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = TrainingConfig().voice_stretching  # type: ignore[attr-defined]


def test_both_names_at_once_are_refused() -> None:
    with pytest.raises(ConfigError, match="given twice"):
        XTTSConfig(voice_stretch=0.3, voice_augmentation=0.2)
    with pytest.raises(ConfigError, match="same setting") as caught:
        TrainingConfig(voice_stretch=0.3, voice_augmentation=0.2)  # type: ignore[call-arg]
    assert "Keep voice_augmentation" in caught.value.next_step


def test_a_run_with_old_names_resumes_without_differences(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "run"
    run.mkdir(parents=True)
    config = XTTSConfig(voice_augmentation=0.2, text_freeze_patience_steps=7, cache_waveforms=True)
    text = config.to_yaml()
    for old, key in OLD_NAMES.items():
        text = text.replace(f"  {key.rpartition('.')[2]}:", f"  {old.rpartition('.')[2]}:")
    assert "voice_stretch: 0.2" in text
    (run / "config.yaml").write_text(text, encoding="utf-8")
    assert compare(load_run_settings(run), config) == []
