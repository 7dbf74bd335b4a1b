"""Makes the graphs of a step: traced in the order in which batches need them, compiled by XLA or found in the cache.

The first graph is made before the first step. The others are traced in a thread while steps run, and XLA compiles each
when its first batch comes: the step waits, so that the order of batches stays. They are all made before the first step
where that is no slower (a CPU that must compile them anyway, with the cores that the steps need) and where several
devices or processes must make them together.
"""

from __future__ import annotations

import gc
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf
from tensorflow.python.framework import ops

from myxtts.pipeline.packed import Packed
from myxtts.runtime.compile_cache import get_compile_cache
from myxtts.runtime.plan import is_cpu
from myxtts.training.kept_graphs import KeptGraphs, LoadedGraph
from myxtts.types import Say

if TYPE_CHECKING:
    from myxtts.training.task import PreparedTask

_FIRST_NUMBER, _NUMBERS_PER_KEY = 2**40, 2**22
"""Numbers of functions and tensors begin where TensorFlow, which counts from 0, does not get to."""
_REPLICA_THREAD = "_MirroredReplicaThread"
"""Class of the threads in which `MirroredStrategy` traces the part of each replica."""


class StepGraph(NamedTuple):
    """A graph of the step: its name, and how to trace it, or to trace and compile it by a step on padding rows."""

    name: str
    trace: Callable[[], None]
    run: Callable[[], None]


class StepCompiler:
    """The graphs of a step by name, each made once. Close it: a thread may be tracing.

    `is_ahead` makes all of them in `make_first`.
    """

    def __init__(
        self, graphs: Sequence[StepGraph], key: str, say: Say, *, is_compiled: bool = False, is_ahead: bool = True
    ) -> None:
        """`key` tells this step from others of the process with the same batch shapes."""
        self._graphs, self._key = {graph.name: graph for graph in graphs}, key
        self._cache, self._say, self._is_compiled, self._is_ahead = get_compile_cache(), say, is_compiled, is_ahead
        self._is_traced = {name: threading.Event() for name in self._graphs}
        self._unused = set(self._graphs)
        self._wanted, self._is_closed = "", False
        self._thread: threading.Thread | None = None
        self.num_compiled, self.num_found, self.seconds = 0, 0, 0.0

    def make_first(self, is_stopping: Callable[[], bool]) -> None:
        """Makes the graph that the first step needs, or all of them, and begins to trace the others."""
        verb, started = "Compiling" if self._is_compiled else "Tracing", time.monotonic()
        self._say(f"{verb} {len(self._graphs)} batch {'shapes' if len(self._graphs) > 1 else 'shape'} …")
        for number, graph in enumerate(self._graphs.values()):
            if is_stopping() or (number and not self._is_ahead):
                break
            with self._use(graph.name), name_functions_alike(f"{graph.name} {self._key}"), _pause_garbage_collector():
                graph.run()
        is_more = not self._is_ahead and len(self._graphs) > 1
        rest = " for the first; the others follow when they are needed" if is_more else ""
        self._say(f"{verb} took {time.monotonic() - started:.1f} s{rest}.")
        if is_more and not is_stopping():
            self._thread = threading.Thread(target=self._trace_others, name="myxtts-tracing", daemon=True)
            self._thread.start()

    @contextmanager
    def use_for_step(self, names: Iterable[str]) -> Iterator[None]:
        """Around a step, with the names of its graphs; waits until they are traced, and reports on new ones."""
        with ExitStack() as held:
            for name in dict.fromkeys(names):
                held.enter_context(self._use(name))
            yield

    @contextmanager
    def _use(self, name: str) -> Iterator[None]:
        """Around the first use of a graph, in which XLA compiles it; around others this does nothing."""
        if name not in self._unused:
            yield
            return
        started = time.monotonic()
        if self._thread is not None:
            self._wanted = name
            self._is_traced[name].wait()
        self._cache.mark()
        yield
        self._unused.discard(name)
        num_new, seconds = self._cache.publish(), time.monotonic() - started
        is_found = self._cache.num_found > 0 and not num_new
        self.num_found, self.num_compiled = self.num_found + is_found, self.num_compiled + (not is_found)
        self.seconds += seconds
        how = ("found in the cache" if is_found else "compiled") if self._is_compiled else "traced"
        number = len(self._graphs) - len(self._unused)
        self._say(f"Batch shape {number} of {len(self._graphs)} ({name}) {how} in {seconds:.1f} s.")

    def give_up_cache(self, error: tf.errors.OpError, *, is_sure: bool) -> bool:
        """Goes on without the cache if this error may come from it; returns whether it does.

        `is_sure` says that only the cache can be the reason; else the error must name its folder.
        """
        is_likely = is_sure or str(self._cache.session) in str(error)
        if not (self._cache.is_on and self.is_busy and is_likely):
            return False
        self._cache.give_up(error.message)
        return True

    @property
    def is_busy(self) -> bool:
        """Whether the next step may have to wait for a graph, or to compile."""
        return bool(self._unused)

    def close(self) -> None:
        """Waits for the graph that is being traced; the others are left."""
        self._is_closed = True
        if self._thread is not None:
            self._thread.join()

    def _trace_others(self) -> None:
        """In a thread: traces the graphs that were not used yet, the one that a step waits for first."""
        try:
            # The first graph was made by `make_first`.
            waiting = list(self._graphs)[1:]
            while waiting and not self._is_closed:
                name = self._wanted if self._wanted in waiting else waiting[0]
                with name_functions_alike(f"{name} {self._key}"):
                    self._graphs[name].trace()
                self._is_traced[name].set()
                waiting.remove(name)
        except tf.errors.OpError:
            # The step that needs the graph traces it itself, and meets the error where it can be handled.
            pass
        finally:
            for event in self._is_traced.values():
                event.set()


@contextmanager
def _pause_garbage_collector() -> Iterator[None]:
    """A graph is made of so many objects that Python looks for garbage among all of them hundreds of times."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def plan_graphs(task: PreparedTask, step: int, position: int, say: Say) -> StepCompiler:
    """The compiler of all graphs from a step and the batch at a position on; what the cache has of them is found."""
    execution, cache = task.execution, get_compile_cache()
    graphs = task.list_graphs(step, position)
    if execution.is_compiled:
        cache.use_group(f"{task.steps.situation} {execution.policy} {sorted(graph.name for graph in graphs)}")
    is_slow = execution.is_compiled and is_cpu(task.plan.model_devices[0]) and not cache.num_found
    # The minutes of a run are planned by its first steps, which therefore must not contain compiling.
    is_ahead = is_slow or task.plan.num_replicas > 1 or task.config.training.minutes is not None
    micro_batches = str(task.learner.micro_batches)
    return StepCompiler(graphs, micro_batches, say, is_compiled=execution.is_compiled, is_ahead=is_ahead)


class GraphPerShape:
    """A function with a `tf.function` for each shape of its arguments, so that one can be traced while another runs.

    A `tf.function` is locked while it makes a graph, and all calls of it wait. `kept` are the graphs of earlier starts.
    """

    def __init__(self, function: Callable[..., Any], *, jit_compile: bool, kept: KeptGraphs | None = None) -> None:
        self._function, self._jit_compile, self._kept = function, jit_compile, kept
        self._by_shape: dict[tuple[Any, ...], Any] = {}

    def __call__(self, *arguments: Any) -> Any:
        return self.find(*arguments)(*arguments)

    def find(self, *arguments: Any) -> Any:
        """The `tf.function` for arguments of these shapes, or the graph of an earlier start."""
        shape = _find_shape(arguments)
        if shape not in self._by_shape:
            self._by_shape[shape] = tf.function(self._function, jit_compile=self._jit_compile, autograph=False)
        return self._by_shape[shape]

    def make(self, *arguments: Any) -> None:
        """Makes the graph for arguments of these shapes, without calling it: finds that of an earlier start, or traces.

        A traced graph that is kept is used as it will be found: both must be compiled to the same code.
        """
        shape, kept = _find_shape(arguments), self._kept if isinstance(arguments[0], Packed) else None
        if isinstance(self._by_shape.get(shape), LoadedGraph):
            return
        found = None if kept is None else kept.load(arguments[0])
        if found is None:
            traced = self.get_concrete_function(*arguments)
            found = None if kept is None else kept.keep(arguments[0], traced)
        if found is not None:
            self._by_shape[shape] = found

    def get_concrete_function(self, *arguments: Any) -> Any:
        """The graph for arguments of these shapes, without calling it."""
        return self.find(*arguments).get_concrete_function(*arguments)

    def experimental_get_compiler_ir(self, *arguments: Any) -> Any:
        """What XLA makes of the graph for arguments of these shapes."""
        return self.find(*arguments).experimental_get_compiler_ir(*arguments)

    @property
    def num_traces(self) -> int:
        """Graphs made so far."""
        return sum(function.experimental_get_tracing_count() for function in list(self._by_shape.values()))


def _find_shape(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """What tells the graphs of a function apart: the shapes of its tensors, and the layouts of packed ones."""
    leaves = tf.nest.flatten(arguments, expand_composites=True)
    layouts = [argument.layout for argument in arguments if isinstance(argument, Packed)]
    return (*layouts, *(tuple(leaf.shape) for leaf in leaves if tf.is_tensor(leaf)))


def make_graph_first(function: Callable[..., Any], *arguments: Any) -> None:
    """Traces a `tf.function` for these arguments without calling it.

    A step has one graph for each batch shape. TensorFlow takes calls that each make a graph for a mistake, and warns of
    it after the fifth; calls that find their graph are not counted.
    """
    if isinstance(function, GraphPerShape):
        function.make(*arguments)
    elif isinstance(function, tf.types.experimental.GenericFunction):
        function.get_concrete_function(*arguments)


_numbering: dict[int, Iterator[int] | None] = {}
_used_keys: set[str] = set()
_lock = threading.Lock()


@contextmanager
def name_functions_alike(key: str) -> Iterator[None]:
    """Within the block this thread gives TensorFlow's functions the same names in every process; once for each key.

    The cache finds a compiled function by its graph, names included, and names contain a number that counts every
    tensor of the process: another order of loading or tracing would make the same graph another one.
    """
    with _lock:
        is_new = key not in _used_keys
        _used_keys.add(key)
    begin = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4]) * _NUMBERS_PER_KEY
    thread = _find_tracing_thread()
    # The first trace of a thread makes its default graph, which takes a number.
    ops.get_default_graph()
    # A second block takes none of the numbers of an outer one either, which would have fewer for the rest.
    outer, _numbering[thread] = _numbering.get(thread), count(_FIRST_NUMBER + begin) if is_new else None
    try:
        yield
    finally:
        _numbering[thread] = outer


def _find_tracing_thread() -> int:
    """Number of this thread; of the main thread in those that `MirroredStrategy` traces with, one after the other."""
    is_replica = type(threading.current_thread()).__name__ == _REPLICA_THREAD
    return (threading.main_thread().ident or 0) if is_replica else threading.get_ident()


def _number_next() -> int:
    numbers = _numbering.get(_find_tracing_thread())
    return _count_all() if numbers is None else next(numbers)


_count_all: Callable[[], int] = ops.uid
ops.uid = _number_next
