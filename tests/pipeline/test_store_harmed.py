"""A data file is harmed while a feed reads it: the error of a damaged store, or batches as before, but no signal."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.store.harms import HARMFUL, HARMLESS

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.errors import DataError
from myxtts.pipeline.open import open_batches
from myxtts.store.precompute import precompute
from myxtts.store.reader import FeatureStore

ROOT = Path(__file__).parents[2]
NUM_BATCHES = 400


@pytest.fixture
def config(ljspeech: Path, tmp_path: Path) -> XTTSConfig:
    corpus, store = tmp_path / "corpus", tmp_path / "features"
    made = XTTSConfig(
        train_data=corpus, cache_dir=store, text_frontend="characters", batch_size=4, num_shapes=2, buffer_size=2
    )
    prepare_corpus([Recordings(ljspeech)], corpus, made.data)
    precompute(open_corpus(corpus), store, made.data)
    return made


def find_shard(config: XTTSConfig, part: str) -> Path:
    return next(Path(str(config.data.cache_dir)).glob(f"generation-*/*.{part}"))


@pytest.mark.parametrize("part", ["mel", "tokens"])
@pytest.mark.parametrize("harm", HARMFUL)
def test_damage_is_an_error_with_shard_and_utterance(config: XTTSConfig, harm: str, part: str) -> None:
    shard = find_shard(config, part)
    with open_batches(config, framework="numpy") as batches:
        for batch in batches:
            assert np.isfinite(batch.mel).all()
            break
        HARMFUL[harm](shard)
        with pytest.raises(
            DataError, match=rf"The {part} of utterance LJ\d+ in {re.escape(str(shard))} is damaged"
        ) as error:
            for number, _batch in enumerate(batches):
                assert number < 10_000
    assert "cache repair" in error.value.next_step
    if "cut" in harm:
        assert "was cut short" in error.value.problem


@pytest.mark.parametrize("harm", HARMLESS)
def test_what_does_not_change_the_mapped_bytes_does_no_harm(config: XTTSConfig, harm: str) -> None:
    with open_batches(config, framework="numpy", steps=30) as batches:
        expected = [batch.mel.copy() for batch in batches]
    with open_batches(config, framework="numpy", steps=30) as batches:
        for number, batch in enumerate(batches):
            np.testing.assert_array_equal(batch.mel, expected[number])
            if number == 0:
                HARMLESS[harm](find_shard(config, "mel"))
    assert number == 29


@pytest.mark.parametrize("num_workers", [1, 4])
def test_cut_at_a_random_moment_is_never_a_signal_nor_a_wrong_batch(config: XTTSConfig, num_workers: int) -> None:
    changed = config.model_copy(update={"num_workers": num_workers, "optimize_cpu_gpu_overlap": False})
    with open_batches(changed, framework="numpy", steps=NUM_BATCHES) as batches:
        expected = [batch.mel.copy() for batch in batches]
    cutter = threading.Timer(0.1, HARMFUL["cut"], (find_shard(config, "mel"),))
    with open_batches(changed, framework="numpy", steps=100 * NUM_BATCHES) as batches:
        cutter.start()
        with pytest.raises(DataError, match="was cut short"):
            for number, batch in enumerate(batches):
                if number < NUM_BATCHES:
                    np.testing.assert_array_equal(batch.mel, expected[number])
    cutter.join()


def test_reader_outside_the_feed_is_told_why_it_ends(config: XTTSConfig) -> None:
    shard = find_shard(config, "mel")
    program = f"""
import os
from myxtts.store.reader import FeatureStore
store = FeatureStore.open({str(config.data.cache_dir)!r})
os.truncate({str(shard)!r}, 0)
print(store.read_mel(3).sum())
"""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == DataError.exit_code
    assert f"{shard} was cut short" in done.stderr
    assert "cache repair" in done.stderr


def test_other_bus_errors_end_the_process_as_before(config: XTTSConfig, tmp_path: Path) -> None:
    other = tmp_path / "other.bin"
    program = f"""
import mmap, os
from myxtts.store.reader import FeatureStore
store = FeatureStore.open({str(config.data.cache_dir)!r})
with open({str(other)!r}, "wb+") as file:
    file.write(bytes(1 << 16))
    file.flush()
    mapped = mmap.mmap(file.fileno(), 0)
os.truncate({str(other)!r}, 0)
print(mapped[5000])
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -7, done.stderr


def test_files_are_closed_with_the_store(config: XTTSConfig) -> None:
    def count_open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    num_before = count_open_files()
    store = FeatureStore.open(str(config.data.cache_dir))
    assert count_open_files() > num_before
    del store
    assert count_open_files() == num_before
