"""What a header says of a recording is enough to know how many frames it has before trimming."""

from __future__ import annotations

import numpy as np
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from myxtts.config.schema import DataConfig
from myxtts.features.definition import MelDefinition
from myxtts.features.lengths import count_longest_frames, count_resampled, count_source_frames

RATES = st.sampled_from([8000, 11_025, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000])


@settings(max_examples=100, deadline=None)
@given(num_samples=st.integers(1, 60_000), rate=RATES, target=RATES)
def test_resampling_gives_as_many_samples_as_counted(num_samples: int, rate: int, target: int) -> None:
    resampled = soxr.resample(np.zeros(num_samples, np.float32), rate, target, quality="HQ")
    assert count_resampled(num_samples, rate, target) == (num_samples if rate == target else len(resampled))


def test_a_stream_that_does_not_say_how_long_it_is_has_no_length_but_a_longest() -> None:
    data = DataConfig(max_duration_s=2.0)
    mel = MelDefinition.from_config(data)
    assert count_source_frames(0, 44_100, mel) == 0
    assert count_source_frames(2 * 44_100, 44_100, mel) == count_longest_frames(data) == 1 + 44_100 // 256
