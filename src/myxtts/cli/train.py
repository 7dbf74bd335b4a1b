"""`myxtts train`: trains the acoustic model or the neural vocoder on a corpus, with exact resume."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from myxtts.cli.screen import Screen
from myxtts.cli.settings import require_data, takes_settings
from myxtts.errors import UsageError

if TYPE_CHECKING:
    from myxtts.config.schema import XTTSConfig
    from myxtts.training.trainer import PartName


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

    Features that were not made yet are made first. Ctrl-C saves and ends; --resume goes on from there.

    The part vocoder learns from the same features and the sound beside them. Use it with
    myxtts synth --model RUN --vocoder runs/vocoder, or put it into the bundle of a voice with --for.

    [bold]Examples[/bold]

    myxtts train --train-data corpus --model-size tiny --steps 2000

    myxtts train --train-data corpus --model-size tiny --steps 2000 --resume

    myxtts train --train-data more --init-from runs/run --set training.run_name=more --steps 500

    myxtts train --part vocoder --train-data corpus --model-size tiny --steps 5000 --for runs/run
    """
    from myxtts.cli.reports import ScreenReport, show_training
    from myxtts.tools.words import Translator
    from myxtts.training.trainer import Trainer
    from myxtts.training.vocoder.attach import attach_vocoder, check_receiver

    screen, tr = Screen(as_json=as_json), Translator(lang)
    if run_name is not None:
        config = config.model_copy(update={"training.run_name": run_name})
    discriminators_from = critics_from if discriminators_from is None else discriminators_from
    chosen = _check_part(part, for_run, discriminators_from)
    if for_run is not None:
        check_receiver(for_run, config)
    require_data(config)
    report = ScreenReport(screen)
    trainer = Trainer(
        config,
        part=chosen,
        say=report.say,
        report=report,
        resume=resume,
        override=override,
        init_from=init_from,
        discriminators_from=discriminators_from,
    )
    result = {"part": chosen, **show_training(trainer.fit(), screen, tr)}
    if for_run is not None:
        result["given_to"] = str(attach_vocoder(Path(result["run_dir"]), for_run))
        screen.console.print(f"The vocoder is now in {result['given_to']}, and speaks for it.", markup=False)
    screen.finish(result)


def _check_part(part: str, for_run: Path | None, discriminators_from: int | None) -> PartName:
    """Narrows --part to its two values; raises UsageError for vocoder flags with a voice."""
    if part == "vocoder":
        return "vocoder"
    if part != "voice":
        raise UsageError(f"There is no part {part!r} to train.", next_step="Choose voice or vocoder.")
    if for_run is not None or discriminators_from is not None:
        raise UsageError("--for and --discriminators-from are for a vocoder.", next_step="Add --part vocoder.")
    return "voice"
