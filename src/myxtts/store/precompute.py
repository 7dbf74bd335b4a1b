"""`precompute`: computes the features of a corpus once, into a store that is consistent at every moment.

Compares the settings of the store with the wanted ones and decides whether the current generation is updated
incrementally, an unfinished one resumed, or a new one built beside it, which then becomes current by one rename:

    no difference               update the current generation
    only the text front end     new generation that shares the spectrograms and has new tokens
    anything else, or rebuild   new generation with all features
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from myxtts.config.schema import DataConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.corpus_file import Corpus, is_prepared, open_corpus
from myxtts.corpus.rejections import Reason, Rejection, RejectionReport, describe_reasons
from myxtts.errors import DataError
from myxtts.features.definition import DEFINITION_VERSION
from myxtts.features.extract import FeatureExtractor
from myxtts.storage.atomic import lock_directory, sweep_temporary_files
from myxtts.store.generation import (
    Purpose,
    begin_generation,
    commit_state,
    find_next_segment,
    find_unfinished_generation,
    remove_other_generations,
    resume_segments,
)
from myxtts.store.layout import (
    StoreSettings,
    StoreState,
    describe_differences,
    find_generations,
    is_text_only,
    list_differences,
    name_generation,
    read_state,
)
from myxtts.store.reader import FeatureStore
from myxtts.store.update import Distrust, Progress, StoreUpdater, UpdateCounts
from myxtts.text.frontend import FrontEnd
from myxtts.types import Say

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
    progress: Progress = lambda _seen, _rejected: None,
    say: Say = lambda _sentence: None,
) -> PrecomputeSummary:
    """Makes the store in `folder` match the corpus and the settings, computing only what is missing or outdated.

    Raises DataError where the settings differ and neither `rebuild` nor an auto_rebuild setting allows a new
    generation, where the store belongs to another corpus, and where more utterances are rejected than max_bad_share.
    """
    frontend = corpus.load_frontend()
    wanted = StoreSettings.of(data, frontend)
    origin = {"corpus": str(corpus.file.absolute()), "limits": asdict(AudioLimits.from_config(data))}
    with lock_directory(folder, "myxtts precompute"):
        sweep_temporary_files(folder)
        try:
            state = read_state(folder)
            current = state.generation if state else 0
        except DataError:
            if not rebuild:
                raise
            # It may still be repaired, so it stays until the new features are complete.
            state, current = None, max(find_generations(folder), default=0)
        _refuse_foreign_store(state, corpus, folder)
        action = _choose_action(state, wanted, data, rebuild=rebuild)
        say(action.sentence)
        target = _open_generation(folder, state, current, StoreState(current, (), wanted.to_json(), origin), action)
        job = _Job(folder, target, corpus, frontend, action.sentence, num_threads, progress)
        return _run(job, max_bad_share=data.max_bad_share)


def update_current(
    folder: Path,
    state: StoreState,
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
    settings = StoreSettings.from_json(state.settings)
    present = replace(settings, frontend=frontend.fingerprint(), definition=DEFINITION_VERSION)
    differences = list_differences(settings, present)
    if differences:
        raise DataError(
            f"The store was made in another way than its parts would be made now: {describe_differences(differences)}.",
            next_step=f"Run myxtts precompute --train-data {corpus.file.parent} --cache-dir {folder} first.",
        )
    state = replace(state, origin={**state.origin, "corpus": str(corpus.file.absolute())})
    job = _Job(folder, state, corpus, frontend, "Repairing the store.", num_threads, progress, distrusted)
    return _run(job, max_bad_share=None)


@dataclass(frozen=True, slots=True)
class _Action:
    """The decision of `_choose_action`: purpose of a new generation (None updates the current one), and a message."""

    purpose: Purpose | None
    sentence: str


@dataclass(frozen=True, slots=True)
class _Job:
    """Arguments of `_run`: `target` is the state that the update of a generation starts from."""

    folder: Path
    target: StoreState
    corpus: Corpus
    frontend: FrontEnd
    sentence: str
    num_threads: int
    progress: Progress
    distrusted: Distrust = frozenset()

    @property
    def generation_folder(self) -> Path:
        """Folder that segments are written to."""
        return self.folder / name_generation(self.target.generation)


def _choose_action(state: StoreState | None, wanted: StoreSettings, data: DataConfig, *, rebuild: bool) -> _Action:
    """Compares stored and wanted settings (see the table above); raises DataError where a rebuild is not allowed."""
    if rebuild:
        return _Action("features", "Making all features anew, as asked.")
    if state is None:
        return _Action("features", "Making a new feature store.")
    differences = list_differences(StoreSettings.from_json(state.settings), wanted)
    if not differences:
        return _Action(None, "The store has these settings: only what the corpus changed is made.")
    listing = describe_differences(differences)
    if is_text_only(differences):
        if data.auto_rebuild_token_cache:
            return _Action("tokens", f"The text settings changed ({listing}): tokens are made anew, spectrograms kept.")
        remedy = "Set data.auto_rebuild_token_cache to true, use --rebuild, or change the settings back."
        raise DataError(f"The stored tokens were made with other text settings: {listing}.", next_step=remedy)
    if data.auto_rebuild_mel_cache:
        return _Action("features", f"The audio settings changed ({listing}): all features are made anew.")
    raise DataError(
        f"The stored features were made with other settings: {listing}.",
        next_step="Change the settings back, use --rebuild, or set data.auto_rebuild_mel_cache to true.",
    )


def _open_generation(
    folder: Path, state: StoreState | None, current: int, wanted: StoreState, action: _Action
) -> StoreState:
    """Returns the state to start from: of the current generation, an unfinished one, or a new one."""
    if action.purpose is None:
        assert state is not None, folder
        return replace(wanted, segments=state.segments)
    settings = StoreSettings.from_json(wanted.settings)
    if find_unfinished_generation(folder, current, settings, wanted.origin, action.purpose) is None:
        spectrograms_of = FeatureStore.open(folder) if action.purpose == "tokens" else None
        begin_generation(folder, current + 1, settings, wanted.origin, action.purpose, spectrograms_of)
    return replace(wanted, generation=current + 1)


def _run(job: _Job, *, max_bad_share: float | None) -> PrecomputeSummary:
    """Updates the target generation, checks the share of rejections, commits, then removes old generations."""
    started = time.monotonic()
    segments = resume_segments(job.generation_folder, job.target.segments)
    store = FeatureStore(job.folder, replace(job.target, segments=segments))
    settings, limits = store.settings, AudioLimits(**job.target.origin["limits"])
    first_segment = find_next_segment(job.generation_folder)
    with RejectionReport(job.folder) as report:
        updater = StoreUpdater(
            store,
            settings,
            job.frontend,
            FeatureExtractor(settings.mel, settings.audio, limits, keep_pcm=settings.has_pcm),
            report,
            next_segment=first_segment,
            num_threads=job.num_threads,
            distrusted=job.distrusted,
        )
        counts = updater.run(job.corpus, job.progress)
    if max_bad_share is not None:
        _refuse_bad_share(counts, job.corpus, max_bad_share, job.folder, report)
    segments = (*segments, *range(first_segment, updater.next_segment))
    state = commit_state(job.folder, replace(job.target, segments=segments))
    remove_other_generations(job.folder, state.generation)
    summary = _summarize(job, state, counts, report)
    summary.elapsed_s = time.monotonic() - started
    return summary


def _open_corpus_of(state: StoreState, moved_to: Path | None, folder: Path) -> Corpus:
    """Opens the corpus that a store was made from, at its recorded path or else at `moved_to`."""
    known = Path(state.origin["corpus"])
    path = known if known.exists() or moved_to is None else moved_to
    if not path.exists():
        raise DataError(
            f"The corpus {path}, which the store in {folder} was made from, is not there.",
            next_step="Put it back, or name the place it has moved to with --train-data.",
        )
    return open_corpus(path)


def _refuse_foreign_store(state: StoreState | None, corpus: Corpus, folder: Path) -> None:
    """Raises DataError where the store belongs to another corpus that still exists: its features would be removed."""
    if state is None:
        return
    known = Path(state.origin["corpus"])
    if known != corpus.file.absolute() and known.exists():
        raise DataError(
            f"The store in {folder} belongs to the corpus {known}, not to {corpus.file}.",
            next_step="Give this corpus a store of its own with --cache-dir.",
        )


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
            f"more than the {100 * max_bad_share:g} % that are accepted:\n{listed}\n",
            next_step=f"{advice} All are listed in {folder / 'rejections.csv'}. Nothing is lost.",
        )


def _summarize(job: _Job, state: StoreState, counts: UpdateCounts, report: RejectionReport) -> PrecomputeSummary:
    return PrecomputeSummary(
        folder=str(job.folder),
        action=job.sentence,
        num_utterances=state.num_utterances,
        seconds=state.seconds,
        num_bytes=sum(path.stat().st_size for path in job.generation_folder.iterdir()),
        reasons={str(reason): count for reason, count in report.counts.most_common()},
        examples=report.examples,
        **asdict(counts),
    )
