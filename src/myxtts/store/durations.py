"""Writes token durations from monotonic alignment search into a finished store, without rewriting its features.

Durations become invalid with the text or recording of their utterance. durations.json names the model that aligned, so
that an alignment can be resumed, and durations of two models never mix.
Shape legend: K tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DataError
from myxtts.storage.atomic import lock_directory, sweep_temporary_files
from myxtts.store.generation import commit_state, describe_row, find_next_segment
from myxtts.store.layout import CHUNK_UTTERANCES, PARTS, Part, read_checked_json, require_store, write_checked_json
from myxtts.store.reader import FeatureStore
from myxtts.store.segment import SegmentWriter

ORIGIN_FILE_NAME = "durations.json"
"""Beside store.json; holds a `DurationsOrigin`."""
_OTHER_PARTS: tuple[Part, ...] = tuple(part for part in PARTS if part != "durations")


@dataclass(frozen=True, slots=True)
class DurationsOrigin:
    """The model that aligned a store: fingerprint of its weights, and for messages the path and step of its run."""

    model: str
    place: str
    step: int


def begin_durations(folder: Path, origin: DurationsOrigin) -> None:
    """Records the aligning model before the first durations are written; durations of another model are dropped."""
    require_store(folder)
    known = read_durations_origin(folder)
    if known is not None and known.model == origin.model:
        return
    with lock_directory(folder, "writing durations"):
        store = FeatureStore.open(folder)
        rows = np.flatnonzero(store.columns["durations_length"]).tolist()
        if rows:
            _append_rows(store, rows, [{}] * len(rows), _OTHER_PARTS)
        # After the removal: a kill in between leaves a store without durations, for which any origin is right.
        write_checked_json(folder / ORIGIN_FILE_NAME, asdict(origin))


def read_durations_origin(folder: Path) -> DurationsOrigin | None:
    """Returns the model that a store was aligned with; None where the file is missing or damaged."""
    try:
        return read_checked_json(folder / ORIGIN_FILE_NAME, DurationsOrigin)
    except (FileNotFoundError, DataError):
        return None


def write_durations(folder: Path, durations: Mapping[str, NDArray[np.integer[Any]]]) -> int:
    """Stores for each id its durations [K], the mel frames of each token; returns the number written.

    They are appended as segments and become visible together; nothing else of the store is rewritten. Raises DataError
    and writes nothing if an id is unknown or durations do not fit the stored features.
    """
    require_store(folder)
    if not durations:
        return 0
    with lock_directory(folder, "writing durations"):
        store = FeatureStore.open(folder)
        rows = [_find_row(store, id, values) for id, values in durations.items()]
        values: list[dict[Part, NDArray[Any]]] = [
            {"durations": np.asarray(array, "<i4")} for array in durations.values()
        ]
        _append_rows(store, rows, values, PARTS)
    return len(rows)


def _append_rows(
    store: FeatureStore,
    rows: Sequence[int],
    values: Sequence[Mapping[Part, NDArray[Any]]],
    kept: tuple[Part, ...],
) -> None:
    """Appends segments with new versions of `rows`: `values` are written, `kept` parts referred to. Needs the lock."""
    sweep_temporary_files(store.folder)
    sweep_temporary_files(store.generation_folder)
    first = number = find_next_segment(store.generation_folder)
    for start in range(0, len(rows), CHUNK_UTTERANCES):
        with SegmentWriter(store.generation_folder, number) as segment:
            for place in range(start, min(start + CHUNK_UTTERANCES, len(rows))):
                segment.add(describe_row(store, rows[place], kept), values[place])
            segment.commit()
        number += 1
    commit_state(store.folder, replace(store.state, segments=(*store.state.segments, *range(first, number))))


def _find_row(store: FeatureStore, id: str, values: NDArray[np.integer[Any]]) -> int:
    """Returns the row of an utterance; raises DataError unless `values` has one a token and sums to its frames."""
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
