"""The feature store of a split, opened for training: made with the settings of the configuration, and looked over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from myxtts.config.schema import DataConfig, XTTSConfig
from myxtts.corpus.open import is_prepared, open_corpus
from myxtts.errors import DataError
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.pipeline.splits import choose_store_folder_of_split, join_training_store
from myxtts.store.reader import FeatureStore
from myxtts.store.settings import StoreSettings, describe_differences, list_differences
from myxtts.store.verify import check_before_training
from myxtts.types import Split


def open_store(config: XTTSConfig, split: Split = "train") -> FeatureStore:
    """Refuses a store made with other settings; checks its bytes as `cache_verification` says."""
    store = FeatureStore.open(choose_store_folder_of_split(config.data, split))
    join_training_store(store, config.data, split)
    _refuse_stale_store(store, config.data)
    check_before_training(store, config.data.cache_verification, config.training.seed)
    return store


def _refuse_stale_store(store: FeatureStore, data: DataConfig) -> None:
    """Features made with other settings than these would train another model than was asked for."""
    wanted = StoreSettings(
        mel=MelDefinition.from_config(data),
        audio=AudioDefinition.from_config(data),
        mel_dtype=data.mel_dtype,
        # Sounds that are kept beside the features do no harm.
        has_pcm=data.store_pcm or store.settings.has_pcm,
        frontend=store.settings.frontend,
    )
    if data.train_data is not None and is_prepared(Path(data.train_data)):
        wanted = replace(wanted, frontend=open_corpus(data.train_data).load_frontend().fingerprint())
    differences = list_differences(store.settings, wanted)
    if differences:
        raise DataError(
            f"The features in {store.folder} were made with other settings: {describe_differences(differences)}.",
            next_step="Run myxtts precompute with these settings, or change them back.",
        )
