"""How fast stored features become batches, measured against a plain copy of the same bytes and two usual ways."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.alone import run_alone
from benchmarks.clips import write_clips
from benchmarks.harness import Measurement
from benchmarks.librosa_and_tfrecord import make_record_dataset, write_records
from myxtts.config.schema import DataConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.runtime.timing import time_in_turns
from myxtts.store.precompute import precompute
from myxtts.store.reader import FeatureStore

_NUM_UTTERANCES = 512
_BATCH = 32
_CLIP_SECONDS = (5.5, 6.5)
_NUM_ROUNDS = 9
_PADDING = -11.5129
_RECORDS_NAME = "features.tfrecord"
_DATA = DataConfig(text_frontend="characters", val_share=0.0)

Action = Callable[[], None]


def measure_store() -> list[Measurement]:
    with tempfile.TemporaryDirectory() as name:
        _make_store(Path(name))
        microseconds = run_alone(compare_ways, name)
    tensors = "tensors by dlpack"
    return [
        _compare("stored features to padded batches", microseconds, "store", "memcpy", "at most", 2),
        _compare("stored features to TensorFlow tensors", microseconds, tensors, "memcpy", "at most", 3),
        _compare("np.load in tf.data", microseconds, "np.load", tensors, "at least", 8),
        _compare("TFRecord in tf.data", microseconds, "TFRecord", tensors, "at least", 5),
    ]


def _compare(
    name: str, microseconds: dict[str, float], what: str, against: str, kind: str, limit: float
) -> Measurement:
    note = ", ".join(f"{key} {value:.0f} µs" for key, value in microseconds.items())
    value = microseconds[what] / microseconds[against]
    return Measurement(f"{name}, CPU time of {against}", value, "x", kind, limit, f"an utterance: {note}")


def compare_ways(folder: str) -> dict[str, float]:
    """Microseconds of CPU time an utterance."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    store = FeatureStore.open(Path(folder) / "store")
    batches = np.random.default_rng(0).permutation(len(store)).reshape(-1, _BATCH)
    _write_other_formats(store, Path(folder))
    actions = {
        "memcpy": _make_memcpy(store, batches),
        "store": _make_reading(store, batches, lambda _batch: None),
        "tensors by dlpack": _make_reading(
            store, batches, lambda batch: tf.experimental.dlpack.from_dlpack(batch.__dlpack__())
        ),
        "tensors by copy": _make_reading(store, batches, tf.convert_to_tensor),
        "np.load": _make_numpy_dataset(Path(folder)),
        "TFRecord": _make_record_reading(Path(folder), store.n_mels),
    }
    seconds = time_in_turns(actions, _NUM_ROUNDS, time.process_time)
    return {name: 1e6 * min(values) / len(store) for name, values in seconds.items()}


def _make_store(folder: Path) -> None:
    paths = write_clips(folder / "recordings" / "wavs", _NUM_UTTERANCES, _CLIP_SECONDS)
    lines = [f"{path.stem}|the words of number {number}\n" for number, path in enumerate(paths)]
    (folder / "recordings" / "metadata.csv").write_text("".join(lines), encoding="utf-8")
    prepare_corpus([Recordings(folder / "recordings")], folder / "corpus", _DATA)
    precompute(open_corpus(folder / "corpus"), folder / "store", _DATA)


def _write_other_formats(store: FeatureStore, folder: Path) -> None:
    """The same spectrograms as one .npy file each, and as one TFRecord file."""
    (folder / "npy").mkdir()
    mels = [store.read_mel(row) for row in range(len(store))]
    for row, mel in enumerate(mels):
        np.save(folder / "npy" / f"{row:04}.npy", mel)
    write_records(folder / _RECORDS_NAME, mels)


def _make_batch(store: FeatureStore) -> NDArray[np.float32]:
    """An array for any batch of the store, its pages already given by the system."""
    return np.ones((_BATCH, int(store.columns["mel_length"].max()), store.n_mels), np.float32)


def _make_memcpy(store: FeatureStore, batches: NDArray[np.int64]) -> Action:
    """Copies the bytes of each batch, which lie in memory in one piece, to where a batch is made."""
    sources = [np.concatenate([store.read_mel(int(row)).ravel() for row in rows]) for rows in batches]
    target = _make_batch(store).ravel()

    def copy() -> None:
        for source in sources:
            np.copyto(target[: len(source)], source)

    return copy


def _make_reading(store: FeatureStore, batches: NDArray[np.int64], deliver: Callable[[Any], object]) -> Action:
    batch = _make_batch(store)

    def read() -> None:
        for rows in batches:
            store.copy_mels(rows, batch, _PADDING)
            deliver(batch)

    return read


def _make_numpy_dataset(folder: Path) -> Action:
    import tensorflow as tf

    def load(path: Any) -> Any:
        mel = tf.numpy_function(lambda name: np.load(name.decode()), [path], tf.float32)
        return tf.ensure_shape(mel, [None, 80])

    paths = [str(path) for path in sorted((folder / "npy").iterdir())]
    dataset = tf.data.Dataset.from_tensor_slices(paths).map(load).padded_batch(_BATCH, padding_values=_PADDING)
    return lambda: _exhaust(dataset)


def _make_record_reading(folder: Path, n_mels: int) -> Action:
    dataset = make_record_dataset(folder / _RECORDS_NAME, n_mels, _BATCH)
    return lambda: _exhaust(dataset)


def _exhaust(dataset: Any) -> None:
    for _ in dataset:
        pass
