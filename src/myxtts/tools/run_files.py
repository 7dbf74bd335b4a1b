"""Reads the files of a training run: metrics, telemetry, skipped steps, configuration, environment, fingerprints.

Files of other versions, and of runs that were killed, are accepted: lines and values that cannot be read are left out.
A resumed run has several sessions; the first step of each compiles and is left out of all times.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from myxtts.config.catalogue import Setting, list_settings
from myxtts.config.load import RESOLVED_FILE_NAME
from myxtts.config.schema import XTTSConfig
from myxtts.errors import ConfigError, DataError
from myxtts.storage.json_file import JsonLines, is_number, try_read_json
from myxtts.storage.regular_file import try_read_regular
from myxtts.tools.monitor.system_log import RunClock, flatten
from myxtts.tools.rhythm import even_out_shapes
from myxtts.training.run import folder as run_folder
from myxtts.training.run.resume import ENVIRONMENT_FILE_NAME

_MAX_FILE_BYTES = 10_000_000
"""Of the configuration, in characters, so that a damaged file cannot make a huge page."""
_MAX_SKIPPED = 50
"""Newest events that a report lists; all are counted by kind."""
_GPU_KEY = re.compile(r"gpu(\d+)_")
_FORMER_NAMES = {"critic_loss": "discriminator_loss", "critic_gradient_norm": "discriminator_gradient_norm"}
"""Names of numbers in metrics.jsonl of older runs, and what they are called now."""
_ACCUMULATION_KEY = "training.gradient_accumulation_steps"


class StepLine(BaseModel):
    """One line of telemetry: times of a batch and of the step that took it, sizes, and batches left in the buffer."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)

    position: int
    wait_s: float
    step_s: float
    load_s: float = 0.0
    depth: float = 0.0
    num_utterances: int = 0
    num_frames: int = 0
    num_padded_frames: int = 0
    is_retraced: bool = False
    stages: dict[str, float] = {}

    @property
    def interval_s(self) -> float:
        return self.wait_s + self.step_s


def parse_steps(lines: Iterable[Mapping[str, Any]]) -> Iterator[StepLine]:
    """Yields the lines of telemetry that can be read."""
    for line in lines:
        with suppress(ValidationError):
            yield StepLine.model_validate(line)


@dataclass(frozen=True)
class FeedTimes:
    """Telemetry of the feed without the first step of every session. Arrays [steps].

    `position` is the index of the batch, which differs from the step with gradient accumulation. `wait_s` is the wait
    for data, `step_s` the rest of the step, `load_s` the loading time of the batch in a loader thread. `stages` are
    further times of parallel stages by name; `padding` is the share of padded frames.
    """

    position: NDArray[np.float64]
    wait_s: NDArray[np.float64]
    step_s: NDArray[np.float64]
    load_s: NDArray[np.float64]
    is_retraced: NDArray[np.bool_]
    num_padded_frames: NDArray[np.float64]
    stages: dict[str, NDArray[np.float64]]
    padding: float
    num_utterances: int

    @property
    def interval_s(self) -> NDArray[np.float64]:
        return np.asarray(self.wait_s + self.step_s)

    @property
    def au(self) -> float:
        """Accelerator utilisation: the share of time that was not spent waiting for data."""
        return 1 - float(self.wait_s.sum()) / max(float(self.interval_s.sum()), 1e-12)

    def group_steps(self, is_left_out: NDArray[np.bool_], batches_per_step: int) -> StepTimes:
        """Adds the batches of each optimizer step up, without steps that have a batch in the mask `is_left_out`."""
        step = self.position // batches_per_step
        is_kept = ~np.isin(step, step[is_left_out])
        numbers, places = np.unique(step[is_kept], return_inverse=True)
        # With gradient accumulation, the file may begin or end within a step.
        is_whole = np.bincount(places) == batches_per_step
        sums = (
            np.bincount(places, values[is_kept]).astype(np.float64)[is_whole]
            for values in (self.wait_s, self.step_s, self.num_padded_frames, self.is_retraced)
        )
        return StepTimes(numbers[is_whole] + 1, *sums)


@dataclass(frozen=True)
class StepTimes:
    """Times, padded frames and traced graphs of whole optimizer steps. [steps]"""

    step: NDArray[np.float64]
    wait_s: NDArray[np.float64]
    step_s: NDArray[np.float64]
    num_padded_frames: NDArray[np.float64]
    num_retraced: NDArray[np.float64]

    @property
    def variation(self) -> float:
        """Standard deviation / mean, between batches of equal shape."""
        usual_s = self.wait_s + even_out_shapes(self.step_s, self.num_padded_frames)
        return float(usual_s.std() / usual_s.mean()) if len(usual_s) > 1 else 0.0


@dataclass(frozen=True)
class RunFiles:
    """All that a report of a run is made from; a file that is missing or damaged leaves its fields empty."""

    path: Path
    records: list[dict[str, Any]]
    """Lines of metrics with a loss: means over the steps between two log entries."""
    validations: list[tuple[int, dict[str, float]]]
    """Step and scores of every validation."""
    text_rest_step: int | None
    """Step from which the text encoder was frozen, None where it never was."""
    durations_step: int | None
    """Step from which training went on with written durations, None where it never did."""
    watched: list[tuple[int, float]]
    """Steps at which training waited for callbacks such as validation or samples, and for how many seconds."""
    feed: FeedTimes | None
    system: list[dict[str, float]]
    """Samples of GPUs and process over minutes of training, in the units of the charts."""
    skipped: list[dict[str, Any]]
    num_of_kind: Counter[str]
    settings: list[Setting]
    config_text: str
    sessions: list[dict[str, Any]]
    fingerprints: dict[str, str]

    @property
    def name(self) -> str:
        return str(self.find_setting("training.run_name") or self.path.name)

    @property
    def num_gpus(self) -> int:
        """GPUs that were sampled."""
        indices = [int(match[1]) for row in self.system for key in row if (match := _GPU_KEY.match(key))]
        return max(indices, default=-1) + 1

    @property
    def samples_path(self) -> Path:
        return self.path / run_folder.SAMPLES_FOLDER_NAME

    def find_setting(self, key: str) -> Any:
        """Returns the value of a full key such as `training.steps`; None where the configuration is unreadable."""
        return next((setting.value for setting in self.settings if setting.key == key), None)

    def find_watched_positions(self) -> set[int]:
        """Returns the last batch position of each step in `watched`: step s of k micro-batches ends at s * k - 1."""
        return {step * self.batches_per_step - 1 for step, _ in self.watched}

    @property
    def batches_per_step(self) -> int:
        return self.find_setting(_ACCUMULATION_KEY) or 1

    def group_steps(self, *, is_retraced_included: bool = False) -> StepTimes | None:
        """Returns the steps without validation, samples or checkpoint, and usually without those that traced a graph.

        None where nothing was measured.
        """
        if self.feed is None:
            return None
        is_watched = np.isin(self.feed.position, list(self.find_watched_positions()))
        is_left_out = is_watched if is_retraced_included else is_watched | self.feed.is_retraced
        return self.feed.group_steps(is_left_out, self.batches_per_step)

    @property
    def device_busy(self) -> float | None:
        """Share of time in which the GPU ran kernels, a mean over the log entries; None for a run on a CPU."""
        _, values = list_series(self.records, "device_busy")
        return float(np.mean(values)) if values else None

    @property
    def wall_share(self) -> float | None:
        """Share of the wall clock in steps; None for a run of a version that did not measure it."""
        entries = [one for one in self.records if is_number(one.get("wall_share")) and is_number(one.get("seconds"))]
        in_steps = sum(one["seconds"] for one in entries)
        return in_steps / sum(one["seconds"] / max(one["wall_share"], 1e-9) for one in entries) if in_steps else None


def read_run(path: Path) -> RunFiles:
    """Reads all files of a run. Raises DataError where the folder has neither a configuration nor metrics."""
    if not (path / RESOLVED_FILE_NAME).is_file() and not (path / run_folder.METRICS_FILE_NAME).is_file():
        raise DataError(f"There is no run in {path}.", next_step="Name the folder of a run, such as runs/NAME.")
    lines = list(JsonLines(path / run_folder.METRICS_FILE_NAME).read())
    skipped = list(JsonLines(path / run_folder.SKIPPED_FILE_NAME).read())
    sessions = read_sessions(path)
    settings = _read_settings(path / RESOLVED_FILE_NAME)
    config_text = try_read_regular(path / RESOLVED_FILE_NAME, _MAX_FILE_BYTES)
    batches_per_step = next((one.value for one in settings if one.key == _ACCUMULATION_KEY), 1)
    first_positions = {session.get("from_step", 0) * batches_per_step for session in sessions}
    return RunFiles(
        path=path,
        records=[_rename(line) for line in lines if is_number(line.get("step")) and "loss" in line],
        validations=[
            (line["step"], {name: value for name, value in line["validation"].items() if is_number(value)})
            for line in lines
            if is_number(line.get("step")) and isinstance(line.get("validation"), dict)
        ],
        text_rest_step=_find_mark(lines, run_folder.TEXT_FROZEN),
        durations_step=_find_mark(lines, run_folder.DURATIONS_WRITTEN),
        watched=[(line["step"], line["watch_seconds"]) for line in lines if is_number(line.get("watch_seconds"))],
        feed=read_telemetry(path / run_folder.TELEMETRY_FILE_NAME, first_positions),
        system=flatten(JsonLines(path / run_folder.SYSTEM_FILE_NAME).read(), RunClock()),
        skipped=skipped[-_MAX_SKIPPED:],
        num_of_kind=Counter(str(line.get("kind")) for line in skipped),
        settings=settings,
        config_text=run_folder.hide_private(config_text.decode("utf-8", "replace")),
        sessions=sessions,
        fingerprints={
            name: str(text)
            for name, text in (try_read_json(path / run_folder.FINGERPRINTS_FILE_NAME, dict[str, Any]) or {}).items()
        },
    )


def count_steps(run: RunFiles) -> int:
    return max([record["step"] for record in run.records] + [step for step, _ in run.validations], default=0)


def measure_time(run: RunFiles) -> float:
    """Returns the training time in seconds, summed over the sessions of a resumed run.

    `elapsed_s` starts again at 0 with each session, so that a session ends where the next value is smaller. Without
    metrics the telemetry is summed.
    """
    elapsed = [record["elapsed_s"] for record in run.records if isinstance(record.get("elapsed_s"), int | float)]
    if elapsed:
        ends = [last for last, following in zip(elapsed, [*elapsed[1:], 0.0], strict=True) if following < last]
        return float(sum(ends))
    return float(run.feed.interval_s.sum()) if run.feed else 0.0


def _rename(record: Mapping[str, Any]) -> dict[str, Any]:
    return {_FORMER_NAMES.get(name, name): value for name, value in record.items()}


def _find_mark(lines: Sequence[Mapping[str, Any]], key: str) -> int | None:
    """The step of the first line with this key."""
    return next((line["step"] for line in lines if key in line and is_number(line.get("step"))), None)


def read_telemetry(path: Path, first_positions: Container[int] = ()) -> FeedTimes | None:
    """Reads the telemetry of the feed; None where nothing was measured.

    The first step of a session is found by its position, which is in `first_positions` or does not grow. The first line
    of the file counts as such a step.
    """
    steps: list[StepLine] = []
    last = float("inf")
    for step in parse_steps(JsonLines(path).read()):
        # Positions only grow within a session, also after a rollback.
        if step.position > last and step.position not in first_positions:
            steps.append(step)
        last = step.position
    if not steps:
        return None
    num_padded = sum(step.num_padded_frames for step in steps)
    names = ("position", "wait_s", "step_s", "load_s", "num_padded_frames")
    return FeedTimes(
        **{name: np.array([getattr(step, name) for step in steps], np.float64) for name in names},
        is_retraced=np.array([step.is_retraced for step in steps]),
        stages={
            name: np.array([step.stages[name] for step in steps if name in step.stages])
            for name in dict.fromkeys(name for step in steps for name in step.stages)
        },
        padding=1 - sum(step.num_frames for step in steps) / num_padded if num_padded else 0.0,
        num_utterances=sum(step.num_utterances for step in steps),
    )


def list_series(records: Sequence[Mapping[str, Any]], name: str) -> tuple[list[float], list[float]]:
    """Returns the steps and values of one recorded number, without records that lack it or have NaN."""
    found = [(record["step"], record[name]) for record in records if is_number(record.get(name))]
    return [step for step, _ in found], [value for _, value in found]


def read_sessions(path: Path) -> list[dict[str, Any]]:
    sessions = (try_read_json(path / ENVIRONMENT_FILE_NAME, dict[str, Any]) or {}).get("sessions")
    if not isinstance(sessions, list):
        return []
    return [one for one in sessions if isinstance(one, dict) and isinstance(one.get("from_step", 0), int)]


def _read_settings(path: Path) -> list[Setting]:
    try:
        return list_settings(XTTSConfig.load(path))
    except ConfigError:
        # Written by another version: the report then shows the text of the file only.
        return []
