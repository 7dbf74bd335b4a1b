"""`myxtts train`: trains the acoustic model or the neural vocoder on a corpus, with exact resume."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from myxtts.cli.help import ADVANCED, WHAT, WHERE, PageAddress, PageKeyFile, option
from myxtts.cli.screen import Screen
from myxtts.cli.settings import ALL_FLAGS, choose_new, require_data, takes_settings
from myxtts.errors import UsageError

if TYPE_CHECKING:
    from myxtts.config.schema import XTTSConfig
    from myxtts.training.trainer import PartName
    from myxtts.types import Say


@takes_settings(*ALL_FLAGS)
def run_train(
    config: XTTSConfig,
    run: Annotated[
        str | None,
        typer.Argument(
            help="With --resume: folder of the run, or its name in runs/.", metavar="RUN", show_default=False
        ),
    ] = None,
    init_from: Annotated[
        str | None,
        option(
            "Fine-tune: start with this run or bundle, or base for the model of the package, and keep its model size.",
            "RUN",
            WHAT,
            flag="--init-from",
        ),
    ] = None,
    resume: Annotated[
        bool, option("Continue a run from its newest checkpoint, with its own settings.", panel=WHAT, flag="--resume")
    ] = False,
    part: Annotated[str | None, option("voice, or vocoder. \\[default: voice]", "PART", WHAT)] = None,
    install_into: Annotated[
        Path | None,
        option(
            "With --part vocoder: run of the voice that gets the trained vocoder, if it beats Griffin-Lim.",
            "RUN",
            WHERE,
            flag="--install-into",
        ),
    ] = None,
    even_if_worse: Annotated[
        bool, option("Install the vocoder also if Griffin-Lim is better.", panel=ADVANCED, flag="--even-if-worse")
    ] = False,
    discriminators_from: Annotated[
        int | None,
        option("With --part vocoder: step at which GAN training starts. \\[default: 10000]", "STEP", ADVANCED, min=1),
    ] = None,
    force: Annotated[
        bool, option("With --resume: accept changed settings that --resume refuses.", panel=ADVANCED, flag="--force")
    ] = False,
    override: Annotated[bool, option("Old name of --force.", flag="--override", hidden=True)] = False,
    for_run: Annotated[Path | None, option("Old name of --install-into.", flag="--for", hidden=True)] = None,
    critics_from: Annotated[int | None, option("Old name of --discriminators-from.", min=1, hidden=True)] = None,
    page: Annotated[
        bool, option("Show the run on a live web page while it trains.", panel=WHERE, flag="--page")
    ] = False,
    page_at: PageAddress = None,
    api_key_file: PageKeyFile = None,
    lang: Annotated[str, option("Language of the report and the page: en or fa.")] = "en",
    as_json: Annotated[bool, option("Print the result as one JSON object.", flag="--json")] = False,
) -> None:
    """Train a voice model on your recordings, or resume a run.

    Missing features are computed first. Give a length (--steps, --epochs or --minutes), because the learning rate
    decays towards the end. Ctrl-C saves a checkpoint and stops; --resume continues the named run, or else runs/run, or
    else the newest run in runs/.

    With --part vocoder, a neural vocoder is trained on the same features. Use it with myxtts synth --vocoder
    runs/vocoder, or put it into a voice model with --install-into.

    [bold]Examples[/bold]

    myxtts train --train-data corpus --model-size small --steps 50000

    myxtts train --train-data corpus --model-size tiny --minutes 60 --page

    myxtts train --resume

    myxtts train --resume runs/run --steps 60000

    myxtts train --train-data corpus --init-from base --adapt voice

    myxtts train --train-data more --init-from runs/run --run-name b --steps 2000

    myxtts train --part vocoder --train-data corpus --init-from base --steps 2000
    """
    from myxtts.cli.summaries import ScreenReport, show_training
    from myxtts.tools.monitor.system_log import SystemLog
    from myxtts.tools.words import Translator
    from myxtts.training.trainer import Trainer
    from myxtts.training.vocoder.attach import check_receiver
    from myxtts.training.vocoder.data import resolve_vocoder_settings

    screen, tr = Screen(as_json=as_json), Translator(lang)
    report = ScreenReport(screen)
    force = choose_new("--override", override or None, "--force", force or None) is True
    install_into = choose_new("--for", for_run, "--install-into", install_into)
    discriminators_from = choose_new("--critics-from", critics_from, "--discriminators-from", discriminators_from)
    if run is not None and not resume:
        raise UsageError(
            f"The argument {run} is only used with --resume.",
            next_step=f"To continue a run: --resume {run}. To train on a corpus: --train-data {run}.",
        )
    if resume:
        config, part = _follow_run(config, run, part, report.say)
    chosen = _check_part(part, install_into, discriminators_from)
    if install_into is not None:
        check_receiver(install_into, config)
    require_data(config)
    system_log = SystemLog()
    trainer = Trainer(
        config,
        part=chosen,
        say=report.say,
        report=report,
        resume=resume,
        override=force,
        init_from=init_from,
        discriminators_from=discriminators_from,
        resume_flags=() if install_into is None else ("--install-into", str(install_into)),
        make_observers=lambda: [system_log],
    )
    with ExitStack() as pages:
        if page or page_at is not None:
            own = config if chosen == "voice" else resolve_vocoder_settings(config, lambda _line: None)
            _open_page(pages, own.training.run_path, page_at, api_key_file, lang, report.say)
        with system_log:
            trained = trainer.fit()
        result = {"part": chosen, **show_training(trained, screen, tr)}
    if install_into is not None:
        result["given_to"] = _attach(Path(result["run_dir"]), install_into, screen, even_if_worse)
    if chosen == "voice" and trained.is_chief:
        _name_next_step(trained.run_path, screen)
    screen.finish(result)


def _name_next_step(run: Path, screen: Screen) -> None:
    """Prints how to hear the trained voice."""
    where = shlex.quote(str(run))
    screen.notices.print(
        f'Next: myxtts synth "TEXT" --model {where} --voice NAME (names: myxtts voices {where})',
        markup=False,
        soft_wrap=True,
    )


def _open_page(
    pages: ExitStack, run_path: Path, address: str | None, key_file: Path | None, lang: str, say: Say
) -> None:
    """Serves the live page of the run in a process of its own until `pages` is closed."""
    from myxtts.live.server import PageProcess, require_server

    require_server()
    process = pages.enter_context(PageProcess(run_path.absolute(), address, key_file, lang))
    say(f"The live page of the run is {process.url}")


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
                f"There is no run to resume in {RUNS_FOLDER.absolute()}.",
                next_step="Name its folder: --resume RUN. To start a new run: --train-data DIR.",
            )
        return config, part
    say(f"Resuming the run {run_path} with its settings.")
    return follow_run(config, run_path), part or find_part(run_path)


def _check_part(part: str | None, install_into: Path | None, discriminators_from: int | None) -> PartName:
    """Narrows --part to its two values; raises UsageError for vocoder flags with a voice."""
    if part == "vocoder":
        return "vocoder"
    if part not in (None, "voice"):
        raise UsageError(f"--part {part} does not exist.", next_step="Use --part voice or --part vocoder.")
    if install_into is not None or discriminators_from is not None:
        given = "--install-into" if install_into is not None else "--discriminators-from"
        raise UsageError(f"{given} is for vocoders only.", next_step="Add --part vocoder, or leave it out.")
    return "voice"


def _attach(run_path: Path, receiver: Path, screen: Screen, even_if_worse: bool) -> str | None:
    """Copies the trained vocoder into the bundle of a voice, unless it is worse than Griffin-Lim."""
    from myxtts.training.vocoder.attach import attach_vocoder, compare_with_griffin_lim

    comparison = compare_with_griffin_lim(run_path)
    if comparison.is_worse:
        command = shlex.join(
            ["myxtts", "train", "--resume", str(run_path), "--install-into", str(receiver), "--even-if-worse"]
        )
        if not even_if_worse:
            screen.warn(
                f"The vocoder was not installed into {receiver}, which keeps using Griffin-Lim: "
                f"{comparison.describe()} Train it longer, or install it nevertheless: {command}"
            )
            return None
        screen.warn(comparison.describe())
    elif not comparison.is_known:
        screen.warn(comparison.describe())
    folder = attach_vocoder(run_path, receiver)
    screen.console.print(f"The vocoder is installed in {folder} and will be used for synthesis.", markup=False)
    return str(folder)
