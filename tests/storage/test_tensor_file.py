"""Arrays come back bit by bit, the safetensors library agrees, and no damaged byte goes unnoticed."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import google_crc32c
import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from myxtts.storage.tensor_file import (
    DTYPES,
    Array,
    TensorFileError,
    find_non_finite,
    fingerprint_arrays,
    read_heading,
    read_tensors,
    write_tensors,
)

NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_characters="\\/"), min_size=1).filter(
    lambda name: name.isprintable() and name not in (".", "..", "__metadata__", "~crc32c")
)


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    """Any bits at all, NaN among them: a file knows nothing of numbers."""
    dtype = draw(st.sampled_from(list(DTYPES.values())))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    raw = draw(st.binary(min_size=num_bytes, max_size=num_bytes))
    if dtype == np.bool_:
        raw = bytes(byte % 2 for byte in raw)
    return np.frombuffer(raw, dtype).reshape(shape)


def write(path: Path, named: dict[str, Array], *, seal: bool, metadata: dict[str, str] | None = None) -> int:
    with path.open("wb") as file:
        return write_tensors(file, named, metadata or {}, seal=seal)


def read(path: Path, *, sealed: bool) -> tuple[dict[str, Array], int, dict[str, str]]:
    with path.open("rb") as file:
        heading = read_heading(file)
        found, crc = read_tensors(file, heading, sealed=sealed)
    return found, crc, heading.metadata


def list_bits(named: dict[str, Array]) -> dict[str, Any]:
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in named.items()}


@given(st.dictionaries(NAMES, arrays(), max_size=6), st.dictionaries(st.text(), st.text(), max_size=3), st.booleans())
def test_arrays_come_back_bit_by_bit(
    tmp_path_factory: pytest.TempPathFactory, named: dict[str, Array], metadata: dict[str, str], seal: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip.safetensors"
    # A file system in the tests' folder is not asked about lone surrogates, but JSON is.
    metadata = {k: v for k, v in metadata.items() if (k + v).isprintable()}
    crc = write(path, named, seal=seal, metadata=metadata)
    found, found_crc, found_metadata = read(path, sealed=seal)
    assert list_bits(found) == list_bits(named)
    assert (found_crc, found_metadata) == (crc, metadata)


def make_arrays() -> dict[str, Array]:
    generator = np.random.default_rng(1)
    return {
        "model/dense/kernel": generator.normal(size=(3, 5)).astype(np.float32),
        "model/dense/bias": generator.normal(size=5).astype(ml_dtypes.bfloat16),
        "optimizer/00000": np.array(12345678901, np.int64),
        "empty": np.zeros((0, 4), np.float16),
    }


def test_the_library_reads_what_is_written_here(tmp_path: Path) -> None:
    named = make_arrays()
    write(tmp_path / "a", named, seal=False)
    found: dict[str, Any] = dict(safetensors.deserialize((tmp_path / "a").read_bytes()))  # type: ignore[no-untyped-call]
    assert {name: bytes(view["data"]) for name, view in found.items()} == {n: a.tobytes() for n, a in named.items()}
    assert {name: view["shape"] for name, view in found.items()} == {n: list(a.shape) for n, a in named.items()}
    assert found["model/dense/bias"]["dtype"] == "BF16"


def test_what_the_library_writes_is_read_here(tmp_path: Path) -> None:
    named = make_arrays()
    safetensors.numpy.save_file(named, tmp_path / "a", metadata={"key": "value"})
    found, _, metadata = read(tmp_path / "a", sealed=False)
    assert list_bits(found) == list_bits(named)
    assert metadata == {"key": "value"}


def test_an_array_that_is_not_in_one_piece_is_written_as_it_looks(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.int32).reshape(4, 6)[::2, ::-1].T
    write(tmp_path / "a", {"a": array}, seal=True)
    np.testing.assert_array_equal(read(tmp_path / "a", sealed=True)[0]["a"], array)


def test_checksums_of_arrays_need_no_copy_of_them(tmp_path: Path) -> None:
    named = {"a": np.ones(5_000_000, np.float32)}
    tracemalloc.start()
    try:
        write(tmp_path / "a", named, seal=True)
        fingerprint_arrays(named)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 500_000


def test_a_fingerprint_is_the_crc_of_names_and_bytes_in_the_order_of_names() -> None:
    named = make_arrays() | {"turned": np.arange(6, dtype=np.float32).reshape(2, 3).T}
    crc = google_crc32c.value(b"".join(name.encode() + named[name].tobytes() for name in sorted(named)))
    assert fingerprint_arrays(named) == f"{crc:08x}"
    assert fingerprint_arrays(dict(reversed(named.items()))) == f"{crc:08x}"
    assert fingerprint_arrays({**named, "empty": np.ones(1, np.float16)}) != f"{crc:08x}"


def test_a_flipped_bit_in_any_byte_of_a_sealed_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, {"a": np.arange(6, dtype=np.float32), "b": np.array(7)}, seal=True, metadata={"state": '{"x": 1}'})
    good = path.read_bytes()
    for bit in range(0, 8 * len(good), 7):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(TensorFileError):
            read(path, sealed=True)


def test_every_shortened_or_lengthened_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, {"a": np.arange(6, dtype=np.float32)}, seal=True)
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(TensorFileError):
            read(path, sealed=True)
    path.write_bytes(good + b"\0")
    with pytest.raises(TensorFileError, match="belong to none"):
        read(path, sealed=True)


def test_a_file_without_a_seal_is_not_taken_for_a_sealed_one(tmp_path: Path) -> None:
    write(tmp_path / "a", make_arrays(), seal=False)
    with pytest.raises(TensorFileError, match="seal"):
        read(tmp_path / "a", sealed=True)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_found_by_name(dtype: Any, value: float) -> None:
    spoiled = np.ones((2, 3), dtype)
    spoiled[1, 2] = value
    good = {"good": np.ones(3, dtype), "numbers": np.arange(3), "flags": np.array([True]), "none": np.zeros(0, dtype)}
    assert find_non_finite({**good, "spoiled": spoiled}) == ["spoiled"]
