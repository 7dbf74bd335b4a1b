"""`myxtts prepare`: checks a folder of recordings and writes a corpus and a rejection report."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from myxtts.cli.screen import Screen, format_length, mute_decoders, show_progress
from myxtts.cli.settings import load_config
from myxtts.config.choices import CorpusFormat

if TYPE_CHECKING:
    from myxtts.config.schema import DataConfig
    from myxtts.corpus.prepare import Recordings, Summary
    from myxtts.corpus.rejections import Rejection


def prepare(
    recordings: Annotated[Path, typer.Argument(help="Folder or transcript of your recordings.", metavar="DIR")],
    out: Annotated[Path, typer.Option("--out", help="Folder to write the corpus and the report into.", metavar="DIR")],
    corpus_format: Annotated[
        str | None,
        typer.Option("--format", help=f"{', '.join(get_args(CorpusFormat)[1:])}; found by itself."),
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="Language of utterances that name none, such as en or fa.")
    ] = None,
    audio_root: Annotated[
        Path | None,
        typer.Option(help="Folder of the recordings where they are not beside the transcript.", metavar="DIR"),
    ] = None,
    val_data: Annotated[Path | None, typer.Option(help="Recordings to validate on.", metavar="DIR")] = None,
    val_share: Annotated[
        str | None, typer.Option(help="Share of utterances kept for validation.", metavar="SHARE")
    ] = None,
    split_by: Annotated[
        str | None, typer.Option(help="What may not be torn apart: utterance, speaker or text.")
    ] = None,
    seed: Annotated[str | None, typer.Option(help="Another seed gives another split.", metavar="N")] = None,
    num_workers: Annotated[
        str | None, typer.Option(help="Threads that check recordings, or auto.", metavar="N")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="End with an error if anything was rejected.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Read headers only: silence, clipping and damage go unseen.")
    ] = False,
    config: Annotated[str | None, typer.Option("--config", help="Configuration file (YAML).", metavar="FILE")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting; repeatable.", metavar="KEY=VALUE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False,
) -> None:
    """Check every recording and transcript, and write a corpus and a rejection report.

    Finds the format by itself. Nothing is skipped silently: what cannot be used is listed with file, line, reason and
    what to do, on the screen and in rejections.csv and rejections.json.

    [bold]Examples[/bold]

    myxtts prepare LJSpeech-1.1 --out corpus

    myxtts prepare recordings/ --out corpus --language fa --split-by speaker

    myxtts prepare train.jsonl --val-data dev.jsonl --out corpus --strict --json
    """
    from myxtts.config.load import write_resolved
    from myxtts.corpus.prepare import Recordings

    flags = (
        ("data.corpus_format", corpus_format, "--format"),
        ("data.language", language, "--language"),
        ("data.val_share", val_share, "--val-share"),
        ("data.split_by", split_by, "--split-by"),
        ("data.num_workers", num_workers, "--num-workers"),
        ("training.seed", seed, "--seed"),
    )
    settings = load_config(config, assignments or [], (flag for flag in flags if flag[1] is not None))
    fmt = settings.data.corpus_format
    inputs = [Recordings(recordings, fmt, audio_root, split="train" if val_data else None)]
    if val_data:
        inputs.append(Recordings(val_data, fmt, audio_root, split="val"))
    screen = Screen(as_json=as_json)
    summary = run_prepare(inputs, out, settings.data, screen, seed=settings.training.seed, strict=strict, quick=quick)
    write_resolved(settings, out)
    screen.finish(summarize(summary))


def run_prepare(
    inputs: list[Recordings], out: Path, data: DataConfig, screen: Screen, *, seed: int, strict: bool, quick: bool
) -> Summary:
    """Prepares with a progress bar, then shows the outcome."""
    from myxtts.corpus.prepare import prepare_corpus
    from myxtts.runtime.hardware import count_cpus

    num_threads = count_cpus() if data.num_workers == "auto" else max(1, data.num_workers)
    with mute_decoders(), show_progress("Checking", None, "utterances") as view:
        summary = prepare_corpus(
            inputs,
            out,
            data,
            seed=seed,
            strict=strict,
            headers_only=quick,
            num_threads=num_threads,
            progress=lambda accepted, rejected: view.update(accepted + rejected, f"{rejected:,} rejected"),
        )
    show_summary(summary, screen)
    return summary


def show_summary(summary: Summary, screen: Screen) -> None:
    console = screen.console
    length = format_length(summary.seconds)
    splits = ", ".join(f"{count:,} {split}" for split, count in sorted(summary.splits.items()) if count)
    languages = ", ".join(f"{language} {count:,}" for language, count in summary.languages.most_common(8))
    rate = (summary.num_utterances + summary.num_rejected) / max(summary.elapsed_s, 1e-9)
    speakers = "1 speaker" if len(summary.speakers) == 1 else f"{len(summary.speakers):,} speakers"
    console.print(f"[bold]{summary.num_utterances:,} utterances[/bold], {length}, {speakers}")
    console.print(f"  format      {'; '.join(summary.formats)}", markup=False)
    console.print(f"  text        {summary.frontend}", markup=False)
    console.print(f"  languages   {languages}", markup=False)
    console.print(f"  split       {splits}", markup=False)
    console.print(f"  checked in  {summary.elapsed_s:.1f} s ({rate:,.0f} utterances a second)")
    for note in summary.notes:
        screen.warn(note)
    if summary.num_rejected:
        show_rejections(summary.examples, summary.num_rejected, summary.reasons, screen)
    console.print(f"Corpus and report are in {summary.out}", markup=False)


def show_rejections(examples: list[Rejection], num_rejected: int, reasons: dict[str, int], screen: Screen) -> None:
    """The first rejections as a table, and how many there are of each kind."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"{num_rejected:,} rejected", title_justify="left", title_style="bold yellow")
    for column in ("place", "id", "reason", "detail"):
        table.add_column(column, overflow="fold")
    for rejection in examples:
        place = f"{rejection.file}:{rejection.line}"
        table.add_row(*(Text(printable(cell)) for cell in (place, rejection.id, rejection.reason, rejection.detail)))
    screen.console.print(table)
    if num_rejected > len(examples):
        screen.console.print(f"… and {num_rejected - len(examples):,} more.")
    counts = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
    screen.console.print(f"In all: {counts}. What to do is in rejections.csv, line by line.", markup=False)


def printable(text: str) -> str:
    """Text of a stranger's transcript without what could move the cursor or break the encoding."""
    return "".join(symbol if symbol.isprintable() else "\N{REPLACEMENT CHARACTER}" for symbol in text)


def summarize(summary: Summary) -> dict[str, Any]:
    """The summary for programs."""
    values = {field.name: getattr(summary, field.name) for field in fields(summary)}
    values["rejections"] = [asdict(rejection) for rejection in values.pop("examples")]
    out = Path(summary.out)
    values["files"] = {
        "corpus": str(out / "corpus.jsonl"),
        "frontend": str(out / "frontend.json"),
        "rejections_json": str(out / "rejections.json"),
        "rejections_csv": str(out / "rejections.csv"),
    }
    return values
