"""Measures a `tf.data.Dataset` of anybody's: batches of all epochs, and what each of its stages adds."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from myxtts.tools.diagnose.evidence import PythonFunction, StageName, StageTime
from myxtts.tools.diagnose.timing import list_arrays, read_runnable_s, refuse_empty

# What a `tf.data.Dataset` is made of: its chain of steps, the Python it calls, its threads and its read-ahead.

_PYTHON_OPS = ("PyFunc", "EagerPyFunc", "PyFuncStateless")
_BATCH_KINDS = ("Batch", "GroupByWindow", "Bucket")
_EXPANDING_KINDS = ("FlatMap", "Interleave", "Generator")
_READING_OPS = ("ReadFile", "TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset")
_DECODING_OPS = ("Decode", "Parse", "Audio")
_COMPUTING_OPS = ("FFT", "Fft", "MatMul", "Conv", "Mfcc", "Einsum", "Sort", "While", *_PYTHON_OPS)
_AUTOTUNE = -1
_SEARCH_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Link:
    """One dataset of the chain, from the source on: the stage it belongs to, and what it is set to.

    `batch_size` is 1 unless it makes batches, 0 where it makes them of a size it does not tell. `is_root` says that
    what lies before it cannot be counted in its elements.
    """

    dataset: Any
    kind: str
    stage: StageName
    batch_size: int
    num_threads: int
    buffer_size: int | None
    is_python: bool
    is_root: bool


def list_chain(dataset: Any) -> list[Link]:
    """The datasets that lead to this one, source first; of several inputs the first is followed."""
    datasets = [dataset]
    while inputs := datasets[-1]._inputs():
        datasets.append(inputs[0])
    links: list[Link] = []
    stage: StageName = "read"
    for one in reversed(datasets):
        stage = _name_stage(one, stage)
        links.append(_describe(one, stage))
    return links


def find_python_functions(dataset: Any) -> tuple[PythonFunction, ...]:
    """Every Python function that the dataset calls, wherever in its graph, with file and line."""
    found: dict[tuple[str, int, str], PythonFunction] = {}
    for operation, token in _walk_python_ops(_serialize(dataset)):
        function = _describe_function(operation, token)
        found.setdefault((function.file, function.line, function.name), function)
    return tuple(found.values())


def count_threads(links: Iterable[Link], dataset: Any) -> int:
    """The most threads that a single step of the chain asks for; what tunes itself keeps to the cores."""
    asked = max((link.num_threads for link in links), default=1)
    pool = dataset.options().threading.private_threadpool_size
    return min(asked, pool) if pool else asked


def find_read_ahead(links: list[Link]) -> int | None:
    """Batches that may wait behind the last step: 0 without prefetch, None where TensorFlow decides."""
    for link in reversed(links):
        if "Prefetch" in link.kind:
            return None if link.buffer_size == _AUTOTUNE else link.buffer_size
        if link.kind not in ("Options", "Repeat", "Take", "Skip"):
            return 0
    return 0


def _serialize(dataset: Any) -> Any:
    from tensorflow.core.framework import graph_pb2
    from tensorflow.python.data.ops import options

    # What is asked for is the structure; the state of random generators and Python does not matter.
    policy = options.ExternalStatePolicy.IGNORE
    return graph_pb2.GraphDef.FromString(dataset._as_serialized_graph(external_state_policy=policy).numpy())


def _walk_python_ops(graph: Any) -> Iterator[tuple[str, str]]:
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            if node.op in _PYTHON_OPS:
                yield node.op, node.attr["token"].s.decode()


def _describe_function(operation: str, token: str) -> PythonFunction:
    from tensorflow.python.ops import script_ops

    function = _find_user_function(script_ops._py_funcs.get(token))
    if function is None:
        return PythonFunction(operation, token, "", 0)
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if code is None:
        return PythonFunction(operation, name, inspect.getsourcefile(type(function)) or "", 0)
    return PythonFunction(operation, name, _shorten(code.co_filename), code.co_firstlineno)


def _shorten(file: str) -> str:
    """Relative to the working folder where it lies inside."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _find_user_function(function: Any, depth: int = _SEARCH_DEPTH) -> Any:
    """What the user wrote, below the wrappers that TensorFlow puts around it; None where it is gone."""
    function = getattr(function, "_func", function)
    while hasattr(function, "__wrapped__") or isinstance(function, functools.partial):
        function = function.func if isinstance(function, functools.partial) else function.__wrapped__
    if function is None or not _is_of_tensorflow(function) or depth == 0:
        return function
    for cell in getattr(function, "__closure__", None) or ():
        held = cell.cell_contents
        inner = held if callable(held) else getattr(held, "_generator", None)
        user = _find_user_function(inner, depth - 1) if inner is not None else None
        if user is not None and not _is_of_tensorflow(user):
            return user
    return function


def _is_of_tensorflow(function: Any) -> bool:
    return str(getattr(function, "__module__", "") or "").startswith(("tensorflow.", "keras."))


def _list_operations(dataset: Any) -> set[str]:
    """Operations in the functions of one dataset of the chain."""
    names: set[str] = set()
    for wrapper in dataset._functions():
        graph = wrapper.function.graph.as_graph_def()
        for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
            names |= {node.op for node in nodes}
    return names


def _name_stage(dataset: Any, stage_before: StageName) -> StageName:
    kind = _name_kind(dataset)
    if any(name in kind for name in _BATCH_KINDS):
        return "batch"
    operations = _list_operations(dataset)
    if not operations:
        return stage_before
    is_expanding = any(name in kind for name in _EXPANDING_KINDS)
    if _has_any(operations, _COMPUTING_OPS) and not (is_expanding and operations & set(_PYTHON_OPS)):
        return "features"
    if _has_any(operations, _DECODING_OPS):
        return "decode"
    return "read" if is_expanding or _has_any(operations, _READING_OPS) else "features"


def _has_any(operations: set[str], parts: Iterable[str]) -> bool:
    return any(part in name for name in operations for part in parts)


def _name_kind(dataset: Any) -> str:
    return type(dataset).__name__.strip("_").removesuffix("Dataset").removeprefix("Parallel")


def _describe(dataset: Any, stage: StageName) -> Link:
    kind = _name_kind(dataset)
    is_batch = any(name in kind for name in _BATCH_KINDS)
    return Link(
        dataset=dataset,
        kind=kind,
        stage=stage,
        batch_size=_read_number(dataset, "_batch_size") or 0 if is_batch else 1,
        num_threads=max(1, _read_number(dataset, "_num_parallel_calls") or 1),
        buffer_size=_read_number(dataset, "_buffer_size"),
        is_python=bool(_list_operations(dataset) & set(_PYTHON_OPS)),
        is_root=any(name in kind for name in _EXPANDING_KINDS),
    )


def _read_number(dataset: Any, name: str) -> int | None:
    value = getattr(dataset, name, None)
    if value is None:
        return None
    constant = tf.get_static_value(value) if tf.is_tensor(value) else value
    return None if constant is None else int(cast(int, constant))


_PROBE_S = 0.7
_NUM_RUNS = 3
_MOST_BATCHES = 20
_LEAST_SHARE = 0.02
_MOST_CORES = 99.0


class DatasetSource:
    """A dataset as a training loop goes through it: a new iterator for every epoch."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.num_epochs = 0

    @contextmanager
    def open(self) -> Iterator[Iterator[Any]]:
        yield self._iterate()

    def _iterate(self) -> Iterator[Any]:
        while True:
            self.num_epochs += 1
            num_batches = 0
            for batch in self.dataset:
                num_batches += 1
                yield batch
            if num_batches == 0:
                raise refuse_empty("The dataset")

    @property
    def epoch_length(self) -> int | None:
        """Batches of an epoch where the dataset knows; None if it has no end or does not tell."""
        cardinality = int(self.dataset.cardinality().numpy())
        return cardinality if cardinality > 0 else None

    def limit_threads(self, num_threads: int) -> DatasetSource:
        """The same dataset on at most so many threads."""
        options = tf.data.Options()
        options.threading.private_threadpool_size = num_threads
        return DatasetSource(self.dataset.with_options(options))

    def read_ahead(self, num_batches: int) -> DatasetSource:
        return DatasetSource(self.dataset.prefetch(num_batches))

    @staticmethod
    def keep_in_memory(batch: Any) -> DatasetSource:
        """One batch again and again, which costs what taking a batch costs."""
        return DatasetSource(tf.data.Dataset.from_tensors(batch).repeat().prefetch(2))

    def repeat(self, num_batches: int) -> DatasetSource:
        """Without an end, so that the next epoch begins before the last batch of this one is taken."""
        return DatasetSource(self.dataset.repeat().prefetch(num_batches))


@dataclass(frozen=True, slots=True)
class _Segment:
    """Neighbours in the chain that belong to one stage."""

    stage: StageName
    last: Link
    num_threads: int
    is_python: bool


class _Cost(NamedTuple):
    """Seconds of a batch: on the clock, wanting a core, and having one."""

    wall_s: float
    runnable_s: float
    cpu_s: float

    def minus(self, other: _Cost) -> _Cost:
        return _Cost(*(max(0.0, mine - its) for mine, its in zip(self, other, strict=True)))


def time_stages(links: Sequence[Link], data_s: float, sample: Any) -> tuple[StageTime, ...]:
    """What each stage adds to a batch: the chain is run up to the end of every stage, by TensorFlow itself."""
    counts = _count_elements(links, sample)
    num_batches = int(np.clip(_PROBE_S / max(data_s, 1e-4), 2, _MOST_BATCHES))
    stages: dict[StageName, StageTime] = {}
    before = _Cost(0.0, 0.0, 0.0)
    for segment in _list_segments(links):
        count = counts[id(segment.last)]
        whole = _time_prefix(segment.last.dataset, count, num_batches)
        stage = _describe_segment(segment, whole.minus(before), count, _LEAST_SHARE * data_s)
        known = stages.get(segment.stage)
        stages[segment.stage] = stage if known is None else _join_stages(known, stage)
        before = _Cost(*map(max, whole, before))
    return tuple(stages.values())


def _describe_segment(segment: _Segment, cost: _Cost, elements_per_batch: float, least_s: float) -> StageTime:
    seconds = cost.wall_s
    if segment.stage == "batch":
        # Putting rows together never waits: what is more than its computing was somebody else's.
        seconds = min(seconds, cost.cpu_s)
    num_bytes, num_reads = _measure_read(segment, elements_per_batch) if segment.stage == "read" else (0.0, 0.0)
    return StageTime(
        segment.stage,
        seconds,
        min(cost.runnable_s / seconds, _MOST_CORES) if seconds > least_s else 1.0,
        segment.num_threads,
        segment.is_python,
        num_bytes,
        num_reads,
    )


def _join_stages(first: StageTime, second: StageTime) -> StageTime:
    """Two parts of a chain that do the same kind of work."""
    larger = max(first, second, key=lambda stage: stage.seconds)
    return replace(
        larger,
        seconds=first.seconds + second.seconds,
        num_threads=max(first.num_threads, second.num_threads),
        is_python=first.is_python or second.is_python,
    )


def _list_segments(links: Sequence[Link]) -> list[_Segment]:
    roots = [place for place, link in enumerate(links) if link.is_root]
    counted = links[roots[-1] :] if roots else links
    segments: list[_Segment] = []
    for link in counted:
        if "Prefetch" in link.kind and segments:
            # It makes more than it is asked for, which would be counted.
            continue
        if segments and segments[-1].stage == link.stage:
            before = segments.pop()
            segments.append(
                _Segment(
                    link.stage,
                    link,
                    max(before.num_threads, link.num_threads),
                    before.is_python or link.is_python,
                )
            )
        else:
            segments.append(_Segment(link.stage, link, link.num_threads, link.is_python))
    return segments


def _count_elements(links: Sequence[Link], sample: Any) -> dict[int, float]:
    """For each link how many of its elements make one batch of the whole."""
    arrays = list_arrays(sample)
    leading = int(arrays[0].shape[0]) if arrays and len(arrays[0].shape) else 1
    counts: dict[int, float] = {}
    count = 1.0
    for link in reversed(links):
        counts[id(link)] = count
        count *= link.batch_size or leading
    return counts


def _time_prefix(dataset: Any, elements_per_batch: float, num_batches: int) -> _Cost:
    """What the elements of a batch cost, without what starting costs."""
    per_batch = max(1, round(elements_per_batch))
    few, many = (
        min(_time_run(dataset.repeat().take(count)) for _ in range(_NUM_RUNS))
        for count in (per_batch, per_batch * (num_batches + 1))
    )
    return _Cost(*(seconds / num_batches for seconds in many.minus(few)))


def _time_run(dataset: Any) -> _Cost:
    runnable_s, cpu_s, started = read_runnable_s(), time.process_time(), time.perf_counter()
    _run_through(dataset)
    return _Cost(time.perf_counter() - started, read_runnable_s() - runnable_s, time.process_time() - cpu_s)


def _run_through(dataset: Any) -> None:
    """Without a Python call per element, which would cost more than many a stage."""
    dataset.reduce(np.int64(0), lambda count, *_element: count + 1).numpy()


def _measure_read(segment: _Segment, elements_per_batch: float) -> tuple[float, float]:
    """Bytes and reads of a batch, where the stage gives the content of files."""
    spec = segment.last.dataset.element_spec
    if not (isinstance(spec, tf.TensorSpec) and spec.dtype == tf.string and spec.shape.rank == 0):
        return 0.0, 0.0
    sizes = [len(content.numpy()) for content in segment.last.dataset.take(4)]
    return (float(np.mean(sizes)) * elements_per_batch if sizes else 0.0), elements_per_batch
