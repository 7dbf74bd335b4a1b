"""A diagnosis on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from myxtts.tools.diagnosis.oscillation import draw_timeline
from myxtts.tools.diagnosis.tell import explain, format_facts, tell_gain, tell_oscillation, tell_split, tell_verified
from myxtts.tools.report_words import Words
from myxtts.tools.rhythm import rate_loading

if TYPE_CHECKING:
    from myxtts.tools.diagnose import Diagnosis

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
