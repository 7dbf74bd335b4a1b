"""`myxtts precompute`: fills, verifies, repairs, compacts or aligns the feature store of a corpus."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from myxtts.cli.screen import Screen, mute_decoders, show_progress
from myxtts.cli.settings import takes_settings
from myxtts.errors import DataError, UsageError

if TYPE_CHECKING:
    from myxtts.config.schema import XTTSConfig
    from myxtts.store.verify import VerifyReport

_NUM_PROBLEMS_SHOWN = 20


@takes_settings
def run_precompute(
    config: XTTSConfig,
    check: Annotated[
        bool, typer.Option("--check", help="Verify the store; exit code 3 if anything is broken.")
    ] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Verify the store and make what is broken anew.")] = False,
    compact: Annotated[bool, typer.Option("--compact", help="Drop records that were replaced or removed.")] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make all features anew, whatever the store holds.")
    ] = False,
    durations_from: Annotated[
        Path | None,
        typer.Option(
            "--durations-from",
            help="Align the stored utterances with the model of this run, for training.durations=stored.",
            metavar="RUN",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            help="Compute on a Ray cluster: HOST:PORT of one that runs and that this machine belongs to, or local.",
            metavar="ADDRESS",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False,
) -> None:
    """Turn a corpus into features once, into a store that training reads at memory speed.

    Goes on where it stopped if it was interrupted, makes only what changed if the corpus grew, and never leaves a
    half-made store behind. Recordings that were not prepared yet are checked first. With --ray several hosts that see
    the same folders compute the features.

    [bold]Examples[/bold]

    myxtts precompute --train-data corpus

    myxtts precompute --train-data LJSpeech-1.1 --cache-dir features --set data.mel_dtype=float16

    myxtts precompute --cache-dir features --check

    myxtts precompute --train-data /shared/corpus --cache-dir /shared/features --ray 10.0.0.5:6379

    myxtts precompute --durations-from runs/run
    """
    from myxtts.cli.reports import ScreenReport
    from myxtts.store.provide import find_store_folder, make_features

    screen = Screen(as_json=as_json)
    if sum((check, fix, compact, rebuild, durations_from is not None)) > 1:
        raise UsageError(
            "--check, --fix, --compact, --rebuild and --durations-from exclude each other.",
            next_step="Give one of them.",
        )
    if ray is not None and any((check, fix, compact, durations_from)):
        raise UsageError(
            "--ray is for making features.", next_step="Leave out --check, --fix, --compact or --durations-from."
        )
    if durations_from is not None:
        screen.finish(_align(config, durations_from, screen))
        return
    folder = find_store_folder(config.data, UsageError)
    if check or fix:
        screen.finish(_verify(config, folder, screen, fix=fix))
    elif compact:
        screen.finish(_compact(folder, screen))
    else:
        screen.finish(make_features(config, ScreenReport(screen), rebuild=rebuild, ray_address=ray))


def _verify(config: XTTSConfig, folder: Path, screen: Screen, *, fix: bool) -> dict[str, Any]:
    """Verifies or repairs the store; raises DataError (exit code 3) with the report if it is still damaged."""
    from myxtts.store.provide import count_threads
    from myxtts.store.verify import verify_store

    named = Path(config.data.train_data) if config.data.train_data else None
    with mute_decoders(), show_progress("Verifying", None, "utterances") as view:
        report = verify_store(
            folder,
            fix=fix,
            corpus=named,
            num_threads=count_threads(config.data),
            progress=lambda seen, broken: view.update(seen, f"{broken:,} broken"),
        )
    _show_report(report, folder, screen)
    if not report.is_whole:
        left = report.num_broken - report.num_repaired
        problem = f"The store in {folder} is not whole: {left:,} parts are broken"
        if fix:
            problem += f", {report.num_unrecoverable:,} could not be made anew and were left out"
        remedy = "The list says why." if fix else f"Repair it with: myxtts precompute --cache-dir {folder} --fix"
        raise DataError(f"{problem}.", next_step=remedy, details=report.to_json())
    return report.to_json()


def _show_report(report: VerifyReport, folder: Path, screen: Screen) -> None:
    """Prints the first problems and the counts."""
    for problem in report.problems[:_NUM_PROBLEMS_SHOWN]:
        screen.console.print(f"  {problem}", markup=False)
    if len(report.problems) > _NUM_PROBLEMS_SHOWN:
        screen.console.print(f"  … and {len(report.problems) - _NUM_PROBLEMS_SHOWN:,} more")
    line = f"{folder}: {report.num_checked:,} parts checked, {report.num_broken:,} broken"
    repaired = f", {report.num_repaired:,} repaired, {report.num_unrecoverable:,} not recoverable"
    screen.console.print(line + (repaired if report.num_repaired or report.num_unrecoverable else ""), markup=False)


def _align(config: XTTSConfig, run: Path, screen: Screen) -> dict[str, Any]:
    """Aligns all utterances of a store with a trained model; the store is that of the run unless one is named."""
    from myxtts.runtime.load_tensorflow import load_tensorflow
    from myxtts.training.voice.align import plan_alignment

    plan = plan_alignment(config, run)
    screen.notices.print(f"Aligning {plan.folder} with the model of step {plan.origin.step:,} in {run}.", markup=False)
    load_tensorflow()
    from myxtts.training.voice.align import align_store

    with show_progress("Aligning", plan.num_utterances, "utterances") as view:
        summary = align_store(
            plan, progress=lambda done, unaligned: view.update(done, f"{unaligned:,} beyond alignment")
        )
    counts = f"{summary.num_aligned:,} aligned, {summary.num_kept:,} kept"
    beyond = f", {summary.num_unaligned:,} too fast to be aligned, which training leaves out" * bool(
        summary.num_unaligned
    )
    screen.console.print(f"{counts}{beyond}.")
    screen.console.print("Train with them: --set training.durations=stored")
    return asdict(summary)


def _compact(folder: Path, screen: Screen) -> dict[str, Any]:
    """Drops superseded records; prints the size before and after."""
    from myxtts.store.update import compact_store

    summary = compact_store(folder)
    before, after = summary.num_bytes_before / 2**20, summary.num_bytes_after / 2**20
    screen.console.print(f"{summary.num_utterances:,} utterances: {before:,.1f} MB became {after:,.1f} MB.")
    return asdict(summary)
