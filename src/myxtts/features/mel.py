"""Log-mel spectrograms on the host, with numpy and scipy.

Frames pass through in blocks that stay in the processor's cache, and every array is reused: fresh memory would cost
more than the arithmetic. Each thread has its own working memory, so one object serves any number of threads.
Shape legend: S samples, T frames, N transform length, F frequencies, M mel bands, K frames of a block.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from scipy.fft import rfft

from myxtts.features.definition import MelDefinition

_BLOCK_FRAMES = 96
_ROW_GAP = 16
_CACHE_LINE_BYTES = 64
_NUM_BAND_GROUPS = 5


class HostMel:
    """Computes what `MelDefinition` says. Call it with samples [S]; get float32 [T, M]."""

    def __init__(self, definition: MelDefinition) -> None:
        self.definition = definition
        self._workspaces = threading.local()
        self._groups = _group_bands(definition.filterbank)

    def __call__(self, samples: NDArray[np.float32], out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """`out`, if given, is a float32 [T, M] that receives the result."""
        definition = self.definition
        num_frames = definition.count_frames(len(samples))
        if out is None:
            out = np.empty((num_frames, definition.n_mels), np.float32)
        assert out.shape == (num_frames, definition.n_mels), (out.shape, num_frames)
        magnitude_TF = self._workspace().transform(samples, num_frames)
        for bands, frequencies, weights in self._groups:
            np.matmul(magnitude_TF[:, frequencies], weights, out=out[:, bands])
        np.maximum(out, np.float32(definition.log_floor), out=out)
        return np.log(out, out=out)

    def _workspace(self) -> _Workspace:
        workspace: _Workspace | None = getattr(self._workspaces, "own", None)
        if workspace is None:
            workspace = self._workspaces.own = _Workspace(self.definition)
        return workspace


def _group_bands(filterbank_FM: NDArray[np.float32]) -> list[tuple[slice, slice, NDArray[np.float32]]]:
    """Neighbouring bands with the frequencies they use: the filterbank is mostly zeros, and this leaves most out."""
    groups = []
    for bands in np.array_split(np.arange(filterbank_FM.shape[1]), _NUM_BAND_GROUPS):
        if len(bands) == 0:
            continue
        used = np.flatnonzero(filterbank_FM[:, bands].any(axis=1))
        frequencies = slice(int(used[0]), int(used[-1]) + 1) if len(used) else slice(0, 1)
        columns = slice(int(bands[0]), int(bands[-1]) + 1)
        groups.append((columns, frequencies, np.ascontiguousarray(filterbank_FM[frequencies, columns])))
    return groups


class _Workspace:
    """The memory one thread computes in."""

    def __init__(self, definition: MelDefinition) -> None:
        self._definition = definition
        self._padded = np.zeros(0, np.float32)
        self._magnitude_TF = np.empty((0, len(definition.filterbank)), np.float32)
        # Rows a little longer than the transform: at a distance of whole pages they would compete for cache lines.
        self._row_length = definition.n_fft + _ROW_GAP
        self._rows = _allocate(_BLOCK_FRAMES, self._row_length)
        # The window once for every row: one product of equal shapes takes half as long as a row at a time.
        self._windows = _allocate(_BLOCK_FRAMES, self._row_length)
        self._windows[:, : definition.n_fft] = definition.window

    def transform(self, samples: NDArray[np.float32], num_frames: int) -> NDArray[np.float32]:
        """Magnitudes [T, F] of the windowed frames, valid until the next call."""
        num_used = self._magnitude_TF.shape[1]
        if len(self._magnitude_TF) < num_frames:
            self._magnitude_TF = _allocate(num_frames + num_frames // 2, num_used)
        frames_TN = self._frame(samples, num_frames)
        for start in range(0, num_frames, _BLOCK_FRAMES):
            stop = min(start + _BLOCK_FRAMES, num_frames)
            rows = self._rows[: stop - start]
            np.multiply(frames_TN[start:stop], self._windows[: stop - start], out=rows)
            # The spectrum gets no name: it must be gone before the next one is made, which then takes its place.
            np.abs(rfft(rows[:, : self._definition.n_fft], axis=1)[:, :num_used], out=self._magnitude_TF[start:stop])
        return self._magnitude_TF[:num_frames]

    def _frame(self, samples: NDArray[np.float32], num_frames: int) -> NDArray[np.float32]:
        """Overlapping views [T, N + gap] of the samples, reflected at both ends."""
        start_margin, end_margin, num_samples = self._definition.margin, self._definition.end_margin, len(samples)
        assert num_samples >= self._definition.min_samples, num_samples
        end = start_margin + num_samples
        size = end + end_margin + _ROW_GAP
        if len(self._padded) < size:
            self._padded = _allocate(1, size + size // 2)[0]
        padded = self._padded
        padded[start_margin:end] = samples
        padded[:start_margin] = samples[start_margin:0:-1]
        padded[end : end + end_margin] = samples[-2 : -end_margin - 2 : -1]
        hop, itemsize = self._definition.hop_length, padded.itemsize
        return as_strided(padded, (num_frames, self._row_length), (hop * itemsize, itemsize), writeable=False)


def _allocate(num_rows: int, num_columns: int) -> NDArray[np.float32]:
    """Zeros [num_rows, num_columns] that begin with a cache line, which vector instructions prefer."""
    num_bytes = num_rows * num_columns * np.dtype(np.float32).itemsize
    raw = np.zeros(num_bytes + _CACHE_LINE_BYTES, np.uint8)
    start = -raw.ctypes.data % _CACHE_LINE_BYTES
    return raw[start : start + num_bytes].view(np.float32).reshape(num_rows, num_columns)
