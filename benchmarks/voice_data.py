"""The corpus that voice models are measured on, small enough to be made anew every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.demo import make_demo_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.store.precompute import precompute

_MINUTES, _NUM_SPEAKERS = 8.0, 4


def make_config(folder: str, **settings: Any) -> XTTSConfig:
    """What `myxtts demo` trains with, but for one shape of batches unless more are asked for."""
    paths = {"train_data": f"{folder}/corpus", "cache_dir": f"{folder}/store"}
    return XTTSConfig(**{"model_size": "tiny", "batch_size": 16, "num_shapes": 1, **paths, **settings})


def make_data(folder: Path) -> None:
    config = make_config(str(folder))
    make_demo_corpus(folder / "recordings", minutes=_MINUTES, num_speakers=_NUM_SPEAKERS)
    prepare_corpus([Recordings(folder / "recordings")], folder / "corpus", config.data)
    precompute(open_corpus(folder / "corpus"), folder / "store", config.data)
