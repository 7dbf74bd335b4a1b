"""`myxtts train`: from a corpus to a model that speaks, or to a vocoder for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from myxtts.cli.precompute import make_features, open_or_prepare
from myxtts.cli.screen import Screen, format_length
from myxtts.cli.settings import takes_settings
from myxtts.errors import StorageError, UsageError

if TYPE_CHECKING:
    from myxtts.config.schema import XTTSConfig
    from myxtts.training.trainer import PartName, TrainResult


@takes_settings
def run_train(
    config: XTTSConfig,
    part: Annotated[
        str, typer.Option(help="What to train: voice, or vocoder, which makes sound of spectrograms.", metavar="PART")
    ] = "voice",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's newest checkpoint.")] = False,
    override: Annotated[
        bool, typer.Option("--override", help="Resume although settings changed that would spoil the run.")
    ] = False,
    init_from: Annotated[
        str | None,
        typer.Option("--init-from", help="Run or bundle whose weights to begin with.", metavar="BUNDLE"),
    ] = None,
    run_name: Annotated[
        str | None, typer.Option("--run-name", help="Name of the run, a folder in runs/.", metavar="NAME")
    ] = None,
    for_run: Annotated[
        Path | None,
        typer.Option(
            "--for",
            help="With --part vocoder: run or bundle of a voice that the vocoder is put into at the end.",
            metavar="RUN",
        ),
    ] = None,
    critics_from: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --part vocoder: step at which its critics join, usually 10,000.", metavar="STEP"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Train a model on a corpus, with checkpoints that a run can be resumed from exactly.

    Features that were not made yet are made first. Ctrl-C saves and ends; --resume goes on from there.

    The part vocoder learns from the same features and the sound beside them. Use it with
    myxtts synth --model RUN --vocoder runs/vocoder, or put it into the bundle of a voice with --for.

    [bold]Examples[/bold]

    myxtts train --train-data corpus --model-size tiny --steps 2000

    myxtts train --train-data corpus --model-size tiny --steps 2000 --resume

    myxtts train --train-data more --init-from runs/run --set training.run_name=more --steps 500

    myxtts train --part vocoder --train-data corpus --model-size tiny --steps 5000 --for runs/run
    """
    screen = Screen(as_json=as_json)
    if run_name is not None:
        config = config.model_copy(update={"training.run_name": run_name})
    chosen = _check_part(part, for_run, critics_from)
    if for_run is not None:
        from myxtts.training.vocoder.attach import check_receiver

        check_receiver(for_run, config)
    config = provide_data(config, screen, keep_sound=chosen == "vocoder")
    result = train_model(
        config, screen, part=chosen, resume=resume, override=override, init_from=init_from, critics_from=critics_from
    )
    if for_run is not None:
        result["given_to"] = _give(Path(result["run_dir"]), for_run, screen)
    screen.finish(result)


def _check_part(part: str, for_run: Path | None, critics_from: int | None) -> PartName:
    if part == "vocoder":
        return "vocoder"
    if part != "voice":
        raise UsageError(f"There is no part {part!r} to train.", next_step="Choose voice or vocoder.")
    if for_run is not None or critics_from is not None:
        raise UsageError("--for and --critics-from are for a vocoder.", next_step="Add --part vocoder.")
    return "voice"


def _give(run_path: Path, receiver: Path, screen: Screen) -> str:
    from myxtts.training.vocoder.attach import attach_vocoder

    folder = attach_vocoder(run_path, receiver)
    screen.console.print(f"The vocoder is now in {folder}, and speaks for it.", markup=False)
    return str(folder)


def provide_data(config: XTTSConfig, screen: Screen, *, keep_sound: bool = False) -> XTTSConfig:
    """Makes what is missing of corpus and features, as if `prepare` and `precompute` had been called before.

    With `keep_sound` features that are made now keep their sound beside them.
    """
    from myxtts.corpus.corpus_file import is_prepared
    from myxtts.store.layout import STORE_FILE_NAME
    from myxtts.store.precompute import choose_store_folder

    data = config.data
    if data.train_data is None and data.cache_dir is None:
        raise UsageError(
            "Neither a corpus nor a store is named.", next_step="Give --train-data DIR or --cache-dir DIR."
        )
    folder = choose_store_folder(data, Path(data.train_data or ""))
    if data.preprocessing_mode == "precompute":
        if not (folder / STORE_FILE_NAME).exists():
            screen.notices.print(f"There are no features in {folder} yet: they are made first.", markup=False)
            with_sound = config.model_copy(update={"data.store_pcm": True}) if keep_sound else config
            make_features(with_sound, folder, screen, rebuild=False)
        return config
    if data.train_data is None:
        raise UsageError("On the fly there is no store to train on.", next_step="Give --train-data DIR.")
    if is_prepared(Path(data.train_data)):
        return config
    if not is_prepared(folder / "corpus"):
        open_or_prepare(config, folder, screen)
    return config.model_copy(update={"data.train_data": str(folder / "corpus")})


def train_model(
    config: XTTSConfig,
    screen: Screen,
    *,
    part: PartName = "voice",
    resume: bool = False,
    override: bool = False,
    init_from: str | None = None,
    critics_from: int | None = None,
) -> dict[str, Any]:
    """Trains with validation and samples, writes the report, and gives what there is to know in the end."""
    from myxtts.training.trainer import Trainer

    trainer = Trainer(
        config,
        part=part,
        say=lambda line: screen.notices.print(line, markup=False, soft_wrap=True),
        resume=resume,
        override=override,
        init_from=init_from,
        critics_from=critics_from,
    )
    result = trainer.fit()
    _show(result, screen)
    report = _write_report(result.run_path, screen) if result.is_chief else None
    return {
        "part": part,
        "report": report,
        "run_dir": str(result.run_path),
        "bundle": str(result.bundle_path),
        "step": result.step,
        "losses": result.losses,
        "num_skipped": result.num_skipped,
        "num_rollbacks": result.num_rollbacks,
        "best_step": result.best_step,
        "best_score": result.best_score,
        "seconds": round(result.seconds, 3),
        "reason": result.reason,
    }


def _write_report(run_path: Path, screen: Screen) -> str | None:
    """The page about the run; without room for it the training was not in vain."""
    from myxtts.tools.run_report import write_run_report

    try:
        report = write_run_report(run_path)
    except StorageError as error:
        screen.warn(f"The report was not written: {error}")
        return None
    screen.console.print(f"The report is {report}", markup=False)
    return str(report)


def _show(result: TrainResult, screen: Screen) -> None:
    losses = ", ".join(f"{name} {value:.3f}" for name, value in result.losses.items())
    console = screen.console
    console.print(f"[bold]Step {result.step:,}[/bold] after {format_length(result.seconds)}. {losses}")
    if result.num_skipped:
        console.print(f"  {result.num_skipped:,} steps were skipped; see skipped.jsonl in the run.")
    console.print(f"The run is in {result.run_path}, the model in {result.bundle_path}", markup=False)
