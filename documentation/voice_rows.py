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


VOICE_ROWS: tuple[VoiceRow, ...] = ()
"""Entries that were not measured yet are left out."""

_TRAINED: dict[Language, str] = {
    "en": "{how}: {steps:,.0f} steps, {minutes:.0f} min on {num_cpus:.0f} core(s)",
    "fa": "{how}: {steps:,.0f} گام، {minutes:.0f} دقیقه روی {num_cpus:.0f} هسته",
}
_MISHEARD: dict[Language, str] = {"en": "{moonshine:.1%}, {whisper:.1%}", "fa": "{moonshine:.1%}، {whisper:.1%}"}
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
        misheard = {name: number(scores[f"word_error_rate_by_{name}"]) for name in ("moonshine", "whisper")}
        similarity = scores.get("similarity")
        yield (
            speech,
            how,
            _MISHEARD[language].format(**misheard),
            f"{number(scores['mos_estimate']):.2f}",
            _NOT_KNOWN if similarity is None else f"{number(similarity):.2f}",
            f"[{row.sample}]({samples}/{row.sample})" if row.sample else _NOT_KNOWN,
        )
