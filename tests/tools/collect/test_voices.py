"""Pieces of other voices are found by what differs between pieces, compared with what differs within them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import RATE_HZ, synthesize_clip
from tests.synthesis.small_models import write_small_bundle

from myxtts.tools.collect.voices import Voices, measure_strangeness, measure_voices
from myxtts.types import Waveform

NUM_OWN, NUM_FEATURES = 60, 32


def make_voices(num_other: int, noise: float = 0.0) -> Voices:
    """Pieces of one voice, then of others. Every second piece is moved by noise, which the noisy halves have, too."""
    draw = np.random.default_rng(0)
    own, noisy, *others = draw.standard_normal((2 + num_other, NUM_FEATURES))
    speakers = np.array([own] * NUM_OWN + others)
    moved = noise * noisy
    speakers[::2] += moved
    halves = speakers[:, None] + 0.5 * draw.standard_normal((len(speakers), 4, NUM_FEATURES))
    halves[1::2, 2:] += moved
    return Voices(halves[:, :2].mean(axis=1), halves)


@pytest.mark.parametrize("noise", [0.0, 2.0])
@pytest.mark.parametrize("num_other", [0, 1, 12])
def test_other_voices_are_found_in_quiet_and_in_noisy_pieces(num_other: int, noise: float) -> None:
    strangeness = measure_strangeness(make_voices(num_other, noise))
    assert (strangeness[NUM_OWN:] > 1).all()
    assert np.count_nonzero(strangeness[:NUM_OWN] > 1) <= 3


def test_few_pieces_have_no_main_voice() -> None:
    voices = make_voices(0)
    assert not measure_strangeness(Voices(voices.whole_NF[:19], voices.halves_NHF[:19])).any()


def test_the_same_sound_has_the_same_voice(tmp_path: Path) -> None:
    bundle = write_small_bundle(tmp_path / "small")

    def read() -> Iterator[Waveform]:
        for seed in (1, 2, 1):
            yield Waveform(synthesize_clip(2.5, seed=seed), RATE_HZ)

    voices = measure_voices(bundle, read)
    np.testing.assert_allclose(voices.whole_NF[0], voices.whole_NF[2], atol=1e-5)
    assert np.abs(voices.whole_NF[0] - voices.whole_NF[1]).max() > 1e-4
    assert voices.halves_NHF.shape == (3, 4, voices.whole_NF.shape[1])
