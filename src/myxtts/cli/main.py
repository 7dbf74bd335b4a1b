"""Entry point of the `myxtts` command: registers the subcommands, and maps errors to messages and exit codes.

No module imported here loads TensorFlow or pydantic, so that --help stays fast: commands import what they need when
they run.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from myxtts import __version__
from myxtts.cli.bench import run_bench_command
from myxtts.cli.corpus.cache import cache_app
from myxtts.cli.corpus.collect import run_collect
from myxtts.cli.corpus.precompute import run_precompute
from myxtts.cli.corpus.prepare import prepare
from myxtts.cli.corpus.studio import run_studio
from myxtts.cli.data_worker import run_data_worker
from myxtts.cli.demo import make_demo
from myxtts.cli.diagnose import run_diagnose
from myxtts.cli.help import PlainCommand, PlainGroup, option, unwrap_help
from myxtts.cli.machine.config import show_config
from myxtts.cli.machine.doctor import run_doctor
from myxtts.cli.machine.plan import run_plan
from myxtts.cli.monitor import run_monitor
from myxtts.cli.profile import run_profile
from myxtts.cli.report import run_report
from myxtts.cli.screen import discard_output, print_error
from myxtts.cli.speech.compare import run_compare
from myxtts.cli.speech.evaluate import run_evaluate
from myxtts.cli.speech.explain import run_explain
from myxtts.cli.speech.export import run_export
from myxtts.cli.speech.info import run_info, run_voices
from myxtts.cli.speech.serve import run_serve
from myxtts.cli.speech.synth import run_synth
from myxtts.cli.train import run_train
from myxtts.errors import INTERRUPTED_EXIT_CODE, MyXTTSError
from myxtts.runtime.interrupt import raise_on_signals
from myxtts.runtime.load_tensorflow import explain_missing_tensorflow

app = typer.Typer(
    name="myxtts",
    help="Train voice-cloning text-to-speech models on your own recordings.",
    epilog="New here? Run: myxtts demo",
    cls=PlainGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_OF_TRAINING = ("tensorflow", "keras", "scipy", "ml_dtypes")
"""Modules that the extra `train` installs."""
_OBJECTS_BETWEEN_COLLECTIONS = 100_000

# Commands in the order of use, by the panel of `myxtts --help` that shows them.
_COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Start": {
        "demo": make_demo,
        "doctor": run_doctor,
        "plan": run_plan,
    },
    "Corpus": {
        "collect": run_collect,
        "studio": run_studio,
        "prepare": prepare,
        "precompute": run_precompute,
    },
    "Train": {
        "train": run_train,
        "monitor": run_monitor,
        "report": run_report,
        "evaluate": run_evaluate,
        "compare": run_compare,
    },
    "Voice": {
        "synth": run_synth,
        "explain": run_explain,
        "voices": run_voices,
        "info": run_info,
        "export": run_export,
        "serve": run_serve,
    },
    "Performance": {
        "diagnose": run_diagnose,
        "profile": run_profile,
        "bench": run_bench_command,
    },
    "Advanced": {
        "config": show_config,
        "data-worker": run_data_worker,
    },
}
for _panel, _commands in _COMMANDS.items():
    for _name, _function in _commands.items():
        app.command(_name, cls=PlainCommand, help=unwrap_help(_function), rich_help_panel=_panel)(_function)
    if _panel == "Corpus":
        app.add_typer(cache_app, rich_help_panel=_panel)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"myxtts {__version__}")
        raise typer.Exit


@app.callback()
def _describe_common_options(
    _version: Annotated[
        bool, option("Show the version and exit.", flag="--version", callback=_print_version, is_eager=True)
    ] = False,
    _debug: Annotated[bool, option("Show the traceback of an error. Works with any command.", flag="--debug")] = False,
) -> None:
    pass


def run(arguments: list[str] | None = None) -> None:
    """Runs one command and exits with the code of its kind of error.

    --debug is taken out of the arguments first, so that it works behind any command; it raises errors with traceback.
    """
    if arguments is None:
        _import_faster()
        arguments = sys.argv[1:]
    arguments = list(arguments)
    is_debugging = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    raise_on_signals()
    try:
        app(arguments, prog_name="myxtts")
    except MyXTTSError as error:
        if is_debugging:
            raise
        print_error(error, as_json="--json" in arguments)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED_EXIT_CODE)
    except SystemExit as end:
        # typer and rich end with 1 where the reader of the output has seen enough, as with `| head`.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        discard_output(sys.stdout)
        sys.exit(0)
    except ModuleNotFoundError as error:
        # A command that needs TensorFlow, or what is installed with it, imports it when it runs.
        if is_debugging or (error.name or "").partition(".")[0] not in _OF_TRAINING:
            raise
        missing = explain_missing_tensorflow()
        print_error(missing, as_json="--json" in arguments)
        sys.exit(missing.exit_code)
    except Exception as error:  # An error of ours: asks the user to report it instead of printing a traceback.
        if is_debugging:
            raise
        problem = f"This is a bug in myxtts: {type(error).__name__}: {error}"
        advice = "Please report it with the output of the same command with --debug added."
        print_error(MyXTTSError(problem, next_step=advice), as_json="--json" in arguments)
        sys.exit(MyXTTSError.exit_code)


def _import_faster() -> None:
    """Saves a second of the start of commands that load TensorFlow."""
    # Nearly all objects of imports and traces stay: looking for garbage among them by default takes half a second.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    # Keras imports scikit-learn where it is installed, for wrappers that no command uses.
    sys.modules.setdefault("sklearn", None)  # type: ignore[arg-type]


if __name__ == "__main__":
    run()
