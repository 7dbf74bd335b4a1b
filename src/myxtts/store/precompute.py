"""`precompute`: computes the features of a corpus once, into a store that is consistent at every moment.

Compares the settings of the store with the wanted ones and decides whether the current generation is updated
incrementally, an unfinished one resumed, or a new one built beside it, which then becomes current by one rename:

    no difference               update the current generation
    only the text front end     new generation that shares the spectrograms and has new tokens
    anything else, or rebuild   new generation with all features
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from myxtts.config.schema import DataConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.corpus_file import Corpus, checksum_corpus, is_prepared, open_corpus
from myxtts.corpus.rejections import Reason, Rejection, RejectionReport, describe_reasons
from myxtts.errors import DataError
from myxtts.features.definition import DEFINITION_VERSION
from myxtts.storage.atomic import lock_directory, sweep_temporary_files
from myxtts.store import layout
from myxtts.store.cache_files import forget_files, write_checksums
from myxtts.store.generation import (
    begin_generation,
    commit_state,
    is_unfinished,
    remove_other_generations,
    resume_segments,
)
from myxtts.store.ray_shards import RayCluster
from myxtts.store.reader import FeatureStore
from myxtts.store.shard import LocalShards, ShardMaker, Shards
from myxtts.store.update import Distrust, StoreUpdater, UpdateCounts, find_changes
from myxtts.text.frontend import FrontEnd
from myxtts.types import Progress, Say

STORE_FOLDER_NAME = "cached_features"
"""Default name of a store, beside its corpus."""
VAL_STORE_NAME = "val"
"""The store of a validation corpus lies in the folder of the training store, under this name."""


@dataclass(slots=True, kw_only=True)
class PrecomputeSummary(UpdateCounts):
    """Result of a run of precompute: counts, size and duration of the store, and examples of rejections."""

    folder: str
    action: str
    num_utterances: int
    seconds: float
    num_bytes: int
    elapsed_s: float = 0.0
    reasons: dict[str, int] = field(default_factory=dict)
    examples: list[Rejection] = field(default_factory=list)


def choose_store_folder(data: DataConfig, corpus_path: Path) -> Path:
    """Returns `data.cache_dir`, or the default folder beside the corpus."""
    return Path(data.cache_dir) if data.cache_dir else corpus_path.absolute().parent / STORE_FOLDER_NAME


def find_val_corpus(data: DataConfig) -> Path | None:
    """Returns the prepared corpus that `val_data` names; None if it is unset, not prepared or the training corpus."""
    if data.val_data is None or not is_prepared(Path(data.val_data)):
        return None
    named = [Path(path) for path in (data.train_data, data.val_data) if path is not None]
    files = [open_corpus(path).file.resolve() for path in named if is_prepared(path)]
    return named[-1] if len(set(files)) == len(files) else None


def precompute(
    corpus: Corpus,
    folder: Path,
    data: DataConfig,
    *,
    rebuild: bool = False,
    num_threads: int = 2,
    cluster: RayCluster | None = None,
    progress: Progress = lambda _seen, _rejected: None,
    say: Say = lambda _sentence: None,
) -> PrecomputeSummary:
    """Makes the store in `folder` match the corpus and the settings, computing only what is missing or outdated.

    Features are computed by `num_threads` of this process, or on the hosts of a `cluster`.

    Raises DataError where the settings differ and neither `rebuild` nor an auto_rebuild setting allows a new
    generation, where the store belongs to another corpus, and where more utterances are rejected than max_bad_share.
    """
    frontend = corpus.load_frontend()
    settings, num_token_ids = layout.StoreSettings.of(data, frontend.fingerprint()), math.prod(frontend.factor_sizes)
    origin = layout.StoreOrigin(
        str(corpus.file.absolute()), AudioLimits.from_config(data), checksum=checksum_corpus(corpus.file)
    )
    with lock_directory(folder, "myxtts precompute"):
        sweep_temporary_files(folder)
        try:
            state = layout.read_state(folder)
            current = state.generation if state else 0
        except DataError:
            if not rebuild:
                raise
            # It may still be repaired, so it stays until the new features are complete.
            state, current = None, max(layout.find_generations(folder), default=0)
        if state is not None:
            _refuse_foreign_store(state, corpus, folder, rebuild=rebuild)
        purpose, sentence = _choose_purpose(state, settings, data, rebuild=rebuild)
        say(sentence)
        if purpose is None:
            assert state is not None, folder
            target = layout.StoreState(current, state.segments, settings, origin, num_token_ids=num_token_ids)
        else:
            target = layout.StoreState(current + 1, (), settings, origin, num_token_ids=num_token_ids)
            _open_generation(folder, target, purpose)
        shards = _open_shards(target, corpus, frontend, num_threads, cluster)
        summary = _run(folder, target, corpus, shards, progress, max_bad_share=data.max_bad_share)
    return replace(summary, action=sentence)


def update_current(
    folder: Path,
    state: layout.StoreState,
    distrusted: Distrust,
    *,
    moved_to: Path | None,
    num_threads: int,
    progress: Progress,
) -> PrecomputeSummary:
    """Recomputes missing and distrusted records of the current generation; the caller holds the folder's lock.

    `moved_to` says where the corpus is now, for when it is not where it was.
    """
    corpus = _open_corpus_of(state, moved_to, folder)
    frontend = corpus.load_frontend()
    present = replace(state.settings, frontend=frontend.fingerprint(), definition=DEFINITION_VERSION)
    differences = layout.list_differences(state.settings, present)
    if differences:
        raise DataError(
            "The feature cache was computed with other settings than new parts would be: "
            f"{layout.describe_differences(differences)}.",
            next_step=f"Run myxtts precompute --train-data {corpus.file.parent} --cache-dir {folder} first.",
        )
    place, checksum = str(corpus.file.absolute()), checksum_corpus(corpus.file)
    state = replace(state, origin=replace(state.origin, corpus=place, checksum=checksum))
    state = replace(state, num_token_ids=math.prod(frontend.factor_sizes))
    return _run(folder, state, corpus, _open_shards(state, corpus, frontend, num_threads), progress, distrusted)


def _choose_purpose(
    state: layout.StoreState | None, wanted: layout.StoreSettings, data: DataConfig, *, rebuild: bool
) -> tuple[layout.Purpose | None, str]:
    """Returns the purpose of a new generation (None updates the current one) and a message, see the table above.

    Raises DataError where settings differ and a rebuild is not allowed.
    """
    if rebuild:
        return "features", "Computing all features again, as asked."
    if state is None:
        return "features", "Creating a new feature cache."
    differences = layout.list_differences(state.settings, wanted)
    if not differences:
        return None, "The settings have not changed: only new or changed utterances are computed."
    listing = layout.describe_differences(differences)
    if set(differences) == {"frontend"}:
        if data.auto_rebuild_token_cache:
            return "tokens", f"The text settings changed ({listing}): tokens are computed again, mel features are kept."
        remedy = "Set data.auto_rebuild_token_cache to true, run myxtts cache rebuild, or change the settings back."
        raise DataError(f"The cached tokens were computed with other text settings: {listing}.", next_step=remedy)
    if data.auto_rebuild_mel_cache:
        return "features", f"The audio settings changed ({listing}): all features are computed again."
    raise DataError(
        f"The cached features were computed with other settings: {listing}.",
        next_step="Change the settings back, run myxtts cache rebuild, or set data.auto_rebuild_mel_cache to true.",
    )


def _open_generation(folder: Path, target: layout.StoreState, purpose: layout.Purpose) -> None:
    """Begins the generation of `target`, unless a killed run with the same purpose began it."""
    generation = layout.Generation(target.settings, target.origin, purpose)
    if not is_unfinished(folder / layout.name_generation(target.generation), generation):
        spectrograms_of = FeatureStore.open(folder) if purpose == "tokens" else None
        begin_generation(folder, target.generation, generation, spectrograms_of)


def _open_shards(
    target: layout.StoreState, corpus: Corpus, frontend: FrontEnd, num_threads: int, cluster: RayCluster | None = None
) -> Shards:
    settings, limits = target.settings, target.origin.limits
    if cluster is not None:
        return cluster.make_shards(settings, limits, corpus)
    return LocalShards(ShardMaker(settings, limits, frontend), num_threads)


def _run(
    folder: Path,
    target: layout.StoreState,
    corpus: Corpus,
    shards: Shards,
    progress: Progress,
    distrusted: Distrust = frozenset(),
    max_bad_share: float | None = None,
) -> PrecomputeSummary:
    """Updates the target generation, checks the share of rejections, commits, then removes old generations."""
    started = time.monotonic()
    generation_folder = folder / layout.name_generation(target.generation)
    segments = resume_segments(generation_folder, target.segments)
    store = FeatureStore(folder, replace(target, segments=segments))
    forget_files(folder)
    with RejectionReport(folder) as report:
        updater = StoreUpdater(store, report, shards, distrusted)
        counts = updater.run(corpus, progress)
    if max_bad_share is not None:
        _refuse_bad_share(counts, corpus, max_bad_share, folder, report)
    state = commit_state(folder, replace(target, segments=(*segments, *updater.new_segments)))
    remove_other_generations(folder, state.generation)
    write_checksums(folder)
    return PrecomputeSummary(
        folder=str(folder),
        action="",
        num_utterances=state.num_utterances,
        seconds=state.seconds,
        num_bytes=sum(path.stat().st_size for path in generation_folder.iterdir()),
        elapsed_s=time.monotonic() - started,
        reasons={str(reason): count for reason, count in report.counts.most_common()},
        examples=report.examples,
        **asdict(counts),
    )


def _open_corpus_of(state: layout.StoreState, moved_to: Path | None, folder: Path) -> Corpus:
    """Opens the corpus that a store was made from, at its recorded path or else at `moved_to`."""
    known = Path(state.origin.corpus)
    path = known if known.exists() or moved_to is None else moved_to
    if not path.exists():
        raise DataError(
            f"The corpus {path}, from which the feature cache in {folder} was computed, does not exist.",
            next_step="Restore it, or give its new place with --train-data.",
        )
    return open_corpus(path)


def _refuse_foreign_store(state: layout.StoreState, corpus: Corpus, folder: Path, *, rebuild: bool) -> None:
    """Raises DataError where the store was made from another corpus: its features would be removed."""
    if Path(state.origin.corpus).exists() and corpus.file.samefile(state.origin.corpus):
        return
    try:
        find_changes(folder, state, corpus)
    except DataError:
        # A damaged store can be compared with nothing, but made again.
        if not (rebuild and _is_damaged(folder, state)):
            raise


def _is_damaged(folder: Path, state: layout.StoreState) -> bool:
    try:
        FeatureStore(folder, state)
    except DataError:
        return True
    return False


def _refuse_bad_share(
    counts: UpdateCounts, corpus: Corpus, max_bad_share: float, folder: Path, report: RejectionReport
) -> None:
    """Raises DataError, before the commit, where more than `max_bad_share` were rejected; one is always allowed."""
    most = max(1, int(corpus.num_utterances * max_bad_share))
    if counts.num_rejected > most:
        share = 100 * counts.num_rejected / max(1, corpus.num_utterances)
        reasons = {str(reason): count for reason, count in report.counts.most_common()}
        listed = "\n".join(f"  {line}" for line in describe_reasons(reasons, report.examples))
        advice = "Correct them, or raise data.max_bad_share."
        if next(iter(reasons), "") == Reason.MISSING_FILE:
            advice = "If the recordings were moved, run myxtts prepare again, with --audio-root FOLDER where they are."
        raise DataError(
            f"{counts.num_rejected:,} of {corpus.num_utterances:,} utterances ({share:.1f} %) could not be used, "
            f"more than the accepted {100 * max_bad_share:g} %:\n{listed}\n",
            next_step=f"{advice} All are listed in {folder / 'rejections.csv'}. Nothing is lost.",
        )
