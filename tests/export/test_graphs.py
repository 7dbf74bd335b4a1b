"""The ONNX graphs compute what TensorFlow does, for any length.

Shape legend: T frames, M mel bands.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from tests.synthesis.small_models import DATA

from myxtts.export.conversion import Graph, Loop, Part, convert
from myxtts.export.graphs import SynthesisGraphs, describe
from myxtts.export.sound_graphs import make_vocoder_function
from myxtts.export.speech_graph import FixedSpeaker, make_speech_graph, match_voice
from myxtts.features.definition import MelDefinition
from myxtts.features.griffin_lim import GriffinLim
from myxtts.models.layers import draw_normal
from myxtts.models.vocoder import Vocoder, VocoderConfig
from myxtts.synthesis.engine import SpeechEngine
from myxtts.synthesis.loaded_bundle import LoadedBundle
from myxtts.synthesis.options import SpeechOptions
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.synthesis.voices import SpeakerEmbedding
from myxtts.types import DEFAULT_NOISE_SCALE, Floats

MEL = MelDefinition.from_config(DATA)
TOLERANCE = 1e-3
TEXTS = {"en": ("A fox.", "The quick brown fox jumps over the lazy dog, and over 12 more."), "fa": ("به نام خداوند.",)}


def open_session(graph: Graph) -> Any:
    model = convert(graph).SerializeToString()
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def run(session: Any, **inputs: Any) -> list[Any]:
    outputs: list[Any] = session.run(None, {name: np.asarray(value) for name, value in inputs.items()})
    return outputs


def test_what_a_loop_carries_keeps_its_shape() -> None:
    """So the decoder of a model of one speaker ends: the last value of a loop is only sliced."""
    start, end = describe("x", [1, None, 3]), describe("x_end", [1, None, 3])
    length, count = describe("length", [], tf.int32), describe("count", [], tf.int64)

    def add(x: Any, step: Any) -> tuple[Any]:
        return (x + tf.cast(step, tf.float32),)

    grow = Loop(Part("grow", add, (start, describe("step", [], tf.int32)), ("x_next",)), "count", ("x",))
    cut = Part("cut", lambda x, num_frames: (x[:, :num_frames],), (end, length), ("y",))
    session = open_session(Graph("whole", (grow, cut), (start, count, length), ("y",)))
    zeros = np.zeros((1, 5, 3), np.float32)
    (result,) = run(session, x=zeros, count=np.int64(4), length=np.int32(2))
    np.testing.assert_array_equal(result, np.full((1, 2, 3), 0 + 1 + 2 + 3, np.float32))


@pytest.fixture(scope="module")
def graphs(loaded: LoadedBundle) -> SynthesisGraphs:
    return SynthesisGraphs(loaded, "griffin_lim")


@pytest.fixture(scope="module")
def sessions(exported: Path) -> dict[str, Any]:
    files = exported.glob("*.onnx")
    return {file.stem: onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]) for file in files}


@pytest.fixture(scope="module")
def engine(original: Synthesizer) -> SpeechEngine:
    assert isinstance(original.engine, SpeechEngine)
    return original.engine


def make_reference(num_frames: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(-5, 1.5, (num_frames, MEL.n_mels)).astype(np.float32)


@pytest.fixture(scope="module")
def voice(engine: SpeechEngine) -> SpeakerEmbedding:
    return engine.encode_reference(make_reference(150))


@pytest.mark.parametrize("num_frames", [125, 150, 1000])
def test_references_of_any_length_get_the_same_embedding(
    sessions: dict[str, Any], engine: SpeechEngine, num_frames: int
) -> None:
    mel_RM = make_reference(num_frames, seed=num_frames)
    vector_BD, latents_BKD = run(sessions["encode_reference"], mel=mel_RM[None])
    expected = engine.encode_reference(mel_RM)
    np.testing.assert_allclose(vector_BD[0], expected.vector, atol=1e-4)
    np.testing.assert_allclose(latents_BKD[0], expected.latents, atol=1e-4)


def iterate_ids(loaded: LoadedBundle) -> Iterator[tuple[str, Any]]:
    for language, texts in TEXTS.items():
        for text in texts:
            yield from ((language, piece.ids) for piece in loaded.plan(text, language))


@pytest.mark.parametrize(("speed", "guidance", "num_steps"), [(1.0, None, 16), (1.7, 2.5, 3)])
def test_durations_are_equal_and_mels_close(
    sessions: dict[str, Any],
    engine: SpeechEngine,
    loaded: LoadedBundle,
    voice: SpeakerEmbedding,
    speed: float,
    guidance: float | None,
    num_steps: int,
) -> None:
    own = {"vector": voice.vector[None], "latents": voice.latents[None]}
    for language, ids in iterate_ids(loaded):
        number = np.array([loaded.spec.languages.index(language)], np.int32)
        means, hidden, pitch, durations = run(
            sessions["predict"], tokens=ids[None], language=number, **own, speed=np.float32(speed)
        )
        options = SpeechOptions(speed=speed, guidance=guidance, num_steps=num_steps, seed=7)
        timed = engine.time_text(ids, language, voice, speed)
        np.testing.assert_array_equal(durations[0], timed.state_frames[: durations.shape[1]])
        num_frames = timed.num_frames
        noise_TBM = draw_normal(tf.constant([7, 0]), [num_frames + num_frames % 2, 1, MEL.n_mels]).numpy()
        (mel_BTM,) = run(
            sessions["decode"],
            means=means,
            hidden=hidden,
            pitch=pitch,
            durations=durations,
            **own,
            noise=noise_TBM.transpose(1, 0, 2) * np.float32(DEFAULT_NOISE_SCALE),
            num_steps=np.int64(num_steps),
            guidance=np.float32(guidance or 1.0),
        )
        expected_TM = engine.decode(timed, voice, options)
        assert mel_BTM.shape[1] == num_frames
        assert np.abs(mel_BTM[0] - expected_TM).max() <= TOLERANCE


def draw_turns(num_frames: int, seed: int) -> Floats:
    """The phases that the host draws, in turns."""
    return np.random.default_rng(seed).random((num_frames, len(MEL.filterbank)), np.float32)


def test_griffin_lim_gives_the_sound_of_the_host(sessions: dict[str, Any]) -> None:
    mel_TM = make_reference(90, seed=4)
    (samples,) = run(sessions["griffin_lim"], mel=mel_TM[None], turns=draw_turns(90, seed=3))
    expected = GriffinLim(MEL)(mel_TM, seed=3)
    assert samples.shape == expected.shape
    # Rounding errors grow with the iterations.
    assert np.abs(samples - expected).max() <= 0.01 * np.abs(expected).max()


@pytest.mark.parametrize(("n_fft", "hop_length"), [(256, 128), (250, 80), (256, 200)])
@pytest.mark.parametrize("has_source", [True, False])
def test_the_neural_vocoder_gives_the_same_sound(n_fft: int, hop_length: int, has_source: bool) -> None:
    n_mels = 80 if has_source else 20
    definition = MelDefinition(16_000, n_fft, hop_length, n_fft, n_mels, 0.0, 8000.0, 1e-5)
    tf.random.set_seed(0)
    config = VocoderConfig(
        n_mels=n_mels,
        n_fft=n_fft,
        hop_length=hop_length,
        win_length=n_fft,
        width=16,
        num_blocks=2,
        sample_rate=16_000,
        band_hz=tuple(definition.band_hz.tolist()) if has_source else (),
    )
    vocoder = Vocoder(config, definition.filterbank)
    # Harmonics of 200 Hz on a falling envelope: of mere noise, F0 would depend on the last bits.
    harmonics_M = np.cos(2 * np.pi * definition.band_hz / 200) - definition.band_hz / 2000
    mel_BTM = np.tile(harmonics_M - 4, (1, 70, 1)).astype(np.float32)
    part = Part(
        "vocoder", make_vocoder_function(vocoder, definition), (describe("mel", [1, None, n_mels]),), ("samples",)
    )
    (samples,) = run(open_session(Graph("vocoder", (part,), part.inputs, part.outputs)), mel=mel_BTM)
    np.testing.assert_allclose(samples, vocoder(tf.constant(mel_BTM)).numpy()[0], atol=1e-3)


def test_one_graph_changes_f0_as_the_speaker_says(graphs: SynthesisGraphs) -> None:
    generator = np.random.default_rng(2)
    (begin, *_), (plain, *_) = match_voice(graphs), graphs.decoder.stages
    assert isinstance(begin, Part)
    assert isinstance(plain, Part)
    durations = tf.constant([[2, 3, 1, 4]])
    means, hidden, pitch, noise = (
        tf.constant(generator.normal(size=(1, count, spec.shape[-1])).astype(np.float32))
        for count, spec in zip((4, 4, 4, 10), (*plain.inputs[:3], plain.inputs[4]), strict=True)
    )
    others = (durations, noise, tf.constant(1.0))
    changed = begin.function(means, hidden, pitch, *others, tf.constant([[1.5, 0.4]]))
    expected = plain.function(means, hidden, pitch * [1.5, 1.0] + [0.4, 0.0], *others)
    for found, wanted in zip(changed, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_one_graph_speaks_with_ids_of_another_numbering(
    graphs: SynthesisGraphs, loaded: LoadedBundle, voice: SpeakerEmbedding, engine: SpeechEngine
) -> None:
    """Ids one higher than ours, and 0 for what is left out; the second of two speakers speaks Persian."""
    speakers = [FixedSpeaker(voice, "en"), FixedSpeaker(voice, "fa")]
    graph = make_speech_graph(
        graphs, speakers, num_steps=2, map_ids=lambda ids: tf.boolean_mask(ids, ids > 0) - tf.constant(1, tf.int64)
    )
    session = open_session(graph)
    ids = next(iter(loaded.plan("به نام خداوند.", "fa"))).ids
    foreign = np.zeros(2 * len(ids) + 5, np.int64)
    foreign[: 2 * len(ids) : 2] = ids + 1
    (samples,) = run(
        session,
        input=foreign[None],
        input_lengths=np.array([2 * len(ids)]),
        scales=np.array([0.2, 1.5, 0.8], np.float32),
        sid=np.array([1]),
    )
    num_frames = engine.time_text(ids, "fa", voice, float(1 / np.float32(1.5))).num_frames
    assert samples.shape == (1, 1, num_frames * MEL.hop_length)
    assert np.isfinite(samples).all()
    assert np.abs(samples).max() > 0
