"""Token durations from monotonic alignment search: in a finished store, or in a file of their own for one run.

Into a store they are written without rewriting its features. They become invalid with the text or recording of their
utterance. durations.json names the model that aligned, so that an alignment can be resumed, and durations of two models
never mix. A file of a run leaves the store as it is, which other runs may train on at the same time.
Shape legend: K tokens, N rows of the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DataError, refuse
from myxtts.storage.atomic import lock_directory, sweep_temporary_files, write_atomically
from myxtts.storage.regular_file import explain_read_errors
from myxtts.storage.tensor_file import fingerprint_arrays, load_tensors, write_tensors
from myxtts.store.generation import commit_state, describe_row, find_next_segment
from myxtts.store.layout import CHUNK_UTTERANCES, PARTS, Part, read_checked_json, require_store, write_checked_json
from myxtts.store.reader import FeatureStore
from myxtts.store.segment import SegmentWriter

ORIGIN_FILE_NAME = "durations.json"
"""Beside store.json; holds a `DurationsOrigin`."""
_FORMAT = "myxtts-durations-1"
"""Written into the heading of a file of durations; another value is refused."""
_DTYPES = {"id_hash": np.dtype(np.uint64), "lengths": np.dtype(np.int32), "frames": np.dtype(np.int32)}
"""Arrays of such a file: the hash of each id, in order, its number of tokens, and the frames of all tokens joined."""
_SEARCH = "--set training.durations=search"
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
    store: FeatureStore, rows: Sequence[int], values: Sequence[Mapping[Part, NDArray[Any]]], kept: tuple[Part, ...]
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
            f"The feature cache in {store.folder} has no utterance {id!r}.",
            next_step="Align the utterances of this feature cache.",
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


def save_durations(path: Path, store: FeatureStore, durations: Mapping[str, NDArray[np.integer[Any]]]) -> str:
    """Writes durations by id to a file beside the store's; returns the fingerprint that `load_durations` asks for.

    The content depends on ids and durations alone, not on the order in which they were found or on row numbers.
    """
    rows = [_find_row(store, id, values) for id, values in durations.items()]
    hashes, order = np.unique(store.columns["id_hash"][rows], return_index=True)
    values = [np.asarray(array, np.int32) for array in durations.values()]
    arrays = {
        "id_hash": hashes,
        "lengths": np.array([len(values[place]) for place in order], np.int32),
        "frames": np.concatenate([np.zeros(0, np.int32), *(values[place] for place in order)]),
    }
    with write_atomically(path) as file:
        write_tensors(file, arrays, {"format": _FORMAT}, seal=True)
    return fingerprint_arrays(arrays)


def load_durations(path: Path, store: FeatureStore, fingerprint: str) -> None:
    """Makes a store read its durations from a file of `save_durations`.

    Raises DataError if the file is missing, damaged or another one, or if features have changed since it was written.
    """
    arrays = _read_file(path, fingerprint)
    stops = np.cumsum(arrays["lengths"], dtype=np.int64)
    pieces = zip(arrays["id_hash"].tolist(), (stops - arrays["lengths"]).tolist(), stops.tolist(), strict=True)
    by_hash = {hash: arrays["frames"][start:stop] for hash, start, stop in pieces}
    durations = [by_hash.get(hash, arrays["frames"][:0]) for hash in store.columns["id_hash"].tolist()]
    for row, values in enumerate(durations):
        if len(values) and (
            len(values) != store.columns["tokens_length"][row] or values.sum() != store.columns["mel_length"][row]
        ):
            problem = f"the features of {store.id_of(row)} have changed since it was written"
            raise refuse(f"The file of durations {path}", problem, f"Continue without it: {_SEARCH}")
    store.use_durations(np.array([len(values) for values in durations], np.int64), np.concatenate(durations))


def _read_file(path: Path, fingerprint: str) -> dict[str, NDArray[Any]]:
    """The arrays of a file of durations; raises DataError unless they are whole and have this fingerprint."""

    def explain(reason: str) -> DataError:
        advice = f"Restore it from a backup, or continue without it: {_SEARCH}"
        return refuse(f"The file of durations {path}", reason, advice)

    with explain_read_errors(explain):
        arrays, metadata = load_tensors(path)
    is_same = metadata.get("format") == _FORMAT and fingerprint_arrays(arrays) == fingerprint
    # The fingerprint is of the bytes alone, whatever type they are given.
    if not is_same or any(arrays[name].dtype != dtype or arrays[name].ndim != 1 for name, dtype in _DTYPES.items()):
        raise explain("it is not the one that the run was trained with")
    return arrays
