"""The page of the clip doctor: the most doubtful clips with their sound, text and reasons, and what to do with them."""

from __future__ import annotations

from collections import Counter

from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.rejections import AudioProblem
from myxtts.features.audio import load_recording
from myxtts.features.definition import AudioDefinition
from myxtts.features.wave_file import encode_sound
from myxtts.tools.clips.doctor import Clip, ClipReport
from myxtts.tools.clips.verify import Verified
from myxtts.tools.page import (
    NOTHING,
    Card,
    Html,
    Page,
    embed_sound,
    make_code,
    make_panel,
    make_paragraph,
    make_section,
    make_table,
)
from myxtts.tools.report.curves import write_measure
from myxtts.tools.words import Translator, mark
from myxtts.training.run.resume import load_run_settings
from myxtts.training.terms import VOICE

MAX_CLIPS = 60
"""Clips with sound on the page: a quarter of a megabyte each."""
ALIGNED_BY_BASE = mark(
    "The base model of the package aligned the clips: here it tells right texts from wrong ones better than the model "
    "of the run."
)


def make_page_of_run(report: ClipReport, tr: Translator, verified: Verified | None = None) -> Page:
    """Makes the page of a report; of very many worst clips the first are shown."""
    data = load_run_settings(report.run).data
    audio, limits = AudioDefinition.from_config(data), AudioLimits.from_config(data)
    shown = report.worst[:MAX_CLIPS]
    reasons = Counter(str(reason) for clip in report.worst for reason in clip.finding.reasons[:1])
    cards = [
        Card(tr("Clips"), tr.count(len(report.clips))),
        Card(tr("Most doubtful"), tr.count(report.num_worst), tr.share(report.num_worst / max(1, len(report.clips)))),
        Card(tr("Aligned by"), tr("the base model"))
        if report.is_base
        else Card(tr("Step of the model"), tr.count(report.step)),
    ]
    table = make_table(
        tr.row("Main reason", "Clips"), [[tr(name), tr.count(number)] for name, number in reasons.most_common()]
    )
    panels = [_make_panel(clip, audio, limits, tr) for clip in shown]
    left_out = tr("The page shows the first {count}; all are in clips.jsonl.", count=tr.count(MAX_CLIPS))
    sections = [
        make_section(tr("Why they are in doubt"), table, *(make_paragraph(line) for line in _explain(report, tr))),
        _make_verified(verified, tr),
        make_section(tr("Hear them"), *panels, lead=left_out if report.num_worst > MAX_CLIPS else ""),
    ]
    lead = tr("The most doubtful clips of {run}. Hear them before you drop them.", run=str(report.run))
    return Page(tr("Clip doctor"), lead, cards, sections, lang=tr.lang)


def _explain(report: ClipReport, tr: Translator) -> list[str]:
    explained = tr(
        "Each clip is compared with the other clips of its speaker. A doubtful clip is not always wrong: rare words, "
        "laughter and shouting look doubtful, too."
    )
    return [explained, tr(ALIGNED_BY_BASE)] if report.is_base else [explained]


def _make_panel(clip: Clip, audio: AudioDefinition, limits: AudioLimits, tr: Translator) -> Html:
    """One clip: id and doubt, sound, text, reasons."""
    about, finding = clip.utterance, clip.finding
    reasons = tr.join(tr(str(reason)) for reason in finding.reasons) or tr("several small deviations together")
    try:
        wave = load_recording(about.audio, audio, limits).wave
        sound = embed_sound(encode_sound(wave, ".wav"), about.speaker)
    except AudioProblem as problem:
        sound = make_paragraph(problem.detail)
    heading = tr("{id}: doubt {doubt}", id=about.id, doubt=tr.number(finding.doubt))
    return make_panel(heading, sound, make_paragraph(about.text, "lead"), make_paragraph(reasons))


def describe_verified(verified: Verified, tr: Translator) -> str:
    """How both trainings were made, and what their difference is worth."""
    return tr(
        "Held-out figures with all clips and without the worst: one training of {steps} steps each, with the same "
        "seed. Both are validated on the same clips, none of them doubtful. Small differences are chance, and after "
        "few steps all of them are. Lower is better, except for similarity.",
        steps=tr.count(verified.steps),
    )


def list_verified(verified: Verified, tr: Translator) -> list[list[str]]:
    """Rows of the comparison: the metric as reports call it, with all clips, without the worst."""
    return [
        [
            tr(VOICE.labels[name]),
            *(write_measure(name, values[name], VOICE, tr) for values in (verified.everything, verified.kept)),
        ]
        for name in verified.shared_names
    ]


def _make_verified(verified: Verified | None, tr: Translator) -> Html:
    """Held-out losses of the training with all clips and without the worst."""
    if verified is None:
        return NOTHING
    rows = list_verified(verified, tr)
    heading = tr.row("Metric", "All clips", "Without the worst")
    return make_section(
        tr("Both ways"),
        make_table(heading, rows),
        make_paragraph(describe_verified(verified, tr)),
        make_code(verified.describe_command()),
    )
