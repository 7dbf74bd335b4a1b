"""Writes event files for TensorBoard: scalars, images and audio. A failure is a warning and never stops training.

The package `tensorboard` is needed to look at them, not to write them: `tf.summary.scalar` and its siblings import it,
so each event is a `Summary` protobuf of TensorFlow's own, with PNG and WAV files as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from myxtts.errors import warn_user
from myxtts.training.sample_files import Sample, describe_failure, encode_wav
from myxtts.types import Say

_FAILURES = (OSError, tf.errors.OpError)
_FLUSH_EVERY_MS = 10_000
"""Longest time that an event stays in the queue of the writer."""
_MAX_QUEUED = 200
_RGBA = 4
"""Code of the colour space in `Summary.Image`."""
_AUDIO_METADATA = {
    "plugin_data": {"plugin_name": "audio", "content": b"\x10\x0b"},
    "data_class": "DATA_CLASS_BLOB_SEQUENCE",
}
"""The content is tensorboard's `AudioPluginData(encoding=WAV)`: without it browsers are not told that it is audio."""


class TensorBoardWriter:
    """Writes an event file into `folder`, created with the first event. After one failure it warns once and stops."""

    def __init__(self, folder: Path, sample_rate_hz: int, warn: Say = warn_user) -> None:
        self._folder, self._rate_hz, self._warn = folder, sample_rate_hz, warn
        self._writer: Any = None
        self.has_failed = False

    def write_scalars(self, step: int, values: Mapping[str, float], prefix: str = "train") -> None:
        """Writes numbers under the tags `prefix/name`."""
        self._write(step, [{"tag": f"{prefix}/{name}", "simple_value": float(value)} for name, value in values.items()])

    def write_samples(self, step: int, samples: Sequence[Sample]) -> None:
        """Writes spectrogram, alignment and sound of each sample."""
        for sample in samples:
            pictures = {"mel": sample.mel_picture, "alignment": sample.alignment_picture}
            values = [
                {"tag": f"{kind}/{sample.name}", "image": _describe_png(picture)}
                for kind, picture in pictures.items()
                if picture
            ]
            sound = {
                "sample_rate": self._rate_hz,
                "num_channels": 1,
                "length_frames": len(sample.sound),
                "encoded_audio_string": encode_wav(sample.sound, self._rate_hz),
                "content_type": "audio/wav",
            }
            self._write(step, [*values, {"tag": f"sound/{sample.name}", "audio": sound, "metadata": _AUDIO_METADATA}])

    def flush(self) -> None:
        """Writes queued events to the disk; only then a full disk is noticed."""
        if self._writer is not None:
            self._attempt(self._writer.flush)

    def close(self) -> None:
        """Closes the event file; nothing may be written afterwards."""
        if self._writer is not None:
            self._attempt(self._writer.close)

    def _write(self, step: int, values: Sequence[Mapping[str, Any]]) -> None:
        def write() -> None:
            if self._writer is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._writer = tf.summary.create_file_writer(
                    str(self._folder), max_queue=_MAX_QUEUED, flush_millis=_FLUSH_EVERY_MS
                )
            with self._writer.as_default():
                tf.summary.experimental.write_raw_pb(tf.compat.v1.Summary(value=values).SerializeToString(), step)

        self._attempt(write)

    def _attempt(self, write: Callable[[], object]) -> None:
        if self.has_failed:
            return
        try:
            # The queue and the file are on the host, wherever the model is.
            with tf.device("/CPU:0"):
                write()
        except _FAILURES as error:
            self.has_failed = True
            reason = describe_failure(error)
            self._warn(f"TensorBoard cannot be written to {self._folder}: {reason}. Training continues without it.")


def _describe_png(picture: bytes) -> dict[str, Any]:
    # IHDR is the first chunk: width and height follow 8 bytes of signature and 8 of chunk header.
    width, height = struct.unpack(">II", picture[16:24])
    return {"width": width, "height": height, "colorspace": _RGBA, "encoded_image_string": picture}
