"""Command-line flags of settings, shared by all commands that take a configuration.

A command decorated with `takes_settings` receives the resolved configuration. The flags join its signature, so that
they are in its help and complete in the shell.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

from myxtts.cli.help import ADVANCED, SPEED, WHAT, WHERE, option
from myxtts.cli.screen import print_note
from myxtts.config.choices import SELECTORS, join_with_or, list_presets
from myxtts.errors import UsageError

if TYPE_CHECKING:
    from myxtts.config.schema import XTTSConfig


@dataclass(frozen=True, slots=True)
class SettingFlag:
    """A flag and the keys it sets. A switch sets `value`; the others take theirs from the command line.

    `default` is shown in help; a test compares it with the schema, which would load pydantic for every --help.
    `is_hidden` flags are debugging aids: accepted, but not in help.
    """

    flag: str
    keys: tuple[str, ...]
    help: str
    metavar: str = ""
    default: str = ""
    panel: str = ADVANCED
    value: bool | None = None
    is_hidden: bool = False

    @property
    def parameter(self) -> str:
        """Name of the Python parameter: `--train-data` -> `train_data`."""
        return self.flag.lstrip("-").replace("-", "_")


_MODEL_SIZES, _LEVELS, _CARDS = (join_with_or(list(list_presets(selector))) for selector in SELECTORS)
_AUTO = "auto"

# Settings that are changed often; all others are reached by --set. Help names them in this order.
SETTING_FLAGS: tuple[SettingFlag, ...] = (
    SettingFlag("--train-data", ("data.train_data",), "Corpus or folder of recordings.", "PATH", panel=WHAT),
    SettingFlag(
        "--val-data", ("data.val_data",), "Validation corpus; otherwise a part of --train-data.", "PATH", panel=WHAT
    ),
    SettingFlag(
        "--language", ("data.language",), "Language of recordings that name none, such as fa.", "CODE", "en", WHAT
    ),
    SettingFlag("--model-size", ("model_size",), f"{_MODEL_SIZES}.", "SIZE", "small", WHAT),
    SettingFlag("--steps", ("training.steps",), "Train for this many steps.", "N", panel=WHAT),
    SettingFlag("--epochs", ("training.epochs",), "Train for this many passes over the corpus.", "N", panel=WHAT),
    SettingFlag("--minutes", ("training.minutes",), "Train for this many minutes.", "N", panel=WHAT),
    SettingFlag(
        "--adapt",
        ("training.adapt",),
        "With --init-from: voice adapts to a new voice in known languages, all also to new languages.",
        "WHAT",
        panel=WHAT,
    ),
    SettingFlag(
        "--cache-dir", ("data.cache_dir",), "Feature cache.", "DIR", "cached_features beside the corpus", WHERE
    ),
    SettingFlag("--run-name", ("training.run_name",), "Name of the run, a folder in runs/.", "NAME", "run", WHERE),
    SettingFlag("--run-dir", ("training.run_dir",), "Folder of the run.", "DIR", "runs/NAME", WHERE),
    SettingFlag("--visible-gpus", ("training.visible_gpus",), "GPUs to use, such as 0,1.", "GPUS", panel=WHERE),
    SettingFlag(
        "--multi-gpu",
        ("training.multi_gpu",),
        "Data-parallel training on all visible GPUs.",
        panel=WHERE,
        value=True,
    ),
    SettingFlag(
        "--data-gpu",
        ("data.data_gpu",),
        "GPU that computes features; with --model-gpu: Multi-GPU mode.",
        "GPU",
        panel=WHERE,
    ),
    SettingFlag("--model-gpu", ("data.model_gpu",), "GPU that trains, or several: 1,2,3.", "GPUS", panel=WHERE),
    SettingFlag(
        "--allow-cpu",
        ("training.allow_cpu",),
        "Train on the CPU if the named GPUs do not exist.",
        panel=WHERE,
        value=True,
    ),
    SettingFlag(
        "--batch-size", ("data.batch_size",), "Utterances per step, or auto.", "N", "32 (tiny 8, big 16)", SPEED
    ),
    SettingFlag("--gpu-card", ("gpu_card",), f"Batch, threads and buffer for {_CARDS}.", "CARD", panel=SPEED),
    SettingFlag(
        "--preprocessing-mode",
        ("data.preprocessing_mode",),
        "precompute: read features from the cache. on_the_fly: compute them in every epoch.",
        "MODE",
        "precompute",
        SPEED,
    ),
    SettingFlag("--num-workers", ("data.num_workers",), "Loader threads, or auto.", "N", _AUTO, SPEED),
    SettingFlag("--buffer-size", ("data.buffer_size",), "Batches kept ready in memory.", "N", "50", SPEED),
    SettingFlag(
        "--prefetch-buffer-size", ("data.prefetch_buffer_size",), "Batches kept ready on the GPU.", "N", "2", SPEED
    ),
    SettingFlag(
        "--optimization-level", ("optimization_level",), f"Compilation and precision: {_LEVELS}.", "LEVEL", "enhanced"
    ),
    SettingFlag("--model-start-delay", ("data.model_start_delay",), "Head start of the data GPU.", "SECONDS", "2.0"),
    SettingFlag(
        "--disable-tf-native-loading",
        ("data.use_tf_native_loading",),
        "Load with Python instead of TensorFlow operations.",
        value=False,
        is_hidden=True,
    ),
    SettingFlag(
        "--disable-gpu-prefetch",
        ("data.prefetch_to_gpu", "data.enhanced_gpu_prefetch"),
        "Do not copy batches to the GPU ahead of time.",
        value=False,
        is_hidden=True,
    ),
    SettingFlag(
        "--disable-cpu-gpu-overlap",
        ("data.optimize_cpu_gpu_overlap",),
        "Give loader threads the same CPUs and priority as training.",
        value=False,
        is_hidden=True,
    ),
)

_CONFIG_FLAG = SettingFlag("--config", (), "Configuration file (YAML).", "FILE")
_SET_FLAG = SettingFlag("--set", (), "Any other setting; can be repeated. See: myxtts config", "KEY=VALUE")

# Flags by what they act on, for `takes_settings`.
CORPUS_FLAGS = ("train_data", "language", "cache_dir")
MODEL_FLAGS = ("model_size", "optimization_level", "gpu_card")
DEVICE_FLAGS = ("data_gpu", "model_gpu", "multi_gpu", "visible_gpus", "allow_cpu", "model_start_delay")
LOADING_FLAGS = (
    *("batch_size", "num_workers", "buffer_size", "prefetch_buffer_size", "preprocessing_mode"),
    *("disable_tf_native_loading", "disable_gpu_prefetch", "disable_cpu_gpu_overlap"),
)
LENGTH_FLAGS = ("steps", "epochs", "minutes")
ALL_FLAGS = tuple(flag.parameter for flag in SETTING_FLAGS)


def takes_settings(
    *acting: str, hidden: Sequence[str] = (), is_new: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds --config, --set and setting flags to a command whose first parameter is the configuration.

    Help shows the flags that act in the command, given by parameter name, but not those of `hidden`, which act a
    little. All others are accepted, since earlier users know them in every command, with a note that they have no
    effect; a command that `is_new` refuses them. A flag of the same name as one of the command's own parameters is
    left to the command.
    """
    assert {*acting, *hidden} <= set(ALL_FLAGS), acting

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        refused = () if not is_new else tuple(name for name in ALL_FLAGS if name not in (*acting, *hidden))
        return _join_flags(command, acting, hidden, refused)

    return decorate


def _join_flags(
    command: Callable[..., None], acting: Sequence[str], hidden: Sequence[str], refused: Sequence[str]
) -> Callable[..., None]:
    # XTTSConfig is no option of the command, and importing it would load pydantic for every --help.
    hints = get_type_hints(command, localns={"XTTSConfig": object}, include_extras=True)
    own = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in list(inspect.signature(command).parameters.values())[1:]
    ]
    taken = {*refused, *(parameter.name for parameter in own)}
    shared = [
        _make_option(flag.parameter, flag, is_hidden=flag.is_hidden or flag.parameter not in acting)
        for flag in SETTING_FLAGS
        if flag.parameter not in taken
    ]
    last = [_make_option("config_file", _CONFIG_FLAG), _make_option("assignments", _SET_FLAG, list[str], ())]

    # typer reads the signature: the wrapper takes any keywords and gets the joined parameters below.
    @functools.wraps(command)
    def run_with_settings(**values: Any) -> None:
        given = {parameter.name: values.pop(parameter.name) for parameter in (*shared, *last)}
        config_file, assignments = given.pop("config_file"), given.pop("assignments")
        flags = list(_collect_values(given))
        known = {*acting, *hidden}
        useless = [flag.flag for flag in SETTING_FLAGS if given.get(flag.parameter) and flag.parameter not in known]
        if useless:
            print_note(f"{', '.join(useless)}: no effect in this command.")
        command(load_config(config_file, assignments, flags), **values)

    parameters = [*shared, *(one.replace(kind=one.KEYWORD_ONLY) for one in own), *last]
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
    config = XTTSConfig.load(path, flags=flags)
    for old, key, origin in config.list_old_settings():
        print_note(f"{old} ({origin}) is an old name: write {key}.")
    return config


Value = TypeVar("Value")


def choose_new(old_flag: str, old: Value | None, flag: str, value: Value | None) -> Value | None:
    """Returns the value of a flag that may have been given under its old name, with a note in that case."""
    if old is None:
        return value
    if value is not None:
        raise UsageError(f"{old_flag} is the old name of {flag}, and both are given.", next_step=f"Keep {flag}.")
    print_note(f"{old_flag} is an old name: use {flag}.")
    return old


def require_data(config: XTTSConfig) -> None:
    """Raises an error where the flags name nothing that features could be loaded or made from."""
    from myxtts.store.provide import find_store_folder, has_features, refuse_missing_data

    data, folder = config.data, find_store_folder(config.data, UsageError)
    refuse_missing_data(data)
    if data.train_data is None and data.preprocessing_mode == "on_the_fly":
        raise UsageError(
            "Features are computed on the fly, but no recordings are given.", next_step="Add --train-data DIR."
        )
    if data.train_data is None and not has_features(data):
        raise UsageError(
            f"No corpus is given, and there is no feature cache in {folder}.", next_step="Add --train-data DIR."
        )


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


def _make_option(
    name: str, flag: SettingFlag, kind: Any = str | None, default: Any = None, *, is_hidden: bool = False
) -> inspect.Parameter:
    """Builds a keyword-only parameter that typer turns into an option.

    Values are taken as text and parsed as YAML by `config.load`, which knows their types; switches are booleans.
    """
    if flag.value is not None:
        kind, default = bool, False
    shown = f"{flag.help} \\[default: {flag.default}]" if flag.default else flag.help
    made = option(shown, flag.metavar or None, flag.panel, flag=flag.flag, show_default=False, hidden=is_hidden)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, made])
