"""Compaction: a store without the records that replacements and removals left behind, in the order of its rows."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from myxtts.errors import DataError
from myxtts.files import lock_directory, sweep_temporary_files
from myxtts.store.generation import begin_generation, commit_state, describe_row, remove_other_generations
from myxtts.store.layout import PARTS, Part, name_generation, require_store
from myxtts.store.reader import FeatureStore
from myxtts.store.segment import SegmentWriter

COMPACTED_UTTERANCES = 16_384
"""Utterances of a compacted segment: more than when they are made, because fewer files open faster."""


@dataclass(frozen=True, slots=True)
class CompactSummary:
    num_utterances: int
    num_bytes_before: int
    num_bytes_after: int


def compact_store(folder: Path, *, chunk_utterances: int = COMPACTED_UTTERANCES) -> CompactSummary:
    """Copies every live record into a new generation and makes that current; a kill leaves the store as it was."""
    require_store(folder)
    with lock_directory(folder, "myxtts precompute --compact"):
        sweep_temporary_files(folder)
        store = FeatureStore.open(folder)
        before = _measure(store.generation_folder)
        number = store.state.generation + 1
        target = folder / name_generation(number)
        starts = range(0, len(store), chunk_utterances)
        with ExitStack() as half_done:
            # Half a copy is of no use, and the disk may be full of it.
            half_done.callback(remove_other_generations, folder, store.state.generation)
            begin_generation(folder, number, store.settings, store.state.origin, "compaction")
            for segment, start in enumerate(starts):
                _copy_rows(store, range(start, min(start + chunk_utterances, len(store))), target, segment)
            half_done.pop_all()
        state = commit_state(folder, replace(store.state, generation=number, segments=tuple(range(len(starts)))))
        remove_other_generations(folder, number)
        return CompactSummary(state.num_utterances, before, _measure(target))


def _copy_rows(store: FeatureStore, rows: range, target: Path, number: int) -> None:
    with SegmentWriter(target, number) as segment:
        for row in rows:
            parts: list[Part] = [part for part in PARTS if store.entry(row, part).length]
            for part in parts:
                _refuse_damage(store, row, part)
            segment.add(describe_row(store, row, ("tokens",)), {part: store.read_record(row, part) for part in parts})
        segment.commit()


def _refuse_damage(store: FeatureStore, row: int, part: Part) -> None:
    """A damaged record must not be copied: its copy would carry a checksum that says it is whole."""
    damage = store.find_damage(row, part)
    if damage:
        raise DataError(
            f"The stored {part} of {store.id_of(row)} is damaged: {damage}.",
            next_step="Run myxtts precompute --fix first; nothing has been changed.",
        )


def _measure(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
