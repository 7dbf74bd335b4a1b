"""Attaches a trained vocoder to the bundle of a voice model, so that one folder is enough for synthesis."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from myxtts.config.load import RESOLVED_FILE_NAME
from myxtts.config.schema import XTTSConfig
from myxtts.features.definition import MelDefinition
from myxtts.models.bundle import BUNDLE_FOLDER_NAME, find_bundle, read_bundle, refuse_foreign_vocoder, write_bundle
from myxtts.models.vocoder_bundle import find_vocoder, put_into
from myxtts.storage.atomic import lock_directory
from myxtts.storage.json_file import JsonLines
from myxtts.training.run.folder import METRICS_FILE_NAME
from myxtts.training.terms import GRIFFIN_LIM_PREFIX, SPECTRAL_DISTANCE


def check_receiver(receiver: Path, config: XTTSConfig) -> None:
    """Checks before training that a vocoder with these settings can be attached to `receiver` afterwards.

    Raises DataError or ConfigError if not.
    """
    bundle = read_bundle(find_bundle(receiver))
    refuse_foreign_vocoder(bundle.mel, {"mel": dict(MelDefinition.from_config(config.data).to_json())})


@dataclass(frozen=True)
class Comparison:
    """Spectral distances of a vocoder and of Griffin-Lim from the same recordings; None where they were not measured.

    Not the mel distance: Griffin-Lim inverts the mel bands themselves, and comes closer to them than any vocoder.
    """

    step: int | None = None
    distance: float | None = None
    griffin_lim: float | None = None

    @property
    def is_known(self) -> bool:
        return self.distance is not None and self.griffin_lim is not None

    @property
    def is_worse(self) -> bool:
        return self.distance is not None and self.griffin_lim is not None and not self.distance <= self.griffin_lim

    def describe(self) -> str:
        """Sentence on the outcome."""
        if self.distance is None or self.griffin_lim is None:
            return "The vocoder was never validated, so it is not known whether it is better than Griffin-Lim."
        relation = "further from" if self.is_worse else "nearer to"
        return (
            f"At step {self.step:,} its sound is {relation} the recordings than that of Griffin-Lim "
            f"(spectral distance {self.distance:.3f} against {self.griffin_lim:.3f})."
        )


def compare_with_griffin_lim(vocoder_run: Path) -> Comparison:
    """Reads the last validation of a vocoder run from its metrics."""
    found = Comparison()
    for line in JsonLines(vocoder_run / METRICS_FILE_NAME).read():
        numbers, step = line.get("validation"), line.get("step")
        if isinstance(numbers, dict) and isinstance(step, int):
            # A distance that was not finite is recorded as null: the vocoder makes no sound that could be compared.
            own, other = (numbers.get(f"{prefix}{SPECTRAL_DISTANCE}") for prefix in ("", GRIFFIN_LIM_PREFIX))
            if isinstance(other, int | float):
                found = Comparison(step, float(own) if isinstance(own, int | float) else math.inf, float(other))
    return found


def attach_vocoder(vocoder: Path, receiver: Path) -> Path:
    """Copies the vocoder of a run or bundle into the bundle of a voice model; returns the folder of that bundle.

    Raises BusyError while the receiving run is being trained. From then on that run keeps the vocoder in its bundles.
    """
    folder = find_bundle(receiver)
    trained = find_vocoder(vocoder)
    with ExitStack() as held:
        run = folder.absolute().parent
        if folder.absolute().name == BUNDLE_FOLDER_NAME and (run / RESOLVED_FILE_NAME).is_file():
            held.enter_context(lock_directory(run, "taking a vocoder"))
        write_bundle(folder, put_into(read_bundle(folder), trained))
    return folder
