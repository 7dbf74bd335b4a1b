"""The later sections of a run's report: where the time went, what went wrong, configuration and environment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from myxtts.tools.charts import Curve, draw_curves, draw_shares
from myxtts.tools.page import (
    Html,
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
from myxtts.tools.run_files import FeedTimes, RunFiles

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
