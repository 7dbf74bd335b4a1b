"""Programs for test_multi_gpu, run in a process whose CPU is split: device 1 makes features, 2 and 3 train."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.copies import measure_copies_per_batch
from myxtts.config.schema import XTTSConfig
from myxtts.pipeline.open import open_batches
from myxtts.runtime.hardware import Gpu, detect_hardware
from myxtts.runtime.plan import CPU_DEVICE, Mode, Plan, choose_plan

DATA_DEVICE, MODEL_DEVICES = "/CPU:1", ("/CPU:2", "/CPU:3")


def make_plan(config: XTTSConfig) -> Plan:
    """The plan for a machine with three GPUs, carried out on devices that exist here."""
    gpus = tuple(Gpu(index, "Test GPU", 8 << 30, 8 << 30, f"uuid-{index}", (8, 9), index) for index in range(3))
    plan = choose_plan(config, replace(detect_hardware(), gpus=gpus, no_gpu_reason=""))
    devices = MODEL_DEVICES[: len(plan.model_devices)]
    return replace(plan, data_device=DATA_DEVICE if plan.mode is Mode.MULTI_GPU else CPU_DEVICE, model_devices=devices)


def run_split(settings: dict[str, Any], model_gpu: str, **options: Any) -> dict[str, Any]:
    config = XTTSConfig(**settings, data_gpu=0, model_gpu=model_gpu)
    said: list[str] = []
    plan = make_plan(config)
    ids, devices, mels, first_s = [], set(), [], 0.0
    with open_batches(config, plan=plan, say=said.append, **options) as batches:
        started = time.monotonic()
        for batch in batches:
            first_s = first_s or time.monotonic() - started
            parts = batch.shares or (batch,)
            ids.append([id for part in parts for id in part.ids])
            devices.add(tuple(part.mel.device.rpartition("device:")[2] for part in parts))
            mels.append(float(np.sum([part.mel.numpy().sum() for part in parts])))
        stats = batches.stats()
    return {
        "mode": plan.mode,
        "ids": ids,
        "devices": sorted(devices),
        "sums": mels,
        "said": said,
        "stages": sorted(stats.mean_stage_s),
        "first_s": first_s,
    }


def run_host(settings: dict[str, Any], **options: Any) -> dict[str, Any]:
    with open_batches(XTTSConfig(**settings), framework="numpy", **options) as batches:
        seen = [(list(batch.ids), float(batch.mel.sum())) for batch in batches]
    return {"ids": [ids for ids, _ in seen], "sums": [total for _, total in seen]}


def count_copies(settings: dict[str, Any], model_gpu: str) -> dict[str, float]:
    """Copies per batch to each device, on the whole way from the host's memory to the model."""
    config = XTTSConfig(**settings, data_gpu=0, model_gpu=model_gpu)
    with open_batches(config, plan=make_plan(config), steps=8) as batches:
        return measure_copies_per_batch(batches)
