"""Features made on the host on the fly: read once where memory allows, and named when they cannot be made."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile
from tests.pipeline.recordings import (
    DATA,
    NUM_REFERENCE_FRAMES,
    PLAIN_CLIPS,
    SEED,
    Clip,
    copy_arrays,
    list_plans,
    make_arrays,
    make_corpus,
    order_rows,
    remove,
    replace_by_noise,
    truncate,
)

from myxtts.config.schema import DataConfig
from myxtts.corpus import audio as listen
from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.corpus_file import Corpus
from myxtts.corpus.transcripts import open_plain_file
from myxtts.errors import DataError
from myxtts.pipeline.batch import Arrays
from myxtts.pipeline.loaders.python import MelMemory, PythonLoader
from myxtts.pipeline.order import BatchPlan
from myxtts.pipeline.recordings import RecordingSource

PLENTY_BYTES = 1 << 30


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("python"), PLAIN_CLIPS)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The recordings that were opened, in order."""
    paths: list[str] = []

    def count(path: str) -> int:
        paths.append(path)
        return open_plain_file(path)

    monkeypatch.setattr(listen, "open_plain_file", count)
    return paths


def make_loader(corpus: Corpus, ram_budget_bytes: int = 0, data: DataConfig = DATA) -> PythonLoader:
    source = RecordingSource.open(corpus, data)
    return PythonLoader(source, AudioLimits.from_config(data), NUM_REFERENCE_FRAMES, SEED, ram_budget_bytes)


def plan_all(corpus: Corpus, num_epochs: int = 1) -> list[BatchPlan]:
    return list_plans(order_rows(RecordingSource.open(corpus, DATA)), num_epochs)


def fill_one(loader: PythonLoader, corpus: Corpus) -> Arrays:
    """All utterances in one batch."""
    plan = order_rows(RecordingSource.open(corpus, DATA), batch_size=len(PLAIN_CLIPS), num_shapes=1).batch(0)
    return loader.fill(plan, make_arrays(plan))


def test_second_epoch_reads_no_file(corpus: Corpus, opened: list[str]) -> None:
    loader = make_loader(corpus, PLENTY_BYTES)
    plans = plan_all(corpus, num_epochs=2)
    middle = len(plans) // 2
    for plan in plans[:middle]:
        loader.fill(plan, make_arrays(plan))
    assert len(opened) == len(set(opened)) == len(PLAIN_CLIPS)
    for plan in plans[middle:]:
        loader.fill(plan, make_arrays(plan))
    assert len(opened) == len(PLAIN_CLIPS)


def test_without_memory_every_epoch_reads(corpus: Corpus, opened: list[str]) -> None:
    loader = make_loader(corpus)
    for plan in plan_all(corpus, num_epochs=2):
        loader.fill(plan, make_arrays(plan))
    assert len(opened) >= 2 * len(PLAIN_CLIPS)
    assert len(loader.memory) == 0


def test_utterance_is_read_once_for_its_batch_and_its_voices(corpus: Corpus, opened: list[str]) -> None:
    fill_one(make_loader(corpus), corpus)
    assert sorted(opened) == sorted(utterance.audio for utterance in corpus.utterances())


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_memory_keeps_to_its_budget_and_serves_the_same_share_of_each_epoch(
    corpus: Corpus, opened: list[str], share: float
) -> None:
    whole = make_loader(corpus, PLENTY_BYTES)
    fill_one(whole, corpus)
    budget_bytes = int(whole.memory.num_bytes * share)
    loader = make_loader(corpus, budget_bytes)
    opened.clear()
    for _ in range(3):
        fill_one(loader, corpus)
    assert 0 < loader.memory.num_bytes <= budget_bytes
    num_kept = len(loader.memory)
    assert 0 < num_kept < len(PLAIN_CLIPS)
    assert len(opened) == len(PLAIN_CLIPS) + 2 * (len(PLAIN_CLIPS) - num_kept)


@pytest.mark.parametrize("mel_dtype", ["float32", "float16"])
def test_batches_do_not_depend_on_memory(corpus: Corpus, mel_dtype: str) -> None:
    data = DATA.model_copy(update={"mel_dtype": mel_dtype})
    without, roomy = make_loader(corpus, 0, data), make_loader(corpus, PLENTY_BYTES, data)
    for plan in plan_all(corpus):
        expected = copy_arrays(without.fill(plan, make_arrays(plan)))
        for _ in ("computed", "from memory"):
            for name, values in copy_arrays(roomy.fill(plan, make_arrays(plan))).items():
                np.testing.assert_array_equal(values, expected[name], err_msg=name)
    first = expected["mel"][0, : expected["mel_lengths"][0]]
    assert (first == first.astype(mel_dtype)).all()


def test_memory_holds_half_precision_in_half_the_room(corpus: Corpus) -> None:
    sizes = []
    for mel_dtype in ("float32", "float16"):
        loader = make_loader(corpus, PLENTY_BYTES, DATA.model_copy(update={"mel_dtype": mel_dtype}))
        fill_one(loader, corpus)
        sizes.append(loader.memory.num_bytes)
    assert sizes[0] == 2 * sizes[1]


def test_threads_that_keep_the_same_utterances_count_them_once() -> None:
    mel = np.zeros((100, 8), np.float32)
    memory = MelMemory(10 * mel.nbytes, "float32")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: memory.keep(number % 30, mel.copy()), range(3000)))
    assert len(memory) == 10
    assert memory.num_bytes == 10 * mel.nbytes


def test_kept_view_does_not_hold_what_it_was_cut_from() -> None:
    memory = MelMemory(PLENTY_BYTES, "float32")
    memory.keep(0, np.zeros((1000, 8), np.float32)[:3])
    kept = memory.find(0)
    assert kept is not None
    assert kept.base is None


@pytest.fixture
def own_corpus(tmp_path: Path) -> Corpus:
    """A corpus whose recordings a test may harm."""
    return make_corpus(tmp_path, PLAIN_CLIPS)


def record_again(path: Path) -> None:
    samples, rate = soundfile.read(path)
    soundfile.write(path, samples * 0.5, rate)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (remove, "missing-file"),
        (truncate, "truncated"),
        (replace_by_noise, "unreadable"),
        (record_again, "changed-since-checked"),
    ],
)
def test_recording_that_cannot_be_used_is_named(own_corpus: Corpus, harm: Callable[[Path], None], reason: str) -> None:
    loader = make_loader(own_corpus)
    victim = list(own_corpus.utterances())[4]
    harm(Path(victim.audio))
    with pytest.raises(DataError) as raised:
        fill_one(loader, own_corpus)
    for part in (victim.id, victim.audio, reason):
        assert part in raised.value.problem
    assert raised.value.next_step


def test_longer_recording_than_was_checked_is_refused_even_without_a_checksum(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, PLAIN_CLIPS, headers_only=True)
    loader = make_loader(corpus)
    victim = list(corpus.utterances())[4]
    Clip(5.0).write(Path(victim.audio), seed=1)
    with pytest.raises(DataError, match=rf"{victim.id} .*changed-since-checked"):
        fill_one(loader, corpus)


def test_text_longer_than_what_trimming_leaves_is_refused(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, [*PLAIN_CLIPS[:10], Clip(0.1, pause_s=1.0)])
    data = DATA.model_copy(update={"hop_length": 1024})
    source = RecordingSource.open(corpus, data)
    loader = PythonLoader(source, AudioLimits.from_config(data), NUM_REFERENCE_FRAMES, SEED)
    plan = order_rows(source, batch_size=len(source), num_shapes=1).batch(0)
    with pytest.raises(DataError, match=r"clip10 .*tokens for \d+ frames.*more-tokens-than-frames"):
        loader.fill(plan, make_arrays(plan))


def test_every_recording_may_be_moved_with_its_corpus(own_corpus: Corpus, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "recordings", moved / "recordings")
    shutil.move(own_corpus.file.parent, moved / "corpus")
    shutil.rmtree(tmp_path / "recordings")
    corpus = Corpus(moved / "corpus" / own_corpus.file.name, own_corpus.num_utterances, own_corpus.seconds)
    assert fill_one(make_loader(corpus), corpus)["mel_lengths"].all()
