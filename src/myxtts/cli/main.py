"""Entry point of the `myxtts` command: registers the subcommands, and maps errors to messages and exit codes.

No module imported here loads TensorFlow or pydantic, so that --help stays fast: commands import what they need when
they run.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from myxtts import __version__
from myxtts.cli.bench import run_bench_command
from myxtts.cli.collect import run_collect
from myxtts.cli.config import show_config
from myxtts.cli.data_worker import run_data_worker
from myxtts.cli.demo import make_demo
from myxtts.cli.diagnose import run_diagnose
from myxtts.cli.monitor import run_monitor
from myxtts.cli.precompute import run_precompute
from myxtts.cli.prepare import prepare
from myxtts.cli.profile import run_profile
from myxtts.cli.screen import print_error
from myxtts.cli.speech.evaluate import run_evaluate
from myxtts.cli.speech.explain import run_explain
from myxtts.cli.speech.export import run_export
from myxtts.cli.speech.serve import run_serve
from myxtts.cli.speech.synth import run_synth
from myxtts.cli.train import run_train
from myxtts.errors import INTERRUPTED_EXIT_CODE, MyXTTSError
from myxtts.runtime.interrupt import raise_on_signals
from myxtts.runtime.load_tensorflow import explain_missing_tensorflow

app = typer.Typer(
    name="myxtts",
    help="Train voice-cloning text-to-speech models on your own recordings, with a busy accelerator.",
    epilog="Start with:  myxtts demo   then   myxtts prepare RECORDINGS --out corpus",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_OF_TRAINING = ("tensorflow", "keras", "scipy", "ml_dtypes")
"""Modules that the extra `train` installs."""

app.command("demo")(make_demo)
app.command("collect")(run_collect)
app.command("prepare")(prepare)
app.command("precompute")(run_precompute)
app.command("synth")(run_synth)
app.command("explain")(run_explain)
app.command("export")(run_export)
app.command("serve")(run_serve)
app.command("evaluate")(run_evaluate)
app.command("train")(run_train)
app.command("diagnose")(run_diagnose)
app.command("monitor")(run_monitor)
app.command("config")(show_config)
app.command("profile")(run_profile)
app.command("bench")(run_bench_command)
app.command("data-worker")(run_data_worker)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"myxtts {__version__}")
        raise typer.Exit


@app.callback()
def _describe_common_options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    _debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; works behind any command.")
    ] = False,
) -> None:
    pass


def run(arguments: list[str] | None = None) -> None:
    """Runs one command and exits with the code of its kind of error.

    --debug is taken out of the arguments first, so that it works behind any command; it raises errors with traceback.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
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
        problem = f"Something went wrong inside myxtts: {type(error).__name__}: {error}"
        advice = "Please report it with the output of the same command and --debug."
        print_error(MyXTTSError(problem, next_step=advice), as_json="--json" in arguments)
        sys.exit(MyXTTSError.exit_code)


if __name__ == "__main__":
    run()
