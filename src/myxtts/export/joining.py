"""Joins ONNX graphs by the names of their tensors, with loops and branches around them; stores smaller weights.

Names inside a graph get the graph's name as prefix; those of its inputs and outputs stay. Weights become initializers
of the outermost graph, each distinct one once, which loops and branches refer to from inside.
Weights in float16, or int8 with a scale for each column, are brought back to float32 by an operator of the graph, once
for each call, so every runtime can load it, and nothing but the rounding of the weights changes the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from myxtts.synthesis.exported import Dtype

_DTYPES = {
    tf.float32: TensorProto.FLOAT,
    tf.int32: TensorProto.INT32,
    tf.int64: TensorProto.INT64,
    tf.bool: TensorProto.BOOL,
}
_MIN_VALUES = 1024
"""Weights with fewer values, biases and norms among them, stay float32."""
_LARGEST_INT8 = 127


class Joiner:
    """Collects graphs in the order in which they run."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._ends: list[Any] = []
        self._initializers: dict[bytes, Any] = {}
        self._opsets: dict[str, int] = {}

    def add(self, model: Any, prefix: str) -> None:
        """Puts a graph behind the others; its inputs are tensors that exist by then."""
        self._nodes.extend(self._take(model, prefix))

    def add_loop(self, count: str, model: Any, prefix: str, carried: Sequence[str]) -> None:
        """Repeats a graph: `count` times, each `x` of `carried` being `x_next` of the time before, at last `x_end`."""
        ends = [f"{name}_end" for name in carried]
        self._nodes.append(self._make_loop(count, model, prefix, carried, ends))
        # Their shapes are stated, because ONNX takes what a loop carries for tensors of any rank.
        types = {one.name: one.type for one in model.graph.input}
        self._ends += [helper.make_value_info(end, types[name]) for name, end in zip(carried, ends, strict=True)]

    def add_branch(
        self, condition: str, first: tuple[str, Any, str, Sequence[str]], second: tuple[str, Any, str, Sequence[str]]
    ) -> None:
        """Runs the first loop where `condition` is true, else the second; each is the arguments of `add_loop`."""
        carried = first[3]
        assert tuple(carried) == tuple(second[3]), (carried, second[3])
        branches = []
        for loop in (first, second):
            ends = [f"{loop[2]}/{name}_end" for name in carried]
            outputs = [helper.make_empty_tensor_value_info(end) for end in ends]
            types = {one.name: one for one in loop[1].graph.input}
            for name, output in zip(carried, outputs, strict=True):
                output.type.CopyFrom(types[name].type)
            node = self._make_loop(*loop, ends)
            branches.append(helper.make_graph([node], loop[2], [], outputs))
        results = [f"{name}_end" for name in carried]
        self._nodes.append(
            helper.make_node("If", [condition], results, then_branch=branches[0], else_branch=branches[1])
        )

    def finish(self, name: str, inputs: Sequence[tf.TensorSpec], outputs: Sequence[str]) -> Any:
        """Returns the whole as a model."""
        described = [
            helper.make_tensor_value_info(
                spec.name,
                _DTYPES[spec.dtype],
                [f"{spec.name}_{axis}" if size is None else size for axis, size in enumerate(spec.shape.as_list())],
            )
            for spec in inputs
        ]
        results = [helper.make_empty_tensor_value_info(output) for output in outputs]
        weights = list(self._initializers.values())
        graph = helper.make_graph(self._nodes, name, described, results, weights, value_info=self._ends)
        opsets = [helper.make_opsetid(domain, version) for domain, version in self._opsets.items()]
        model = helper.make_model(graph, producer_name="myxtts", opset_imports=opsets)
        return _infer_outputs(model)

    def _make_loop(self, count: str, model: Any, prefix: str, carried: Sequence[str], ends: list[str]) -> Any:
        graph = model.graph
        types = {one.name: one.type for one in graph.input}
        nodes = self._take(model, prefix)
        number, going_on, still = (f"{prefix}/{name}" for name in ("number", "going_on", "still"))
        if "step" in types:
            nodes.insert(0, helper.make_node("Cast", [number], [f"{prefix}/step"], to=TensorProto.INT32))
            _rename_inputs(nodes, {"step": f"{prefix}/step"})
        # What a loop carries has other names inside than outside.
        _rename_inputs(nodes, {name: f"{prefix}/{name}" for name in carried})
        nodes.append(helper.make_node("Identity", [going_on], [still]))
        inside = [helper.make_empty_tensor_value_info(f"{prefix}/{name}") for name in carried]
        results = [helper.make_empty_tensor_value_info(f"{name}_next") for name in carried]
        for name, start, end in zip(carried, inside, results, strict=True):
            start.type.CopyFrom(types[name])
            end.type.CopyFrom(types[name])
        inputs = [
            helper.make_tensor_value_info(number, TensorProto.INT64, []),
            helper.make_tensor_value_info(going_on, TensorProto.BOOL, []),
            *inside,
        ]
        outputs = [helper.make_tensor_value_info(still, TensorProto.BOOL, []), *results]
        body = helper.make_graph(nodes, prefix, inputs, outputs)
        return helper.make_node("Loop", [count, "", *carried], ends, body=body, name=prefix)

    def _take(self, model: Any, prefix: str) -> list[Any]:
        """Returns the nodes of a model under names of their own, and keeps its initializers."""
        for opset in model.opset_import:
            self._opsets[opset.domain] = max(opset.version, self._opsets.get(opset.domain, 0))
        graph = onnx.GraphProto()
        graph.CopyFrom(model.graph)
        kept = {one.name for one in (*graph.input, *graph.output)}
        constants = [one.name for one in graph.initializer if one.name in kept]
        names = {one.name: self._keep(one, f"{prefix}/{one.name}") for one in graph.initializer}
        for node in graph.node:
            assert not any(attribute.HasField("g") for attribute in node.attribute), f"{node.name} has a graph inside"
            node.name = f"{prefix}/{node.name}"
            for place, name in enumerate(node.output):
                node.output[place] = names.setdefault(name, name if name in kept or not name else f"{prefix}/{name}")
        _rename_inputs(graph.node, names)
        # An output that is constant is an initializer, which may have another name by now.
        copies = [helper.make_node("Identity", [names[name]], [name]) for name in constants]
        return [*graph.node, *copies]

    def _keep(self, initializer: Any, name: str) -> str:
        """Keeps a weight, unless there is the same one; returns its name."""
        initializer.name = ""
        content = initializer.SerializeToString(deterministic=True)
        initializer.name = name
        kept: str = self._initializers.setdefault(content, initializer).name
        return kept


def _rename_inputs(nodes: Sequence[Any], names: dict[str, str]) -> None:
    for node in nodes:
        for place, name in enumerate(node.input):
            node.input[place] = names.get(name, name)


def _infer_outputs(model: Any) -> Any:
    """Fills in dtypes and shapes of the outputs."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    del model.graph.output[:]
    model.graph.output.extend(inferred.graph.output)
    return model


def store_weights(model: Any, dtype: Dtype) -> None:
    """Replaces the large float32 weights of a model by others of `dtype`, in place."""
    if dtype == "float32":
        return
    graph = model.graph
    kept, nodes = [], []
    for tensor in graph.initializer:
        values = numpy_helper.to_array(tensor)
        if tensor.data_type != onnx.TensorProto.FLOAT or values.size < _MIN_VALUES:
            kept.append(tensor)
        elif dtype == "float16":
            kept.append(numpy_helper.from_array(values.astype(np.float16), f"{tensor.name}_float16"))
            to = onnx.TensorProto.FLOAT
            nodes.append(helper.make_node("Cast", [f"{tensor.name}_float16"], [tensor.name], to=to))
        else:
            parts, node = _quantize(tensor.name, values)
            kept.extend(parts)
            nodes.append(node)
    del graph.initializer[:]
    graph.initializer.extend(kept)
    others = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *others])
    onnx.checker.check_model(model, full_check=True)


def _quantize(name: str, values: NDArray[np.float32]) -> tuple[list[Any], Any]:
    """The weight as int8, the scale of each index of its last axis, and the operator that multiplies them."""
    axis = values.ndim - 1
    largest = np.abs(values).max(axis=tuple(range(axis)), initial=0.0)
    scales = np.maximum(largest / _LARGEST_INT8, np.finfo(np.float32).tiny).astype(np.float32)
    rounded = np.clip(np.rint(values / scales), -_LARGEST_INT8, _LARGEST_INT8).astype(np.int8)
    parts = [numpy_helper.from_array(rounded, f"{name}_int8"), numpy_helper.from_array(scales, f"{name}_scales")]
    inputs = [part.name for part in parts]
    return parts, helper.make_node("DequantizeLinear", inputs, [name], axis=axis)
