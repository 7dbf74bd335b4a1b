"""Samples and TensorBoard during training: what is written, from one graph, and that nothing of it stops a training."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import tensorflow as tf
from numpy.typing import NDArray
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as PluginAccumulator
from tensorboard.plugins.audio import metadata as audio_metadata
from tests.models.toys import make_config, make_spec, stir_weights

from myxtts.models.xtts import XTTS
from myxtts.training.sample_files import INDEX_FILE_NAME, encode_wav, list_steps, read_samples
from myxtts.training.tensorboard import TensorBoardWriter
from myxtts.training.voice.samples import VoiceSamples
from myxtts.training.voice.validation_set import FixedUtterance

RATE_HZ = 8000
PNG = b"\x89PNG\r\n\x1a\n"


def make_utterance(number: int, language: int = 0) -> FixedUtterance:
    generator = np.random.default_rng(number)
    return FixedUtterance(
        f"clip/{number}",
        generator.integers(1, 54, 5).astype(np.int32),
        generator.normal(-4, 2, (25 + number, 5)).astype(np.float32),
        0,
        language,
        generator.normal(-4, 2, (9, 5)).astype(np.float32),
    )


def hum(mel_TM: NDArray[Any]) -> NDArray[np.float32]:
    return np.sin(np.arange(len(mel_TM) * 100) / 5).astype(np.float32)


@pytest.fixture(scope="module")
def model() -> XTTS:
    made = XTTS(make_config(text_layers=1, decoder_layers=1), make_spec())
    stir_weights(made)
    return made


def make_writer(model: XTTS, path: Path, said: list[str], make_sound: Any = hum) -> VoiceSamples:
    utterances = [make_utterance(0), make_utterance(1, language=1)]
    texts = {"clip/0": "Hello there.", "clip/1": "سلام."}
    return VoiceSamples(model, utterances, path, make_sound, RATE_HZ, texts=texts, warn=said.append)


def read_index(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / INDEX_FILE_NAME).read_text(encoding="utf-8"))
    return content


def test_samples_are_sounds_and_pictures_with_an_index(model: XTTS, tmp_path: Path) -> None:
    said: list[str] = []
    writer = make_writer(model, tmp_path, said)
    samples = writer.write(100)
    assert [sample.name for sample in samples] == ["01-en", "02-fa"]
    index = read_index(tmp_path / "step-000100")
    assert index["samples"][1] == {
        "name": "02-fa",
        "id": "clip/1",
        "text": "سلام.",
        "language": "fa",
        "speaker": "speaker 0",
        "sound": "02-fa.wav",
        "mel": "02-fa.png",
        "alignment": "02-fa.alignment.png",
    }
    samples_S, rate_hz = soundfile.read(tmp_path / "step-000100" / "01-en.wav")
    assert rate_hz == RATE_HZ
    assert len(samples_S) == len(samples[0].sound) > 0
    assert (tmp_path / "step-000100" / "02-fa.alignment.png").read_bytes().startswith(PNG)
    assert [entry["sound"] for entry in read_index(tmp_path / "real")["samples"]] == ["01-en.wav", "02-fa.wav"]
    assert said == []
    writer.write(200)
    (tmp_path / "step-000300").mkdir()
    assert list_steps(tmp_path) == [100, 200]
    assert writer.num_traces == 1
    names = ("01-en.png", "02-fa.alignment.png", "01-en.wav")
    for name in names:
        assert (tmp_path / "step-000100" / name).read_bytes() == (tmp_path / "step-000200" / name).read_bytes()


def test_an_index_leads_nowhere_but_into_its_folder(tmp_path: Path) -> None:
    (tmp_path / "outside.wav").write_bytes(b"RIFF")
    folder = tmp_path / "step-000001"
    folder.mkdir()
    entry = {"name": "01", "sound": "../outside.wav", "mel": "/etc/passwd"}
    (folder / INDEX_FILE_NAME).write_text(json.dumps({"samples": [entry, 3]}))
    (sample,) = read_samples(folder)
    assert (sample.sound, sample.mel, sample.alignment) == (None, None, None)
    (folder / INDEX_FILE_NAME).write_text("[]")
    assert read_samples(folder) == []


def test_a_sample_that_fails_is_a_warning_and_the_others_are_written(model: XTTS, tmp_path: Path) -> None:
    said: list[str] = []
    calls: list[int] = []

    def fail_third(mel_TM: NDArray[Any]) -> NDArray[np.float32]:
        calls.append(len(mel_TM))
        if len(calls) == 3:
            raise ValueError("no sound\nat all")
        return hum(mel_TM)

    assert [sample.name for sample in make_writer(model, tmp_path, said, fail_third).write(5)] == ["02-fa"]
    assert said == ["Sample 01-en of step 5 could not be made: no sound. Training continues."]
    assert [entry["name"] for entry in read_index(tmp_path / "step-000005")["samples"]] == ["02-fa"]


def test_a_folder_that_cannot_be_written_is_a_warning(model: XTTS, tmp_path: Path) -> None:
    (tmp_path / "samples").write_text("a file in the way")
    said: list[str] = []
    assert make_writer(model, tmp_path / "samples", said).write(5) == []
    assert len(said) == 1
    assert "samples of step 5" in said[0]


def test_a_model_that_is_not_finite_gives_warnings(model: XTTS, tmp_path: Path) -> None:
    bias = model.named_weights()["decoder.correction.bias"]
    kept = bias.numpy()
    bias.assign(np.full_like(kept, np.nan))
    said: list[str] = []
    assert make_writer(model, tmp_path, said).write(1) == []
    bias.assign(kept)
    assert len(said) == 2


def test_loud_sounds_fit_and_silence_stays(tmp_path: Path) -> None:
    loud, _ = soundfile.read(io.BytesIO(encode_wav(np.array([2.0, -4.0, 0.5]), RATE_HZ)))
    np.testing.assert_allclose(loud, [0.5, -1.0, 0.125], atol=1e-4)
    quiet, _ = soundfile.read(io.BytesIO(encode_wav(np.array([0.1, 0.0]), RATE_HZ)))
    np.testing.assert_allclose(quiet, [0.1, 0.0], atol=1e-4)


def test_tensorboard_reads_numbers_pictures_and_sounds(model: XTTS, tmp_path: Path) -> None:
    samples = make_writer(model, tmp_path / "samples", []).write(7)
    board = TensorBoardWriter(tmp_path / "board", RATE_HZ)
    board.write_scalars(6, {"loss": 2.5})
    board.write_scalars(7, {"loss": 1.5, "rate": 0.1})
    board.write_samples(7, samples)
    board.close()
    events = EventAccumulator(str(tmp_path / "board")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(6, 2.5), (7, 1.5)]
    assert events.Scalars("train/rate")[0].value == pytest.approx(0.1)
    (picture,) = events.Images("alignment/02-fa")
    assert (picture.step, picture.width, picture.height) == (7, 780, 240)
    assert picture.encoded_image_string == samples[1].alignment_picture
    assert tf.io.decode_png(picture.encoded_image_string).shape == (240, 780, 4)
    (sound,) = events.Audio("sound/01-en")
    assert (sound.sample_rate, sound.length_frames) == (RATE_HZ, len(samples[0].sound))
    samples_S, rate_hz = soundfile.read(io.BytesIO(sound.encoded_audio_string), dtype="float32")
    assert rate_hz == RATE_HZ
    np.testing.assert_allclose(samples_S, samples[0].sound, atol=1e-4)
    # What the panels of TensorBoard ask for: each tag belongs to a plugin.
    found = PluginAccumulator(str(tmp_path / "board")).Reload()
    plugins = {tag: found.SummaryMetadata(tag).plugin_data.plugin_name for tag in found.Tags()["tensors"]}
    assert plugins["train/loss"] == "scalars"
    assert plugins["mel/01-en"] == plugins["alignment/02-fa"] == "images"
    assert plugins["sound/02-fa"] == "audio"
    # TensorBoard's data server takes the type of a sound from here, and forbids browsers to guess it.
    (file,) = (tmp_path / "board").iterdir()
    written = [tf.compat.v1.Event.FromString(raw.numpy()) for raw in tf.data.TFRecordDataset(str(file))]
    (content,) = {
        value.metadata.plugin_data.content
        for event in written
        for value in event.summary.value
        if value.HasField("audio")
    }
    assert audio_metadata.parse_plugin_metadata(content).encoding == audio_metadata.Encoding.WAV


_WITHOUT_TENSORBOARD = """
import sys
sys.modules["tensorboard"] = None
from pathlib import Path
from myxtts.training.tensorboard import TensorBoardWriter
board = TensorBoardWriter(Path(sys.argv[1]), 8000)
board.write_scalars(1, {"loss": 1.5})
board.close()
print(board.has_failed)
"""


def test_events_are_written_where_tensorboard_is_not_installed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", _WITHOUT_TENSORBOARD, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout == "False\n", done.stderr[-2000:]
    assert EventAccumulator(str(tmp_path)).Reload().Scalars("train/loss")[0].value == 1.5


def test_a_board_that_cannot_be_opened_warns_once(tmp_path: Path) -> None:
    (tmp_path / "board").write_text("a file in the way")
    said: list[str] = []
    board = TensorBoardWriter(tmp_path / "board", RATE_HZ, said.append)
    for step in range(3):
        board.write_scalars(step, {"loss": 1.0})
    board.flush()
    board.close()
    assert len(said) == 1
    assert "Training continues without it" in said[0]


_FULL_DISK = """
import resource, sys
from pathlib import Path
from myxtts.training.tensorboard import TensorBoardWriter
said = []
board = TensorBoardWriter(Path(sys.argv[1]), 8000, said.append)
board.write_scalars(0, {"loss": 0.0})
board.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for step in range(3000):
    board.write_scalars(step, {"loss": 1.0})
board.flush()
board.write_scalars(3000, {"loss": 1.0})
board.close()
print(len(said), board.has_failed, said)
"""


def test_training_goes_on_when_the_disk_of_the_board_is_full(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(tmp_path)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("1 True"), done.stdout
