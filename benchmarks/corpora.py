"""Task corpora and feature stores to measure with."""

from __future__ import annotations

from pathlib import Path

from benchmarks.clips import write_clips
from myxtts.config.schema import DataConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.store.precompute import precompute

DATA = DataConfig(text_frontend="characters", val_share=0.0)


def make_corpus(folder: Path, num_utterances: int, seconds: tuple[float, float]) -> Path:
    """A prepared corpus of one speaker."""
    paths = write_clips(folder / "recordings" / "wavs", num_utterances, seconds)
    lines = [f"{path.stem}|the words of number {number}\n" for number, path in enumerate(paths)]
    (folder / "recordings" / "metadata.csv").write_text("".join(lines), encoding="utf-8")
    return prepare(folder / "recordings", folder / "corpus")


def prepare(recordings: Path, folder: Path, data: DataConfig = DATA) -> Path:
    prepare_corpus([Recordings(recordings)], folder, data)
    return folder


def make_store(corpus: Path, folder: Path) -> Path:
    precompute(open_corpus(corpus), folder, DATA)
    return folder
