"""The report of a run: how it learnt, how it sounds, where the time went, and what it was made with, on one page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from myxtts.tools.charts import Curve, draw_curves, draw_shares
from myxtts.tools.page import (
    Card,
    Html,
    Page,
    embed_picture,
    embed_sound,
    make_code,
    make_details,
    make_grid,
    make_panel,
    make_paragraph,
    make_section,
    make_stack,
    make_table,
)
from myxtts.tools.report_words import Words
from myxtts.tools.run_files import FeedTimes, RunFiles, list_series, read_run
from myxtts.training.run.folder import REPORT_FILE_NAME
from myxtts.training.sample_files import REAL_FOLDER_NAME, SampleFiles, list_steps, name_step_folder, read_samples
from myxtts.training.terms import VOCODER, VOICE, Measures
from myxtts.training.vocoder.task import VOCODER_SPEC_FILE_NAME

# The later sections of a run's report: where the time went, what went wrong, configuration and environment.

_MAX_IDS = 4
_MAX_SESSIONS = 3


def show_time(run: RunFiles, words: Words) -> Html:
    feed = run.feed
    if feed is None:
        return make_section(words.say("where_time"))
    watching_s = sum(seconds for _, seconds in run.watched)
    waiting_s, stepping_s = float(feed.wait_s.sum()), float(feed.step_s.sum())
    shares = [
        (words.say("computing"), max(0.0, stepping_s - watching_s)),
        (words.say("waiting"), waiting_s),
        (words.say("watching"), min(watching_s, stepping_s)),
    ]
    is_usual = feed.find_usual(run.find_watched_positions())
    steps = np.flatnonzero(is_usual).tolist()
    curves = [
        Curve(words.say("whole_step"), steps, (1000 * feed.interval_s[is_usual]).tolist()),
        Curve(words.say("wait"), steps, (1000 * feed.wait_s[is_usual]).tolist()),
    ]
    columns = [words.say("number"), words.say("mean"), words.say("median"), words.say("ninety_nine")]
    facts = [
        [words.say("au"), words.share(feed.au)],
        [words.say("effective_au"), words.share(feed.au * (1 - feed.padding))],
        [words.say("variation"), words.share(run.measure_variation() or 0.0)],
        [words.say("padding"), words.share(feed.padding)],
        [words.say("utterances_per_s"), words.number(feed.num_utterances / max(waiting_s + stepping_s, 1e-9))],
        [words.say("retraces"), words.count(int(feed.is_retraced.sum()))],
    ]
    return make_section(
        words.say("where_time"),
        make_grid(
            [
                make_stack(
                    make_panel(words.say("all_time"), draw_shares(shares, words.share)),
                    make_panel(words.say("interval"), draw_curves(curves, words.tick)),
                ),
                make_panel(
                    words.say("in_numbers"), make_table(columns, _list_times(feed, words)), make_table([], facts)
                ),
            ]
        ),
        lead=words.say("time_lead"),
    )


def _list_times(feed: FeedTimes, words: Words) -> Iterator[Sequence[str]]:
    rows = [(words.say("whole_step"), feed.step_s), (words.say("wait"), feed.wait_s), (words.say("load"), feed.load_s)]
    rows += [(words.name(f"stage_{name}"), seconds) for name, seconds in feed.stages.items() if len(seconds)]
    for label, seconds in rows:
        numbers = (seconds.mean(), np.median(seconds), np.quantile(seconds, 0.99))
        yield [label, *(words.number(1000 * float(number)) for number in numbers)]


def show_skipped(run: RunFiles, words: Words) -> Html:
    if not run.skipped:
        return make_section(words.say("skipped"), make_paragraph(words.say("no_skipped"), "lead"))
    counts = {
        name: words.count(run.num_of_kind[kind])
        for name, kind in (("skipped", "skipped"), ("spikes", "spike"), ("rollbacks", "rolled back"))
    }
    heading = [
        words.say("whole_step"),
        words.say("what"),
        words.say("loss"),
        words.say("gradient_norm"),
        words.say("batch"),
    ]
    rows = [
        [
            words.count(line.get("step", 0)),
            words.name(f"kind_{line.get('kind')}"),
            _format_any(line.get("loss"), words),
            _format_any(line.get("gradient_norm"), words),
            _name_ids(line.get("ids")),
        ]
        for line in run.skipped
        if isinstance(line.get("step", 0), int)
    ]
    table = make_table(heading, rows, code_columns=(4,))
    return make_section(
        words.say("skipped"), make_panel(words.say("events"), table), lead=words.say("skipped_lead", **counts)
    )


def show_configuration(run: RunFiles, words: Words) -> Html:
    rows = [
        [setting.key, _write(setting.value), _write(setting.default)]
        for setting in run.settings
        if setting.value != setting.default
    ]
    heading = [words.say("setting"), words.say("value"), words.say("default")]
    return make_section(
        words.say("configuration"),
        make_panel(words.say("changed"), make_table(heading, rows, code_columns=(0, 1, 2))),
        make_details(words.say("all_settings"), make_code(run.config_text)),
    )


def show_environment(run: RunFiles, words: Words) -> Html:
    panels = []
    for session in run.sessions[-_MAX_SESSIONS:]:
        versions, gpus = session.get("versions"), session.get("gpus")
        names = ", ".join(map(str, gpus)) if isinstance(gpus, list) and gpus else words.say("no_gpu")
        machine = f"{session.get('system', '')}, {session.get('num_cpus', '?')} CPUs, {session.get('ram_gb', '?')} GB"
        command = session.get("command")
        rows = [
            [words.say("started"), str(session.get("started", ""))],
            [words.say("command"), " ".join(map(str, command)) if isinstance(command, list) else ""],
            [words.say("machine"), f"{machine}, {names}"],
            [
                words.say("versions"),
                f"Python {session.get('python', '?')}, "
                + (
                    ", ".join(f"{name} {text}" for name, text in versions.items()) if isinstance(versions, dict) else ""
                ),
            ],
        ]
        step = words.count(session.get("from_step", 0))
        panels.append(make_panel(words.say("session", step=step), make_table([], rows, code_columns=(1,))))
    rows = [[name, text] for name, text in run.fingerprints.items()]
    panels.append(make_panel(words.say("fingerprints"), make_table([], rows, code_columns=(0, 1))))
    return make_section(words.say("environment"), *panels)


def _format_any(value: Any, words: Words) -> str:
    return words.number(float(value)) if isinstance(value, int | float) else str(value or "")


def _name_ids(ids: Any) -> str:
    names = [str(one) for one in ids] if isinstance(ids, list) else []
    return ", ".join(names[:_MAX_IDS]) + (f" … (+{len(names) - _MAX_IDS})" if len(names) > _MAX_IDS else "")


def _write(value: Any) -> str:
    return "null" if value is None else str(value)


_END_SHARE = 20
"""The last twentieth of the records stands for the end of a run."""
_NUM_HEARD_STEPS = 3
_MAX_SOUND_BYTES = 3_000_000


def write_run_report(run_path: str | Path, *, lang: Literal["en", "fa"] = "en", out: str | Path | None = None) -> Path:
    """Makes the page from the files of the run and gives its path: report.html in the run, or `out`.

    Raises DataError where there is no run, and StorageError where the page cannot be written.
    """
    path = Path(run_path)
    name = REPORT_FILE_NAME if lang == "en" else f"report.{lang}.html"
    return make_run_page(read_run(path), Words(lang)).write(Path(out) if out is not None else path / name)


def make_run_page(run: RunFiles, words: Words) -> Page:
    steps, seconds = _count_steps(run), _measure_time(run)
    measures = VOCODER if (run.path / VOCODER_SPEC_FILE_NAME).is_file() else VOICE
    return Page(
        title=words.say("title", name=str(run.find_setting("training.run_name") or run.path.name)),
        lead=words.say("lead", steps=words.count(steps), time=words.time(seconds)),
        cards=_make_cards(run, words),
        sections=[
            _show_learning(run, words, measures),
            _show_validation(run, words, measures),
            _show_sound(run, words, measures),
            show_time(run, words),
            show_skipped(run, words),
            show_configuration(run, words),
            show_environment(run, words),
        ],
        footer=words.say("footer"),
        lang=words.lang,
    )


def _make_cards(run: RunFiles, words: Words) -> list[Card]:
    steps, seconds = _count_steps(run), _measure_time(run)
    total = run.find_setting("training.steps")
    _, losses = list_series(run.records, "loss")
    _, step_s = list_series(run.records, "seconds")
    epoch = run.records[-1].get("epoch") if run.records else None
    if isinstance(total, int):
        of_steps = words.say("of_steps", total=words.count(total))
    else:
        of_steps = words.say("epochs", epochs=words.number(float(epoch))) if epoch is not None else ""
    scores = [(step, numbers["score"]) for step, numbers in run.validations if "score" in numbers]
    best_step, best = min(scores, key=lambda pair: pair[1]) if scores else (0, 0.0)
    unknown, variation = words.say("unknown"), run.measure_variation()
    return [
        Card(words.say("steps"), words.count(steps), of_steps),
        Card(
            words.say("time"),
            words.time(seconds),
            words.say("per_step", seconds=words.number(float(np.median(step_s)))) if step_s else "",
        ),
        Card(
            words.say("loss"),
            words.number(float(np.mean(losses[-max(1, len(losses) // _END_SHARE) :]))) if losses else unknown,
            words.say("from_loss", value=words.number(losses[0])) if losses else "",
        ),
        Card(
            words.say("validation"),
            words.number(scores[-1][1]) if scores else unknown,
            words.say("best_at", value=words.number(best), step=words.count(best_step))
            if scores
            else words.say("no_validation"),
        ),
        Card(words.say("au"), words.share(run.feed.au) if run.feed else unknown, words.say("au_remark")),
        Card(
            words.say("variation"),
            words.share(variation) if variation is not None else unknown,
            words.say("variation_remark"),
        ),
    ]


def _show_learning(run: RunFiles, words: Words, measures: Measures) -> Html:
    def draw(labels: Mapping[str, str], is_noisy: bool = True) -> Html:
        return _draw(run.records, labels, words, is_noisy)

    measured = {term.name: term.label for term in measures.terms if not term.weight}
    panels = [
        make_panel(words.say("loss"), draw({"loss": words.say("loss")})),
        make_panel(words.say("terms"), draw({term.name: term.label for term in measures.trained_terms})),
        make_panel(words.say("measures"), draw(measured)),
        make_panel(words.say("learning_rate"), draw({"learning_rate": words.say("learning_rate")}, is_noisy=False)),
        make_panel(words.say("gradient_norm"), draw({"gradient_norm": words.say("gradient_norm")})),
    ]
    return make_section(words.say("learning"), make_grid(panels), lead=words.say("learning_lead"))


def _draw(records: Sequence[Mapping[str, Any]], labels: Mapping[str, str], words: Words, is_noisy: bool = True) -> Html:
    """Curves of the numbers that are recorded under the names of `labels`."""
    curves = [Curve(words.translate(label), *list_series(records, name), is_noisy) for name, label in labels.items()]
    return draw_curves(curves, words.tick)


def _show_validation(run: RunFiles, words: Words, measures: Measures) -> Html:
    if not run.validations:
        return make_section(words.say("validating"))
    records = [{"step": step, **numbers} for step, numbers in run.validations]
    panels = [
        make_panel(words.translate(heading), _draw(records, labels, words))
        for heading, labels in measures.charts.items()
    ]
    of_terms = {term.name: term.label for term in measures.trained_terms if term.name in records[-1]}
    if of_terms:
        panels.append(make_panel(words.say("terms"), _draw(records, of_terms, words)))
    last_step, last = run.validations[-1]
    best_step, best = min(run.validations, key=lambda pair: pair[1].get("score", float("inf")))
    heading = [
        words.say("number"),
        words.say("best", step=words.count(best_step)),
        words.say("last", step=words.count(last_step)),
    ]
    rows = [
        [
            words.translate(measures.labels.get(name, words.name(name))),
            words.number(best.get(name, float("nan"))),
            words.number(value),
        ]
        for name, value in sorted(last.items(), key=lambda item: item[0] != "score")
    ]
    lead = words.translate(measures.about_validation)
    if run.text_rest_step is not None:
        lead += " " + words.say("text_rests", step=words.count(run.text_rest_step))
    return make_section(
        words.say("validating"),
        make_grid(panels),
        make_panel(words.say("best_and_last"), make_table(heading, rows)),
        lead=lead,
    )


def _show_sound(run: RunFiles, words: Words, measures: Measures) -> Html:
    steps = list_steps(run.samples_path)
    if not steps:
        return make_section(words.say("sound"))
    chosen = sorted({steps[round(place)] for place in np.linspace(0, len(steps) - 1, _NUM_HEARD_STEPS)})
    heard = {step: _by_name(read_samples(run.samples_path / name_step_folder(step))) for step in chosen}
    real = _by_name(read_samples(run.samples_path / REAL_FOLDER_NAME))
    last = heard[chosen[-1]]
    panels = []
    for name, sample in last.items():
        heading = " · ".join(text for text in (sample.about["language"], sample.about["speaker"]) if text)
        others = [(words.say("step", step=words.count(step)), heard[step].get(name)) for step in chosen]
        players = [_embed_sound(one, label) for label, one in [(words.say("recorded"), real.get(name)), *others]]
        pictures = [
            _embed_picture(real[name].mel if name in real else None, words.say("mel_real")),
            _embed_picture(sample.mel, words.say("mel_made", step=words.count(chosen[-1]))),
            _embed_picture(sample.alignment, words.say("alignment")),
        ]
        text = make_paragraph(sample.about["text"] or sample.about["id"], "quote")
        panels.append(make_panel(heading or name, text, *players, *pictures))
    return make_section(words.say("sound"), make_grid(panels), lead=words.translate(measures.about_samples))


def _count_steps(run: RunFiles) -> int:
    return max([record["step"] for record in run.records] + [step for step, _ in run.validations], default=0)


def _measure_time(run: RunFiles) -> float:
    """From the records where they say it, for a resumed run adds up; else from the feed."""
    elapsed = [record["elapsed_s"] for record in run.records if isinstance(record.get("elapsed_s"), int | float)]
    if elapsed:
        ends = [last for last, following in zip(elapsed, [*elapsed[1:], 0.0], strict=True) if following < last]
        return float(sum(ends))
    return float(run.feed.interval_s.sum()) if run.feed else 0.0


def _by_name(samples: Sequence[SampleFiles]) -> dict[str, SampleFiles]:
    return {sample.name: sample for sample in samples}


def _embed_sound(sample: SampleFiles | None, label: str) -> Html:
    if sample is None or sample.sound is None or sample.sound.stat().st_size > _MAX_SOUND_BYTES:
        return Html("")
    return embed_sound(sample.sound.read_bytes(), label)


def _embed_picture(path: Path | None, caption: str) -> Html:
    return embed_picture(path.read_bytes(), caption) if path is not None else Html("")
