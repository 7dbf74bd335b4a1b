"""A step trains the vocoder alone, then discriminators and vocoder, the same however its segments are spread."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import pytest
from tests.device_process import DeviceProcess
from tests.training.vocoder_programs import NUM_WARM_STEPS, Run, flatten, make_segments, train


def assert_same(result: dict[str, Any], expected: dict[str, Any], tolerance: float = 1e-5) -> None:
    for name in ("vocoder", "discriminators"):
        np.testing.assert_allclose(result[name], expected[name], rtol=0, atol=tolerance)
    assert result["scalars"] == pytest.approx(expected["scalars"], rel=1e-3)


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    """Three steps, the last of them with discriminators."""
    return train(3, graph=False)


def test_discriminators_wait_until_the_vocoder_is_warm() -> None:
    run = Run(graph=False)
    discriminators = flatten(run.discriminators)
    for step in range(NUM_WARM_STEPS):
        assert "discriminator_loss" not in run.train(make_segments(step), step)
    assert flatten(run.discriminators) == discriminators
    vocoder = flatten(run.vocoder)
    scalars = run.train(make_segments(9), NUM_WARM_STEPS)
    assert {"loss", "mel", "stft", "adversarial", "features", "discriminator_loss", "is_finite"} <= set(scalars)
    assert flatten(run.discriminators) != discriminators
    assert flatten(run.vocoder) != vocoder


def test_reconstruction_improves_without_discriminators() -> None:
    run = Run(num_warm_steps=100)
    mel = [float(run.train(make_segments(step % 2), step)["mel"]) for step in range(40)]
    assert np.mean(mel[-4:]) < 0.8 * np.mean(mel[:4])
    assert int(run.optimizers[0].iterations.numpy()) == 40


def test_a_graph_does_what_the_eager_step_does(plain: dict[str, Any]) -> None:
    assert_same(train(3), plain)


def test_a_compiled_step_does_it_too() -> None:
    warm = train(1, graph=False)
    assert_same(train(1, jit_compile=True), warm, tolerance=1e-4)


def test_the_same_steps_give_the_same_bits(plain: dict[str, Any]) -> None:
    assert train(3, graph=False) == plain


def test_micro_batches_add_up_to_the_whole(plain: dict[str, Any]) -> None:
    assert_same(train(3, graph=False, accumulation_steps=2), plain)


def test_segments_that_fill_the_shape_teach_nothing() -> None:
    expected = train(3, graph=False, num_real=2, num_segments=4)
    run = Run(sgd=1e-3, graph=False)
    for step in range(3):
        run.train({name: value[:2] for name, value in make_segments(step, 4, 2).items()}, step)
    np.testing.assert_allclose(flatten(run.vocoder), expected["vocoder"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(flatten(run.discriminators), expected["discriminators"], rtol=0, atol=1e-5)


def test_a_segment_that_is_not_a_number_changes_nothing() -> None:
    run = Run(graph=False)
    before = flatten(run.vocoder), flatten(run.discriminators)
    segments = make_segments(0)
    segments["samples"][1, 5] = np.nan
    assert not bool(run.train(segments, NUM_WARM_STEPS)["is_finite"])
    assert (flatten(run.vocoder), flatten(run.discriminators)) == before
    assert [int(optimizer.iterations.numpy()) for optimizer in run.optimizers] == [0, 0]


def test_half_precision_trains(plain: dict[str, Any]) -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        half = train(3, graph=False)
    finally:
        keras.config.set_dtype_policy("float32")
    assert half["scalars"]["is_finite"] == 1
    assert half["scalars"]["mel"] == pytest.approx(plain["scalars"]["mel"], rel=0.05)


def test_mirrored_devices_share_the_work(plain: dict[str, Any]) -> None:
    with DeviceProcess(4) as process:
        mirrored = process.run("tests.training.vocoder_programs:train", num_steps=3, strategy="mirrored", graph=False)
        moved = process.run("tests.training.vocoder_programs:transfer", devices=["/CPU:2", "/CPU:3"])
    assert_same(mirrored, plain)
    # The feed brings each device its rows, so that the step finds them there.
    assert moved == {"devices": ["CPU:2", "CPU:3"], "are_equal": True}
