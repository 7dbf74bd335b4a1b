"""`Trainer`: from a configuration to a trained model in a run directory.

    Trainer(XTTSConfig.load("config.yaml")).fit()

Everything that can be wrong with settings, data and run directory is found before TensorFlow is loaded.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from myxtts.config.schema import XTTSConfig
from myxtts.errors import BusyError
from myxtts.files import TEMPORARY_SUFFIX, lock_directory
from myxtts.models.bundle import BUNDLE_FILE_NAME, BUNDLE_FOLDER_NAME, Bundle, find_bundle, read_bundle
from myxtts.runtime.hardware import detect_hardware
from myxtts.runtime.plan import choose_plan
from myxtts.training.batch_size import resolve_batch_size
from myxtts.training.observers import Observer, TrainResult
from myxtts.training.progress import ProgressDisplay
from myxtts.training.run import RunFolder
from myxtts.training.signals import watch_signals
from myxtts.training.training_data import open_training_data

__all__ = ["TrainResult", "Trainer"]


def print_line(line: str) -> None:
    """Tells the user something on standard error."""
    sys.stderr.write(f"{line}\n")


class Trainer:
    """A training that can be begun, resumed, or begun from the weights of a bundle.

    `say` is told, line by line, what happens. `make_observers` is called when the run is open and TensorFlow loaded;
    what it gives is called after every step. Progress shows on standard error, as a bar on a terminal and as a line
    now and then elsewhere.
    """

    def __init__(
        self,
        config: XTTSConfig,
        *,
        say: Callable[[str], None] = print_line,
        resume: bool = False,
        override: bool = False,
        init_from: str | Path | None = None,
        make_observers: Callable[[], Sequence[Observer]] = tuple,
        arguments: Sequence[str] | None = None,
    ) -> None:
        self._config, self._say, self._make_observers = config, say, make_observers
        self._resume, self._override, self._arguments = resume, override, arguments
        self._init_from = Path(init_from) if init_from is not None else None

    def fit(self) -> TrainResult:
        """Trains until `steps`, `epochs` or a signal end it; a signal goes on its way when all is saved."""
        config, hardware = self._config, detect_hardware()
        plan = choose_plan(config, hardware)
        config = resolve_batch_size(config, plan, hardware, self._say)
        data = open_training_data(config, plan)
        origin = self._read_origin()
        _recover_bundle(config.training.run_path)
        with (
            RunFolder.open(
                config,
                resume=self._resume,
                override=self._override,
                fingerprints=data.fingerprint(),
                arguments=self._arguments,
                warn=self._say,
            ) as run,
            watch_signals() as request,
        ):
            from myxtts.training.preparation import prepare_training
            from myxtts.training.session import Session

            prepared = prepare_training(config, plan, hardware, data, run, origin, self._say)
            for message in run.messages:
                self._say(message)
            if origin is not None and run.checkpoint is not None:
                self._say("--init-from is for the beginning of a run: this one goes on from its checkpoint.")
            with ProgressDisplay(prepared.total_steps) as display:
                session = Session(prepared, run, request, self._say, (display, *self._make_observers()))
                result = session.train()
        request.raise_if_requested()
        return result

    def _read_origin(self) -> Bundle | None:
        return None if self._init_from is None else read_bundle(find_bundle(self._init_from))


def _recover_bundle(folder: Path) -> None:
    """Puts the folder of a run in order after a kill in the middle of replacing its bundle.

    A run that another process trains in is left alone: it is refused later on, with an explanation.
    """
    if not folder.is_dir():
        return
    with suppress(BusyError), lock_directory(folder, "training"):
        for leftover in sorted(folder.glob(f".{BUNDLE_FOLDER_NAME}.*{TEMPORARY_SUFFIX}")):
            is_whole = (leftover / BUNDLE_FILE_NAME).is_file()
            if is_whole and not (folder / BUNDLE_FOLDER_NAME).exists():
                leftover.rename(folder / BUNDLE_FOLDER_NAME)
            else:
                shutil.rmtree(leftover, ignore_errors=True)
