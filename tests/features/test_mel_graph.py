"""Samples and spectrograms made by TensorFlow: equal to those of the host, alone and in a batch, in every graph.

All tests that need TensorFlow stand in this module: importing it takes seconds.
"""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import librosa
import numpy as np
import pytest
import soundfile
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.features.definition import MelDefinition
from myxtts.features.mel import HostMel
from myxtts.features.mel_graph import GraphMel, decode_wav

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
from myxtts.features.mel_graph import GraphMel, decode_wav

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


def write_wav(pcm: NDArray[np.int16], rate_hz: int = 22_050, container: str = "WAV") -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, pcm, rate_hz, format=container, subtype="PCM_16")
    return buffer.getvalue()


def make_pcm(num_samples: int, num_channels: int = 1) -> NDArray[np.int16]:
    pcm = np.random.default_rng(0).integers(-32768, 32768, (num_samples, num_channels), dtype=np.int16)
    pcm[:2, 0] = [-32768, 32767]
    return pcm


def insert_chunk(content: bytes, position: int) -> bytes:
    return content[:position] + b"LIST" + struct.pack("<I", 6) + b"INFO\0\0" + content[position:]


@pytest.mark.parametrize("num_samples", [2, 1000, 22_051])
@pytest.mark.parametrize("rate_hz", [16_000, 48_000])
def test_plain_file_decodes_to_the_samples_of_the_host(num_samples: int, rate_hz: int) -> None:
    content = write_wav(make_pcm(num_samples), rate_hz)
    samples, rate = decode_wav(tf.constant(content))
    expected, _ = soundfile.read(io.BytesIO(content), dtype="float32")
    np.testing.assert_array_equal(samples.numpy(), expected)
    assert rate.numpy() == rate_hz


@pytest.mark.parametrize("position", [36, None])
def test_further_chunks_are_no_samples(position: int | None) -> None:
    plain = write_wav(make_pcm(1000))
    content = insert_chunk(plain, len(plain) if position is None else position)
    samples, rate = decode_wav(tf.constant(content))
    np.testing.assert_array_equal(samples.numpy(), decode_wav(tf.constant(plain))[0].numpy())
    assert rate.numpy() == 22_050


def test_channels_are_averaged() -> None:
    pcm = make_pcm(1000, num_channels=2)
    samples, _ = decode_wav(tf.constant(write_wav(pcm)))
    np.testing.assert_allclose(samples.numpy(), pcm.mean(axis=1) / 32768, atol=1e-7)


@pytest.mark.parametrize("damage", ["empty", "cut in the header", "cut in the samples", "not a WAV file", "24 bits"])
def test_file_that_cannot_be_decoded_is_an_error(damage: str) -> None:
    content = write_wav(make_pcm(1000))
    twenty_four = io.BytesIO()
    soundfile.write(twenty_four, make_pcm(1000), 22_050, format="WAV", subtype="PCM_24")
    damaged = {
        "empty": b"",
        "cut in the header": content[:30],
        "cut in the samples": content[:-100],
        "not a WAV file": b"x" * 5000,
        "24 bits": twenty_four.getvalue(),
    }[damage]
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode_wav(tf.constant(damaged))


def test_files_of_both_kinds_pass_through_one_graph(tmp_path: Path) -> None:
    plain = write_wav(make_pcm(3000))
    contents = [plain, insert_chunk(plain, 36), write_wav(make_pcm(4000, num_channels=2))]
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.wav").write_bytes(content)
    graph = GraphMel(DEFAULT)
    paths = tf.data.Dataset.list_files(str(tmp_path / "*.wav"), shuffle=False)
    mels = list(paths.map(lambda path: graph.single(decode_wav(tf.io.read_file(path))[0])).as_numpy_iterator())
    assert [len(mel) for mel in mels] == [12, 12, 16]
    np.testing.assert_array_equal(mels[0], mels[1])
