"""The measured figures of the documentation, taken from benchmarks/results: none is older than its measurement."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from documentation.words import Language

BEGIN, END = "<!-- figures: made by `make docs` from benchmarks/results -->", "<!-- end of figures -->"
_BLOCK = re.compile(rf"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
_PERSIAN_DIGITS = str.maketrans("0123456789.,", "۰۱۲۳۴۵۶۷۸۹٫٬")


@dataclass(frozen=True, slots=True)
class Figure:
    """A measurement by its suite and name, how its value is written, and what it says in each language."""

    suite: str
    name: str
    show: Callable[[float], str]
    words: dict[Language, str]


def _as_percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _as_factor(value: float) -> str:
    return f"{value:.1f} ×"


FIGURES: tuple[Figure, ...] = (
    Figure(
        "feed",
        "AU of the cached feed by its ceiling at 20 ms",
        _as_percent,
        {
            "en": "of the utilisation that batches already in memory reach (emulated accelerator, 20 ms steps)",
            "fa": "از بهره‌گیری‌ای که با دسته‌های آماده در حافظه ممکن است (شتاب‌دهندهٔ شبیه‌سازی‌شده، گام ۲۰ میلی‌ثانیه)",
        },
    ),
    Figure(
        "feed",
        "AU of the cached feed by its ceiling at 5 ms",
        _as_percent,
        {"en": "the same with 5 ms steps", "fa": "همان، با گام ۵ میلی‌ثانیه"},
    ),
    Figure(
        "feed",
        "step-time variation at 20 ms",
        _as_percent,
        {
            "en": "variation of the step time at 20 ms (standard deviation by mean)",
            "fa": "نوسان زمان گام در ۲۰ میلی‌ثانیه (انحراف معیار بخش بر میانگین)",
        },
    ),
    Figure(
        "loading",
        "recordings to batches on the fly by librosa in numpy_function",
        _as_factor,
        {
            "en": "the utterances per second of `librosa` in `tf.numpy_function`, on the fly",
            "fa": "جمله در ثانیه در برابر `librosa` درون `tf.numpy_function`، در لحظه",
        },
    ),
    Figure(
        "loading",
        "recordings to batches on the fly by two processes with soundfile and scipy",
        _as_factor,
        {
            "en": "the utterances per second of a loader of two processes with soundfile and scipy",
            "fa": "جمله در ثانیه در برابر بارگذاری دوپردازه‌ای با soundfile و scipy",
        },
    ),
    Figure(
        "store",
        "np.load in tf.data, CPU time of tensors by dlpack",
        _as_factor,
        {
            "en": "less CPU time per utterance than one `.npy` file each, read by `np.load` in `tf.data`",
            "fa": "زمان پردازندهٔ کمتر برای هر جمله، در برابر یک پروندهٔ `.npy` با `np.load` در `tf.data`",
        },
    ),
    Figure(
        "store",
        "TFRecord in tf.data, CPU time of tensors by dlpack",
        _as_factor,
        {
            "en": "less CPU time per utterance than TFRecord in `tf.data`",
            "fa": "زمان پردازندهٔ کمتر برای هر جمله، در برابر TFRecord در `tf.data`",
        },
    ),
    Figure(
        "features",
        "host features, WAV to log-mel, CPU time of librosa",
        _as_percent,
        {
            "en": "of the CPU time of `librosa` (one BLAS thread) from WAV to log-mel",
            "fa": "زمان پردازندهٔ `librosa` (با یک رشتهٔ BLAS) از WAV تا log-mel",
        },
    ),
    Figure(
        "monitor",
        "monitor of 8 GPUs (fake NVML)",
        lambda value: f"{value:.2f} %",
        {
            "en": "of one core for `myxtts monitor` on eight GPUs (fake NVML), a look every 2 s",
            "fa": "یک هسته برای `myxtts monitor` روی هشت GPU (NVML ساختگی)، هر ۲ ثانیه یک نگاه",
        },
    ),
    Figure(
        "voice",
        "real-time factor of tiny",
        lambda value: f"{value:.2f}",
        {
            "en": "seconds of work for a second of speech: `tiny`, 8 decoder steps, Griffin-Lim",
            "fa": "ثانیه کار برای یک ثانیه گفتار: `tiny`، ۸ گام رمزگشا، Griffin-Lim",
        },
    ),
    Figure(
        "voice",
        "training step of tiny, by one fed from memory",
        lambda value: f"{value:.2f} ×",
        {
            "en": "the time of the same training step fed from memory: what the pipeline costs",
            "fa": "زمان همان گام آموزش با دسته‌های آماده در حافظه: هزینهٔ خط داده",
        },
    ),
)
"""Suites that were not measured yet are left out."""

_HEADINGS: dict[Language, tuple[str, str, str]] = {
    "en": ("measured", "what", "where it is written down"),
    "fa": ("اندازه‌گیری", "چه چیزی", "کجا نوشته شده"),
}


def has_figures(text: str) -> bool:
    return BEGIN in text


def fill_figures(path: Path, text: str, language: Language, root: Path) -> str:
    """The text of a page with the table between its marks made anew."""
    up = "../" * (len(path.relative_to(root).parts) - 1)
    rows = "\n".join(_make_rows(language, root / "benchmarks" / "results", f"{up}benchmarks/results"))
    first, second, third = _HEADINGS[language]
    table = f"{BEGIN}\n\n| {first} | {second} | {third} |\n|---|---|---|\n{rows}\n\n{END}"
    return _BLOCK.sub(lambda _: table, text)


def _make_rows(language: Language, folder: Path, address: str) -> Iterator[str]:
    for figure in FIGURES:
        path = folder / f"{figure.suite}.json"
        if not path.is_file():
            continue
        value = figure.show(_find(json.loads(path.read_text(encoding="utf-8")), figure))
        shown = value.translate(_PERSIAN_DIGITS).replace("%", "٪") if language == "fa" else value
        yield f"| {shown} | {figure.words[language]} | [{figure.suite}.json]({address}/{figure.suite}.json) |"


def _find(results: dict[str, Any], figure: Figure) -> float:
    found = [one["value"] for one in results["measurements"] if one["name"] == figure.name]
    assert len(found) == 1, f"benchmarks/results/{figure.suite}.json has no measurement {figure.name!r}"
    return float(found[0])
