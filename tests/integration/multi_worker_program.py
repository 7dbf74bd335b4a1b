"""One worker of a cluster, or the only one: trains tiny models on its slices of one global order of batches.

python -m tests.integration.multi_worker_program RESULTS_FILE
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from myxtts.pipeline.order import NO_ROW, BatchOrder, BatchPlan
from myxtts.runtime.cluster import Cluster, read_cluster

NUM_UTTERANCES, BATCH_SIZE, NUM_STEPS = 45, 8, 10
RUNS: dict[str, dict[str, Any]] = {
    "whole": {},
    "accumulated": {"accumulation_steps": 2},
    "compiled": {"jit_compile": True},
}


def make_order() -> BatchOrder:
    """Utterances of many lengths; 45 do not fill batches of 8, so that one batch has rows to spare."""
    lengths = np.random.default_rng(3).integers(3, 40, NUM_UTTERANCES)
    rows = np.arange(NUM_UTTERANCES)
    return BatchOrder(rows, lengths, lengths // 2, rows % 3, seed=5, batch_size=BATCH_SIZE, num_shapes=2, multiple_of=2)


def load_part(plan: BatchPlan) -> dict[str, Any]:
    """Rows that depend on nothing but the utterance."""
    import tensorflow as tf
    from tests.training import toy_step

    sources = [toy_step.make_batch(1000 + int(row), num_rows=1) for row in plan.rows]
    part = {name: np.concatenate([source[name] for source in sources]) for name in sources[0]}
    part["mel_lengths"] = np.where(plan.rows == NO_ROW, 0, part["mel_lengths"])
    return {name: tf.constant(value) for name, value in part.items()}


def train(strategy: Any, cluster: Cluster, accumulation_steps: int = 1, **options: Any) -> dict[str, Any]:
    import tensorflow as tf
    from tests.training import toy_step

    from myxtts.training.micro_batches import distribute_parts
    from myxtts.training.step import TrainStep

    with strategy.scope():
        model = toy_step.make_model()
        optimizer = toy_step.make_optimizer("sgd", model)
    step = TrainStep(
        model,
        optimizer,
        toy_step.compute_loss,
        strategy,
        rate=lambda _step: tf.constant(0.1),
        accumulation_steps=accumulation_steps,
        clip_norm=0.5,
        **options,
    )
    order = make_order()
    rows, losses = [], []
    for number in range(NUM_STEPS):
        positions = range(number * accumulation_steps, (number + 1) * accumulation_steps)
        shards = [order.batch(position).take_shard(cluster.worker, cluster.num_workers) for position in positions]
        rows.append(np.concatenate([shard.rows for shard in shards]))
        micro_batches = [distribute_parts(strategy, [load_part(shard)]) for shard in shards]
        losses.append(step(micro_batches, number).read().loss)
    num_updates = int(optimizer.iterations.numpy())
    return {
        "weights": toy_step.flatten_weights(model),
        "losses": losses,
        "rows": np.stack(rows),
        "num_updates": num_updates,
    }


def main(results_file: str) -> None:
    cluster = read_cluster(os.environ) or Cluster("TF_CONFIG", 1, 0)
    from myxtts.runtime.strategy import setup_gpu_strategy

    strategy = setup_gpu_strategy()
    results: dict[str, Any] = {"kind": type(strategy).__name__, "num_replicas": strategy.num_replicas_in_sync}
    for name, options in RUNS.items():
        results |= {f"{name} {key}": value for key, value in train(strategy, cluster, **options).items()}
    np.savez(results_file, **results)


if __name__ == "__main__":
    main(sys.argv[1])
