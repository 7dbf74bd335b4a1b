"""A diagnosis as a page of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from myxtts.tools.charts import Curve, draw_bars, draw_curves, draw_shares
from myxtts.tools.diagnose.terminal import explain, format_facts, tell_gain, tell_oscillation, tell_split, tell_verified
from myxtts.tools.page import (
    NOTHING,
    Card,
    Html,
    Page,
    make_code,
    make_grid,
    make_panel,
    make_paragraph,
    make_section,
    make_stack,
    make_table,
)
from myxtts.tools.report_words import Words
from myxtts.tools.rhythm import draw_timeline, rate_loading

if TYPE_CHECKING:
    from myxtts.tools.diagnose.examine import Diagnosis


def make_diagnosis_page(diagnosis: Diagnosis, words: Words) -> Page:
    evidence = diagnosis.evidence
    kind = words.say("step_emulated" if evidence.is_step_emulated else "step_real")
    return Page(
        title=words.say("diagnosis_title"),
        lead=words.say("diagnosis_lead", steps=words.count(evidence.loop.num_steps), kind=kind),
        cards=_make_cards(diagnosis, words),
        sections=[
            _show_causes(diagnosis, words),
            _show_advice(diagnosis, words),
            _show_stages(diagnosis, words),
            _show_timeline(diagnosis, words),
            _show_python(diagnosis, words),
            _show_machine(diagnosis, words),
        ],
        footer=words.say("diagnosis_footer"),
        lang=words.lang,
    )


def _make_cards(diagnosis: Diagnosis, words: Words) -> list[Card]:
    evidence, oscillation = diagnosis.evidence, diagnosis.oscillation
    advice = diagnosis.first.advice[:1]
    gain = (
        Card(words.say("to_gain"), words.say("times_faster", value=words.number(advice[0].gain.factor)))
        if advice
        else Card(words.say("to_gain"), "–", words.say("nothing_to_gain"))
    )
    return [
        Card(words.say("loading"), _say_ms(evidence.data_s, words), words.say(rate_loading(evidence.data_s))),
        Card(words.say("busy"), words.share(diagnosis.au), words.say("busy_remark")),
        Card(
            words.say("variation"),
            words.share(oscillation.variation),
            words.say("stable" if oscillation.is_stable else "unstable"),
        ),
        Card(
            words.say("whole_interval"),
            _say_ms(evidence.loop.interval_s, words),
            words.say("batches_per_s", value=words.number(1 / evidence.loop.interval_s)),
        ),
        gain,
    ]


def _show_causes(diagnosis: Diagnosis, words: Words) -> Html:
    panels = []
    for number, one in enumerate(diagnosis.findings, start=1):
        share = one.finding.loss_s / diagnosis.evidence.loop.interval_s
        lost = words.say("lost", ms=words.number(1e3 * one.finding.loss_s), share=words.share(share))
        panels.append(
            make_panel(
                f"{words.count(number)}. {words.say(one.cause.value)}",
                make_paragraph(explain(one.finding, words), "quote"),
                note="" if one.cause.is_harmless else lost,
            )
        )
    return make_section(words.say("causes"), *panels, lead=words.say("causes_lead"))


def _show_advice(diagnosis: Diagnosis, words: Words) -> Html:
    panels = [
        make_panel(
            f"{advice.setting}: {advice.value}",
            make_paragraph(words.say(advice.reason), "quote"),
            note=f"{tell_gain(advice, words)} · {words.say('basis')} {words.say(advice.gain.basis)}",
        )
        for one in diagnosis.findings
        for advice in one.advice
    ]
    verified = tell_verified(diagnosis, words)
    if verified:
        panels.append(make_panel(words.say("verified"), make_paragraph(verified, "quote")))
    return make_section(words.say("recommendations"), make_grid(panels))


def _show_stages(diagnosis: Diagnosis, words: Words) -> Html:
    evidence, loop = diagnosis.evidence, diagnosis.evidence.loop
    times = [(words.say(f"name_{stage.name}"), stage.seconds) for stage in evidence.stages]
    times += [(words.say("all_data"), evidence.data_s), (words.say("together"), loop.interval_s)]
    rows = [[label, words.number(1e3 * s), words.number(1 / s) if s > 0 else "–"] for label, s in times]
    bars = [(label, 1e3 * seconds, words.number(1e3 * seconds)) for label, seconds in times]
    table = make_table([words.say("stage"), words.say("alone"), words.say("capacity")], rows)
    return make_section(
        words.say("stages"),
        make_grid(
            [
                make_panel(words.say("alone"), draw_bars(bars)),
                make_panel(words.say("in_numbers"), table),
            ]
        ),
        lead=words.say("stages_lead"),
    )


def _show_timeline(diagnosis: Diagnosis, words: Words) -> Html:
    loop = diagnosis.evidence.loop
    places = list(range(1, loop.num_steps + 1))
    curves = [
        Curve(words.say("whole_step"), places, (1e3 * loop.intervals_s).tolist(), is_noisy=False),
        Curve(words.say("wait"), places, (1e3 * loop.waits_s).tolist(), is_noisy=False),
    ]
    shares = [
        (words.say("waiting"), float(loop.waits_s.sum())),
        (words.say("name_transfer"), float(loop.transfers_s.sum())),
        (words.say("computing"), float(loop.steps_s.sum())),
    ]
    return make_section(
        words.say("timeline"),
        make_grid(
            [
                make_panel(words.say("step_axis"), draw_curves(curves, words.tick)),
                make_stack(
                    make_panel(
                        words.say("rhythm"),
                        make_code(draw_timeline(loop.intervals_s)),
                        note=tell_oscillation(diagnosis, words),
                    ),
                    make_panel(words.say("all_time"), draw_shares(shares, words.share)),
                ),
            ]
        ),
    )


def _show_python(diagnosis: Diagnosis, words: Words) -> Html:
    heading = [words.say("function"), words.say("place"), words.say("operation")]
    rows = [
        [function.name, f"{function.file}:{function.line}" if function.file else "–", function.operation]
        for function in diagnosis.evidence.python_functions
    ]
    table = make_table(heading, rows, code_columns=(0, 1, 2))
    return make_section(
        words.say("python_heading"), make_panel(words.say("python_heading"), table) if rows else NOTHING
    )


def _show_machine(diagnosis: Diagnosis, words: Words) -> Html:
    rows = [
        [
            one.setting,
            str(one.value),
            words.say(one.reason, **format_facts(one.facts, words)),
        ]
        for one in diagnosis.machine_settings
    ]
    heading = [words.say("setting"), words.say("value"), words.say("reason")]
    table = make_table(heading, rows, code_columns=(0, 1))
    split = tell_split(diagnosis, words)
    return make_section(
        words.say("machine_heading"),
        make_panel(words.say("machine_heading"), table) if rows else NOTHING,
        make_panel(words.say("split_heading"), make_paragraph(split, "quote")) if split else NOTHING,
    )


def _say_ms(seconds: float, words: Words) -> str:
    return words.say("ms", value=words.number(1e3 * seconds))
