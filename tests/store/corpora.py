"""Small corpora to make stores of, and what a store holds in a form that can be compared."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import soundfile

from myxtts.config.schema import DataConfig
from myxtts.corpus.corpus_file import Corpus, open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.store import durations, update
from myxtts.store.precompute import PrecomputeSummary, precompute
from myxtts.store.reader import FeatureStore

RATE_HZ = 22050
DATA = DataConfig(text_frontend="characters", max_bad_share=0.5)
CHUNK = 4
"""Utterances of a segment in tests: a few clips make several segments."""


@dataclass
class Line:
    """One line of the manifest of a `SmallCorpus`."""

    text: str
    speaker: str = "anna"
    language: str = "en"


class SmallCorpus:
    """Recordings with a manifest that tests change line by line; `prepare` makes the corpus anew."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: dict[str, Line] = {}

    def add(self, id: str, seed: int, seconds: float = 0.5, **fields: str) -> None:
        """Adds an utterance, or gives an existing one another recording."""
        path = self.audio(id)
        path.parent.mkdir(parents=True, exist_ok=True)
        generator = np.random.default_rng(seed)
        tone = np.sin(np.arange(int(seconds * RATE_HZ)) * generator.uniform(0.02, 0.2))
        soundfile.write(path, 0.3 * tone + generator.normal(0, 0.01, len(tone)), RATE_HZ)
        self.lines.setdefault(id, Line(f"Words of {id}."))
        self.change(id, **fields)

    def change(self, id: str, **fields: str) -> None:
        self.lines[id] = Line(**{**self.lines[id].__dict__, **fields})

    def audio(self, id: str) -> Path:
        return self.folder / "recordings" / "wavs" / f"{id}.wav"

    def remove(self, id: str) -> None:
        del self.lines[id]
        self.audio(id).unlink()

    def prepare(self, data: DataConfig = DATA, **options: Any) -> Corpus:
        rows = [f"{id}|wavs/{id}.wav|{line.text}|{line.speaker}|{line.language}\n" for id, line in self.lines.items()]
        (self.folder / "recordings" / "metadata.csv").write_text(
            "id|audio|text|speaker|language\n" + "".join(rows), encoding="utf-8"
        )
        out = self.folder / "corpus"
        prepare_corpus([Recordings(self.folder / "recordings", "manifest")], out, data, num_threads=1, **options)
        return open_corpus(out)

    def copy(self, folder: Path) -> SmallCorpus:
        twin = SmallCorpus(folder)
        twin.lines = dict(self.lines)
        shutil.copytree(self.folder, folder)
        return twin

    @property
    def store_folder(self) -> Path:
        return self.folder / "store"

    def precompute(self, data: DataConfig = DATA, **options: Any) -> PrecomputeSummary:
        """Brings the store in line with the corpus that was prepared last."""
        options = {"num_threads": 1, **options}
        with small_segments(CHUNK):
            return precompute(open_corpus(self.folder / "corpus"), self.store_folder, data, **options)

    def open_store(self) -> FeatureStore:
        return FeatureStore.open(self.store_folder)

    def take_snapshot(self) -> list[Any]:
        return take_snapshot(self.store_folder)


@contextmanager
def small_segments(num_utterances: int) -> Iterator[None]:
    """Segments of a few utterances, so that small stores have several."""
    constants = [(update, "CHUNK_UTTERANCES"), (update, "COMPACTED_UTTERANCES"), (durations, "CHUNK_UTTERANCES")]
    with ExitStack() as patches:
        for module, name in constants:
            patches.enter_context(patch.object(module, name, num_utterances))
        yield


def make_small_corpus(folder: Path, num_utterances: int = 10) -> SmallCorpus:
    """A prepared corpus of short clips by two speakers."""
    corpus = SmallCorpus(folder)
    for number in range(num_utterances):
        corpus.add(f"clip{number:02}", seed=number, speaker=("anna", "ben")[number % 2])
    # A front end of characters learns them from the texts: with all of them here, other texts do not change it.
    corpus.add("clip00", seed=0, seconds=1.0, text="The quick brown fox jumps over the lazy dog.")
    corpus.prepare()
    return corpus


def store_two_speakers(folder: Path, data: DataConfig, seconds: float) -> tuple[Corpus, DataConfig]:
    """Makes the features of twelve clips of two speakers in `folder`: the corpus `prepared` and the cache `store`."""
    small = SmallCorpus(folder)
    for number in range(12):
        small.add(f"clip{number:02}", number, seconds=seconds, speaker="anna" if number % 2 else "omid")
    small.prepare()
    data = data.model_copy(update={"text_frontend": "characters", "val_share": 0.4})
    prepare_corpus([Recordings(folder / "recordings")], folder / "prepared", data)
    corpus = open_corpus(folder / "prepared")
    precompute(corpus, folder / "store", data)
    return corpus, data


def take_snapshot(folder: Path) -> list[Any]:
    """All that a store holds, utterance by utterance in order, to the byte."""
    store = FeatureStore.open(folder)
    rows = []
    for row in range(len(store)):
        stored = store[row]
        values = {part: store.read_part(row, part).tobytes() for part in ("mel", "tokens", "pcm", "durations")}
        crcs = int(store.columns["source_crc"][row]), int(store.columns["text_crc"][row])
        rows.append((stored.id, stored.speaker, stored.language, stored.split, crcs, values))
    return rows


def content_of(corpus: SmallCorpus) -> dict[str, Any]:
    """All that the store of a corpus holds, by id: for where the order may differ."""
    return {row[0]: row for row in corpus.take_snapshot()}


def with_changes(**changes: Any) -> DataConfig:
    return DataConfig(**{**DATA.model_dump(), **changes})


def change_alphabet(corpus: SmallCorpus) -> None:
    """A character that the front end has not seen gives every token another number."""
    corpus.change("clip01", text="Words! Of clip?")
    corpus.prepare()


def list_files(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file of a folder by name, with its inode and time: what shows that a file was not rewritten."""
    return {
        str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
