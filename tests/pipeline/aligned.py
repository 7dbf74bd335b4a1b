"""Durations for a store that no model has aligned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from myxtts.store.durations import write_durations
from myxtts.store.reader import FeatureStore


def align_evenly(folder: Path) -> dict[str, NDArray[np.int32]]:
    """Gives every token of an utterance as many frames as any other, and writes that into the store."""
    store = FeatureStore.open(folder)
    durations = {}
    for row in range(len(store)):
        num_tokens, num_frames = store.entry(row, "tokens").length, store.entry(row, "mel").length
        ends = np.linspace(0, num_frames, num_tokens + 1).astype(np.int32)
        durations[store.id_of(row)] = np.diff(ends).astype(np.int32)
    write_durations(folder, durations)
    return durations
