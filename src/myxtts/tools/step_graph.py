"""What a training step is made of: the functions it dispatches, read as graphs.

Every `tf.function` that was called has a `FunctionDef` in TensorFlow's context, found by the name under which the call
was dispatched. Operations inside a function that XLA must compile become a few fused kernels; the executor starts all
others one by one. XLA can run a loop without the host only if it knows the number of passes: `find_unknown_loops`
follows its rule, a counter that is compared with a constant. `count_hlo` counts what the compiler made of a function.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

_COMPILED = "_XlaMustCompile"
_CALLS = ("PartitionedCall", "StatefulPartitionedCall", "SymbolicGradient", "RemoteCall")
_WHILES = ("While", "StatelessWhile")
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
_NO_KERNELS = frozenset(
    "Const Placeholder PlaceholderWithDefault Identity IdentityN NoOp _Arg _Retval ReadVariableOp EnsureShape Shape "
    "ShapeN Size Rank StopGradient PreventGradient Reshape ExpandDims Squeeze VarHandleOp BroadcastGradientArgs "
    "VariableShape _EagerConst Assert".split()
)
"""Operations that start no kernel on a GPU: they name, check or reinterpret a tensor."""
_STATIC = frozenset(
    "Identity Cast Sub Add AddV2 Mul FloorDiv Minimum Maximum Neg StridedSlice Pack Unpack Squeeze Reshape Range "
    "ExpandDims GatherV2 ConcatV2 EnsureShape StopGradient".split()
)
"""Operations whose result XLA knows when it compiles, if it knows their inputs. Shapes are always known to it."""
_PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "Conv2D", "Conv1D", "XlaDotV2")
_FLOAT32 = 1
"""Number of float32 in TensorFlow's `DataType`."""
_HALVES = (14, 19)
"""Numbers of bfloat16 and float16."""


@dataclass(slots=True)
class StepGraph:
    """Operations of all functions of a step: `compiled` by XLA, and `outside` of it, by kind.

    `num_float32_products` and `num_half_products` count matrix products and convolutions by the type of their inputs.
    """

    compiled: Counter[str] = field(default_factory=Counter)
    outside: Counter[str] = field(default_factory=Counter)
    num_loops: int = 0
    unknown_loops: list[str] = field(default_factory=list)
    num_float32_products: int = 0
    num_half_products: int = 0

    @property
    def num_compiled(self) -> int:
        return self.compiled.total()

    @property
    def num_outside(self) -> int:
        return self.outside.total()


def read_step_graph(names: Iterable[str]) -> StepGraph:
    """Reads the functions that a step dispatched, with all they call; names that are no functions are skipped."""
    from tensorflow.python.eager import context

    def find(name: str) -> Any:
        return context.context().get_function_def(name)

    graph = StepGraph()
    for name in names:
        if context.context().has_function(name):
            _read_function(find(name), find, graph, is_compiled=False)
    return graph


def _read_function(function: Any, find: Callable[[str], Any], graph: StepGraph, is_compiled: bool) -> None:
    is_compiled |= _is_marked(function)
    counted = graph.compiled if is_compiled else graph.outside
    for node in function.node_def:
        inner = is_compiled or _is_marked(node)
        if node.op in _CALLS:
            _read_function(find(node.attr["f"].func.name), find, graph, inner)
        elif node.op in _WHILES:
            graph.num_loops += 1
            if not has_known_trip_count(function, node, find):
                graph.unknown_loops.append(node.name)
            counted[node.op] += 1
            _read_function(find(node.attr["body"].func.name), find, graph, inner)
        elif node.op in _BRANCHES:
            counted[node.op] += 1
            # Only one of them runs; the first is the one that does the work.
            _read_function(find(_list_branches(node)[0]), find, graph, inner)
        elif node.op not in _NO_KERNELS:
            counted[node.op] += 1
            _note_product(node, graph)


def _is_marked(owner: Any) -> bool:
    return _COMPILED in owner.attr and owner.attr[_COMPILED].b


def _list_branches(node: Any) -> list[str]:
    if "then_branch" in node.attr:
        return [node.attr[name].func.name for name in ("then_branch", "else_branch")]
    return [one.name for one in node.attr["branches"].list.func]


def _note_product(node: Any, graph: StepGraph) -> None:
    if node.op in _PRODUCTS:
        kind = node.attr["T"].type or node.attr["LhsT"].type
        graph.num_float32_products += kind == _FLOAT32
        graph.num_half_products += kind in _HALVES


def has_known_trip_count(function: Any, loop: Any, find: Callable[[str], Any]) -> bool:
    """Returns whether XLA can count the passes of a `While` node of `function`.

    The condition must compare a counter with a constant, and the body must add a positive constant to that counter.
    `maximum_iterations` makes the condition a conjunction of two, which XLA does not analyse.
    """
    condition, body = _Nodes(find(loop.attr["cond"].func.name)), _Nodes(find(loop.attr["body"].func.name))
    outer = _Nodes(function)
    test = condition.follow(condition.outputs[0])
    if test is None or test.op not in ("Less", "LessEqual", "Greater", "GreaterEqual", "NotEqual"):
        return False
    sides = list(test.input[:2])
    if test.op.startswith("Greater"):
        sides.reverse()
    counter = condition.find_argument(sides[0])
    if counter is None:
        return False

    def is_static_at_start(number: int) -> bool:
        return outer.is_static(loop.input[number])

    limit = condition.find_argument(sides[1])
    if limit is None:
        is_limit_known = condition.is_static(sides[1])
    else:
        is_limit_known = body.find_argument(body.outputs[limit]) == limit and is_static_at_start(limit)
    return is_limit_known and is_static_at_start(counter) and _counts_up(body, counter)


def _counts_up(body: _Nodes, counter: int) -> bool:
    """Returns whether the body adds a positive constant to its argument `counter`."""
    step = body.follow(body.outputs[counter])
    if step is None or step.op not in ("Add", "AddV2"):
        return False
    arguments = [body.find_argument(name) for name in step.input[:2]]
    others = [name for name, argument in zip(step.input[:2], arguments, strict=True) if argument != counter]
    if len(others) != 1:
        return False
    constant = body.follow(others[0])
    return constant is not None and constant.op == "Const" and _read_number(constant) > 0


def _read_number(constant: Any) -> float:
    from tensorflow import make_ndarray

    values = make_ndarray(constant.attr["value"].tensor)
    return float(values) if values.size == 1 else 0.0


class _Nodes:
    """Nodes of a `FunctionDef` by name; inputs are written `node:output:0` or are the name of an argument."""

    def __init__(self, function: Any) -> None:
        self._nodes = {node.name: node for node in function.node_def}
        self._arguments = {one.name: number for number, one in enumerate(function.signature.input_arg)}
        self.outputs = [function.ret[one.name] for one in function.signature.output_arg]

    def follow(self, name: str) -> Any:
        """Returns the node behind a name, past identities; None for an argument."""
        node = self._nodes.get(name.split(":")[0])
        while node is not None and node.op == "Identity":
            node = self._nodes.get(node.input[0].split(":")[0])
        return node

    def find_argument(self, name: str) -> int | None:
        """Returns the number of the argument behind a name, past identities; None for the output of a node."""
        name = name.split(":")[0]
        while name in self._nodes and self._nodes[name].op == "Identity":
            name = self._nodes[name].input[0].split(":")[0]
        return self._arguments.get(name)

    def is_static(self, name: str) -> bool:
        node = self.follow(name)
        if node is None:
            return False
        if node.op in ("Const", "Shape", "Size", "Rank"):
            return True
        return node.op in _STATIC and all(self.is_static(one) for one in node.input if not one.startswith("^"))


@dataclass(frozen=True, slots=True)
class HloCounts:
    """What the compiler made of a function: operations that a pass starts, loops, and loops without a trip count.

    `num_started` counts fusions, library calls, products and copies outside loops once, inside a loop of known length
    as often as it runs, and inside others once.
    """

    num_operations: int
    num_started: int
    num_loops: int
    num_unknown_loops: int


_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?[\w.\-]+ = (?:\([^=]*?\)|\S+) ([a-z][\w\-]*)\(")
_TRIPS = re.compile(r"known_trip_count[^0-9]*(\d+)")
_BODY = re.compile(r"body=%?([\w.\-]+)")
_BRANCH = re.compile(r"(?:branch_computations=\{|true_computation=)%?([\w.\-]+)")
_CALLED = re.compile(r"to_apply=%?([\w.\-]+)")
_FREE = frozenset("parameter constant tuple get-tuple-element bitcast after-all iota partition-id replica-id".split())
"""Instructions that start nothing."""


def count_hlo(text: str) -> HloCounts:
    """Counts the instructions of optimised HLO, as `experimental_get_compiler_ir(stage="optimized_hlo")` gives it."""
    computations, entry = _split_computations(text)
    counts = {"operations": 0, "started": 0, "loops": 0, "unknown": 0}

    def walk(name: str, times: int) -> None:
        for line in computations.get(name, ()):
            match = _INSTRUCTION.match(line)
            if match is None or match[1] in _FREE:
                continue
            if match[1] == "while":
                trips = _TRIPS.search(line)
                counts["loops"] += 1
                counts["unknown"] += trips is None
                for body in _BODY.findall(line):
                    walk(body, times * (int(trips[1]) if trips else 1))
            elif match[1] in ("call", "conditional"):
                for inner in (_CALLED if match[1] == "call" else _BRANCH).findall(line)[:1]:
                    walk(inner, times)
            else:
                counts["operations"] += 1
                counts["started"] += times

    walk(entry, 1)
    return HloCounts(counts["operations"], counts["started"], counts["loops"], counts["unknown"])


def _split_computations(text: str) -> tuple[dict[str, list[str]], str]:
    """Returns the lines of each computation by name, and the name of the entry."""
    computations: dict[str, list[str]] = {}
    entry, lines = "", list[str]()
    for line in _list_lines(text):
        match = _COMPUTATION.match(line)
        if match is not None:
            lines = computations.setdefault(match[1], [])
            entry = match[1] if line.startswith("ENTRY") else entry
        else:
            lines.append(line)
    return computations, entry


def _list_lines(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line and not line.startswith("HloModule"))
