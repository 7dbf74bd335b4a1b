"""`myxtts diagnose`: finds the bottleneck of the input pipeline, predicts the gain of a fix, and verifies it.

Works on a configuration of this package or on any `tf.data.Dataset` that a user's function returns.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from myxtts.cli.help import ADVANCED, WHAT, WHERE, HtmlReport, option
from myxtts.cli.screen import Screen, mute_decoders, show_progress
from myxtts.cli.settings import (
    CORPUS_FLAGS,
    DEVICE_FLAGS,
    LOADING_FLAGS,
    MODEL_FLAGS,
    require_data,
    takes_settings,
)
from myxtts.errors import UsageError
from myxtts.runtime.load_tensorflow import load_tensorflow

if TYPE_CHECKING:
    from collections.abc import Callable

    from myxtts.config.schema import XTTSConfig
    from myxtts.tools.diagnose.examine import Diagnosis
    from myxtts.tools.words import Translator

_DEFAULT_STEP_MS = 20.0
"""Emulated step where --dataset comes without a step function; the default of `myxtts bench` too."""


@takes_settings(
    *CORPUS_FLAGS, *MODEL_FLAGS, *DEVICE_FLAGS, *LOADING_FLAGS, "minutes", hidden=("val_data", "steps", "epochs")
)
def run_diagnose(
    config: XTTSConfig,
    dataset: Annotated[
        str | None,
        option("Diagnose your own tf.data.Dataset: module:function that returns it.", "MODULE:FUNCTION", WHAT),
    ] = None,
    step_function: Annotated[
        str | None, option("Training step for --dataset: module:function that takes a batch.", "MODULE:FUNCTION", WHAT)
    ] = None,
    run: Annotated[Path | None, option("Diagnose a run from its files, during or after training.", "RUN", WHAT)] = None,
    clips: Annotated[
        Path | None,
        option("Score every clip of this run's corpus, and name the most doubtful ones with the reasons.", "RUN", WHAT),
    ] = None,
    worst: Annotated[
        str, option("With --clips: share of the clips that counts as most doubtful.", "SHARE", WHAT)
    ] = "6%",
    num_batches: Annotated[int, option("Batches to measure.", "N", ADVANCED, min=8)] = 50,
    step_ms: Annotated[
        float | None, option("Simulate a step of this many milliseconds instead of training.", "MS", ADVANCED, min=0.0)
    ] = None,
    report: HtmlReport = None,
    lang: Annotated[str, option("Language of screen and page: en or fa.")] = "en",
    apply: Annotated[
        Path | None,
        option(
            "Write the configuration with the advice followed; with --clips the corpus without the most doubtful "
            "clips, as a manifest (.jsonl) or a prepared corpus (a folder).",
            "FILE",
            WHERE,
        ),
    ] = None,
    verify: Annotated[
        bool,
        option(
            "Measure the gain: run old and new settings alternately; with --clips train both ways for --minutes each.",
            panel=WHAT,
            flag="--verify",
        ),
    ] = False,
    as_json: Annotated[bool, option("Print everything as one JSON object.", flag="--json")] = False,
) -> None:
    """Find out why the GPU waits for data: the cause, the setting to change, the expected gain.

    Measures every stage of loading and the real training step on your data, or your own tf.data pipeline.

    [bold]Examples[/bold]

    myxtts diagnose --config config.yaml --num-batches 50

    myxtts diagnose --train-data corpus --step-ms 40 --report diagnosis.html

    myxtts diagnose --config config.yaml --apply better.yaml --verify

    myxtts diagnose --dataset my_pipeline:make_dataset --step-ms 50

    myxtts diagnose --run runs/anna

    myxtts diagnose --clips runs/anna --worst 6% --apply better.jsonl
    """
    from myxtts.tools.words import Translator

    screen, tr = Screen(as_json=as_json), Translator(lang)
    if dataset is not None and apply is not None:
        raise UsageError(
            "A dataset has no configuration file to write.",
            next_step="Leave out --apply: what to change in its code is shown.",
        )
    if clips is not None:
        _examine_clips(config, clips, worst, report, apply, verify, screen, tr)
        return
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
        screen.warn("This change is in your own code, so its gain could not be measured.")


def _examine_clips(
    config: XTTSConfig,
    run: Path,
    worst: str,
    report: Path | None,
    apply: Path | None,
    verify: bool,
    screen: Screen,
    tr: Translator,
) -> None:
    """Scores the clips of a run's corpus, writes clips.jsonl, the page and the corpus without the worst."""
    from myxtts.cli.summaries import ScreenReport, show_clips

    share, minutes = _read_share(worst), config.training.minutes
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with mute_decoders():
        importlib.import_module("tensorflow")
        from myxtts.tools.clips.doctor import (
            CLIPS_FILE_NAME,
            CLIPS_PAGE_NAME,
            apply_report,
            examine_clips,
            write_doubts,
        )
        from myxtts.tools.clips.page import make_page_of_run
        from myxtts.tools.clips.verify import plan_steps, verify_clips
    num_steps = plan_steps(run, minutes) if verify else 0
    with show_progress("Clips", None, "clips", screen.notices) as view:
        found = examine_clips(config, run, share, progress=lambda done, total: view.update(done, total=total))
    result: dict[str, Any] = {"clips": str(write_doubts(run / CLIPS_FILE_NAME, found.clips))}
    if apply is not None:
        number, command = apply_report(apply, found)
        screen.notices.print(f"Wrote {apply} with {number:,} clips. Next: {command}", markup=False, soft_wrap=True)
        result |= {"applied": str(apply), "num_kept": number, "next": command}
    say = ScreenReport(screen).say
    verified = verify_clips(found, minutes, num_steps, say) if verify and minutes is not None else None
    page = make_page_of_run(found, tr, verified).write(report or run / CLIPS_PAGE_NAME)
    show_clips(found, verified, screen, tr)
    screen.notices.print(f"Hear them in {page}; all scores are in {result['clips']}", markup=False)
    screen.notices.print(
        f"Correct them: myxtts studio RECORDINGS --doubts {result['clips']} (the recordings that were prepared)",
        markup=False,
        soft_wrap=True,
    )
    worst_rows = [clip.to_json() for clip in found.worst]
    result |= {"page": str(page), "num_clips": len(found.clips), "num_worst": found.num_worst, "worst": worst_rows}
    result |= {"aligned_by": "base" if found.is_base else "run"}
    screen.finish(result | {"verified": verified.to_json() if verified is not None else None})


def _read_share(written: str) -> float:
    """A share such as 6% or 0.06."""
    is_percent = written.strip().endswith("%")
    try:
        share = float(written.strip().rstrip("%")) / (100 if is_percent else 1)
    except ValueError:
        share = -1.0
    if not 0 < share < 1:
        raise UsageError(f"--worst is {written[:20]!r}, and a share is needed.", next_step="For example: --worst 6%")
    return share


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
    from myxtts.cli.summaries import ScreenReport
    from myxtts.store.provide import ensure_features

    require_data(config)
    report = ScreenReport(screen)
    config = ensure_features(config, report)
    # Loaded before any stream is replaced: TensorFlow's logger keeps the standard error that it finds.
    load_tensorflow()
    with mute_decoders():
        from myxtts.tools.diagnose.examine import diagnose_config, verify_config
    diagnosis = diagnose_config(config, step_s=step_s, num_batches=num_batches, say=report.say)
    changes = diagnosis.list_changes()
    if apply is not None:
        _write_config(config, changes, apply, screen)
    if verify and changes:
        changed = config.model_copy(update=changes)
        if changes.get("data.preprocessing_mode") == "precompute":
            changed = ensure_features(changed, report)
        screen.notices.print("Measuring old and new settings alternately …", markup=False)
        diagnosis = verify_config(diagnosis, config, changed, step_s=step_s, num_batches=num_batches)
    return diagnosis


def _write_config(config: XTTSConfig, changes: dict[str, Any], path: Path, screen: Screen) -> None:
    """Writes the configuration with the advised changes as YAML."""
    from myxtts.storage.atomic import write_file

    text = config.model_copy(update=changes).to_yaml()
    write_file(path, text.encode())
    what = ", ".join(f"{key}: {value}" for key, value in changes.items()) or "nothing had to be changed"
    screen.notices.print(f"Wrote {path} ({what}).", markup=False)


def _diagnose_dataset(
    name: str, step_function: str | None, step_s: float | None, num_batches: int, verify: bool, screen: Screen
) -> Diagnosis:
    """Measures a foreign dataset with its own step function or an emulated one."""
    # A module of the user's that imports TensorFlow does so before the streams are swapped for decoders.
    make, step = _find_function(name), _find_function(step_function) if step_function else None
    load_tensorflow()
    if step is None and step_s is None:
        step_s = _DEFAULT_STEP_MS / 1e3
        screen.notices.print(
            f"No training step is given: simulating one of {_DEFAULT_STEP_MS:g} ms (change it with --step-ms).",
            markup=False,
        )
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
