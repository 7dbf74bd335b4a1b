"""`myxtts precompute`: computes the features of a corpus into a feature cache, or durations and readings by a model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from myxtts.cli.corpus.cache import compact_cache, verify_cache
from myxtts.cli.help import ADVANCED, SPEED, option
from myxtts.cli.screen import Screen, print_note, show_progress
from myxtts.cli.settings import takes_settings
from myxtts.errors import UsageError

if TYPE_CHECKING:
    from myxtts.config.schema import XTTSConfig

_CACHE_COMMANDS = {"--check": "check", "--fix": "repair", "--compact": "compact", "--rebuild": "rebuild"}
_NUM_CHANGES_SHOWN = 10


@takes_settings("train_data", "val_data", "language", "cache_dir", "num_workers", hidden=("gpu_card",))
def run_precompute(
    config: XTTSConfig,
    durations_from: Annotated[
        Path | None,
        option(
            "Store the durations that the model of this run finds, for training.durations=stored.",
            "RUN",
            ADVANCED,
            flag="--durations-from",
        ),
    ] = None,
    refine_with: Annotated[
        Path | None,
        option(
            "Let the recordings decide ezafe and homographs of Persian texts, by the model of this run.",
            "RUN",
            ADVANCED,
            flag="--refine-with",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        option("Compute on a Ray cluster: HOST:PORT of one that this machine belongs to, or local.", "ADDRESS", SPEED),
    ] = None,
    check: Annotated[bool, option("Old name of myxtts cache check.", flag="--check", hidden=True)] = False,
    fix: Annotated[bool, option("Old name of myxtts cache repair.", flag="--fix", hidden=True)] = False,
    compact: Annotated[bool, option("Old name of myxtts cache compact.", flag="--compact", hidden=True)] = False,
    rebuild: Annotated[bool, option("Old name of myxtts cache rebuild.", flag="--rebuild", hidden=True)] = False,
    as_json: Annotated[bool, option("Print the summary as one JSON object.", flag="--json")] = False,
) -> None:
    """Compute the features of a corpus once and store them in a feature cache for training.

    Run it again to continue after an interruption, or to add what is new in the corpus. Recordings that were not
    prepared yet are checked first. With --ray, several hosts that see the same folders compute the features.

    To check or repair a feature cache: myxtts cache --help

    [bold]Examples[/bold]

    myxtts precompute --train-data corpus

    myxtts precompute --train-data LJSpeech-1.1 --cache-dir features

    myxtts precompute --train-data /shared/corpus --ray 10.0.0.5:6379

    myxtts precompute --durations-from runs/run

    myxtts precompute --refine-with runs/run
    """
    from myxtts.cli.summaries import ScreenReport
    from myxtts.store.provide import find_store_folder, make_features

    screen = Screen(as_json=as_json)
    tasks = {"--check": check, "--fix": fix, "--compact": compact, "--rebuild": rebuild}
    asked = [flag for flag, is_given in tasks.items() if is_given]
    by_model = {"--durations-from": durations_from, "--refine-with": refine_with}
    all_asked = [*asked, *(flag for flag, run in by_model.items() if run is not None)]
    if len(all_asked) > 1:
        raise UsageError(f"{' and '.join(all_asked)} cannot be used together.", next_step="Give one of them.")
    if ray is not None and set(all_asked) - {"--rebuild"}:
        raise UsageError("--ray only computes features.", next_step=f"Leave out --ray or {all_asked[0]}.")
    for flag in asked:
        print_note(f"{flag} is an old name: use myxtts cache {_CACHE_COMMANDS[flag]}.")
    if refine_with is not None:
        screen.finish(_refine(config, refine_with, screen))
        return
    if durations_from is None:
        find_store_folder(config.data, UsageError)
    if durations_from is not None:
        screen.finish(_align(config, durations_from, screen))
    elif check or fix:
        screen.finish(verify_cache(config, screen, fix=fix))
    elif compact:
        screen.finish(compact_cache(config, screen))
    else:
        screen.finish(make_features(config, ScreenReport(screen), rebuild=rebuild, ray_address=ray))


def _align(config: XTTSConfig, run: Path, screen: Screen) -> dict[str, Any]:
    """Aligns all utterances of a feature cache with a trained model; that of the run unless one is named."""
    from myxtts.runtime.load_tensorflow import load_tensorflow
    from myxtts.training.voice.align import plan_alignment

    plan = plan_alignment(config, run)
    screen.notices.print(f"Aligning {plan.folder} with the model of step {plan.origin.step:,} in {run}.", markup=False)
    load_tensorflow()
    from myxtts.training.voice.align import align_store

    with show_progress("Aligning", plan.num_utterances, "utterances") as view:
        summary = align_store(plan, progress=lambda done, unaligned: view.update(done, f"{unaligned:,} not alignable"))
    counts = f"{summary.num_aligned:,} aligned, {summary.num_kept:,} kept"
    beyond = f", {summary.num_unaligned:,} not alignable (speech too fast): training skips them" * bool(
        summary.num_unaligned
    )
    screen.console.print(f"{counts}{beyond}.")
    screen.console.print("Train with them: --set training.durations=stored")
    return asdict(summary)


def _refine(config: XTTSConfig, run: Path, screen: Screen) -> dict[str, Any]:
    """Decides the open words of Persian texts by their recordings, and makes the tokens that this changes."""
    from myxtts.cli.summaries import ScreenReport
    from myxtts.corpus.corpus_file import open_corpus
    from myxtts.runtime.load_tensorflow import load_tensorflow
    from myxtts.store.provide import make_features
    from myxtts.training.voice.align import plan_alignment
    from myxtts.training.voice.refine import plan_refinement

    plan = plan_refinement(plan_alignment(config, run))
    screen.notices.print(
        f"Trying {plan.num_open:,} words of {len(plan.trials):,} texts with the model of step "
        f"{plan.alignment.origin.step:,} in {run}.",
        markup=False,
    )
    load_tensorflow()
    from myxtts.training.voice.refine import refine_readings

    with show_progress("Refining", len(plan.trials), "utterances") as view:
        summary = refine_readings(plan, progress=lambda done, changed: view.update(done, f"{changed:,} words changed"))
    for change in summary.list_clearest(_NUM_CHANGES_SHOWN):
        screen.console.print(f"  {change}", markup=False)
    screen.console.print(f"{summary}", markup=False)
    features = make_features(plan.alignment.config, ScreenReport(screen), corpus=open_corpus(plan.corpus.file))
    return {**summary.to_json(), "precompute": features}
