"""Arrays of a batch as they are declared, in memory that comes back when its last view is gone, and not before."""

from __future__ import annotations

import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from myxtts.pipeline.batch import BatchLayout, MemoryPool
from myxtts.pipeline.order import Shape
from myxtts.types import BATCH


def test_memory_is_used_again_when_its_last_view_is_gone() -> None:
    pool = MemoryPool(1000, num_kept=4)
    piece = pool.lease()
    view = piece[100:200].view(np.int32).reshape(5, 5)
    address = piece.ctypes.data
    del piece
    assert pool.lease().ctypes.data != address
    del view
    assert address in {pool.lease().ctypes.data, pool.lease().ctypes.data}
    assert pool.num_made == 2


def test_memory_that_is_looked_at_is_never_given_out_again() -> None:
    pool = MemoryPool(64, num_kept=2)
    held = [pool.lease() for _ in range(10)]
    for number, piece in enumerate(held):
        piece[:] = number
    assert [int(piece[0]) for piece in held] == list(range(10))


def test_touched_memory_is_given_out_first() -> None:
    pool = MemoryPool(5000, num_kept=3)
    pool.add_touched()
    assert not pool.lease().any()
    assert pool.num_made == 1


def test_no_more_is_kept_than_asked_for() -> None:
    pool = MemoryPool(64, num_kept=2)
    held = [pool.lease() for _ in range(6)]
    held.clear()
    again = [pool.lease() for _ in range(3)]
    assert pool.num_made == 6 + 1
    assert len(again) == 3


def test_threads_never_share_a_piece() -> None:
    pool = MemoryPool(256, num_kept=8)
    wrong: list[int] = []

    def use(number: int) -> None:
        for _ in range(300):
            piece = pool.lease()
            piece[:] = number
            if (piece != number).any():
                wrong.append(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=4),
    n_mels=st.integers(1, 9),
    num_reference_frames=st.integers(1, 20),
)
def test_arrays_of_every_shape_fit_are_aligned_and_do_not_overlap(
    sizes: list[tuple[int, int, int]], n_mels: int, num_reference_frames: int
) -> None:
    shapes = [Shape(*size) for size in sizes]
    layout = BatchLayout.of_features(shapes, n_mels, num_reference_frames, has_durations=True)
    memory = MemoryPool(layout.num_bytes, 1).lease()
    for shape in shapes:
        batch = layout.view(shape, memory)
        assert [*batch] == [array.name for array in BATCH]
        assert batch["mel"].shape == (shape.num_utterances, shape.num_frames, n_mels)
        assert batch["durations"].shape == batch["tokens"].shape == (shape.num_utterances, shape.num_tokens)
        assert all(batch[array.name].dtype == array.dtype for array in BATCH)
        assert all(array.ctypes.data % 64 == 0 for array in batch.values())
        for number, array in enumerate(batch.values()):
            array[:] = number
        assert all((array == number).all() for number, array in enumerate(batch.values()))


def test_new_memory_is_an_empty_batch() -> None:
    shape = Shape(3, 16, 8)
    arrays = BatchLayout.of_features([shape], 5, 6).view(shape)
    assert "durations" not in arrays
    assert not any(values.any() for values in arrays.values())
