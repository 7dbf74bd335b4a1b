"""Program of `test_step_memory`: compiles a training step, and lets XLA write its buffer assignment."""

from __future__ import annotations

import os
from typing import Any


def compile_step(num_rows: int, settings: dict[str, Any], folder: str) -> None:
    """Compiles the step of an empty batch of 200 frames and 64 tokens; XLA writes its buffer assignment to `folder`."""
    # Read by XLA when TensorFlow is loaded.
    os.environ["XLA_FLAGS"] = f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=.*train_on.*"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

    import numpy as np
    import tensorflow as tf

    from myxtts.config.schema import XTTSConfig
    from myxtts.models.spec import ModelSpec
    from myxtts.pipeline.order import Shape
    from myxtts.pipeline.splits import count_reference_frames
    from myxtts.training.execution import Execution, MicroBatches
    from myxtts.training.voice.learner import Learner

    config = XTTSConfig(**settings)
    mels = config.data.n_mels
    bands_hz = tuple(np.linspace(50, 8000, mels).tolist())
    spec = ModelSpec((60,), 10, mels, ("en",), ("a", "b"), (-5.0,) * mels, 2.0, 86.1, bands_hz)
    strategy = tf.distribute.OneDeviceStrategy("/CPU:0")
    execution = Execution(is_graph=True, is_compiled=True, policy="float32", reasons=())
    learner = Learner(config, spec, strategy, execution, 100, MicroBatches(num_rows, 1))
    learner.trace([Shape(num_rows, 200, 64)], count_reference_frames(config.data))
