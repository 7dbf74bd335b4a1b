"""`myxtts prepare`: checks a folder of recordings and writes a corpus and a rejection report."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, get_args

import typer

from myxtts.cli.help import ADVANCED, SPEED, WHAT, WHERE, option
from myxtts.cli.screen import Screen
from myxtts.cli.settings import load_config
from myxtts.config.choices import CorpusFormat


def prepare(
    recordings: Annotated[Path, typer.Argument(help="Folder or transcript of your recordings.", metavar="DIR")],
    out: Annotated[Path, option("Folder to write the corpus and the report into.", "DIR", WHERE, flag="--out")],
    corpus_format: Annotated[
        str | None,
        option(
            f"Layout: {', '.join(get_args(CorpusFormat)[1:])}. \\[default: detected]", "LAYOUT", WHAT, flag="--format"
        ),
    ] = None,
    language: Annotated[
        str | None, option("Language of utterances that name none, such as fa. \\[default: en]", "CODE", WHAT)
    ] = None,
    audio_root: Annotated[
        Path | None, option("Folder of the recordings, if they are not beside the transcript.", "DIR", WHERE)
    ] = None,
    val_data: Annotated[Path | None, option("Recordings for validation.", "DIR", WHAT)] = None,
    val_share: Annotated[
        str | None, option("Share of utterances kept for validation. \\[default: 0.05]", "SHARE", WHAT)
    ] = None,
    split_by: Annotated[
        str | None,
        option(
            "speaker or text: keep all clips of a speaker (or text) in one split. \\[default: utterance]", "KEY", WHAT
        ),
    ] = None,
    seed: Annotated[
        str | None, option("Another seed gives another validation split. \\[default: 0]", "N", ADVANCED)
    ] = None,
    num_workers: Annotated[str | None, option("Threads that check recordings. \\[default: auto]", "N", SPEED)] = None,
    max_rejected_share: Annotated[
        str | None, option("Stop if a larger share is rejected; 1 accepts any. \\[default: 0.25]", "SHARE", ADVANCED)
    ] = None,
    strict: Annotated[
        bool, option("Exit with an error if anything was rejected.", panel=ADVANCED, flag="--strict")
    ] = False,
    quick: Annotated[
        bool,
        option(
            "Check file headers only: faster, but silence, clipping and damage are not found.",
            panel=SPEED,
            flag="--quick",
        ),
    ] = False,
    suggest: Annotated[
        int,
        option(
            "Write this many sentences to prompts-LANGUAGE.txt that would improve the corpus most if recorded.",
            "N",
            WHAT,
            min=0,
        ),
    ] = 0,
    config: Annotated[str | None, option("Configuration file (YAML).", "FILE", ADVANCED, flag="--config")] = None,
    assignments: Annotated[
        list[str] | None,
        option("Any other setting; can be repeated. See: myxtts config", "KEY=VALUE", ADVANCED, flag="--set"),
    ] = None,
    as_json: Annotated[bool, option("Print the summary as one JSON object.", flag="--json")] = False,
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
    from myxtts.cli.summaries import ScreenReport
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
    screen.notices.print(_name_next_step(out, summary.seconds, summary.languages), markup=False, soft_wrap=True)
    screen.finish(summary.to_json())


def _name_next_step(out: Path, seconds: float, languages: Iterable[str]) -> str:
    """Says how to train on the corpus: a small one adapts the base model, which is also the best start on a CPU."""
    from myxtts.training.voice.adapt import SMALL_MINUTES, is_known_to_base

    command = f"myxtts train --train-data {shlex.quote(str(out))}"
    if seconds < 60 * SMALL_MINUTES:
        return (
            f"Next: {command} --init-from base\n"
            f"This adapts the base model: less than {SMALL_MINUTES:g} minutes are too few to train from scratch."
        )
    on_cpu = "--init-from base --minutes 60" if is_known_to_base(languages) else "--model-size tiny --steps 16000"
    return f"Next, on a CPU: {command} {on_cpu}\nWith a GPU: --model-size small --steps 50000"
