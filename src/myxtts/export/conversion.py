"""Conversion of TensorFlow functions to ONNX by tf2onnx, and joining of the graphs; needs the extra `export`.

A `Part` is a function with named inputs and outputs; axes of unknown length are None in its input shapes. `join` puts
converted parts behind each other: an input is the output of an earlier part of the same name, or an input of the whole.
Loops and branches are built here, because tf2onnx would carry every weight through them as a loop variable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from myxtts.errors import MissingExtraError

OPSET = 17
"""Of the graphs: known to onnxruntime since 1.12, to onnxruntime-web and to sherpa-onnx."""
IR_VERSION = 8
"""The file format that belongs to this opset; older runtimes refuse newer ones."""


@dataclass(frozen=True)
class Part:
    """A function of tensors that becomes ONNX operators.

    `inputs` are names, dtypes and shapes of its arguments in order; `outputs` the names of the tuple that it returns.
    """

    name: str
    function: Callable[..., tuple[Any, ...]]
    inputs: tuple[tf.TensorSpec, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Loop:
    """A part that is repeated `count` times; `count` names an int64 tensor [].

    Its inputs `carried` are the outputs `{name}_next` of the time before; the last ones are called `{name}_end`. Its
    input `step`, int32 [], counts from 0.
    """

    body: Part
    count: str
    carried: tuple[str, ...]


@dataclass(frozen=True)
class Branch:
    """Two loops with the same carried tensors; `condition` names a bool tensor [] that chooses the first."""

    condition: str
    first: Loop
    second: Loop


@dataclass(frozen=True)
class Graph:
    """Stages that run one behind the other, and the inputs and outputs of the whole."""

    name: str
    stages: tuple[Part | Loop | Branch, ...]
    inputs: tuple[tf.TensorSpec, ...]
    outputs: tuple[str, ...]


def convert(graph: Graph) -> Any:
    """Returns a graph as an `onnx.ModelProto`.

    Raises MissingExtraError where tf2onnx is not installed.
    """
    with explain_missing_extra():
        import onnx

        from myxtts.export.joining import Joiner
    joiner = Joiner()
    for stage in graph.stages:
        if isinstance(stage, Part):
            joiner.add(convert_part(stage), stage.name)
        elif isinstance(stage, Loop):
            joiner.add_loop(stage.count, *_convert_loop(stage))
        else:
            loops = [(one.count, *_convert_loop(one)) for one in (stage.first, stage.second)]
            joiner.add_branch(stage.condition, *loops)
    model = joiner.finish(graph.name, graph.inputs, graph.outputs)
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model, full_check=True)
    return model


def _convert_loop(loop: Loop) -> tuple[Any, str, tuple[str, ...]]:
    return convert_part(loop.body), loop.body.name, loop.carried


def convert_part(part: Part) -> Any:
    """Returns one part as an `onnx.ModelProto`; lengths that are None in its inputs stay free."""
    with explain_missing_extra():
        from tf2onnx.convert import from_function

    def run(*tensors: Any) -> dict[str, Any]:
        results = part.function(*tensors)
        assert len(results) == len(part.outputs), f"{part.name} gives {len(results)} tensors"
        return {name: tf.identity(tensor) for name, tensor in zip(part.outputs, results, strict=True)}

    function = tf.function(run, input_signature=part.inputs, autograph=False)
    with _refuse_complaints(part.name):
        model, _ = from_function(function, input_signature=list(part.inputs), opset=OPSET)
    assert {one.name for one in model.graph.output} == set(part.outputs), [one.name for one in model.graph.output]
    return model


@contextmanager
def explain_missing_extra() -> Iterator[None]:
    """Raises MissingExtraError for an ImportError of the packages that exporting needs."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(
            f"Models cannot be exported, because {error.name or 'tf2onnx'} is not installed.",
            next_step="Install it: pip install 'myxtts[train,export]'.",
        ) from error


class _Complaints(logging.Handler):
    """Collects the errors that tf2onnx only logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def _refuse_complaints(name: str) -> Iterator[None]:
    """Silences the notes of tf2onnx; an error that it logs, and goes on after, fails here."""
    logger, complaints = logging.getLogger("tf2onnx"), _Complaints()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(complaints)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(complaints)
        logger.setLevel(level)
        logger.propagate = propagate
    assert not complaints.messages, f"tf2onnx cannot convert {name}: {complaints.messages[0]}"
