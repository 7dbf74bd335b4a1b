"""A learner of a very small voice model that is saved on its way, and a second one that goes on from there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tests.models.toys import make_config, make_part, make_spec
from tests.training.toy_step import STRATEGIES, pack_on

from myxtts.config.schema import XTTSConfig
from myxtts.pipeline.packed import Packed, PackedBatch
from myxtts.training.execution import LANES_ON_CPU, Execution, MicroBatches
from myxtts.training.micro_batches import list_replica_devices, split_rows
from myxtts.training.run.checkpoint import CheckpointFolder
from myxtts.training.run.saver import BackgroundSaver
from myxtts.training.voice.learner import Learner
from myxtts.types import Batch

NUM_STEPS, SAVED_STEP = 5, 3
EXECUTIONS = {
    "eager": Execution(False, False, "float32", ()),
    "bfloat16": Execution(False, False, "mixed_bfloat16", ()),
    "graph": Execution(True, False, "float32", ()),
    "compiled": Execution(True, True, "float32", (), LANES_ON_CPU, sums_by_row=True),
}


def _refuse(message: str) -> None:
    raise AssertionError(message)


def _make_batch(step: int, devices: Sequence[str]) -> Batch:
    """A batch as the feed gives it: the rows of each device on it, in one piece."""
    part = make_part(make_spec(), [30, 38, 25, 40], [5, 8, 4, 7], seed=step)
    pieces = [pack_on("/CPU:0", share) for share in split_rows(part, len(devices))]
    return PackedBatch(step, ("a", "b", "c", "d"), 4, pieces).to_devices(devices)


class Training:
    """One learner; several may follow each other under one strategy."""

    def __init__(self, strategy: Any, execution: str, adapt: str | None = None) -> None:
        model = make_config(text_layers=1, decoder_layers=1).model_dump()
        training = {"ema_decay": 0.9, "seed": 3, "adapt": adapt, "start_pull": 3.0 if adapt else 0.0}
        config = XTTSConfig(model=model, training=training)
        self._devices = list_replica_devices(strategy)
        micro_batches = MicroBatches(4 // len(self._devices), 1)
        self.learner = Learner(config, make_spec(), strategy, EXECUTIONS[execution], NUM_STEPS, micro_batches)
        self.learner.start_here()

    def train(self, first: int, last: int) -> None:
        for step in range(first, last):
            batch = _make_batch(step, self._devices)
            self._check_devices(batch)
            result = self.learner.train([batch], step)
            assert result.read().is_finite, f"step {step} was not finite"

    def _check_devices(self, batch: Batch) -> None:
        """What the step is given is one tensor for each device, and there."""
        (micro_batch,) = self.learner.cut([batch])
        assert isinstance(micro_batch, Packed)
        vectors = self.learner.strategy.experimental_local_results(micro_batch.vector)
        for vector, device in zip(vectors, self._devices, strict=True):
            assert vector.backing_device.endswith(device.rpartition("/")[2].removeprefix("device:"))

    def list_bits(self) -> dict[str, bytes]:
        return {name: array.tobytes() for name, array in self.learner.state.collect().items()}


def train_with_interruption(
    strategy: str, execution: str, folder: str, does_rest: bool = False, adapt: str | None = None
) -> dict[str, Any]:
    """Whether a second learner ends with the same bits as the first, which went on without a stop."""
    made = STRATEGIES[strategy]()
    checkpoints = CheckpointFolder(Path(folder), warn=_refuse)
    whole = Training(made, execution, adapt)
    first = whole.list_bits()
    whole.train(0, SAVED_STEP)
    with BackgroundSaver(checkpoints, _refuse) as saver:
        saver.save(SAVED_STEP, whole.learner.state.collect(), {})
        if does_rest:
            whole.learner.freeze()
        # What is trained meanwhile does not reach the checkpoint.
        whole.train(SAVED_STEP, NUM_STEPS)
    checkpoint = checkpoints.load_newest()
    assert checkpoint is not None
    second = Training(made, execution, adapt)
    second.learner.state.restore(checkpoint.arrays)
    if does_rest:
        second.learner.freeze()
    second.train(SAVED_STEP, NUM_STEPS)
    saved = {name: array.tobytes() for name, array in checkpoint.arrays.items()}
    return {
        "is_bit_equal": whole.list_bits() == second.list_bits(),
        "has_learned": whole.list_bits() != saved,
        "moved": sorted(name for name, bits in whole.list_bits().items() if bits != first[name]),
        "num_starts": sum(name.startswith("start/") for name in first),
        "spread": _measure_spread(made, second.learner),
        "dtypes": sorted({array.dtype.name for array in checkpoint.arrays.values()}),
    }


def _measure_spread(strategy: Any, learner: Learner) -> float:
    """How far apart the replicas' copies of the weights are."""
    copies = [strategy.experimental_local_results(weight.value) for weight in learner.model.trainable_variables]
    return max(float(np.abs(np.asarray(copy) - np.asarray(several[0])).max()) for several in copies for copy in several)
