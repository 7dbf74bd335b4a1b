"""Micro-batches cut by rows, packed or not, for a process with logical devices; tests compare what is returned."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tests.training.toy_step import (
    NUM_BANDS,
    NUM_FRAMES,
    NUM_TOKENS,
    STRATEGIES,
    Run,
    cut,
    flatten_weights,
    make_batch,
    pack_on,
)

from benchmarks.eager_operations import count_eager_operations
from myxtts.pipeline.packed import Packed, unpack
from myxtts.training.execution import Execution
from myxtts.training.learner import MicroBatchCutter
from myxtts.training.micro_batches import (
    count_real_utterances,
    distribute_parts,
    list_replica_devices,
    select_tensors,
    split_rows,
)
from myxtts.types import Batch


def cut_batch() -> dict[str, Any]:
    numbers = np.arange(6, dtype=np.int32)
    batch = Batch(
        position=0,
        ids=("a", "b", "c", "d", "", ""),
        num_real=4,
        tokens=tf.zeros([6, NUM_TOKENS], tf.int32),
        token_lengths=tf.constant(numbers),
        mel=tf.zeros([6, NUM_FRAMES, NUM_BANDS]),
        mel_lengths=tf.constant([3, 1, 2, 7, 0, 0]),
        speaker=tf.constant(numbers),
        language=tf.constant(numbers),
        reference=tf.zeros([6, 2, NUM_BANDS]),
        reference_lengths=tf.constant(numbers),
    )
    part = select_tensors(batch)
    assert isinstance(part, dict)
    parts = split_rows(part, 3)
    try:
        split_rows(part, 4)
        refusal = ""
    except AssertionError as error:
        refusal = str(error)
    return {
        "names": sorted(part),
        "speakers": [cut_part["speaker"].numpy().tolist() for cut_part in parts],
        "num_real": [int(count_real_utterances(cut_part)) for cut_part in parts],
        "refusal": refusal,
    }


AWKWARD = np.array([0, 1, 5, 2**31 - 1, -1, -(2**31), 0x7F800001, 0x7FC12345], np.int64).astype(np.int32)
"""Integers that are denormal numbers or NaN of both kinds when their bits are read as floats."""


def cut_packed(strategy: str, num_rows: int, num_cuts: int, jit_compile: bool) -> dict[str, Any]:
    """Micro-batches of a batch in one piece: where they are, which bits they have, and what they cost the host."""
    made = STRATEGIES[strategy]()
    arrays, parts = [], []
    for number, device in enumerate(list_replica_devices(made)):
        labels_BN = np.resize(np.roll(AWKWARD, number), (num_rows, NUM_TOKENS))
        arrays.append(
            {"tokens": labels_BN, "mel": labels_BN[:, :3].copy().view(np.float32), "speaker": labels_BN[:, 0]}
        )
        parts.append(pack_on(device, arrays[-1]))
    cutter = MicroBatchCutter(made, Execution(True, jit_compile, "float32", ()), num_cuts)
    whole = distribute_parts(made, parts)
    cutter(whole)
    micro_batches: list[Any] = []
    with count_eager_operations() as count:
        micro_batches.extend(cutter(whole))
    num_started = count()
    local = [made.experimental_local_results(one.vector) for one in micro_batches]
    found = [
        [unpack(Packed(vectors[number], one.layout)) for one, vectors in zip(micro_batches, local, strict=True)]
        for number in range(len(parts))
    ]
    joined = [{name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]} for pieces in found]
    num_padded = len(joined[0]["speaker"]) - num_rows
    return {
        "devices": [[vector.backing_device.rpartition("/device:")[2] for vector in vectors] for vectors in local],
        "has_same_bits": all(
            (after[name][:num_rows].tobytes(), before[name].dtype) == (before[name].tobytes(), after[name].dtype)
            and not after[name][num_rows:].any()
            for after, before in zip(joined, arrays, strict=True)
            for name in before
        ),
        "num_padded": num_padded,
        "num_started": num_started,
        "is_same": micro_batches[0] is whole,
    }


def compare_packed(strategy: str, accumulation_steps: int, **options: Any) -> list[dict[str, Any]]:
    """The same training on batches in one piece and on separate tensors."""
    results = []
    for is_packed in (False, True):
        run = Run(strategy, "adam", accumulation_steps, **options)
        losses = [
            run.train(step, make_batch(step, num_real), is_packed).loss for step, num_real in enumerate((8, 5, 3))
        ]
        results.append({"losses": losses, "weights": flatten_weights(run.model), "num_traces": run.step.num_traces})
    return results


def count_operations(strategy: str, num_cuts: int) -> int:
    """Operations that the host starts for a step, behind the first ones, with the cutting of its batch."""
    run = Run(strategy, "adam", num_cuts)
    wholes = [cut(run.strategy, make_batch(step), 1, is_packed=True)[0] for step in range(3)]
    cutter = MicroBatchCutter(run.strategy, Execution(True, False, "float32", ()), num_cuts)
    for step in (0, 1):
        run.step(cutter(wholes[step]), step)
    with count_eager_operations() as count:
        run.step(cutter(wholes[2]), 2)
    return count()
