"""A diagnosis on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from myxtts.tools.diagnose.advice import Advice
from myxtts.tools.diagnose.causes import Finding
from myxtts.tools.report_words import Words
from myxtts.tools.rhythm import draw_timeline, rate_loading

if TYPE_CHECKING:
    from myxtts.tools.diagnose.examine import Diagnosis


# A diagnosis in sentences, the same for screen and page, and as data for programs.

_WHOLE = ("threads", "cores", "shapes", "steps", "batches", "ops")
_SHARES = ("padding", "overlap")


def explain(finding: Finding, words: Words) -> str:
    """What shows the cause, in one sentence with its numbers."""
    kind = finding.facts.get("kind", finding.cause.value)
    return words.say(f"why_{kind}", **format_facts(finding.facts, words))


def format_facts(facts: Mapping[str, float | str], words: Words) -> dict[str, str]:
    """Numbers as the language writes them: counts whole, shares in percent."""
    return {name: _format(name, value, words) for name, value in facts.items()}


def _format(name: str, value: float | str, words: Words) -> str:
    if isinstance(value, str):
        return words.say(f"name_{value}") if name == "stage" else value
    if name in _SHARES:
        return words.share(value)
    return words.count(value) if name in _WHOLE else words.number(value)


def tell_gain(advice: Advice, words: Words) -> str:
    """The factor, and in brackets between which it lies."""
    gain = advice.gain
    interval = words.say("between", low=words.number(gain.low), high=words.number(gain.high))
    return f"{words.say('times_faster', value=words.number(gain.factor))} ({interval})"


def tell_oscillation(diagnosis: Diagnosis, words: Words) -> str:
    oscillation = diagnosis.oscillation
    if oscillation.period_steps is None or oscillation.period_s is None:
        return words.say("no_period")
    return words.say(
        "period",
        steps=words.count(oscillation.period_steps),
        seconds=words.number(oscillation.period_s),
        correlation=words.number(oscillation.correlation),
    )


def tell_verified(diagnosis: Diagnosis, words: Words) -> str:
    compared = diagnosis.verified
    if compared is None:
        return ""
    return words.say(
        "predicted_measured",
        predicted=words.say("times_faster", value=words.number(diagnosis.first.gain)),
        measured=words.say("times_faster", value=words.number(compared.factor)),
        low=words.number(compared.low),
        high=words.number(compared.high),
    )


def tell_split(diagnosis: Diagnosis, words: Words) -> str:
    """Whether data-parallel training beats a data GPU, with the measured numbers."""
    split = diagnosis.split
    if split is None:
        return ""
    features = diagnosis.evidence.find_stage("features")
    numbers = words.say(
        "split_numbers",
        features_ms=words.number(1e3 * features.seconds if features else 0.0),
        step_ms=words.number(1e3 * diagnosis.evidence.step_s),
        split=words.number(split.split_rate),
        parallel=words.number(split.parallel_rate),
    )
    return f"{numbers} {words.say(f'split_{split.winner}', gain=words.share(split.gain_percent / 100))}"


def to_json(diagnosis: Diagnosis, words: Words) -> dict[str, Any]:
    """Everything, for programs: numbers as numbers, sentences in the language of `words`."""
    evidence, loop, oscillation = diagnosis.evidence, diagnosis.evidence.loop, diagnosis.oscillation
    compared = diagnosis.verified
    return {
        "cause": diagnosis.first.cause.value,
        "is_healthy": diagnosis.is_healthy,
        "findings": [
            {
                "cause": one.cause.value,
                "title": words.say(one.cause.value),
                "explanation": explain(one.finding, words),
                "loss_ms": 1e3 * one.finding.loss_s,
                "loss_share": one.finding.loss_s / loop.interval_s,
                "facts": one.finding.facts,
                "recommendations": [_describe_advice(advice, words) for advice in one.advice],
            }
            for one in diagnosis.findings
        ],
        "stages": [{**asdict(stage), "batches_per_s": _finite(stage.batches_per_s)} for stage in evidence.stages],
        "interval_ms": 1e3 * loop.interval_s,
        "batches_per_s": 1 / loop.interval_s,
        "data_ms": 1e3 * evidence.data_s,
        "step_ms": 1e3 * evidence.step_s,
        "is_step_emulated": evidence.is_step_emulated,
        "loading": rate_loading(evidence.data_s),
        "au": diagnosis.au,
        "padding": evidence.padding,
        "oscillation": {**asdict(oscillation), "is_stable": oscillation.is_stable},
        "timeline": {"text": draw_timeline(loop.intervals_s), "intervals_ms": (1e3 * loop.intervals_s).tolist()},
        "python_functions": [asdict(function) for function in evidence.python_functions],
        "machine": asdict(evidence.machine),
        "machine_settings": [asdict(setting) for setting in diagnosis.machine_settings],
        "split": asdict(diagnosis.split) if diagnosis.split else None,
        "changes": diagnosis.list_changes(),
        "verified": {"factor": compared.factor, "low": compared.low, "high": compared.high} if compared else None,
    }


def _describe_advice(advice: Advice, words: Words) -> dict[str, Any]:
    return {
        "setting": advice.setting,
        "value": advice.value,
        "reason": words.say(advice.reason),
        "is_setting": advice.is_setting,
        "predicted_gain": asdict(advice.gain),
    }


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None


_RATING_STYLE = {"good": "green", "moderate": "yellow", "slow": "red"}


def show_diagnosis(diagnosis: Diagnosis, console: Console, words: Words) -> None:
    """The causes first, then what to change, then what was measured."""
    _show_summary(diagnosis, console, words)
    _show_causes(diagnosis, console, words)
    _show_advice(diagnosis, console, words)
    _show_stages(diagnosis, console, words)
    _show_timeline(diagnosis, console, words)
    _show_machine(diagnosis, console, words)


def _show_summary(diagnosis: Diagnosis, console: Console, words: Words) -> None:
    evidence, oscillation = diagnosis.evidence, diagnosis.oscillation
    rating = rate_loading(evidence.data_s)
    rhythm = "stable" if oscillation.is_stable else "unstable"
    rows = [
        (words.say("loading"), _say_ms(evidence.data_s, words), words.say(rating), _RATING_STYLE[rating]),
        (
            words.say("variation"),
            words.share(oscillation.variation),
            words.say(rhythm),
            "green" if oscillation.is_stable else "yellow",
        ),
        (
            words.say("busy"),
            words.share(diagnosis.au),
            words.say("step_emulated" if evidence.is_step_emulated else "step_real"),
            "green" if diagnosis.is_healthy else "yellow",
        ),
        (
            words.say("whole_interval"),
            _say_ms(evidence.loop.interval_s, words),
            words.say("batches_per_s", value=words.number(1 / evidence.loop.interval_s)),
            "",
        ),
    ]
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for label, value, remark, style in rows:
        table.add_row(Text(label), Text(value, "bold"), Text(remark, style))
    console.print(table)


def _show_causes(diagnosis: Diagnosis, console: Console, words: Words) -> None:
    for number, one in enumerate(diagnosis.findings, start=1):
        style = "bold green" if one.cause.is_harmless else "bold red" if number == 1 else "bold yellow"
        console.print()
        console.print(Text.assemble((f"{words.count(number)}. {words.say(one.cause.value)}", style)))
        console.print(Text("   " + explain(one.finding, words)), soft_wrap=not console.is_terminal)
        if not one.cause.is_harmless:
            share = one.finding.loss_s / diagnosis.evidence.loop.interval_s
            lost = words.say("lost", ms=words.number(1e3 * one.finding.loss_s), share=words.share(share))
            console.print(Text("   " + lost, "dim"))


def _show_advice(diagnosis: Diagnosis, console: Console, words: Words) -> None:
    rows = [(one, advice) for one in diagnosis.findings for advice in one.advice]
    if not rows:
        return
    table = Table(title=words.say("recommendations"), title_justify="left", title_style="bold")
    for name in ("setting", "value", "gain", "reason"):
        table.add_column(words.say(name))
    for _, advice in rows:
        table.add_row(
            Text(advice.setting, "cyan"),
            Text(str(advice.value)),
            Text(tell_gain(advice, words)),
            Text(words.say(advice.reason)),
        )
    console.print()
    console.print(table)
    if diagnosis.verified is not None:
        console.print(Text(f"{words.say('verified')}: {tell_verified(diagnosis, words)}", "bold"))


def _show_stages(diagnosis: Diagnosis, console: Console, words: Words) -> None:
    evidence = diagnosis.evidence
    table = Table(title=words.say("stages"), title_justify="left", title_style="bold")
    table.add_column(words.say("stage"))
    table.add_column(words.say("alone"), justify="right")
    table.add_column(words.say("capacity"), justify="right")
    for stage in evidence.stages:
        table.add_row(Text(words.say(f"name_{stage.name}")), *_say_times(stage.seconds, words))
    table.add_section()
    table.add_row(Text(words.say("all_data")), *_say_times(evidence.data_s, words))
    table.add_row(Text(words.say("together"), "bold"), *_say_times(evidence.loop.interval_s, words))
    console.print()
    console.print(table)
    for function in evidence.python_functions:
        console.print(Text.assemble(f"{words.say('python_heading')}: ", (str(function), "cyan")))


def _show_timeline(diagnosis: Diagnosis, console: Console, words: Words) -> None:
    console.print()
    console.print(Text(words.say("timeline"), "bold"))
    console.print(Text(draw_timeline(diagnosis.evidence.loop.intervals_s), "cyan"))
    console.print(Text(tell_oscillation(diagnosis, words)))


def _show_machine(diagnosis: Diagnosis, console: Console, words: Words) -> None:
    if diagnosis.machine_settings:
        console.print()
        console.print(Text(words.say("machine_heading"), "bold"))
    for one in diagnosis.machine_settings:
        reason = words.say(one.reason, **format_facts(one.facts, words))
        console.print(Text.assemble((f"  {one.setting}: {one.value}", "cyan"), f"  {reason}"))
    if diagnosis.split is not None:
        console.print(Text(tell_split(diagnosis, words)), soft_wrap=not console.is_terminal)


def _say_ms(seconds: float, words: Words) -> str:
    return words.say("ms", value=words.number(1e3 * seconds))


def _say_times(seconds: float, words: Words) -> tuple[str, str]:
    capacity = words.number(1 / seconds) if seconds > 0 else "–"
    return words.number(1e3 * seconds), capacity
