"""Stores without recordings: rows and values written straight into segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.store.corpora import DATA

from myxtts.corpus.audio import AudioLimits
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.store.generation import begin_generation, commit_state, find_next_segment
from myxtts.store.index import Row
from myxtts.store.layout import Generation, Part, StoreOrigin, StoreSettings, StoreState, name_generation, read_state
from myxtts.store.segment import SegmentWriter

SETTINGS = StoreSettings(
    mel=replace(MelDefinition.from_config(DATA), n_mels=2),
    audio=AudioDefinition.from_config(DATA),
    mel_dtype="float32",
    has_pcm=False,
    frontend="none",
)

ORIGIN = StoreOrigin("nowhere", AudioLimits.from_config(DATA))

Values = Mapping[Part, NDArray[np.generic]]


def make_values(num_frames: int, num_tokens: int, seed: int) -> dict[Part, NDArray[np.generic]]:
    generator = np.random.default_rng(seed)
    return {
        "mel": generator.normal(size=(num_frames, 2)).astype("<f4"),
        "tokens": generator.integers(0, 99, num_tokens).astype("<i4"),
    }


def begin_store(folder: Path, settings: StoreSettings = SETTINGS) -> None:
    """An empty store."""
    folder.mkdir(parents=True, exist_ok=True)
    begin_generation(folder, 1, Generation(settings, ORIGIN, "features"))
    commit_state(folder, StoreState(1, (), settings, ORIGIN))


def append_segment(folder: Path, rows: Sequence[tuple[Row, Values]]) -> None:
    """Writes rows with their values as one segment and makes it visible."""
    state = read_state(folder)
    assert state is not None
    generation = folder / name_generation(state.generation)
    number = find_next_segment(generation)
    with SegmentWriter(generation, number) as segment:
        for row, values in rows:
            segment.add(row, values)
        segment.commit()
    commit_state(folder, replace(state, segments=(*state.segments, number)))
