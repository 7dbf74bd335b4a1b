"""Options of synthesis, checked when they are made.

Apart from the synthesiser, because the command line shows the defaults in --help and must not load numpy for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypedDict

from myxtts.config.choices import DEFAULT_NUM_STEPS
from myxtts.errors import ConfigError

SPEED_LIMITS = (0.25, 4.0)
_LIMITS = {
    "speed": SPEED_LIMITS,
    "seconds": (0.1, 3600.0),
    "num_steps": (1, 200),
    "guidance": (0.0, 10.0),
    "noise_scale": (0.0, 2.0),
}
_MAX_SEED = 2**63 - 1
"""The largest int64."""


class SpeechArguments(TypedDict, total=False):
    """The fields of `SpeechOptions` as keyword arguments of a function."""

    speed: float
    seconds: float | None
    seed: int
    num_steps: int
    guidance: float | None
    noise_scale: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechOptions:
    """Settings of one synthesis; None takes the model's default.

    `speed` divides the predicted durations; with `seconds` the whole sound lasts that long instead, to a frame.
    `num_steps` are the Euler steps of the flow-matching decoder; `guidance` above 1 strengthens the conditioning on the
    voice (classifier-free guidance); `noise_scale` is the standard deviation of the noise that sampling starts from.
    """

    speed: float = 1.0
    seconds: float | None = None
    seed: int = 0
    num_steps: int = DEFAULT_NUM_STEPS
    guidance: float | None = None
    noise_scale: float | None = None

    def __post_init__(self) -> None:
        for name, (lowest, highest) in _LIMITS.items():
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and lowest <= value <= highest):
                raise ConfigError(
                    f"{name} is {value}, but it must be from {lowest:g} to {highest:g}.", next_step=f"Change {name}."
                )
        if self.seconds is not None and self.speed != 1.0:
            raise ConfigError("Both speed and seconds are given.", next_step="Give one of them.")
        if not 0 <= self.seed <= _MAX_SEED:
            raise ConfigError(
                f"The seed is {self.seed}, but it must be from 0 to 2**63 - 1.", next_step="Change the seed."
            )
