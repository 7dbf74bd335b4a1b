"""What the documentation tells people to run, run in a process of its own on a corpus of seconds."""

from __future__ import annotations

import importlib.util
import io
import os
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.docs.commands import parse_myxtts
from tests.training.trainer_programs import TINY

from myxtts.config.values import format_scalar

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {**TINY, "num_shapes": 1, "enable_graph_mode": False}
"""Sizes only: what is done is what the page says."""
_DATA_KEYS = ("max_bad_share", "n_mels")
_NUM_LAST = 1500


def list_small_settings(command: str) -> list[str]:
    if command not in ("prepare", "precompute", "train"):
        return []
    keys = SMALL if command == "train" else {key: SMALL[key] for key in _DATA_KEYS}
    return _give({key: value for key, value in keys.items() if key not in ("text_frontend", "val_share")})


def _give(settings: dict[str, Any]) -> list[str]:
    return [part for key, value in settings.items() for part in ("--set", f"{key}={format_scalar(value)}")]


_SMALL_FEED = _give({key: SMALL[key] for key in ("text_frontend", "max_bad_share", "n_mels", "reference_s")})


def shrink(words: Sequence[str]) -> list[str]:
    """The same command with so little to do that it takes seconds."""
    words = list(words)
    if "--steps" in words:
        words[words.index("--steps") + 1] = "2"
    if words[:1] == ["synth"]:
        words += ["--ode-steps", "1"]
    return [*words, *list_small_settings(words[0])]


def run_commands(folder: str, commands: list[list[str]]) -> list[tuple[int, str]]:
    """Exit code and last words of each command, in `folder`; those behind one that failed are not tried."""
    os.chdir(folder)
    results: list[tuple[int, str]] = []
    for words in commands:
        has_failed = any(code for code, _ in results)
        results.append((-1, "not tried") if has_failed else run_command(shrink(words)))
    return results


def run_command(words: list[str]) -> tuple[int, str]:
    from myxtts.cli.main import run

    errors = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(errors):
        try:
            run(words)
        except SystemExit as end:
            return int(end.code or 0), errors.getvalue()[-_NUM_LAST:]
    return 0, errors.getvalue()[-_NUM_LAST:]


def run_example(name: str, folder: str, arguments: list[str]) -> tuple[Any, str]:
    """What `main` of an example returns, where that is a number or nothing, and what it prints."""
    os.chdir(folder)
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    printed = io.StringIO()
    with redirect_stdout(printed):
        result = module.main(*arguments)
    return (result if isinstance(result, float) else None), printed.getvalue()


def feed_scenarios(folder: str, commands: list[list[str]]) -> list[dict[str, Any]]:
    """Two batches of each scenario on a machine of four GPUs, which logical CPU devices stand in for."""
    from myxtts.pipeline.open import open_batches
    from myxtts.runtime.hardware import detect_hardware

    os.chdir(folder)
    results = []
    for words in commands:
        config = parse_myxtts((*words, *_SMALL_FEED))
        assert config is not None
        said: list[str] = []
        plan = _choose_plan_of_four_gpus(config, detect_hardware())
        with open_batches(config, plan=plan, steps=2, say=said.append) as batches:
            parts = [part for batch in batches for part in batch.shares or (batch,)]
            devices = sorted({part.mel.device.rpartition("device:")[2] for part in parts})
        results.append({"said": said, "devices": devices, "num_parts": len(parts)})
    return results


def train_on_devices(folder: str, words: list[str]) -> tuple[int, str]:
    """The whole training of a scenario on such a machine."""
    from myxtts.training import trainer

    os.chdir(folder)
    with patch.object(trainer, "choose_plan", _choose_plan_of_four_gpus):
        return run_command([*words, *_give({key: value for key, value in SMALL.items() if key != "batch_size"})])


def _choose_plan_of_four_gpus(config: Any, hardware: Any) -> Any:
    """The plan for such a machine, carried out on devices that exist here: GPU n is CPU n + 1."""
    from myxtts.runtime.hardware import Gpu
    from myxtts.runtime.plan import choose_plan

    gpus = tuple(Gpu(index, "Test GPU", 8 << 30, 8 << 30, f"uuid-{index}", (8, 9), index) for index in range(4))
    plan = choose_plan(config, replace(hardware, gpus=gpus, no_gpu_reason=""))
    places = {f"/GPU:{index}": f"/CPU:{index + 1}" for index in range(4)}
    return replace(
        plan,
        data_device=places.get(plan.data_device, plan.data_device),
        model_devices=tuple(places[name] for name in plan.model_devices),
    )
