"""The bundle of a run: what synthesis loads, written beside each checkpoint with the averaged weights.

Shape legend: B utterances, N tokens, R reference frames, M mel bands.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.errors import MyXTTSError
from myxtts.models.bundle import Bundle, write_bundle
from myxtts.models.duration import calibrate_length_factor, compute_frames
from myxtts.models.spec import ModelSpec
from myxtts.models.tensor_file import Array
from myxtts.models.xtts import XTTS
from myxtts.pipeline.open import open_batches
from myxtts.runtime.plan import Plan
from myxtts.text.frontend import FrontEnd
from myxtts.training.checkpoint import Warn
from myxtts.training.training_data import describe_sound

NUM_CALIBRATED = 64
"""Utterances that the length factor is found from."""
GRIFFIN_LIM = "griffin_lim"


class LengthCalibration:
    """A few utterances of the training split, always the same, whose real lengths are known."""

    def __init__(self, config: XTTSConfig, plan: Plan, loader_name: str) -> None:
        self._rows: list[dict[str, Array]] = []
        with open_batches(config, plan=plan, loader_name=loader_name, framework="numpy") as batches:
            for batch in batches:
                for row in range(batch.num_real):
                    self._rows.append({name: np.array(getattr(batch, name)[row]) for name in _USED})
                if len(self._rows) >= NUM_CALIBRATED or batch.position >= NUM_CALIBRATED:
                    break
        self._rows = self._rows[:NUM_CALIBRATED]
        self._measure = tf.function(_predict_lengths, autograph=False)

    def measure(self, model: XTTS) -> float:
        """The length factor of a model with its present weights."""
        num_tokens = max(len(row["tokens"]) for row in self._rows)
        stacked = {name: np.stack([row[name] for row in self._rows]) for name in _USED if name != "tokens"}
        stacked["tokens"] = np.stack(
            [np.pad(row["tokens"], (0, num_tokens - len(row["tokens"]))) for row in self._rows]
        )
        part = {name: tf.constant(array) for name, array in stacked.items() if name != "mel_lengths"}
        predicted = self._measure(model, part).numpy().tolist()
        return calibrate_length_factor(predicted, stacked["mel_lengths"].astype(float).tolist())


_USED = ("tokens", "token_lengths", "language", "reference", "reference_lengths", "mel_lengths")


class BundleWriter:
    """Writes the bundle in a thread of its own; what the disk refuses becomes a warning. Use it as a context."""

    def __init__(
        self, folder: Path, config: XTTSConfig, spec: ModelSpec, frontend: FrontEnd, frontend_file: Path, warn: Warn
    ) -> None:
        self._folder, self._config, self._spec, self._warn = folder, config, spec, warn
        self._frontend, self._fingerprint = frontend_file.read_bytes(), frontend.fingerprint()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="bundle")
        self._running: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def write(self, weights: Mapping[str, Array], notes: Mapping[str, Any]) -> None:
        """Begins to write; waits for the bundle before. The arrays must not change any more."""
        self.wait()
        mel, audio = describe_sound(self._config)
        bundle = Bundle(
            model_config=self._config.model,
            model_spec=self._spec.to_json(),
            mel=mel,
            audio=audio,
            frontend=self._frontend,
            frontend_fingerprint=self._fingerprint,
            vocoder={"name": GRIFFIN_LIM, "mel": mel},
            weights={name: np.asarray(array, np.float32) for name, array in weights.items()},
            notes=dict(notes),
        )
        self._running = self._executor.submit(self._write, bundle)

    def wait(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.wait()
        finally:
            self._executor.shutdown()

    def _write(self, bundle: Bundle) -> None:
        try:
            write_bundle(self._folder, bundle)
        except MyXTTSError as error:
            self._warn(f"{error} Training goes on; the bundle stays as it was.")


def _predict_lengths(model: XTTS, part: Mapping[str, Any]) -> Any:
    """Frames of each utterance [B] as predicted, without a length factor."""
    voice = model.encode_voice(part["reference"], part["reference_lengths"])
    states = model.encode_text(part["tokens"], part["token_lengths"], part["language"], voice)
    log_frames_BS = model.predict_log_frames(states, part["token_lengths"])
    return tf.reduce_sum(compute_frames(log_frames_BS, states.is_state_BS, 1.0), axis=1)
