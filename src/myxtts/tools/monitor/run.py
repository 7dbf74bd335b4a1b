"""Follows a training run from another process by tailing its telemetry and metrics: state, AU, step time, data wait.

Nothing in the run's folder is locked or written, so that watching cannot disturb the training. The state comes from two
signs: whether the process in the run's lock file is alive on this machine, and how long ago the telemetry last grew.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import psutil

from myxtts.config.load import RESOLVED_FILE_NAME
from myxtts.config.yaml import read_yaml
from myxtts.errors import ConfigError
from myxtts.storage.json_file import JsonTail, is_number
from myxtts.storage.regular_file import FileRefusedError, read_regular
from myxtts.tools.rhythm import find_recent_oscillation
from myxtts.tools.run_files import StepLine, parse_steps
from myxtts.training.run.folder import METRICS_FILE_NAME, TELEMETRY_FILE_NAME

RunState = Literal["absent", "starting", "running", "stalled", "ended"]
"""`absent`: no such run yet. `starting`: process alive, no step yet. `stalled`: process alive, but no step for long."""
RUNS_FOLDER = Path("runs")
_LOCK_FILE_NAME = ".lock"
_SIGNS_OF_A_RUN = (TELEMETRY_FILE_NAME, METRICS_FILE_NAME, RESOLVED_FILE_NAME, _LOCK_FILE_NAME)
_WINDOW_S = 10.0
"""Means are taken over so many seconds of steps, but over at least `_MIN_WINDOW_STEPS` where steps are slow."""
_MIN_WINDOW_STEPS = 8
_NUM_RHYTHM_STEPS = 512
"""Steps that variation and period are measured over: the longest period that can be found is a third of them."""
_MIN_IDLE_S = 30.0
_IDLE_INTERVALS = 5.0
"""A run is stalled after this multiple of its longest recent step, but not before `_MIN_IDLE_S`."""
_PID_SLACK_S = 60.0
"""Tolerance between the start of a process and the time of its lock file, which come from two clocks."""


@dataclass(frozen=True, slots=True)
class RunReading:
    """A run at one moment. Measurements are means over its last ten seconds of steps, None before there are any.

    `position` is the last batch of the feed, `step` and `loss` are of the last line of metrics. `num_new_steps` counts
    since the last reading, `num_steps` is the size of the window. `depth` is the mean number of batches in the buffer,
    `au` the share of time without data wait. `device_busy` is the share of time in which the GPU ran kernels, as the
    run measured it last, None on a CPU; `wall_share` is the share of the wall clock that it spent in steps, without
    checkpoints, validation and samples. `retraced_share` is the share of steps that made a new graph. `variation` and
    `period_steps` are those of `rhythm`. `idle_s` is the time since the last step.
    """

    path: str
    state: RunState
    num_new_steps: int = 0
    position: int | None = None
    step: int | None = None
    epoch: float | None = None
    loss: float | None = None
    au: float | None = None
    device_busy: float | None = None
    wall_share: float | None = None
    wait_s: float | None = None
    step_s: float | None = None
    retraced_share: float | None = None
    depth: float | None = None
    utterances_per_s: float | None = None
    batches_per_s: float | None = None
    padding: float | None = None
    num_steps: int = 0
    variation: float | None = None
    period_steps: float | None = None
    idle_s: float | None = None


class RunFollower:
    """Reads what was appended to the files of one run since the last call; the folder need not exist yet.

    The window is cleared at the start of every session, and its first step, which compiles, is left out.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._clock = clock
        self._telemetry, self._metrics = JsonTail(path / TELEMETRY_FILE_NAME), JsonTail(path / METRICS_FILE_NAME)
        self._window: deque[StepLine] = deque()
        self._rhythm_steps: deque[tuple[int, tuple[float, float, int]]] = deque(maxlen=_NUM_RHYTHM_STEPS)
        self._watched_steps: deque[int] = deque(maxlen=_NUM_RHYTHM_STEPS)
        self._step_batches: list[StepLine] = []
        self._batches_per_step: int | None = None
        self._position: int | None = None
        self._record: Mapping[str, Any] = {}
        self._grew_at: float | None = None
        self._has_looked = self._has_grown = False
        self._holder: int | None = None
        self._was_holder_alive = False
        self._is_first_step_due = False

    def read(self) -> RunReading:
        """Reads the state of the run now. Raises nothing for files that are missing or cannot be read."""
        is_alive = self._look_for_holder()
        num_new = self._take_steps()
        for record in self._metrics.read():
            if isinstance(record.get("step"), int) and "loss" in record:
                self._record = record
            elif isinstance(record.get("step"), int) and "watch_seconds" in record:
                self._watched_steps.append(record["step"])
        idle_s = self._measure_idle(num_new)
        reading = RunReading(
            path=str(self.path),
            state=self._judge(is_alive, idle_s),
            num_new_steps=num_new,
            position=self._position,
            step=self._record.get("step"),
            epoch=_to_float(self._record.get("epoch")),
            loss=_to_float(self._record.get("loss")),
            device_busy=_to_float(self._record.get("device_busy")),
            wall_share=_to_float(self._record.get("wall_share")),
            idle_s=idle_s,
        )
        return self._add_means(reading) if self._window else reading

    def close(self) -> None:
        self._telemetry.close()
        self._metrics.close()

    def _take_steps(self) -> int:
        """Adds new lines of telemetry to the window and returns their number."""
        steps = list(parse_steps(self._telemetry.read()))
        if self._telemetry.was_replaced:
            # A resumed session rewrites the telemetry up to its checkpoint: these lines are old.
            self._forget(steps[-1].position if steps else None)
            self._is_first_step_due = True
            return 0
        for step in steps:
            # Positions grow within a session: a smaller one is the first step of a new session, which compiles.
            if self._is_first_step_due or step.position <= (self._position or 0):
                self._forget(step.position)
            else:
                self._note(step)
            self._position, self._is_first_step_due = step.position, False
        self._drop_old_steps()
        return len(steps)

    def _forget(self, position: int | None) -> None:
        self._position = position
        self._window.clear()
        self._rhythm_steps.clear()
        self._step_batches, self._batches_per_step = [], None

    def _note(self, step: StepLine) -> None:
        """Adds a batch to the window, and to its optimiser step: with gradient accumulation only the last computes."""
        self._window.append(step)
        self._step_batches.append(step)
        if self._batches_per_step is None:
            self._batches_per_step = _read_batches_per_step(self.path)
        if step.is_retraced:
            # Tracing is no rhythm: the step is left out, as is one whose first batches were not seen.
            self._step_batches = []
        elif (step.position + 1) % self._batches_per_step == 0:
            batches, self._step_batches = self._step_batches, []
            if len(batches) == self._batches_per_step:
                wait_s, step_s = sum(one.wait_s for one in batches), sum(one.step_s for one in batches)
                num_frames = sum(one.num_padded_frames for one in batches)
                self._rhythm_steps.append((step.position, (wait_s, step_s, num_frames)))

    def _drop_old_steps(self) -> None:
        """Shortens the window to the last ten seconds of step time, or to eight steps if those took longer."""
        elapsed_s = sum(step.interval_s for step in self._window)
        while len(self._window) > _MIN_WINDOW_STEPS and elapsed_s - self._window[0].interval_s > _WINDOW_S:
            elapsed_s -= self._window.popleft().interval_s

    def _measure_idle(self, num_new: int) -> float | None:
        """Returns the seconds since the last step; None before the first one.

        Uses the clock of this process, so that clocks of other machines do not matter; only the age of steps that are
        found by the first call is taken from the modification time of the file.
        """
        now = self._clock()
        if num_new:
            is_first_look, self._grew_at = not self._has_looked, now
            self._has_grown |= not is_first_look
            if is_first_look and self._telemetry.changed_at is not None:
                self._grew_at -= max(0.0, time.time() - self._telemetry.changed_at)
        self._has_looked = True
        return max(0.0, now - self._grew_at) if self._grew_at is not None else None

    def _look_for_holder(self) -> bool:
        """Whether the process in the lock file of the run is alive on this machine; a new one starts a new session."""
        holder = _read_holder(self.path / _LOCK_FILE_NAME)
        if holder is None:
            return False
        pid, taken_at = holder
        if pid != self._holder:
            # A new session compiles in its first step. That of the session found first may be long over.
            self._is_first_step_due = self._holder is not None
            self._holder, self._was_holder_alive = pid, False
        is_alive = _is_alive(pid, taken_at)
        self._was_holder_alive |= is_alive
        return is_alive

    def _judge(self, is_alive: bool, idle_s: float | None) -> RunState:
        """Derives the state from the process and from the age of the last step."""
        if idle_s is None:
            return "starting" if is_alive else "absent" if self._holder is None else "ended"
        longest_s = max((step.interval_s for step in self._window), default=0.0)
        is_fresh = idle_s < max(_MIN_IDLE_S, _IDLE_INTERVALS * longest_s)
        if is_alive:
            return "running" if is_fresh else "stalled"
        # A run on another machine has no process here; it is running if its telemetry grows while it is followed.
        may_be_elsewhere = self._holder is None or (self._has_grown and not self._was_holder_alive)
        return "running" if is_fresh and may_be_elsewhere else "ended"

    def _add_means(self, reading: RunReading) -> RunReading:
        """Adds the means over the window, and variation and period over the last 512 steps.

        A run that has ended stays as it is shown, so the validation after its last steps must not be taken for them.
        """
        per_step = self._batches_per_step or 1
        watched = {step * per_step - 1 for step in self._watched_steps} if reading.state == "ended" else set()
        steps = [step for step in self._window if step.position not in watched]
        if not steps:
            return reading
        elapsed_s = max(sum(step.interval_s for step in steps), 1e-9)
        # A line of telemetry is a batch; with gradient accumulation several make a step.
        num_steps = len(steps) / per_step
        wait_s = sum(step.wait_s for step in steps)
        num_padded = sum(step.num_padded_frames for step in steps)
        rhythm = find_recent_oscillation([times for position, times in self._rhythm_steps if position not in watched])
        return replace(
            reading,
            au=1 - min(1.0, wait_s / elapsed_s),
            wait_s=wait_s / num_steps,
            step_s=(elapsed_s - wait_s) / num_steps,
            retraced_share=sum(step.is_retraced for step in steps) / num_steps,
            depth=sum(step.depth for step in steps) / len(steps),
            utterances_per_s=sum(step.num_utterances for step in steps) / elapsed_s,
            batches_per_s=len(steps) / elapsed_s,
            padding=1 - sum(step.num_frames for step in steps) / num_padded if num_padded else None,
            num_steps=len(steps),
            variation=rhythm.variation if rhythm is not None else None,
            period_steps=rhythm.period_steps if rhythm is not None and not rhythm.is_stable else None,
        )


def find_trainer(run: Path) -> int | None:
    """Returns the process that trains a run on this machine; None where there is none."""
    holder = _read_holder(run / _LOCK_FILE_NAME)
    return holder[0] if holder is not None and _is_alive(*holder) else None


def find_newest_run(folder: Path = RUNS_FOLDER) -> Path | None:
    """Returns the run whose files were modified last; None where the folder has no run."""
    try:
        runs = [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        return None
    dated = [(_find_last_change(path), path) for path in runs]
    return max(((when, path) for when, path in dated if when is not None), default=(0.0, None))[1]


def is_run(path: Path) -> bool:
    """Whether a folder holds a run, which may be starting or have ended."""
    return _find_last_change(path) is not None


def _find_last_change(run: Path) -> float | None:
    times = []
    for name in _SIGNS_OF_A_RUN:
        try:
            times.append((run / name).stat().st_mtime)
        except OSError:
            continue
    return max(times, default=None)


def _read_batches_per_step(run: Path) -> int:
    """Returns `training.gradient_accumulation_steps` of a run; 1 where its configuration cannot be read."""
    try:
        training = read_yaml(run / RESOLVED_FILE_NAME)[0].get("training")
    except ConfigError:
        return 1
    number = training.get("gradient_accumulation_steps") if isinstance(training, dict) else None
    return number if isinstance(number, int) and number > 0 else 1


def _read_holder(path: Path) -> tuple[int, float] | None:
    """Returns the process id in the lock file of a run and the time it was written; None without such a file."""
    try:
        text, taken_at = read_regular(path, 1000).decode("utf-8", "replace"), path.stat().st_mtime
    except (OSError, FileRefusedError):
        return None
    match = re.match(r"process (\d+)\b", text)
    return (int(match[1]), taken_at) if match else None


def _is_alive(pid: int, taken_at: float) -> bool:
    try:
        process = psutil.Process(pid)
        # A process younger than the lock file has only reused its process id.
        return process.create_time() <= taken_at + _PID_SLACK_S and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OverflowError):
        return False


def _to_float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and is_number(value) else None
