"""A corpus of recordings looks like a feature store to the order of batches, and weighs little."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.pipeline.recordings import DATA, MIXED_CLIPS, PLAIN_CLIPS, Clip, make_corpus

from myxtts.config.schema import DataConfig
from myxtts.corpus.corpus_file import Corpus, open_corpus
from myxtts.errors import DataError
from myxtts.pipeline.recordings import RecordingSource
from myxtts.store.precompute import precompute
from myxtts.store.reader import FeatureStore

Edit = Callable[[dict[str, object]], None]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    clips = (
        *MIXED_CLIPS,
        Clip(rate_hz=16_000),
        Clip(rate_hz=24_000),
        Clip(0.7123, rate_hz=44_100),
        Clip(rate_hz=48_000),
    )
    return make_corpus(tmp_path_factory.mktemp("source"), clips, DATA.model_copy(update={"val_share": 0.3}))


def edit_corpus(corpus: Corpus, folder: Path, edit: Edit) -> Corpus:
    """The corpus with its utterances changed, as if it had been written so; recordings stay where they are."""
    heading, *lines = corpus.file.read_text(encoding="utf-8").splitlines()
    root = corpus.file.parents[1] / "recordings"
    utterances = [json.loads(line) for line in lines]
    for fields in utterances:
        edit(fields)
    folder.mkdir(exist_ok=True)
    text = [json.dumps({**json.loads(heading), "roots": [str(root)]}), *map(json.dumps, utterances)]
    (folder / corpus.file.name).write_text("\n".join(text) + "\n", encoding="utf-8")
    (folder / "frontend.json").write_bytes(corpus.file.with_name("frontend.json").read_bytes())
    return open_corpus(folder)


def test_utterances_are_those_of_the_corpus(corpus: Corpus) -> None:
    source = RecordingSource.open(corpus, DATA)
    utterances = list(corpus.utterances())
    assert len(source) == len(utterances) == len(MIXED_CLIPS) + 4
    for row, utterance in enumerate(utterances):
        assert source.utterance(row) == utterance
        assert source.id_of(row) == utterance.id
        assert source.audio_path(row) == utterance.audio


def test_rows_tokens_and_names_are_those_of_a_store(corpus: Corpus, tmp_path: Path) -> None:
    source = RecordingSource.open(corpus, DATA)
    precompute(corpus, tmp_path, DATA, num_threads=1)
    store = FeatureStore.open(tmp_path)
    assert source.speakers == store.speakers == ("adam", "zoe")
    assert source.languages == store.languages == ("en", "es")
    for name in ("speaker", "language", "split", "tokens_length", "source_crc"):
        np.testing.assert_array_equal(source.columns[name], store.columns[name], err_msg=name)
    for row in range(len(store)):
        assert source.id_of(row) == store.id_of(row)
        np.testing.assert_array_equal(source.read_tokens(np.array([row]))[0], store.read_part(row, "tokens"))
    assert len(source.rows_of_split("val")) > 0
    for split in ("train", "val", "test"):
        np.testing.assert_array_equal(source.rows_of_split(split), store.rows_of_split(split))


@pytest.mark.parametrize("trim_silence", [True, False])
def test_length_in_frames_is_exact_but_for_trimming(corpus: Corpus, tmp_path: Path, trim_silence: bool) -> None:
    data = DATA.model_copy(update={"trim_silence": trim_silence})
    source = RecordingSource.open(corpus, data)
    precompute(corpus, tmp_path, data, num_threads=1)
    bound, actual = source.columns["mel_length"], FeatureStore.open(tmp_path).columns["mel_length"]
    if trim_silence:
        assert (bound >= actual).all()
        assert (bound > actual).any()
    else:
        np.testing.assert_array_equal(bound, actual)


def test_corpus_checked_by_headers_alone_is_as_good(tmp_path: Path) -> None:
    source = RecordingSource.open(make_corpus(tmp_path, PLAIN_CLIPS[:3], headers_only=True), DATA)
    assert source.columns["source_crc"].tolist() == [0, 0, 0]
    heard = RecordingSource.open(make_corpus(tmp_path, PLAIN_CLIPS[:3]), DATA)
    np.testing.assert_array_equal(source.columns["mel_length"], heard.columns["mel_length"])


def test_recording_of_unknown_length_is_taken_for_the_longest(corpus: Corpus, tmp_path: Path) -> None:
    unknown = edit_corpus(corpus, tmp_path / "edited", lambda fields: fields.update(num_samples=0))
    data = DATA.model_copy(update={"max_duration_s": 2.0})
    num_frames = 2 * data.sample_rate // data.hop_length
    lengths = RecordingSource.open(unknown, data).columns["mel_length"]
    assert ((lengths >= num_frames) & (lengths <= num_frames + 2)).all()


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("max_duration_s", 0.75, r"at most 0.75 s"),
        ("min_duration_s", 0.75, r"at least 0.75 s"),
        ("max_source_rate_hz", 32_000, r"48000 Hz|44100 Hz"),
        ("max_channels", 1, r"2 channels"),
    ],
)
def test_corpus_prepared_under_wider_limits_is_refused_at_once(
    corpus: Corpus, setting: str, value: float, message: str
) -> None:
    with pytest.raises(DataError, match=message) as raised:
        RecordingSource.open(corpus, DATA.model_copy(update={setting: value}))
    assert f"of {len(MIXED_CLIPS) + 4} recordings" in raised.value.problem
    assert "clip" in raised.value.problem
    assert "prepare" in raised.value.next_step


def test_names_in_any_script_survive(corpus: Corpus, tmp_path: Path) -> None:
    def rename(fields: dict[str, object]) -> None:
        fields.update(speaker="ژاله", phonemes="ˈsælɑm", text=f"سلام {fields['text']}")

    renamed = edit_corpus(corpus, tmp_path / "edited", rename)
    source = RecordingSource.open(renamed, DATA)
    assert source.speakers == ("ژاله",)
    assert [source.utterance(row) for row in range(len(source))] == list(renamed.utterances())


def test_an_utterance_costs_little_memory(corpus: Corpus, tmp_path: Path) -> None:
    heading, line, *_ = corpus.file.read_text(encoding="utf-8").splitlines()
    num_utterances = 4000
    fields = json.loads(line)
    lines = [json.dumps({**json.loads(heading), "num_utterances": num_utterances})]
    lines += [json.dumps({**fields, "id": f"utterance{number}"}) for number in range(num_utterances)]
    (tmp_path / corpus.file.name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "frontend.json").write_bytes(corpus.file.with_name("frontend.json").read_bytes())
    RecordingSource.open(open_corpus(corpus.file), DATA)
    tracemalloc.start()
    source = RecordingSource.open(open_corpus(tmp_path), DataConfig(text_frontend="characters"))
    num_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(source) == num_utterances
    assert num_bytes / num_utterances < 500
