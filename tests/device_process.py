"""A process of its own whose CPU is split into logical devices, which stand in for GPUs.

How TensorFlow sees its devices is settled once per process, so no test may do it in the process that runs the tests.
The process has TensorFlow imported and serves one call after another.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Self

from tests.template_process import start_forked


class DeviceProcess:
    """Runs functions of test programs by name; use it as a context."""

    def __init__(self, num_devices: int = 4, environment: Mapping[str, str] | None = None) -> None:
        self._num_devices = num_devices
        self._environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **(environment or {})}

    def __enter__(self) -> Self:
        self._process = start_forked(
            "tests.device_process:serve", {"num_devices": self._num_devices}, self._environment
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def run(self, function: str, **arguments: Any) -> Any:
        """What `function` ("package.module:name") returns there; AssertionError with the trace if it raises."""
        self._process.stdin.write(json.dumps([function, arguments]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process ended"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["result"]


def split_cpu(num_devices: int) -> None:
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * num_devices)


def serve(num_devices: int) -> None:
    """Takes calls from standard input until it ends."""
    if num_devices > 1:
        split_cpu(num_devices)
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as answers:
        # Whatever else is printed must not mix with the answers.
        sys.stdout = sys.stderr
        for line in sys.stdin:
            function, arguments = json.loads(line)
            print(json.dumps(_answer(function, arguments)), file=answers, flush=True)


def _answer(function: str, arguments: dict[str, Any]) -> dict[str, Any]:
    module, _, name = function.partition(":")
    try:
        return {"result": getattr(import_module(module), name)(**arguments)}
    except BaseException:  # noqa: BLE001 - the test that asked shall see whatever it was
        return {"error": traceback.format_exc()}
