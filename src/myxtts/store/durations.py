"""Durations of tokens, written beside features that are there already: the aligner's part of the store.

Shape legend: K tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DataError
from myxtts.files import lock_directory, sweep_temporary_files
from myxtts.store.generation import commit_state, describe_row, find_next_segment
from myxtts.store.layout import CHUNK_UTTERANCES, PARTS, require_store
from myxtts.store.reader import FeatureStore
from myxtts.store.segment import SegmentWriter


def write_durations(
    folder: Path, durations: Mapping[str, NDArray[np.integer[Any]]], *, chunk_utterances: int = CHUNK_UTTERANCES
) -> int:
    """Stores for each id its durations [K], the mel frames of each token; gives the number of utterances written.

    They are appended as segments and become visible together; nothing else of the store is rewritten. Raises DataError
    and writes nothing if an id is unknown or durations do not fit the stored features.
    """
    require_store(folder)
    if not durations:
        return 0
    with lock_directory(folder, "writing durations"):
        sweep_temporary_files(folder)
        store = FeatureStore.open(folder)
        sweep_temporary_files(store.generation_folder)
        rows = [_find_row(store, id, values) for id, values in durations.items()]
        arrays = list(durations.values())
        first = number = find_next_segment(store.generation_folder)
        for start in range(0, len(rows), chunk_utterances):
            with SegmentWriter(store.generation_folder, number) as segment:
                for place in range(start, min(start + chunk_utterances, len(rows))):
                    values = np.asarray(arrays[place], "<i4")
                    segment.add(describe_row(store, rows[place], PARTS), {"durations": values})
                segment.commit()
            number += 1
        commit_state(folder, replace(store.state, segments=(*store.state.segments, *range(first, number))))
    return len(rows)


def _find_row(store: FeatureStore, id: str, values: NDArray[np.integer[Any]]) -> int:
    row = store.find(id)
    if row is None:
        raise DataError(
            f"The store in {store.folder} has no utterance {id!r}.", next_step="Align the utterances of this store."
        )
    num_tokens, num_frames = store.entry(row, "tokens").length, store.entry(row, "mel").length
    total = int(values.sum())
    if values.dtype.kind not in "iu" or values.shape != (num_tokens,) or total != num_frames or values.min() < 0:
        raise DataError(
            f"The durations of {id!r} are {values.size} {values.dtype} values with the sum {total}, but it has "
            f"{num_tokens} tokens and {num_frames} frames.",
            next_step="The features have changed since they were aligned: align them again.",
        )
    return row
