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
    """An entry of the results: whose speech it is, how the voice was made, and the sample to hear, if there is one."""

    entry: str
    words: dict[Language, tuple[str, str]]
    sample: str = ""


_NOT_DEFAULT = "--set training.start_pull=0.01 --set training.bundle_weights=best"
"""Settings of one training that are not the defaults."""
VOICE_ROWS: tuple[VoiceRow, ...] = (
    VoiceRow(
        "human-1-adapt",
        {
            "en": ("A woman who recorded telephone prompts, 16 kHz: 1 minute", "`--init-from base`"),
            "fa": ("زنی که پیام‌های تلفنی ضبط کرده، ۱۶ کیلوهرتز: ۱ دقیقه", "`--init-from base`"),
        },
    ),
    VoiceRow(
        "human-5-adapt",
        {
            "en": ("The same voice: 5 minutes", "`--init-from base`"),
            "fa": ("همان صدا: ۵ دقیقه", "`--init-from base`"),
        },
    ),
    VoiceRow(
        "human-34-mixed",
        {
            "en": ("An actor in a computer game, 11 kHz, 8 bit: 34 minutes", "`--init-from base --minutes 13`"),
            "fa": ("بازیگر یک بازی کامپیوتری، ۱۱ کیلوهرتز، ۸ بیت: ۳۴ دقیقه", "`--init-from base --minutes 13`"),
        },
    ),
    VoiceRow(
        "human-34-adapt",
        {
            "en": ("The same 34 minutes", "`--init-from base --adapt voice`"),
            "fa": ("همان ۳۴ دقیقه", "`--init-from base --adapt voice`"),
        },
    ),
    VoiceRow(
        "human-34-base",
        {
            "en": ("The same 34 minutes", "`--init-from base --minutes 30 --set training.start_mix=0`"),
            "fa": ("همان ۳۴ دقیقه", "`--init-from base --minutes 30 --set training.start_mix=0`"),
        },
    ),
    VoiceRow(
        "human-34-scratch",
        {
            "en": ("The same 34 minutes", "from scratch: `--model-size tiny --minutes 30`"),
            "fa": ("همان ۳۴ دقیقه", "از صفر: `--model-size tiny --minutes 30`"),
        },
    ),
    VoiceRow(
        "synthetic-5-adapt",
        {
            "en": ("A synthesiser (Pico, British English), 16 kHz: 5 minutes", "`--init-from base`"),
            "fa": ("یک موتور TTS (Pico، انگلیسی بریتانیایی)، ۱۶ کیلوهرتز: ۵ دقیقه", "`--init-from base`"),
        },
        "voice-5-minutes.mp3",
    ),
    VoiceRow(
        "synthetic-120-mixed",
        {
            "en": ("The same synthesiser: 2 hours", f"`--init-from base --minutes 20 {_NOT_DEFAULT}`"),
            "fa": ("همان موتور TTS: ۲ ساعت", f"`--init-from base --minutes 20 {_NOT_DEFAULT}`"),
        },
        "voice-2-hours.mp3",
    ),
    VoiceRow(
        "synthetic-120-base",
        {
            "en": ("The same 2 hours", "`--init-from base --minutes 25 --set training.start_mix=0`"),
            "fa": ("همان ۲ ساعت", "`--init-from base --minutes 25 --set training.start_mix=0`"),
        },
    ),
    VoiceRow(
        "synthetic-itself",
        {
            "en": ("The synthesiser's own speech", "none"),
            "fa": ("گفتار خود موتور TTS", "بدون آموزش"),
        },
        "voice-of-the-synthesiser.mp3",
    ),
)
"""Entries that were not measured yet are left out."""

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
        speech, how = row.words[language]
        if training is not None:
            how = _TRAINED[language].format(
                how=how, **{key: number(training[key]) for key in ("steps", "minutes", "num_cpus")}
            )
        misheard = {name: number(100 * scores[f"word_error_rate_by_{name}"]) for name in ("moonshine", "whisper")}
        similarity = scores.get("similarity")
        yield (
            speech,
            how,
            _MISHEARD[language].format(**misheard),
            f"{number(scores['mos_estimate']):.2f}",
            _NOT_KNOWN if similarity is None else f"{number(similarity):.2f}",
            f"[{row.sample}]({samples}/{row.sample})" if row.sample else _NOT_KNOWN,
        )
