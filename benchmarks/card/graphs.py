"""The graphs of this product that a GPU runs, as HLO: steps of both models, alignment, features and synthesis.

TensorFlow lowers them on a machine without a GPU: `hlo_serialized` is what an XLA compiler for any device begins with,
`optimized_hlo` what the CPU runs.
`python -m benchmarks.card.graphs REQUEST STAGE FILE` writes one, for a request as JSON, and its hash into FILE.key.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.card.records import Request
from myxtts.config.schema import XTTSConfig
from myxtts.features.definition import MelDefinition
from myxtts.features.mel_graph import GraphMel
from myxtts.models.alignment import search_alignment
from myxtts.models.layers import use_dtype_policy
from myxtts.models.pitch import Pitch
from myxtts.models.reference_encoder import Voice
from myxtts.models.spec import ModelSpec
from myxtts.models.text_encoder import TextStates, count_hidden_channels
from myxtts.models.xtts import XTTS, SpokenText
from myxtts.pipeline.order import Shape
from myxtts.pipeline.splits import count_reference_frames
from myxtts.training.execution import Execution, MicroBatches
from myxtts.training.vocoder.discriminators import DiscriminatorConfig
from myxtts.training.vocoder.learner import VocoderLearner, VocoderSpec
from myxtts.training.vocoder.setup import choose_vocoder_shape
from myxtts.training.voice.learner import Learner

_NUM_SYMBOLS, _SINGLE_STATE_SYMBOLS = 60, 10
NUM_DECODER_STEPS = 16
_SEGMENT_FRAMES = 64


@dataclass(frozen=True)
class Graph:
    """A function to lower, and its inputs."""

    function: Any
    inputs: tuple[Any, ...]

    def lower(self, stage: str) -> Any:
        """HLO of a stage: `hlo_serialized` (bytes) before, `optimized_hlo` (text) after compiling for the CPU."""
        with tf.device("/CPU:0"):
            return self.function.experimental_get_compiler_ir(*self.inputs)(stage=stage)


def make_graph(request: Request) -> Graph:
    """Builds the model that the request names, and its graph."""
    return PARTS[request.part](request)


def _make_config(request: Request, **settings: Any) -> XTTSConfig:
    return XTTSConfig(model_size=request.size, batch_size=request.batch, **dict(request.settings), **settings)


def _make_spec(config: XTTSConfig) -> ModelSpec:
    n_mels = config.data.n_mels
    band_hz = tuple(np.linspace(50, 8000, n_mels).tolist())
    speakers, languages = ("first", "second"), ("en",)
    rate_hz = config.data.sample_rate / config.data.hop_length
    return ModelSpec(
        (_NUM_SYMBOLS,), _SINGLE_STATE_SYMBOLS, n_mels, languages, speakers, (-5.0,) * n_mels, 2.0, rate_hz, band_hz
    )


def make_voice_learner(request: Request, **settings: Any) -> Learner:
    """A learner of the voice model as a GPU has it: compiled whole, on one device."""
    config = _make_config(request, **settings)
    execution = Execution(True, True, request.policy, (), is_search_chunked=True)
    strategy = tf.distribute.OneDeviceStrategy("/CPU:0")
    return Learner(config, _make_spec(config), strategy, execution, 1000, MicroBatches(request.batch, 1))


def _make_voice_step(request: Request, durations: str) -> Graph:
    learner = make_voice_learner(request, durations=durations)
    shape = Shape(request.batch, request.num_frames, request.num_tokens)
    part = learner._make_empty(shape, count_reference_frames(_make_config(request).data)).to_device("/CPU:0")
    return Graph(learner.train_step._train.find(part), (part,))


def make_vocoder_learner(
    request: Request, width: int | None = None, discriminators: DiscriminatorConfig | None = None
) -> VocoderLearner:
    """A learner of the vocoder as a GPU has it; by default of the sizes that belong to the model size."""
    config, is_tiny = _make_config(request), request.size == "tiny"
    definition = MelDefinition.from_config(config.data)
    shape = choose_vocoder_shape(definition, is_tiny=is_tiny)
    spec = VocoderSpec(
        shape=shape if width is None else replace(shape, width=width, num_blocks=1),
        discriminators=discriminators or (DiscriminatorConfig.tiny() if is_tiny else DiscriminatorConfig()),
        num_warm_steps=1,
    )
    strategy, execution = tf.distribute.OneDeviceStrategy("/CPU:0"), Execution(True, True, request.policy, ())
    micro_batches = MicroBatches(request.batch, 1)
    return VocoderLearner(config, spec, definition, strategy, execution, 1000, micro_batches, jit_compile_gan=True)


def show_vocoder_step(learner: VocoderLearner, num_segments: int, name: str) -> Graph:
    """One of the vocoder's steps: `_train_warm`, `_train_vocoder` or `_train_discriminators`."""
    (part,) = learner._make_empty(num_segments, _SEGMENT_FRAMES)
    return Graph(getattr(learner.train_step, name)._train.find(part), (part,))


def _make_vocoder_step(request: Request, name: str) -> Graph:
    return show_vocoder_step(make_vocoder_learner(request), request.batch, name)


def _make_alignment(request: Request) -> Graph:
    """The search alone, as the store's durations are computed and as the step contains it."""
    grid = [request.batch, request.num_frames, 2 * request.num_tokens]
    inputs = tf.zeros(grid), tf.ones(grid[::2], tf.bool), tf.zeros(grid[:1], tf.int32)
    return _compile(lambda *tensors: tuple(search_alignment(*tensors, is_chunked=True)), *inputs)


def _make_features(request: Request) -> Graph:
    """Log-mels from samples, as the data device of Multi-GPU mode computes them."""
    definition = MelDefinition.from_config(_make_config(request).data)
    mel = GraphMel(definition)
    samples_BS = tf.zeros([request.batch, (request.num_frames - 1) * definition.hop_length])
    return _compile(lambda samples, lengths: mel(samples, lengths)[0], samples_BS, tf.zeros([request.batch], tf.int32))


def _make_text_side(request: Request) -> Graph:
    """First phase of synthesis: text to states, durations and F0."""
    model, voice = _make_model(request)

    def predict(tokens: Any, lengths: Any, language: Any, vector: Any, latents: Any) -> Any:
        spoken = model.predict_durations(tokens, lengths, language, Voice(vector, latents))
        return *spoken.states[1:3], tf.stack(spoken.pitch_BS, axis=-1), spoken.durations_BS

    tokens_BN, lengths_B = tf.zeros([request.batch, request.num_tokens], tf.int32), tf.zeros([request.batch], tf.int32)
    return _compile(predict, tokens_BN, lengths_B, lengths_B, *voice)


def _make_decoder(request: Request) -> Graph:
    """Second phase of synthesis: the Euler steps of the flow."""
    model, voice = _make_model(request)
    grid, config = [request.batch, 2 * request.num_tokens], _make_config(request)
    widths = model.spec.n_mels, count_hidden_channels(config.model), 2

    def decode(means: Any, hidden: Any, pitch: Any, durations: Any, vector: Any, latents: Any, seed: Any) -> Any:
        states = TextStates(None, means, hidden, durations > 0)
        num_frames_B = tf.reduce_sum(durations, axis=1)
        spoken = SpokenText(states, durations, None, num_frames_B, Pitch(*tf.unstack(pitch, axis=-1)))
        settings: dict[str, Any] = {"num_frames": request.num_frames, "num_steps": NUM_DECODER_STEPS}
        return model.decode(spoken, Voice(vector, latents), seed=seed, **settings)

    states = [tf.zeros([*grid, width]) for width in widths]
    return _compile(decode, *states, tf.zeros(grid, tf.int32), *voice, tf.constant(0))


def _make_model(request: Request) -> tuple[XTTS, Voice]:
    """A voice model in float32, as synthesis has it, and the zeros of a voice."""
    config = _make_config(request)
    with use_dtype_policy("float32"):
        model = XTTS(config.model, _make_spec(config))
    width = config.model.reference_width
    vector_BD = tf.zeros([request.batch, width])
    return model, Voice(vector_BD, tf.zeros([request.batch, config.model.num_latents, width]))


def _compile(function: Callable[..., Any], *inputs: Any) -> Graph:
    return Graph(tf.function(function, autograph=False, jit_compile=True), inputs)


PARTS: dict[str, Callable[[Request], Graph]] = {
    "step, stored durations": partial(_make_voice_step, durations="stored"),
    "step, searching": partial(_make_voice_step, durations="search"),
    "vocoder, warm-up": partial(_make_vocoder_step, name="_train_warm"),
    "vocoder, generator": partial(_make_vocoder_step, name="_train_vocoder"),
    "vocoder, discriminators": partial(_make_vocoder_step, name="_train_discriminators"),
    "alignment": _make_alignment,
    "features": _make_features,
    "synthesis, text side": _make_text_side,
    "synthesis, decoder": _make_decoder,
}


def main(request: str, stage: str, path: str) -> None:
    values = json.loads(request)
    settings = tuple((name, value) for name, value in values.pop("settings"))
    graph = make_graph(Request(**values, settings=settings))
    lowered = graph.lower(stage)
    Path(f"{path}.key").write_text(_hash_graph(graph.lower("hlo")), encoding="utf-8")
    partial_path = Path(f"{path}.partial")
    partial_path.write_bytes(lowered if isinstance(lowered, bytes) else lowered.encode())
    partial_path.rename(path)


def _hash_graph(hlo: str) -> str:
    """Hash of what a graph computes, without the names and lines that it comes from."""
    text = re.sub(r", metadata=\{[^}]*\}|inference_\w+", "", hlo.partition("\n")[2])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


if __name__ == "__main__":
    main(*sys.argv[1:])
