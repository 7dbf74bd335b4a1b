"""`ensure_features`: prepares raw recordings and fills the feature store, where either is missing.

Training, `open_batches` and the commands call it before they load anything, so that a folder of raw
recordings, a prepared corpus and a finished store can be named alike everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from myxtts.config.load import RESOLVED_FILE_NAME, write_resolved
from myxtts.config.schema import DataConfig, XTTSConfig
from myxtts.corpus.corpus_file import Corpus, is_prepared, open_corpus
from myxtts.corpus.prepare import Recordings, Summary, prepare_corpus
from myxtts.errors import ConfigError, DataError, MyXTTSError, UsageError, name_place, refuse
from myxtts.runtime.hardware import count_cpus
from myxtts.store import cache_files
from myxtts.store.layout import STORE_FILE_NAME, read_state
from myxtts.store.precompute import VAL_STORE_NAME, PrecomputeSummary, choose_store_folder, find_val_corpus, precompute
from myxtts.store.ray_shards import RayCluster
from myxtts.store.update import find_changes
from myxtts.text.script import check_scripts
from myxtts.types import Say

_NUM_TEXTS_CHECKED = 500
"""Texts of a prepared corpus whose script is compared with their language: takes a few milliseconds."""
_PREPARE = "Run myxtts cache rebuild with --train-data and the same --cache-dir."


class Report:
    """Callbacks for progress and results; this base prints lines only, commands override it with bars and tables."""

    def __init__(self, say: Say = lambda _line: None) -> None:
        self.say = say

    @contextmanager
    def show_progress(self, label: str, total: int | None) -> Iterator[Callable[[int, int], None]]:
        """Yields a callback that takes the utterances done and rejected so far. `total` is None where it is unknown."""
        yield lambda done, rejected: None

    def show_corpus(self, summary: Summary) -> None:
        """Called after recordings were checked."""

    def show_store(self, summary: PrecomputeSummary) -> None:
        """Called after a store was filled."""


def find_store_folder(data: DataConfig, refusal: type[MyXTTSError] = ConfigError) -> Path:
    """Returns the folder of the training store, which need not exist; raises `refusal` where no data are named."""
    if data.train_data is None and data.cache_dir is None:
        raise refusal("No corpus and no feature cache is given.", next_step="Add --train-data DIR or --cache-dir DIR.")
    return choose_store_folder(data, Path(data.train_data or ""))


def has_features(data: DataConfig) -> bool:
    """Whether there is a finished store, of whatever settings: opening it compares them."""
    return (find_store_folder(data) / STORE_FILE_NAME).exists()


def ensure_features(
    config: XTTSConfig, report: Report, *, keep_sound: bool = False, may_update: bool = True
) -> XTTSConfig:
    """Makes features that are missing, and updates those of a changed corpus; returns the configuration to load with.

    On the fly only the corpus is made, and the configuration names it instead of the recordings. With `keep_sound` a
    new store keeps the waveforms too, as a vocoder needs them. Where no corpus is named nothing is made, and opening
    the store says what is wrong with it. Raises DataError where the store belongs to another corpus than is named, and
    without `may_update`, for a run that goes on, ConfigError where the corpus has changed: the store is left as it is.
    """
    data, folder = config.data, find_store_folder(config.data)
    if data.train_data is None:
        return config
    refuse_missing_data(data)
    is_precomputed = data.preprocessing_mode == "precompute"
    is_new = is_precomputed and not has_features(data)
    if is_new:
        report.say(f"No feature cache in {folder} yet: computing features first.")
    corpus = _provide_corpus(config, folder, report)
    if is_new:
        with_sound = config.model_copy(update={"data.cache_waveforms": True}) if keep_sound else config
        make_features(with_sound, report, corpus=corpus)
    elif is_precomputed:
        _update_store(corpus, folder, config, report, may_update=may_update)
        val_corpus = find_val_corpus(data)
        if val_corpus is not None and (folder / VAL_STORE_NAME / STORE_FILE_NAME).exists():
            _update_store(open_corpus(val_corpus), folder / VAL_STORE_NAME, config, report, may_update=may_update)
    if is_precomputed or is_prepared(Path(data.train_data)):
        return config
    return config.model_copy(update={"data.train_data": str(corpus.file.parent)})


def refuse_missing_data(data: DataConfig) -> None:
    """Raises DataError where the training or validation data that are named do not exist."""
    for path in filter(None, (data.train_data, data.val_data)):
        if not Path(path).exists():
            raise DataError(
                f"There is nothing at {path}.",
                next_step="Check the path: it must be a corpus or a folder of recordings. For a feature cache "
                "alone, use --cache-dir without --train-data.",
            )


def make_features(
    config: XTTSConfig,
    report: Report,
    *,
    rebuild: bool = False,
    corpus: Corpus | None = None,
    ray_address: str | None = None,
) -> dict[str, Any]:
    """Runs precompute for the training corpus and for a separate validation corpus; returns a summary for JSON.

    Raw recordings are prepared first, unless `corpus` is the list that was made of them. With `ray_address` the hosts
    of a Ray cluster compute the features (`local`: processes of this one).
    """
    data, folder = config.data, find_store_folder(config.data)
    corpus = corpus or _provide_corpus(config, folder, report, is_fresh=True)
    with ExitStack() as held:
        cluster = None
        if ray_address is not None:
            cluster = held.enter_context(RayCluster(ray_address, count_threads(data), report.say))
        fields = _fill_store(corpus, folder, data, report, rebuild, cluster)
        val_corpus = find_val_corpus(data)
        if val_corpus is not None:
            val_folder = folder / VAL_STORE_NAME
            fields["val"] = _fill_store(open_corpus(val_corpus), val_folder, data, report, rebuild, cluster)
    _write_config(config, folder)
    cache_files.write_checksums(folder)
    return fields


def _write_config(config: XTTSConfig, folder: Path) -> None:
    """Writes config.yaml into a cache folder, with absolute paths, so that it holds wherever a command is called."""
    names = ("train_data", "val_data", "cache_dir", "lexicon", "persian_homographs")
    paths = {f"data.{name}": getattr(config.data, name) for name in names}
    absolute = {key: str(Path(path).absolute()) for key, path in paths.items() if path is not None}
    write_resolved(config.model_copy(update=absolute), folder)


def mend_files(folder: Path, damaged_files: Sequence[str], recordings: Path | None) -> None:
    """Makes files beside a store again: config.yaml from its copy, the list of raw recordings by preparing them.

    `recordings` says where they are now, for when they have moved. Reports of rejections come with an update.
    """
    if RESOLVED_FILE_NAME in damaged_files:
        cache_files.restore_config(folder)
    if not cache_files.is_list_damaged(damaged_files):
        return
    try:
        config = XTTSConfig.load(folder / RESOLVED_FILE_NAME)
    except ConfigError as error:
        place = folder / cache_files.CORPUS_FOLDER_NAME
        raise refuse(f"The list of recordings in {place}", f"it is damaged, and {error.problem}", _PREPARE) from error
    if recordings is not None:
        config = config.model_copy(update={"data.train_data": str(recordings)})
    refuse_missing_data(config.data)
    prepare_list(config, folder, Report())


def check_recordings(
    inputs: list[Recordings],
    out: Path,
    data: DataConfig,
    report: Report,
    *,
    seed: int,
    strict: bool = False,
    headers_only: bool = False,
    num_suggested: int = 0,
) -> Summary:
    """Prepares a corpus in `out` from raw recordings, and reports accepted and rejected ones."""
    for path in (item.path for item in inputs):
        if path.exists() and not (path.is_dir() or path.is_file()):
            raise refuse(path, "it is neither a folder nor a file", "Name the recordings, or their transcript.")
    with report.show_progress("Checking", None) as show, name_place(inputs[0].path):
        summary = prepare_corpus(
            inputs,
            out,
            data,
            seed=seed,
            strict=strict,
            headers_only=headers_only,
            num_threads=count_threads(data),
            num_suggested=num_suggested,
            progress=lambda accepted, rejected: show(accepted + rejected, rejected),
        )
    report.show_corpus(summary)
    return summary


def count_threads(data: DataConfig) -> int:
    """Returns the number of threads that check recordings or compute features; `auto` is one a CPU."""
    return count_cpus() if data.num_workers == "auto" else max(1, data.num_workers)


def _provide_corpus(config: XTTSConfig, folder: Path, report: Report, *, is_fresh: bool = False) -> Corpus:
    """Opens the corpus that `data.train_data` names; a list of raw recordings is made inside the store's folder.

    The list is made again where recordings were added, replaced or removed, and with `is_fresh` in any case.
    """
    data = config.data
    if data.train_data is None:
        raise UsageError("No corpus is given.", next_step="Give --train-data DIR.")
    refuse_missing_data(data)
    path, out = Path(data.train_data), folder / cache_files.CORPUS_FOLDER_NAME
    if is_prepared(path):
        corpus = open_corpus(path)
        _check_scripts(corpus)
        return corpus
    inputs = [path, *([Path(data.val_data)] if data.val_data else [])]
    recordings = cache_files.fingerprint_recordings(inputs, folder)
    known = cache_files.read_checksums(folder)
    is_same = known is not None and known.recordings == recordings
    if is_same and cache_files.is_list_damaged(cache_files.find_damaged_files(folder)):
        report.say(f"The list of recordings in {out} is damaged: making it again.")
        config = _restore_settings(config, folder)
    elif is_fresh or not is_prepared(out):
        if is_prepared(out):
            cache_files.is_list_of(open_corpus(out), path, folder)
        report.say(f"Checking the recordings in {path} first.")
    elif cache_files.is_list_of(open_corpus(out), path, folder) and is_same:
        return open_corpus(out)
    else:
        report.say(f"The recordings in {path} have changed since they were listed: checking them again.")
        config = _restore_settings(config, folder)
    prepare_list(config, folder, report)
    cache_files.write_checksums(folder, recordings)
    return open_corpus(out)


def _restore_settings(config: XTTSConfig, folder: Path) -> XTTSConfig:
    """Returns the configuration that a list of recordings was made with, for the recordings that are named now.

    A command that only loads features may leave out what shaped the list, such as the language.
    """
    try:
        known = XTTSConfig.load(folder / RESOLVED_FILE_NAME)
    except ConfigError:
        return config
    return known.model_copy(update={"data.train_data": config.data.train_data, "data.val_data": config.data.val_data})


def prepare_list(config: XTTSConfig, folder: Path, report: Report) -> None:
    """Prepares the raw recordings of a configuration inside a cache folder."""
    data = config.data
    assert data.train_data is not None
    inputs = [Recordings(Path(data.train_data), data.corpus_format, split="train" if data.val_data else None)]
    if data.val_data:
        inputs.append(Recordings(Path(data.val_data), data.corpus_format, split="val"))
    cache_files.forget_files(folder)
    check_recordings(inputs, folder / cache_files.CORPUS_FOLDER_NAME, data, report, seed=config.training.seed)
    _write_config(config, folder)


def _update_store(corpus: Corpus, folder: Path, config: XTTSConfig, report: Report, *, may_update: bool = True) -> None:
    """Brings a store up to date with its corpus; raises DataError for another corpus, or where updating is off."""
    state = read_state(folder)
    changes = find_changes(folder, state, corpus) if state is not None else None
    if state is None or not changes:
        return
    problem = f"The corpus {corpus.file} has changed since the features in {folder} were computed ({changes})"
    if not may_update:
        raise ConfigError(
            f"{problem}, but a run must be resumed with the corpus that it was started with.",
            next_step="Restore it, start another run (--run-name NAME), or add --force to continue with the "
            "changed corpus.",
        )
    if not config.data.auto_rebuild_token_cache:
        raise DataError(
            f"{problem}, and data.auto_rebuild_token_cache is off.",
            next_step=f"Run: myxtts precompute --train-data {config.data.train_data} --cache-dir {folder}",
        )
    report.say(f"{problem}: updating them.")
    # A store may keep sound that this command does not need.
    config = config.model_copy(update={"data.cache_waveforms": state.settings.has_pcm})
    _fill_store(corpus, folder, config.data, report, rebuild=False)


def _check_scripts(corpus: Corpus) -> None:
    """Raises DataError where the texts of a corpus are in another script than their language, by its first rows."""
    rows = islice(corpus.utterances(), _NUM_TEXTS_CHECKED)
    check_scripts((row.text, row.language, f"{row.id} in {corpus.file}") for row in rows if not row.phonemes)


def _fill_store(
    corpus: Corpus, folder: Path, data: DataConfig, report: Report, rebuild: bool, cluster: RayCluster | None = None
) -> dict[str, Any]:
    """Runs precompute with progress; returns its summary for JSON."""
    with report.show_progress("Features", corpus.num_utterances) as show:
        summary = precompute(
            corpus,
            folder,
            data,
            rebuild=rebuild,
            num_threads=count_threads(data),
            cluster=cluster,
            progress=show,
            say=report.say,
        )
    report.show_store(summary)
    fields = asdict(summary)
    fields["rejections"] = fields.pop("examples")
    return fields
