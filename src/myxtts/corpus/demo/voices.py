"""The speakers of the demo corpus: variants of the espeak-ng voices, each with its own pitch, pace and room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ESPEAK_VOICES = {"en": "en-us", "fa": "fa"}

# Variant, pitch, pitch range, words per minute. Women's and men's voices take turns, the most different first.
_VARIANTS = (
    ("f2", 52, 55, 162),
    ("m3", 42, 52, 158),
    ("f4", 46, 60, 150),
    ("m1", 36, 48, 168),
    ("Annie", 48, 45, 170),
    ("m7", 50, 55, 152),
    ("f3", 60, 52, 164),
    ("Michael", 56, 50, 160),
    ("linda", 42, 50, 156),
    ("m5", 40, 62, 166),
    ("f5", 50, 58, 172),
    ("Andy", 38, 50, 154),
    ("belinda", 44, 48, 160),
    ("Lee", 46, 54, 150),
    ("f1", 54, 50, 168),
    ("m6", 34, 56, 158),
    ("shelby", 50, 54, 152),
    ("Mario", 58, 48, 164),
    ("aunty", 48, 56, 148),
    ("robert", 44, 50, 170),
    ("grandma", 46, 50, 146),
    ("pablo", 52, 52, 162),
    ("m2", 48, 58, 156),
    ("quincy", 40, 46, 160),
)
_NUM_REFLECTIONS = 4


@dataclass(frozen=True, slots=True)
class Speaker:
    """A voice in a room. Reflections are pairs of a delay in seconds and a gain."""

    id: str
    number: int
    language: str
    variant: str
    pitch: int
    pitch_range: int
    rate_wpm: int
    noise_level: float
    reflections: tuple[tuple[float, float], ...]


def choose_speakers(languages: Sequence[str], num_speakers: int, seed: int) -> list[Speaker]:
    """Speakers who take turns in the languages. The first of a language do not depend on how many there are."""
    speakers = []
    for number in range(num_speakers):
        language = languages[number % len(languages)]
        turn = number // len(languages)
        # Another order for each language, so that no two languages share their first voices.
        start = len(_VARIANTS) // len(languages) * (number % len(languages))
        variant, pitch, pitch_range, rate_wpm = _VARIANTS[(start + turn) % len(_VARIANTS)]
        generator = np.random.default_rng([seed, number])
        # A variant that is used again becomes another person by its pitch and pace.
        lap = turn // len(_VARIANTS)
        speakers.append(
            Speaker(
                id=f"{language}{turn + 1:02}",
                number=number,
                language=language,
                variant=variant,
                pitch=pitch + 12 * lap + int(generator.integers(-3, 4)),
                pitch_range=pitch_range + int(generator.integers(-4, 5)),
                rate_wpm=rate_wpm - 12 * lap + int(generator.integers(-5, 6)),
                noise_level=float(10 ** generator.uniform(-3.4, -2.8)),
                reflections=tuple(
                    (float(generator.uniform(0.004, 0.04)), float(generator.uniform(0.02, 0.12)))
                    for _ in range(_NUM_REFLECTIONS)
                ),
            )
        )
    return speakers
