"""`myxtts diagnose`: finds the bottleneck of the input pipeline, predicts the gain of a fix, and verifies it.

Works on a configuration of this package or on any `tf.data.Dataset` that a user's function returns.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from myxtts.cli.screen import Screen, mute_decoders
from myxtts.cli.settings import require_data, takes_settings
from myxtts.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from myxtts.config.schema import XTTSConfig
    from myxtts.tools.diagnose.examine import Diagnosis
    from myxtts.tools.words import Translator

_DEFAULT_STEP_MS = 20.0
"""Emulated step where --dataset comes without a step function; the default of `myxtts bench` too."""


@takes_settings
def run_diagnose(
    config: XTTSConfig,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="A function that returns any tf.data.Dataset, as module:function.", metavar="MODULE:FUNCTION"
        ),
    ] = None,
    step_function: Annotated[
        str | None,
        typer.Option(help="The step that takes a batch of --dataset, as module:function.", metavar="MODULE:FUNCTION"),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(help="Diagnose a run from its files, while it trains or afterwards.", metavar="RUN"),
    ] = None,
    num_batches: Annotated[int, typer.Option(min=8, help="Batches to measure.")] = 50,
    step_ms: Annotated[
        float | None,
        typer.Option(min=0.0, help="Emulate a step of so many milliseconds instead of training.", metavar="MS"),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page with plots here.", metavar="FILE.html")] = None,
    lang: Annotated[str, typer.Option(help="Language of screen and page: en or fa.")] = "en",
    apply: Annotated[
        Path | None, typer.Option(help="Write the configuration with the advice followed.", metavar="FILE.yaml")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Run old and new in turn and show the measured gain beside the predicted.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
) -> None:
    """Find out why the accelerator waits: the cause, the setting to change, the gain to expect.

    Measures every stage alone and all of them together, on your configuration and data with the real training step, or
    on any tf.data pipeline of yours, and looks at what the step itself does. Loading is good if the step never waits
    for it; steps that vary by less than 20 % are stable.

    [bold]Examples[/bold]

    myxtts diagnose --config config.yaml --num-batches 50

    myxtts diagnose --train-data corpus --batch-size 16 --step-ms 40 --report diagnosis.html

    myxtts diagnose --config config.yaml --apply better.yaml --verify

    myxtts diagnose --dataset my_pipeline:make_dataset --step-ms 50

    myxtts diagnose --run runs/anna
    """
    from myxtts.tools.words import Translator

    screen, tr = Screen(as_json=as_json), Translator(lang)
    if dataset is not None and apply is not None:
        raise UsageError(
            "A dataset has no configuration file to write.",
            next_step="Leave out --apply: what to change in its code is shown.",
        )
    if run is not None:
        _refuse_measuring(dataset=dataset, apply=apply, verify=verify)
        from myxtts.tools.diagnose.examine import diagnose_run

        _show(diagnose_run(run), screen, tr, report)
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    step_s = step_ms / 1e3 if step_ms is not None else None
    if dataset is not None:
        diagnosis = _diagnose_dataset(dataset, step_function, step_s, num_batches, verify, screen)
    else:
        diagnosis = _diagnose_config(config, step_s, num_batches, apply, verify, screen)
    _show(diagnosis, screen, tr, report)
    if verify and diagnosis.verified is None and diagnosis.first.advice:
        screen.warn("Only your own code can make this change, so it could not be tried from here.")


def _refuse_measuring(**given: object) -> None:
    """Raises UsageError for options that measure or write something, which a finished run cannot."""
    unfit = [f"--{name}" for name, value in given.items() if value]
    if unfit:
        raise UsageError(
            f"--run only reads the files of a run; {', '.join(unfit)} cannot be used with it.",
            next_step="Leave out --run and give its configuration: --config RUN/config.yaml.",
        )


def _diagnose_config(
    config: XTTSConfig, step_s: float | None, num_batches: int, apply: Path | None, verify: bool, screen: Screen
) -> Diagnosis:
    """Measures with the real step (or an emulated one), writes the advised configuration, and compares both."""
    from myxtts.cli.reports import ScreenReport
    from myxtts.store.provide import ensure_features

    require_data(config)
    report = ScreenReport(screen)
    config = ensure_features(config, report)
    with mute_decoders():
        importlib.import_module("tensorflow")
        from myxtts.tools.diagnose.examine import diagnose_config, verify_config
    diagnosis = diagnose_config(config, step_s=step_s, num_batches=num_batches, say=report.say)
    changes = diagnosis.list_changes()
    if apply is not None:
        _write_config(config, changes, apply, screen)
    if verify and changes:
        changed = config.model_copy(update=changes)
        if changes.get("data.preprocessing_mode") == "precompute":
            changed = ensure_features(changed, report)
        screen.notices.print("Old and new take turns …", markup=False)
        diagnosis = verify_config(diagnosis, config, changed, step_s=step_s, num_batches=num_batches)
    return diagnosis


def _write_config(config: XTTSConfig, changes: dict[str, Any], path: Path, screen: Screen) -> None:
    """Writes the configuration with the advised changes as YAML."""
    from myxtts.storage.atomic import write_atomically

    text = config.model_copy(update=changes).to_yaml()
    with write_atomically(path) as file:
        file.write(text.encode())
    what = ", ".join(f"{key}: {value}" for key, value in changes.items()) or "nothing had to be changed"
    screen.notices.print(f"Wrote {path} ({what}).", markup=False)


def _diagnose_dataset(
    name: str, step_function: str | None, step_s: float | None, num_batches: int, verify: bool, screen: Screen
) -> Diagnosis:
    """Measures a foreign dataset with its own step function or an emulated one."""
    # The user's modules import TensorFlow, whose start-up lines cannot be turned off afterwards.
    with mute_decoders():
        make, step = _find_function(name), _find_function(step_function) if step_function else None
    if step is None and step_s is None:
        step_s = _DEFAULT_STEP_MS / 1e3
        screen.notices.print(f"No step is given: one of {_DEFAULT_STEP_MS:g} ms is emulated (--step-ms).", markup=False)
    with mute_decoders():
        from myxtts.tools.diagnose.examine import diagnose_dataset, verify_dataset
    made = make()
    if not hasattr(made, "element_spec"):
        raise UsageError(
            f"{name} returned a {type(made).__name__}, not a tf.data.Dataset.",
            next_step="Let the function return the dataset that training iterates over.",
        )
    diagnosis = diagnose_dataset(made, step_s=step_s, step=step, num_batches=num_batches)
    if verify:
        diagnosis = verify_dataset(diagnosis, made, step_s=step_s, step=step)
    return diagnosis


def _find_function(name: str) -> Callable[..., Any]:
    """Imports the function that `module:function` names, from the working folder too; raises UsageError."""
    module_name, colon, function_name = name.partition(":")
    if not colon or not module_name or not function_name:
        raise UsageError(
            f"{name!r} is not of the form module:function.", next_step="Write e.g. --dataset my_pipeline:make_dataset."
        )
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except ImportError as error:
        raise UsageError(
            f"The module {module_name!r} cannot be imported: {error}.", next_step="Run it from the module's folder."
        ) from error
    except AttributeError as error:
        raise UsageError(
            f"The module {module_name!r} has no {function_name!r}.", next_step="Check the name behind the colon."
        ) from error
    return function  # type: ignore[no-any-return]


def _show(diagnosis: Diagnosis, screen: Screen, tr: Translator, report: Path | None) -> None:
    """Prints the diagnosis, writes the HTML page if asked, and finishes with JSON."""
    from myxtts.tools.diagnose.page import make_diagnosis_page
    from myxtts.tools.diagnose.terminal import show_diagnosis, to_json

    show_diagnosis(diagnosis, screen.console, tr)
    result = to_json(diagnosis, tr)
    if report is not None:
        result["report"] = str(make_diagnosis_page(diagnosis, tr).write(report))
        screen.notices.print(f"The report is {report}", markup=False)
    screen.finish(result)
