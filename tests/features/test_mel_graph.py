"""Spectrograms as TensorFlow operations: equal to those of the host, alone and in a batch, in every kind of graph.

All tests that need TensorFlow stand in this module: importing it takes seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import librosa
import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.features.definition import MelDefinition
from myxtts.features.mel import HostMel
from myxtts.features.mel_graph import GraphMel

MakeClip = Callable[..., NDArray[np.float32]]

LOG_FLOOR = 1e-5
# sample_rate, n_fft, hop_length, win_length, n_mels, fmin, fmax
DEFINITIONS = {
    "22050 Hz, the default": (22_050, 1024, 256, 1024, 80, 0.0, 8000.0),
    "16000 Hz, hop does not divide": (16_000, 1024, 200, 800, 80, 50.0, 7600.0),
    "24000 Hz, to the top": (24_000, 1024, 256, 1024, 80, 0.0, 12_000.0),
    "44100 Hz": (44_100, 2048, 512, 2048, 128, 20.0, 16_000.0),
    "48000 Hz, hop does not divide": (48_000, 2048, 480, 1920, 80, 0.0, 24_000.0),
    "hop as long as the transform": (22_050, 1024, 1024, 1024, 40, 0.0, 8000.0),
    "transform of odd length": (22_050, 1025, 256, 1001, 80, 0.0, 8000.0),
}
DEFAULT = MelDefinition(*DEFINITIONS["22050 Hz, the default"], LOG_FLOOR)
GARBAGE = {"zeros": 0.0, "loud": 1e30, "not a number": np.nan, "infinite": np.inf}


def define(name: str) -> MelDefinition:
    return MelDefinition(*DEFINITIONS[name], LOG_FLOOR)


def compute_reference(samples: NDArray[np.float32], definition: MelDefinition) -> NDArray[np.float32]:
    settings = {
        key: getattr(definition, key) for key in ("n_fft", "hop_length", "win_length", "n_mels", "fmin", "fmax")
    }
    mel: NDArray[np.float32] = librosa.feature.melspectrogram(
        y=samples, sr=definition.sample_rate, power=1.0, pad_mode="reflect", htk=False, norm="slaney", **settings
    )
    return np.log(np.maximum(mel.T, definition.log_floor))


def make_batch(clips: list[NDArray[np.float32]], garbage: float, extra: int = 0) -> tuple[Any, Any]:
    lengths = np.array([len(clip) for clip in clips], np.int32)
    samples = np.full((len(clips), int(lengths.max()) + extra), garbage, np.float32)
    for place, clip in enumerate(clips):
        samples[place, : len(clip)] = clip
    return tf.constant(samples), tf.constant(lengths)


def make_clips(make_clip: MakeClip, definition: MelDefinition) -> list[NDArray[np.float32]]:
    """Lengths where something could go wrong: the shortest, whole hops and their neighbours, and ordinary ones."""
    hop, shortest = definition.hop_length, definition.min_samples
    lengths = [shortest, shortest + 1, 30 * hop - 1, 30 * hop, 30 * hop + 1, 2 * definition.n_fft, 31 * hop]
    source = make_clip(4.0, rate_hz=definition.sample_rate)
    return [source[place * 100 :][:length] for place, length in enumerate(lengths)]


def check_batch(mel: Any, frames: Any, clips: list[NDArray[np.float32]], definition: MelDefinition) -> None:
    compute = HostMel(definition)
    assert frames.numpy().tolist() == [definition.count_frames(len(clip)) for clip in clips]
    for item, count, clip in zip(mel.numpy(), frames.numpy(), clips, strict=True):
        np.testing.assert_allclose(item[:count], compute(clip), rtol=0, atol=1e-4)
        np.testing.assert_allclose(item[count:], np.log(np.float32(LOG_FLOOR)), rtol=1e-6)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_one_recording_agrees_with_host_and_reference(make_clip: MakeClip, name: str) -> None:
    definition = define(name)
    samples = make_clip(1.3, rate_hz=definition.sample_rate)
    mel = GraphMel(definition).single(tf.constant(samples)).numpy()
    assert mel.dtype == np.float32
    np.testing.assert_allclose(mel, HostMel(definition)(samples), rtol=0, atol=1e-4)
    np.testing.assert_allclose(mel, compute_reference(samples, definition), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_length_at_its_limits_agrees_with_the_host(make_clip: MakeClip, name: str) -> None:
    definition = define(name)
    graph, host = GraphMel(definition), HostMel(definition)
    for clip in make_clips(make_clip, definition):
        np.testing.assert_allclose(graph.single(tf.constant(clip)).numpy(), host(clip), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_item_of_a_batch_is_computed_as_if_it_were_alone(make_clip: MakeClip, name: str, garbage: float) -> None:
    definition = define(name)
    clips = make_clips(make_clip, definition)
    mel, frames = GraphMel(definition)(*make_batch(clips, garbage, extra=777))
    check_batch(mel, frames, clips, definition)


def test_lengths_may_be_of_either_integer_type(make_clip: MakeClip) -> None:
    clips = make_clips(make_clip, DEFAULT)
    samples, lengths = make_batch(clips, np.nan)
    mel, frames = GraphMel(DEFAULT)(samples, tf.cast(lengths, tf.int64))
    check_batch(mel, frames, clips, DEFAULT)


def test_silence_is_the_logarithm_of_the_floor() -> None:
    mel = GraphMel(DEFAULT).single(tf.zeros([5000])).numpy()
    np.testing.assert_allclose(mel, np.log(np.float32(LOG_FLOOR)), rtol=1e-6)


@pytest.mark.parametrize("name", ["22050 Hz, the default", "16000 Hz, hop does not divide"])
def test_one_trace_serves_every_shape(make_clip: MakeClip, name: str) -> None:
    definition = define(name)
    graph, traces = GraphMel(definition), []

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32), tf.TensorSpec([None], tf.int32)])
    def compute_batch(samples: Any, lengths: Any) -> Any:
        traces.append("batch")
        return graph(samples, lengths)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def compute_one(samples: Any) -> Any:
        traces.append("one")
        return graph.single(samples)

    clips = make_clips(make_clip, definition)
    for count in (1, 3, len(clips)):
        mel, frames = compute_batch(*make_batch(clips[-count:], np.nan))
        check_batch(mel, frames, clips[-count:], definition)
        np.testing.assert_allclose(compute_one(clips[count - 1]), HostMel(definition)(clips[count - 1]), atol=1e-4)
    assert traces == ["batch", "one"]


@pytest.mark.parametrize("name", ["22050 Hz, the default", "16000 Hz, hop does not divide"])
def test_static_shapes_compile_to_one_kernel(make_clip: MakeClip, name: str) -> None:
    definition = define(name)
    graph = GraphMel(definition)
    clips = make_clips(make_clip, definition)
    samples, lengths = make_batch(clips, np.nan)
    compute_batch = tf.function(graph.__call__, jit_compile=True)
    mel, frames = compute_batch(samples, lengths)
    check_batch(mel, frames, clips, definition)
    compute_one = tf.function(graph.single, jit_compile=True)
    np.testing.assert_allclose(compute_one(tf.constant(clips[-1])), HostMel(definition)(clips[-1]), atol=1e-4)


# The division into logical devices holds for a whole process, so it has one of its own.
_COMPUTE_ON_A_LOGICAL_DEVICE = """
import numpy as np
import tensorflow as tf
from myxtts.features.definition import MelDefinition
from myxtts.features.mel import HostMel
from myxtts.features.mel_graph import GraphMel

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
definition = MelDefinition(22050, 1024, 256, 1024, 80, 0.0, 8000.0, 1e-5)
clip = np.random.default_rng(0).normal(0, 0.1, 9000).astype(np.float32)
for device in ("CPU:0", "CPU:1"):
    # The object is made outside of the device's scope: its constants must follow the call.
    graph = GraphMel(definition)
    with tf.device(device):
        mel, frames = tf.function(graph.__call__)(tf.constant(clip[None]), tf.constant([8000]))
        single = tf.function(graph.single)(tf.constant(clip))
    assert mel.device.endswith(device) and single.device.endswith(device), (mel.device, single.device)
    np.testing.assert_allclose(mel[0, :frames[0]], HostMel(definition)(clip[:8000]), rtol=0, atol=1e-4)
    np.testing.assert_allclose(single, HostMel(definition)(clip), rtol=0, atol=1e-4)
print("agreed")
"""


def test_it_runs_on_the_device_it_is_told_to() -> None:
    result = subprocess.run(
        [sys.executable, "-c", _COMPUTE_ON_A_LOGICAL_DEVICE], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["agreed"]
