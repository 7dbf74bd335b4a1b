"""`myxtts prepare`: checks a folder of recordings and writes a corpus and a rejection report."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, get_args

import typer

from myxtts.cli.help import ADVANCED, SPEED, WHAT, WHERE
from myxtts.cli.screen import Screen
from myxtts.cli.settings import load_config
from myxtts.config.choices import CorpusFormat


def prepare(
    recordings: Annotated[Path, typer.Argument(help="Folder or transcript of your recordings.", metavar="DIR")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", help="Folder to write the corpus and the report into.", metavar="DIR", rich_help_panel=WHERE
        ),
    ],
    corpus_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help=f"Layout: {', '.join(get_args(CorpusFormat)[1:])}. \\[default: detected]",
            metavar="LAYOUT",
            rich_help_panel=WHAT,
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            help="Language of utterances that name none, such as fa. \\[default: en]",
            metavar="CODE",
            rich_help_panel=WHAT,
        ),
    ] = None,
    audio_root: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the recordings, if they are not beside the transcript.",
            metavar="DIR",
            rich_help_panel=WHERE,
        ),
    ] = None,
    val_data: Annotated[
        Path | None, typer.Option(help="Recordings for validation.", metavar="DIR", rich_help_panel=WHAT)
    ] = None,
    val_share: Annotated[
        str | None,
        typer.Option(
            help="Share of utterances kept for validation. \\[default: 0.05]", metavar="SHARE", rich_help_panel=WHAT
        ),
    ] = None,
    split_by: Annotated[
        str | None,
        typer.Option(
            help="speaker or text: keep all clips of a speaker (or text) in one split. \\[default: utterance]",
            metavar="KEY",
            rich_help_panel=WHAT,
        ),
    ] = None,
    seed: Annotated[
        str | None,
        typer.Option(
            help="Another seed gives another validation split. \\[default: 0]", metavar="N", rich_help_panel=ADVANCED
        ),
    ] = None,
    num_workers: Annotated[
        str | None,
        typer.Option(help="Threads that check recordings. \\[default: auto]", metavar="N", rich_help_panel=SPEED),
    ] = None,
    max_rejected_share: Annotated[
        str | None,
        typer.Option(
            help="Stop if a larger share is rejected; 1 accepts any. \\[default: 0.25]",
            metavar="SHARE",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with an error if anything was rejected.", rich_help_panel=ADVANCED)
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Check file headers only: faster, but silence, clipping and damage are not found.",
            rich_help_panel=SPEED,
        ),
    ] = False,
    suggest: Annotated[
        int,
        typer.Option(
            min=0,
            help="Write this many sentences to prompts-LANGUAGE.txt that would improve the corpus most if recorded.",
            metavar="N",
            rich_help_panel=WHAT,
        ),
    ] = 0,
    config: Annotated[
        str | None,
        typer.Option("--config", help="Configuration file (YAML).", metavar="FILE", rich_help_panel=ADVANCED),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Any other setting; can be repeated. See: myxtts config",
            metavar="KEY=VALUE",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False,
) -> None:
    """Check recordings and transcripts, and write a corpus for training.

    The layout is detected (LJSpeech, VCTK, LibriTTS, Common Voice, CSV, JSONL). Every clip is decoded and checked.
    Rejected clips are listed with file, line, reason and what to do, on the screen and in rejections.csv.
    The end of the output says what the corpus lacks: sounds, minutes per speaker, level and noise.

    Recordings without transcripts: myxtts collect --help

    [bold]Examples[/bold]

    myxtts prepare LJSpeech-1.1 --out corpus

    myxtts prepare recordings/ --out corpus --language fa --split-by speaker

    myxtts prepare recordings/ --out corpus --suggest 50

    myxtts prepare train.jsonl --val-data dev.jsonl --out corpus --strict
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
        num_suggested=suggest,
    )
    write_resolved(settings, out)
    screen.notices.print(_name_next_step(out, summary.seconds), markup=False, soft_wrap=True)
    screen.finish(summary.to_json())


def _name_next_step(out: Path, seconds: float) -> str:
    """Says how to train on the corpus: a small one adapts the base model."""
    from myxtts.training.voice.adapt import SMALL_MINUTES

    command = f"myxtts train --train-data {shlex.quote(str(out))}"
    if seconds < 60 * SMALL_MINUTES:
        return (
            f"Next: {command} --init-from base\n"
            f"This adapts the base model: less than {SMALL_MINUTES:g} minutes are too few to train from scratch."
        )
    return f"Next, on a CPU: {command} --model-size tiny --steps 16000\nWith a GPU: --model-size small --steps 50000"
