"""The journal of the studio: whatever is cut off its end, what is left is the state after fewer edits."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.corpus.test_formats import CORPORA

from myxtts.corpus.edits import (
    Change,
    Consent,
    Drop,
    Edits,
    Journal,
    Merge,
    NewClip,
    Opened,
    Record,
    Redo,
    Skip,
    Split,
    Undo,
    Use,
    format_line,
    read_journal,
)
from myxtts.corpus.formats import find_format
from myxtts.corpus.formats.base import Row, Source
from myxtts.corpus.formats.edited import find_journal
from myxtts.corpus.transcripts import CorpusRoot
from myxtts.errors import DataError, StorageError
from myxtts.storage.atomic import plan_faults

IDS = st.sampled_from(["a", "b", "a/c", "سلام"])
TEXTS = st.text(max_size=12)
CLIPS = st.builds(
    NewClip,
    id=st.sampled_from(["a", "new", "newer"]),
    audio=st.just("studio/clips/x.wav"),
    text=TEXTS,
    speaker=st.just("anna"),
    language=st.just("en"),
    seconds=st.just(1.5),
    origin=st.tuples(IDS),
)
EDITS = st.one_of(
    st.builds(Change, id=IDS, text=TEXTS | st.none(), status=st.sampled_from(["used", None])),
    st.builds(Use, id=IDS),
    st.builds(Drop, id=IDS),
    st.builds(Split, id=IDS, parts=st.tuples(CLIPS, CLIPS)),
    st.builds(Merge, ids=st.tuples(IDS, IDS), into=CLIPS),
    st.builds(Record, clip=CLIPS, prompt=TEXTS, take=st.just("take-0001"), replaces=IDS | st.none()),
    st.builds(Skip, prompt=TEXTS),
    st.builds(Consent, speaker=st.just("anna"), note=TEXTS, date=st.just("2026-01-01")),
    st.just(Undo()),
    st.just(Redo()),
)


def apply_all(edits: list[Any]) -> Edits:
    state = Edits()
    for edit in edits:
        state.apply(edit)
    return state


@given(edits=st.lists(EDITS, max_size=8), data=st.data())
def test_a_journal_cut_at_any_byte_has_the_state_of_its_whole_lines(edits: list[Any], data: st.DataObject) -> None:
    lines = [format_line(number, edit) for number, edit in enumerate(edits)]
    content = b"".join(lines)
    at = data.draw(st.integers(0, len(content)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edits.jsonl"
        path.write_bytes(content[:at])
        num_whole = content[:at].count(b"\n")
        read = read_journal(path)
        assert read.edits == apply_all(edits[:num_whole])
        assert read.num_bytes + read.num_torn_bytes == at
        # It can be written on: the torn line is gone, the rest is there.
        journal = Journal(path)
        journal.append(Drop(id="last"))
        assert read_journal(path).edits == apply_all([*edits[:num_whole], Drop(id="last")])


@given(edits=st.lists(EDITS, max_size=8))
def test_undo_and_redo_lead_back_and_forth(edits: list[Any]) -> None:
    undoable = [edit for edit in edits if not isinstance(edit, Undo | Redo | Consent)]
    state = apply_all(undoable)
    last = (dict(state.entries), dict(state.prompts))
    for _ in undoable:
        state.apply(Undo())
    assert (state.entries, state.prompts, state.can_undo) == ({}, {}, False)
    for _ in undoable:
        state.apply(Redo())
    assert (state.entries, state.prompts, state.can_redo) == (*last, False)


def test_damage_before_the_last_line_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "edits.jsonl"
    lines = [format_line(number, Drop(id=f"clip{number}")) for number in range(3)]
    path.write_bytes(lines[0] + lines[1].replace(b"clip1", b"clip7") + lines[2])
    with pytest.raises(DataError, match="line 2 is damaged"):
        read_journal(path)
    path.write_bytes(lines[0] + lines[2] + lines[2])
    with pytest.raises(DataError, match="line 2 is damaged"):
        read_journal(path)


@pytest.fixture
def full_disk() -> Iterator[None]:
    plan_faults("journal:2:ENOSPC")
    yield
    plan_faults("")


@pytest.mark.usefixtures("full_disk")
def test_an_edit_that_cannot_be_written_does_not_count(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "edits.jsonl")
    journal.append(Opened(has_base=False))
    with pytest.raises(StorageError, match="No space left"):
        journal.append(Drop(id="a"))
    journal.append(Drop(id="b"))
    assert list(journal.edits.entries) == ["b"]
    assert read_journal(journal.path).edits == journal.edits


@pytest.mark.parametrize("name", CORPORA)
def test_edits_apply_to_every_layout(name: str, tmp_path: Path) -> None:
    """`prepare` gets the rows that the studio shows, and no transcript is touched."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    format_name, make = CORPORA[name]
    dropped, changed, *rest = make(folder)
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    (folder / "studio").mkdir()
    journal = Journal(find_journal(folder))
    clip = NewClip(id="new", audio="studio/clips/new.wav", text="New.", speaker="anna", language="en", seconds=1.0)
    edits = [Drop(id=dropped[0]), Change(id=changed[0], text="Corrected."), Record(clip=clip, prompt="New.", take="t")]
    for edit in (Opened(has_base=True), *edits):
        journal.append(edit)
    found, reason = find_format(folder)
    assert found.name == format_name
    assert "3 edits" in reason
    rows = [row for row in found.read(Source(folder, CorpusRoot(folder), "en")) if isinstance(row, Row)]
    expected = [(changed[0], "Corrected."), *((fields[0], fields[2]) for fields in rest), ("new", "New.")]
    assert sorted((row.id, row.text) for row in rows) == sorted(expected)
    assert rows[-1].audio == "studio/clips/new.wav"
    assert {file: file.read_bytes() for file in before} == before


def test_a_folder_and_its_only_transcript_share_a_journal(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_text('{"id": "a", "text": "A"}\n', encoding="utf-8")
    assert find_journal(tmp_path) == find_journal(tmp_path / "manifest.jsonl")
    (tmp_path / "other.csv").write_text("id|text\n", encoding="utf-8")
    assert find_journal(tmp_path / "other.csv") != find_journal(tmp_path)
