"""Usual ways of getting batches, to compare this product's with: librosa inside `tf.data`, and TFRecord files.

They deliver spectrograms alone, where this product also brings tokens and a voice: what is left out is in their favour.
Shape legend: B utterances, T frames, M mel bands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.features.definition import MelDefinition

_NUM_READY = 2
_SHUFFLED_UTTERANCES = 256
_FLOAT_BYTES = 4


def has_librosa() -> bool:
    return find_spec("librosa") is not None


def make_librosa(mel: MelDefinition) -> Callable[[str | Path], NDArray[np.float32]]:
    """librosa's way from a recording to the log-mel [M, T] of this definition."""
    import librosa

    options = {name: getattr(mel, name) for name in ("n_fft", "hop_length", "win_length", "n_mels", "fmin", "fmax")}

    def compute(path: str | Path) -> NDArray[np.float32]:
        samples, _ = librosa.load(path, sr=mel.sample_rate)
        bands: NDArray[np.float32] = librosa.feature.melspectrogram(
            y=samples, sr=mel.sample_rate, power=1.0, pad_mode="reflect", **options
        )
        return np.log(np.maximum(bands, mel.log_floor))

    return compute


def make_librosa_dataset(paths: Sequence[str], mel: MelDefinition, batch_size: int, num_parallel_calls: int) -> Any:
    """Endless batches, each recording by a Python function of its own, padded to the longest of the batch."""
    import tensorflow as tf

    compute = make_librosa(mel)

    def compute_rows(name: bytes) -> NDArray[np.float32]:
        return np.asarray(compute(name.decode())).T

    def load(path: Any) -> dict[str, Any]:
        mel_TM = tf.ensure_shape(tf.numpy_function(compute_rows, [path], tf.float32), [None, mel.n_mels])
        return {"mel": mel_TM, "mel_lengths": tf.shape(mel_TM)[0]}

    padding = {"mel": np.float32(np.log(mel.log_floor)), "mel_lengths": 0}
    recordings = tf.data.Dataset.from_tensor_slices(list(paths)).repeat()
    mels = recordings.map(load, num_parallel_calls=num_parallel_calls)
    return mels.padded_batch(batch_size, padding_values=padding, drop_remainder=True).prefetch(_NUM_READY)


def write_records(path: Path, mels: Iterable[NDArray[Any]]) -> Path:
    """Spectrograms as one TFRecord file, each as raw bytes."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for mel_TM in mels:
            content = np.ascontiguousarray(mel_TM, np.float32).tobytes()
            feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[content]))
            writer.write(tf.train.Example(features=tf.train.Features(feature={"mel": feature})).SerializeToString())
    return path


def make_record_dataset(path: Path, n_mels: int, batch_size: int, num_parallel_calls: int | None = None) -> Any:
    """The spectrograms of a TFRecord file once and in order, padded with zeros."""
    import tensorflow as tf

    return _batch_records(tf.data.TFRecordDataset(str(path)), n_mels, batch_size, num_parallel_calls)


def make_shuffled_record_dataset(path: Path, n_mels: int, batch_size: int, num_parallel_calls: int) -> Any:
    """Endless batches of a TFRecord file, shuffled as far as its order allows."""
    import tensorflow as tf

    records = tf.data.TFRecordDataset(str(path)).shuffle(_SHUFFLED_UTTERANCES, seed=0).repeat()
    return _batch_records(records, n_mels, batch_size, num_parallel_calls).prefetch(_NUM_READY)


def _batch_records(records: Any, n_mels: int, batch_size: int, num_parallel_calls: int | None) -> Any:
    import tensorflow as tf

    def parse(serialized: Any) -> dict[str, Any]:
        raw = tf.io.parse_example(serialized, {"mel": tf.io.FixedLenFeature([], tf.string)})["mel"]
        num_bytes = tf.strings.length(raw)
        flat = tf.io.decode_raw(raw, tf.float32, fixed_length=tf.reduce_max(num_bytes))
        return {
            "mel": tf.reshape(flat, [batch_size, -1, n_mels]),
            "mel_lengths": num_bytes // (_FLOAT_BYTES * n_mels),
        }

    return records.batch(batch_size, drop_remainder=True).map(parse, num_parallel_calls=num_parallel_calls)


@contextmanager
def open_dataset(make_dataset: Callable[[], Any], device: str | None = None) -> Iterator[Iterator[Any]]:
    """The batches of a dataset, copied ahead to a device where there is one other than the host."""
    import tensorflow as tf

    options = tf.data.Options()
    # Ending a dataset that tunes itself can take seconds; its threads are given instead.
    options.autotune.enabled = False
    dataset = make_dataset().with_options(options)
    if device is not None:
        dataset = dataset.apply(tf.data.experimental.prefetch_to_device(device, _NUM_READY))
    yield iter(dataset)


@contextmanager
def open_librosa_dataset(make_dataset: Callable[[], Any], device: str | None = None) -> Iterator[Iterator[Any]]:
    """As `open_dataset`, with one thread for each product of matrices: several fight for the cores in vain."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), open_dataset(make_dataset, device) as batches:
        yield batches
