"""Generations of a store: created beside the current one, resumed after a kill, committed, removed when superseded.

A generation is a folder of segments made with the same settings. Order of steps: `begin_generation` (generation.json
last), segments, `commit_state` (store.json, the atomic switch), `remove_other_generations`. A kill between any two
leaves a store that opens; the next run resumes or sweeps the rest.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from myxtts.errors import DataError
from myxtts.storage.atomic import explain_storage_errors, sweep_temporary_files, sync_directory
from myxtts.store import layout
from myxtts.store.index import Row, read_index, write_index
from myxtts.store.reader import FeatureStore

_NO_LINKS_HERE = (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP)
"""Errors of `link` that mean "copy instead": FAT and some network mounts, another device, too many links."""


def begin_generation(
    folder: Path, number: int, generation: layout.Generation, spectrograms_of: FeatureStore | None = None
) -> None:
    """Creates an empty generation with its settings, corpus and purpose on disk, so that a killed run can be resumed.

    With `spectrograms_of` it shares the spectrograms and waveforms of an old generation, and has no tokens yet.
    """
    target = folder / layout.name_generation(number)
    with explain_storage_errors(target, "write in"):
        if target.exists():
            shutil.rmtree(target)
        target.mkdir(parents=True)
    if spectrograms_of is not None:
        _share_spectrograms(spectrograms_of, target)
    # Last, because a generation that has this file is resumed as it is.
    describe_generation(target, generation)
    with explain_storage_errors(folder, "write in"):
        sync_directory(folder)


def describe_generation(target: Path, generation: layout.Generation) -> None:
    layout.write_checked_json(target / layout.GENERATION_FILE_NAME, asdict(generation))


def is_unfinished(target: Path, wanted: layout.Generation) -> bool:
    """Whether a run with the same settings, corpus and purpose began the generation in the folder `target`."""
    try:
        begun = layout.read_checked_json(target / layout.GENERATION_FILE_NAME, layout.Generation)
    except (FileNotFoundError, DataError):
        # Killed before it was described, or damaged: it holds nothing that cannot be computed again.
        return False
    # What the corpus holds may have changed meanwhile, as while a store is updated.
    return replace(begun, origin=replace(wanted.origin, corpus=begun.origin.corpus)) == wanted


def _share_spectrograms(store: FeatureStore, target: Path) -> None:
    """Hard-links the spectrograms and waveforms, and writes indexes that refer to them and to no tokens."""
    kept: tuple[layout.Part, ...] = ("mel", "pcm")
    with explain_storage_errors(target, "write in"):
        for part in kept:
            for path in sorted(store.generation_folder.glob(f"*.{part}")):
                _share_file(path, target / path.name)
    number = find_next_segment(target)
    for start in range(0, len(store), layout.CHUNK_UTTERANCES):
        rows = range(start, min(start + layout.CHUNK_UTTERANCES, len(store)))
        write_index(layout.index_path(target, number), [describe_row(store, row, kept) for row in rows])
        number += 1


def _share_file(path: Path, target: Path) -> None:
    """Links a file, or copies it where the file system has no hard links."""
    try:
        os.link(path, target)
    except OSError as error:
        if error.errno not in _NO_LINKS_HERE:
            raise
        # A file system without hard links needs the space twice.
        shutil.copyfile(path, target)
        with target.open("rb") as file:
            os.fsync(file.fileno())


def describe_row(store: FeatureStore, row: int, kept: tuple[layout.Part, ...]) -> Row:
    """Returns the index row of an utterance with the `kept` parts; without tokens text_crc is 0, so they are remade."""
    columns = store.columns
    return Row(
        store.id_of(row),
        *store.labels_of(row),
        source_crc=int(columns["source_crc"][row]),
        text_crc=int(columns["text_crc"][row]) if "tokens" in kept else 0,
        source_frames=int(columns["source_frames"][row]),
        parts={part: entry for part in kept if (entry := store.entry(row, part)).length},
    )


def find_next_segment(folder: Path) -> int:
    """Returns a segment number that no file of the generation has, uncommitted ones included."""
    return max((int(path.stem) for path in folder.iterdir() if path.stem.isdecimal()), default=-1) + 1


def resume_segments(folder: Path, named: Iterable[int]) -> tuple[int, ...]:
    """Returns the named segments and those that a killed run finished; removes its temporary and orphaned files.

    A data file is orphaned if no row refers to it. Raises DataError if a named segment is damaged.
    """
    named = set(named)
    segments: list[int] = []
    used: set[str] = set()
    with explain_storage_errors(folder, "write in"):
        sweep_temporary_files(folder)
        for number in sorted(named | set(layout.find_segments(folder))):
            try:
                index = read_index(layout.index_path(folder, number))
            except DataError:
                if number in named:
                    raise
                # Nothing refers to it, and what it holds can be made again.
                layout.index_path(folder, number).unlink()
                continue
            segments.append(number)
            for part in layout.PARTS:
                # A row may refer to data files of earlier segments, and to files shared by hard links.
                has_part = index.columns[f"{part}_length"] > 0
                homes = set(index.columns[f"{part}_segment"][has_part].tolist())
                used |= {layout.part_path(folder, home, part).name for home in homes}
        for path in folder.iterdir():
            if path.suffix.removeprefix(".") in layout.PARTS and path.name not in used:
                path.unlink()
    return tuple(segments)


def commit_state(folder: Path, state: layout.StoreState) -> layout.StoreState:
    """Counts utterances and seconds of a generation and makes it current, by one atomic rename of store.json."""
    store = FeatureStore(folder, state)
    mel = store.settings.mel
    seconds = float(store.columns["mel_length"].sum(dtype="int64")) * mel.hop_length / mel.sample_rate
    final = replace(state, num_utterances=len(store), seconds=round(seconds, 3))
    layout.write_state(folder, final)
    return final


def remove_other_generations(folder: Path, current: int) -> None:
    """Deletes all generations but the current one; open readers keep their mapped files (POSIX unlink semantics)."""
    with explain_storage_errors(folder, "remove past generations from"):
        for number in layout.find_generations(folder):
            if number == current:
                continue
            path = folder / layout.name_generation(number)
            # First, so that a half-removed generation is never mistaken for a complete one.
            (path / layout.GENERATION_FILE_NAME).unlink(missing_ok=True)
            sync_directory(path)
            shutil.rmtree(path)
