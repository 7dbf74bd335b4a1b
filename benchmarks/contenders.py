"""Usual ways of making features on the fly, to compare this product's with. Each is an endless run of batches.

Shape legend: S samples, T frames, N transform length, F frequencies, M mel bands.
"""

from __future__ import annotations

import ctypes
import multiprocessing
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray
from scipy.signal import stft

from benchmarks.clips import RATE_HZ
from benchmarks.librosa_and_tfrecord import make_librosa_dataset
from myxtts.config.schema import DataConfig
from myxtts.features.definition import MelDefinition

BATCH = 32
_PADDING = -11.5129
_MAX_FRAMES = 640
_NUM_PROCESSES = 2
_SLOTS_PER_PROCESS = 2
_MEL = MelDefinition.from_config(DataConfig())


def list_recordings(folder: str) -> list[str]:
    return [str(path) for path in sorted((Path(folder) / "recordings" / "wavs").iterdir())]


def run_numpy_function(folder: str) -> Iterator[int]:
    """librosa, one recording at a time, inside `tf.data`: as many at once as there are processors here, two."""
    mels = make_librosa_dataset(list_recordings(folder), _MEL, BATCH, _NUM_PROCESSES)
    for batch in mels:
        yield int(batch["mel"].shape[0])


def run_processes(folder: str) -> Iterator[int]:
    """soundfile and scipy's STFT in two processes, which leave whole batches in memory that all of them share."""
    context = multiprocessing.get_context("fork")
    ready: multiprocessing.Queue[int] = context.Queue()
    slots = [
        context.RawArray(ctypes.c_float, BATCH * _MAX_FRAMES * _MEL.n_mels)
        for _ in range(_NUM_PROCESSES * _SLOTS_PER_PROCESS)
    ]
    recordings, free = list_recordings(folder), [context.SimpleQueue() for _ in range(_NUM_PROCESSES)]
    for number, own in enumerate(free):
        work = (recordings[number::_NUM_PROCESSES], slots, own, ready)
        context.Process(target=_fill_slots, args=work, daemon=True).start()
        for slot in range(number, len(slots), _NUM_PROCESSES):
            own.put(slot)
    while True:
        slot = ready.get()
        yield BATCH
        free[slot % _NUM_PROCESSES].put(slot)


def _fill_slots(recordings: list[str], slots: list[Any], free: Any, ready: Any) -> None:
    """What each process does. A slot holds a batch, padded to the longest that may come."""
    mels = _compute_forever(recordings)
    while True:
        slot = free.get()
        batch_BTM = np.frombuffer(slots[slot], np.float32).reshape(BATCH, _MAX_FRAMES, _MEL.n_mels)
        chosen = list(islice(mels, BATCH))
        longest = max(len(mel_TM) for mel_TM in chosen)
        for place, mel_TM in enumerate(chosen):
            batch_BTM[place, : len(mel_TM)] = mel_TM
            batch_BTM[place, len(mel_TM) : longest] = _PADDING
        ready.put(slot)


def _compute_forever(recordings: list[str]) -> Iterator[NDArray[np.float32]]:
    while True:
        yield from map(compute_with_scipy, recordings)


def compute_with_scipy(path: str) -> NDArray[np.float32]:
    """The log-mel [T, M] of a recording."""
    samples, _ = soundfile.read(path, dtype="float32")
    num_overlap = _MEL.win_length - _MEL.hop_length
    _, _, spectrum_FT = stft(samples, RATE_HZ, "hann", _MEL.win_length, num_overlap, _MEL.n_fft, boundary="even")
    filterbank_FM = _MEL.filterbank
    # The bands use the lower frequencies only.
    bands_TM = np.abs(spectrum_FT[: len(filterbank_FM)]).T @ filterbank_FM
    log_TM: NDArray[np.float32] = np.log(np.maximum(bands_TM, np.float32(_MEL.log_floor)))
    return log_TM
