"""Logs and histories of a watch: whole lines in two formats, and constant memory however long it lasts."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from tests.runtime.fake_nvml import FakeNvml
from tests.tools.fake_watch import make_busy_gpus, play_watch

from myxtts.errors import StorageError, UsageError
from myxtts.tools.monitor.log import SampleLog
from myxtts.tools.monitor.sample import History

PROGRAM = """
import resource, sys
from pathlib import Path
from tests.runtime.fake_nvml import FakeNvml
from tests.tools.fake_watch import make_busy_gpus, play_watch
from myxtts.tools.monitor.log import SampleLog
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1])
with SampleLog(folder / "log.jsonl") as log:
    monitor = play_watch(folder / "run", FakeNvml(), 2, log=log)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((folder / "log.jsonl").stat().st_size + 100,) * 2)
    for _ in range(3):
        monitor.look()
print(log.num_samples, monitor.history.num_rows, log.problem, sep='|')
"""


def test_csv_has_one_row_a_sample_and_goes_on_with_an_older_log(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "log.csv"
    for number in range(2):
        with SampleLog(path) as log:
            play_watch(tmp_path / f"run {number}", FakeNvml(make_busy_gpus(2)), 3, log=log)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    assert [float(row["elapsed_s"]) for row in rows] == [2, 4, 6, 2, 4, 6]
    assert rows[0]["gpu1_utilization_percent"] == "96.0"
    assert rows[0]["gpu0_pcie_rx_bytes_per_s"] == "1200000000"
    assert rows[5]["run_state"] == "running"
    assert float(rows[5]["au"]) > 0.98
    assert rows[5]["warnings"] == ""


def test_json_lines_hold_everything(tmp_path: Path) -> None:
    gpus = make_busy_gpus(1)
    gpus[0].lost = False

    def lose(number: int) -> None:
        gpus[0].lost = number == 1

    path = tmp_path / "log.jsonl"
    path.write_text('{"cut short')
    with SampleLog(path) as log:
        play_watch(tmp_path / "run", FakeNvml(gpus), 2, log=log, change=lose)
    cut, *lines = path.read_text(encoding="utf-8").splitlines()
    assert cut == '{"cut short'
    first, second = (json.loads(line) for line in lines)
    assert first["gpus"][0]["processes"][0]["used_bytes"] == round(19.2 * 2**30)
    assert first["run"]["depth"] == 40
    assert first["warnings"] == []
    assert second["gpus"][0]["problem"] == "lost"
    assert second["warnings"] == ["lost"]


def test_other_columns_are_not_mixed_into_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("my,table\n1,2\n")
    with SampleLog(path) as log, pytest.raises(UsageError, match="other columns"):
        play_watch(tmp_path / "run", FakeNvml(), 1, log=log)
    assert path.read_text() == "my,table\n1,2\n"


def test_a_suffix_must_say_how_to_write() -> None:
    for name in ("log", "log.txt", "log.xlsx"):
        with pytest.raises(UsageError, match=r"\.csv"):
            SampleLog(Path(name))


def test_a_log_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError), SampleLog(tmp_path / "file" / "log.csv"):
        pass


def test_a_full_disk_ends_the_log_with_a_whole_line_but_not_the_watch(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "2|5|No space left on device\n", done.stderr
    lines = (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert len([json.loads(line) for line in lines]) == 2


def test_a_history_of_a_day_stays_small_and_right() -> None:
    history = History()
    for second in range(9_000):
        history.add({"elapsed_s": float(second), "value": float(second % 2), "name": "text", "gap": None})
    stats = history.get_stats("value")
    assert stats is not None
    assert (stats.mean, stats.lowest, stats.highest, stats.last) == (0.5, 0, 1, 1)
    assert history.get_stats("gap") is None
    assert history.get_recent("value", 4) == [0, 1, 0, 1]
    assert len(history.get_recent("value", 10**6)) == 600


def test_a_column_that_comes_later_has_gaps_before() -> None:
    history = History()
    history.add({"elapsed_s": 0.0, "a": 1.0})
    history.add({"elapsed_s": 1.0, "a": None, "b": 2.0})
    assert [math.isnan(value) for value in history.get_recent("a", 5)] == [False, True]
    assert [math.isnan(value) for value in history.get_recent("b", 5)] == [True, False]
