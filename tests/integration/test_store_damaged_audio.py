"""Recordings that are damaged after they were checked: each is listed with its reason, none stops the rest."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from tests.conftest import synthesize_clip

from myxtts.config.schema import DataConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.errors import DataError
from myxtts.store.precompute import precompute
from myxtts.store.reader import FeatureStore

FORMATS = ("wav", "flac", "mp3")
RATE_HZ = 22050


def truncate(path: Path, generator: random.Random) -> None:
    os.truncate(path, generator.randrange(path.stat().st_size))


def flip_bytes(path: Path, generator: random.Random) -> None:
    raw = bytearray(path.read_bytes())
    for _ in range(generator.randint(1, 20)):
        raw[generator.randrange(len(raw))] ^= generator.randint(1, 255)
    path.write_bytes(raw)


def flip_header(path: Path, generator: random.Random) -> None:
    raw = bytearray(path.read_bytes())
    raw[generator.randrange(64)] ^= generator.randint(1, 255)
    path.write_bytes(raw)


def fill_with_noise(path: Path, generator: random.Random) -> None:
    path.write_bytes(generator.randbytes(path.stat().st_size))


def empty(path: Path, _: random.Random) -> None:
    path.write_bytes(b"")


def remove(path: Path, _: random.Random) -> None:
    path.unlink()


def become_a_folder(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()


def become_a_pipe(path: Path, _: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def become_a_bomb(path: Path, _generator: random.Random) -> None:
    """Twenty minutes of silence in a few kilobytes, whatever the name says."""
    path.unlink()
    with soundfile.SoundFile(path, "w", RATE_HZ, 1, format="FLAC") as file:
        for _ in range(20):
            file.write(np.zeros(60 * RATE_HZ, np.int16))


DAMAGES: tuple[Callable[[Path, random.Random], None], ...] = (
    truncate,
    flip_bytes,
    flip_header,
    fill_with_noise,
    empty,
    remove,
    become_a_folder,
    become_a_pipe,
    become_a_bomb,
)


def make_recordings(folder: Path, num_clips: int) -> list[Path]:
    """Clips in every format, prepared as a corpus."""
    paths = []
    lines = ["id|audio|text\n"]
    for number in range(num_clips):
        path = folder / "recordings" / f"clip{number:04}.{FORMATS[number % len(FORMATS)]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, synthesize_clip(0.5, seed=number), RATE_HZ)
        lines.append(f"clip{number:04}|{path.name}|Some words here.\n")
        paths.append(path)
    (folder / "recordings" / "metadata.csv").write_text("".join(lines), encoding="utf-8")
    data = DataConfig(text_frontend="characters")
    prepare_corpus([Recordings(folder / "recordings", "manifest")], folder / "corpus", data, num_threads=1)
    return paths


def damage_and_precompute(folder: Path, num_good: int, num_rounds: int, seed: int) -> None:
    generator = random.Random(seed)
    num_bad = num_rounds * len(DAMAGES) * len(FORMATS)
    paths = make_recordings(folder, num_good + num_bad)
    bad = generator.sample(paths, num_bad)
    for number, path in enumerate(bad):
        DAMAGES[number % len(DAMAGES)](path, generator)
    corpus = open_corpus(folder / "corpus")
    with pytest.raises(DataError, match=f"{num_bad:,} of {len(paths):,} utterances"):
        precompute(corpus, folder / "store", DataConfig(text_frontend="characters"), num_threads=2)
    data = DataConfig(text_frontend="characters", max_bad_share=1.0)
    summary = precompute(corpus, folder / "store", data, num_threads=2)
    listed = json.loads((folder / "store" / "rejections.json").read_text(encoding="utf-8"))
    assert sorted(item["id"] for item in listed) == sorted(path.stem for path in bad)
    assert all(item["reason"] and item["detail"] and item["what_to_do"] for item in listed)
    assert summary.num_rejected == num_bad
    store = FeatureStore.open(folder / "store")
    assert [store.id_of(row) for row in range(len(store))] == [path.stem for path in paths if path not in bad]


def test_damaged_recordings_are_listed_and_the_rest_is_made(tmp_path: Path) -> None:
    damage_and_precompute(tmp_path, num_good=12, num_rounds=2, seed=1)


@pytest.mark.soak
def test_many_damaged_recordings_are_listed_and_the_rest_is_made(tmp_path: Path) -> None:
    damage_and_precompute(tmp_path, num_good=460, num_rounds=20, seed=2)
