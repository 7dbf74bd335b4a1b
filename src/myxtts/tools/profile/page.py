"""HTML report of a training profile: stages of an average step, data loading, `tf.data` operations, compilation.

The stages and the operations are drawn as flame charts. One function per section; tables map keys to English labels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from myxtts.tools import page
from myxtts.tools.charts import Flame, draw_flame
from myxtts.tools.line_charts import Curve, draw_curves
from myxtts.tools.profile.result import OpTime, Spread, StepCounts, TrainingProfile
from myxtts.tools.words import Translator, mark

_MODES = mark({"xla": "compiled with XLA", "graph": "in graph mode", "eager": "eagerly, operation by operation"})
STAGES = mark(
    {
        "data_wait": "wait for data",
        "forward": "forward",
        "backward": "backward",
        "optimizer": "optimiser and EMA",
        "rest": "other",
        "checkpoint": "checkpoint",
        "logging": "logging",
    }
)
_LOADING = mark(
    {
        "data_wait": "wait for data",
        "loading": "loading a batch",
        "transfer": "copy to the device",
        "transfer_wait": "waiting for the device before the copy",
        "features": "features on the data device",
    }
)
COUNTS = mark(
    {
        "num_kernels": "kernels and library calls of the compiled step",
        "num_compiled_ops": "graph operations inside the compiled part",
        "num_outside_ops": "graph operations outside the compiled part",
        "num_loops": "loops",
        "num_unknown_loops": "loops without a known trip count",
        "num_eager_ops": "operations that Python dispatches",
        "num_host_reads": "results that the training thread waits for",
        "num_steps_ahead": "earlier steps still unfinished when a step begins",
        "num_copies": "copies to the device for each batch",
    }
)
"""Fields of `StepCounts`."""
_RATINGS = mark({"good": "good", "moderate": "moderate", "slow": "slow"})
_NO_OPS = mark(
    {
        "no_ops_stored": "Stored features are read without tf.data, so there are no operations to show.",
        "no_ops_python": "Recordings are loaded by the Python loader, without tf.data.",
        "no_ops_mixed": "Some recordings are decoded in Python, so the pipeline is not tf.data alone.",
    }
)
_PARTS = ("forward", "backward", "optimizer", "rest")
"""Stages inside the training step; the other stages lie between two steps."""


def make_profile_page(profile: TrainingProfile, machine: Mapping[str, Any], tr: Translator) -> page.Page:
    """Builds the page in the language of `tr`; `machine` describes the hardware and software."""
    return page.Page(
        title=tr("Profile of training"),
        lead=tr(
            "{steps} real steps of a model with {parameters} million parameters, {mode}.",
            steps=tr.count(len(profile.steps)),
            parameters=tr.number(profile.num_parameters / 1e6),
            mode=tr(_MODES[profile.mode]),
        ),
        cards=_make_cards(profile, tr),
        sections=[
            _show_stages(profile, tr),
            _show_counts(profile, tr),
            _show_loading(profile, tr),
            _show_ops(profile, tr),
            _show_compiling(profile, tr),
            page.make_machine_section(machine, tr),
        ],
        footer=tr("Made by MyXTTS."),
        lang=tr.lang,
    )


def _make_cards(profile: TrainingProfile, tr: Translator) -> list[page.Card]:
    step = Spread.of([one.step_s for one in profile.steps])
    data = profile.data
    rating = tr.join([tr(_RATINGS[data.rating]), tr("stable" if data.is_stable else "not stable")])
    return [
        page.Card(
            tr("Step"),
            tr.milliseconds(step.median_ms),
            tr("median; {variation} variation", variation=tr.share(step.variation)),
        ),
        page.Card(tr("Wait for data"), tr.milliseconds(data.wait.mean_ms), tr("mean per step")),
        page.Card(tr("Loading a batch"), tr.milliseconds(data.load.mean_ms), rating),
        page.make_au_card(profile.counts.device_busy, data.au, tr),
        page.Card(
            tr("Graphs traced"),
            tr.count(len(profile.compilations)),
            tr("{count} during training", count=tr.count(profile.num_retraces)),
        ),
    ]


def _show_stages(profile: TrainingProfile, tr: Translator) -> page.Html:
    """Time by stage, spread over all steps, and the full cost of one checkpoint and one log entry."""
    stages = profile.list_stages()
    total = sum(seconds for _, seconds in stages)
    rows = [
        [tr(STAGES[name]), tr.number(1000 * seconds), tr.share(seconds / max(total, 1e-12))] for name, seconds in stages
    ]
    saving, parts = profile.saving, profile.parts
    often, seldom = (
        tr("every {steps} steps", steps=tr.count(count)) for count in (saving.log_steps, saving.checkpoint_steps)
    )
    once = [
        [tr("checkpoint, training paused"), tr.number(1000 * saving.checkpoint_held_s), seldom],
        [tr("checkpoint, written in the background"), tr.number(1000 * saving.checkpoint_write_s), seldom],
        [tr("log entry"), tr.number(1000 * saving.log_s), often],
    ]
    picture = draw_flame(make_step_flame(profile, tr), lambda seconds: tr.milliseconds(1000 * seconds))
    heading = tr.row("Stage", "ms", "Share")
    return page.make_section(
        tr("Stage by stage"),
        page.make_panel(tr("Time of an average step by stage"), picture),
        page.make_grid(
            page.make_panel(tr("Milliseconds per step"), page.make_table(heading, rows)),
            page.make_panel(tr("Per occurrence"), page.make_table([tr("Stage"), tr("ms"), ""], once)),
        ),
        lead=tr(
            "An average step. The time of checkpoints and logging is divided by the steps between "
            "them. Forward, backward and optimiser were timed separately on batches of {shape}; "
            "together they took {sum} ms, the whole step {whole} ms.",
            shape=parts.shape,
            sum=tr.number(1000 * parts.sum_s),
            whole=tr.number(1000 * parts.whole_s),
        ),
    )


def _show_counts(profile: TrainingProfile, tr: Translator) -> page.Html:
    """What the host and the device start in one step of the real training loop."""
    rows = [[tr(COUNTS[name]), text] for name, text in list_counts(profile.counts, tr).items()]
    return page.make_section(
        tr("What a step starts"),
        page.make_panel(tr("Per step"), page.make_table(tr.row("Count", "Number"), rows)),
        lead=tr(
            "Counted in the real training loop. A graph is one operation for the host. Operations outside the compiled "
            "part, loops without a trip count and reads of the host leave a GPU idle between its kernels."
        ),
    )


def list_counts(counts: StepCounts, tr: Translator) -> dict[str, str]:
    """Returns the numbers that are known, as text, by key of `COUNTS`."""
    known = {name: value for name in COUNTS if (value := getattr(counts, name)) is not None}
    return {name: tr.count(value) if value == round(value) else tr.number(value) for name, value in known.items()}


def make_step_flame(profile: TrainingProfile, tr: Translator) -> Flame:
    """Returns the flame chart of an average step: wait, training step with its parts, checkpoint and logging.

    The parts were timed separately, so the training step is drawn at least as wide as their sum.
    """
    parts = [Flame(tr(STAGES[name]), seconds) for name, seconds in profile.list_parts() if seconds > 0]
    training = Flame(tr("training step"), max(profile.parts.whole_s, profile.parts.sum_s), parts)
    others = {name: seconds for name, seconds in profile.list_stages() if name not in _PARTS}
    children = [
        Flame(tr("wait for data"), others.pop("data_wait")),
        training,
        *(Flame(tr(STAGES[name]), seconds) for name, seconds in others.items()),
    ]
    return Flame(tr("Average step"), sum(child.value for child in children), children)


def _show_loading(profile: TrainingProfile, tr: Translator) -> page.Html:
    """Waiting and loading times, buffer depth, padding, and the times of every step as curves."""
    data = profile.data
    spreads = {"data_wait": data.wait, "loading": data.load, **data.stages}
    heading = tr.row("Stage", "Mean", "Median", "Maximum", "Variation")
    times = [_list_spread(tr(_LOADING.get(name, name)), spread, tr) for name, spread in spreads.items()]
    facts = [
        [tr("rating"), tr(_RATINGS[data.rating])],
        [tr("batches in the buffer (mean)"), tr.number(data.mean_depth)],
        [tr("padding"), tr.share(data.padding)],
    ]
    steps = [one.step for one in profile.steps]
    curves = [
        Curve(tr("training step"), steps, [1000 * one.step_s for one in profile.steps], is_noisy=False),
        Curve(tr("wait for data"), steps, [1000 * one.wait_s for one in profile.steps], is_noisy=False),
    ]
    return page.make_section(
        tr("Data loading performance"),
        page.make_grid(
            page.make_panel(tr("Milliseconds per batch"), page.make_table(heading, times), page.make_table([], facts)),
            page.make_panel(tr("Step time in milliseconds"), draw_curves(curves, tr, unit=tr("milliseconds"))),
        ),
        lead=tr(
            "Loader: {loader}. Loading is good if it is faster than the step, and slow if the step waits; a "
            "variation (standard deviation / mean) under 20 % is stable. Loading runs in parallel "
            "with the step: only waiting costs time.",
            loader=data.loader,
        ),
    )


def _list_spread(label: str, spread: Spread, tr: Translator) -> list[str]:
    times = (spread.mean_ms, spread.median_ms, spread.highest_ms)
    return [label, *map(tr.number, times), tr.share(spread.variation)]


def _show_ops(profile: TrainingProfile, tr: Translator) -> page.Html:
    """Flame chart and table of the `tf.data` operations, or the reason why there are none."""
    if not profile.ops:
        return page.make_section(
            tr("Operations of tf.data"), page.make_paragraph(tr(_NO_OPS[profile.no_ops_reason]), "lead")
        )
    picture = draw_flame(make_op_flame(profile.ops, tr), tr.milliseconds)
    heading = tr.row("Operation", "Own ms", "Elements", "Parallel", "Buffered", "MB produced")
    rows = [
        [
            "· " * op.level + op.name,
            tr.number(op.own_ms),
            tr.count(op.num_elements),
            tr.count(op.parallelism) if op.parallelism is not None else "–",
            f"{tr.count(op.num_buffered)} / {tr.count(op.buffer_size)}" if op.buffer_size is not None else "–",
            tr.number(op.megabytes),
        ]
        for op in profile.ops
    ]
    table = page.make_table(heading, rows, code_columns=(0,))
    return page.make_section(
        tr("Operations of tf.data"),
        page.make_panel(tr("Pipeline"), picture, table),
        lead=tr("From TensorFlow's model of the iterator: own time for a batch, without the inputs."),
    )


def make_op_flame(ops: Sequence[OpTime], tr: Translator) -> Flame:
    """Returns the flame chart of a pipeline: each operation is as wide as its own time plus that of its inputs.

    `ops` are in preorder: each operation is followed by its inputs, one level deeper.
    """
    # From the last operation to the first, so that the inputs of each are complete; by level.
    waiting: dict[int, list[Flame]] = defaultdict(list)
    for op in reversed(ops):
        inputs = waiting.pop(op.level + 1, [])[::-1]
        waiting[op.level].append(Flame(op.name, op.own_ms + sum(child.value for child in inputs), inputs))
    roots = waiting[0][::-1]
    return Flame(tr("Pipeline"), sum(root.value for root in roots), roots)


def _show_compiling(profile: TrainingProfile, tr: Translator) -> page.Html:
    """Traced graphs, step times by batch shape, and where the xprof trace is."""
    rows = [
        [
            one.shape,
            tr.number(one.seconds),
            tr("compiled with XLA" if one.is_compiled else "traced"),
            tr("before the first step") if one.step is None else tr("step {step}", step=tr.count(one.step)),
        ]
        for one in profile.compilations
    ]
    of_graphs = tr.row("Shape (utterances × frames × tokens)", "Seconds", "Kind", "When")
    eager = "" if rows else tr("The step runs eagerly: no graph is traced.")
    shapes = [_list_spread(shape, spread, tr) for shape, spread in profile.measure_shapes().items()]
    of_shapes = tr.row("Shape (utterances × frames × tokens)", "Mean", "Median", "Maximum", "Variation")
    trace = ""
    if profile.trace_dir:
        place = profile.trace_dir
        trace = tr("The TensorFlow trace is in {place}. Look at it with xprof (pip install xprof).", place=place)
    return page.make_section(
        tr("Graphs and compilation"),
        page.make_panel(
            tr("Graphs and compilation"),
            page.make_table(of_graphs, rows, code_columns=(0,)),
            page.make_paragraph(eager),
        ),
        page.make_panel(tr("Step by shape"), page.make_table(of_shapes, shapes, code_columns=(0,))),
        page.make_paragraph(trace),
        lead=tr("Every batch shape is traced once, before the first step. Graphs traced during training slow it down."),
    )
