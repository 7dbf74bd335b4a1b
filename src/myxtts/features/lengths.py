"""How long a spectrogram can be, told from a recording's header: what the store and loading on the fly both know.

Trimming only shortens a recording, so its length before trimming is the most that its spectrogram can have.
"""

from __future__ import annotations

import math

from myxtts.config.schema import DataConfig
from myxtts.features.definition import MelDefinition


def count_resampled(num_samples: int, rate: int, target_rate: int) -> int:
    """How many samples resampling gives: soxr rounds to the nearest, and with these operations."""
    return math.floor(num_samples / (rate / target_rate) + 0.5)


def count_source_frames(num_samples: int, rate: int, mel: MelDefinition) -> int:
    """Mel frames before silence is trimmed; 0 for a stream that does not say how long it is."""
    return mel.count_frames(count_resampled(num_samples, rate, mel.sample_rate)) if num_samples else 0


def count_longest_frames(data: DataConfig) -> int:
    """Mel frames of the longest recording that is accepted, which a stream of unknown length is taken for."""
    return MelDefinition.from_config(data).count_frames(round(data.max_duration_s * data.sample_rate))
