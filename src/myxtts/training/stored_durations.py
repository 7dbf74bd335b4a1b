"""Training with the durations of the store: whether it has them, whose they are, and a fingerprint of them.

Shape legend: N tokens.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DataError
from myxtts.store.durations import read_durations_origin
from myxtts.store.reader import FeatureStore


def refuse_missing_durations(
    store: FeatureStore, rows: NDArray[np.int64], factor_sizes: tuple[int, ...], single_state_symbols: int
) -> None:
    """Raises DataError where an utterance has none. Those that nothing can align may, as the search leaves them out."""
    columns = store.columns
    missing = rows[columns["durations_length"][rows] != columns["tokens_length"][rows]]
    for row in missing.tolist():
        if not is_alignable(store, row, factor_sizes, single_state_symbols):
            continue
        raise DataError(
            f"training.durations is stored, but {len(missing):,} of {len(rows):,} utterances in {store.folder} have no "
            f"durations, such as {store.id_of(row)}.",
            next_step=f"Write them: myxtts precompute --cache-dir {store.folder} --durations-from RUN; or set "
            "training.durations to search.",
        )


def is_alignable(store: FeatureStore, row: int, factor_sizes: tuple[int, ...], single_state_symbols: int) -> bool:
    """Whether an utterance has a frame for each of its states: one of a special or a punctuation mark, else two."""
    tokens_N = store.read_part(row, "tokens")
    symbols_N = tokens_N // math.prod(factor_sizes[1:])
    num_states = len(tokens_N) + int(np.count_nonzero(symbols_N >= single_state_symbols))
    return num_states <= store.entry(row, "mel").length


def fingerprint_durations(store: FeatureStore, rows: NDArray[np.int64]) -> str:
    """Changes with the durations of these utterances, however they are numbered."""
    order = rows[np.argsort(store.columns["id_hash"][rows], kind="stable")]
    content = hashlib.sha256()
    for name in ("id_hash", "durations_length", "durations_crc"):
        content.update(np.ascontiguousarray(store.columns[name][order]).astype(np.uint64).tobytes())
    return content.hexdigest()


def describe_durations(folder: Path) -> str:
    """A sentence for the log."""
    origin = read_durations_origin(folder)
    by: Any = f", aligned by {origin.place} at step {origin.step:,}" if origin is not None else ""
    return f"Durations: from the store{by}. Alignments are not searched."
