"""Follows the files of a run for its page: curves as they grow, the figures of the cards, and the samples.

Nothing is written to the run. All numbers come from its files, so that a page that is opened later shows the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from myxtts.config.load import RESOLVED_FILE_NAME
from myxtts.config.schema import XTTSConfig
from myxtts.errors import ConfigError
from myxtts.storage.json_file import JsonTail, is_number
from myxtts.tools.line_charts import thin
from myxtts.tools.monitor.run import RunFollower, RunReading, RunState
from myxtts.tools.monitor.system_log import RunClock, flatten
from myxtts.tools.report import curves
from myxtts.tools.report.verdict import Progress, is_fine_tuned, judge, name_run, read_evaluation
from myxtts.tools.run_files import read_sessions
from myxtts.tools.words import Translator, mark
from myxtts.training.run.folder import METRICS_FILE_NAME, SYSTEM_FILE_NAME
from myxtts.training.terms import VOCODER, Measures

Points = dict[str, list[list[float]]]
"""New points of curves, by the names of `RunChart.name_curve`."""
_MAX_GPUS = 16
_MAX_POINTS = 3000
"""Points of a curve in memory; twice as many are thinned."""
_BACKLOG_BYTES = 64 * 1024 * 1024
"""Read of each file when following begins: more than 100,000 lines."""
_NUM_RECENT = 30
"""Records that the time left is estimated from."""
STATES = mark(
    {
        "absent": "not started",
        "starting": "starting",
        "running": "running",
        "stalled": "no step for a while",
        "ended": "ended",
    }
)


@dataclass(frozen=True)
class Figure:
    """One card of the page."""

    value: str
    remark: str = ""


def list_charts(measures: Measures) -> dict[str, list[curves.RunChart]]:
    """The charts of the page by section."""
    return {
        "learning": curves.list_learning_charts(measures),
        "validation": curves.list_validation_charts(measures),
        "speed": curves.list_speed_charts(),
        "system": curves.list_system_charts(_MAX_GPUS),
    }


class LiveRun:
    """A run that may not have begun, may be training, or may have ended. `poll` reads what is new.

    `is_expected` says that a training will take the run up soon, `is_over` that it has ended although its process has
    not: the page of `myxtts train` knows both.
    """

    def __init__(self, path: Path, *, is_expected: bool = False) -> None:
        self.path = path
        self.is_expected, self.is_over = is_expected, False
        self._follower = RunFollower(path)
        self._metrics = JsonTail(path / METRICS_FILE_NAME, _BACKLOG_BYTES)
        self._system = JsonTail(path / SYSTEM_FILE_NAME, _BACKLOG_BYTES)
        self._config: XTTSConfig | None = None
        self._config_changed_at = 0.0
        self.reading: RunReading = RunReading(str(path), "absent")
        self._forget()
        self._clock, self._system_curves = RunClock(), _Curves()
        self.num_sampled = 0
        """How often samples were written so far."""

    def _forget(self) -> None:
        self._curves = _Curves()
        self._records: list[Mapping[str, Any]] = []
        self._scores: list[tuple[int, float]] = []
        self._last_scores: dict[str, float] = {}

    @property
    def measures(self) -> Measures:
        return curves.find_measures(self.path)

    @property
    def state(self) -> RunState:
        if self.is_over:
            return "ended"
        return "starting" if self.is_expected and self.reading.state in ("ended", "absent") else self.reading.state

    @property
    def step(self) -> int:
        return int(self._records[-1]["step"]) if self._records else 0

    def close(self) -> None:
        for file in (self._follower, self._metrics, self._system):
            file.close()

    def poll(self) -> tuple[Points, bool]:
        """Reads what was added: its points, and whether older ones have become invalid (a resumed run goes back)."""
        self.reading = self._follower.read()
        charts = [chart for charts in list_charts(self.measures).values() for chart in charts]
        lines = self._metrics.read()
        is_replaced = self._metrics.was_replaced
        if is_replaced:
            self._forget()
        points = self._curves.add(charts, "training", self._take_records(lines))
        points |= self._curves.add(charts, "validation", self._take_scores(lines))
        # Written once the files of the samples are whole.
        self.num_sampled += sum("samples" in line for line in lines)
        samples = self._system.read()
        if self._system.was_replaced:
            self._clock, self._system_curves, is_replaced = RunClock(), _Curves(), True
        points |= self._system_curves.add(charts, "system", flatten(samples, self._clock))
        return points, is_replaced

    def _take_records(self, lines: Sequence[Mapping[str, Any]]) -> list[curves.Row]:
        records = [line for line in lines if is_number(line.get("step")) and "loss" in line]
        self._records = [*self._records, *records][-_NUM_RECENT:]
        return records

    def _take_scores(self, lines: Sequence[Mapping[str, Any]]) -> list[curves.Row]:
        rows: list[curves.Row] = []
        for line in lines:
            if is_number(line.get("step")) and isinstance(line.get("validation"), dict):
                numbers = {name: value for name, value in line["validation"].items() if is_number(value)}
                rows.append({**numbers, "step": line["step"]})
                self._last_scores = numbers
                if "score" in numbers:
                    self._scores.append((line["step"], numbers["score"]))
        return rows

    def list_points(self) -> Points:
        """All points of all curves so far."""
        return self._curves.list_points() | self._system_curves.list_points()

    def judge(self, tr: Translator) -> str:
        """The verdict on the run so far."""
        training = self._read_config()
        progress = Progress(
            run=name_run(self.path),
            step=self.step,
            total_steps=training.steps if training is not None else None,
            scores=self._scores,
            last=self._last_scores,
            evaluation=read_evaluation(self.path),
            patience=training.early_stopping if training is not None else 0,
            is_vocoder=self.measures is VOCODER,
            is_fine_tuned=is_fine_tuned(read_sessions(self.path)),
        )
        return judge(progress, tr)

    def list_figures(self, tr: Translator) -> dict[str, Figure]:
        """The cards of the page, by name."""
        training, reading, unknown = self._read_config(), self.reading, tr("not known")
        record = self._records[-1] if self._records else {}
        total = training.steps if training is not None else None
        best = min(((score, step) for step, score in self._scores), default=None)
        loss, au, wait_s, epoch = (_read(record, name) for name in ("loss", "au", "data_wait_s", "epoch"))
        is_busy_known = "device_busy" in record
        basis = tr("time in which the GPU ran kernels" if is_busy_known else "share of time not waiting for data")
        time_left = self._estimate_time_left()
        return {
            "state": Figure(
                tr(STATES[self.state]),
                tr("last step {time} ago", time=tr.time(reading.idle_s)) if reading.idle_s is not None else "",
            ),
            "step": Figure(
                tr.count(self.step), tr("of {total}", total=tr.count(total)) if total else _describe_epoch(epoch, tr)
            ),
            "time_left": Figure(tr.time(time_left) if time_left is not None else unknown, tr("including validation")),
            "loss": Figure(tr.number(loss) if loss is not None else unknown),
            "score": Figure(
                tr.number(self._scores[-1][1]) if self._scores else unknown,
                tr("best: {value} at step {step}", value=tr.number(best[0]), step=tr.count(best[1])) if best else "",
            ),
            "au": Figure(tr.share(au) if au is not None else unknown, basis),
            "wait": Figure(
                tr.milliseconds(1000 * wait_s) if wait_s is not None else unknown,
                _describe_step_time(_read(record, "seconds"), tr),
            ),
        }

    def _estimate_time_left(self) -> float | None:
        """Seconds to the last step or minute, at the speed of the last records, validation included."""
        training = self._read_config()
        if training is None or not self._records or self.state == "ended":
            return None
        seconds = [one for record in self._records if (one := _read(record, "wall_seconds")) is not None]
        elapsed_s, epoch = (_read(self._records[-1], name) for name in ("elapsed_s", "epoch"))
        ends = []
        if training.steps and seconds:
            ends.append((training.steps - self.step) * float(np.mean(seconds)))
        if training.minutes and elapsed_s is not None:
            ends.append(60 * training.minutes - elapsed_s)
        if training.epochs and not training.steps and epoch and elapsed_s is not None:
            ends.append((training.epochs / epoch - 1) * elapsed_s)
        return max(0.0, min(ends)) if ends else None

    def _read_config(self) -> Any:
        """The training section of the configuration, read again when the file has changed; None without one."""
        path = self.path / RESOLVED_FILE_NAME
        try:
            changed_at = path.stat().st_mtime
        except OSError:
            return None
        if changed_at != self._config_changed_at:
            self._config_changed_at = changed_at
            try:
                self._config = XTTSConfig.load(path)
            except ConfigError:
                # Written by another version: the page does without what it would say.
                self._config = None
        return self._config.training if self._config is not None else None


class _Curves:
    """Points by curve, thinned where there are very many."""

    def __init__(self) -> None:
        self._points: dict[str, tuple[list[float], list[float]]] = {}

    def add(self, charts: Iterable[curves.RunChart], source: curves.Source, rows: Sequence[curves.Row]) -> Points:
        """Adds the rows of one source; returns the new points of each curve that has some."""
        new: Points = {}
        if not rows:
            return new
        for chart in charts:
            if chart.source != source:
                continue
            for key in chart.curves:
                places, values = curves.select_points(chart, rows, key)
                if places:
                    name = chart.name_curve(key)
                    self._extend(name, places, values)
                    new[name] = [[x, _shorten(y)] for x, y in zip(places, values, strict=True)]
        return new

    def _extend(self, name: str, places: list[float], values: list[float]) -> None:
        known_places, known_values = self._points.setdefault(name, ([], []))
        known_places += places
        known_values += values
        if len(known_places) > 2 * _MAX_POINTS:
            kept = thin(np.asarray(known_places, np.float64), np.asarray(known_values, np.float64), _MAX_POINTS)
            self._points[name] = (kept[0].tolist(), kept[1].tolist())

    def list_points(self) -> Points:
        return {
            name: [[x, _shorten(y)] for x, y in zip(places, values, strict=True)]
            for name, (places, values) in self._points.items()
        }


def _shorten(value: float) -> float:
    return float(f"{value:.6g}") if math.isfinite(value) else 0.0


def _read(record: Mapping[str, Any], name: str) -> float | None:
    value = record.get(name)
    return float(value) if value is not None and is_number(value) else None


def _describe_epoch(epoch: float | None, tr: Translator) -> str:
    return tr("{epochs} epochs", epochs=tr.number(epoch)) if epoch is not None else ""


def _describe_step_time(seconds: float | None, tr: Translator) -> str:
    return tr("{seconds} s per step, training only", seconds=tr.number(seconds)) if seconds is not None else ""
