"""What TensorBoard shows: numbers, pictures and sounds. That it cannot be written never stops a training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from myxtts.errors import warn_user
from myxtts.training.sample_files import Sample
from myxtts.types import Say

_FAILURES = (OSError, tf.errors.OpError)
_FLUSH_EVERY_MS = 10_000
_MAX_QUEUED = 200


class TensorBoardWriter:
    """Writes into `folder`, which is made with the first number. After one failure it warns and stays silent."""

    def __init__(self, folder: Path, sample_rate_hz: int, warn: Say = warn_user) -> None:
        self._folder, self._rate_hz, self._warn = folder, sample_rate_hz, warn
        self._writer: Any = None
        self.has_failed = False

    def write_scalars(self, step: int, values: Mapping[str, float], prefix: str = "train") -> None:
        def write() -> None:
            for name, value in values.items():
                tf.summary.scalar(f"{prefix}/{name}", value, step=step)

        self._attempt(write)

    def write_samples(self, step: int, samples: Sequence[Sample]) -> None:
        """Spectrogram, alignment and sound of each sample."""

        def write() -> None:
            for sample in samples:
                for kind, picture in (("mel", sample.mel_picture), ("alignment", sample.alignment_picture)):
                    if picture:
                        image_HWC = tf.io.decode_png(picture, channels=4)
                        tf.summary.image(f"{kind}/{sample.name}", image_HWC[None], step=step)
                tf.summary.audio(f"sound/{sample.name}", sample.sound[None, :, None], self._rate_hz, step=step)

        self._attempt(write)

    def flush(self) -> None:
        """Sends what is queued to the disk; only then a full one is noticed."""
        if self._writer is not None:
            self._attempt(self._writer.flush)

    def close(self) -> None:
        """Ends the file. Nothing may be written afterwards."""
        writer, self._writer = self._writer, None
        if writer is not None and not self.has_failed:
            try:
                writer.close()
            except _FAILURES as error:
                self._give_up(error)

    def _attempt(self, write: Callable[[], object]) -> None:
        if self.has_failed:
            return
        try:
            if self._writer is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._writer = tf.summary.create_file_writer(
                    str(self._folder), max_queue=_MAX_QUEUED, flush_millis=_FLUSH_EVERY_MS
                )
            # Summaries are made on the host, wherever the model is.
            with tf.device("/CPU:0"), self._writer.as_default():
                write()
        except _FAILURES as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.has_failed = True
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        self._warn(f"TensorBoard cannot be written to {self._folder}: {reason}. Training goes on without it.")
