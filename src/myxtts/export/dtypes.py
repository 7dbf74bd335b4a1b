"""Smaller weights in an ONNX graph: float16, or int8 with a scale for each column; computation stays in float32.

Weights are brought back to float32 by an operator of the graph, once for each call, so every runtime can load it, and
nothing but the rounding of the weights changes the result.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Dtype = Literal["float32", "float16", "int8"]
_MIN_VALUES = 1024
"""Smaller weights, biases and norms among them, stay as they are."""
_LARGEST_INT8 = 127


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
