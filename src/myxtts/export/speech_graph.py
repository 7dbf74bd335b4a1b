"""One graph from token ids to a waveform, for programs that run a single ONNX file with a fixed voice or a few.

Inputs are named as those of VITS exports (Piper): `input` [1, N] token ids, `input_lengths` [1], `scales` [3] (noise
scale, length scale, a third number that is not used), and `sid` [1] if there are several speakers. The output is
`output` [1, 1, W].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from myxtts.config.choices import DEFAULT_NUM_STEPS
from myxtts.export.conversion import Branch, Graph, Loop, Part
from myxtts.export.graphs import SynthesisGraphs, describe
from myxtts.models.decoder import STACKED_FRAMES
from myxtts.synthesis.voices import SAME_F0, SpeakerEmbedding
from myxtts.types import NO_GUIDANCE, Tensor


@dataclass(frozen=True)
class FixedSpeaker:
    """A speaker of the graph: the embedding, and the language that is spoken."""

    embedding: SpeakerEmbedding
    language: str


def make_speech_graph(
    graphs: SynthesisGraphs,
    speakers: Sequence[FixedSpeaker],
    *,
    num_steps: int = DEFAULT_NUM_STEPS,
    map_ids: Callable[[Tensor], Tensor] = tf.identity,
) -> Graph:
    """Returns the whole synthesis as one graph: token ids to samples.

    How to use it:

        graphs = SynthesisGraphs(loaded, "griffin_lim")               # loaded: a LoadedBundle
        voice = Synthesizer(loaded).encode_voice("anna")
        model = convert(make_speech_graph(graphs, [FixedSpeaker(voice, "en")]))
        onnx.save(model, "anna.onnx")

    Token ids are those of `loaded.frontend` for one sentence (`Piece.ids`), specials at both ends included. Where a
    program has another numbering, `map_ids` turns its ids [N] into ours [N'] inside the graph, in TensorFlow operations
    (a `tf.gather` from a table, `tf.boolean_mask` for ids that are left out). Ids behind `input_lengths` are cut off
    before. `scales[0]` is the standard deviation of the noise, `scales[1]` multiplies durations. The noise is drawn in
    the graph, so two calls differ. With several speakers an input `sid` chooses one.
    """
    assert speakers, "a graph needs a speaker"
    inputs = (
        describe("input", [1, None], tf.int64),
        describe("input_lengths", [1], tf.int64),
        describe("scales", [3]),
        *([describe("sid", [1], tf.int64)] if len(speakers) > 1 else []),
    )
    choose = _make_chooser(graphs, speakers, map_ids)
    names = ("tokens", "language", "vector", "latents", "speed", "equalizer", "f0_change")
    draw = _make_drawer(graphs, num_steps)
    drawn = ("noise", "num_steps", "guidance", *(["turns"] if graphs.vocoder == "griffin_lim" else []))
    stages = (
        Part("choose", choose, inputs, names),
        *graphs.predictor.stages,
        Part("draw", draw, (describe("durations", [1, None], tf.int32), inputs[2]), drawn),
        *match_voice(graphs),
        *graphs.sound.stages,
        Part("shape", lambda samples_W: (samples_W[None, None],), (describe("samples", [None]),), ("output",)),
    )
    return Graph("speech", stages, inputs, ("output",))


def _make_chooser(
    graphs: SynthesisGraphs, speakers: Sequence[FixedSpeaker], map_ids: Callable[[Tensor], Tensor]
) -> Callable[..., tuple[Tensor, ...]]:
    """The function that prepares the inputs of the text encoder."""
    languages = [graphs.loaded.spec.languages.index(speaker.language) for speaker in speakers]
    vectors_VD = np.stack([speaker.embedding.vector for speaker in speakers])
    latents_VKD = np.stack([speaker.embedding.latents for speaker in speakers])
    flat_M = np.zeros(graphs.loaded.spec.n_mels, np.float32)
    gains = [speaker.embedding.equalizer for speaker in speakers]
    gains_VM = np.stack([flat_M if gain_M is None else gain_M for gain_M in gains])
    changes = [speaker.embedding.f0_change for speaker in speakers]
    changes_V2 = np.stack([SAME_F0 if change_2 is None else change_2 for change_2 in changes])

    def choose(ids_BN: Tensor, lengths_B: Tensor, scales_3: Tensor, sid_B: Tensor | None = None) -> tuple[Tensor, ...]:
        row_B = tf.constant([0], tf.int64) if sid_B is None else sid_B
        tokens_N = map_ids(ids_BN[0, : lengths_B[0]])
        return (
            tf.cast(tokens_N, tf.int32)[None],
            tf.gather(tf.constant(languages, tf.int32), row_B),
            tf.gather(vectors_VD, row_B),
            tf.gather(latents_VKD, row_B),
            1.0 / scales_3[1],
            tf.gather(gains_VM, row_B),
            tf.gather(changes_V2, row_B),
        )

    return choose


def match_voice(graphs: SynthesisGraphs) -> tuple[Part | Loop | Branch, ...]:
    """The stages of the decoder: the first changes F0 as the speaker's embedding says, the last adds the equalizer."""
    begin, *between, finish = graphs.decoder.stages
    assert isinstance(begin, Part), begin
    assert isinstance(finish, Part), finish

    def expand(means: Tensor, hidden: Tensor, pitch_BS2: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        *others, change_B2 = tensors
        factor_B2 = tf.stack([change_B2[:, 0], tf.ones_like(change_B2[:, 0])], axis=1)
        offset_B2 = tf.stack([change_B2[:, 1], tf.zeros_like(change_B2[:, 1])], axis=1)
        changed_BS2 = pitch_BS2 * factor_B2[:, None] + offset_B2[:, None]
        return begin.function(means, hidden, changed_BS2, *others)

    def restore(*tensors: Tensor) -> tuple[Tensor, ...]:
        (mel_BTM,) = finish.function(*tensors[:-1])
        return (mel_BTM + tensors[-1][:, None],)

    equalizer, change = describe("equalizer", [1, graphs.loaded.spec.n_mels]), describe("f0_change", [1, 2])
    return (
        Part(begin.name, expand, (*begin.inputs, change), begin.outputs),
        *between,
        Part(finish.name, restore, (*finish.inputs, equalizer), finish.outputs),
    )


def _make_drawer(graphs: SynthesisGraphs, num_steps: int) -> Callable[..., tuple[Tensor, ...]]:
    """The function that draws noise, and phases for Griffin-Lim."""
    n_mels = graphs.loaded.spec.n_mels

    def draw(durations_BS: Tensor, scales_3: Tensor) -> tuple[Tensor, ...]:
        num_frames = tf.reduce_sum(durations_BS)
        num_padded = (num_frames + STACKED_FRAMES - 1) // STACKED_FRAMES * STACKED_FRAMES
        noise_BTM = tf.random.normal(tf.stack([1, num_padded, n_mels])) * scales_3[0]
        settings = tf.constant(num_steps, tf.int64), tf.constant(float(NO_GUIDANCE))
        if graphs.vocoder == "neural":
            return noise_BTM, *settings
        return noise_BTM, *settings, tf.random.uniform(tf.stack([num_frames, graphs.griffin_lim.num_frequencies]))

    return draw
