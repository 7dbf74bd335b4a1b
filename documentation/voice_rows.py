"""Rows of the table that says what how much speech of a voice gives, from benchmarks/results/adaptation.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from documentation.words import Language


@dataclass(frozen=True, slots=True)
class VoiceRow:
    """An entry of the results: whose speech it is, in two languages, the options of its training, and a sample."""

    entry: str
    en: str
    fa: str
    options: str | None
    """As a user gives them today: defaults of the time of the training that have changed are among them."""
    sample: str = ""


_NOT_DEFAULT = "--set training.start_pull=0.01 --set training.bundle_weights=best"
_UNMIXED = "--set training.start_mix=0"
VOICE_ROWS: tuple[VoiceRow, ...] = (
    VoiceRow(
        "human-1-adapt",
        "A woman who recorded telephone prompts, 16 kHz: 1 minute",
        "زنی که پیام‌های تلفنی ضبط کرده، ۱۶ کیلوهرتز: ۱ دقیقه",
        "--init-from base",
    ),
    VoiceRow("human-5-adapt", "The same voice: 5 minutes", "همان صدا: ۵ دقیقه", "--init-from base"),
    VoiceRow(
        "human-5-minutes-10",
        "5 other minutes of the same voice",
        "۵ دقیقهٔ دیگر از همان صدا",
        "--init-from base --minutes 10",
    ),
    VoiceRow(
        "human-34-mixed",
        "An actor in a computer game, 11 kHz, 8 bit: 34 minutes",
        "بازیگر یک بازی کامپیوتری، ۱۱ کیلوهرتز، ۸ بیت: ۳۴ دقیقه",
        "--init-from base --minutes 13",
    ),
    VoiceRow("human-34-adapt", "The same 34 minutes", "همان ۳۴ دقیقه", "--init-from base --adapt voice"),
    VoiceRow("human-34-base", "The same 34 minutes", "همان ۳۴ دقیقه", f"--init-from base --minutes 30 {_UNMIXED}"),
    VoiceRow("human-34-scratch", "The same 34 minutes", "همان ۳۴ دقیقه", "--model-size tiny --minutes 30"),
    VoiceRow(
        "human-75-mixed",
        "Another actor in a computer game, 11 kHz, MP3: 75 minutes",
        "بازیگری دیگر در یک بازی کامپیوتری، ۱۱ کیلوهرتز، MP3: ۷۵ دقیقه",
        "--init-from base --minutes 60",
    ),
    VoiceRow("human-75-scratch", "The same 75 minutes", "همان ۷۵ دقیقه", "--model-size tiny --minutes 60"),
    VoiceRow(
        "synthetic-5-adapt",
        "A synthesiser (Pico, British English), 16 kHz: 5 minutes",
        "یک موتور TTS (Pico، انگلیسی بریتانیایی)، ۱۶ کیلوهرتز: ۵ دقیقه",
        "--init-from base",
        "voice-5-minutes.mp3",
    ),
    VoiceRow(
        "synthetic-34-mixed",
        "The same synthesiser: 34 minutes",
        "همان موتور TTS: ۳۴ دقیقه",
        "--init-from base --minutes 15",
        "voice-34-minutes.mp3",
    ),
    VoiceRow(
        "synthetic-120-mixed",
        "The same synthesiser: 2 hours",
        "همان موتور TTS: ۲ ساعت",
        f"--init-from base --minutes 20 {_NOT_DEFAULT}",
        "voice-2-hours.mp3",
    ),
    VoiceRow("synthetic-120-base", "The same 2 hours", "همان ۲ ساعت", f"--init-from base --minutes 25 {_UNMIXED}"),
    VoiceRow(
        "synthetic-itself", "The synthesiser's own speech", "گفتار خود موتور TTS", None, "voice-of-the-synthesiser.mp3"
    ),
)
"""Entries that were not measured yet are left out."""

_HOW: dict[Language, dict[str, str]] = {
    "en": {"base": "`{options}`", "scratch": "from scratch: `{options}`", "none": "none"},
    "fa": {"base": "`{options}`", "scratch": "از صفر: `{options}`", "none": "بدون آموزش"},
}
_TRAINED: dict[Language, str] = {
    "en": "{how}; {steps:,.0f} steps in {minutes:.0f} min, cores: {num_cpus:.0f}",
    "fa": "{how}؛ {steps:,.0f} گام در {minutes:.0f} دقیقه روی {num_cpus:.0f} هسته",
}
_MISHEARD: dict[Language, str] = {
    "en": "{moonshine:.1f} %, {whisper:.1f} %",
    "fa": "{moonshine:.1f}٪، {whisper:.1f}٪",
}
_NOT_KNOWN = "-"


def make_voice_rows(
    language: Language, path: Path, samples: str, number: Callable[[Any], Any]
) -> Iterator[tuple[str, ...]]:
    """Cells of each row; `samples` is the address of the folder of samples, `number` writes numbers."""
    entries = {one["name"]: one for one in json.loads(path.read_text(encoding="utf-8"))["entries"]}
    for row in VOICE_ROWS:
        if row.entry not in entries:
            continue
        scores, training = entries[row.entry]["scores"], entries[row.entry]["training"]
        how = _describe_options(row.options, language)
        if training is not None:
            how = _TRAINED[language].format(
                how=how, **{key: number(training[key]) for key in ("steps", "minutes", "num_cpus")}
            )
        misheard = {name: number(100 * scores[f"word_error_rate_by_{name}"]) for name in ("moonshine", "whisper")}
        similarity = scores.get("similarity")
        yield (
            {"en": row.en, "fa": row.fa}[language],
            how,
            _MISHEARD[language].format(**misheard),
            f"{number(scores['mos_estimate']):.2f}",
            _NOT_KNOWN if similarity is None else f"{number(similarity):.2f}",
            f"[{row.sample}]({samples}/{row.sample})" if row.sample else _NOT_KNOWN,
        )


def _describe_options(options: str | None, language: Language) -> str:
    """How a voice was made: from the base model, from scratch, or without a training."""
    if options is None:
        return _HOW[language]["none"]
    return _HOW[language]["base" if "--init-from" in options else "scratch"].format(options=options)
