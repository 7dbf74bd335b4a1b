"""What a `tf.data.Dataset` is made of: its chain of steps, the Python it calls, its threads and its read-ahead."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import tensorflow as tf

from myxtts.tools.diagnosis.evidence import PythonFunction, StageName

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
