"""A process of its own whose CPU is split into logical devices, which stand in for GPUs.

How TensorFlow sees its devices is settled once per process, so no test may do it in the process that runs the tests.
The process has TensorFlow imported and serves one call after another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[1]


class DeviceProcess:
    """Runs functions of test programs by name; use it as a context."""

    def __init__(self, num_devices: int = 4, environment: Mapping[str, str] | None = None) -> None:
        self._num_devices = num_devices
        self._environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **(environment or {})}

    def __enter__(self) -> Self:
        self._start()
        return self

    def _start(self) -> None:
        program = f"from tests.device_process import serve; serve({self._num_devices})"
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, function: str, **arguments: Any) -> Any:
        """What `function` ("package.module:name") returns there; AssertionError with the trace if it raises."""
        if self._process.poll() is not None:
            self._start()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([function, arguments]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the process ended with {self._process.wait()}"
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
