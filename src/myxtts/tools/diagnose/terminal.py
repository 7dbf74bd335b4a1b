"""Output of a pipeline diagnosis as text: sentences shared with the HTML page, JSON, and tables on a terminal (rich).

The tables below map keys of `causes` and `advice` to English sentences; `mark` registers them for translation, and
placeholders are filled from `Finding.facts` and `MachineSetting.facts`.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from myxtts.tools.charts import draw_timeline, make_terminal_table
from myxtts.tools.diagnose.advice import MachineSetting
from myxtts.tools.diagnose.evidence import StepFacts
from myxtts.tools.diagnose.findings import Advice, Cause, Facts, Finding
from myxtts.tools.page import Card
from myxtts.tools.step_graph import StepGraph
from myxtts.tools.words import Translator, mark

if TYPE_CHECKING:
    from myxtts.tools.diagnose.examine import Diagnosis

_WHOLE = (
    *("threads", "cores", "shapes", "steps", "batches", "ops"),
    *("graphs", "copies", "loops", "reads", "products", "ahead"),
)
"""Facts that are counts; they are shown as whole numbers."""
_SHARES = ("padding", "overlap", "pauses", "busy")
"""Facts between 0 and 1 that are shown in per cent."""
CAUSES = mark(
    {
        Cause.RATE_DEFICIT: "Data loading is too slow",
        Cause.BURSTS: "Data comes in bursts",
        Cause.NO_OVERLAP: "No prefetching",
        Cause.TRANSFER: "Steps wait for the copy to the device",
        Cause.TOO_MANY_THREADS: "Too many threads for the cores",
        Cause.RETRACING: "New shapes cause retracing",
        Cause.EPOCH_END: "A stall at the end of every epoch",
        Cause.PYTHON_FUNCTIONS: "Python functions in the data graph",
        Cause.SLOW_READS: "Small files or a slow disk",
        Cause.PADDING: "Compute is spent on padding",
        Cause.EAGER: "The step runs eagerly",
        Cause.WRONG_DEVICE: "The step takes tensors from another device",
        Cause.COMPILE_STORM: "The step is traced or compiled again and again",
        Cause.HOST_SYNC: "The host waits for the device in every step",
        Cause.UNKNOWN_LOOP: "A loop of the step asks the host in every pass",
        Cause.OUTSIDE: "Kernels outside the compiled step",
        Cause.NO_XLA: "The step is not compiled, although it runs on a GPU",
        Cause.EAGER_OPS: "Python starts operations beside the step",
        Cause.MANY_COPIES: "A batch is copied to the device in many pieces",
        Cause.FLOAT32: "The step computes in float32 on a device with bfloat16",
        Cause.SEARCH: "The step searches alignments that are stored already",
        Cause.SMALL_BATCH: "The batch is too small for the device",
        Cause.PAUSES: "Checkpoints, validation or samples take much of the time",
        Cause.IDLE: "The GPU is idle between its kernels",
        Cause.COMPUTE_BOUND: "Compute-bound: the model is the limit, not the pipeline",
        Cause.HEALTHY: "The pipeline is healthy",
    }
)
_EXPLANATIONS = mark(
    {
        "rate_deficit": "Loading a batch takes {data_ms} ms and the step only {step_ms} ms; the slowest stage is "
        "{stage}.",
        "bursts": "Batches take {data_ms} ms on average, which is fast enough, but up to {worst_ms} ms: the "
        "buffer runs empty.",
        "no_overlap": "Loading ({data_ms} ms) and the step run one after the other instead of in parallel: "
        "overlap {overlap}.",
        "transfer_not_overlapped": "Every step waits {ms} ms for its batch to be copied to the device.",
        "too_many_threads": "{threads} threads share {cores} cores; on average {wanted} of them are ready to run.",
        "retracing": "{shapes} of {steps} steps had a new shape and were traced or compiled first.",
        "epoch_end_stall": "Every {batches} batches the pipeline is built and filled again, which takes {ms} ms.",
        "python_functions": "{python_ms} ms of a batch run in Python, in one thread at a time: {functions}.",
        "small_files": "{read_ms} ms of a batch are spent waiting for many small files ({kib} KiB each).",
        "slow_disk": "{read_ms} ms of a batch are spent waiting for the disk while the CPU is idle.",
        "padding_waste": "{padding} of all frames are padding; the device computes on them like on any other.",
        "eager_mode": "Python starts {ops} operations one by one in every step of {ms} ms.",
        "wrong_device": "The step takes these from another device than the one that trains, and waits for the copies: "
        "{tensors}.",
        "compile_storm": "{graphs} new graphs were made in {steps} steps, although the batch shapes were known.",
        "host_synchronisation": "The training thread reads {reads} results in every step, and begins a step with "
        "{ahead} earlier ones unfinished: the device is idle until the host has started the next.",
        "loop_without_trip_count": "XLA does not know how often {loops} loops of the step run ({names}), so a GPU "
        "asks the host before every pass.",
        "kernels_outside_compiled_step": "{ops} operations of every step run one by one beside the compiled part, "
        "mostly {kinds}.",
        "xla_off_on_gpu": "{ops} operations of every step run one by one; XLA would fuse them into far fewer kernels.",
        "eager_operations_per_step": "Python starts {ops} operations in every step, such as {kinds}; one call of a "
        "graph would do.",
        "many_copies_per_batch": "{copies} copies for every batch, and each waits until the device is free.",
        "float32_on_bfloat16_device": "The {products} matrix products of the step are in float32, which this device "
        "computes at half the speed of bfloat16 or less.",
        "alignment_search_in_step": "Durations of all utterances are in the feature cache, but {loops} loops over all "
        "frames search for them in every step.",
        "batch_too_small": "A step takes {step_ms} ms, and with twice as many rows only {double_ms} ms.",
        "pauses_between_steps": "{pauses} of the time is spent between steps, in checkpoints, validation and samples.",
        "device_idle_between_kernels": "The GPU runs kernels {busy} of the time, although it has its data.",
        "compute_bound": "Data could be loaded {spare} times as fast as the step of {step_ms} ms needs it. "
        "Optimise the model instead.",
        "healthy": "The step of {step_ms} ms hardly ever waits; data could be loaded {spare} times as fast.",
    }
)
"""Keys are the values of `Cause`, except that slow reads have two explanations, chosen by the fact `kind`."""
STAGES = mark(
    {
        "read": "read",
        "decode": "decode",
        "features": "features",
        "batch": "batch",
        "transfer": "transfer",
        "step": "step",
    }
)
REASONS = mark(
    {
        "deeper_buffer": "A deeper buffer bridges slow batches.",
        "precompute": "Features are computed once instead of in every epoch.",
        "no_python": "Compute features once, or rewrite the function with TensorFlow operations, which run on all "
        "cores.",
        "more_threads": "The stage runs on one thread although cores are free.",
        "cache": "Results of the first epoch are kept in memory for the next one.",
        "store_in_memory": "A feature cache that fits into memory is read from the disk only once.",
        "parallel_reads": "Parallel reads wait no longer than a single one.",
        "few_large_files": "A few large files are read at the full speed of the disk, without a seek for each "
        "utterance.",
        "prefetch_to_device": "The next batch is copied while the current step computes.",
        "fewer_threads": "Waiting threads take CPU time away from the training step.",
        "few_shapes": "A few fixed shapes, or an input signature with unknown lengths, are traced only once.",
        "repeat": "The next epoch is loaded while the last batches of this one are trained on.",
        "graph_mode": "In graph mode the step is dispatched once instead of operation by operation.",
        "buckets": "Batching utterances of similar length reduces padding.",
        "same_device": "What is on the device of the model already needs no copy.",
        "few_graphs": "Python numbers and new shapes of tensors make a new graph each; tensors of fixed shapes do not.",
        "read_late": "Results that are read later, by another thread, let the host start the next step at once.",
        "count_up": "A counter that goes up to a constant lets XLA run all passes without the host.",
        "compile_whole": "Compiled as a whole, with optimizer and averages, the step has far fewer kernels.",
        "one_copy": "One copy of a packed batch waits once instead of many times.",
        "half_precision": "bfloat16 halves the memory traffic and doubles the speed of matrix products.",
        "stored_durations": "With stored durations the step has no loop over frames.",
        "larger_batch": "The device computes more rows in nearly the same time.",
        "fewer_pauses": "Training is paused meanwhile.",
        "look_at_trace": "A trace shows what the GPU waits for; a larger batch makes longer kernels.",
        "for_card": "preset for {card}",
        "for_cores": "{cores} cores; one is reserved for the training step",
        "for_memory": "{gb} GB of memory available",
        "for_vram": "{gb} GB free on {card}",
    }
)
"""Keys are `Advice.reason` and `MachineSetting.reason`."""
_SPLIT_WINNERS = mark(
    {
        "split": "A data GPU gains {gain}.",
        "data-parallel": "Data-parallel is {gain} faster: set training.multi_gpu and leave out data_gpu.",
        "neither": "The difference, {gain}, is not worth a change.",
    }
)
"""Keys are `SplitAdvice.winner`."""
RATINGS = mark(
    {"good": "good: the step never waits", "moderate": "just fast enough for the step", "slow": "the step waits for it"}
)
_AU_BASES = mark(
    {
        "emulated": "emulated: nominal step time / interval",
        "disturbed": "emulated; slowed down by other work on this machine: measure again when it is idle",
        "device": "time in which the GPU ran kernels",
        "step": "step time / interval (AU)",
        "data wait": "share of time not waiting for data",
    }
)
"""Keys are `Diagnosis.au_basis`."""


def explain_cause(finding: Finding, tr: Translator) -> str:
    """Returns one sentence with the measured numbers that show the cause."""
    kind = finding.facts.get("kind", finding.cause.value)
    return tr(_EXPLANATIONS[str(kind)], **_format_facts(finding.facts, tr))


def explain_setting(setting: MachineSetting, tr: Translator) -> str:
    return tr(REASONS[setting.reason], **_format_facts(setting.facts, tr))


def _format_facts(facts: Facts, tr: Translator) -> dict[str, str]:
    """Formats facts in the language of `tr`: counts as whole numbers, shares in per cent."""
    return {name: _format(name, value, tr) for name, value in facts.items()}


def _format(name: str, value: float | str, tr: Translator) -> str:
    if isinstance(value, str):
        return tr(STAGES[value]) if name == "stage" else value
    if name in _SHARES:
        return tr.share(value)
    return tr.count(value) if name in _WHOLE else tr.number(value)


def tell_gain(advice: Advice, tr: Translator) -> str:
    """Returns the predicted speed-up with its interval, as `1.8× (1.6 to 2.0)`."""
    gain = advice.gain
    interval = tr("{low} to {high}", low=tr.number(gain.low), high=tr.number(gain.high))
    return f"{tr('{value}×', value=tr.number(gain.factor))} ({interval})"


def tell_oscillation(diagnosis: Diagnosis, tr: Translator) -> str:
    """Returns the period of the step times, found by autocorrelation."""
    oscillation = diagnosis.oscillation
    if oscillation.period_steps is None or oscillation.period_s is None:
        return tr("No periodic pattern.")
    return tr(
        "Step times repeat with a period of {steps} steps, {seconds} s (autocorrelation {correlation}).",
        steps=tr.count(oscillation.period_steps),
        seconds=tr.number(oscillation.period_s),
        correlation=tr.number(oscillation.correlation),
    )


def tell_verified(diagnosis: Diagnosis, tr: Translator) -> str:
    """Returns predicted and measured speed-up; empty if nothing was verified."""
    compared = diagnosis.verified
    if compared is None:
        return ""
    return tr(
        "Predicted {predicted}, measured {measured} (blocks between {low} and {high}).",
        predicted=tr("{value}×", value=tr.number(diagnosis.first.gain)),
        measured=tr("{value}×", value=tr.number(compared.factor)),
        low=tr.number(compared.low),
        high=tr.number(compared.high),
    )


def tell_split(diagnosis: Diagnosis, tr: Translator) -> str:
    """Returns the comparison of a data GPU with data-parallel training; empty if it was not made."""
    split = diagnosis.split
    if split is None:
        return ""
    features = diagnosis.evidence.find_stage("features")
    numbers = tr(
        "Features take {features_ms} ms and steps {step_ms} ms. On equal cards a data GPU would "
        "reach {split} batches a second, data-parallel training {parallel}.",
        features_ms=tr.number(1e3 * features.seconds if features else 0.0),
        step_ms=tr.number(1e3 * diagnosis.evidence.step_s),
        split=tr.number(split.split_rate),
        parallel=tr.number(split.parallel_rate),
    )
    return f"{numbers} {tr(_SPLIT_WINNERS[split.winner], gain=tr.share(split.gain_percent / 100))}"


def to_json(diagnosis: Diagnosis, tr: Translator) -> dict[str, Any]:
    """Returns the whole diagnosis for `--json`: numbers as numbers, sentences in the language of `tr`."""
    evidence, loop, oscillation = diagnosis.evidence, diagnosis.evidence.loop, diagnosis.oscillation
    compared = diagnosis.verified
    return {
        "cause": diagnosis.first.cause.value,
        "is_healthy": diagnosis.is_healthy,
        "findings": [
            {
                "cause": one.cause.value,
                "title": tr(CAUSES[one.cause]),
                "explanation": explain_cause(one, tr),
                "loss_ms": 1e3 * one.loss_s,
                "loss_share": diagnosis.measure_share(one),
                "facts": dict(one.facts),
                "recommendations": [_describe_advice(advice, tr) for advice in one.advice],
            }
            for one in diagnosis.findings
        ],
        # A stage that takes no time has no limit, which JSON cannot express.
        "stages": [
            {**asdict(stage), "batches_per_s": 1 / stage.seconds if stage.seconds > 0 else None}
            for stage in evidence.stages
        ],
        "interval_ms": 1e3 * loop.interval_s,
        "batches_per_s": 1 / loop.interval_s,
        "data_ms": 1e3 * evidence.data_s,
        "step_ms": 1e3 * evidence.step_s,
        "is_step_emulated": evidence.is_step_emulated,
        "loading": diagnosis.loading,
        "au": diagnosis.au,
        "au_basis": diagnosis.au_basis,
        "padding": evidence.padding,
        "oscillation": {**asdict(oscillation), "is_stable": oscillation.is_stable},
        "timeline": {"text": draw_timeline(loop.intervals_s), "intervals_ms": (1e3 * loop.intervals_s).tolist()},
        "step_facts": _describe_step(evidence.step_facts),
        "python_functions": [asdict(function) for function in evidence.python_functions],
        "machine": asdict(evidence.machine),
        "machine_settings": [asdict(setting) for setting in diagnosis.machine_settings],
        "split": asdict(diagnosis.split) if diagnosis.split else None,
        "changes": diagnosis.list_changes(),
        "verified": {"factor": compared.factor, "low": compared.low, "high": compared.high} if compared else None,
    }


def _describe_step(facts: StepFacts | None) -> dict[str, Any] | None:
    """Returns what was seen of the step; its graph as numbers of operations by kind."""
    if facts is None:
        return None
    # `asdict` would count the items of a Counter instead of copying them.
    graph = {one.name: getattr(facts.loop.graph, one.name) for one in fields(StepGraph)}
    return {**asdict(facts), "loop": {**asdict(facts.loop), "graph": graph}}


def _describe_advice(advice: Advice, tr: Translator) -> dict[str, Any]:
    return {
        "setting": advice.setting,
        "value": advice.value,
        "reason": tr(REASONS[advice.reason]),
        "is_setting": advice.is_setting,
        "predicted_gain": asdict(advice.gain),
    }


_STYLES = {"good": "green", "moderate": "yellow", "slow": "red"}


def list_key_figures(diagnosis: Diagnosis, tr: Translator) -> list[tuple[Card, str]]:
    """Returns loading time, AU, variation and interval, each with its style on a terminal."""
    evidence, oscillation, rating = diagnosis.evidence, diagnosis.oscillation, diagnosis.loading
    stability = tr("stable, under 20 %" if oscillation.is_stable else "uneven, over 20 %")
    rate = tr("{value} batches per second", value=tr.number(1 / evidence.loop.interval_s))
    return [
        (Card(tr("Data loading"), tr.milliseconds(1e3 * evidence.data_s), tr(RATINGS[rating])), _STYLES[rating]),
        (
            Card(tr("Accelerator busy"), tr.share(diagnosis.au), tr(_AU_BASES[diagnosis.au_basis])),
            "green" if diagnosis.is_healthy else "yellow",
        ),
        (
            Card(tr("Step-time variation"), tr.share(oscillation.variation), stability),
            "green" if oscillation.is_stable else "yellow",
        ),
        (Card(tr("Step with all stages"), tr.milliseconds(1e3 * evidence.loop.interval_s), rate), ""),
    ]


def tell_subject(diagnosis: Diagnosis, tr: Translator) -> str:
    """Returns what was measured, and with what kind of step."""
    evidence = diagnosis.evidence
    if evidence.is_from_files:
        steps = tr.count(evidence.loop.num_steps)
        return tr("{steps} steps of the run, from its own files; nothing was measured again.", steps=steps)
    return tr(
        "{steps} steps were measured with all stages running, then each stage alone. {kind}",
        steps=tr.count(evidence.loop.num_steps),
        kind=tr("The step was emulated." if evidence.is_step_emulated else "The step was a real training step."),
    )


def list_stage_times(diagnosis: Diagnosis, tr: Translator) -> list[tuple[str, float]]:
    """Returns label and seconds per batch of every stage alone, of loading in total, and of the full loop."""
    evidence = diagnosis.evidence
    return [
        *((tr(STAGES[stage.name]), stage.seconds) for stage in evidence.stages),
        (tr("data loading in total"), evidence.data_s),
        (tr("all stages together"), evidence.loop.interval_s),
    ]


def explain_stage_times(diagnosis: Diagnosis, tr: Translator) -> str:
    """Returns why loading in total is faster than a stage alone; empty where it is not."""
    evidence = diagnosis.evidence
    slowest_s = max((stage.seconds for stage in evidence.stages if stage.name != "step"), default=0.0)
    if slowest_s <= evidence.data_s:
        return ""
    return tr(
        "Stages are measured one by one, from scratch. Loading in total is faster, because threads work in parallel "
        "and recordings that were loaded before are kept in memory."
    )


def tell_times(seconds: float, tr: Translator) -> tuple[str, str]:
    """Returns milliseconds per batch, and batches per second."""
    return tr.number(1e3 * seconds), tr.number(1 / seconds) if seconds > 0 else "–"


def tell_loss(finding: Finding, diagnosis: Diagnosis, tr: Translator) -> str:
    """Returns the cost of a cause; empty for a harmless finding."""
    if finding.cause.is_harmless:
        return ""
    share = diagnosis.measure_share(finding)
    return tr("{ms} ms per step ({share})", ms=tr.number(1e3 * finding.loss_s), share=tr.share(share))


def show_diagnosis(diagnosis: Diagnosis, console: Console, tr: Translator) -> None:
    """Prints summary, causes, recommendations, stages, timeline and machine settings, in this order."""
    _print_sentence(console, Text(tell_subject(diagnosis, tr)))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for card, style in list_key_figures(diagnosis, tr):
        table.add_row(Text(card.label), Text(card.value, "bold"), Text(card.remark, style))
    console.print(table)
    _show_causes(diagnosis, console, tr)
    _show_advice(diagnosis, console, tr)
    _show_stages(diagnosis, console, tr)
    console.print()
    console.print(Text(tr("Timeline"), "bold"))
    console.print(Text(draw_timeline(diagnosis.evidence.loop.intervals_s), "cyan"))
    console.print(Text(tell_oscillation(diagnosis, tr)))
    _show_machine(diagnosis, console, tr)


def _print_sentence(console: Console, text: Text) -> None:
    """Prints a sentence; in a pipe it is not wrapped."""
    console.print(text, soft_wrap=not console.is_terminal)


def _show_causes(diagnosis: Diagnosis, console: Console, tr: Translator) -> None:
    for number, one in enumerate(diagnosis.findings, start=1):
        style = "bold green" if one.cause.is_harmless else "bold red" if number == 1 else "bold yellow"
        console.print()
        console.print(Text(f"{tr.count(number)}. {tr(CAUSES[one.cause])}", style))
        _print_sentence(console, Text("   " + explain_cause(one, tr)))
        if loss := tell_loss(one, diagnosis, tr):
            console.print(Text("   " + loss, "dim"))


def _show_advice(diagnosis: Diagnosis, console: Console, tr: Translator) -> None:
    rows = [
        (Text(advice.setting, "cyan"), str(advice.value), tell_gain(advice, tr), tr(REASONS[advice.reason]))
        for one in diagnosis.findings
        for advice in one.advice
    ]
    if not rows:
        return
    console.print()
    console.print(
        make_terminal_table(tr("Recommended changes"), tr.row("Setting", "Value", "Expected gain", "Why"), rows)
    )
    if verified := tell_verified(diagnosis, tr):
        console.print(Text(f"{tr('Old and new settings measured alternately')}: {verified}", "bold"))


def _show_stages(diagnosis: Diagnosis, console: Console, tr: Translator) -> None:
    rows = [(label, *tell_times(seconds, tr)) for label, seconds in list_stage_times(diagnosis, tr)]
    heading = tr.row("Stage", "alone, ms", "capacity, batches/s")
    console.print()
    console.print(make_terminal_table(tr("Stages"), heading, rows, is_numeric=True))
    if note := explain_stage_times(diagnosis, tr):
        _print_sentence(console, Text(note))
    for function in diagnosis.evidence.python_functions:
        console.print(Text.assemble(f"{tr('Python in the graph')}: ", (str(function), "cyan")))


def _show_machine(diagnosis: Diagnosis, console: Console, tr: Translator) -> None:
    if diagnosis.machine_settings:
        console.print()
        console.print(Text(tr("Settings for this machine"), "bold"))
    for one in diagnosis.machine_settings:
        console.print(Text.assemble((f"  {one.setting}: {one.value}", "cyan"), f"  {explain_setting(one, tr)}"))
    if diagnosis.split is not None:
        _print_sentence(console, Text(tell_split(diagnosis, tr)))
