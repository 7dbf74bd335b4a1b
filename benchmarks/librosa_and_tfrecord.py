"""Two common input pipelines to compare with: librosa in `tf.numpy_function`, and TFRecord files in `tf.data`.

They deliver spectrograms alone, without tokens and a reference voice; what is left out is in their favour.
Shape legend: T frames, M mel bands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.features.definition import MelDefinition

_NUM_READY = 2
_FLOAT_BYTES = 4


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


def make_record_dataset(path: Path, n_mels: int, batch_size: int) -> Any:
    """The spectrograms of a TFRecord file once and in order, padded with zeros."""
    import tensorflow as tf

    def parse(serialized: Any) -> dict[str, Any]:
        raw = tf.io.parse_example(serialized, {"mel": tf.io.FixedLenFeature([], tf.string)})["mel"]
        num_bytes = tf.strings.length(raw)
        flat = tf.io.decode_raw(raw, tf.float32, fixed_length=tf.reduce_max(num_bytes))
        return {
            "mel": tf.reshape(flat, [batch_size, -1, n_mels]),
            "mel_lengths": num_bytes // (_FLOAT_BYTES * n_mels),
        }

    return tf.data.TFRecordDataset(str(path)).batch(batch_size, drop_remainder=True).map(parse)
