"""Verifies a store against its checksums, and repairs it by recomputing damaged records from the recordings.

Every byte that a row refers to is checked: the state, the indexes, the headings of the data files and each record with
its padding. Repair runs the normal update with the damaged records distrusted. Durations cannot be recomputed here, as
they come from a trained model.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from myxtts.corpus.corpus_file import is_prepared
from myxtts.errors import DataError
from myxtts.storage.atomic import lock_directory, sweep_temporary_files
from myxtts.store import layout
from myxtts.store.cache_files import find_damaged_files
from myxtts.store.durations import ORIGIN_FILE_NAME, DurationsOrigin
from myxtts.store.generation import describe_generation
from myxtts.store.index import PartEntry, read_index
from myxtts.store.precompute import VAL_STORE_NAME, update_current
from myxtts.store.provide import mend_files
from myxtts.store.reader import FeatureStore
from myxtts.store.segment import restore_heading
from myxtts.store.update import Distrust
from myxtts.types import Progress

_NUM_SAMPLED = 200
"""Utterances checked before a training: damage of 2 % of a store is missed with a probability of 0.98 ** 200 < 2 %."""
_MAX_LISTED = 1000
"""Problems kept in a report, so that a store damaged throughout does not fill the memory."""


@dataclass(slots=True)
class VerifyReport:
    """Counts of checked, broken, repaired and unrecoverable items, and the first problems in words."""

    num_checked: int = 0
    num_broken: int = 0
    num_repaired: int = 0
    num_unrecoverable: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether the store is intact, or was repaired completely without a loss."""
        return self.num_broken == self.num_repaired and self.num_unrecoverable == 0

    def note(self, problem: str) -> None:
        """Counts a problem, and lists it unless the list is full."""
        self.num_broken += 1
        if len(self.problems) < _MAX_LISTED:
            self.problems.append(problem)

    def join(self, other: VerifyReport) -> None:
        """Adds what was found in another store."""
        for name in ("num_checked", "num_broken", "num_repaired", "num_unrecoverable", "problems"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "is_whole": self.is_whole}


@dataclass(slots=True)
class _Findings:
    """Result of `_check`. `store` has the segments with intact indexes; None if no state could be read."""

    report: VerifyReport = field(default_factory=VerifyReport)
    store: FeatureStore | None = None
    num_utterances: int = 0
    bad_headings: list[tuple[int, layout.Part]] = field(default_factory=list)
    damaged_files: list[str] = field(default_factory=list)
    distrusted: Distrust = frozenset()


def verify_store(
    folder: Path,
    *,
    fix: bool = False,
    corpus: Path | None = None,
    num_threads: int = 2,
    progress: Progress = lambda _seen, _broken: None,
) -> VerifyReport:
    """Checks all of a cache folder; with `fix`, makes everything broken again from its sources.

    `corpus` says where the corpus of the store, or its raw recordings, are now, for when they have moved. The store of
    a validation corpus inside the folder is checked too.
    """
    layout.require_store(folder)
    report = _verify_one(folder, fix, corpus, num_threads, progress)
    if (folder / VAL_STORE_NAME / layout.STORE_FILE_NAME).exists():
        report.join(_verify_one(folder / VAL_STORE_NAME, fix, None, num_threads, progress))
    return report


def _verify_one(folder: Path, fix: bool, corpus: Path | None, num_threads: int, progress: Progress) -> VerifyReport:
    if not fix:
        # Reading needs no lock: committed files never change, and a store on a read-only disk can be checked too.
        return _check(folder, progress).report
    with lock_directory(folder, "myxtts cache repair"):
        findings = _check(folder, progress)
        if findings.store is not None and findings.report.num_broken:
            sweep_temporary_files(folder)
            _repair(findings.store, findings, corpus, num_threads, progress)
        return findings.report


def check_before_training(store: FeatureStore, how: Literal["off", "sampled", "full"], seed: int = 0) -> None:
    """Implements `data.cache_verification`: raises DataError for the first damaged record among those checked."""
    if how == "off" or len(store) == 0:
        return
    rows = np.arange(len(store))
    if how == "sampled" and len(rows) > _NUM_SAMPLED:
        rows = np.sort(np.random.default_rng(seed).choice(rows, _NUM_SAMPLED, replace=False))
    for row in rows:
        store.refuse_damage(int(row), "Run myxtts cache repair with the same --train-data and --cache-dir.")


def _check(folder: Path, progress: Progress) -> _Findings:
    """Checks state, indexes, headings and records; starts again if a writer commits a new state meanwhile."""
    while True:
        findings = _Findings()
        report = findings.report
        state = _check_state(folder, report)
        if state is None:
            return findings
        # A state that was reconstructed does not know how many utterances there are.
        is_counted = report.num_broken == 0 or state.num_utterances > 0
        try:
            findings.damaged_files = _check_files(folder, report)
            findings.store = store = _check_indexes(folder, state, report)
            findings.bad_headings = _check_headings(store, report)
            findings.distrusted = _check_records(store, report, progress)
        except DataError:
            if not _has_moved_on(folder, state):
                raise
            continue
        if report.num_broken == 0 or not _has_moved_on(folder, state):
            findings.num_utterances = state.num_utterances
            is_complete = len(store.state.segments) == len(state.segments)
            if is_counted and is_complete and len(store) != state.num_utterances:
                report.note(f"store.json names {state.num_utterances:,} utterances, its segments hold {len(store):,}")
                findings.num_utterances = len(store)
            return findings


def _check_files(folder: Path, report: VerifyReport) -> list[str]:
    """Returns the files beside the features that are not as they were written."""
    bad = find_damaged_files(folder)
    try:
        layout.read_checked_json(folder / ORIGIN_FILE_NAME, DurationsOrigin)
    except FileNotFoundError:
        pass
    except DataError:
        bad.append(ORIGIN_FILE_NAME)
    for name in bad:
        report.note(f"{folder / name} was changed after it was written.")
    return bad


def _check_state(folder: Path, report: VerifyReport) -> layout.StoreState | None:
    """Checks store.json and generation.json, which hold the same settings: each can be restored from the other."""
    report.num_checked += 2
    try:
        state = layout.read_state(folder)
    except DataError as error:
        report.note(str(error))
        return _guess_state(folder, report)
    assert state is not None, folder
    path = folder / layout.name_generation(state.generation) / layout.GENERATION_FILE_NAME
    try:
        if layout.read_checked_json(path, layout.Generation).settings != state.settings:
            report.note(f"{path} does not describe this feature cache.")
    except (OSError, DataError) as error:
        report.note(str(error))
    return state


def _guess_state(folder: Path, report: VerifyReport) -> layout.StoreState | None:
    """Reconstructs a damaged store.json from the oldest described generation: newer ones are unfinished."""
    for number in layout.find_generations(folder):
        path = folder / layout.name_generation(number)
        try:
            found = layout.read_checked_json(path / layout.GENERATION_FILE_NAME, layout.Generation)
        except (OSError, DataError):
            continue
        return layout.StoreState(number, tuple(layout.find_segments(path)), found.settings, found.origin)
    report.num_unrecoverable += 1
    report.problems.append("Nothing says how the features were computed: run myxtts cache rebuild.")
    return None


def _check_indexes(folder: Path, state: layout.StoreState, report: VerifyReport) -> FeatureStore:
    """Returns the store with the segments whose index is intact, and notes the others."""
    generation = folder / layout.name_generation(state.generation)
    whole: list[int] = []
    for number in state.segments:
        report.num_checked += 1
        try:
            read_index(layout.index_path(generation, number))
            whole.append(number)
        except DataError as error:
            report.note(str(error))
    return FeatureStore(folder, replace(state, segments=tuple(whole)))


def _check_records(store: FeatureStore, report: VerifyReport, progress: Progress) -> Distrust:
    """Verifies every record; returns the damaged ones."""
    distrusted: set[tuple[layout.Part, PartEntry]] = set()
    for row in range(len(store)):
        for part in layout.PARTS:
            entry = store.entry(row, part)
            if not entry.length:
                continue
            report.num_checked += 1
            damage = store.find_damage(row, part)
            if damage:
                report.note(f"{part} of {store.id_of(row)}: {damage}")
                distrusted.add((part, entry))
        if row % 256 == 0:
            progress(row, report.num_broken)
    progress(len(store), report.num_broken)
    return frozenset(distrusted)


def _check_headings(store: FeatureStore, report: VerifyReport) -> list[tuple[int, layout.Part]]:
    """Returns the data files with a wrong heading. A missing file is found through its records."""
    bad: list[tuple[int, layout.Part]] = []
    for segment, part in store.measure_files():
        report.num_checked += 1
        if store.has_damaged_heading(segment, part):
            report.note(f"{segment:06}.{part} has a damaged heading")
            bad.append((segment, part))
    return bad


def _has_moved_on(folder: Path, state: layout.StoreState) -> bool:
    """Whether a writer committed a new state during the check, so that its findings are obsolete."""
    try:
        return layout.read_state(folder) not in (state, None)
    except DataError:
        return False


def _repair(
    store: FeatureStore, findings: _Findings, corpus: Path | None, num_threads: int, progress: Progress
) -> None:
    """Repairs in place: generation.json, headings, then distrusted records by an update; counts what is lost."""
    report = findings.report
    prepared = corpus if corpus is not None and is_prepared(corpus) else None
    mend_files(store.folder, findings.damaged_files, None if prepared else corpus)
    if ORIGIN_FILE_NAME in findings.damaged_files:
        # Durations stay valid; only the name of the model that they came from is lost.
        (store.folder / ORIGIN_FILE_NAME).unlink()
    describe_generation(store.generation_folder, layout.Generation(store.settings, store.state.origin, "features"))
    sizes = store.measure_files()
    for segment, part in findings.bad_headings:
        restore_heading(store.generation_folder, segment, part, sizes[segment, part])
    summary = update_current(
        store.folder, store.state, findings.distrusted, moved_to=prepared, num_threads=num_threads, progress=progress
    )
    # A damaged index hides the ids of its utterances: compare their number with that of utterances added again.
    num_missing = max(0, findings.num_utterances - len(store) - summary.num_added)
    num_durations = sum(part == "durations" for part, _ in findings.distrusted)
    report.num_unrecoverable = summary.num_lost + num_missing + num_durations
    report.num_repaired = max(0, report.num_broken - summary.num_lost_parts)
    report.problems += [f"{item.id}: {item.detail}; {item.what_to_do}" for item in summary.examples]
    if num_durations:
        report.problems.append(f"{num_durations:,} durations are lost: align these utterances again.")
