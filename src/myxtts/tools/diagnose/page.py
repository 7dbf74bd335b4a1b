"""HTML report of a pipeline diagnosis: causes, recommended changes, stages, timeline and settings for the machine.

Sentences and labels come from `terminal`; charts are inline SVG from `tools.charts`. One function per section.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from myxtts.tools import page
from myxtts.tools.charts import draw_bars, draw_shares, draw_timeline
from myxtts.tools.diagnose import terminal
from myxtts.tools.line_charts import Curve, draw_curves
from myxtts.tools.words import Translator, mark

if TYPE_CHECKING:
    from myxtts.tools.diagnose.examine import Diagnosis


_BASES = mark({"tried": "a trial", "modelled": "measured times", "estimated": "an estimate"})
"""Words for `Gain.basis`."""


def make_diagnosis_page(diagnosis: Diagnosis, tr: Translator) -> page.Page:
    """Builds the page in the language of `tr`; sections without content are left out."""
    cards = [card for card, _ in terminal.list_key_figures(diagnosis, tr)]
    gain = tr("{value}×", value=tr.number(diagnosis.first.gain))
    no_gain = page.Card(tr("Possible gain"), "–", tr("none in the pipeline"))
    return page.Page(
        title=tr("Diagnosis of the data pipeline"),
        lead=terminal.tell_subject(diagnosis, tr),
        cards=[*cards, page.Card(tr("Possible gain"), gain) if diagnosis.first.advice else no_gain],
        sections=[
            _show_causes(diagnosis, tr),
            _show_advice(diagnosis, tr),
            _show_stages(diagnosis, tr),
            _show_timeline(diagnosis, tr),
            _show_python(diagnosis, tr),
            _show_machine(diagnosis, tr),
        ],
        footer=tr("Made by myxtts diagnose."),
        lang=tr.lang,
    )


def _show_causes(diagnosis: Diagnosis, tr: Translator) -> page.Html:
    panels = [
        page.make_panel(
            f"{tr.count(number)}. {tr(terminal.CAUSES[one.cause])}",
            page.make_paragraph(terminal.explain_cause(one, tr), "quote"),
            note=terminal.tell_loss(one, diagnosis, tr),
        )
        for number, one in enumerate(diagnosis.findings, start=1)
    ]
    return page.make_section(
        tr("Causes of lost time"),
        *panels,
        lead=tr("The most costly first; causes without a noticeable cost are not listed."),
    )


def _show_advice(diagnosis: Diagnosis, tr: Translator) -> page.Html:
    """Recommendations of all findings, then the result of `--verify` if there is one."""
    panels = [
        page.make_panel(
            f"{advice.setting}: {advice.value}",
            page.make_paragraph(tr(terminal.REASONS[advice.reason]), "quote"),
            note=f"{terminal.tell_gain(advice, tr)} · {tr('based on')} {tr(_BASES[advice.gain.basis])}",
        )
        for one in diagnosis.findings
        for advice in one.advice
    ]
    verified = terminal.tell_verified(diagnosis, tr)
    if verified:
        panels.append(
            page.make_panel(tr("Old and new settings measured alternately"), page.make_paragraph(verified, "quote"))
        )
    return page.make_section(tr("Recommended changes"), page.make_grid(*panels))


def _show_stages(diagnosis: Diagnosis, tr: Translator) -> page.Html:
    times = terminal.list_stage_times(diagnosis, tr)
    rows = [(label, *terminal.tell_times(seconds, tr)) for label, seconds in times]
    bars = [(label, 1e3 * seconds, tr.number(1e3 * seconds)) for label, seconds in times]
    table = page.make_table(tr.row("Stage", "alone, ms", "capacity, batches/s"), rows)
    lead = tr("Time that each stage adds to a batch when measured alone, and the batches per second that it allows.")
    return page.make_section(
        tr("Stages"),
        page.make_grid(
            page.make_panel(tr("alone, ms"), draw_bars(bars)),
            page.make_panel(tr("Milliseconds and percentages"), table),
        ),
        lead=f"{lead} {terminal.explain_stage_times(diagnosis, tr)}".strip(),
    )


def _show_timeline(diagnosis: Diagnosis, tr: Translator) -> page.Html:
    """Interval and wait of every step of the full loop, and the shares of waiting, transfer and computing."""
    loop = diagnosis.evidence.loop
    places = list(range(1, loop.num_steps + 1))
    curves = [
        Curve(tr("step"), places, (1e3 * loop.intervals_s).tolist(), is_noisy=False),
        Curve(tr("wait for data"), places, (1e3 * loop.waits_s).tolist(), is_noisy=False),
    ]
    shares = [
        (tr("waiting for data"), float(loop.waits_s.sum())),
        (tr("transfer"), float(loop.transfers_s.sum())),
        (tr("computing"), float(loop.steps_s.sum())),
    ]
    return page.make_section(
        tr("Timeline"),
        page.make_grid(
            page.make_panel(tr("Milliseconds per step"), draw_curves(curves, tr, unit=tr("milliseconds"))),
            page.make_stack(
                page.make_panel(
                    tr("Step times"),
                    page.make_code(draw_timeline(loop.intervals_s)),
                    note=terminal.tell_oscillation(diagnosis, tr),
                ),
                page.make_panel(tr("Total time"), draw_shares(shares, tr.share)),
            ),
        ),
    )


def _show_python(diagnosis: Diagnosis, tr: Translator) -> page.Html:
    """Python functions that the dataset calls from its graph, with file and line."""
    heading = tr.row("Function", "Location", "Operation")
    rows = [
        [function.name, f"{function.file}:{function.line}" if function.file else "–", function.operation]
        for function in diagnosis.evidence.python_functions
    ]
    table = page.make_table(heading, rows, code_columns=(0, 1, 2))
    return page.make_section(
        tr("Python in the graph"), page.make_panel(tr("Python in the graph"), table) if rows else page.NOTHING
    )


def _show_machine(diagnosis: Diagnosis, tr: Translator) -> page.Html:
    """Settings for the hardware, and the comparison of a data GPU with data-parallel training."""
    rows = [[one.setting, str(one.value), terminal.explain_setting(one, tr)] for one in diagnosis.machine_settings]
    heading = tr.row("Setting", "Value", "Why")
    table = page.make_table(heading, rows, code_columns=(0, 1))
    split = terminal.tell_split(diagnosis, tr)
    return page.make_section(
        tr("Settings for this machine"),
        page.make_panel(tr("Settings for this machine"), table) if rows else page.NOTHING,
        page.make_panel(tr("Data GPU or data-parallel"), page.make_paragraph(split, "quote"))
        if split
        else page.NOTHING,
    )
