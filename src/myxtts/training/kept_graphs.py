"""Keeps the traced graphs of a step beside its compiled code, so that a second start of a run does not trace them.

Tracing is the work of Python, and takes longer than everything else that a second start does with the step. A file
has the functions of TensorFlow that a step consists of, which are registered again under the names that they have in
it. Variables are given by their places in a list that is the same in every process. A graph that does not fit is
traced again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.python.eager import context

from myxtts.pipeline.packed import Packed
from myxtts.runtime.compile_cache import get_compile_cache
from myxtts.types import Tensor

_PREFIX = "kept_"
"""Of the names of functions. A traced function knows the lines of its Python code, by which XLA takes it for another
one than the same function without them, and TensorFlow keeps the first that is registered under a name."""
_VARIABLES, _NOTES = "variables", "notes"
"""Attributes of the call: dtype and shape of each variable, and what tracing has left besides the graph."""


class LoadedGraph:
    """A graph of an earlier start, called like the `tf.function` that it was traced from."""

    def __init__(self, name: str, variables: Sequence[Any]) -> None:
        self._name, self._handles = name.encode(), [variable.handle for variable in variables]

    def __call__(self, part: Packed) -> Tensor:
        eager = context.context()
        before = eager.function_call_options
        eager.function_call_options = _make_call_options()
        try:
            (values,) = eager.call_function(self._name, [part.vector, *self._handles], 1)
        finally:
            eager.function_call_options = before
        return values

    def experimental_get_tracing_count(self) -> int:
        """It counts like one that was traced here."""
        return 1


class KeptGraphs:
    """The graphs in the cache of a function that turns a packed micro-batch into one tensor.

    `key` names what they depend on besides the layout of the micro-batch, the code and its libraries; `variables` are
    all that they may use. `read_notes` gives what tracing has left besides the graph, and `take_notes` gets it again.
    """

    def __init__(
        self,
        key: str,
        variables: Sequence[Any],
        read_notes: Callable[[], Sequence[str]],
        take_notes: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._key, self._variables = key, list(variables)
        self._read_notes, self._take_notes = read_notes, take_notes

    def load(self, part: Packed) -> LoadedGraph | None:
        """The graph for micro-batches of this layout; None where the cache has none that fits."""
        content = get_compile_cache().read(self._name_file(part))
        try:
            return None if content is None else self._register(tf.compat.v1.GraphDef.FromString(content))
        except DecodeError:
            return None

    def keep(self, part: Packed, traced: Any) -> LoadedGraph | None:
        """Adds a graph to the cache, and gives it as a later start will find it.

        None where there is no cache, or where it uses something that another process would not find again.
        """
        places = {id(variable.handle): place for place, variable in enumerate(self._variables)}
        used = [places.get(id(handle), -1) for handle in traced.captured_inputs]
        if get_compile_cache().group is None or -1 in used or len(traced.outputs) != 1:
            return None
        names = [function.signature.name for function in traced.graph.as_graph_def().library.function]
        names.append(traced.name.decode())
        graph = tf.compat.v1.GraphDef()
        graph.library.function.extend(context.context().get_function_def(name) for name in names)
        _rename(graph.library.function, names)
        call = graph.node.add(name=_PREFIX + names[-1], op="StatefulPartitionedCall", input=map(str, used))
        call.attr[_VARIABLES].list.s.extend(_describe(self._variables[place]).encode() for place in used)
        call.attr[_NOTES].list.s.extend(note.encode() for note in self._read_notes())
        get_compile_cache().add(self._name_file(part), graph.SerializeToString())
        return self._register(graph)

    def _register(self, graph: Any) -> LoadedGraph | None:
        try:
            (call,) = graph.node
            variables = [self._variables[int(place)] for place in call.input]
            if [_describe(variable) for variable in variables] != _read_texts(call, _VARIABLES):
                return None
            for function in graph.library.function:
                context.context().add_function_def(function)
        except (ValueError, IndexError, tf.errors.OpError):
            return None
        self._take_notes(tuple(_read_texts(call, _NOTES)))
        return LoadedGraph(call.name, variables)

    def _name_file(self, part: Packed) -> str:
        parts = (self._key, part.layout, _hash_code(), keras.__version__)
        return f"traced-{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}.graph"


@cache
def _make_call_options() -> Any:
    """Options of a call without Grappler: it takes a second, and XLA compiles all that it could improve."""
    config = tf.compat.v1.ConfigProto.FromString(context.context().function_call_options.config_proto_serialized)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return context.FunctionCallOptions(config_proto=config)


def _describe(variable: Any) -> str:
    return f"{variable.dtype.name} {list(variable.shape)}"


def _read_texts(call: Any, name: str) -> list[str]:
    return [text.decode() for text in call.attr[name].list.s]


def _rename(functions: Sequence[Any], names: Sequence[str]) -> None:
    """Puts the prefix before these names, where functions are defined and where they are called."""
    known = set(names)
    for function in functions:
        function.signature.name = _PREFIX + function.signature.name
        for node in function.node_def:
            for value in node.attr.values():
                for called in (value.func, *value.list.func):
                    if called.name in known:
                        called.name = _PREFIX + called.name


@cache
def _hash_code() -> str:
    """Checksum of all modules of this package: any of them may have a part in a graph."""
    checksum, folder = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted(folder.rglob("*.py")):
        checksum.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return checksum.hexdigest()
