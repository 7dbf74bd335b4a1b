"""Recommendations for each cause of lost time: setting, value, reason, and predicted speed-up with an interval.

`advise` has one function per cause in `_ADVISERS`. A gain is old interval / new interval; the new interval was measured
in a trial, predicted by the buffer simulation of `causes`, or estimated. For MyXTTS's own pipeline the advice names
configuration keys, for a foreign `tf.data.Dataset` the calls to change. `advise_machine` proposes batch size, workers
and buffer by the hardware, `compare_two_ways` compares a data GPU with data-parallel training.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from myxtts.config.choices import list_presets
from myxtts.config.load import read_preset
from myxtts.config.schema import XTTSConfig
from myxtts.pipeline import split_advice
from myxtts.pipeline.order import Shape
from myxtts.pipeline.tune import measure_ram_budget
from myxtts.runtime.hardware import Gpu, Hardware
from myxtts.runtime.plan import choose_plan
from myxtts.tools.diagnose.causes import (
    Change,
    find_depth,
    find_main_stage,
    is_waiting,
    predict_interval,
    simulate_interval,
    weigh_losses,
)
from myxtts.tools.diagnose.evidence import Evidence, StageTime, Times
from myxtts.tools.diagnose.findings import Advice, Basis, Cause, Facts, Finding, Gain
from myxtts.tools.diagnose.step_faults import CURES
from myxtts.training.step_memory import estimate_memory
from myxtts.training.voice.batch_size import MAX_ON_GPU, choose_budget, choose_compute_bytes, list_candidates

_SPREAD: dict[Basis, float] = {"tried": 0.15, "modelled": 0.25, "estimated": 0.4}
"""Half-width of the interval as a share of factor - 1: small where the change was tried, large where estimated."""
_LEAST_GAIN = 1.01
"""Predicted speed-up below which a change is not advised."""
_FEWER_PAUSES = 10
"""Factor by which checkpoints, or samples, are advised to be rarer."""
_DEPTHS = (2, 4, 8, 16, 32, 50)
"""Buffer depths to choose from; the last one stands for an unlimited buffer."""
_ENOUGH = 1.02
"""A depth suffices if its interval is within 2 % of that of the deepest buffer."""
_ALIKE = 0.2
"""Width of the bins of log(gain) in which advice ranks alike: a factor of about 1.22."""
_NUM_WAITING_THREADS = 16
"""Parallel reads for a stage that waits for I/O. They need no cores, so the number does not depend on the machine."""
TRIED_DEPTH = 16
"""Prefetch depth of the trials on a foreign dataset, and therefore of the advice that they support."""
_LEAST_BUFFER = 8
"""Smallest `data.buffer_size` that is advised, in batches."""
_FREE_CORES = 0.5
"""More worker threads are advised only if at least this many cores were idle while data was loaded alone."""


def advise(evidence: Evidence, finding: Finding) -> tuple[Advice, ...]:
    """Returns the recommendations for a finding, the largest gain first; none for a harmless finding."""
    if finding.cause.is_harmless:
        return ()
    adviser = _ADVISERS.get(finding.cause)
    advice = [_mend_step(evidence, finding)] if adviser is None else adviser(evidence)
    advice = [one for one in advice if one.gain.factor >= _LEAST_GAIN]
    # The sort is stable: advice of similar gain keeps the order of the adviser, the smallest change first.
    return tuple(sorted(advice, key=lambda one: -round(math.log(one.gain.factor) / _ALIKE)))


def _mend_step(evidence: Evidence, finding: Finding) -> Advice:
    """Advises the cure of a fault of the step; the step gets faster by what the fault costs."""
    cure, interval_s = CURES[finding.cause], evidence.loop.interval_s
    if finding.cause is Cause.PAUSES:
        # Pauses lie between the steps of the loop, so the interval is what is left without them.
        factor = 1 + (1 - 1 / _FEWER_PAUSES) * finding.loss_s / interval_s
        return Advice(*_make_rarer(evidence), cure.reason, _spread_gain(factor, "estimated"), _is_own(evidence))
    basis: Basis = "tried" if finding.cause is Cause.SMALL_BATCH else "estimated"
    gain = _make_gain(evidence, interval_s - finding.loss_s, basis)
    if _is_own(evidence) and cure.own_setting:
        return Advice(cure.own_setting, cure.own_value, cure.reason, gain, True)
    return Advice(cure.setting, cure.value, cure.reason, gain, False)


def _make_rarer(evidence: Evidence) -> tuple[str, Any]:
    """Returns the setting that causes the most frequent pauses, and a value that makes them rarer."""
    keys = ("training.checkpoint_steps", "training.sample_steps")
    steps = {key: evidence.settings.get(key) or math.inf for key in keys}
    often = min(steps, key=lambda key: steps[key])
    return often, _FEWER_PAUSES * int(steps[often]) if math.isfinite(steps[often]) else "less often"


def _choose(
    evidence: Evidence, reason: str, gain: Gain, *, own: Mapping[str, Any], foreign: Mapping[str, Any]
) -> list[Advice]:
    """Makes advice of `own` settings for a configuration, of `foreign` calls for a user's dataset."""
    is_own = _is_own(evidence)
    changes = own if is_own else foreign
    return [Advice(setting, value, reason, gain, is_own) for setting, value in changes.items()]


def _is_own(evidence: Evidence) -> bool:
    """Returns whether the subject is a MyXTTS configuration, not a foreign dataset."""
    return evidence.subject == "configuration"


def _make_gain(evidence: Evidence, after_s: float, basis: Basis) -> Gain:
    """Returns old / new interval, at least 1; the bounds scale the gain beyond 1 by 1 ± `_SPREAD`."""
    return _spread_gain(max(1.0, evidence.loop.interval_s / max(after_s, 1e-9)), basis)


def _spread_gain(factor: float, basis: Basis) -> Gain:
    spread = _SPREAD[basis]
    return Gain(factor, 1 + (factor - 1) * (1 - spread), 1 + (factor - 1) * (1 + spread), basis)


def _predict(evidence: Evidence, change: Change, basis: Basis = "modelled", tried_s: float | None = None) -> Gain:
    """Returns the gain of a change: as measured in a trial (`tried_s`), else as predicted."""
    if tried_s is not None:
        return _make_gain(evidence, tried_s, "tried")
    return _make_gain(evidence, predict_interval(evidence, change), basis)


def _read_ahead_depth(evidence: Evidence) -> int:
    """Returns a depth of at least 2: the predicted change includes double buffering."""
    return max(2, find_depth(evidence))


def _choose_depth(evidence: Evidence) -> int:
    """Returns the smallest buffer depth whose simulated interval is close to that of the deepest one."""
    best_s = simulate_interval(evidence.alone_s, evidence.work_s, _DEPTHS[-1])
    return next(
        depth for depth in _DEPTHS if simulate_interval(evidence.alone_s, evidence.work_s, depth) <= _ENOUGH * best_s
    )


def _deepen_buffer(evidence: Evidence) -> list[Advice]:
    """Advises prefetching: the tried depth where there was a trial, else the smallest that suffices.

    A buffer that is as deep already runs empty because features are computed too slowly at times: they are advised to
    be computed once, where they are computed on the fly.
    """
    depth, tried_s = _choose_depth(evidence), evidence.trials.ahead_s
    if _is_own(evidence) and (evidence.buffer_depth or 0) >= max(depth, _LEAST_BUFFER):
        return [_precompute(evidence)] if evidence.trials.cached_s is not None else []
    return _choose(
        evidence,
        "deeper_buffer",
        _predict(evidence, Change(depth=depth), tried_s=tried_s),
        own={"data.buffer_size": max(depth, _LEAST_BUFFER)},
        foreign={"dataset.prefetch": depth if tried_s is None else TRIED_DEPTH},
    )


def _produce(evidence: Evidence, production_s: Times) -> Change:
    """Returns a change of the loading times, which then no longer compete with the step for the cores."""
    step_s = min(evidence.step_s, evidence.usual_step_s)
    return Change(production_s=production_s, step_s=step_s, depth=_read_ahead_depth(evidence))


def _precompute(evidence: Evidence) -> Advice:
    """Predicts precomputed features: making a batch is then only a copy from the store."""
    gain = _predict(evidence, _produce(evidence, np.array([evidence.trials.cached_s or 0.0])))
    return Advice("data.preprocessing_mode", "precompute", "precompute", gain, True)


def _without_stages(evidence: Evidence, removed: Collection[StageTime], left_s: float = 0.0) -> Gain:
    """Predicts that `removed` stages cost `left_s` in total, and that loading times shrink in proportion."""
    rest_s = left_s + sum(stage.seconds for stage in evidence.loading_stages if stage not in removed)
    share = min(1.0, rest_s / max(evidence.data_s, 1e-9))
    return _predict(evidence, _produce(evidence, evidence.alone_s * share))


def _avoid_python(evidence: Evidence) -> list[Advice]:
    """Predicts the dataset without its Python stages, as if TensorFlow operations took no time."""
    gain = _without_stages(evidence, [stage for stage in evidence.stages if stage.is_python])
    return [Advice("dataset.map", "myxtts precompute", "no_python", gain, False)]


def _raise_rate(evidence: Evidence) -> list[Advice]:
    if _is_own(evidence):
        return _raise_own_rate(evidence)
    main = find_main_stage(evidence)
    gain = _without_stages(evidence, [main] if main else [])
    cached = Advice("dataset.cache", "after " + (main.name if main else "batch"), "cache", gain, False)
    if main is None or main.num_threads > 1:
        return [cached]
    num_threads, factor = evidence.machine.num_cores, _find_speed_up(evidence, evidence.machine.num_cores)
    if is_waiting(evidence, main):
        # An I/O-bound stage scales with the threads, a CPU-bound one only with the idle cores.
        num_threads, factor = _NUM_WAITING_THREADS, float(_NUM_WAITING_THREADS)
    faster_s = evidence.data_s - main.seconds + main.seconds / factor
    change = Change(production_s=evidence.alone_s * faster_s / evidence.data_s, depth=_read_ahead_depth(evidence))
    parallel = Advice("num_parallel_calls", num_threads, "more_threads", _predict(evidence, change, "estimated"), False)
    # Parallel calls need a smaller code change than a cache: leave the cache out if they reach 80 % of its gain.
    return [parallel] if parallel.gain.factor >= 0.8 * gain.factor else [parallel, cached]


def _find_speed_up(evidence: Evidence, most: float) -> float:
    """Returns by what factor CPU-bound loading gets faster with all idle cores, at most `most`."""
    used = max(evidence.machine.num_used_cores, 0.3)
    return float(np.clip((used + evidence.machine.num_free_cores) / used, 1.0, most))


def _raise_own_rate(evidence: Evidence) -> list[Advice]:
    """Advises precomputed features or more workers; nothing where all cores are busy with stored features."""
    settings, machine = evidence.settings, evidence.machine
    advice = []
    if settings.get("data.preprocessing_mode") == "on_the_fly":
        advice.append(_precompute(evidence))
    most = max(1, machine.num_cores - 1)
    if evidence.num_threads < most and machine.num_free_cores > _FREE_CORES:
        change = Change(production_s=evidence.alone_s / _find_speed_up(evidence, most / evidence.num_threads))
        gain = _predict(evidence, change, "estimated")
        advice.append(Advice("data.num_workers", "auto", "more_threads", gain, True))
    return advice


def _speed_reads(evidence: Evidence) -> list[Advice]:
    """Advises parallel reads or few large files; for a feature store, enough memory to hold all of it.

    The memory budget is the size of the store plus 10 % and 1 GB.
    """
    main = find_main_stage(evidence)
    assert main is not None, "slow reads without a stage that reads"
    whole = _without_stages(evidence, [main])
    if not _is_own(evidence):
        gain = _without_stages(evidence, [main], main.seconds / _NUM_WAITING_THREADS)
        return [
            Advice("num_parallel_calls", _NUM_WAITING_THREADS, "parallel_reads", gain, False),
            Advice("dataset", "myxtts precompute", "few_large_files", whole, False),
        ]
    if evidence.settings.get("data.preprocessing_mode") == "on_the_fly":
        return [_precompute(evidence)]
    size_gb = math.ceil(float(evidence.settings.get("store_gb", 0.0)) * 1.1 + 1)
    return [Advice("data.ram_budget_gb", size_gb, "store_in_memory", whole, True)]


def _overlap_transfer(evidence: Evidence) -> list[Advice]:
    """Predicts copies in the background: a batch then takes the longer of loading and transfer."""
    production_s = np.maximum(evidence.alone_s, evidence.transfer_s)
    change = Change(production_s=production_s, transfer_s=0.0, depth=_read_ahead_depth(evidence))
    return _choose(
        evidence,
        "prefetch_to_device",
        _predict(evidence, change),
        own={"data.prefetch_to_gpu": True, "data.prefetch_buffer_size": 2},
        foreign={"prefetch_to_device": 2},
    )


def _reduce_threads(evidence: Evidence) -> list[Advice]:
    """Advises as many threads as there are cores; without a trial, half of the waiting is expected to go."""
    losses, tried_s = weigh_losses(evidence), evidence.trials.fewer_threads_s
    expected_s = evidence.loop.interval_s - (losses.rate_s + losses.rest_s) / 2
    return _choose(
        evidence,
        "fewer_threads",
        _make_gain(evidence, tried_s or expected_s, "tried" if tried_s else "estimated"),
        own={"data.num_workers": "auto", "data.optimize_cpu_gpu_overlap": True},
        foreign={"options.threading.private_threadpool_size": evidence.machine.num_cores},
    )


def _keep_shapes(evidence: Evidence) -> list[Advice]:
    return _choose(
        evidence,
        "few_shapes",
        _predict(evidence, Change(step_s=evidence.step_s, has_retraces=False)),
        own={"data.num_shapes": 8},
        foreign={"padded_batch / tf.function": "input_signature"},
    )


def _join_epochs(evidence: Evidence) -> list[Advice]:
    """Advises `repeat` before `prefetch`, deep enough that buffered steps last as long as the stall of an epoch."""
    loop, tried_s = evidence.loop, evidence.trials.repeated_s
    length = evidence.epoch_length or max(1, round(loop.num_steps / max(1, int(loop.is_epoch_start.sum()))))
    stall_s = weigh_losses(evidence).epoch_s * length
    production_s = np.full(length, evidence.data_s)
    production_s[0] += stall_s
    depth = int(np.clip(math.ceil(stall_s / max(evidence.usual_step_s, 1e-3)) + 1, 2, 64))
    gain = _predict(evidence, Change(production_s=production_s, depth=depth, has_epoch_stalls=False), tried_s=tried_s)
    depth = depth if tried_s is None else TRIED_DEPTH
    return [Advice("dataset.repeat().prefetch", depth, "repeat", gain, False)]


def _use_graph(evidence: Evidence) -> list[Advice]:
    # The ratio of two times measured right after each other, under the same load.
    ratio = (evidence.trials.graph_step_s or evidence.step_s) / evidence.step_s
    return _choose(
        evidence,
        "graph_mode",
        _predict(evidence, Change(step_s=evidence.usual_step_s * ratio), "tried"),
        own={"training.enable_graph_mode": True, "training.enable_eager_debug": False},
        foreign={"@tf.function": "step"},
    )


def _reduce_padding(evidence: Evidence) -> list[Advice]:
    """Advises batching by length; the step shrinks in the ratio that trimmed batches showed."""
    ratio = 1 - weigh_losses(evidence).padding_s / evidence.step_s
    basis: Basis = "tried" if evidence.trials.trimmed_step_s else "modelled"
    return _choose(
        evidence,
        "buckets",
        _predict(evidence, Change(step_s=evidence.usual_step_s * ratio), basis),
        own={"data.num_shapes": evidence.settings.get("better_num_shapes", 8)},
        foreign={"bucket_by_sequence_length": 8},
    )


_ADVISERS: dict[Cause, Callable[[Evidence], list[Advice]]] = {
    Cause.RATE_DEFICIT: _raise_rate,
    Cause.BURSTS: _deepen_buffer,
    Cause.NO_OVERLAP: _deepen_buffer,
    Cause.TRANSFER: _overlap_transfer,
    Cause.TOO_MANY_THREADS: _reduce_threads,
    Cause.RETRACING: _keep_shapes,
    Cause.EPOCH_END: _join_epochs,
    Cause.PYTHON_FUNCTIONS: _avoid_python,
    Cause.SLOW_READS: _speed_reads,
    Cause.PADDING: _reduce_padding,
    Cause.EAGER: _use_graph,
}


_LARGEST_BUFFER, _SMALLEST_BUFFER = 50, 4
"""Bounds of the advised `data.buffer_size` in batches."""


@dataclass(frozen=True, slots=True)
class MachineSetting:
    """A setting that suits the machine. `reason` is a key of `terminal.REASONS`, `facts` fill its placeholders."""

    setting: str
    value: Any
    reason: str
    facts: Facts


def advise_machine(
    config: XTTSConfig, hardware: Hardware, batch_bytes: int, longest: Shape | None = None
) -> tuple[MachineSetting, ...]:
    """Returns the preset of the first GPU if there is one for it, else batch size, workers and buffer by the hardware.

    `batch_bytes` is the size of the largest batch of features, `longest` its shape.
    """
    card = find_card(hardware)
    if card is not None:
        values = read_preset("gpu_card", card)
        name = hardware.gpus[0].name
        return tuple(MachineSetting(key, value, "for_card", {"card": name}) for key, value in values.items())
    workers = choose_plan(config.model_copy(update={"data.num_workers": "auto"}), hardware).num_workers
    budget_bytes = measure_ram_budget(hardware.available_ram_bytes, config.data.ram_budget_gb)
    buffer_size = max(_SMALLEST_BUFFER, min(_LARGEST_BUFFER, budget_bytes // max(1, batch_bytes)))
    settings = [
        MachineSetting("data.num_workers", workers, "for_cores", {"cores": float(hardware.num_cpus)}),
        MachineSetting("data.buffer_size", int(buffer_size), "for_memory", {"gb": budget_bytes / 2**30}),
    ]
    if hardware.gpus and longest is not None:
        free_bytes = min(gpu.free_memory_bytes for gpu in hardware.gpus)
        facts: Facts = {"card": hardware.gpus[0].name, "gb": free_bytes / 2**30}
        batch_size = _fit_batch(config, hardware.gpus, longest)
        settings.insert(0, MachineSetting("data.batch_size", batch_size, "for_vram", facts))
    return tuple(settings)


def _fit_batch(config: XTTSConfig, gpus: Sequence[Gpu], longest: Shape) -> int:
    """Returns the largest batch of the longest utterances that fits into free VRAM, as `batch_size: auto` does."""
    memory = estimate_memory(config, longest, choose_compute_bytes(config, gpus))
    num_rows = memory.count_rows(choose_budget(gpus, 0))
    return list_candidates(max(1, min(MAX_ON_GPU, num_rows)))[-1]


def find_card(hardware: Hardware) -> str | None:
    """Returns the preset for the first GPU, or None: rtx4090 for `NVIDIA GeForce RTX 4090`, not its laptop GPU."""
    if not hardware.gpus or hardware.gpus[0].instances:
        return None  # A MIG instance has a part of the card's memory.
    name = hardware.gpus[0].name.lower().replace("rtx ", "rtx")
    cards = (card for card in list_presets("gpu_card") if re.search(rf"\b{card}\b(?! (ti|super|laptop))", name))
    return next(cards, None)


def compare_two_ways(evidence: Evidence, num_gpus: int, gradient_bytes: int = 0) -> split_advice.SplitAdvice | None:
    """Compares one data GPU plus model GPUs with data-parallel training on the same cards.

    The time of the gradient exchange (all-reduce) is estimated from `gradient_bytes`. Returns None without a step time.
    """
    features = evidence.find_stage("features")
    if evidence.step_s <= 0:
        return None
    num_model_gpus = max(1, num_gpus - 1)
    size = gradient_bytes or split_advice.TYPICAL_GRADIENT_BYTES
    before = [stage.seconds for stage in evidence.stages if stage.name in ("read", "decode", "batch")]
    times = split_advice.MeasuredTimes(evidence.step_s, features.seconds if features else 0.0, max(before, default=0.0))
    return split_advice.compare_split(
        times,
        num_model_gpus,
        split_advice.estimate_exchange_s(size, num_model_gpus + 1),
        split_advice.estimate_exchange_s(size, num_model_gpus) if num_model_gpus > 1 else 0.0,
    )
