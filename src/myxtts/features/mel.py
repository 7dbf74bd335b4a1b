"""`HostMel`: log-mel spectrograms on the host, with numpy, and with the faster FFT of scipy where it is installed.

Working memory is reused, because allocating it would take as long as the arithmetic; each thread has its own, so one
object serves any number of threads.
Shape legend: S samples, T frames, N transform length, F frequencies, M mel bands, K frames of a block.
"""

from __future__ import annotations

import threading
from functools import cache
from importlib import import_module
from types import ModuleType

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from myxtts.features.definition import MelDefinition

# Between two numpy calls a thread must take the GIL. Small blocks would stay in the cache and save 5 % in one thread,
# but two threads would then be only 1.5 times as fast as one.
_BLOCK_FRAMES = 640
_CACHE_LINE_BYTES = 64
_NUM_GROUPS = 5
_STACK_FRAMES = 32


@cache
def load_fft() -> ModuleType:
    """The module with `rfft` and `irfft`: scipy's, which comes with what training needs, or numpy's, 1.5 times slower.

    Imported when first needed: scipy takes a tenth of a second, and a saved voice speaks without it.
    """
    try:
        return import_module("scipy.fft")
    except ImportError:
        return import_module("numpy.fft")


class HostMel:
    """Computes what `MelDefinition` says. Call it with samples [S]; get float32 [T, M]."""

    def __init__(self, definition: MelDefinition) -> None:
        self.definition = definition
        self._workspaces = threading.local()
        self._sum_bands = BandedProduct(definition.filterbank)

    def __call__(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        definition = self.definition
        num_frames = definition.count_frames(len(samples))
        out = np.empty((num_frames, definition.n_mels), np.float32)
        workspace = self._workspace()
        frames_TN = workspace.frame(samples, num_frames)
        for start in range(0, num_frames, _BLOCK_FRAMES):
            stop = min(start + _BLOCK_FRAMES, num_frames)
            self._sum_bands(workspace.transform(frames_TN[start:stop]), out[start:stop])
        np.maximum(out, np.float32(definition.log_floor), out=out)
        return np.log(out, out=out)

    def _workspace(self) -> _Workspace:
        workspace: _Workspace | None = getattr(self._workspaces, "own", None)
        if workspace is None:
            workspace = self._workspaces.own = _Workspace(self.definition)
        return workspace


class BandedProduct:
    """Product of rows [K, A] and a matrix [A, B] whose columns use few neighbouring rows, as those of a filterbank do.

    Neighbouring columns are one product with the rows they use, which leaves most of the zeros out. Rows are multiplied
    as a stack of small products: BLAS would spread a large one over threads of its own.
    """

    def __init__(self, matrix_AB: NDArray[np.float32]) -> None:
        self._groups = []
        self._num_columns = matrix_AB.shape[1]
        for columns in np.array_split(np.arange(self._num_columns), _NUM_GROUPS):
            if len(columns) == 0:
                continue
            used = np.flatnonzero(matrix_AB[:, columns].any(axis=1))
            rows = slice(int(used[0]), int(used[-1]) + 1) if len(used) else slice(0, 1)
            place = slice(int(columns[0]), int(columns[-1]) + 1)
            self._groups.append((place, rows, np.ascontiguousarray(matrix_AB[rows, place])))

    def __call__(self, rows_KA: NDArray[np.float32], out_KB: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        if out_KB is None:
            out_KB = np.empty((len(rows_KA), self._num_columns), np.float32)
        num_stacked = len(rows_KA) // _STACK_FRAMES * _STACK_FRAMES
        stack = rows_KA[:num_stacked].reshape(-1, _STACK_FRAMES, rows_KA.shape[1])
        assert out_KB.flags.c_contiguous, "the result would go into a copy"
        out_stack = out_KB[:num_stacked].reshape(-1, _STACK_FRAMES, self._num_columns)
        for columns, used, weights in self._groups:
            np.matmul(stack[:, :, used], weights, out=out_stack[:, :, columns])
            if num_stacked < len(rows_KA):
                np.matmul(rows_KA[num_stacked:, used], weights, out=out_KB[num_stacked:, columns])
        return out_KB


class _Workspace:
    """The memory one thread computes in."""

    def __init__(self, definition: MelDefinition) -> None:
        self._definition = definition
        self._padded = np.empty(0, np.float32)
        self._rows = _allocate(_BLOCK_FRAMES, definition.n_fft)
        self._magnitude = _allocate(_BLOCK_FRAMES, len(definition.filterbank))

    def transform(self, frames_KN: NDArray[np.float32]) -> NDArray[np.float32]:
        """Magnitudes [K, F] of the windowed frames, valid until the next call."""
        windowed_KN = np.multiply(frames_KN, self._definition.window, out=self._rows[: len(frames_KN)])
        magnitude_KF = self._magnitude[: len(frames_KN)]
        # The spectrum gets no name, so that its memory is free before the next one is allocated.
        np.abs(load_fft().rfft(windowed_KN, axis=1)[:, : magnitude_KF.shape[1]], out=magnitude_KF)
        return magnitude_KF

    def frame(self, samples: NDArray[np.float32], num_frames: int) -> NDArray[np.float32]:
        """Overlapping views [T, N] of the samples, reflected at both ends."""
        start_margin, end_margin, num_samples = self._definition.margin, self._definition.end_margin, len(samples)
        assert num_samples >= self._definition.min_samples, num_samples
        end = start_margin + num_samples
        if len(self._padded) < end + end_margin:
            self._padded = _allocate(1, 2 * (end + end_margin))[0]
        padded = self._padded
        padded[start_margin:end] = samples
        padded[:start_margin] = samples[start_margin:0:-1]
        padded[end : end + end_margin] = samples[-2 : -end_margin - 2 : -1]
        hop, itemsize = self._definition.hop_length, padded.itemsize
        return as_strided(padded, (num_frames, self._definition.n_fft), (hop * itemsize, itemsize), writeable=False)


def _allocate(num_rows: int, num_columns: int) -> NDArray[np.float32]:
    """An array [num_rows, num_columns] that begins with a cache line, which vector instructions prefer."""
    num_bytes = num_rows * num_columns * np.dtype(np.float32).itemsize
    raw = np.empty(num_bytes + _CACHE_LINE_BYTES, np.uint8)
    start = -raw.ctypes.data % _CACHE_LINE_BYTES
    return raw[start : start + num_bytes].view(np.float32).reshape(num_rows, num_columns)
