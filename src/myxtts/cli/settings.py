"""Command-line flags of settings, shared by all commands that take a configuration.

A command decorated with `takes_settings` receives the resolved configuration; the flags join its signature, so that
they show in its help and complete in the shell.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from myxtts.config.choices import SELECTORS, join_with_or, list_presets
from myxtts.errors import UsageError

if TYPE_CHECKING:
    from myxtts.config.schema import XTTSConfig


@dataclass(frozen=True, slots=True)
class SettingFlag:
    """A flag and the keys it sets. A switch sets `value`; the others take theirs from the command line."""

    flag: str
    keys: tuple[str, ...]
    help: str
    metavar: str = ""
    value: bool | None = None

    @property
    def parameter(self) -> str:
        """Name of the Python parameter: `--train-data` -> `train_data`."""
        return self.flag.lstrip("-").replace("-", "_")


_MODEL_SIZES, _LEVELS, _CARDS = (join_with_or(list(list_presets(selector))) for selector in SELECTORS)

# Settings that are changed often; all others are reached by --set. Help names them in this order.
SETTING_FLAGS: tuple[SettingFlag, ...] = (
    SettingFlag("--train-data", ("data.train_data",), "Folder or file of the corpus to train on.", "PATH"),
    SettingFlag("--val-data", ("data.val_data",), "Corpus to validate on; by default a share of the first.", "PATH"),
    SettingFlag("--language", ("data.language",), "Language of recordings that name none, such as fa.", "CODE"),
    SettingFlag("--cache-dir", ("data.cache_dir",), "Folder of the feature store.", "DIR"),
    SettingFlag("--model-size", ("model_size",), f"{_MODEL_SIZES}.", "SIZE"),
    SettingFlag("--optimization-level", ("optimization_level",), f"{_LEVELS}.", "LEVEL"),
    SettingFlag("--gpu-card", ("gpu_card",), f"Batch, workers and buffer for {_CARDS}.", "CARD"),
    SettingFlag("--batch-size", ("data.batch_size",), "Utterances per step, or auto.", "N"),
    SettingFlag("--num-workers", ("data.num_workers",), "Threads that load data, or auto.", "N"),
    SettingFlag("--buffer-size", ("data.buffer_size",), "Batches kept ready in memory.", "N"),
    SettingFlag("--prefetch-buffer-size", ("data.prefetch_buffer_size",), "Batches kept ready on the device.", "N"),
    SettingFlag("--data-gpu", ("data.data_gpu",), "GPU that prepares data; with --model-gpu: Multi-GPU mode.", "GPU"),
    SettingFlag("--model-gpu", ("data.model_gpu",), "GPU that trains, or several: 1,2,3.", "GPUS"),
    SettingFlag("--model-start-delay", ("data.model_start_delay",), "Seconds the data GPU starts ahead.", "SECONDS"),
    SettingFlag("--multi-gpu", ("training.multi_gpu",), "Train on all visible GPUs together.", value=True),
    SettingFlag("--visible-gpus", ("training.visible_gpus",), "GPUs to use, such as 0,1.", "GPUS"),
    SettingFlag("--preprocessing-mode", ("data.preprocessing_mode",), "precompute or on_the_fly.", "MODE"),
    SettingFlag(
        "--disable-tf-native-loading",
        ("data.use_tf_native_loading",),
        "Load with Python instead of graph operations.",
        value=False,
    ),
    SettingFlag(
        "--disable-gpu-prefetch",
        ("data.prefetch_to_gpu", "data.enhanced_gpu_prefetch"),
        "Do not copy batches to the device ahead of time.",
        value=False,
    ),
    SettingFlag(
        "--disable-cpu-gpu-overlap",
        ("data.optimize_cpu_gpu_overlap",),
        "Do not keep loading and training apart.",
        value=False,
    ),
    SettingFlag("--epochs", ("training.epochs",), "Passes over the corpus.", "N"),
    SettingFlag("--steps", ("training.steps",), "Training steps.", "N"),
    SettingFlag("--minutes", ("training.minutes",), "Minutes to train for.", "MINUTES"),
)

_CONFIG_FLAG = SettingFlag("--config", (), "Configuration file (YAML).", "FILE")
_SET_FLAG = SettingFlag("--set", (), "Any other setting; repeatable.", "KEY=VALUE")


def takes_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --config, --set and the setting flags to a command whose first parameter is the configuration.

    A flag of the same name as one of the command's own parameters is left to the command.
    """
    # XTTSConfig is no option of the command, and importing it would load pydantic for every --help.
    hints = get_type_hints(command, localns={"XTTSConfig": object}, include_extras=True)
    own = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in list(inspect.signature(command).parameters.values())[1:]
    ]
    taken = {parameter.name for parameter in own}
    shared = [_make_option(flag.parameter, flag) for flag in SETTING_FLAGS if flag.parameter not in taken]
    shared.append(_make_option("config_file", _CONFIG_FLAG))
    shared.append(_make_option("assignments", _SET_FLAG, list[str], ()))

    # typer reads the signature: the wrapper takes any keywords and gets the joined parameters below.
    @functools.wraps(command)
    def run_with_settings(**values: Any) -> None:
        given = {parameter.name: values.pop(parameter.name) for parameter in shared}
        config_file, assignments = given.pop("config_file"), given.pop("assignments")
        command(load_config(config_file, assignments, _collect_values(given)), **values)

    parameters = [*own, *shared]
    run_with_settings.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run_with_settings.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run_with_settings


def load_config(
    path: str | None, assignments: Sequence[str], values: Iterable[tuple[str, object, str]] = ()
) -> XTTSConfig:
    """Loads the configuration: `path` < `values` (key, value, flag as typed) and --set assignments."""
    from myxtts.config.load import FlagValue
    from myxtts.config.schema import XTTSConfig

    flags = [FlagValue(*value) for value in values]
    for text in assignments:
        key, value = split_assignment(text)
        flags.append(FlagValue(key, value, f"--set {key}"))
    return XTTSConfig.load(path, flags=flags)


def require_data(config: XTTSConfig) -> None:
    """Raises an error where the flags name nothing that features could be loaded or made from."""
    from myxtts.store.provide import find_store_folder, has_features, refuse_missing_data

    data, folder = config.data, find_store_folder(config.data, UsageError)
    refuse_missing_data(data)
    if data.train_data is None and data.preprocessing_mode == "on_the_fly":
        raise UsageError("On the fly there is no store to load from.", next_step="Give --train-data DIR.")
    if data.train_data is None and not has_features(data):
        raise UsageError(f"No corpus is named, and there is no store in {folder}.", next_step="Give --train-data DIR.")


def _collect_values(given: dict[str, Any]) -> Iterator[tuple[str, object, str]]:
    """Key, value and flag of every setting whose flag was given; a flag may set several keys."""
    for flag in SETTING_FLAGS:
        value = given.get(flag.parameter)
        if value is None or value is False:
            continue
        for key in flag.keys:
            yield key, value if flag.value is None else flag.value, flag.flag


def split_assignment(text: str) -> tuple[str, str]:
    """Key and value of KEY=VALUE; UsageError for anything else."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(
            f"--set {text!r} is not of the form KEY=VALUE.", next_step="Write e.g. --set data.batch_size=48."
        )
    return key.strip(), value


def _make_option(name: str, flag: SettingFlag, kind: Any = str | None, default: Any = None) -> inspect.Parameter:
    """Builds a keyword-only parameter that typer turns into an option of the panel "Settings".

    Values are taken as text and parsed as YAML by `config.load`, which knows their types; switches are booleans.
    """
    if flag.value is not None:
        kind, default = bool, False
    metavar = flag.metavar or None
    option = typer.Option(flag.flag, help=flag.help, metavar=metavar, rich_help_panel="Settings", show_default=False)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
