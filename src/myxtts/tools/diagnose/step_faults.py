"""Faults of the training step itself, found by a look at the real loop: what keeps a device idle that has its data.

`list_faults` turns `StepFacts` into faults with the seconds that each costs in a step. Where the cost was measured it
is that; on a GPU it otherwise follows from typical times, which are named below. A fault costs at least what is
noticeable: on a CPU, where most of them cost little, they are named for the GPU that the step will run on. `causes`
ranks them beside those of the data, and `CURES` says what to change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from myxtts.tools.diagnose.evidence import Evidence, StepFacts
from myxtts.tools.diagnose.findings import Cause, Finding

_HOST_WAIT_S, _KERNEL_S, _EAGER_OP_S, _COPY_S = 12e-6, 4e-6, 30e-6, 50e-6
"""Typical times on a GPU: a pass of a loop that asks the host, the start of a kernel outside XLA, an operation that
Python dispatches, and a copy of a small tensor. Estimates, not measurements of this machine."""
_MANY_OUTSIDE = 150
"""Operations outside the compiled part of a step from which they are reported: an optimizer or an average of weights
has several for each weight."""
_COMPILED_SHARE = 0.25
"""Operations inside of what XLA compiles by those outside, from which the step counts as compiled."""
_MANY_OPS = 10
"""Operations that Python dispatches in a step from which they are reported."""
_MANY_COPIES = 4
"""Copies of one batch to the device from which they are reported: one packed copy suffices."""
_RETRACED_SHARE = 0.2
"""New graphs by steps from which the step is called retraced again and again."""
_FULL_PRECISION_SHARE = 0.7
"""Share of float32 among all matrix products from which the step counts as float32."""
_FLOAT32_LOSS, _NO_XLA_LOSS, _STORM_LOSS = 0.4, 0.3, 0.9
"""Estimated shares of the step that are lost to float32, to a graph without XLA, and to tracing in every step."""
_MOST_LOST = 0.9
"""Bound of an estimated loss, as a share of the interval."""
_MEASURED = (Cause.COMPILE_STORM, Cause.SMALL_BATCH, Cause.PAUSES, Cause.IDLE)
"""Faults whose cost shows on any device."""
_WORTH_DOUBLING = 1.15
"""Gain of rows per second with twice the batch from which the batch counts as too small for the device."""
_IDLE_BUSY = 0.7
"""Share of time in which a GPU runs kernels below which it is reported as idle, where no other fault explains it."""
_LEAST_PAUSES = 0.08
"""Share of the wall clock outside of steps from which pauses are reported."""


def list_faults(evidence: Evidence, least_s: float) -> Iterator[Finding]:
    """Yields the faults of a real step, the most serious kinds first; each costs at least `least_s`."""
    facts = evidence.step_facts
    if facts is None:
        return
    found = [*_find_misplaced(evidence, facts), *_find_in_graph(evidence, facts), *_find_by_hand(evidence, facts)]
    for fault in found or _find_idle(evidence, facts):
        loss_s = fault.loss_s
        if fault.cause not in _MEASURED:
            # Estimates are of GPUs, and may be longer than the whole step.
            loss_s = min(loss_s, _MOST_LOST * evidence.loop.interval_s) if facts.is_gpu else 0.0
        yield replace(fault, loss_s=max(least_s, loss_s))


def _find_misplaced(evidence: Evidence, facts: StepFacts) -> Iterator[Finding]:
    """Yields what makes the host and the device wait for each other: devices, compilation, reads, operations."""
    loop, interval_s = facts.loop, evidence.loop.interval_s
    if loop.elsewhere:
        names = ", ".join(loop.elsewhere)
        yield Finding(Cause.WRONG_DEVICE, len(loop.elsewhere) * _COPY_S, {"tensors": names})
    # Where shapes change, retracing has a cause of its own.
    has_new_shapes = evidence.loop.is_new_shape.mean() >= _RETRACED_SHARE / 2
    num_needless = loop.num_new_graphs - facts.num_shapes
    if num_needless >= max(2, _RETRACED_SHARE * loop.num_steps) and not has_new_shapes:
        counts = {"graphs": float(loop.num_new_graphs), "steps": float(loop.num_steps)}
        yield Finding(Cause.COMPILE_STORM, _STORM_LOSS * interval_s, counts)
    ahead = loop.num_steps_ahead
    if loop.num_host_reads >= 1 or (ahead is not None and ahead < 1):
        reads = {"reads": loop.num_host_reads, "ahead": ahead if ahead is not None else 0.0}
        yield Finding(Cause.HOST_SYNC, loop.num_host_reads * _COPY_S, reads)
    # A step that is eager as a whole has a cause of its own.
    if loop.num_eager_ops >= _MANY_OPS and not evidence.num_eager_ops:
        kinds = ", ".join(loop.eager_kinds)
        loss_s = loop.num_eager_ops * _EAGER_OP_S
        yield Finding(Cause.EAGER_OPS, loss_s, {"ops": loop.num_eager_ops, "kinds": kinds})
    if loop.num_copies is not None and loop.num_copies >= _MANY_COPIES:
        yield Finding(Cause.MANY_COPIES, loop.num_copies * _COPY_S, {"copies": loop.num_copies})


def _find_in_graph(evidence: Evidence, facts: StepFacts) -> Iterator[Finding]:
    """Yields faults of the graphs: loops, operations outside of the compiled part, types of numbers."""
    graph, step_s = facts.loop.graph, evidence.step_s
    if graph.unknown_loops:
        loops = len(graph.unknown_loops)
        loss_s = loops * facts.num_frames * _HOST_WAIT_S
        yield Finding(Cause.UNKNOWN_LOOP, loss_s, {"loops": float(loops), "names": ", ".join(graph.unknown_loops)})
    # Beside those of graphs, operations that Python dispatches are not compiled either; the calls of graphs are few.
    num_outside = graph.num_outside + facts.loop.num_eager_ops
    # Single functions may be compiled although the step is not.
    is_compiled = graph.num_compiled >= _COMPILED_SHARE * graph.num_outside
    if graph.num_compiled and is_compiled and num_outside >= _MANY_OUTSIDE:
        kinds = ", ".join([name for name, _ in graph.outside.most_common(4)] or facts.loop.eager_kinds)
        yield Finding(Cause.OUTSIDE, num_outside * _KERNEL_S, {"ops": float(num_outside), "kinds": kinds})
    if facts.is_gpu and not is_compiled and not evidence.num_eager_ops:
        yield Finding(Cause.NO_XLA, _NO_XLA_LOSS * step_s, {"ops": float(graph.num_outside)})
    num_products = graph.num_float32_products + graph.num_half_products
    is_full = num_products and graph.num_float32_products >= _FULL_PRECISION_SHARE * num_products
    if facts.has_bfloat16 and is_full:
        yield Finding(Cause.FLOAT32, _FLOAT32_LOSS * step_s, {"products": float(num_products)})
    if facts.has_durations and graph.num_loops:
        loss_s = graph.num_loops * facts.num_frames * _HOST_WAIT_S / 2
        yield Finding(Cause.SEARCH, loss_s, {"loops": float(graph.num_loops)})


def _find_by_hand(evidence: Evidence, facts: StepFacts) -> Iterator[Finding]:
    """Yields what users set: the size of a batch, and how often training pauses."""
    ratio, step_s = evidence.trials.double_ratio, evidence.step_s
    if ratio is not None and 2 / max(ratio, 1e-3) >= _WORTH_DOUBLING:
        times = {"step_ms": 1e3 * step_s, "double_ms": 1e3 * step_s * ratio}
        yield Finding(Cause.SMALL_BATCH, step_s * (1 - ratio / 2), times)
    share = 1 - facts.loop.wall_share
    if share >= _LEAST_PAUSES:
        # The pauses of a step, where the interval of the measured loop has none.
        loss_s = evidence.loop.interval_s * share / max(1e-3, 1 - share)
        yield Finding(Cause.PAUSES, loss_s, {"pauses": share})


def _find_idle(evidence: Evidence, facts: StepFacts) -> Iterator[Finding]:
    """Yields the idle time of a GPU that has its data, where nothing else explains it."""
    loop, busy = evidence.loop, facts.device_busy
    waiting = float(loop.waits_s.sum() / max(loop.intervals_s.sum(), 1e-9))
    if busy is not None and busy < _IDLE_BUSY and waiting < _LEAST_PAUSES:
        yield Finding(Cause.IDLE, (1 - busy - waiting) * loop.interval_s, {"busy": busy})


@dataclass(frozen=True, slots=True)
class Cure:
    """What to change: a configuration key, or a call in the step's code. `reason` is a key of `terminal.REASONS`."""

    setting: str
    value: str
    reason: str
    own_setting: str = ""
    own_value: str = ""


CURES: dict[Cause, Cure] = {
    Cause.WRONG_DEVICE: Cure("tf.device", "the device of the model", "same_device"),
    Cause.COMPILE_STORM: Cure("tf.function", "one graph for each batch shape", "few_graphs"),
    Cause.HOST_SYNC: Cure(".numpy()", "every log_steps, in another thread", "read_late"),
    Cause.UNKNOWN_LOOP: Cure("tf.while_loop", "count up to a constant, without maximum_iterations", "count_up"),
    Cause.OUTSIDE: Cure("tf.function(jit_compile=True)", "the whole step", "compile_whole"),
    Cause.NO_XLA: Cure(
        "tf.function(jit_compile=True)", "step", "compile_whole", "training.enable_xla_compilation", "auto"
    ),
    Cause.EAGER_OPS: Cure("@tf.function", "the whole step", "graph_mode"),
    Cause.MANY_COPIES: Cure("tf.identity", "one packed tensor for each batch", "one_copy"),
    Cause.FLOAT32: Cure(
        "keras.mixed_precision", "mixed_bfloat16", "half_precision", "training.mixed_precision", "auto"
    ),
    Cause.SEARCH: Cure("alignment", "stored durations", "stored_durations", "training.durations", "stored"),
    Cause.SMALL_BATCH: Cure("batch size", "twice as many rows", "larger_batch", "data.batch_size", "auto"),
    Cause.PAUSES: Cure("checkpoints", "less often", "fewer_pauses"),
    Cause.IDLE: Cure("myxtts profile", "--trace traces", "look_at_trace"),
}
