"""Which recordings go through TensorFlow is seen from their first bytes, and said once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.pipeline.recordings import DATA, FORMATS, Clip, make_corpus

from myxtts.config.schema import DataConfig
from myxtts.pipeline.loader import Loader
from myxtts.pipeline.on_the_fly import choose_on_the_fly_loader
from myxtts.pipeline.source import RecordingSource
from myxtts.pipeline.wav_layout import Survey, survey_recordings

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
        ([WAV] * 3, "native", "TF-native loading serves all 3 recordings."),
        ([WAV, FLAC, WAV], "native", "TF-native loading serves 2 of 3 recordings; 1 goes through Python: FLAC."),
        (
            [FLAC, WAV, FLAC, DEEP],
            "native",
            "TF-native loading serves 1 of 4 recordings; 3 go through Python: 2 FLAC, 1 24-bit WAV.",
        ),
        ([FLAC] * 2, "python", "Recordings are loaded through Python: none is a 16-bit WAV file (FLAC)."),
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
from myxtts.corpus.open import open_corpus
from myxtts.pipeline.on_the_fly import choose_on_the_fly_loader
from myxtts.pipeline.source import RecordingSource

data = DataConfig(text_frontend="characters")
source = RecordingSource.open(open_corpus({str(tmp_path / "corpus")!r}), data)
loader, _ = choose_on_the_fly_loader(source, data, num_reference_frames=40, seed=1)
assert loader.name == "python"
sys.exit("tensorflow" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
