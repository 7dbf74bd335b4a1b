"""Candidates of the input pipeline benchmark: loaders, swept settings, or two configurations over the same corpus.

Loaders by name: `cached` reads the feature store; `native` and `python` compute log-mels on the fly, in TensorFlow ops
or in Python. Every candidate is a factory: the benchmark opens it again for every block of steps, so that no
buffer is filled while another candidate is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from myxtts.config.catalogue import find_key
from myxtts.config.schema import XTTSConfig
from myxtts.config.values import resolve_scalar
from myxtts.corpus.corpus_file import Corpus, is_prepared, open_corpus
from myxtts.errors import DataError, UsageError
from myxtts.pipeline.open import open_batches
from myxtts.pipeline.recordings import RecordingSource, survey_recordings
from myxtts.store.layout import STORE_FILE_NAME
from myxtts.store.provide import find_store_folder
from myxtts.store.reader import FeatureStore

LOADER_KEY = "loader"
"""Key of a sweep over the names in `LOADERS`, which are no values of a single setting."""
LOADERS: dict[str, dict[str, Any]] = {
    "cached": {"data.preprocessing_mode": "precompute"},
    "native": {"data.preprocessing_mode": "on_the_fly", "data.use_tf_native_loading": True},
    "python": {"data.preprocessing_mode": "on_the_fly", "data.use_tf_native_loading": False},
}
_ON_THE_FLY = {"data.auto_tune_performance": False, "data.ram_budget_gb": 1e-6}
"""Auto-tuning would try both on-the-fly loaders and take the faster one; here each is measured on its own. The tiny
budget turns off the cache of features between epochs, as with a corpus that does not fit into memory."""
_FIXED = {"data.auto_tune_performance": False, "data.optimize_cpu_gpu_overlap": False}
"""Added where one of `_FIXED_KEYS` is swept: both settings would change the swept numbers."""
_FIXED_KEYS = {"data.num_workers", "data.buffer_size", "data.prefetch_buffer_size"}
_MAX_SWEPT = 32
"""Combinations in one run: at the defaults each takes three rounds of 60 steps, and half as many for its ceiling."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """`open` returns a context with an endless iterable of batches. `settings` are the swept keys and values."""

    name: str
    open: Callable[[], AbstractContextManager[Iterable[Any]]]
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A candidate that cannot run on this corpus: `reason` is a key of `bench.page.REASONS`, `detail` fills it."""

    name: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Data:
    """Feature store and prepared corpus, either of which may be missing, and the configuration they are read with."""

    config: XTTSConfig
    store_folder: Path
    store: FeatureStore | None
    corpus: Corpus | None

    @classmethod
    def find(cls, config: XTTSConfig) -> Data:
        """Finds the store and the corpus of a configuration; without a corpus there, the one the store was made from.

        Raises DataError where there is neither a store nor a prepared corpus.
        """
        data = config.data
        folder = find_store_folder(data)
        store = FeatureStore.open(folder) if (folder / STORE_FILE_NAME).exists() else None
        named = Path(data.train_data) if data.train_data else None
        if named is not None and is_prepared(named):
            return cls(config, folder, store, open_corpus(named))
        origin = Path(store.state.origin.corpus) if store is not None else None
        if origin is None:
            raise DataError(
                f"There is no prepared corpus in {named} and no feature cache in {folder}.",
                next_step=f"Run: myxtts precompute --train-data {named}",
            )
        return cls(config, folder, store, open_corpus(origin) if origin.is_file() else None)

    def configure(self, changes: Mapping[str, Any], config: XTTSConfig | None = None) -> XTTSConfig:
        """Returns the configuration with changes, on this corpus and store. Raises DataError where data is missing."""
        places: dict[str, Any] = {"data.cache_dir": str(self.store_folder)}
        if self.corpus is not None:
            places["data.train_data"] = str(self.corpus.file)
        config = (config or self.config).model_copy(update={**places, **changes})
        if config.data.preprocessing_mode == "precompute" and self.store is None:
            raise DataError(
                f"There are no features in {self.store_folder}.",
                next_step=f"Run: myxtts precompute --train-data {config.data.train_data} --cache-dir "
                f"{self.store_folder}, or choose preprocessing_mode on_the_fly.",
            )
        if config.data.preprocessing_mode == "on_the_fly" and self.corpus is None:
            raise DataError(
                f"The corpus of the feature cache {self.store_folder} does not exist, so features cannot be "
                "computed on the fly.",
                next_step="Give the prepared corpus with --train-data.",
            )
        return config


def choose_candidates(data: Data, names: Sequence[str]) -> tuple[list[Candidate], list[LeftOut]]:
    """Returns candidates for the loaders in `names`, and the reasons for those that cannot run on this corpus."""
    changes = {name: _choose_loader(name) for name in names}
    left_out = {name: absence for name in changes if (absence := _find_absence(data, name)) is not None}
    chosen = [make_product(name, data.configure(changes[name])) for name in changes if name not in left_out]
    return chosen, list(left_out.values())


def make_product(name: str, config: XTTSConfig, settings: Mapping[str, Any] | None = None) -> Candidate:
    """Makes a candidate of the MyXTTS pipeline under a configuration."""
    return Candidate(name, partial(open_batches, config), settings or {})


def parse_sweeps(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Parses texts such as `batch_size=16,32` to full keys and their values; a repeated key adds values."""
    sweeps: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, listed = text.partition("=")
        values = [resolve_scalar(value.strip()) for value in listed.split(",") if value.strip()]
        if not equals or not values:
            raise UsageError(
                f"--sweep {text!r} is not of the form KEY=VALUE,VALUE.",
                next_step="Write e.g. --sweep batch_size=16,32.",
            )
        key = LOADER_KEY if name.strip() == LOADER_KEY else find_key(name.strip(), "--sweep")
        sweeps[key] = list(dict.fromkeys([*sweeps.get(key, []), *values]))
    return sweeps


def make_swept(data: Data, sweeps: Mapping[str, Sequence[Any]]) -> list[Candidate]:
    """A candidate for every combination of the values; the key `loader` takes cached, native or python.

    Where numbers of threads or buffers are swept, auto-tuning is off, so that the swept values are the used ones.
    """
    count = int(np.prod([len(values) for values in sweeps.values()]))
    if count > _MAX_SWEPT:
        raise UsageError(f"The sweeps make {count} combinations.", next_step=f"Sweep up to {_MAX_SWEPT} of them.")
    fixed = _FIXED if sweeps.keys() & _FIXED_KEYS else {}
    candidates = []
    for values in product(*sweeps.values()):
        settings = dict(zip(sweeps, values, strict=True))
        changes = dict(fixed)
        for key, value in settings.items():
            changes |= _choose_loader(str(value)) if key == LOADER_KEY else {key: value}
        label = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in settings.items())
        candidates.append(make_product(label, data.configure(changes), settings))
    return candidates


def make_pair(data: Data, other: XTTSConfig) -> list[Candidate]:
    """Makes two candidates, `settings` and `against`, from two configurations on the same corpus and store."""
    return [make_product("settings", data.configure({})), make_product("against", data.configure({}, other))]


def _choose_loader(name: str) -> dict[str, Any]:
    if name not in LOADERS:
        raise UsageError(f"There is no loader {name!r}.", next_step=f"Choose among {', '.join(LOADERS)}.")
    return {**LOADERS[name], **({} if name == "cached" else _ON_THE_FLY)}


def _find_absence(data: Data, name: str) -> LeftOut | None:
    """Returns why a loader cannot run: no store, no corpus, or no recording that TensorFlow ops can decode."""
    if name == "cached":
        return LeftOut(name, "no_store", str(data.store_folder)) if data.store is None else None
    if data.corpus is None:
        return LeftOut(name, "no_corpus")
    source = RecordingSource.open(data.corpus, data.config.data)
    if name == "native" and survey_recordings(source).num_native == 0:
        return LeftOut(name, "no_wav")
    return None
