"""Introspection and stage timing of a foreign `tf.data.Dataset`: its chain of transformations, and the cost of each.

`list_chain` walks from the dataset to its source and assigns every transformation to a stage (read, decode, features,
batch). `find_python_functions` searches the serialised GraphDef for `py_function`, `numpy_function` and
`from_generator`. `time_stages` runs growing prefixes of the chain inside TensorFlow; the difference of two neighbouring
prefixes is the cost of a stage. All this reads private attributes of TensorFlow's dataset classes, because there is no
public way to look into a dataset. Called by `from_dataset`.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from myxtts.errors import DataError
from myxtts.runtime.timing import read_runnable_s
from myxtts.tools.diagnose.evidence import PythonFunction, StageName, StageTime
from myxtts.tools.diagnose.timing import list_arrays

_PYTHON_OPS = ("PyFunc", "EagerPyFunc", "PyFuncStateless")
"""Graph operations that call Python and therefore hold the GIL."""
_BATCH_KINDS = ("Batch", "GroupByWindow", "Bucket")
"""Substrings of the names of dataset classes that batch."""
_EXPANDING_KINDS = ("FlatMap", "Interleave", "Generator")
"""One input element gives any number of outputs, so elements before them cannot be counted per batch."""
_READING_OPS = ("ReadFile", "TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset")
_DECODING_OPS = ("Decode", "Parse", "Audio")
_COMPUTING_OPS = ("FFT", "Fft", "MatMul", "Conv", "Mfcc", "Einsum", "Sort", "While", *_PYTHON_OPS)
_AUTOTUNE = -1
"""Value of `tf.data.AUTOTUNE`."""
_SEARCH_DEPTH = 4
"""Levels of closures to search for the user's function below TensorFlow's wrappers."""


@dataclass(frozen=True, slots=True)
class Link:
    """One transformation of the chain, with its stage and its settings.

    `batch_size` is 1 for a transformation that does not batch, 0 for one whose batch size is not known statically.
    `num_threads` is `num_parallel_calls`. `is_root` marks a transformation with a variable number of outputs per input:
    what precedes it cannot be counted in its elements, so timing starts there.
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
    """Returns the chain of datasets up to this one, source first; of several inputs (zip) the first is followed."""
    datasets = [dataset]
    while inputs := datasets[-1]._inputs():
        datasets.append(inputs[0])
    links: list[Link] = []
    for one in reversed(datasets):
        links.append(_describe(one, links[-1].stage if links else "read"))
    return links


def find_python_functions(dataset: Any) -> tuple[PythonFunction, ...]:
    """Returns every Python function in the graph of the dataset, nested functions included, with file and line."""
    from tensorflow.core.framework import graph_pb2
    from tensorflow.python.data.ops import options

    # Only the structure is read, so the state of random generators and Python functions need not be serialisable.
    policy = options.ExternalStatePolicy.IGNORE
    graph = graph_pb2.GraphDef.FromString(dataset._as_serialized_graph(external_state_policy=policy).numpy())
    found: dict[tuple[str, int, str], PythonFunction] = {}
    for node in _walk_nodes(graph):
        if node.op in _PYTHON_OPS:
            function = _describe_function(node.op, node.attr["token"].s.decode())
            found.setdefault((function.file, function.line, function.name), function)
    return tuple(found.values())


def count_threads(links: Iterable[Link], dataset: Any) -> int:
    """Returns the largest `num_parallel_calls` of the chain, limited by a private thread pool.

    AUTOTUNE counts as 1: it does not exceed the number of cores.
    """
    asked = max((link.num_threads for link in links), default=1)
    pool = dataset.options().threading.private_threadpool_size
    return min(asked, pool) if pool else asked


def find_read_ahead(links: list[Link]) -> int | None:
    """Returns the depth of the final prefetch in batches: 0 without one, None for AUTOTUNE."""
    for link in reversed(links):
        if "Prefetch" in link.kind:
            return None if link.buffer_size == _AUTOTUNE else link.buffer_size
        if link.kind not in ("Options", "Repeat", "Take", "Skip"):
            return 0
    return 0


def _walk_nodes(graph: Any) -> Iterator[Any]:
    """Yields the nodes of a GraphDef and of the functions in its library."""
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        yield from nodes


def _describe_function(operation: str, token: str) -> PythonFunction:
    """Looks up the token of a PyFunc node in TensorFlow's registry; without an entry, the token is the name."""
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
    """Returns the path relative to the working directory if it lies inside it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _find_user_function(function: Any, depth: int = _SEARCH_DEPTH) -> Any:
    """Unwraps the user's function from TensorFlow's wrappers; None if it was garbage-collected.

    Follows `_func`, `__wrapped__` and `functools.partial`, then closures of functions of TensorFlow or Keras.
    """
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
    """Returns the names of all graph operations in the functions of one transformation."""
    graphs = [wrapper.function.graph.as_graph_def() for wrapper in dataset._functions()]
    return {node.op for graph in graphs for node in _walk_nodes(graph)}


def _name_stage(kind: str, operations: set[str], stage_before: StageName) -> StageName:
    """Assigns a transformation to a stage by its class and its operations; the first rule that applies decides.

    Computing counts before decoding, decoding before reading. Transformations without a function (shuffle, prefetch)
    belong to the stage before them. A generator or interleave that calls Python reads or decodes.
    """
    if _is_one_of(kind, _BATCH_KINDS):
        return "batch"
    if not operations:
        return stage_before
    is_expanding = _is_one_of(kind, _EXPANDING_KINDS)
    if _has_any(operations, _COMPUTING_OPS) and not (is_expanding and operations & set(_PYTHON_OPS)):
        return "features"
    if _has_any(operations, _DECODING_OPS):
        return "decode"
    return "read" if is_expanding or _has_any(operations, _READING_OPS) else "features"


def _is_one_of(kind: str, parts: Iterable[str]) -> bool:
    return any(part in kind for part in parts)


def _has_any(operations: set[str], parts: Iterable[str]) -> bool:
    return any(_is_one_of(name, parts) for name in operations)


def _describe(dataset: Any, stage_before: StageName) -> Link:
    # The class name without affixes: `_ParallelMapDataset` -> `Map`.
    kind = type(dataset).__name__.strip("_").removesuffix("Dataset").removeprefix("Parallel")
    operations = _list_operations(dataset)
    return Link(
        dataset=dataset,
        kind=kind,
        stage=_name_stage(kind, operations, stage_before),
        batch_size=_read_number(dataset, "_batch_size") or 0 if _is_one_of(kind, _BATCH_KINDS) else 1,
        num_threads=max(1, _read_number(dataset, "_num_parallel_calls") or 1),
        buffer_size=_read_number(dataset, "_buffer_size"),
        is_python=bool(operations & set(_PYTHON_OPS)),
        is_root=_is_one_of(kind, _EXPANDING_KINDS),
    )


def _read_number(dataset: Any, name: str) -> int | None:
    """Returns a private attribute as int; None if it is missing or a tensor without a static value."""
    value = getattr(dataset, name, None)
    if value is None:
        return None
    constant = tf.get_static_value(value) if tf.is_tensor(value) else value
    return None if constant is None else int(cast(int, constant))


_PROBE_S = 0.7
"""Aimed duration of one timed run of a prefix; it gives the number of batches, from 2 to `_MOST_BATCHES`."""
_NUM_RUNS = 3
"""Runs of each prefix. The shortest counts, because other load on the machine only makes a run longer."""
_MOST_BATCHES = 20
_LEAST_SHARE = 0.02
"""Share of a batch's loading time below which the CPU share of a stage is noise and taken as 1."""
_MOST_CORES = 99.0
"""Upper limit of a stage's CPU share, which exceeds 1 where several threads are at work."""


class DatasetSource:
    """`BatchSource` over a dataset: iterates it as a training loop does, with a new iterator for every epoch.

    Raises `DataError` if an epoch has no batch.
    """

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
                raise DataError(
                    "The dataset gave no batch at all.", next_step="Check that it yields batches when it is iterated."
                )

    @property
    def epoch_length(self) -> int | None:
        """Batches per epoch by `cardinality`; None if infinite or unknown."""
        cardinality = int(self.dataset.cardinality().numpy())
        return cardinality if cardinality > 0 else None

    def limit_threads(self, num_threads: int) -> DatasetSource:
        """Returns the dataset on a private thread pool of this size."""
        options = tf.data.Options()
        options.threading.private_threadpool_size = num_threads
        return DatasetSource(self.dataset.with_options(options))

    def read_ahead(self, num_batches: int) -> DatasetSource:
        return DatasetSource(self.dataset.prefetch(num_batches))

    @staticmethod
    def keep_in_memory(batch: Any) -> DatasetSource:
        """Returns one batch repeated from memory: the cost of iteration alone."""
        return DatasetSource(tf.data.Dataset.from_tensors(batch).repeat().prefetch(2))

    def repeat(self, num_batches: int) -> DatasetSource:
        """Returns the dataset repeated before the prefetch, so that the buffer fills across the border of epochs."""
        return DatasetSource(self.dataset.repeat().prefetch(num_batches))


class _Cost(NamedTuple):
    """Seconds per batch: wall time, time in which threads ran or were queued for a core, and CPU time."""

    wall_s: float
    runnable_s: float
    cpu_s: float

    def minus(self, other: _Cost) -> _Cost:
        return _Cost(*(max(0.0, mine - its) for mine, its in zip(self, other, strict=True)))


def time_stages(links: Sequence[Link], data_s: float, sample: Any) -> tuple[StageTime, ...]:
    """Times each stage as the difference between the chain up to its end and the chain up to its beginning.

    Prefixes run inside TensorFlow, without Python per element. A prefix that was faster than a shorter one costs
    nothing: differences are clipped at 0. Stages that occur twice in the chain are added up.
    """
    counts = _count_elements(links, sample)
    num_batches = int(np.clip(_PROBE_S / max(data_s, 1e-4), 2, _MOST_BATCHES))
    stages: dict[StageName, StageTime] = {}
    before = _Cost(0.0, 0.0, 0.0)
    for segment in _list_segments(links):
        last = segment[-1]
        count = counts[id(last)]
        whole = _time_prefix(last.dataset, count, num_batches)
        stage = _describe_segment(segment, whole.minus(before), count, _LEAST_SHARE * data_s)
        known = stages.get(last.stage)
        stages[last.stage] = stage if known is None else _join_stages(known, stage)
        before = _Cost(*map(max, whole, before))
    return tuple(stages.values())


def _describe_segment(segment: Sequence[Link], cost: _Cost, elements_per_batch: float, least_s: float) -> StageTime:
    seconds, last = cost.wall_s, segment[-1]
    if last.stage == "batch":
        # Batching never waits for I/O: wall time beyond its CPU time was taken by other load.
        seconds = min(seconds, cost.cpu_s)
    num_bytes, num_reads = _measure_read(last.dataset, elements_per_batch) if last.stage == "read" else (0.0, 0.0)
    return StageTime(
        last.stage,
        seconds,
        min(cost.runnable_s / seconds, _MOST_CORES) if seconds > least_s else 1.0,
        max(link.num_threads for link in segment),
        any(link.is_python for link in segment),
        num_bytes,
        num_reads,
    )


def _join_stages(first: StageTime, second: StageTime) -> StageTime:
    """Adds two segments of the same stage; the CPU share and the reads are those of the longer one."""
    larger = max(first, second, key=lambda stage: stage.seconds)
    return replace(
        larger,
        seconds=first.seconds + second.seconds,
        num_threads=max(first.num_threads, second.num_threads),
        is_python=first.is_python or second.is_python,
    )


def _list_segments(links: Sequence[Link]) -> list[list[Link]]:
    """Groups the chain from its last root on into segments of equal stage; each is timed up to its last link."""
    roots = [place for place, link in enumerate(links) if link.is_root]
    first, *others = links[roots[-1] :] if roots else links
    # A prefetch produces more elements than are taken, which would be counted.
    counted = [first, *(link for link in others if "Prefetch" not in link.kind)]
    return [list(group) for _, group in groupby(counted, lambda link: link.stage)]


def _count_elements(links: Sequence[Link], sample: Any) -> dict[int, float]:
    """Returns for each link, by `id`, how many of its elements make one final batch."""
    arrays = list_arrays(sample)
    leading = int(arrays[0].shape[0]) if arrays and len(arrays[0].shape) else 1
    counts: dict[int, float] = {}
    count = 1.0
    for link in reversed(links):
        counts[id(link)] = count
        count *= link.batch_size or leading
    return counts


def _time_prefix(dataset: Any, elements_per_batch: float, num_batches: int) -> _Cost:
    """Returns the cost of a batch without the start-up of the iterator.

    The same prefix is run for 1 and for `num_batches` + 1 batches; the start-up cancels in the difference.
    """
    per_batch = max(1, round(elements_per_batch))
    few, many = (
        min(_time_run(dataset.repeat().take(count)) for _ in range(_NUM_RUNS))
        for count in (per_batch, per_batch * (num_batches + 1))
    )
    return _Cost(*(seconds / num_batches for seconds in many.minus(few)))


def _time_run(dataset: Any) -> _Cost:
    runnable_s, cpu_s, started = read_runnable_s(), time.process_time(), time.perf_counter()
    # Consumed by `reduce`: a Python call per element would cost more than some stages.
    dataset.reduce(np.int64(0), lambda count, *_element: count + 1).numpy()
    return _Cost(time.perf_counter() - started, read_runnable_s() - runnable_s, time.process_time() - cpu_s)


def _measure_read(dataset: Any, elements_per_batch: float) -> tuple[float, float]:
    """Returns bytes and reads per batch if the stage yields file contents (scalar strings), else zeros.

    The size is the mean of the first four files.
    """
    spec = dataset.element_spec
    if not (isinstance(spec, tf.TensorSpec) and spec.dtype == tf.string and spec.shape.rank == 0):
        return 0.0, 0.0
    sizes = [len(content.numpy()) for content in dataset.take(4)]
    return (float(np.mean(sizes)) * elements_per_batch if sizes else 0.0), elements_per_batch
