"""Which recordings go through TensorFlow is seen from their first bytes, and said once."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.pipeline.recordings import DATA, FORMATS, Clip, make_corpus, order_rows

from myxtts.config.schema import DataConfig
from myxtts.pipeline.batch import Loader
from myxtts.pipeline.choose_loader import (
    SpeedComparison,
    choose_for_data_device,
    choose_on_the_fly_loader,
    compare_speed,
)
from myxtts.pipeline.recordings import RecordingSource, Survey, survey_recordings

FLAC, WAV, DEEP = Clip(suffix=".flac"), Clip(), Clip(subtype="PCM_24")


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bool, str]]:
    """For each format whether the graph loads it, as found among all others."""
    corpus = make_corpus(tmp_path_factory.mktemp("formats"), [clip for clip, _ in FORMATS.values()])
    found = survey_recordings(RecordingSource.open(corpus, DATA))
    obstacles = [obstacle for _, obstacle in FORMATS.values() if obstacle]
    assert found.obstacles == {obstacle: obstacles.count(obstacle) for obstacle in obstacles}
    return dict(zip(FORMATS, found.is_native.tolist(), strict=True))


@pytest.mark.parametrize("name", FORMATS)
def test_plain_wav_files_are_left_to_tensorflow_and_others_are_not(survey: dict[str, bool], name: str) -> None:
    assert survey[name] == (FORMATS[name][1] == "")


def harm(source: RecordingSource, row: int, content: bytes | None) -> Survey:
    path = Path(source.audio_path(row))
    path.unlink() if content is None else path.write_bytes(content)
    return survey_recordings(source)


def test_missing_empty_and_damaged_recordings_are_left_to_python(tmp_path: Path) -> None:
    source = RecordingSource.open(make_corpus(tmp_path, [WAV] * 6), DATA)
    whole = Path(source.audio_path(0)).read_bytes()
    assert survey_recordings(source).num_native == 6
    assert harm(source, 0, None).obstacles == {"missing-file": 1}
    assert harm(source, 1, b"").num_native == 4
    assert harm(source, 2, whole[:30]).num_native == 3
    assert harm(source, 3, whole[:-1000]).num_native == 2
    assert harm(source, 4, whole[:24] + b"\x80\xbb\0\0" + whole[28:]).obstacles["changed WAV"] == 1
    assert survey_recordings(source).is_native.tolist() == [False] * 5 + [True]


def choose(folder: Path, clips: Sequence[Clip], data: DataConfig = DATA) -> tuple[Loader, str]:
    source = RecordingSource.open(make_corpus(folder, clips), data)
    loader, messages = choose_on_the_fly_loader(source, data, num_reference_frames=40, seed=1)
    assert len(messages) == 1
    return loader, messages[0]


@pytest.mark.parametrize(
    ("clips", "name", "message"),
    [
        ([WAV] * 3, "native", "Loader: TensorFlow-native for all 3 recordings."),
        ([WAV, FLAC, WAV], "native", "Loader: TensorFlow-native for 2 of 3 recordings, Python for 1: FLAC."),
        (
            [FLAC, WAV, FLAC, DEEP],
            "native",
            "Loader: TensorFlow-native for 1 of 4 recordings, Python for 3: 2 FLAC, 1 24-bit WAV.",
        ),
        ([FLAC] * 2, "python", "Loader: Python, because no recording is a 16-bit WAV file (FLAC)."),
    ],
)
def test_choice_is_said_with_its_reason(tmp_path: Path, clips: list[Clip], name: str, message: str) -> None:
    loader, said = choose(tmp_path, clips)
    assert (loader.name, said) == (name, message)


def test_native_loading_can_be_turned_off(tmp_path: Path) -> None:
    loader, message = choose(tmp_path, [WAV], DATA.model_copy(update={"use_tf_native_loading": False}))
    assert loader.name == "python"
    assert "use_tf_native_loading is false" in message


def test_tensorflow_is_imported_only_where_it_loads(tmp_path: Path) -> None:
    make_corpus(tmp_path, [FLAC])
    program = f"""
import sys
from myxtts.config.schema import DataConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.pipeline.choose_loader import choose_on_the_fly_loader
from myxtts.pipeline.recordings import RecordingSource

data = DataConfig(text_frontend="characters")
source = RecordingSource.open(open_corpus({str(tmp_path / "corpus")!r}), data)
loader, _ = choose_on_the_fly_loader(source, data, num_reference_frames=40, seed=1)
assert loader.name == "python"
sys.exit("tensorflow" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_data_device_needs_no_graph_of_the_native_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = RecordingSource.open(make_corpus(tmp_path, [WAV, FLAC, WAV]), DATA)
    monkeypatch.setattr("myxtts.pipeline.loaders.native.TFNativeDataLoader", None)
    setup = choose_for_data_device(source, DATA, order_rows(source).shapes, 40, 1, "/GPU:0")
    assert setup.loader.name == "samples"
    assert setup.messages[0] == "Loader: TensorFlow-native for 2 of 3 recordings, Python for 1: FLAC."


def make_reader(seconds: float, seen: list[int]) -> Callable[[Sequence[int]], object]:
    def read(rows: Sequence[int]) -> None:
        seen.extend(rows)
        time.sleep(seconds * len(rows))

    return read


@pytest.mark.parametrize(("native_s", "python_s", "winner"), [(0.0, 0.01, "native"), (0.01, 0.0, "python")])
def test_faster_way_wins(native_s: float, python_s: float, winner: str) -> None:
    result = compare_speed(make_reader(native_s, []), make_reader(python_s, []), np.arange(4), num_threads=2)
    assert result.faster == winner


@pytest.mark.parametrize("num_threads", [1, 3, 40])
def test_both_load_the_same_clips_spread_over_the_corpus(num_threads: int) -> None:
    native: list[int] = []
    python: list[int] = []
    compare_speed(make_reader(0, native), make_reader(0, python), np.arange(100, 900), num_threads)
    assert set(native) == set(python)
    assert {100, 899} <= set(native)
    assert len(set(native)) == 16


def test_small_difference_keeps_native_loading() -> None:
    assert SpeedComparison(native_s=1.0, python_s=0.95).faster == "native"
    assert "TensorFlow-native loading is used" in SpeedComparison(native_s=1.0, python_s=0.95).describe()
    assert "auto_tune_performance" in SpeedComparison(native_s=1.0, python_s=0.5).describe()
