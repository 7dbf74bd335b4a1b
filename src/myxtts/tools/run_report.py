"""HTML report of a training run: verdict, curves, samples, step times, GPU and memory, configuration, environment.

Made from the files of the run alone (`tools.run_files`), at the end of `myxtts train` and by `myxtts report`. Sections
without data are left out. Voice and vocoder runs share the page; `Measures` says which curves they have. Several runs
in one picture are in `tools.report.side_by_side`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from myxtts.config.values import format_scalar
from myxtts.tools import page
from myxtts.tools.charts import draw_shares
from myxtts.tools.line_charts import Curve, draw_curves
from myxtts.tools.report.curves import (
    draw_chart,
    find_measures,
    list_learning_charts,
    list_speed_charts,
    list_system_charts,
    list_validation_charts,
    write_measure,
)
from myxtts.tools.report.sounds import show_sounds
from myxtts.tools.report.verdict import Progress, judge
from myxtts.tools.run_files import FeedTimes, RunFiles, StepTimes, count_steps, list_series, measure_time, read_run
from myxtts.tools.words import Translator, mark
from myxtts.training.run.folder import REPORT_FILE_NAME, hide_private
from myxtts.training.terms import Measures

_MAX_IDS = 4
"""Utterances that are named for each skipped step; the others are counted."""
_MAX_SESSIONS = 3
"""Newest sessions of a resumed run whose environment is shown."""
# Labels of stages in the telemetry; other stages are shown by their names.
_STAGES = mark(
    {
        "transfer": "copy to the device (in parallel)",
        "transfer_wait": "waiting for the device before the copy (in parallel)",
        "features": "features on the data device (in parallel)",
    }
)
_KINDS = mark({"skipped": "skipped", "spike": "spike", "rolled back": "rolled back"})
_END_SHARE = 20
"""The last twentieth of the records stands for the end of a run."""


def write_run_report(run_path: str | Path, *, lang: str = "en") -> Path:
    """Writes the report into the folder of the run and returns its path: report.html, or report.fa.html in Persian.

    Raises DataError where there is no run, and StorageError where the page cannot be written.
    """
    path = Path(run_path)
    return make_run_page(read_run(path), Translator(lang)).write(path / name_report(lang))


def name_report(lang: str, *, is_comparison: bool = False) -> str:
    """Name of the file of a report, or of a page of several runs: report.html, comparison.fa.html."""
    stem, suffix = ("comparison" if is_comparison else Path(REPORT_FILE_NAME).stem), Path(REPORT_FILE_NAME).suffix
    return f"{stem}{suffix}" if lang == "en" else f"{stem}.{lang}{suffix}"


def make_run_page(run: RunFiles, tr: Translator) -> page.Page:
    """Builds the page of a run; a run with a vocoder specification shows the measures of the vocoder."""
    steps, seconds, measures = count_steps(run), measure_time(run), find_measures(run.path)
    return page.Page(
        title=tr("Training report: {name}", name=run.name),
        lead=tr(
            "{steps} steps in {time}. A self-contained page, made from the files of the run.",
            steps=tr.count(steps),
            time=tr.time(seconds),
        ),
        verdict=judge(Progress.of_run(run), tr),
        cards=_make_cards(run, tr),
        sections=[
            _show_learning(run, measures, tr),
            _show_validation(run, measures, tr),
            show_sounds(run, measures, tr),
            _show_time(run, tr),
            _show_system(run, tr),
            _show_skipped(run, tr),
            _show_configuration(run, tr),
            _show_environment(run, tr),
        ],
        footer=tr("Made by MyXTTS from the files of the run."),
        lang=tr.lang,
    )


def _make_cards(run: RunFiles, tr: Translator) -> list[page.Card]:
    """Steps, time, loss, best validation score (the lowest), AU and step-time variation."""
    steps, seconds = count_steps(run), measure_time(run)
    total = run.find_setting("training.steps")
    _, losses = list_series(run.records, "loss")
    _, step_s = list_series(run.records, "seconds")
    epoch = run.records[-1].get("epoch") if run.records else None
    if isinstance(total, int):
        of_steps = tr("of {total}", total=tr.count(total))
    else:
        of_steps = tr("{epochs} epochs", epochs=tr.number(float(epoch))) if epoch is not None else ""
    scores = [(step, numbers["score"]) for step, numbers in run.validations if "score" in numbers]
    best_step, best = min(scores, key=lambda pair: pair[1]) if scores else (0, 0.0)
    unknown, steps_only = tr("not known"), run.group_steps()
    return [
        page.Card(tr("Steps"), tr.count(steps), of_steps),
        page.Card(
            tr("Training time"),
            tr.time(seconds),
            tr("{seconds} s per step, training only", seconds=tr.number(float(np.median(step_s)))) if step_s else "",
        ),
        page.Card(
            tr("Loss"),
            tr.number(float(np.mean(losses[-max(1, len(losses) // _END_SHARE) :]))) if losses else unknown,
            tr("{value} at the start", value=tr.number(losses[0])) if losses else "",
        ),
        page.Card(
            tr("Validation score"),
            tr.number(scores[-1][1]) if scores else unknown,
            tr("best: {value} at step {step}", value=tr.number(best), step=tr.count(best_step))
            if scores
            else tr("no validation"),
        ),
        page.make_au_card(run.device_busy, run.feed.au if run.feed else None, tr),
        page.Card(
            tr("Wall clock in steps"),
            tr.share(run.wall_share) if run.wall_share is not None else unknown,
            tr("the rest: checkpoints, validation, samples"),
        ),
        page.Card(
            tr("Step-time variation"),
            tr.share(steps_only.variation) if steps_only is not None else unknown,
            tr("standard deviation / mean"),
        ),
    ]


def _show_learning(run: RunFiles, measures: Measures, tr: Translator) -> page.Html:
    """Training curves: total loss, its terms, terms that are only measured (weight 0), learning rate, gradient norm."""
    return page.make_section(
        tr("Learning curves"),
        page.make_grid(*(draw_chart(run, chart, tr) for chart in list_learning_charts(measures))),
        lead=tr(
            "Means over the steps between two log entries. Curves with many entries have a moving average; the entries "
            "themselves are the faint line behind it."
        ),
    )


def _show_validation(run: RunFiles, measures: Measures, tr: Translator) -> page.Html:
    """Validation curves by chart, the step at which the text encoder was frozen, and a table of best and last."""
    if not run.validations:
        return page.NOTHING
    lead = tr(measures.about_validation)
    if run.text_rest_step is not None:
        lead += " " + tr(
            "The text encoder and the prosody predictor are frozen from step {step}, because their "
            "validation loss had stopped improving.",
            step=tr.count(run.text_rest_step),
        )
    if run.durations_step is not None:
        lead += " " + tr(
            "Alignments had become stable at step {step}: from there on training used written durations and did not "
            "search.",
            step=tr.count(run.durations_step),
        )
    return page.make_section(
        tr("Validation"),
        page.make_grid(*(draw_chart(run, chart, tr) for chart in list_validation_charts(measures))),
        page.make_panel(tr("Best and last"), _compare_best_and_last(run, measures, tr)),
        lead=lead,
    )


def _compare_best_and_last(run: RunFiles, measures: Measures, tr: Translator) -> page.Html:
    """All scores of the validation with the lowest `score`, whose weights are the best checkpoint, and of the last."""
    last_step, last = run.validations[-1]
    best_step, best = min(run.validations, key=lambda pair: pair[1].get("score", float("inf")))
    heading = [
        tr("Metric"),
        tr("Best (step {step})", step=tr.count(best_step)),
        tr("Last (step {step})", step=tr.count(last_step)),
    ]
    rows = [
        [
            tr(measures.labels.get(name, name)),
            write_measure(name, best.get(name, float("nan")), measures, tr),
            write_measure(name, value, measures, tr),
        ]
        for name, value in sorted(last.items(), key=lambda item: item[0] != "score")
    ]
    return page.make_table(heading, rows)


def _show_time(run: RunFiles, tr: Translator) -> page.Html:
    """Shares of steps, data wait and validation, and the times of steps that only trained."""
    feed = run.feed
    if feed is None:
        return page.NOTHING
    watching_s = sum(seconds for _, seconds in run.watched)
    waiting_s, stepping_s = float(feed.wait_s.sum()), float(feed.step_s.sum())
    shares = [
        (tr("training steps"), max(0.0, stepping_s - watching_s)),
        (tr("waiting for data"), waiting_s),
        (tr("validation and samples"), min(watching_s, stepping_s)),
    ]
    times = run.group_steps()
    assert times is not None
    curves = [
        Curve(tr("step"), times.step.tolist(), (1000 * (times.wait_s + times.step_s)).tolist()),
        Curve(tr("wait for data"), times.step.tolist(), (1000 * times.wait_s).tolist()),
    ]
    return page.make_section(
        tr("Where the time went"),
        page.make_grid(
            page.make_stack(
                page.make_panel(tr("Total time"), draw_shares(shares, tr.share)),
                page.make_panel(tr("Step time, training only"), draw_curves(curves, tr, unit=tr("milliseconds"))),
            ),
            page.make_panel(
                tr("Milliseconds and percentages"),
                page.make_table(tr.row("Metric", "Mean", "Median", "99 %"), _list_times(feed, times, tr)),
                page.make_table([], _list_rates(run, feed, times, watching_s, tr)),
            ),
            *(draw_chart(run, chart, tr) for chart in list_speed_charts()),
        ),
        lead=tr(
            "Without the first step of each session, which compiles. Step times and their variation also leave "
            "out steps that traced a graph, validated, synthesised samples or saved."
        ),
    )


def _list_rates(run: RunFiles, feed: FeedTimes, times: StepTimes, watching_s: float, tr: Translator) -> list[list[str]]:
    """Rows of AU, effective AU = AU x (1 - padding), variation, padding, throughput and retraced graphs."""
    total_s = max(float(feed.interval_s.sum()), 1e-9)
    training_s = max(total_s - watching_s, 1e-9)
    busy, wall_share = run.device_busy, run.wall_share
    effective = (feed.au if busy is None else busy) * (1 - feed.padding)
    return [
        [tr("AU: time without data wait"), tr.share(feed.au)],
        *([[tr("AU: time in which the GPU ran kernels"), tr.share(busy)]] if busy is not None else []),
        *([[tr("share of the wall clock in steps"), tr.share(wall_share)]] if wall_share is not None else []),
        [tr("effective AU (padding counts as waste)"), tr.share(effective)],
        [tr("Step-time variation"), tr.share(times.variation)],
        [tr("padding"), tr.share(feed.padding)],
        [tr("utterances per second, training only"), tr.number(feed.num_utterances / training_s)],
        [tr("utterances per second, including validation"), tr.number(feed.num_utterances / total_s)],
        [tr("graphs traced during training"), tr.count(int(feed.is_retraced.sum()))],
    ]


def _list_times(feed: FeedTimes, times: StepTimes, tr: Translator) -> Iterator[Sequence[str]]:
    """Rows of mean, median and 99 % quantile in milliseconds; stages marked as parallel do not add to the step."""
    rows = [
        (tr("step, training only"), times.step_s),
        (tr("wait for data"), times.wait_s),
        (tr("loading a batch (in parallel)"), feed.load_s),
    ]
    rows += [(tr(_STAGES.get(name, name)), seconds) for name, seconds in feed.stages.items()]
    for label, seconds in rows:
        if len(seconds):
            numbers = (seconds.mean(), np.median(seconds), np.quantile(seconds, 0.99))
            yield [label, *(tr.number(1000 * float(number)) for number in numbers)]


def _show_system(run: RunFiles, tr: Translator) -> page.Html:
    """GPU utilisation, memory, power and temperature, and memory and cores of the process, over minutes of training."""
    charts = list_system_charts(run.num_gpus)
    lead = tr("Sampled during training, over minutes of training; pauses between sessions are left out.")
    if run.system and not run.num_gpus:
        lead += " " + tr("There was no NVIDIA GPU.")
    return page.make_section(
        tr("GPU and memory"), page.make_grid(*(draw_chart(run, chart, tr) for chart in charts)), lead=lead
    )


def _show_skipped(run: RunFiles, tr: Translator) -> page.Html:
    """Steps skipped for NaN, loss spikes and rollbacks with the utterances of their batches, newest 50."""
    if not run.skipped:
        return page.make_section(
            tr("Skipped steps and loss spikes"),
            page.make_paragraph(tr("No skipped steps, no loss spikes, no rollbacks."), "lead"),
        )
    skipped, spikes, rollbacks = (tr.count(run.num_of_kind[kind]) for kind in _KINDS)
    heading = tr.row("step", "Event", "Loss", "Gradient norm", "Utterances in the batch")
    rows = [
        [
            tr.count(line.get("step", 0)),
            tr(_KINDS.get(str(line.get("kind")), str(line.get("kind")))),
            _format_any(line.get("loss"), tr),
            _format_any(line.get("gradient_norm"), tr),
            _name_ids(line.get("ids")),
        ]
        for line in run.skipped
        if isinstance(line.get("step", 0), int)
    ]
    table = page.make_table(heading, rows, code_columns=(4,))
    return page.make_section(
        tr("Skipped steps and loss spikes"),
        page.make_panel(tr("Events"), table),
        lead=tr(
            "Skipped steps: {skipped}. Loss spikes: {spikes}. Rollbacks: {rollbacks}.",
            skipped=skipped,
            spikes=spikes,
            rollbacks=rollbacks,
        ),
    )


def _format_any(value: Any, tr: Translator) -> str:
    """Formats a recorded number; NaN and infinity of a skipped step are stored as text."""
    return tr.number(float(value)) if isinstance(value, int | float) else str(value or "")


def _name_ids(ids: Any) -> str:
    names = [str(one) for one in ids] if isinstance(ids, list) else []
    return ", ".join(names[:_MAX_IDS]) + (f" … (+{len(names) - _MAX_IDS})" if len(names) > _MAX_IDS else "")


def _show_configuration(run: RunFiles, tr: Translator) -> page.Html:
    """Settings that differ from the defaults of this version, and the whole configuration file."""
    rows = [
        [setting.key, hide_private(format_scalar(setting.value)), format_scalar(setting.default)]
        for setting in run.settings
        if setting.value != setting.default
    ]
    heading = tr.row("Setting", "Value", "Default")
    return page.make_section(
        tr("Configuration"),
        page.make_panel(tr("Differs from the defaults"), page.make_table(heading, rows, code_columns=(0, 1, 2))),
        page.make_details(tr("All settings"), page.make_code(run.config_text)),
    )


def _show_environment(run: RunFiles, tr: Translator) -> page.Html:
    """Machine and versions of the last sessions, and the fingerprints of corpus and store that resuming checks."""
    panels = [
        page.make_panel(
            tr("From step {step}", step=tr.count(session.get("from_step", 0))), page.make_machine_table(session, tr)
        )
        for session in run.sessions[-_MAX_SESSIONS:]
    ]
    rows = [[name, text] for name, text in run.fingerprints.items()]
    fingerprints = page.make_panel(tr("Fingerprints"), page.make_table([], rows, code_columns=(0, 1)))
    return page.make_section(tr("Environment"), *panels, fingerprints)
