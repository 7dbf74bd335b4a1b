"""`ensure_features`: prepares raw recordings and fills the feature store, where either is missing.

Training, `open_batches` and the commands call it before they load anything, so that a folder of raw
recordings, a prepared corpus and a finished store can be named alike everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from myxtts.config.load import write_resolved
from myxtts.config.schema import DataConfig, XTTSConfig
from myxtts.corpus.corpus_file import Corpus, is_prepared, open_corpus
from myxtts.corpus.prepare import Recordings, Summary, prepare_corpus
from myxtts.errors import ConfigError, MyXTTSError, UsageError
from myxtts.runtime.hardware import count_cpus
from myxtts.store.layout import STORE_FILE_NAME
from myxtts.store.precompute import VAL_STORE_NAME, PrecomputeSummary, choose_store_folder, find_val_corpus, precompute
from myxtts.text.script import check_scripts
from myxtts.types import Say

CORPUS_FOLDER_NAME = "corpus"
"""Raw recordings are prepared into this folder of their store."""
_NUM_TEXTS_CHECKED = 500
"""Texts of a prepared corpus whose script is compared with their language: takes a few milliseconds."""


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
        raise refusal(
            "Neither a corpus nor a store is named.",
            next_step="Set data.train_data (--train-data DIR) or data.cache_dir (--cache-dir DIR).",
        )
    return choose_store_folder(data, Path(data.train_data or ""))


def has_features(data: DataConfig) -> bool:
    """Whether there is a finished store, of whatever settings: opening it compares them."""
    return (find_store_folder(data) / STORE_FILE_NAME).exists()


def ensure_features(config: XTTSConfig, report: Report, *, keep_sound: bool = False) -> XTTSConfig:
    """Prepares the corpus and computes the features that are missing; returns the configuration to load them with.

    A store that exists is left as it is. On the fly only the corpus is made, and the configuration names it instead of
    the recordings. With `keep_sound` a new store keeps the waveforms too, as a vocoder needs them. Where no corpus is
    named nothing is made, and opening the store says what is wrong with it.
    """
    data, folder = config.data, find_store_folder(config.data)
    if data.train_data is None:
        return config
    if is_prepared(Path(data.train_data)):
        _check_scripts(open_corpus(Path(data.train_data)))
    if data.preprocessing_mode == "precompute":
        if not has_features(data):
            report.say(f"There are no features in {folder} yet: they are made first.")
            with_sound = config.model_copy(update={"data.store_pcm": True}) if keep_sound else config
            make_features(with_sound, report)
        return config
    if is_prepared(Path(data.train_data)):
        return config
    if not is_prepared(folder / CORPUS_FOLDER_NAME):
        _open_or_prepare(config, folder, report)
    return config.model_copy(update={"data.train_data": str(folder / CORPUS_FOLDER_NAME)})


def make_features(config: XTTSConfig, report: Report, *, rebuild: bool = False) -> dict[str, Any]:
    """Runs precompute for the training corpus and for a separate validation corpus; returns a summary for JSON."""
    folder = find_store_folder(config.data)
    fields = _fill_store(_open_or_prepare(config, folder, report), folder, config.data, report, rebuild)
    val_corpus = find_val_corpus(config.data)
    if val_corpus is not None:
        fields["val"] = _fill_store(open_corpus(val_corpus), folder / VAL_STORE_NAME, config.data, report, rebuild)
    write_resolved(config, folder)
    return fields


def check_recordings(
    inputs: list[Recordings],
    out: Path,
    data: DataConfig,
    report: Report,
    *,
    seed: int,
    strict: bool = False,
    headers_only: bool = False,
) -> Summary:
    """Prepares a corpus in `out` from raw recordings, and reports accepted and rejected ones."""
    with report.show_progress("Checking", None) as show:
        summary = prepare_corpus(
            inputs,
            out,
            data,
            seed=seed,
            strict=strict,
            headers_only=headers_only,
            num_threads=count_threads(data),
            progress=lambda accepted, rejected: show(accepted + rejected, rejected),
        )
    report.show_corpus(summary)
    return summary


def count_threads(data: DataConfig) -> int:
    """Returns the number of threads that check recordings or compute features; `auto` is one a CPU."""
    return count_cpus() if data.num_workers == "auto" else max(1, data.num_workers)


def _open_or_prepare(config: XTTSConfig, folder: Path, report: Report) -> Corpus:
    """Opens the corpus that `data.train_data` names; raw recordings are prepared inside the store's folder first."""
    data = config.data
    if data.train_data is None:
        raise UsageError("No corpus is named.", next_step="Give --train-data DIR.")
    path = Path(data.train_data)
    if is_prepared(path):
        corpus = open_corpus(path)
        _check_scripts(corpus)
        return corpus
    inputs = [Recordings(path, data.corpus_format, split="train" if data.val_data else None)]
    if data.val_data:
        inputs.append(Recordings(Path(data.val_data), data.corpus_format, split="val"))
    report.say(f"Checking the recordings in {path} first.")
    check_recordings(inputs, folder / CORPUS_FOLDER_NAME, data, report, seed=config.training.seed)
    return open_corpus(folder / CORPUS_FOLDER_NAME)


def _check_scripts(corpus: Corpus) -> None:
    """Raises DataError where the texts of a corpus are in another script than their language, by its first rows."""
    rows = islice(corpus.utterances(), _NUM_TEXTS_CHECKED)
    check_scripts((row.text, row.language, f"{row.id} in {corpus.file}") for row in rows if not row.phonemes)


def _fill_store(corpus: Corpus, folder: Path, data: DataConfig, report: Report, rebuild: bool) -> dict[str, Any]:
    """Runs precompute with progress; returns its summary for JSON."""
    with report.show_progress("Features", corpus.num_utterances) as show:
        summary = precompute(
            corpus, folder, data, rebuild=rebuild, num_threads=count_threads(data), progress=show, say=report.say
        )
    report.show_store(summary)
    fields = asdict(summary)
    fields["rejections"] = fields.pop("examples")
    return fields
