"""A model that starts from a bundle: a deeper one begins as the bundle's model, and learns from there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf
from tests.models.toys import make_part
from tests.synthesis.small_models import write_small_bundle

from myxtts.models.bundle import read_bundle
from myxtts.models.spec import ModelSpec
from myxtts.models.xtts import XTTS
from myxtts.synthesis.engine import build_model
from myxtts.synthesis.loaded_bundle import load_bundle
from myxtts.text.frontend import FrontEnd
from myxtts.training.voice.fine_tuning import take_weights


def test_a_deeper_model_begins_as_the_shallower_one_it_starts_from(tmp_path: Path) -> None:
    loaded = load_bundle(write_small_bundle(tmp_path / "bundle"))
    shallow, origin = build_model(loaded), read_bundle(tmp_path / "bundle")
    shape = origin.model_config.model_copy(update={"decoder_layers": 5, "text_layers": 4})
    deep = XTTS(shape, ModelSpec.from_json(origin.model_spec))
    frontend: FrontEnd = loaded.frontend
    lines = take_weights(deep, shape, origin, frontend)
    assert any("decoder.blocks.3" in line for line in lines)
    part = make_part(loaded.spec, [30, 21], [8, 5])
    tokens = part["tokens"], part["token_lengths"], part["language"]
    mels = []
    for model in (shallow, deep):
        voice = model.encode_voice(part["reference"], part["reference_lengths"])
        mel_BTM, lengths_B, _ = model.synthesize_mel(*tokens, voice, num_frames=40)
        mels.append(mel_BTM * tf.sequence_mask(lengths_B, 40, tf.float32)[..., None])
    np.testing.assert_allclose(mels[0], mels[1], atol=1e-5)
    assert len(deep.trainable_variables) > len(shallow.trainable_variables)
