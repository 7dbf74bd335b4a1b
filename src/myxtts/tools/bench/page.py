"""HTML report of the input pipeline benchmark: AU, throughput and CPU time by candidate, sweeps and step times.

Only layout: the numbers are those of `bench.measure`. `myxtts bench` uses the labels here on the terminal too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from myxtts.tools import page
from myxtts.tools.bench.measure import BenchResult, Figures, Standing
from myxtts.tools.charts import draw_bars
from myxtts.tools.line_charts import Curve, draw_curves
from myxtts.tools.words import Translator, mark

_NUM_TIMELINES = 6
"""Candidates in the chart of step times: one for each colour of `tools.charts`."""
CANDIDATES = mark(
    {
        "cached": "MyXTTS, cached features",
        "native": "MyXTTS on the fly, in the graph",
        "python": "MyXTTS on the fly, in Python",
        "settings": "These settings",
        "against": "The other settings",
    }
)
_FIGURES = mark(
    {
        "au": "AU (emulated)",
        "ceiling_au": "Upper bound",
        "effective_au": "Effective AU (emulated)",
        "utterances_per_s": "Utterances per second",
        "cpu_ms_per_utterance": "CPU ms each",
        "step_variation": "Step-time variation",
        "mean_wait_ms": "Wait ms",
        "padding": "padding",
        "peak_rss_mb": "Memory MB",
    }
)
# Figures that are written as per cent.
_SHARES = ("au", "ceiling_au", "effective_au", "step_variation", "padding")
# Shown where `BenchResult.is_disturbed`.
DISTURBED = mark(
    "A candidate is above its upper bound: other work disturbed this machine. Measure again when it is idle."
)
# By the `reason` of a `LeftOut`.
REASONS = mark(
    {
        "no_store": "There are no features in {detail}. Make them with myxtts precompute.",
        "no_corpus": "The prepared corpus was not found.",
        "no_wav": "No recording is a 16-bit WAV file.",
    }
)


def make_bench_page(result: BenchResult, about: Mapping[str, Any], tr: Translator) -> page.Page:
    """Builds the page. `about` has the facts of the `corpus` and of the `machine` (`describe_environment`)."""
    rules = result.rules
    return page.Page(
        title=tr("Benchmark of the data pipeline"),
        lead=tr(
            "An emulated accelerator: each step lasts {step}. {rounds} rounds of {steps} steps for "
            "each candidate, in alternating order; figures are medians over the rounds.",
            step=name_step(result, tr),
            rounds=tr.count(rules.num_rounds),
            steps=tr.count(rules.num_steps),
        ),
        cards=_make_cards(result, tr),
        sections=[
            _show_candidates(result, tr),
            _show_sweep(result, tr),
            _show_comparisons(result, tr),
            _show_timeline(result, tr),
            _show_left_out(result, tr),
            page.make_machine_section(
                about["machine"], tr, ", ".join(f"{key}: {value}" for key, value in about["corpus"].items())
            ),
        ],
        footer=tr("Made by MyXTTS. All figures of the accelerator are emulated."),
        lang=tr.lang,
    )


def name_candidate(name: str, tr: Translator) -> str:
    """Returns the label of a candidate; one of a sweep is named by its settings already."""
    return tr(CANDIDATES.get(name, name))


def name_step(result: BenchResult, tr: Translator) -> str:
    """Describes the emulated step: fixed time, time per frame and host load."""
    step, load_s = result.rules.step, result.rules.host_load_s
    text = tr.milliseconds(1000 * step.fixed_s)
    if step.per_frame_s:
        fixed, frame = tr.number(1000 * step.fixed_s), tr.number(1e6 * step.per_frame_s)
        text = tr("{fixed} ms and {frame} µs for each frame", fixed=fixed, frame=frame)
    return text + (tr("; the host is busy for {load} ms of it", load=tr.number(1000 * load_s)) if load_s else "")


def _make_cards(result: BenchResult, tr: Translator) -> list[page.Card]:
    """The fastest candidate with its throughput and AU, and the first candidate compared with the last."""
    best = result.find_best()
    figures = best.figures
    cards = [
        page.Card(tr("Fastest"), name_candidate(best.name, tr)),
        page.Card(tr("Utterances per second"), tr.number(figures.utterances_per_s), tr("of the fastest")),
        page.Card(
            tr("AU (emulated)"), tr.share(figures.au), tr("upper bound {value}", value=tr.share(figures.ceiling_au))
        ),
    ]
    for one in result.compare()[-1:]:
        names = {"name": name_candidate(one.name, tr), "other": name_candidate(one.other, tr)}
        limits = {"lowest": tr.number(one.lowest), "highest": tr.number(one.highest)}
        cards.append(
            page.Card(
                tr("{name} compared with {other}", **names),
                tr("{value} times", value=tr.number(one.ratio)),
                tr("{lowest} to {highest} by round", **limits),
            )
        )
    return cards


def _show_candidates(result: BenchResult, tr: Translator) -> page.Html:
    """Bars of throughput, AU, CPU time and effective AU by candidate, and a table of all figures."""

    def draw(name: str, highest: float | None = None) -> page.Html:
        bars = []
        for one in result.standings:
            words = format_figure(one.figures, name, tr)
            if name == "au":
                words = tr("{au} of {ceiling}", au=words, ceiling=tr.share(one.figures.ceiling_au))
            bars.append((name_candidate(one.name, tr), float(getattr(one.figures, name)), words))
        return draw_bars(bars, highest)

    return page.make_section(
        tr("Candidates"),
        page.make_grid(
            page.make_panel(tr("Utterances per second"), draw("utterances_per_s")),
            page.make_panel(tr("AU and its upper bound (emulated)"), draw("au", highest=1.0)),
            page.make_panel(tr("CPU time of an utterance in milliseconds"), draw("cpu_ms_per_utterance")),
            page.make_panel(tr("Effective AU (emulated)"), draw("effective_au", highest=1.0)),
        ),
        page.make_panel(
            tr("All figures"),
            _make_figure_table(result, tr),
            note=tr("Memory is the peak of the whole process while the candidate ran."),
        ),
        page.make_paragraph(tr("On the fly, nothing is kept in memory between epochs.")),
        page.make_paragraph(tr(DISTURBED) if result.is_disturbed else ""),
        lead=tr(
            "AU (accelerator utilisation) is the nominal step time divided by the measured time, "
            "without the first step. Its upper bound is the same loop over batches that are already "
            "in memory. Effective AU counts padding as waste."
        ),
    )


def _make_figure_table(result: BenchResult, tr: Translator) -> page.Html:
    rows = [
        [name_candidate(one.name, tr), *(format_figure(one.figures, name, tr) for name in _FIGURES)]
        for one in result.standings
    ]
    return page.make_table([tr("Candidate"), *tr.row(*_FIGURES.values())], rows)


def format_figure(figures: Figures, name: str, tr: Translator) -> str:
    value = getattr(figures, name)
    if name in _SHARES:
        return tr.share(value)
    return tr.count(value) if name == "peak_rss_mb" else tr.number(value)


def _show_sweep(result: BenchResult, tr: Translator) -> page.Html:
    """Draws throughput and AU over the first numeric setting that was swept.

    Every combination of the other swept settings is a curve; without a numeric setting the section is empty.
    """
    swept = list(result.standings[0].settings)
    key = next((key for key in swept if _is_numeric(result.standings, key)), None)
    if key is None:
        return page.make_section(tr("Effect of a setting"))
    groups: dict[str, list[Standing]] = {}
    for one in result.standings:
        others = ", ".join(f"{_shorten(name)}={value}" for name, value in one.settings.items() if name != key)
        groups.setdefault(others, []).append(one)
    short = _shorten(key)

    def draw(attribute: str, label: str) -> list[Curve]:
        curves = []
        for others, members in groups.items():
            ordered = sorted(members, key=lambda one: float(one.settings[key]))
            places = [float(one.settings[key]) for one in ordered]
            values = [float(getattr(one.figures, attribute)) for one in ordered]
            curves.append(Curve(", ".join(filter(None, (label, others))), places, values, is_noisy=False))
        return curves

    busy = [*draw("au", tr("AU (emulated)")), *draw("ceiling_au", tr("Upper bound"))]
    return page.make_section(
        tr("Effect of a setting"),
        page.make_grid(
            page.make_panel(
                tr("Utterances per second by {setting}", setting=short),
                draw_curves(draw("utterances_per_s", tr("Utterances per second")), tr, x=short),
            ),
            page.make_panel(
                tr("AU and its upper bound by {setting} (emulated)", setting=short), draw_curves(busy, tr, x=short)
            ),
        ),
    )


def _is_numeric(standings: Sequence[Standing], key: str) -> bool:
    """Whether a swept setting has several values, all of them numbers, so that it can be an axis."""
    values = {one.settings.get(key) for one in standings}
    return len(values) > 1 and all(isinstance(value, int | float) for value in values)


def _shorten(key: str) -> str:
    return key.rpartition(".")[2]


def _show_comparisons(result: BenchResult, tr: Translator) -> page.Html:
    """Ratios of the first candidate to each other one: median and range over the rounds."""
    rows = [
        [
            name_candidate(one.other, tr),
            tr("{value} times", value=tr.number(one.ratio)),
            f"{tr.number(one.lowest)} – {tr.number(one.highest)}",
            tr("{value} times", value=tr.number(one.effective_au_ratio)),
        ]
        for one in result.compare()
    ]
    heading = tr.row("Candidate", "Utterances per second", "Range", "Effective AU (emulated)")
    name = name_candidate(result.standings[0].name, tr)
    return page.make_section(
        tr("Comparison"),
        page.make_panel(name, page.make_table(heading, rows)),
        lead=tr("Figures of {name} divided by those of each other candidate in the same round.", name=name),
    )


def _show_timeline(result: BenchResult, tr: Translator) -> page.Html:
    """Step times of the last round, step by step: bursts of the loader show as spikes."""
    curves = [
        Curve(name_candidate(one.name, tr), list(range(len(one.intervals_ms))), one.intervals_ms, is_noisy=False)
        for one in result.standings[:_NUM_TIMELINES]
    ]
    # All in one chart: on an axis of its own, a steady candidate would show magnified noise.
    return page.make_section(
        tr("Step time in the last round"),
        page.make_panel(tr("Milliseconds"), draw_curves(curves, tr, unit=tr("milliseconds"))),
        lead=tr(
            "Milliseconds from the end of one emulated step to the end of the next. A flat line is a busy accelerator."
        ),
    )


def _show_left_out(result: BenchResult, tr: Translator) -> page.Html:
    """Candidates that could not run on this corpus, and why; empty if all could."""
    rows = [[name_candidate(one.name, tr), tr(REASONS[one.reason], detail=one.detail)] for one in result.left_out]
    heading = tr.row("Candidate", "Reason")
    return page.make_section(tr("Left out"), page.make_panel(tr("Left out"), page.make_table(heading, rows)))
