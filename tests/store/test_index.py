"""An index gives back what was written, whatever the ids are, and notices every change of a bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.synthetic import ORIGIN, SETTINGS

from myxtts.errors import DataError
from myxtts.store.index import (
    PartEntry,
    Row,
    encode_index,
    find_index_damage,
    read_index,
    write_index,
)
from myxtts.store.layout import ALIGNMENT, PARTS, Part, StoreState
from myxtts.store.reader import FeatureStore

u4 = st.integers(0, 2**32 - 1)
# Any text, lone surrogates included: an id may come from a transcript that nobody can read.
any_text = st.text(st.characters(), max_size=20)
offsets = st.integers(1, 2**42).map(lambda number: number * ALIGNMENT)
entries = st.builds(PartEntry, segment=st.integers(0, 42), offset=offsets, length=st.integers(1, 2**31), crc=u4)
rows = st.builds(
    Row,
    id=any_text,
    speaker=any_text,
    language=st.sampled_from(["", "en", "fa", "pt-br"]),
    split=st.sampled_from(["train", "val", "test"]),
    source_crc=u4,
    text_crc=u4,
    source_frames=u4,
    parts=st.dictionaries(st.sampled_from(PARTS), entries),
)


def open_rows(folder: Path, *segments: int) -> FeatureStore:
    """The joined indexes of the first generation in a folder, without data files."""
    return FeatureStore(folder, StoreState(1, segments, SETTINGS, ORIGIN))


def describe_row(table: FeatureStore, number: int) -> Row:
    columns = table.columns
    parts: dict[Part, PartEntry] = {}
    for part in PARTS:
        fields = [int(columns[f"{part}_{name}"][number]) for name in ("segment", "offset", "length", "crc")]
        if fields[2]:
            parts[part] = PartEntry(*fields)
    return Row(
        id=table.id_of(number),
        speaker=table.speakers[columns["speaker"][number]],
        language=table.languages[columns["language"][number]],
        split=("train", "val", "test")[columns["split"][number]],
        source_crc=int(columns["source_crc"][number]),
        text_crc=int(columns["text_crc"][number]),
        source_frames=int(columns["source_frames"][number]),
        parts=parts,
    )


@given(st.lists(rows, max_size=8, unique_by=lambda row: row.id))
def test_rows_read_back_as_written(tmp_path_factory: pytest.TempPathFactory, written: list[Row]) -> None:
    folder = tmp_path_factory.getbasetemp()
    write_index(folder / "generation-0001" / "000042.index", written)
    table = open_rows(folder, 42)
    assert [describe_row(table, number) for number in range(len(table))] == written
    for number, row in enumerate(written):
        assert table.find(row.id) == number


def test_an_id_of_a_megabyte_reads_back(tmp_path: Path) -> None:
    ids = ["x" * 1_000_000, "", "ی" * 300_000]
    write_index(tmp_path / "generation-0001" / "000000.index", [Row(id) for id in ids])
    table = open_rows(tmp_path, 0)
    assert [table.id_of(row) for row in range(3)] == ids


def test_every_flipped_bit_is_noticed() -> None:
    written = [Row(f"id{number}", "anna", "en", parts={"mel": PartEntry(5, 64, 9, 7)}) for number in range(3)]
    whole = np.frombuffer(encode_index(5, written), np.uint8).copy()
    assert find_index_damage(whole, 5) == ""
    unnoticed = []
    for bit in range(8 * len(whole)):
        whole[bit // 8] ^= 1 << bit % 8
        if not find_index_damage(whole, 5):
            unnoticed.append(bit)
        whole[bit // 8] ^= 1 << bit % 8
    assert unnoticed == []


@given(st.data())
def test_a_cut_or_lengthened_index_is_noticed(data: st.DataObject) -> None:
    raw = encode_index(0, [Row("a"), Row("b")])
    size = data.draw(st.integers(0, 2 * len(raw)).filter(lambda size: size != len(raw)))
    assert find_index_damage(np.frombuffer(raw.ljust(size, b"\0")[:size], np.uint8), 0)


@given(st.binary(max_size=400))
def test_random_bytes_are_never_an_index(raw: bytes) -> None:
    assert find_index_damage(np.frombuffer(raw, np.uint8), 0)


def test_an_index_under_the_name_of_another_segment_is_damage(tmp_path: Path) -> None:
    write_index(tmp_path / "000003.index", [Row("a")])
    (tmp_path / "000003.index").rename(tmp_path / "000004.index")
    with pytest.raises(DataError, match="segment 3"):
        read_index(tmp_path / "000004.index")


def test_a_missing_index_is_damage(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"000004\.index is damaged: it cannot be read"):
        read_index(tmp_path / "000004.index")


def test_the_newest_row_counts_at_the_place_of_the_first(tmp_path: Path) -> None:
    segments = [
        [Row("a", "anna"), Row("b", "ben"), Row("c", "cora")],
        [Row("b", "zoe"), Row("d", "dan")],
        [Row("a", removed=True), Row("b", "ben")],
        [Row("a", "anna", split="val"), Row("c", removed=True)],
    ]
    for number, written in enumerate(segments):
        write_index(tmp_path / "generation-0001" / f"{number:06}.index", written)
    table = open_rows(tmp_path, 0, 1, 2, 3)
    assert [table.id_of(row) for row in range(len(table))] == ["a", "b", "d"]
    assert [table.speakers[code] for code in table.columns["speaker"]] == ["anna", "ben", "dan"]
    assert table.columns["split"].tolist() == [1, 0, 0]
    # Names that no row has any more, and those of removals, would be speakers without a voice.
    assert table.speakers == ("anna", "ben", "dan")
    assert table.find("c") is None
