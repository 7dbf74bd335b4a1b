"""What aligning a store with a trained model takes, found and checked before TensorFlow is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
from numpy.typing import NDArray

from myxtts.config.schema import XTTSConfig
from myxtts.config.write import RESOLVED_FILE_NAME
from myxtts.errors import DataError, UsageError
from myxtts.models.bundle import Bundle, find_bundle, read_bundle
from myxtts.models.spec import ModelSpec
from myxtts.store.durations import DurationsOrigin
from myxtts.store.precompute import choose_store_folder
from myxtts.store.reader import FeatureStore


@dataclass(frozen=True)
class AlignmentPlan:
    """Which store is aligned with which model. `config` says how its utterances are loaded."""

    folder: Path
    bundle: Bundle
    spec: ModelSpec
    origin: DurationsOrigin
    config: XTTSConfig
    num_utterances: int


def plan_alignment(config: XTTSConfig, run: Path) -> AlignmentPlan:
    """The store that `config` names, or the one that the run was trained on, and the model of the run's bundle."""
    bundle = read_bundle(find_bundle(run))
    spec = ModelSpec.from_json(bundle.model_spec)
    config = _follow_run(config, run)
    data = config.data
    if data.train_data is None and data.cache_dir is None:
        raise UsageError(
            f"{run} does not say which store it was trained on.", next_step="Name the store with --cache-dir DIR."
        )
    folder = choose_store_folder(data, Path(data.train_data or ""))
    store = FeatureStore.open(folder)
    _refuse_foreign_model(store, bundle, spec, run)
    step = bundle.notes.get("step")
    origin = DurationsOrigin(fingerprint_weights(bundle.weights), str(run), step if isinstance(step, int) else 0)
    return AlignmentPlan(folder, bundle, spec, origin, config, len(store))


def fingerprint_weights(weights: Mapping[str, NDArray[Any]]) -> str:
    """Changes with any of the weights."""
    crc = 0
    for name in sorted(weights):
        crc = google_crc32c.extend(google_crc32c.extend(crc, name.encode()), weights[name].tobytes())
    return f"{crc:08x}"


def _follow_run(config: XTTSConfig, run: Path) -> XTTSConfig:
    """The settings of the run, with the places that were named now; a bundle alone has no settings of its own."""
    if not (run / RESOLVED_FILE_NAME).is_file():
        return config
    named = {"data.train_data": config.data.train_data, "data.cache_dir": config.data.cache_dir}
    settings = XTTSConfig.load(run / RESOLVED_FILE_NAME)
    if not any(named.values()):
        return settings
    # A corpus that is named alone has its store beside it, not where the run had its own.
    return settings.model_copy(update=named)


def _refuse_foreign_model(store: FeatureStore, bundle: Bundle, spec: ModelSpec, run: Path) -> None:
    """Raises DataError where the model was trained on other spectrograms, tokens or languages than the store holds."""
    differences = []
    mel = dict(store.settings.mel.to_json())
    if any(bundle.mel.get(name) != value for name, value in mel.items()):
        differences.append("other spectrograms")
    if bundle.frontend_fingerprint != store.settings.frontend:
        differences.append("tokens of another front end")
    unknown = sorted(set(store.languages) - set(spec.languages))
    if unknown:
        differences.append(f"other languages ({', '.join(spec.languages)}, not {', '.join(unknown)})")
    if differences:
        raise DataError(
            f"The model in {run} cannot align the store in {store.folder}: it was trained on {', '.join(differences)}.",
            next_step="Name a run that was trained on this store.",
        )
