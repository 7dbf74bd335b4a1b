"""A model too small to have learnt anything, written as a bundle: what is tested here is not what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
from tests.models.toys import stir_weights

from myxtts.config.model import ModelConfig
from myxtts.config.schema import DataConfig
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.models.bundle import Bundle, write_bundle
from myxtts.models.spec import ModelSpec
from myxtts.models.xtts import XTTS
from myxtts.text.frontend import FrontEnd

DATA = DataConfig(sample_rate=16_000, n_fft=256, hop_length=128, win_length=256, n_mels=20)
TEXTS = [
    ("The quick brown fox jumps over the lazy dog, 0123456789.", "en"),
    ("به نام خداوند جان و خرد؛ چه خوش ثمری پژواک گفت، آیا غذا ضعیف ظاهراً صدقه؟", "fa"),
]
SMALL = {
    "text_width": 16,
    "text_layers": 3,
    "decoder_width": 16,
    "decoder_layers": 3,
    "attention_heads": 2,
    "reference_width": 8,
    "reference_layers": 1,
    "num_latents": 2,
}


def write_small_bundle(
    folder: Path,
    *,
    speakers: tuple[str, ...] = ("anna", "omid"),
    frontend: FrontEnd | None = None,
    **changes: Any,
) -> Path:
    """A bundle of random weights, the same every time; `changes` are fields of it."""
    frontend = frontend or FrontEnd.create("characters", texts=TEXTS)
    mel = MelDefinition.from_config(DATA)
    spec = ModelSpec(
        factor_sizes=frontend.factor_sizes,
        single_state_symbols=4,
        n_mels=mel.n_mels,
        languages=("en", "fa"),
        speakers=speakers,
        mel_mean=(-5.0,) * mel.n_mels,
        mel_deviation=1.5,
        frame_rate_hz=mel.sample_rate / mel.hop_length,
        band_hz=tuple(mel.band_hz.tolist()),
    )
    config = ModelConfig(**SMALL)  # type: ignore[arg-type]
    keras.utils.set_random_seed(1)
    model = XTTS(config, spec)
    stir_weights(model)
    model.set_length_factor(12.0)
    folder.mkdir(parents=True, exist_ok=True)
    frontend.save(folder / "frontend.json")
    fields: dict[str, Any] = {
        "model_config": config,
        "model_spec": spec.to_json(),
        "mel": mel.to_json(),
        "audio": AudioDefinition.from_config(DATA).to_json(),
        "frontend": (folder / "frontend.json").read_bytes(),
        "frontend_fingerprint": frontend.fingerprint(),
        "vocoder": {"kind": "griffin_lim", "mel": mel.to_json()},
        "weights": {name: np.asarray(weight.numpy(), np.float32) for name, weight in model.named_weights().items()},
        "notes": {"step": 0},
    }
    write_bundle(folder, Bundle(**fields | changes))
    return folder
