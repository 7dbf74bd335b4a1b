"""`myxtts train`: trains the acoustic model or the neural vocoder on a corpus, with exact resume."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from myxtts.cli.screen import Screen
from myxtts.cli.settings import require_data, takes_settings
from myxtts.errors import UsageError

if TYPE_CHECKING:
    from myxtts.config.schema import XTTSConfig
    from myxtts.training.trainer import PartName
    from myxtts.types import Say


@takes_settings
def run_train(
    config: XTTSConfig,
    run: Annotated[
        str | None,
        typer.Argument(
            help="With --resume: folder of the run, or its name in runs/.", metavar="RUN", show_default=False
        ),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            help="What to train: voice (the default), or vocoder, which makes sound of spectrograms.", metavar="PART"
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on from the newest checkpoint of a run, with the run's own settings."),
    ] = False,
    override: Annotated[
        bool, typer.Option("--override", help="Resume although settings changed that would spoil the run.")
    ] = False,
    init_from: Annotated[
        str | None,
        typer.Option(
            "--init-from", help="Run or bundle whose weights and model shape to begin with.", metavar="BUNDLE"
        ),
    ] = None,
    run_name: Annotated[
        str | None, typer.Option("--run-name", help="Name of the run, a folder in runs/.", metavar="NAME")
    ] = None,
    for_run: Annotated[
        Path | None,
        typer.Option(
            "--for",
            help="With --part vocoder: run or bundle of a voice that the vocoder is put into at the end, unless "
            "Griffin-Lim is better.",
            metavar="RUN",
        ),
    ] = None,
    even_if_worse: Annotated[
        bool, typer.Option("--even-if-worse", help="With --for: put the vocoder in although Griffin-Lim is better.")
    ] = False,
    discriminators_from: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --part vocoder: step at which its discriminators join, usually 10,000.", metavar="STEP"
        ),
    ] = None,
    critics_from: Annotated[int | None, typer.Option(min=1, hidden=True, help="Older name of the flag above.")] = None,
    lang: Annotated[str, typer.Option(help="Language of the report: en or fa.")] = "en",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Train a model on a corpus, with checkpoints that a run can be resumed from exactly.

    Features that were not made yet are made first. Ctrl-C saves and ends; --resume goes on from there: with the run
    that is named, else with runs/run (runs/vocoder for a vocoder), else with the run in runs/ that was changed last.

    The part vocoder learns from the same features and the sound beside them. Use it with
    myxtts synth --model RUN --vocoder runs/vocoder, or put it into the bundle of a voice with --for.

    [bold]Examples[/bold]

    myxtts train --train-data corpus --model-size tiny --steps 2000

    myxtts train --resume

    myxtts train --resume runs/run --steps 4000

    myxtts train --train-data more --init-from runs/run --run-name more --steps 500

    myxtts train --part vocoder --train-data corpus --model-size tiny --steps 5000 --for runs/run
    """
    from myxtts.cli.reports import ScreenReport, show_training
    from myxtts.tools.words import Translator
    from myxtts.training.trainer import Trainer
    from myxtts.training.vocoder.attach import check_receiver

    screen, tr = Screen(as_json=as_json), Translator(lang)
    report = ScreenReport(screen)
    if run_name is not None:
        config = config.model_copy(update={"training.run_name": run_name})
    if run is not None and not resume:
        raise UsageError(
            f"{run} is named, but not what it is.",
            next_step=f"A run to go on with is named by --resume {run}, a corpus by --train-data {run}.",
        )
    if resume:
        config, part = _follow_run(config, run, part, report.say)
    discriminators_from = critics_from if discriminators_from is None else discriminators_from
    chosen = _check_part(part, for_run, discriminators_from)
    if for_run is not None:
        check_receiver(for_run, config)
    require_data(config)
    trainer = Trainer(
        config,
        part=chosen,
        say=report.say,
        report=report,
        resume=resume,
        override=override,
        init_from=init_from,
        discriminators_from=discriminators_from,
        resume_flags=() if for_run is None else ("--for", str(for_run)),
    )
    result = {"part": chosen, **show_training(trainer.fit(), screen, tr)}
    if for_run is not None:
        result["given_to"] = _attach(Path(result["run_dir"]), for_run, screen, even_if_worse)
    screen.finish(result)


def _follow_run(config: XTTSConfig, name: str | None, part: str | None, say: Say) -> tuple[XTTSConfig, str | None]:
    """Settings and part of the run that --resume means; those given where there is no run yet."""
    from myxtts.training.run.resume import RUNS_FOLDER, find_run, find_usual_run, follow_run
    from myxtts.training.trainer import USUAL_RUN_NAMES, find_part

    def is_wanted(path: Path) -> bool:
        return part in (None, find_part(path))

    run_path = find_run(name) if name else find_usual_run(config, USUAL_RUN_NAMES.get(part or "voice", ""), is_wanted)
    if run_path is None:
        if config.data.train_data is None and config.data.cache_dir is None:
            raise UsageError(
                f"There is no run to go on with in {RUNS_FOLDER.absolute()}.",
                next_step="Name its folder: --resume RUN, or begin one: --train-data DIR.",
            )
        return config, part
    say(f"Going on with the run {run_path} and its settings.")
    return follow_run(config, run_path), part or find_part(run_path)


def _check_part(part: str | None, for_run: Path | None, discriminators_from: int | None) -> PartName:
    """Narrows --part to its two values; raises UsageError for vocoder flags with a voice."""
    if part == "vocoder":
        return "vocoder"
    if part not in (None, "voice"):
        raise UsageError(f"There is no part {part!r} to train.", next_step="Choose voice or vocoder.")
    if for_run is not None or discriminators_from is not None:
        raise UsageError("--for and --discriminators-from are for a vocoder.", next_step="Add --part vocoder.")
    return "voice"


def _attach(run_path: Path, receiver: Path, screen: Screen, even_if_worse: bool) -> str | None:
    """Copies the trained vocoder into the bundle of a voice, unless it is worse than Griffin-Lim."""
    from myxtts.training.vocoder.attach import attach_vocoder, compare_with_griffin_lim

    comparison = compare_with_griffin_lim(run_path)
    if comparison.is_worse:
        command = shlex.join(["myxtts", "train", "--resume", str(run_path), "--for", str(receiver), "--even-if-worse"])
        if not even_if_worse:
            screen.warn(
                f"The vocoder was not put into {receiver}, which goes on speaking with Griffin-Lim: "
                f"{comparison.describe()} Train it longer, or put it in all the same: {command}"
            )
            return None
        screen.warn(comparison.describe())
    elif not comparison.is_known:
        screen.warn(comparison.describe())
    folder = attach_vocoder(run_path, receiver)
    screen.console.print(f"The vocoder is now in {folder}, and speaks for it.", markup=False)
    return str(folder)
