"""Compares a data GPU with data-parallel training on the same cards, from measured times.

With one data GPU and m model GPUs a batch of the split takes as long as its slower side:

    split           1 / max(step, features)

Without a data GPU, m + 1 GPUs would each take a share of the same size, make its features and train on it. Their
batch is (m + 1) / m times as large, and gradients are exchanged between m + 1 instead of m:

    data-parallel   (m + 1) / m / (step - exchange(m) + features / m + exchange(m + 1))

Both are counted in batches of the split per second. For m = 1 the split wins if step and features differ by less than
the exchange costs. GPUs are taken to be equally fast. Loading on the host limits both alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from myxtts.pipeline.telemetry import FeedStats

PCIE_BYTES_PER_S = 10e9
"""What two cards exchange through PCI Express 3 x16 or 4 x8 in practice; links between the cards are faster."""

TYPICAL_GRADIENT_BYTES = 80_000_000
"""Of a model of the size `small`, where the caller does not say how large its own is."""

_NOTICEABLE_PERCENT = 1.0
"""Smaller differences are within the variation of step times."""


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """Mean seconds for one batch: a step on the model GPUs, features on the data GPU, loading by all threads together.

    The step is counted without waiting for data, and includes the exchange of gradients between several model GPUs.
    """

    step_s: float
    feature_s: float
    load_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SplitAdvice:
    """Both ways in batches per second, which is faster, by how much, and the same in words."""

    split_rate: float
    parallel_rate: float
    winner: Literal["split", "data-parallel", "neither"]
    gain_percent: float
    sentences: tuple[str, ...]


def estimate_exchange_s(gradient_bytes: int, num_gpus: int) -> float:
    """How long `num_gpus` need to add up their gradients: in a ring each sends 2 (n - 1) / n of them."""
    return 2 * (num_gpus - 1) / num_gpus * gradient_bytes / PCIE_BYTES_PER_S


def compare_split(
    times: MeasuredTimes, num_model_gpus: int, exchange_s: float, present_exchange_s: float = 0.0
) -> SplitAdvice:
    """Compares the split with data-parallel training on one GPU more.

    `exchange_s` is what adding up gradients between all GPUs would cost, `present_exchange_s` what it costs between
    the model GPUs now. Neither way is faster than the host loads.
    """
    compute_s = max(0.0, times.step_s - present_exchange_s)
    parallel_s = compute_s + times.feature_s / num_model_gpus + exchange_s
    growth = (num_model_gpus + 1) / num_model_gpus
    split_rate = 1 / max(times.step_s, times.feature_s, times.load_s)
    parallel_rate = 1 / max(parallel_s / growth, times.load_s)
    gain_percent = 100 * (max(split_rate, parallel_rate) / min(split_rate, parallel_rate) - 1)
    winner: Literal["split", "data-parallel", "neither"] = "neither"
    if gain_percent >= _NOTICEABLE_PERCENT:
        winner = "split" if split_rate > parallel_rate else "data-parallel"
    sentences = (
        _state_measurements(times, num_model_gpus, split_rate),
        _state_comparison(num_model_gpus, exchange_s, parallel_rate, winner, gain_percent),
    )
    return SplitAdvice(split_rate, parallel_rate, winner, gain_percent, sentences)


def advise_on_split(stats: FeedStats, num_model_gpus: int, num_workers: int, gradient_bytes: int) -> str:
    """The comparison in words, from what a feed has measured of itself."""
    load_s = stats.mean_load_s / max(1, num_workers)
    times = MeasuredTimes(stats.mean_step_s, stats.mean_stage_s.get("features", 0.0), load_s)
    exchange_s = estimate_exchange_s(gradient_bytes, num_model_gpus + 1)
    present_exchange_s = estimate_exchange_s(gradient_bytes, num_model_gpus)
    return " ".join(compare_split(times, num_model_gpus, exchange_s, present_exchange_s).sentences)


def _state_measurements(times: MeasuredTimes, num_model_gpus: int, split_rate: float) -> str:
    models = "the model GPU" if num_model_gpus == 1 else f"{num_model_gpus} model GPUs"
    limits = {"the model": times.step_s, "the data GPU": times.feature_s, "loading on the host": times.load_s}
    slowest = max(limits, key=lambda name: limits[name])
    return (
        f"A batch takes {_show_ms(times.feature_s)} on the data GPU and {_show_ms(times.step_s)} on {models}: "
        f"{split_rate:.3g} batches a second, set by {slowest}."
    )


def _state_comparison(
    num_model_gpus: int, exchange_s: float, parallel_rate: float, winner: str, gain_percent: float
) -> str:
    estimate = (
        f"Data-parallel training on the same {num_model_gpus + 1} cards would reach about {parallel_rate:.3g}, with "
        f"{_show_ms(exchange_s)} to exchange gradients"
    )
    if winner == "neither":
        return f"{estimate}: no difference worth a change."
    if winner == "split":
        return f"{estimate}: the split gains {gain_percent:.0f} %."
    return (
        f"{estimate}: {gain_percent:.0f} % more. "
        "To try it, leave out data_gpu and model_gpu and set training.multi_gpu to true."
    )


def _show_ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
