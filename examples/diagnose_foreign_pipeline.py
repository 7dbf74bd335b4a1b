"""Asks why a tf.data pipeline that has nothing to do with MyXTTS is slow: python examples/diagnose_foreign_pipeline.py

The pipeline below makes the most usual mistake: Python in the graph, one clip at a time. Put your own in its place.
"""

from __future__ import annotations

import time
from typing import Any

from myxtts.tools.diagnose.examine import Diagnosis, diagnose_dataset

STEP_S = 0.005


def load_slowly(number: Any) -> Any:
    """Stands for librosa.load and a spectrogram in Python."""
    import numpy as np

    time.sleep(0.002)
    return np.full((200, 80), float(number), np.float32)


def make_dataset() -> Any:
    import tensorflow as tf

    def load(number: Any) -> Any:
        mel = tf.numpy_function(load_slowly, [number], tf.float32)
        mel.set_shape((200, 80))
        return mel

    return tf.data.Dataset.range(400).map(load).batch(8).prefetch(2)


def main(num_batches: int = 30) -> Diagnosis:
    diagnosis = diagnose_dataset(make_dataset(), step_s=STEP_S, num_batches=num_batches)
    print(f"AU {diagnosis.au:.0%} ({diagnosis.au_basis}): the step works so much of the time")
    for found in diagnosis.findings:
        print(f"cause: {found.cause}, costs {1e3 * found.loss_s:.1f} ms a step")
        for advice in found.advice:
            print(f"  change {advice.setting} to {advice.value}: {advice.gain.factor:.1f} times as fast")
    return diagnosis


if __name__ == "__main__":
    main()
