"""Candidates of a benchmark: input pipelines over one corpus, each opened again for every block of steps.

By name: `cached` reads the feature store, `native` and `python` compute features on the fly. Settings that a user
sweeps, or compares with other settings, are candidates too.
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
LOADERS: dict[str, dict[str, Any]] = {
    "cached": {"data.preprocessing_mode": "precompute"},
    "native": {"data.preprocessing_mode": "on_the_fly", "data.use_tf_native_loading": True},
    "python": {"data.preprocessing_mode": "on_the_fly", "data.use_tf_native_loading": False},
}
_ALONE = {"data.auto_tune_performance": False}
"""Tuning tries both loaders on the fly and takes the faster one; here each is measured for itself."""
_NO_MEMORY = {"data.ram_budget_gb": 1e-6}
"""On the fly nothing is kept from one epoch to the next, as with a corpus that does not fit into memory."""
_FIXED = {"data.auto_tune_performance": False, "data.optimize_cpu_gpu_overlap": False}
_FIXED_KEYS = {"data.num_workers", "data.buffer_size", "data.prefetch_buffer_size"}
_MAX_SWEPT = 32


@dataclass(frozen=True, slots=True)
class Candidate:
    """`open` gives endless batches for as long as it is held. `settings` is what sets it apart in a sweep."""

    name: str
    open: Callable[[], AbstractContextManager[Iterable[Any]]]
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A candidate that cannot take part: `reason` is a key of the report's words, `detail` what it is about."""

    name: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Data:
    """What a corpus offers to candidates, and the settings it is read with."""

    config: XTTSConfig
    store_folder: Path
    store: FeatureStore | None
    corpus: Corpus | None

    @classmethod
    def find(cls, config: XTTSConfig) -> Data:
        """Raises DataError where there is neither a store nor a prepared corpus."""
        data = config.data
        folder = find_store_folder(data)
        store = FeatureStore.open(folder) if (folder / STORE_FILE_NAME).exists() else None
        named = Path(data.train_data) if data.train_data else None
        if named is not None and is_prepared(named):
            return cls(config, folder, store, open_corpus(named))
        origin = Path(store.state.origin["corpus"]) if store is not None else None
        if origin is None:
            raise DataError(
                f"There is neither a prepared corpus in {named} nor a store in {folder}.",
                next_step=f"Run: myxtts precompute --train-data {named}",
            )
        return cls(config, folder, store, open_corpus(origin) if origin.is_file() else None)

    def configure(self, changes: Mapping[str, Any], config: XTTSConfig | None = None) -> XTTSConfig:
        """The configuration with these changes, on this corpus and store."""
        config = config or self.config
        places: dict[str, Any] = {"data.cache_dir": str(self.store_folder)}
        if self.corpus is not None:
            places["data.train_data"] = str(self.corpus.file)
        config = config.model_copy(update={**places, **changes})
        self._refuse_missing(config)
        return config

    def _refuse_missing(self, config: XTTSConfig) -> None:
        if config.data.preprocessing_mode == "precompute" and self.store is None:
            raise DataError(
                f"There are no features in {self.store_folder}.",
                next_step=f"Run: myxtts precompute --train-data {config.data.train_data} --cache-dir "
                f"{self.store_folder}, or choose preprocessing_mode on_the_fly.",
            )
        if config.data.preprocessing_mode == "on_the_fly" and self.corpus is None:
            raise DataError(
                f"The corpus that {self.store_folder} was made of is not there, so nothing can be made on the fly.",
                next_step="Name the prepared corpus with --train-data.",
            )


def choose_candidates(data: Data, names: Sequence[str]) -> tuple[list[Candidate], list[LeftOut]]:
    """Those of `names` that can take part, and why the others cannot."""
    unknown = [name for name in names if name not in LOADERS]
    if unknown:
        raise UsageError(f"There is no candidate {unknown[0]!r}.", next_step=f"Choose among {', '.join(LOADERS)}.")
    chosen, left_out = [], []
    for name in dict.fromkeys(names):
        absence = _find_absence(data, name)
        if absence is None:
            chosen.append(make_product(name, data.configure(_choose_loader(name))))
        else:
            left_out.append(absence)
    return chosen, left_out


def make_product(name: str, config: XTTSConfig, settings: Mapping[str, Any] | None = None) -> Candidate:
    """This product under a configuration."""
    return Candidate(name, partial(open_batches, config), settings or {})


def parse_sweeps(texts: Sequence[str]) -> dict[str, list[Any]]:
    """From `batch_size=16,32` and the like: full keys and their values."""
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

    Where threads or buffers are swept, nothing tunes or limits them, so that the numbers hold.
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
    """The user's settings and others, on the same corpus."""
    own = data.configure({})
    return [make_product("settings", own), make_product("against", data.configure({}, other))]


def _choose_loader(name: str) -> dict[str, Any]:
    if name not in LOADERS:
        raise UsageError(f"There is no loader {name!r}.", next_step=f"Choose among {', '.join(LOADERS)}.")
    return {**LOADERS[name], **({} if name == "cached" else {**_ALONE, **_NO_MEMORY})}


def _find_absence(data: Data, name: str) -> LeftOut | None:
    if name == "cached":
        return LeftOut(name, "no_store", str(data.store_folder)) if data.store is None else None
    if data.corpus is None:
        return LeftOut(name, "no_corpus")
    source = RecordingSource.open(data.corpus, data.config.data)
    if name == "native" and survey_recordings(source).num_native == 0:
        return LeftOut(name, "no_wav")
    return None
