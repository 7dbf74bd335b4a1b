"""The page about a benchmark: who was how fast, step by step and against whom, and on which machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from myxtts.tools.bench.measure import BenchResult, Standing
from myxtts.tools.bench_words import choose_bench_words
from myxtts.tools.charts import Curve, draw_bars, draw_curves
from myxtts.tools.page import Card, Html, Page, make_grid, make_panel, make_paragraph, make_section, make_table
from myxtts.tools.report_words import Words

_NUM_TIMELINES = 6


def write_bench_report(result: BenchResult, about: Mapping[str, Any], path: Path, lang: str = "en") -> Path:
    """Writes the page; `about` says which machine and corpus it was, as `describe_bench` gives it."""
    return make_bench_page(result, about, choose_bench_words(lang)).write(path)


def make_bench_page(result: BenchResult, about: Mapping[str, Any], words: Words) -> Page:
    rules = result.rules
    return Page(
        title=words.say("title"),
        lead=words.say(
            "lead",
            step=name_step(result, words),
            rounds=words.count(rules.num_rounds),
            steps=words.count(rules.num_steps),
        ),
        cards=_make_cards(result, words),
        sections=[
            _show_contenders(result, words),
            _show_sweep(result, words),
            _show_comparisons(result, words),
            _show_timeline(result, words),
            _show_left_out(result, words),
            show_machine(about["machine"], words, about["corpus"]),
        ],
        footer=words.say("footer"),
        lang=words.lang,
    )


def name_step(result: BenchResult, words: Words) -> str:
    """How long a nominal step is, in words."""
    step, load_s = result.rules.step, result.rules.host_load_s
    key = "step_time_frames" if step.per_frame_s else "step_time"
    values = {"fixed": words.number(1000 * step.fixed_s)}
    if step.per_frame_s:
        values["frame"] = words.number(1e6 * step.per_frame_s)
    return words.say(key, **values) + (words.say("host_load", load=words.number(1000 * load_s)) if load_s else "")


def _make_cards(result: BenchResult, words: Words) -> list[Card]:
    best = result.find_best()
    figures = best.figures
    cards = [
        Card(words.say("best_contender"), words.name(best.name)),
        Card(words.say("rate"), words.number(figures.utterances_per_s), words.say("rate_remark")),
        Card(
            words.say("au_card"),
            words.share(figures.au),
            words.say("au_ceiling", value=words.share(figures.ceiling_au)),
        ),
    ]
    for one in result.compare()[-1:]:
        names = {"name": words.name(one.name), "other": words.name(one.other)}
        limits = {"lowest": words.number(one.lowest), "highest": words.number(one.highest)}
        cards.append(
            Card(
                words.say("ratio_card", **names),
                words.say("ratio", value=words.number(one.ratio)),
                words.say("ratio_range", **limits),
            )
        )
    return cards


def _show_contenders(result: BenchResult, words: Words) -> Html:
    def draw(attribute: str) -> Html:
        values = [(one.name, float(getattr(one.figures, attribute))) for one in result.standings]
        return draw_bars([(words.name(name), value, words.number(value)) for name, value in values])

    shares = [
        (
            words.name(one.name),
            one.figures.au,
            words.say("of_ceiling", au=words.share(one.figures.au), ceiling=words.share(one.figures.ceiling_au)),
        )
        for one in result.standings
    ]
    effective = [
        (words.name(one.name), one.figures.effective_au, words.share(one.figures.effective_au))
        for one in result.standings
    ]
    panels = [
        make_panel(words.say("rate_bars"), draw("utterances_per_s")),
        make_panel(words.say("au_bars"), draw_bars(shares, highest=1.0)),
        make_panel(words.say("cpu_bars"), draw("cpu_ms_per_utterance")),
        make_panel(words.say("effective_bars"), draw_bars(effective, highest=1.0)),
    ]
    keys = ("contender", "au", "ceiling", "effective", "rate", "cpu", "variation", "wait_ms", "padding", "memory")
    table = make_table([words.say(key) for key in keys], [_list_figures(one, words) for one in result.standings])
    return make_section(
        words.say("who"),
        make_grid(panels),
        make_panel(words.say("all_figures"), table, note=words.say("memory_note")),
        make_paragraph(words.say("on_the_fly_note")),
        make_paragraph(words.say("disturbed")) if result.is_disturbed else Html(""),
        lead=words.say("who_lead"),
    )


def _list_figures(one: Standing, words: Words) -> list[str]:
    figures = one.figures
    return [
        words.name(one.name),
        words.share(figures.au),
        words.share(figures.ceiling_au),
        words.share(figures.effective_au),
        words.number(figures.utterances_per_s),
        words.number(figures.cpu_ms_per_utterance),
        words.share(figures.step_variation),
        words.number(figures.mean_wait_ms),
        words.share(figures.padding),
        words.count(figures.peak_rss_mb),
    ]


def _show_sweep(result: BenchResult, words: Words) -> Html:
    """Curves over a number that was swept; a line for every combination of what else was."""
    swept = list(result.standings[0].settings)
    key = next((key for key in swept if _is_numeric(result.standings, key)), None)
    if key is None:
        return make_section(words.say("sweep"))
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

    busy = [*draw("au", words.say("au")), *draw("ceiling_au", words.say("ceiling"))]
    return make_section(
        words.say("sweep"),
        make_grid(
            [
                make_panel(
                    words.say("sweep_rate", setting=short),
                    draw_curves(draw("utterances_per_s", words.say("rate")), words.tick),
                ),
                make_panel(words.say("sweep_au", setting=short), draw_curves(busy, words.tick)),
            ]
        ),
    )


def _is_numeric(standings: Sequence[Standing], key: str) -> bool:
    values = {one.settings.get(key) for one in standings}
    return len(values) > 1 and all(isinstance(value, int | float) for value in values)


def _shorten(key: str) -> str:
    return key.rpartition(".")[2]


def _show_comparisons(result: BenchResult, words: Words) -> Html:
    rows = [
        [
            words.name(one.other),
            words.say("ratio", value=words.number(one.ratio)),
            f"{words.number(one.lowest)} – {words.number(one.highest)}",
            words.say("ratio", value=words.number(one.effective_au_ratio)),
        ]
        for one in result.compare()
    ]
    heading = [words.say(key) for key in ("contender", "median_ratio", "range", "effective")]
    name = words.name(result.standings[0].name)
    return make_section(
        words.say("comparisons"),
        make_panel(name, make_table(heading, rows)) if rows else Html(""),
        lead=words.say("comparisons_lead", name=name),
    )


def _show_timeline(result: BenchResult, words: Words) -> Html:
    curves = [
        Curve(words.name(one.name), list(range(len(one.intervals_ms))), one.intervals_ms, is_noisy=False)
        for one in result.standings[:_NUM_TIMELINES]
    ]
    # All in one picture: by itself a steady contender would be magnified until it looks restless.
    picture = make_panel(words.say("milliseconds"), draw_curves(curves, words.tick))
    return make_section(words.say("timeline"), picture, lead=words.say("timeline_lead"))


def _show_left_out(result: BenchResult, words: Words) -> Html:
    rows = [[words.name(one.name), words.say(one.reason, detail=one.detail)] for one in result.left_out]
    heading = [words.say("contender"), words.say("reason")]
    return make_section(words.say("left_out"), make_panel(words.say("left_out"), make_table(heading, rows)))


def show_machine(machine: Mapping[str, Any], words: Words, corpus: Mapping[str, Any] | None = None) -> Html:
    """Where and how it was measured, as `describe_environment` says it."""
    gpus = ", ".join(machine["gpus"]) or words.say("no_gpu")
    versions = ", ".join(f"{name} {text}" for name, text in machine["versions"].items() if text)
    about = ", ".join(f"{key}: {value}" for key, value in (corpus or {}).items())
    rows = [
        *([[words.say("corpus_heading"), about]] if about else []),
        [words.say("started"), machine["started"]],
        [words.say("command"), " ".join(machine["command"])],
        [words.say("machine"), f"{machine['system']}, {machine['num_cpus']} CPUs, {machine['ram_gb']} GB, {gpus}"],
        [words.say("versions"), f"Python {machine['python']}, {versions}"],
    ]
    table = make_table([], rows, code_columns=(1,))
    return make_section(words.say("environment"), make_panel(words.say("machine"), table))
