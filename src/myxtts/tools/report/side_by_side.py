"""One page for several runs: their verdicts, a table of their figures, curves in one picture, newest samples, settings.

Runs are called by their names; where two have the same name, all are called by their folders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from myxtts.config.values import format_scalar
from myxtts.errors import UsageError
from myxtts.tools.page import Html, Page, make_grid, make_panel, make_paragraph, make_section, make_table
from myxtts.tools.report import curves
from myxtts.tools.report.sounds import show_sounds_side_by_side
from myxtts.tools.report.verdict import Progress, judge
from myxtts.tools.run_files import RunFiles, count_steps, list_series, measure_time
from myxtts.tools.words import Translator
from myxtts.training.run.folder import hide_private
from myxtts.training.terms import Measures

MAX_RUNS = 12
"""Colours of the style sheet: with more runs a picture could not be read."""


def make_comparison_page(runs: Sequence[RunFiles], tr: Translator) -> Page:
    """Builds the page of several runs of the same part; raises UsageError for voices beside vocoders."""
    measures = _check(runs)
    named = name_runs(runs)
    num_gpus = max(run.num_gpus for run in runs)

    def draw(heading: str, charts: Sequence[curves.RunChart]) -> Html:
        return make_section(heading, make_grid(*curves.draw_side_by_side(named, charts, tr)))

    verdicts = [make_panel(name, make_paragraph(judge(Progress.of_run(run), tr))) for name, run in named.items()]
    return Page(
        title=tr("Training report: {name}", name=tr.join(named)),
        lead=tr("{count} runs compared. A self-contained page, made from their files.", count=tr.count(len(runs))),
        cards=[],
        sections=[
            make_section(tr("Verdicts"), *verdicts),
            make_section(tr("Figures"), make_panel(tr("Runs"), _compare_figures(named, tr))),
            draw(tr("Validation"), curves.list_validation_charts(measures)),
            draw(tr("Learning curves"), curves.list_learning_charts(measures)),
            show_sounds_side_by_side(named, measures, tr),
            draw(tr("Speed"), curves.list_speed_charts()),
            draw(tr("GPU and memory"), curves.list_system_charts(num_gpus)),
            make_section(tr("Configuration"), make_panel(tr("Settings that differ"), _compare_settings(named, tr))),
        ],
        footer=tr("Made by MyXTTS from the files of the run."),
        lang=tr.lang,
    )


def _check(runs: Sequence[RunFiles]) -> Measures:
    measures = curves.find_measures(runs[0].path)
    other = next((run for run in runs if curves.find_measures(run.path) is not measures), None)
    if other is not None:
        raise UsageError(
            f"{runs[0].path} and {other.path} train different parts: a voice and a vocoder have no curves in common.",
            next_step="Name runs of the same part.",
        )
    if len(runs) > MAX_RUNS:
        raise UsageError(f"{len(runs)} runs are too many for one picture.", next_step=f"Name up to {MAX_RUNS}.")
    return measures


def name_runs(runs: Sequence[RunFiles]) -> dict[str, RunFiles]:
    """The runs by name, or by folder where several have the same name; by path where even those are the same."""
    for names in ([run.name for run in runs], [run.path.name for run in runs], [str(run.path) for run in runs]):
        if len(set(names)) == len(names):
            break
    return dict(zip(names, runs, strict=True))


def _compare_figures(runs: Mapping[str, RunFiles], tr: Translator) -> Html:
    heading = tr.row("Run", "Steps", "Training time", "Loss", "Best validation score", "AU")
    rows = []
    for name, run in runs.items():
        _, losses = list_series(run.records, "loss")
        scores = [(numbers["score"], step) for step, numbers in run.validations if "score" in numbers]
        best = (
            tr("{value} at step {step}", value=tr.number(min(scores)[0]), step=tr.count(min(scores)[1]))
            if scores
            else "–"
        )
        au = run.device_busy if run.device_busy is not None else run.feed.au if run.feed else None
        rows.append(
            [
                name,
                tr.count(count_steps(run)),
                tr.time(measure_time(run)),
                tr.number(losses[-1]) if losses else "–",
                best,
                tr.share(au) if au is not None else "–",
            ]
        )
    return make_table(heading, rows)


def _compare_settings(runs: Mapping[str, RunFiles], tr: Translator) -> Html:
    """The settings whose values are not the same in all runs; names and folders always differ and are left out."""
    values = [{one.key: hide_private(format_scalar(one.value)) for one in run.settings} for run in runs.values()]
    keys = dict.fromkeys(key for of_run in values for key in of_run)
    left_out = {"training.run_name", "training.run_dir"}
    rows = [
        [key, *(of_run.get(key, "–") for of_run in values)]
        for key in keys
        if key not in left_out and len({of_run.get(key) for of_run in values}) > 1
    ]
    return make_table([tr("Setting"), *runs], rows, code_columns=range(len(runs) + 1))
