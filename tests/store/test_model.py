"""Any sequence of adding, removing, replacing, relabelling, aligning and compacting leaves what a dictionary would."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.store.corpora import small_segments
from tests.store.synthetic import append_segment, begin_store, make_values

from myxtts.store.durations import write_durations
from myxtts.store.generation import describe_row
from myxtts.store.index import Row
from myxtts.store.reader import FeatureStore
from myxtts.store.update import compact_store
from myxtts.store.verify import verify_store

ids = st.sampled_from(["a", "b", "سلام", "d" * 50, ""])
speakers = st.sampled_from(["", "anna", "ben"])
lengths = st.integers(1, 40)
seeds = st.integers(0, 1000)


class StoreModel(RuleBasedStateMachine):
    """`model` maps ids to speaker, mel, tokens and durations; removed ids keep their place until compaction."""

    folder: Path

    @initialize()
    def begin(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        begin_store(self.folder)
        self.model: dict[str, list[Any] | None] = {}

    @rule(changes=st.lists(st.tuples(ids, speakers, lengths, lengths, seeds), min_size=1, max_size=4))
    def put(self, changes: list[tuple[str, str, int, int, int]]) -> None:
        rows = []
        for id, speaker, num_frames, num_tokens, seed in changes:
            values = make_values(num_frames, num_tokens, seed)
            rows.append((Row(id, speaker, "en"), values))
            self.model[id] = [speaker, values["mel"].tobytes(), values["tokens"].tobytes(), b""]
        append_segment(self.folder, rows)

    @rule(id=ids)
    def remove(self, id: str) -> None:
        append_segment(self.folder, [(Row(id, removed=True), {})])
        self.model[id] = None

    @precondition(lambda self: any(self.model.values()))
    @rule(data=st.data(), speaker=speakers)
    def relabel(self, data: st.DataObject, speaker: str) -> None:
        id = data.draw(st.sampled_from([id for id, fields in self.model.items() if fields]))
        store = FeatureStore.open(self.folder)
        row = store.find(id)
        assert row is not None
        kept = describe_row(store, row, ("mel", "tokens", "durations")).parts
        append_segment(self.folder, [(Row(id, speaker, "en", parts=kept), {})])
        fields = self.model[id]
        assert fields is not None
        fields[0] = speaker

    @precondition(lambda self: any(self.model.values()))
    @rule(data=st.data())
    def align(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from([id for id, fields in self.model.items() if fields]))
        fields = self.model[id]
        assert fields is not None
        num_frames, num_tokens = len(fields[1]) // 8, len(fields[2]) // 4
        durations = np.diff(np.linspace(0, num_frames, num_tokens + 1).astype(np.int32)).astype(np.int32)
        assert write_durations(self.folder, {id: durations}) == 1
        fields[3] = durations.tobytes()

    @rule(chunk=st.integers(1, 3))
    def compact(self, chunk: int) -> None:
        with small_segments(chunk):
            compact_store(self.folder)
        self.model = {id: fields for id, fields in self.model.items() if fields}

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "model"):
            return
        store = FeatureStore.open(self.folder)
        found = {}
        for row in range(len(store)):
            stored = store[row]
            durations = store.read_part(row, "durations")
            found[stored.id] = [stored.speaker, stored.mel.tobytes(), stored.tokens.tobytes(), durations.tobytes()]
            assert store.find(stored.id) == row
        expected = {id: fields for id, fields in self.model.items() if fields}
        assert found == expected
        assert list(found) == list(expected)
        assert store.state.num_utterances == len(expected)
        assert verify_store(self.folder).is_whole


def test_random_histories_match_a_dictionary(tmp_path: Path) -> None:
    StoreModel.folder = tmp_path / "store"
    run_state_machine_as_test(StoreModel, settings=settings(max_examples=50, stateful_step_count=10, deadline=None))


@pytest.mark.soak
def test_many_random_histories_match_a_dictionary(tmp_path: Path) -> None:
    StoreModel.folder = tmp_path / "store"
    run_state_machine_as_test(StoreModel, settings=settings(max_examples=600, stateful_step_count=30, deadline=None))
