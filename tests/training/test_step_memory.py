"""The calculated memory of a step against XLA's buffer assignment, and the presets of cards against the calculation."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.template_process import ROOT

from myxtts.config.choices import list_presets
from myxtts.config.schema import XTTSConfig
from myxtts.pipeline.order import Shape
from myxtts.training.step_memory import BFLOAT16_BYTES, FLOAT32_BYTES, StepMemory, count_parameters, estimate_memory
from myxtts.training.voice.batch_size import MAX_ON_GPU

GIB, MIB = 2**30, 2**20
USUAL = Shape(1, 800, 128)
"""An utterance of 9 s."""
CARD_GIB = {"rtx4090": 24, "rtx3090": 24, "rtx3060": 12, "a100": 40, "h100": 80}
SMALL_STEP = {
    "text_width": 96,
    "text_layers": 1,
    "decoder_width": 128,
    "decoder_layers": 1,
    "reference_width": 32,
    "reference_layers": 1,
    "num_latents": 4,
    "durations": "stored",
}


def estimate(size: str, compute_bytes: int = BFLOAT16_BYTES, **settings: object) -> StepMemory:
    return estimate_memory(XTTSConfig(model_size=size, **settings), USUAL, compute_bytes)


@pytest.mark.parametrize(("size", "exact"), [("tiny", 3_988_814), ("small", 17_619_926), ("normal", 74_982_426)])
def test_parameters_are_counted_within_two_percent(size: str, exact: int) -> None:
    assert count_parameters(XTTSConfig(model_size=size).model, 80) == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize(
    ("size", "durations", "shape", "compute_bytes", "temporary_mib"),
    [
        ("tiny", "stored", Shape(8, 800, 128), BFLOAT16_BYTES, 75.6),
        ("small", "stored", Shape(32, 800, 128), BFLOAT16_BYTES, 491.5),
        ("small", "search", Shape(32, 800, 128), BFLOAT16_BYTES, 492.4),
        ("small", "stored", Shape(32, 800, 128), FLOAT32_BYTES, 743.3),
        ("small", "stored", Shape(32, 400, 64), BFLOAT16_BYTES, 387.6),
        ("normal", "stored", Shape(32, 800, 128), BFLOAT16_BYTES, 1258.5),
    ],
)
def test_the_calculation_agrees_with_the_gpu_compiler(
    size: str, durations: str, shape: Shape, compute_bytes: int, temporary_mib: float
) -> None:
    """Temporary allocation of a step in XLA's buffer assignment, by its CUDA compiler for an RTX 4090."""
    memory = estimate_memory(XTTSConfig(model_size=size, durations=durations), shape, compute_bytes)
    calculated_mib = (memory.measure(shape.num_utterances) - memory.state) / MIB
    calculated_mib -= shape.num_utterances * memory.waiting_row / MIB
    assert temporary_mib <= calculated_mib <= 1.15 * temporary_mib


def test_float32_takes_more_than_bfloat16_and_long_texts_more_than_short_ones() -> None:
    assert 1.5 < estimate("small", FLOAT32_BYTES).row / estimate("small").row < 2
    shorter = estimate_memory(XTTSConfig(), Shape(1, 400, 64), BFLOAT16_BYTES)
    assert 0.6 < shorter.row / estimate("small").row < 0.9


def test_rows_that_are_counted_fit_and_one_more_does_not() -> None:
    memory = estimate("normal")
    for budget in (3 * GIB, 6 * GIB, 20 * GIB):
        num_rows = memory.count_rows(budget)
        assert memory.measure(num_rows) <= budget < memory.measure(num_rows + 1)
    assert memory.count_rows(GIB) == 0


def test_accumulation_and_batches_that_wait_take_memory() -> None:
    plain = estimate("small")
    assert estimate("small", gradient_accumulation_steps=2).state > plain.state
    assert estimate("small", prefetch_buffer_size=4).waiting_row == 1.5 * plain.waiting_row


def test_every_card_with_a_preset_is_checked() -> None:
    assert set(list_presets("gpu_card")) == set(CARD_GIB)


@pytest.mark.parametrize(("card", "gib"), CARD_GIB.items())
def test_the_preset_of_a_card_fits_with_a_margin_and_is_no_smaller_than_it_need_be(card: str, gib: int) -> None:
    """A third of the memory stays free for CUDA, validation and fragmentation; half of what `auto` takes is used."""
    for size in ("tiny", "small", "normal", *(["big"] if gib >= 24 else [])):
        config = XTTSConfig(model_size=size, gpu_card=card)
        assert isinstance(config.data.batch_size, int)
        assert config.training.gradient_accumulation_steps == 1
        memory = estimate_memory(config, USUAL, BFLOAT16_BYTES)
        assert memory.measure(config.data.batch_size) < 2 / 3 * gib * GIB, size
        if size == "normal":
            most = min(MAX_ON_GPU, memory.count_rows(int(0.8 * gib * GIB)))
            assert most / 2 <= config.data.batch_size <= most


@pytest.mark.parametrize("size", list_presets("model_size"))
def test_the_page_has_the_calculated_figures(size: str) -> None:
    memory, exact = estimate(size), estimate(size, FLOAT32_BYTES)
    rows = [(one.row + one.waiting_row) / MIB for one in (memory, exact)]
    totals = " | ".join(f"{memory.measure(num_rows) / GIB:.1f} GB" for num_rows in (64, 96, 128))
    page = (ROOT / "docs" / "en" / "training.md").read_text("utf-8")
    assert f"{rows[0]:.0f} MB ({rows[1]:.0f}) | {totals} |" in page


def read_temporary_bytes(folder: Path, process: subprocess.Popen[bytes]) -> int:
    """Bytes of the temporary allocation of a step, as soon as XLA has written its buffer assignment.

    XLA writes it before it generates code, which would take most of the time.
    """
    for _ in range(6000):
        for file in folder.glob("*buffer-assignment.txt"):
            text = file.read_text()
            if "BufferLiveRange" in text:
                sizes = re.findall(r"^allocation \d+: size (\d+), preallocated-temp", text, re.MULTILINE)
                return sum(map(int, sizes))
        assert process.poll() is None, "the compiler ended without a buffer assignment"
        time.sleep(0.1)
    raise AssertionError("no buffer assignment was written")


def test_the_activations_of_a_compiled_step_grow_as_calculated(tmp_path: Path) -> None:
    """On a CPU in float32. Its compiler fuses less than that for GPUs: a row takes a fifth more than is calculated."""
    batches, sizes = (8, 24), []
    program = "from tests.training.step_memory_programs import compile_step; compile_step({}, {!r}, {!r})"
    processes = {}
    try:
        for batch in batches:
            command = [sys.executable, "-c", program.format(batch, SMALL_STEP, str(tmp_path / str(batch)))]
            processes[batch] = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        sizes = [read_temporary_bytes(tmp_path / str(batch), processes[batch]) for batch in batches]
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    row = (sizes[1] - sizes[0]) / (batches[1] - batches[0])
    memory = estimate_memory(XTTSConfig(**SMALL_STEP), Shape(1, 200, 64), FLOAT32_BYTES)
    assert row / memory.row == pytest.approx(1.2, rel=0.2), sizes
