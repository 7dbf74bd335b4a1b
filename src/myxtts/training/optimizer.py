"""AdamW for both models, and the only code that depends on how Keras applies gradients to mirrored variables.

`TrainStep` reduces, clips and accumulates gradients itself, because losses are sums over real utterances until all
micro-batches of all replicas are added up; an optimizer that did so too would act on parts of that sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras

_DONE_BY_THE_STEP = ("clipnorm", "global_clipnorm", "clipvalue", "gradient_accumulation_steps", "loss_scale_factor")
"""Options of Keras optimizers that act on gradients, which `TrainStep` handles itself."""


def make_optimizer(
    weights: Mapping[str, Any],
    learning_rate: float,
    weight_decay: float,
    *,
    betas: tuple[float, float],
    undecayed: tuple[str, ...] = (),
) -> Any:
    """AdamW for these weights by name; make it in the scope of the strategy.

    Biases and norms are not decayed, nor weights whose name begins with one of `undecayed`.
    """
    optimizer = keras.optimizers.AdamW(
        learning_rate, beta_1=betas[0], beta_2=betas[1], weight_decay=weight_decay or None
    )
    if weight_decay:
        kept = [weight for name, weight in weights.items() if len(weight.shape) < 2 or name.startswith(undecayed)]
        optimizer.exclude_from_weight_decay(var_list=kept)
    return optimizer


def refuse_own_reduction(optimizer: Any) -> None:
    """Asserts that the optimizer does not clip, scale or accumulate gradients itself."""
    taken = [name for name in _DONE_BY_THE_STEP if getattr(optimizer, name, None)]
    assert not taken, f"the optimizer must leave {', '.join(taken)} to the step: it would act on parts"


@contextmanager
def taking_reduced_gradients(optimizer: Any) -> Iterator[None]:
    """Context in which `optimizer.apply` takes gradients that are already reduced over the replicas.

    Keras all-reduces them inside `apply`. Once more would multiply them by the number of replicas, and send all of them
    over the network again. It has no public switch, hence the private name.
    """
    assert hasattr(optimizer, "_all_reduce_sum_gradients"), "Keras all-reduces gradients in another place now"
    optimizer._all_reduce_sum_gradients = list
    try:
        yield
    finally:
        del optimizer._all_reduce_sum_gradients
