"""`myxtts collect`: cuts long recordings into clips and writes a manifest that `prepare` reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from myxtts.cli.help import ADVANCED, WHAT, WHERE, Recogniser, option
from myxtts.cli.screen import Screen, format_length, mute_decoders, show_progress

if TYPE_CHECKING:
    from myxtts.tools.collect.build import CollectSummary


def run_collect(
    recordings: Annotated[Path, typer.Argument(help="A long recording, or a folder of them.", metavar="RECORDINGS")],
    out: Annotated[Path, option("Folder for clips, manifest and report.", "DIR", WHERE, flag="--out")],
    language: Annotated[str, option("Language that is spoken, such as en or fa.", "CODE", WHAT)] = "en",
    asr_command: Recogniser = None,
    subtitles: Annotated[
        Path | None,
        option(
            "SRT or WebVTT file, or a folder of them. Files beside the recordings are found automatically.",
            "PATH",
            WHAT,
        ),
    ] = None,
    text: Annotated[
        Path | None, option("Text of the whole recording, or a folder with NAME.txt for each.", "PATH", WHAT)
    ] = None,
    voice_model: Annotated[
        Path | None, option("Model that finds clips of other voices: a run, or base.", "RUN", ADVANCED)
    ] = None,
    speaker: Annotated[str, option("Name of the speaker. \\[default: folder of each recording]", "NAME", WHAT)] = "",
    min_seconds: Annotated[float, option("Shortest clip.", "SECONDS", ADVANCED)] = 2.0,
    max_seconds: Annotated[float, option("Longest clip.", "SECONDS", ADVANCED)] = 12.0,
    min_snr: Annotated[
        float, option("Smallest signal-to-noise ratio; noisier clips are rejected.", "DECIBELS", ADVANCED)
    ] = 12.0,
    as_json: Annotated[bool, option("Print the summary as one JSON object.", flag="--json")] = False,
) -> None:
    """Cut long recordings into clips with transcripts, for myxtts prepare.

    Recordings are cut at pauses. The transcripts come from a speech recogniser, from subtitles, or from a text
    of the whole recording. Doubtful clips are not used; they are listed in rejections.csv and doubtful.jsonl. Run the
    same command again to continue after an interruption.

    [bold]Examples[/bold]

    myxtts collect audiobook.mp3 --out collected --text book.txt

    myxtts collect podcast/ --out collected --asr-command "my-asr {wav}"

    myxtts collect talk.flac --out collected --subtitles talk.srt
    """
    from myxtts.config.languages import canonical_language
    from myxtts.tools.collect.build import CollectOptions, collect_corpus
    from myxtts.tools.collect.judge import Limits

    screen = Screen(as_json=as_json)

    def _say(message: str) -> None:
        screen.notices.print(message, markup=False, soft_wrap=True)

    options = CollectOptions(
        canonical_language(language),
        speaker,
        min_seconds,
        max_seconds,
        Limits(min_snr_db=min_snr),
        asr_command,
        subtitles,
        text,
        voice_model,
    )
    with mute_decoders():
        summary = collect_corpus(recordings, out, options, show_progress, _say)
    _show(summary, out, screen)
    screen.finish(_to_json(summary, out))


def _show(summary: CollectSummary, out: Path, screen: Screen) -> None:
    """Prints what was made, what was left out and why, and what to do next."""
    from myxtts.corpus.rejections import describe_reasons

    share = 100 * summary.seconds / max(summary.recorded_s, 1e-6)
    lengths = f"{format_length(summary.seconds)} of {format_length(summary.recorded_s)} ({share:.0f} %)"
    lines = [f"{summary.num_clips:,} clips, {lengths}: {out / 'manifest.jsonl'}"]
    if summary.num_rejected:
        lines.append(f"{summary.num_rejected:,} places are not used; all are listed in {out / 'rejections.csv'}:")
        lines += [f"  {line}" for line in describe_reasons(summary.reasons, summary.examples)]
    lines.append(f"Next: {name_next_step(summary, out)}")
    for line in lines:
        screen.console.print(line, markup=False, soft_wrap=True)


def name_next_step(summary: CollectSummary, out: Path) -> str:
    """Returns the command that follows, or how to get the texts that are missing."""
    if summary.has_texts:
        return f"myxtts prepare {out} --out {out}/prepared"
    return (
        f"write what is said (myxtts studio {out}), or run this again with "
        f"--asr-command, --subtitles or --text; then myxtts prepare {out} --out {out}/prepared"
    )


def _to_json(summary: CollectSummary, out: Path) -> dict[str, Any]:
    from dataclasses import asdict

    values = asdict(summary)
    values["rejections"] = values.pop("examples")
    names = {"manifest": "manifest.jsonl", "doubtful": "doubtful.jsonl", "rejections_csv": "rejections.csv"}
    return {
        **values,
        "next": name_next_step(summary, out),
        "files": {kind: str(out / name) for kind, name in names.items()},
    }
