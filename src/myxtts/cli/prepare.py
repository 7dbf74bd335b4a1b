"""`myxtts prepare`: checks a folder of recordings and writes a corpus and a rejection report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from myxtts.cli.screen import Screen
from myxtts.cli.settings import load_config
from myxtts.config.choices import CorpusFormat


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
    max_rejected_share: Annotated[
        str | None,
        typer.Option(help="Largest share of rejected utterances, usually 0.25; 1 accepts any.", metavar="SHARE"),
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
    from myxtts.cli.reports import ScreenReport
    from myxtts.config.load import write_resolved
    from myxtts.corpus.prepare import Recordings
    from myxtts.store.provide import check_recordings

    flags = (
        ("data.corpus_format", corpus_format, "--format"),
        ("data.language", language, "--language"),
        ("data.val_share", val_share, "--val-share"),
        ("data.split_by", split_by, "--split-by"),
        ("data.num_workers", num_workers, "--num-workers"),
        ("data.max_rejected_share", max_rejected_share, "--max-rejected-share"),
        ("training.seed", seed, "--seed"),
    )
    settings = load_config(config, assignments or [], (flag for flag in flags if flag[1] is not None))
    fmt = settings.data.corpus_format
    inputs = [Recordings(recordings, fmt, audio_root, split="train" if val_data else None)]
    if val_data:
        inputs.append(Recordings(val_data, fmt, audio_root, split="val"))
    screen = Screen(as_json=as_json)
    summary = check_recordings(
        inputs,
        out,
        settings.data,
        ScreenReport(screen),
        seed=settings.training.seed,
        strict=strict,
        headers_only=quick,
    )
    write_resolved(settings, out)
    screen.finish(summary.to_json())
