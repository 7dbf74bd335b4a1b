"""Training runs of a tiny vocoder; each returns numbers that a test compares.

Shape legend: B segments, T frames, M mel bands, S samples.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tests.training.toy_step import STRATEGIES, Sgd

from myxtts.config.schema import DataConfig
from myxtts.features.definition import MelDefinition
from myxtts.features.mel import HostMel
from myxtts.models.layers import iterate_weights
from myxtts.models.vocoder import Vocoder, VocoderConfig
from myxtts.pipeline.batch import Loaded, make_device_transfer
from myxtts.pipeline.order import NO_ROW, BatchPlan, Shape
from myxtts.pipeline.packed import Packed, unpack
from myxtts.training.learner import select_trained
from myxtts.training.micro_batches import distribute_parts, select_tensors, split_rows
from myxtts.training.optimizer import AdamW
from myxtts.training.vocoder.audio import make_segment_layout
from myxtts.training.vocoder.discriminators import DiscriminatorConfig, Discriminators
from myxtts.training.vocoder.learner import BETAS, VocoderStep

DEFINITION = MelDefinition.from_config(DataConfig(n_fft=64, win_length=64, hop_length=16, n_mels=8))
NUM_FRAMES = 16
NUM_WARM_STEPS = 2
RATE = 2e-3


def make_segments(step: int, num_segments: int = 4, num_real: int | None = None) -> dict[str, Any]:
    """Noisy tones; segments behind `num_real` are noise that must not be learnt."""
    generator = np.random.default_rng(step)
    turns = np.arange(NUM_FRAMES * DEFINITION.hop_length) * generator.uniform(0.02, 0.2, (num_segments, 1))
    # With noise: in silence the smallest rounding error would be heard.
    samples_BS = (0.2 * np.sin(2 * np.pi * turns) + generator.normal(0, 0.03, turns.shape)).astype(np.float32)
    extract = HostMel(DEFINITION)
    mel_BTM = np.stack([extract(samples)[:NUM_FRAMES] for samples in samples_BS])
    is_real_B = np.arange(num_segments) < (num_segments if num_real is None else num_real)
    samples_BS[~is_real_B] = generator.normal(size=samples_BS.shape)[~is_real_B]
    return {"mel": mel_BTM, "samples": samples_BS, "mel_lengths": np.where(is_real_B, NUM_FRAMES, 0).astype(np.int32)}


class Run:
    """Models with always the same weights, their optimizers, and the step under test."""

    def __init__(
        self, strategy: str = "default", num_warm_steps: int = NUM_WARM_STEPS, sgd: float | None = None, **options: Any
    ):
        keras.utils.set_random_seed(3)
        self._strategy = chosen = STRATEGIES[strategy]()
        self._accumulation = options.get("accumulation_steps", 1)
        mel = {name: getattr(DEFINITION, name) for name in ("n_mels", "n_fft", "hop_length", "win_length")}
        with chosen.scope():
            self.vocoder = Vocoder(VocoderConfig(**mel, width=8, num_blocks=1), DEFINITION.filterbank)
            self.discriminators = Discriminators(
                DiscriminatorConfig(channels=2, max_channels=4, periods=(2,), resolutions=(64,))
            )
            optimizers: list[Any] = [
                Sgd() if sgd else AdamW(select_trained(model, dict(iterate_weights(model))), 0.01, betas=BETAS)
                for model in (self.vocoder, self.discriminators)
            ]
        options = {"num_warm_steps": num_warm_steps, "clip_norm": 10.0, **options}
        options["rate"] = lambda _step: tf.constant(sgd or RATE)
        self.optimizers = (optimizers[0], optimizers[1])
        self.step = VocoderStep(self.vocoder, self.discriminators, self.optimizers, DEFINITION, chosen, **options)

    def train(self, segments: dict[str, Any], step: int) -> dict[str, Any]:
        """One step from all segments; its numbers by name."""
        whole = {name: tf.convert_to_tensor(value) for name, value in segments.items()}
        is_one = self._strategy.num_replicas_in_sync == 1
        num_local = 1 if is_one else len(self._strategy.extended.worker_devices)
        parts = [
            distribute_parts(self._strategy, split_rows(part, num_local))
            for part in split_rows(whole, self._accumulation)
        ]
        result = self.step(parts, step).read()
        return {**result.metrics, "loss": result.loss, "is_finite": result.is_finite}


def flatten(model: Any) -> list[float]:
    return [float(value) for weight in model.get_weights() for value in weight.ravel()]


def train(num_steps: int, num_real: int | None = None, num_segments: int = 4, **options: Any) -> dict[str, Any]:
    """Weights and scalars after some steps of plain gradient descent, which shows every wrong scale."""
    run = Run(sgd=1e-3, **options)
    scalars = {}
    for step in range(num_steps):
        scalars = run.train(make_segments(step, num_segments, num_real), step)
    return {
        "vocoder": flatten(run.vocoder),
        "discriminators": flatten(run.discriminators),
        "scalars": {name: float(tf.cast(value, tf.float32)) for name, value in scalars.items()},
    }


def transfer(devices: list[str]) -> dict[str, Any]:
    """Where the tensors of a batch of segments are when a feed hands it out, and whether they are its rows."""
    source, shape = make_segments(0), Shape(4, NUM_FRAMES, 0)
    layout = make_segment_layout([shape], DEFINITION.n_mels, DEFINITION.hop_length)
    arrays = layout.view(shape)
    for name, values in source.items():
        arrays[name][:] = values
    plan = BatchPlan(0, 0, np.arange(4), np.full(4, NO_ROW), shape)
    batch = make_device_transfer(devices, layout.num_bytes)(Loaded(plan, tuple("abcd"), arrays, 0.0))
    parts = [select_tensors(share) for share in batch.shares]
    cut = [unpack(part) for part in parts]
    joined = {name: np.concatenate([share[name] for share in cut]) for name in source}
    return {
        "devices": [part.vector.backing_device.rpartition("/device:")[2] for part in parts if isinstance(part, Packed)],
        "are_equal": all(np.array_equal(joined[name], source[name]) for name in source),
    }
