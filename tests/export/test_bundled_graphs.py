"""A bundle with graphs speaks as TensorFlow does, without it and without a second copy of its weights."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import httpx
import numpy as np
import onnx
import pytest
import soundfile
from base.graphs import add_graphs
from tests.export.conftest import CommandRunner
from tests.synthesis.small_models import make_vocoder, write_run, write_small_bundle

from myxtts.errors import ConfigError, DataError, MissingExtraError
from myxtts.export.proof import LARGEST_DIFFERENCE
from myxtts.models.base_model import has_base_model
from myxtts.models.vocoder import NOISE_SAMPLES
from myxtts.synthesis import onnx_engine
from myxtts.synthesis.bundled_graphs import put_weights
from myxtts.synthesis.engine import SpeechEngine
from myxtts.synthesis.loaded_bundle import choose_vocoder, load_bundle
from myxtts.synthesis.onnx_engine import OnnxEngine
from myxtts.synthesis.synthesizer import Synthesizer

TEXT = "The quick brown fox. It jumps over 12 dogs."
SENTENCE = "Good morning, and welcome to the old harbour."
VOICES = {"anna": {"vector": [0.1] * 8, "latents": [[0.2] * 8, [-0.1] * 8], "language": "en"}}


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with a neural vocoder and graphs."""
    vocoder = make_vocoder()
    folder = write_small_bundle(
        tmp_path_factory.mktemp("packed") / "model",
        notes={"step": 0, "voices": VOICES},
        vocoder=vocoder.describe(),
        vocoder_weights=dict(vocoder.weights),
        storage_dtype="float16",
    )
    add_graphs(folder)
    return folder


@pytest.fixture(scope="session")
def speaker(packed: Path) -> Synthesizer:
    return Synthesizer.load(packed)


@pytest.fixture(scope="session")
def original(packed: Path) -> Synthesizer:
    return Synthesizer(load_bundle(packed).without_graphs())


def test_the_graphs_are_proved_and_hold_no_weights(packed: Path) -> None:
    content = json.loads((packed / "graphs.json").read_text(encoding="utf-8"))
    assert content["proof"]["num_sentences"] == 6
    assert 0 < content["proof"]["largest_difference"] <= LARGEST_DIFFERENCE
    # The table of noise stays in the vocoder; the matrices of its Fourier transform are computed.
    for name, most_bytes in (("predict", 4096), ("decode", 4096), ("vocoder", 4 * NOISE_SAMPLES)):
        model = onnx.load(packed / f"{name}.onnx")
        assert max(len(one.raw_data) for one in model.graph.initializer) <= most_bytes
        assert content["weights"][name]
    assert {weight["source"] for weight in content["weights"]["vocoder"].values()} == {"vocoder", "fourier"}


@pytest.mark.parametrize(
    ("voice", "options"), [("anna", {}), ("anna", {"speed": 1.3, "guidance": 2.0, "num_steps": 4, "noise_scale": 0.7})]
)
def test_both_runtimes_say_the_same(
    speaker: Synthesizer, original: Synthesizer, voice: str, options: dict[str, Any]
) -> None:
    assert isinstance(speaker.engine, OnnxEngine)
    assert isinstance(original.engine, SpeechEngine)
    wave, expected = (one.say(TEXT, voice, "en", seed=3, **options) for one in (speaker, original))
    assert wave.samples.shape == expected.samples.shape
    assert np.abs(wave.samples - expected.samples).max() <= 0.01 * np.abs(expected.samples).max()


def test_tensorflow_speaks_where_graphs_do_not_fit(packed: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """With XLA, with another vocoder, and where onnxruntime is not installed."""
    loaded = load_bundle(packed)
    assert isinstance(Synthesizer(loaded, use_xla=True).engine, SpeechEngine)
    other, _ = choose_vocoder(loaded, write_run(tmp_path / "vocoder", make_vocoder()))
    assert other.needs_tensorflow
    # Griffin-Lim needs no graph.
    assert isinstance(Synthesizer(loaded, vocoder="griffin_lim").engine, OnnxEngine)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert isinstance(Synthesizer(loaded).engine, SpeechEngine)
    monkeypatch.setattr("myxtts.synthesis.loaded_bundle.has_tensorflow", lambda: False)
    with pytest.raises(MissingExtraError, match=r"myxtts\[speak\]"):
        Synthesizer(loaded)


def test_graphs_that_speak_otherwise_are_not_kept(packed: Path, tmp_path: Path, monkeypatch: Any) -> None:
    folder = shutil.copytree(packed, tmp_path / "model")
    monkeypatch.setattr("base.graphs.convert", lambda graph: read_whole(packed, graph.name))
    monkeypatch.setattr(onnx_engine, "draw_normal", lambda _seed, shape: np.zeros(shape, np.float32))
    with pytest.raises(ConfigError, match="does not speak as the original"):
        add_graphs(folder)
    assert load_bundle(folder).graphs is None


def read_whole(folder: Path, name: Any) -> Any:
    """A graph with its weights."""
    return onnx.load_model_from_string(load_bundle(folder).read_graph(name))


def test_weights_are_put_into_a_graph() -> None:
    node = onnx.helper.make_node("Identity", ["w"], ["y"])
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 300])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [result]))
    weight = np.arange(600, dtype=np.float32).reshape(300, 2).T
    found = onnx.load_model_from_string(put_weights(model.SerializeToString(), {"w": weight}))
    onnx.checker.check_model(found, full_check=True)
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(found.graph.initializer[0]), weight)


def change_list(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = json.loads((folder / "graphs.json").read_text())
        change(content)
        (folder / "graphs.json").write_text(json.dumps(content))

    return damage


def change_weight(**changes: Any) -> Callable[[Path], None]:
    """Another entry for one weight of the decoder."""
    return change_list(lambda content: next(iter(content["weights"]["decode"].values())).update(changes))


def change_bundle(folder: Path) -> None:
    """Another bundle beside the same graphs: the same weights at another step."""
    content = json.loads((folder / "bundle.json").read_text())
    (folder / "bundle.json").write_text(json.dumps({**content, "notes": {**content["notes"], "step": 9}}))


def name_another_file(folder: Path) -> None:
    """A graph with a weight outside, and its right checksum."""
    model = onnx.load(folder / "predict.onnx")
    tensor = model.graph.initializer.add()
    tensor.name, tensor.data_type, tensor.data_location = "w", onnx.TensorProto.UINT8, onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/hostname")
    content = model.SerializeToString()
    (folder / "predict.onnx").write_bytes(content)
    change_list(lambda m: m["checksums"].update({"predict.onnx": google_crc32c.value(content)}))(folder)


HOSTILE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a flipped bit": (
        lambda folder: (folder / "decode.onnx").write_bytes(b"x" + (folder / "decode.onnx").read_bytes()[1:]),
        "checksum of decode.onnx",
    ),
    "another bundle": (change_bundle, "checksum of bundle.json"),
    "no graph": (lambda folder: (folder / "predict.onnx").unlink(), "predict.onnx cannot be read"),
    "no checksum": (change_list(lambda m: m["checksums"].pop("vocoder.onnx")), "no checksum of vocoder.onnx"),
    "a file outside": (change_list(lambda m: m["checksums"].update({"../x": 1})), "checksums"),
    "weights in other files": (name_another_file, "predict.onnx refers to other files"),
    "an unknown key": (change_list(lambda m: m.update(run="rm")), "run"),
    "a later version": (change_list(lambda m: m.update(version=2)), "version"),
    "a tensor that is not there": (change_weight(tensor="../../etc/passwd"), "does not fit the weight"),
    "axes that are not there": (change_weight(axes=[7, 0]), "does not fit the weight"),
    "a larger shape": (change_weight(shape=[1 << 20, 1 << 19]), "does not fit the weight"),
    "another shape": (change_weight(shape=[1, 0]), "does not fit the weight"),
    "a missing weight": (change_list(lambda m: m["weights"].pop("predict")), "predict.onnx does not run"),
    "no list": (lambda folder: (folder / "graphs.json").write_text("[]"), "graphs.json"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_folder_is_refused(case: str, packed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(packed, tmp_path / "model")
    damage, words = HOSTILE[case]
    damage(folder)
    with pytest.raises(DataError, match=words):
        Synthesizer.load(folder)


@pytest.mark.skipif(not has_base_model(), reason="the package is built without its base model")
def test_the_base_model_speaks_without_tensorflow(run_without: CommandRunner, tmp_path: Path) -> None:
    """With a default voice, a voice by name, a cloned one, another language and vocoder, and subtitles."""
    asked = (
        (SENTENCE, "--out", "a.wav", "--subtitles", "a.srt"),
        ("Hello.", "--voice", "a.wav", "--seed", "5", "--speed", "1.2", "--out", "b.wav"),
        ("Guten Morgen.", "--voice", "kerstin", "--language", "de", "--vocoder", "griffin_lim", "--out", "c.wav"),
    )
    for arguments in asked:
        done = run_without(tmp_path, "synth", *arguments)
        assert done.returncode == 0, done.stderr
        samples, rate = soundfile.read(tmp_path / arguments[-1] if arguments[-1] != "a.srt" else tmp_path / "a.wav")
        assert 0.3 < len(samples) / rate < 6
        assert np.abs(samples).max() > 0.05
    assert SENTENCE in (tmp_path / "a.srt").read_text()
    expected = Synthesizer(load_bundle().without_graphs()).say(SENTENCE)
    samples, _ = soundfile.read(tmp_path / "a.wav", dtype="float32")
    assert np.abs(samples - expected.samples).max() <= 0.02


@pytest.mark.skipif(not has_base_model(), reason="the package is built without its base model")
def test_the_base_model_is_served_without_tensorflow(without: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "myxtts", "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, env=without, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split("Serving on ", 1)[1].split()[0]
            assert "<textarea" in httpx.get(url, timeout=60).text
            request = {"model": "base", "voice": "lj", "input": "Good morning.", "response_format": "wav"}
            answer = httpx.post(f"{url}/v1/audio/speech", json=request, timeout=120)
            assert answer.status_code == 200
            assert answer.content.startswith(b"RIFF")
        finally:
            process.terminate()
