"""Recordings made for the tests: sentences spoken by espeak-ng, with pauses and noise, whose places are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr

from myxtts.text.espeak import synthesize

ENGLISH = (
    "The river was higher than anyone could remember.",
    "She put the letters back into the wooden box.",
    "After the storm, the children found a small grey bird.",
    "Nobody asked why the train had stopped in the forest.",
    "He speaks seven languages, and sings in two of them.",
    "My brother repairs old clocks behind the market.",
    "We walked along the beach until the lamps went out.",
    "The museum opens at nine on every day but Monday.",
    "Fresh bread and strong coffee were waiting for us.",
    "The last question was the hardest of them all.",
)
PERSIAN = (
    "باران از دیشب تا امروز صبح بارید.",
    "او نامه‌ها را در جعبهٔ چوبی گذاشت.",
    "بچه‌ها در باغ پرندهٔ کوچکی پیدا کردند.",
    "قطار در میان جنگل ناگهان ایستاد.",
    "برادرم پشت بازار ساعت تعمیر می‌کند.",
    "موزه هر روز به جز دوشنبه باز است.",
    "نان تازه و چای داغ روی میز بود.",
    "آخرین پرسش از همه دشوارتر بود.",
)
RATE_HZ = 22_050
PAUSES_S = (0.45, 0.8, 0.6, 1.4)


@dataclass(frozen=True)
class SpokenBook:
    """A recording, and where each sentence begins and ends in it."""

    samples: np.ndarray[tuple[int], np.dtype[np.float32]]
    places: list[tuple[float, float]]

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, self.samples, RATE_HZ)
        return path


def speak(sentences: Sequence[str], language: str, *, variant: str = "f3", noise: float = 0.001) -> SpokenBook:
    """Speaks sentences one after the other, with pauses of different lengths between them."""
    parts = [np.zeros(int(0.7 * RATE_HZ), np.float32)]
    places = []
    position = len(parts[0])
    for number, sentence in enumerate(sentences):
        spoken = synthesize(sentence, language, variant=variant, rate_wpm=140 + 6 * (number % 4))
        sound = 0.5 * soxr.resample(spoken.samples, spoken.rate, RATE_HZ)
        loud = np.flatnonzero(np.abs(sound) > 0.01)
        sound = sound[loud[0] : loud[-1] + 1].astype(np.float32)
        pause = np.zeros(int(PAUSES_S[number % len(PAUSES_S)] * RATE_HZ), np.float32)
        parts += [sound, pause]
        places.append((position / RATE_HZ, (position + len(sound)) / RATE_HZ))
        position += len(sound) + len(pause)
    samples = np.concatenate(parts)
    samples += noise * np.random.default_rng(0).standard_normal(len(samples)).astype(np.float32)
    return SpokenBook(samples, places)
