"""Trainings of a very small compiled step with the cache of compiled steps, for processes that are forked for each."""

from __future__ import annotations

import hashlib
import json
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.training import toy_step
from tests.training.toy_step import Run, cut, flatten_weights, make_batch

from myxtts.runtime.compile_cache import get_compile_cache, start_compile_cache
from myxtts.training.compiling import StepCompiler, StepGraph
from myxtts.training.loop import TrainingLoop
from myxtts.training.step import StepNumbers

GROUP = "test"


def train_shapes(home: str, shapes: list[int], is_ahead: bool = False, is_cached: bool = True) -> dict[str, Any]:
    """Trains on batches of so many frames; gives what was compiled, and what the weights are then."""
    lines = _start(home, is_cached)
    run = Run("default", "adamw", jit_compile=True, num_lanes=2)
    compiler = _make_compiler(run, shapes, lines, is_ahead)
    compiler.make_first(lambda: False)
    _train(run, compiler, shapes)
    compiler.close()
    return _describe(run, compiler, lines)


def train_kept(
    home: str, shapes: list[int], key: str = "toy", num_lanes: int = 2, is_cached: bool = True, optimizer: str = "adamw"
) -> dict[str, Any]:
    """Trains on packed batches with graphs that are kept; also gives how often the loss was traced."""
    lines, traced = _start(home, is_cached), []

    def compute_loss(*arguments: Any) -> Any:
        traced.append(1)
        return toy_step.compute_loss(*arguments)

    run = Run("default", optimizer, jit_compile=True, num_lanes=num_lanes, graph_key=key, compute_loss=compute_loss)
    compiler = _make_compiler(run, shapes, lines, is_ahead=False, is_packed=True)
    compiler.make_first(lambda: False)
    numbers = _train(run, compiler, shapes, is_packed=True)
    compiler.close()
    terms = [result.metrics for result in numbers]
    return {**_describe(run, compiler, lines), "num_traced": len(traced), "terms": terms}


def train_at_once(home: str, shapes: list[int]) -> list[dict[str, Any]]:
    """Two trainings in two processes at the same time."""
    files, children = [Path(home) / f"{number}.json" for number in range(2)], []
    for file in files:
        children.append(os.fork())
        if not children[-1]:
            file.write_text(json.dumps(train_shapes(home, shapes)), encoding="utf-8")
            os._exit(0)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def train_despite_cache(home: str, shapes: list[int], is_blocked: bool) -> dict[str, Any]:
    """Trains as the loop does, with a folder that TensorFlow cannot write to, or files that it cannot read."""
    lines = _start(home, True)
    cache, run = get_compile_cache(), Run("default", "adamw", jit_compile=True, num_lanes=2)
    assert cache.session is not None
    if is_blocked:
        (cache.session / ".lock").unlink()
        cache.session.rmdir()
        cache.session.write_text("", encoding="utf-8")

    def make_anew(_micro_batches: object) -> None:
        run.make_step(jit_compile=True, num_lanes=2)

    def make_first() -> None:
        loop._compiler = _make_compiler(run, shapes, lines, is_ahead=True)
        loop._compiler.make_first(lambda: False)

    learner = SimpleNamespace(set_micro_batches=make_anew, micro_batches=None)
    loop = SimpleNamespace(_task=None, say=lines.append, _learner=learner)
    loop._compiler = StepCompiler((), "", lines.append)
    TrainingLoop._attempt(loop, make_first)  # type: ignore[arg-type]
    _train(run, loop._compiler, shapes)
    return _describe(run, loop._compiler, lines)


def _start(home: str, is_cached: bool) -> list[str]:
    lines: list[str] = []
    os.environ["XDG_CACHE_HOME"] = home
    if is_cached:
        start_compile_cache((), lines.append)
    get_compile_cache().use_group(GROUP)
    return lines


def _make_compiler(
    run: Run, shapes: list[int], lines: list[str], is_ahead: bool, is_packed: bool = False
) -> StepCompiler:
    def make_graph(num_frames: int) -> StepGraph:
        empty = cut(run.strategy, make_batch(0, num_real=0, num_frames=num_frames), 1, is_packed)
        # The step may be made anew.
        return StepGraph(_name(num_frames), partial(_make, run, empty), partial(_trace, run, empty))

    graphs = [make_graph(num_frames) for num_frames in dict.fromkeys(shapes)]
    return StepCompiler(graphs, "", lines.append, is_compiled=True, is_ahead=is_ahead)


def _make(run: Run, empty: Any) -> None:
    run.step.make_graphs(empty)


def _trace(run: Run, empty: Any) -> None:
    run.step.trace(empty, 0)


def _name(num_frames: int) -> str:
    return f"{num_frames} frames"


def _train(run: Run, compiler: StepCompiler, shapes: list[int], is_packed: bool = False) -> list[StepNumbers]:
    numbers = []
    for step, num_frames in enumerate(shapes):
        with compiler.use_for_step([_name(num_frames)]):
            numbers.append(run.train(step, make_batch(step, num_frames=num_frames), is_packed))
    return numbers


def _describe(run: Run, compiler: StepCompiler, lines: list[str]) -> dict[str, Any]:
    return {
        "num_compiled": compiler.num_compiled,
        "num_found": compiler.num_found,
        "num_traces": run.step.num_traces,
        "weights": hashlib.sha256(repr(flatten_weights(run.model)).encode()).hexdigest(),
        "lines": lines,
    }
