"""`myxtts cache`: checks, repairs, compacts or rebuilds a feature cache."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from myxtts.cli.help import PlainCommand, PlainGroup, option, unwrap_help
from myxtts.cli.screen import Screen, mute_decoders, show_progress
from myxtts.cli.settings import takes_settings
from myxtts.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from myxtts.config.schema import XTTSConfig
    from myxtts.store.verify import VerifyReport

_NUM_PROBLEMS_SHOWN = 20
_FLAGS = ("train_data", "cache_dir", "num_workers")
_Folder = Annotated[Path | None, typer.Argument(help="Folder of the feature cache.", metavar="CACHE")]
_Json = Annotated[bool, option("Print the result as one JSON object.", flag="--json")]

cache_app = typer.Typer(
    name="cache",
    cls=PlainGroup,
    no_args_is_help=True,
    help="Check, repair, compact or rebuild a feature cache.",
)


@takes_settings(*_FLAGS, is_new=True)
def check(config: XTTSConfig, folder: _Folder = None, as_json: _Json = False) -> None:
    """Compare every file of a feature cache with its checksum.

    The exit code is 3 if anything is damaged.

    [bold]Examples[/bold]

    myxtts cache check features

    myxtts cache check --train-data corpus
    """
    screen = Screen(as_json=as_json)
    config = _name_folder(config, folder)
    screen.finish(verify_cache(config, screen, fix=False))


@takes_settings(*_FLAGS, is_new=True)
def repair(config: XTTSConfig, folder: _Folder = None, as_json: _Json = False) -> None:
    """Check a feature cache and compute damaged features again.

    Features whose recording is gone are removed from the cache and listed.

    [bold]Examples[/bold]

    myxtts cache repair features
    """
    screen = Screen(as_json=as_json)
    config = _name_folder(config, folder)
    screen.finish(verify_cache(config, screen, fix=True))


@takes_settings(*_FLAGS, is_new=True)
def compact(config: XTTSConfig, folder: _Folder = None, as_json: _Json = False) -> None:
    """Free the disk space of features that were replaced or removed.

    [bold]Examples[/bold]

    myxtts cache compact features
    """
    screen = Screen(as_json=as_json)
    screen.finish(compact_cache(_name_folder(config, folder), screen))


@takes_settings(*_FLAGS, "val_data", "language", is_new=True)
def rebuild(config: XTTSConfig, folder: _Folder = None, as_json: _Json = False) -> None:
    """Compute all features again, whatever the cache holds.

    [bold]Examples[/bold]

    myxtts cache rebuild features --train-data corpus
    """
    from myxtts.cli.summaries import ScreenReport
    from myxtts.store.provide import make_features

    screen = Screen(as_json=as_json)
    config = _name_folder(config, folder)
    if config.data.train_data is None:
        raise UsageError("No corpus is given to compute the features from.", next_step="Add --train-data DIR.")
    screen.finish(make_features(config, ScreenReport(screen), rebuild=True))


_COMMANDS: tuple[Callable[..., None], ...] = (check, repair, compact, rebuild)
for _command in _COMMANDS:
    cache_app.command(_command.__name__, cls=PlainCommand, help=unwrap_help(_command))(_command)


def _name_folder(config: XTTSConfig, folder: Path | None) -> XTTSConfig:
    """Returns the configuration with the cache folder of the argument, which says the same as --cache-dir."""
    if folder is None:
        return config
    if config.data.cache_dir is not None:
        raise UsageError(f"Both {folder} and --cache-dir are given.", next_step="Give one of them.")
    return config.model_copy(update={"data.cache_dir": str(folder)})


def verify_cache(config: XTTSConfig, screen: Screen, *, fix: bool) -> dict[str, Any]:
    """Checks or repairs the feature cache; raises DataError (exit code 3) with the report if damage is left."""
    from myxtts.store.provide import count_threads, find_store_folder
    from myxtts.store.verify import verify_store

    folder = find_store_folder(config.data, UsageError)
    named = Path(config.data.train_data) if config.data.train_data else None
    with mute_decoders(), show_progress("Checking", None, "utterances") as view:
        report = verify_store(
            folder,
            fix=fix,
            corpus=named,
            num_threads=count_threads(config.data),
            progress=lambda seen, broken: view.update(seen, f"{broken:,} damaged"),
        )
    _show_report(report, folder, screen)
    if not report.is_whole:
        left = report.num_broken - report.num_repaired
        problem = f"The feature cache in {folder} is damaged: {left:,} parts"
        if fix:
            problem += f", {report.num_unrecoverable:,} of which could not be computed again and were removed"
        remedy = "The reasons are listed above." if fix else f"Repair it with: myxtts cache repair {folder}"
        raise DataError(f"{problem}.", next_step=remedy, details=report.to_json())
    return report.to_json()


def _show_report(report: VerifyReport, folder: Path, screen: Screen) -> None:
    """Prints the first problems and the counts."""
    for problem in report.problems[:_NUM_PROBLEMS_SHOWN]:
        screen.console.print(f"  {problem}", markup=False)
    if len(report.problems) > _NUM_PROBLEMS_SHOWN:
        screen.console.print(f"  … and {len(report.problems) - _NUM_PROBLEMS_SHOWN:,} more")
    line = f"{folder}: {report.num_checked:,} parts checked, {report.num_broken:,} damaged"
    repaired = f", {report.num_repaired:,} repaired, {report.num_unrecoverable:,} not recoverable"
    screen.console.print(line + (repaired if report.num_repaired or report.num_unrecoverable else ""), markup=False)


def compact_cache(config: XTTSConfig, screen: Screen) -> dict[str, Any]:
    """Removes replaced features; prints the size before and after."""
    from myxtts.store.provide import find_store_folder
    from myxtts.store.update import compact_store

    summary = compact_store(find_store_folder(config.data, UsageError))
    before, after = summary.num_bytes_before / 2**20, summary.num_bytes_after / 2**20
    screen.console.print(f"{summary.num_utterances:,} utterances: {before:,.1f} MB before, {after:,.1f} MB now.")
    return asdict(summary)
