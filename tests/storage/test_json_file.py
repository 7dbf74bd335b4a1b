"""Lines of JSON are added whole, survive a kill, and never stop a training."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.store.test_faults import mounted

from myxtts.storage.json_file import JsonLines


def refuse_warnings(message: str) -> None:
    raise AssertionError(message)


def test_lines_come_back_in_order(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "metrics.jsonl", refuse_warnings)
    for step in range(3):
        assert lines.append({"step": step, "loss": 1 / 3, "ids": ("a", "ب")})
    assert list(lines.read()) == [{"step": step, "loss": 1 / 3, "ids": ["a", "ب"]} for step in range(3)]


def test_what_is_not_finite_becomes_null(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "metrics.jsonl", refuse_warnings)
    lines.append({"step": 1, "loss": math.nan, "more": {"norm": [math.inf, 2.0]}})
    assert list(lines.read()) == [{"step": 1, "loss": None, "more": {"norm": [None, 2.0]}}]


def test_a_line_that_a_kill_cut_short_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = JsonLines(path, refuse_warnings)
    lines.append({"step": 1})
    path.write_bytes(path.read_bytes() + b'{"step": 2, "lo')
    lines.append({"step": 3})
    assert [fields["step"] for fields in lines.read()] == [1, 3]


def test_steps_that_are_done_again_are_dropped(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "metrics.jsonl", refuse_warnings)
    lines.drop_after(3)
    assert not lines.path.exists()
    for step in range(1, 6):
        lines.append({"step": step})
    lines.append({"note": "no step"})
    lines.drop_after(3)
    assert list(lines.read()) == [{"step": 1}, {"step": 2}, {"step": 3}, {"note": "no step"}]


@pytest.mark.parametrize("options", [("-o", "size=8k"), ("-o", "ro")])
def test_a_full_or_read_only_disk_is_said_once_and_stops_nothing(tmp_path: Path, options: tuple[str, ...]) -> None:
    warnings: list[str] = []
    with mounted(tmp_path / "disk", *options):
        lines = JsonLines(tmp_path / "disk" / "metrics.jsonl", warnings.append)
        results = [lines.append({"step": step, "text": "x" * 500}) for step in range(40)]
    assert not results[-1]
    assert lines.num_lost == results.count(False)
    assert len(warnings) == 1
    assert "Training goes on" in warnings[0]
