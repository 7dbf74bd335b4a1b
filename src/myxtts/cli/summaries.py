"""Console reports of corpus preparation, feature extraction and training, shared by several commands.

Commands import this module when they run: it loads the corpus and store packages, which --help does not need.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from myxtts.cli.screen import Screen, format_length, mute_decoders, print_paragraph, show_progress
from myxtts.corpus.enough import Needs
from myxtts.corpus.prepare import Summary
from myxtts.corpus.rejections import NUM_EXAMPLES, Rejection, describe_reasons
from myxtts.errors import StorageError
from myxtts.store.precompute import PrecomputeSummary
from myxtts.store.provide import Report
from myxtts.tools.words import Translator, mark

if TYPE_CHECKING:
    from myxtts.tools.clips.doctor import ClipReport
    from myxtts.tools.clips.verify import Verified
    from myxtts.training.callbacks import TrainResult

_NUM_SENTENCES_SHOWN = 10
_MAX_TEXT_SHOWN = 80
_EXPECTED = mark(
    "Nobody knows beforehand how much leaving them out helps: --verify with --minutes trains with and without them. "
    "Listen to some of them first."
)


_MANY_REJECTED = 0.5
"""Share of rejected recordings above which a corpus is doubtful as a whole."""


class ScreenReport(Report):
    """Implements the callbacks of `store.provide` with progress bars and tables."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(lambda line: screen.notices.print(line, markup=False, soft_wrap=True))
        self._screen = screen

    @contextmanager
    def show_progress(self, label: str, total: int | None) -> Iterator[Callable[[int, int], None]]:
        with mute_decoders(), show_progress(label, total, "utterances", self._screen.notices) as view:
            yield lambda done, rejected: view.update(done, f"{rejected:,} rejected")

    def show_corpus(self, summary: Summary) -> None:
        """Prints size, format, languages and splits of a prepared corpus, then its rejections."""
        console = self._screen.console
        splits = ", ".join(f"{count:,} {split}" for split, count in sorted(summary.splits.items()) if count)
        languages = ", ".join(f"{language} {count:,}" for language, count in summary.languages.most_common(8))
        rate = (summary.num_utterances + summary.num_rejected) / max(summary.elapsed_s, 1e-9)
        speakers = "1 speaker" if len(summary.speakers) == 1 else f"{len(summary.speakers):,} speakers"
        length = format_length(summary.seconds)
        console.print(f"[bold]{summary.num_utterances:,} utterances[/bold], {length}, {speakers}")
        console.print(f"  format      {'; '.join(summary.formats)}", markup=False)
        console.print(f"  text        {summary.frontend}", markup=False)
        console.print(f"  languages   {languages}", markup=False)
        console.print(f"  split       {splits}", markup=False)
        console.print(f"  checked in  {summary.elapsed_s:.1f} s ({rate:,.0f} utterances a second)")
        for note in summary.notes:
            self._screen.warn(note)
        for path, number in summary.doubtful.items():
            plural = "clips are" if number > 1 else "clip is"
            line = f"{number:,} doubtful {plural} not used until you accept them: myxtts studio {shlex.quote(path)}"
            console.print(line, markup=False, soft_wrap=True)
        if summary.num_rejected:
            show_rejections(summary.examples, summary.num_rejected, summary.reasons, console)
            self._warn_of_many(summary)
        if summary.needs is not None:
            show_needs(summary.needs, console)
        console.print(f"Corpus and report are in {summary.out}", markup=False)

    def _warn_of_many(self, summary: Summary) -> None:
        """Warns where most recordings cannot be used, which `--max-rejected-share 1` accepts."""
        share = summary.num_rejected / (summary.num_rejected + summary.num_utterances)
        if share > _MANY_REJECTED:
            first = next(iter(summary.reasons), "")
            self._screen.warn(
                f"{100 * share:.0f} % of the recordings were rejected, most of them as {first}. "
                "Fix that first: the rest is hardly enough to train on."
            )

    def show_store(self, summary: PrecomputeSummary) -> None:
        """Prints size, counts and speed of a precompute run, then its rejections."""
        console = self._screen.console
        length, size_mb = format_length(summary.seconds), summary.num_bytes / 2**20
        rate = summary.num_made / max(summary.elapsed_s, 1e-9)
        counts = f"{summary.num_made:,} made, {summary.num_kept:,} kept, {summary.num_removed:,} removed"
        console.print(f"[bold]{summary.num_utterances:,} utterances[/bold], {length}, {size_mb:,.1f} MB")
        console.print(f"  {counts} in {summary.elapsed_s:.1f} s ({rate:,.0f} utterances a second)")
        if summary.num_rejected:
            show_rejections(summary.examples, summary.num_rejected, summary.reasons, console)
        console.print(f"Features are in {summary.folder}", markup=False)


def show_needs(needs: Needs, console: Console) -> None:
    """Prints whether the corpus is enough: what it has, what it lacks, and the sentences to record."""
    console.print("[bold]Enough?[/bold]")
    for line in needs.lines:
        print_paragraph(console, Text(f"  {printable(line)}"))
    for line in needs.lacking:
        print_paragraph(console, Text(f"  Lacking: {printable(line)}", style="yellow"))
    for language, sentences in needs.suggested.items():
        console.print(f"  To record next ({language}), the best first; all in {needs.files[language]}:", markup=False)
        for sentence in sentences[:_NUM_SENTENCES_SHOWN]:
            print_paragraph(console, Text(f"    {sentence}"))


def show_clips(report: ClipReport, verified: Verified | None, screen: Screen, tr: Translator) -> None:
    """Prints the most doubtful clips with their reasons, and both ways of training where they were tried."""
    from myxtts.tools.clips.page import ALIGNED_BY_BASE, describe_verified, list_verified

    table = Table(title=tr("Most doubtful clips"), title_justify="left", title_style="bold")
    for column in tr.row("doubt", "clip", "text", "reasons"):
        table.add_column(column, overflow="fold")
    for clip in report.worst[:NUM_EXAMPLES]:
        reasons = tr.join(tr(str(reason)) for reason in clip.finding.reasons)
        cells = (f"{clip.finding.doubt:.2f}", clip.finding.id, clip.utterance.text[:_MAX_TEXT_SHOWN], reasons)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    screen.console.print(table)
    if report.num_worst > NUM_EXAMPLES:
        more = tr.count(report.num_worst - NUM_EXAMPLES)
        screen.console.print(tr("… and {count} more on the page.", count=more), markup=False)
    if report.is_base:
        print_paragraph(screen.console, Text(tr(ALIGNED_BY_BASE)))
    if verified is None:
        screen.console.print(tr(_EXPECTED), markup=False)
        return
    print_paragraph(screen.console, Text(describe_verified(verified, tr)))
    for name, before, after in list_verified(verified, tr):
        screen.console.print(f"  {name}: {before} → {after}", markup=False)


def show_rejections(examples: list[Rejection], num_rejected: int, reasons: dict[str, int], console: Console) -> None:
    """Prints the first rejections as a table, then each reason with its number, an example and what to do."""
    table = Table(title=f"{num_rejected:,} rejected", title_justify="left", title_style="bold yellow")
    for column in ("place", "id", "reason", "detail"):
        table.add_column(column, overflow="fold")
    for rejection in examples[:NUM_EXAMPLES]:
        cells = (rejection.place, rejection.id, rejection.reason, rejection.detail)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    console.print(table)
    if num_rejected > NUM_EXAMPLES:
        console.print(f"… and {num_rejected - NUM_EXAMPLES:,} more.")
    console.print("By reason, with an example and what to do:")
    for line in describe_reasons(reasons, examples):
        print_paragraph(console, Text(f"  {printable(line)}"))
    console.print("All of them are in rejections.csv.")


def show_training(result: TrainResult, screen: Screen, tr: Translator) -> dict[str, Any]:
    """Prints the end of a training and writes the report of its run; returns the same as fields for JSON."""
    console = screen.console
    losses = ", ".join(f"{name} {value:.3f}" for name, value in result.losses.items())
    console.print(f"[bold]Step {result.step:,}[/bold] after {format_length(result.seconds)}. {losses}")
    if result.num_skipped:
        console.print(f"  {result.num_skipped:,} steps were skipped; see skipped.jsonl in the run.")
    console.print(f"The run is in {result.run_path}, the model in {result.bundle_path}", markup=False)
    return {"report": _write_report(result.run_path, screen, tr) if result.is_chief else None, **result.to_json()}


def _write_report(run_path: Path, screen: Screen, tr: Translator) -> str | None:
    """Writes the HTML report of the run; a full disk is a warning, since the training itself has succeeded."""
    from myxtts.tools.run_report import write_run_report

    try:
        report = write_run_report(run_path, lang=tr.lang)
    except StorageError as error:
        screen.warn(f"The report was not written: {error}")
        return None
    screen.console.print(f"The report is {report}", markup=False)
    return str(report)


def printable(text: str) -> str:
    """Replaces control characters of foreign text, such as terminal escapes and lone surrogates."""
    return "".join(symbol if symbol.isprintable() else "\N{REPLACEMENT CHARACTER}" for symbol in text)
