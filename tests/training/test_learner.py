"""Which device decides on the numbers of a step, and which errors mean that its memory is exhausted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.device_process import DeviceProcess

OLD, NEW, NEWER = (7, 5), (8, 6), (8, 9)


@pytest.fixture(scope="module")
def process() -> Iterator[DeviceProcess]:
    with DeviceProcess(1) as process:
        yield process


@pytest.mark.parametrize(
    ("capabilities", "settings", "expected"),
    [
        ([OLD, NEW], {"data_gpu": 0, "model_gpu": 1}, NEW),
        ([NEW, OLD], {"data_gpu": 0, "model_gpu": 1}, OLD),
        ([NEWER, OLD, NEW], {"data_gpu": 1, "model_gpu": "0,2"}, NEW),
        ([NEW, OLD], {"multi_gpu": True}, OLD),
        ([NEW, None], {"multi_gpu": True}, None),
        ([OLD, NEWER], {"visible_gpus": "1"}, NEWER),
    ],
)
def test_the_weakest_of_the_gpus_that_train_decides_on_bfloat16(
    process: DeviceProcess, capabilities: list[Any], settings: dict[str, Any], expected: tuple[int, int] | None
) -> None:
    found = process.run("tests.runtime.fake_gpus:detect_training_device", capabilities=capabilities, **settings)
    assert found == (list(expected) if expected else None)


def test_exhausted_memory_is_recognised_in_the_words_of_every_library(process: DeviceProcess) -> None:
    exhausted = [
        "Blas xGEMM launch failed: CUBLAS_STATUS_ALLOC_FAILED",
        "Failed to create cuBLAS handle: cublas error",
        "Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED",
        "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "NCCL operation ncclAllReduce failed: unhandled cuda error: out of memory",
        "Autotuning failed for HLO: %fusion.12 with error: not enough memory",
        "RESOURCE_EXHAUSTED: Failed to allocate request for 1.5GiB on device ordinal 0",
    ]
    others = ["Invalid argument: shapes differ", "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access", ""]
    judged = process.run("tests.training.programs:judge_errors", messages=exhausted + others)
    assert judged == [True] * len(exhausted) + [False] * len(others)
