"""Builds the live page of a run: cards, charts that `live.js` fills, samples, and the two things one can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from myxtts.live.follow import LiveRun, list_charts
from myxtts.live.speaker import MAX_CHARACTERS
from myxtts.tools.line_charts import Curve, draw_curves
from myxtts.tools.page import Card, Html, Page, embed_json, escape, join, make_grid, make_panel, make_section
from myxtts.tools.report.curves import RunChart
from myxtts.tools.report.sounds import PLOT_X, PLOTS, RunSounds, name_sentence
from myxtts.tools.words import Translator, mark
from myxtts.training.run.folder import SAMPLES_FOLDER_NAME
from myxtts.training.sample_files import SampleFiles, name_step_folder
from myxtts.training.terms import VOCODER

_CARDS = mark(
    {
        "state": "Run",
        "step": "Step",
        "time_left": "Time left",
        "loss": "Loss",
        "score": "Validation score",
        "au": "AU",
        "wait": "Data wait per step",
    }
)
_SECTIONS = mark(
    {"learning": "Learning curves", "validation": "Validation", "speed": "Speed", "system": "GPU and memory"}
)


def make_live_page(run: LiveRun, tr: Translator, voices: Mapping[str, Sequence[str]]) -> Page:
    """Builds the page as it is before the first event; the script fills and updates it."""
    figures = run.list_figures(tr)
    charts = list_charts(run.measures)
    is_vocoder = run.measures is VOCODER
    return Page(
        title=tr("Training: {name}", name=run.path.name),
        lead=tr("The page follows the run: new values appear by themselves."),
        verdict=run.judge(tr),
        cards=[
            Card(tr(label), figures[name].value, figures[name].remark, f"card-{name}") for name, label in _CARDS.items()
        ],
        sections=[
            _make_controls(run, tr, voices, is_vocoder),
            _draw_section("learning", charts, tr),
            _draw_section("validation", charts, tr),
            Html(
                f'<section id="samples" hidden><h2>{escape(tr("Samples"))}</h2>'
                f'<p class="lead">{escape(tr(run.measures.about_samples))}</p><div class="grid"></div></section>'
            ),
            _draw_section("speed", charts, tr),
            _draw_section("system", charts, tr),
            embed_json(_list_words(tr), "live-words"),
        ],
        footer=tr("Made by MyXTTS from the files of the run."),
        lang=tr.lang,
        scripts=[_read_script()],
    )


def make_login_page(tr: Translator) -> Page:
    """Asks for the key of a page that others can reach."""
    form = Html(
        f'<form id="login"><label>{escape(tr("Key"))} <input type="password" autocomplete="off" required></label> '
        f'<button>{escape(tr("Open the page"))}</button><p id="status" role="status"></p></form>'
    )
    words = embed_json(_list_words(tr), "live-words")
    title = tr("This page needs a key")
    return Page(title, "", [], [make_panel(tr("Key"), form), words], lang=tr.lang, scripts=[_read_script()])


@cache
def _read_script() -> str:
    return (files("myxtts.live") / "live.js").read_text(encoding="utf-8")


def _draw_section(name: str, charts: Mapping[str, Sequence[RunChart]], tr: Translator) -> Html:
    panels = [make_panel(tr(chart.heading), _draw_empty(chart, tr)) for chart in charts[name]]
    return make_section(tr(_SECTIONS[name]), make_grid(*panels))


def _draw_empty(chart: RunChart, tr: Translator) -> Html:
    curves = [Curve(tr(label), [], [], chart.is_noisy, chart.name_curve(key)) for key, label in chart.curves.items()]
    return draw_curves(curves, tr, x=tr(chart.x), unit=tr(chart.unit), chart_id=chart.name)


def _make_controls(run: LiveRun, tr: Translator, voices: Mapping[str, Sequence[str]], is_vocoder: bool) -> Html:
    """The button that stops the run, and the form for a sentence, which a vocoder cannot say."""
    other = "en" if tr.lang == "fa" else "fa"
    name = "English" if other == "en" else "فارسی"
    stop = Html(
        f'<div class="controls"><button id="stop" type="button">{escape(tr("Stop and save"))}</button>'
        f'<a href="?lang={other}" lang="{other}">{name}</a><span id="status" role="status"></span></div>'
        f'<noscript><p class="note">{escape(tr("This page needs JavaScript. A report without it: myxtts report RUN"))}'
        "</p></noscript>"
    )
    if is_vocoder:
        return stop
    form = Html(
        f'<form id="say"><textarea maxlength="{MAX_CHARACTERS}" dir="auto" required rows="2" '
        f'aria-label="{escape(tr("Sentence"))}"></textarea><div class="controls">'
        f"{_make_select('voice', tr('Voice'), voices['voices'])}"
        f"{_make_select('language', tr('Language'), voices['languages'])}"
        f"<button>{escape(tr('Say it'))}</button>"
        f'<button id="cancel" type="button" hidden>{escape(tr("Cancel"))}</button></div></form><div id="said"></div>'
    )
    note = tr(
        "Made in a separate process with the newest saved weights, on the CPU: training does not wait for it. It takes "
        "some seconds, beside a training on the CPU minutes; the first sentence takes longest. Up to {count} "
        "characters.",
        count=tr.count(MAX_CHARACTERS),
    )
    return join([stop, make_panel(tr("Say this sentence now"), form, note=note)])


def _make_select(name: str, label: str, values: Sequence[str]) -> Html:
    options = "".join(f"<option>{escape(value)}</option>" for value in values)
    return Html(f'<label>{escape(label)} <select name="{name}">{options}</select></label>')


def _list_words(tr: Translator) -> dict[str, Any]:
    return {
        "plots": {kind: tr.row(*texts) for kind, texts in PLOTS.items()},
        "plotX": tr(PLOT_X),
        "ended": tr("The run has ended. The report is being loaded."),
        "lost": tr("The server does not answer. The page continues when it does."),
        "gone": tr("The server has ended. Make the report with: myxtts report RUN"),
        "stopping": tr("The run saves and ends after this step."),
        "sure": tr("Stop the training now? It saves its state and can be resumed."),
        "saying": tr("Being said … {seconds} s"),
        "failed": tr("This did not work."),
        "step": tr("step"),
        "recorded": tr("Recorded"),
        "copy": tr("Recorded, through Griffin-Lim"),
    }


def list_samples(run: LiveRun, tr: Translator) -> list[dict[str, Any]]:
    """Every sample of every checkpoint by sentence, newest first, with the addresses of its files."""
    sounds = RunSounds.read(run.path / SAMPLES_FOLDER_NAME, run.measures)
    sentences: dict[str, dict[str, Any]] = {}
    for step, of_step in sorted(sounds.by_step.items(), reverse=True):
        for name, sample in of_step.items():
            entry = sentences.setdefault(name, _describe_sentence(name, sample, sounds))
            entry["steps"].append({"label": tr("Step {step}", step=tr.count(step)), **_locate(step, sample)})
    return list(sentences.values())


def _describe_sentence(name: str, sample: SampleFiles, sounds: RunSounds) -> dict[str, Any]:
    references = {
        key: f"samples/{found[name].sound.parent.name}/{name}/sound"  # type: ignore[union-attr]
        for key, found in (("recorded", sounds.recorded), ("copy", sounds.copies))
        if name in found and found[name].sound is not None
    }
    text = sample.about["text"] or sample.about["id"]
    return {"name": name, "heading": name_sentence(sample), "text": text, **references, "steps": []}


def _locate(step: int, sample: SampleFiles) -> dict[str, str]:
    folder = f"samples/{name_step_folder(step)}/{sample.name}"
    found = {"sound": sample.sound, "mel": sample.mel, "alignment": sample.alignment}
    return {kind: f"{folder}/{kind}" for kind, path in found.items() if path is not None}
