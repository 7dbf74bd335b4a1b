"""A bundle comes back as it was written, and one that was tampered with is refused without touching anything."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from tests.fork_process import KILLED, ForkProcess
from tests.models.hostile import HOSTILE, MEL, make_bundle

from myxtts.config.schema import ModelConfig
from myxtts.errors import ConfigError, DataError, StorageError
from myxtts.models.bundle import check_weights, find_bundle, read_bundle, refuse_foreign_vocoder, write_bundle

ROOT = Path(__file__).parents[2]


def test_a_bundle_comes_back_as_it_was_written(tmp_path: Path) -> None:
    bundle = make_bundle()
    write_bundle(tmp_path / "bundle", bundle)
    found = read_bundle(tmp_path / "bundle")
    for name in ("weights", "vocoder_weights"):
        old, new = getattr(bundle, name), getattr(found, name)
        assert list(new) == list(old)
        assert all(new[key].tobytes() == old[key].tobytes() and new[key].shape == old[key].shape for key in old)
    plain: dict[str, Any] = {"weights": {}, "vocoder_weights": {}, "versions": {}}
    assert replace(found, **plain) == replace(bundle, **plain)
    assert found.versions["keras"]


def test_large_weights_may_be_stored_as_float16(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    weights = {
        "large": generator.normal(size=(64, 64)).astype(np.float32),
        "small": generator.normal(size=16).astype(np.float32),
        "beyond": np.full((64, 64), 1e6, np.float32),
    }
    bundle = make_bundle(weights=weights | make_bundle().weights, storage_dtype="float16")
    write_bundle(tmp_path / "bundle", bundle)
    stored = safetensors.numpy.load_file(tmp_path / "bundle" / "model.safetensors")
    assert {name: stored[name].dtype.name for name in weights} == {
        "large": "float16",
        "small": "float32",
        "beyond": "float32",
    }
    found = read_bundle(tmp_path / "bundle")
    assert found.storage_dtype == "float16"
    assert all(array.dtype == np.float32 for array in found.weights.values())
    np.testing.assert_allclose(found.weights["large"], weights["large"], rtol=1e-3, atol=1e-7)
    np.testing.assert_array_equal(found.weights["beyond"], weights["beyond"])
    # Written again it does not change, and a flipped bit is found.
    write_bundle(tmp_path / "again", found)
    files = [tmp_path / name / "model.safetensors" for name in ("bundle", "again")]
    assert files[0].read_bytes() == files[1].read_bytes()
    damaged = bytearray(files[0].read_bytes())
    damaged[-3] ^= 1
    files[0].write_bytes(damaged)
    with pytest.raises(DataError, match="checksum"):
        read_bundle(tmp_path / "bundle")


def test_a_bundle_without_vocoder_weights_has_no_file_for_them(tmp_path: Path) -> None:
    bundle = make_bundle(vocoder={"kind": "griffin_lim", "mel": MEL}, vocoder_weights={})
    write_bundle(tmp_path / "bundle", bundle)
    names = {path.name for path in (tmp_path / "bundle").iterdir()}
    assert names == {"bundle.json", "model.safetensors", "frontend.json", "CARD.md"}
    assert read_bundle(tmp_path / "bundle").vocoder_weights == {}


def test_the_weights_are_plain_safetensors(tmp_path: Path) -> None:
    write_bundle(tmp_path / "bundle", make_bundle())
    weights = safetensors.numpy.load_file(tmp_path / "bundle" / "model.safetensors")
    np.testing.assert_array_equal(weights["decoder/dense/kernel"], make_bundle().weights["decoder/dense/kernel"])


def test_a_bundle_replaces_an_older_one_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    for step in (1, 2):
        write_bundle(tmp_path / "bundle", make_bundle(notes={"step": step}))
    assert read_bundle(tmp_path / "bundle").notes == {"step": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def write_numbered(folder: str, step: int) -> None:
    write_bundle(Path(folder), make_bundle(notes={"step": step}))


@pytest.fixture(scope="module")
def process() -> Iterator[ForkProcess]:
    with ForkProcess("tests.models.test_bundle") as process:
        yield process


@pytest.mark.parametrize("kind", ["kill", "ENOSPC"])
@pytest.mark.parametrize("point", ["write:1", "tensor_write:2", "fsync:3", "replace:4", "bundle_rename:1"])
def test_a_fault_while_writing_leaves_the_old_bundle_or_the_new(
    tmp_path: Path, process: ForkProcess, point: str, kind: str
) -> None:
    folder = tmp_path / "bundle"
    write_bundle(folder, make_bundle(notes={"step": 1}))
    outcome = process.run("write_numbered", fault=f"{point}:{kind}", folder=str(folder), step=2)
    assert outcome.status == (KILLED if kind == "kill" else StorageError.exit_code)
    if (point, kind) == ("bundle_rename:1", "kill"):
        # Both lie beside the place, whole; the next writer puts one back.
        assert not folder.exists()
    else:
        assert read_bundle(folder).notes == {"step": 1}
    write_bundle(folder, make_bundle(notes={"step": 3}))
    assert read_bundle(folder).notes == {"step": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_weights_that_are_not_finite_are_not_written(tmp_path: Path) -> None:
    bundle = make_bundle()
    bundle.weights["decoder/dense/kernel"][0, 0] = np.inf
    with pytest.raises(DataError, match="decoder/dense/kernel"):
        write_bundle(tmp_path / "bundle", bundle)
    assert not list(tmp_path.iterdir())


def test_a_bundle_whose_mel_does_not_match_its_vocoder_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="n_mels 80 against 100"):
        write_bundle(tmp_path / "bundle", make_bundle(vocoder={"kind": "vocos", "mel": {**MEL, "n_mels": 100}}))


@pytest.mark.parametrize("name", sorted(MEL))
def test_a_vocoder_must_agree_in_every_number(name: str) -> None:
    refuse_foreign_vocoder(MEL, {"mel": dict(MEL)})
    with pytest.raises(ConfigError, match=name):
        refuse_foreign_vocoder(MEL, {"mel": {**MEL, name: MEL[name] + 1}})
    with pytest.raises(ConfigError, match=name):
        refuse_foreign_vocoder(MEL, {"mel": {key: value for key, value in MEL.items() if key != name}})
    with pytest.raises(ConfigError, match="does not say"):
        refuse_foreign_vocoder(MEL, {"kind": "vocos"})


def test_weights_that_do_not_fit_are_named() -> None:
    weights = {"a": np.zeros((2, 3)), "b": np.zeros(4), "odd": np.zeros(1)}
    check_weights(weights, {"a": (2, 3), "b": (4,), "odd": (1,)}, "here")
    with pytest.raises(DataError) as caught:
        check_weights(weights, {"a": (3, 2), "b": (4,), "c": (1,)}, "the bundle x")
    text = str(caught.value)
    assert "the bundle x" in text
    for words in ("c is missing", "odd is not known", "a has the shape [2, 3] instead of [3, 2]"):
        assert words in text


def test_a_bundle_is_found_in_its_run(tmp_path: Path) -> None:
    write_bundle(tmp_path / "run" / "bundle", make_bundle())
    assert find_bundle(tmp_path / "run") == find_bundle(tmp_path / "run" / "bundle") == tmp_path / "run" / "bundle"
    with pytest.raises(DataError, match="no trained model"):
        find_bundle(tmp_path)


def test_a_size_preset_is_not_taken_for_larger_than_its_weights(tmp_path: Path) -> None:
    """The least a model can have is below what the smallest one has: 4 million."""
    weights = {"kernel": np.zeros((2000, 1700), np.float32)}
    config = ModelConfig(text_width=192, text_layers=4, decoder_width=256, decoder_layers=6, reference_width=128)
    write_bundle(tmp_path / "bundle", make_bundle(model_config=config, weights=weights))
    assert read_bundle(tmp_path / "bundle").model_config == config


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of every hostile bundle, read one after another in a process that is watched."""
    root = tmp_path_factory.mktemp("hostile")
    for name, (change, _) in HOSTILE.items():
        write_bundle(root / name.replace("/", "-"), make_bundle())
        change(root / name)
    command = [sys.executable, "-m", "tests.models.hostile", str(root)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not list(root.rglob("planted"))
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_bundle_is_refused_for_what_is_wrong_with_it(answers: dict[str, Any], name: str) -> None:
    answer = answers[name]
    assert HOSTILE[name][1] in answer["message"]
    assert answer["events"] == []
    assert answer["seconds"] < 0.5


def test_a_good_bundle_is_read_without_touching_anything_else(answers: dict[str, Any]) -> None:
    assert answers["good"]["message"] == ""
    assert answers["good"]["events"] == []
    assert answers["a look elsewhere"]["events"] != [], "the watch sees nothing"


def test_hostile_bundles_are_refused_in_milliseconds(answers: dict[str, Any]) -> None:
    times = sorted(answers[name]["seconds"] for name in HOSTILE)
    assert times[len(times) // 2] < 0.005
