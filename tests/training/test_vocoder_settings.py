"""Settings as a vocoder takes them."""

from __future__ import annotations

from myxtts.config.schema import XTTSConfig
from myxtts.training.compare import compare
from myxtts.training.vocoder_settings import resolve_vocoder_settings


def test_what_only_the_voice_knows_does_not_keep_a_vocoder_from_going_on() -> None:
    heard: list[str] = []
    old = resolve_vocoder_settings(XTTSConfig(model_size="tiny"), heard.append)
    assert not heard
    new = resolve_vocoder_settings(
        XTTSConfig(model_size="tiny", text_width=96, dropout=0.3, crop_frames=64, durations="stored"), heard.append
    )
    assert compare(old, new) == []
    (line,) = heard
    assert "model.text_width, model.dropout, training.crop_frames, training.durations" in line


def test_what_the_user_chose_stays_and_the_rest_is_for_a_vocoder() -> None:
    config = resolve_vocoder_settings(XTTSConfig(model_size="tiny", learning_rate=3e-3), print)
    assert config.training.learning_rate == 3e-3
    assert (config.training.clip_norm, config.data.batch_size, config.training.run_name) == (10.0, 8, "vocoder")
