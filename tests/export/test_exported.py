"""An exported model speaks as the original, without TensorFlow; a folder that was tampered with is refused."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c
import httpx
import numpy as np
import onnx
import pytest
import soundfile
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import ClipWriter
from tests.export.conftest import CommandRunner
from tests.serve.served import serve

from myxtts.errors import ConfigError, DataError, MissingExtraError, UsageError
from myxtts.export.folder import export_onnx
from myxtts.export.joining import store_weights
from myxtts.export.proof import LARGEST_DIFFERENCE, choose_voices, list_sentences, prove
from myxtts.storage.atomic import write_new_folder
from myxtts.storage.regular_file import FileRefusedError
from myxtts.synthesis import onnx_engine
from myxtts.synthesis.exported import Proof, read_export, refuse_external_data
from myxtts.synthesis.loaded_bundle import LoadedBundle, choose_vocoder, load_bundle
from myxtts.synthesis.noise import draw_normal
from myxtts.synthesis.options import SpeechOptions
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.synthesis.timing import TimedText

TEXT = "The quick brown fox. It jumps over 12 dogs."


def test_the_proof_is_kept_and_holds(proved: tuple[Path, Proof]) -> None:
    folder, proof = proved
    # Three voices, two languages, three sentences.
    assert proof.num_sentences == 18
    assert 0 < proof.largest_difference <= LARGEST_DIFFERENCE
    assert proof.real_time_factor > 0
    assert read_export(folder)[0].proof == proof
    assert not list(folder.parent.glob(".*"))


@pytest.mark.parametrize(("num_voices", "num_languages", "num_sentences"), [(1, 2, 2), (16, 4, 64), (17, 4, 17)])
def test_every_voice_and_every_language_is_proved(num_voices: int, num_languages: int, num_sentences: int) -> None:
    names = [str(number) for number in range(num_voices)]
    spoken = [choose_voices(names, place, num_languages) for place in range(num_languages)]
    assert all(spoken)
    assert {name for voices in spoken for name in voices} == set(names)
    assert sum(map(len, spoken)) == num_sentences


def test_more_languages_than_voices_are_all_proved() -> None:
    names = [str(number) for number in range(17)]
    assert all(choose_voices(names, place, 20) for place in range(20))


@pytest.mark.parametrize(("num_frames", "is_refused"), [(1, False), (2, True)])
def test_a_border_between_two_frames_may_be_rounded_otherwise(
    original: Synthesizer, speaker: Synthesizer, monkeypatch: pytest.MonkeyPatch, num_frames: int, is_refused: bool
) -> None:
    time_text, asked = speaker.engine.time_text, []

    def move(*arguments: Any) -> TimedText:
        asked.append(arguments)
        timed = time_text(*arguments)
        if len(asked) != 3:
            return timed
        frames_S = timed.state_frames.copy()
        longest = int(frames_S[:-1].argmax())
        frames_S[longest] -= num_frames
        frames_S[longest + 1] += num_frames
        return replace(timed, state_frames=frames_S)

    monkeypatch.setattr(speaker.engine, "time_text", move)
    voices = {"anna": original.encode_voice("anna")}
    engines = original.engine, speaker.engine
    if is_refused:
        with pytest.raises(ConfigError, match="other durations"):
            prove(*engines, original.loaded, voices, "float32")
        return
    proof = prove(*engines, original.loaded, voices, "float32")
    assert (proof.num_sentences, proof.num_moved) == (6, 1)
    assert proof.largest_difference <= LARGEST_DIFFERENCE
    assert "6 sentences have equal durations (1 of them but for one frame)" in proof.describe()


def test_voices_languages_and_name_go_with_the_export(speaker: Synthesizer, original: Synthesizer) -> None:
    assert speaker.voices() == original.voices() == ["anna", "mahsa", "omid"]
    assert speaker.languages == ("en", "fa")
    assert speaker.loaded.describe_mark() == original.loaded.describe_mark()
    assert speaker.loaded.find_voice("mahsa").consent == "own voice"


@pytest.mark.parametrize(
    ("text", "voice", "options"),
    [
        (TEXT, "anna", {}),
        ("به نام خداوند جان و خرد.", "mahsa", {"speed": 1.3, "seed": 2**40}),
        (TEXT, {"anna": 0.7, "omid": 0.3}, {"seconds": 6.0, "guidance": 2.0, "num_steps": 4, "noise_scale": 0.7}),
    ],
)
def test_both_runtimes_say_the_same(
    speaker: Synthesizer, original: Synthesizer, text: str, voice: Any, options: dict[str, Any]
) -> None:
    language = None if voice == "mahsa" else "en"
    wave, sentences = speaker.say_timed(text, voice, language, **options)
    expected, times = original.say_timed(text, voice, language, **options)
    assert sentences == times
    assert wave.samples.shape == expected.samples.shape
    # Griffin-Lim makes more of the smallest difference.
    assert np.abs(wave.samples - expected.samples).max() <= 0.01 * np.abs(expected.samples).max()


def test_recordings_are_encoded_and_saved_as_voices(
    exported: Path, original: Synthesizer, write_clip: ClipWriter, tmp_path: Path
) -> None:
    folder = shutil.copytree(exported, tmp_path / "model")
    speaker = Synthesizer.load(folder)
    clips = [write_clip(tmp_path / f"{seed}.wav", seconds=9.0, seed=seed) for seed in (1, 2)]
    voice, expected = speaker.encode_voice(clips), original.encode_voice(clips)
    np.testing.assert_allclose(voice.vector, expected.vector, atol=1e-3)
    np.testing.assert_allclose(voice.latents, expected.latents, atol=1e-3)
    speaker.save_voice("clips", clips, language="en", consent="own voice")
    assert Synthesizer.load(folder).say("Fox.", "clips").duration_s > 0


@given(seed=st.integers(0, 2**31 - 1), num_frames=st.integers(1, 30))
def test_noise_is_that_of_tensorflow(seed: int, num_frames: int) -> None:
    expected = tf.random.stateless_normal([num_frames, 1, 7], [seed, 0], alg="philox").numpy()
    np.testing.assert_allclose(draw_normal((seed, 0), (num_frames, 1, 7)), expected, atol=1e-5)


def test_an_export_that_speaks_otherwise_is_refused_and_leaves_nothing(
    loaded: LoadedBundle, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("myxtts.export.folder.convert", lambda graph: onnx.load(exported / f"{graph.name}.onnx"))
    monkeypatch.setattr(onnx_engine, "draw_normal", lambda seed, shape: draw_normal(seed, shape) / 2)
    with pytest.raises(ConfigError, match=r"does not speak as the original: the mean difference .* above 0\.001"):
        export_onnx(loaded, "griffin_lim", tmp_path / "out" / "model", "float32", lambda _line: None)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_folder_that_exists_is_not_overwritten(exported: Path, loaded: LoadedBundle) -> None:
    with pytest.raises(UsageError, match="exists already"):
        export_onnx(loaded, "griffin_lim", exported, "float32", lambda _line: None)
    assert (exported / "decode.onnx").is_file()


def test_an_interrupted_export_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), write_new_folder(tmp_path / "new") as folder:
        (folder / "half").write_bytes(b"x")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("dtype", "size", "limit"), [("float16", 0.7, 0.01), ("int8", 0.5, 0.5)])
def test_smaller_weights_are_close(exported: Path, dtype: Any, size: float, limit: float, tmp_path: Path) -> None:
    """Weights of this model are random and large, so int8 costs it more than a trained one."""
    generator = np.random.default_rng(0)
    weight = generator.normal(0, 0.1, (64, 64)).astype(np.float32)
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 64])
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 64])
    graph = onnx.helper.make_graph([node], "g", [value], [result], [onnx.numpy_helper.from_array(weight, "w")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    before = len(model.SerializeToString())
    store_weights(model, dtype)
    assert len(model.SerializeToString()) < size * before
    x = generator.normal(0, 1, (1, 64)).astype(np.float32)
    session = onnx_engine._import_runtime().InferenceSession(model.SerializeToString())
    assert np.abs(session.run(None, {"x": x})[0] - x @ weight).max() <= limit * 0.1


def damage_manifest(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = json.loads((folder / "export.json").read_text())
        change(content)
        (folder / "export.json").write_text(json.dumps(content))

    return damage


def replace_graph(content: bytes) -> Callable[[Path], None]:
    """Another graph with a right checksum: whoever changes one can change the other."""

    def damage(folder: Path) -> None:
        (folder / "predict.onnx").write_bytes(content)
        damage_manifest(lambda m: m["checksums"].update({"predict.onnx": google_crc32c.value(content)}))(folder)

    return damage


def make_external_graph() -> bytes:
    """A model whose weight is in /etc/hostname."""
    tensor = onnx.TensorProto(
        name="w", data_type=onnx.TensorProto.UINT8, dims=[4], data_location=onnx.TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value="../../../../etc/hostname")
    node = onnx.helper.make_node("Identity", ["w"], ["y"])
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, [4])
    inner = onnx.helper.make_graph([node], "inner", [], [result], [tensor])
    outer = onnx.helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    condition = onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [])
    model = onnx.helper.make_model(onnx.helper.make_graph([outer], "outer", [condition], [result]))
    return bytes(model.SerializeToString())


def link_graph(folder: Path) -> None:
    (folder / "decode.onnx").rename(folder.parent / "elsewhere.onnx")
    (folder / "decode.onnx").symlink_to(folder.parent / "elsewhere.onnx")


HOSTILE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a graph with a flipped bit": (
        lambda folder: (folder / "decode.onnx").write_bytes(b"x" + (folder / "decode.onnx").read_bytes()[1:]),
        "checksum of decode.onnx",
    ),
    "no graph": (lambda folder: (folder / "predict.onnx").unlink(), "predict.onnx cannot be read"),
    "a link": (link_graph, "decode.onnx"),
    "weights in other files": (replace_graph(make_external_graph()), "predict.onnx refers to other files"),
    "no protobuf": (replace_graph(b"\x80\x04pickle"), "predict.onnx"),
    "an empty graph": (replace_graph(b""), "predict.onnx does not run"),
    "another front end": (lambda folder: (folder / "frontend.json").write_text("{}"), "checksum of frontend.json"),
    "an unknown key": (damage_manifest(lambda m: m.update(run="rm")), "run"),
    "a file outside": (damage_manifest(lambda m: m["checksums"].update({"../x": 1})), "checksums"),
    "no checksum": (damage_manifest(lambda m: m["checksums"].pop("decode.onnx")), "no checksum of decode.onnx"),
    "a later version": (damage_manifest(lambda m: m.update(version=2)), "version"),
    "another vocoder": (damage_manifest(lambda m: m.update(vocoder="neural")), "no checksum of vocoder.onnx"),
    "a model of another size": (damage_manifest(lambda m: m["mel"].update(n_mels=21)), "mel"),
    "no manifest": (lambda folder: (folder / "export.json").write_text("[]"), "export.json"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_folder_is_refused(case: str, exported: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(exported, tmp_path / "model")
    damage, words = HOSTILE[case]
    damage(folder)
    with pytest.raises(DataError, match=words):
        Synthesizer.load(folder)


@given(st.binary(max_size=300))
def test_any_bytes_are_searched_without_another_error(content: bytes) -> None:
    with suppress(FileRefusedError):
        refuse_external_data(content, "graph.onnx")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    ),
    st.integers(0, 14),
)
def test_a_manifest_with_another_value_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, exported: Path, value: Any, place: int
) -> None:
    content = json.loads((exported / "export.json").read_text())
    content[sorted(content)[place]] = value
    folder = tmp_path_factory.mktemp("manifest")
    shutil.copyfile(exported / "frontend.json", folder / "frontend.json")
    (folder / "export.json").write_text(json.dumps(content))
    with suppress(DataError, ConfigError):
        load_bundle(folder)
    shutil.rmtree(folder)


def test_an_export_takes_no_other_vocoder(exported: Path, tmp_path: Path) -> None:
    for asked, words in ((tmp_path, "cannot take another vocoder"), ("neural", "no neural vocoder")):
        with pytest.raises(ConfigError, match=words):
            choose_vocoder(load_bundle(exported), asked)


def test_sentences_of_unknown_languages_are_random_tokens(loaded: LoadedBundle) -> None:
    sentences = list_sentences(loaded, "xx")
    assert [len(ids) for ids in sentences] == [9, 40, 90]
    assert all(ids.max() < np.prod(loaded.spec.factor_sizes) for ids in sentences)


def test_the_engine_names_onnxruntime_where_it_is_missing(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"myxtts\[speak\]"):
        Synthesizer.load(exported)


def test_the_command_speaks_without_tensorflow(
    run_without: CommandRunner,
    exported: Path,
    bundle: Path,
    speaker: Synthesizer,
    write_clip: ClipWriter,
    tmp_path: Path,
) -> None:
    """With an exported model; inside a run it is found, and a run without one is refused."""
    shutil.copytree(exported, tmp_path / "run" / "export")
    write_clip(tmp_path / "clip.wav", seconds=3.0)
    said = ("synth", TEXT, "--language", "en", "--seed", "5", "--model")
    done = run_without(
        tmp_path,
        *said,
        "run",
        "--voice",
        "clip.wav",
        "--out",
        "a.wav",
        "--subtitles",
        "a.srt",
        "--save-voice",
        "me",
    )
    assert done.returncode == 0, done.stderr
    samples, rate = soundfile.read(tmp_path / "a.wav", dtype="float32")
    expected = speaker.say(TEXT, tmp_path / "clip.wav", "en", seed=5)
    assert (rate, len(samples)) == (expected.rate, len(expected.samples))
    assert np.abs(samples - expected.samples).max() <= 0.02
    assert "The quick brown fox." in (tmp_path / "a.srt").read_text()
    assert (tmp_path / "run" / "export" / "voices" / "me.safetensors").is_file()
    refused = run_without(tmp_path, *said, str(bundle), "--voice", "anna", "--out", "b.wav")
    assert refused.returncode == MissingExtraError.exit_code
    assert "pip install 'myxtts[train]'" in " ".join(refused.stderr.split())


def test_training_without_tensorflow_names_what_to_install(run_without: CommandRunner, ljspeech: Path) -> None:
    refused = run_without(ljspeech, "train", "--train-data", str(ljspeech), "--steps", "1")
    assert refused.returncode == MissingExtraError.exit_code, refused.stderr
    assert "pip install 'myxtts[train]'" in " ".join(refused.stderr.split())


@pytest.fixture
def url(speaker: Synthesizer) -> Iterator[str]:
    with serve(speaker, host="127.0.0.1", default_voice="anna") as (http, _wyoming):
        yield http


def test_the_server_speaks_with_an_exported_model(url: str, speaker: Synthesizer) -> None:
    request = {"model": "any", "voice": "omid", "input": "Fox.", "response_format": "pcm", "language": "en"}
    answer = httpx.post(f"{url}/v1/audio/speech", json=request, timeout=60)
    assert answer.status_code == 200
    # OpenAI's pcm has 24,000 samples of two bytes a second.
    assert len(answer.content) == round(48_000 * speaker.say("Fox.", "omid", "en").duration_s)


def test_options_that_are_impossible_are_refused_as_before(speaker: Synthesizer) -> None:
    with pytest.raises(DataError, match="cannot be said in"):
        speaker.say(TEXT, "anna", "en", seconds=0.2)
    timed = speaker.engine.time_text(np.full(200, 5, np.int32), "en", speaker.encode_voice("anna"), 0.25)
    with pytest.raises(DataError, match="would take"):
        speaker.engine.decode(timed.stretch(7000), speaker.encode_voice("anna"), SpeechOptions())
