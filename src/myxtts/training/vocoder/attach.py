"""Attaches a trained vocoder to the bundle of a voice model, so that one folder is enough for synthesis."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from myxtts.config.load import RESOLVED_FILE_NAME
from myxtts.config.schema import XTTSConfig
from myxtts.features.definition import MelDefinition
from myxtts.models.bundle import BUNDLE_FOLDER_NAME, find_bundle, read_bundle, refuse_foreign_vocoder, write_bundle
from myxtts.models.vocoder_bundle import find_vocoder, put_into
from myxtts.storage.atomic import lock_directory


def check_receiver(receiver: Path, config: XTTSConfig) -> None:
    """Checks before training that a vocoder with these settings can be attached to `receiver` afterwards.

    Raises DataError or ConfigError if not.
    """
    bundle = read_bundle(find_bundle(receiver))
    refuse_foreign_vocoder(bundle.mel, {"mel": dict(MelDefinition.from_config(config.data).to_json())})


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
