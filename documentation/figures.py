"""Tables of measured and computed figures, made from benchmarks/results: none is older than its measurement."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from documentation.voice_rows import make_voice_rows
from documentation.words import Language

_BLOCK = re.compile(
    r"(?P<begin><!-- (?P<name>figures|sizes|voices): made by make docs from \S+ -->).*?"
    r"(?P<end><!-- end of (?P=name) -->)",
    re.DOTALL,
)
_PERSIAN_DIGITS = str.maketrans("0123456789.,%", "۰۱۲۳۴۵۶۷۸۹٫٬٪")


class _PersianNumber(float):
    """A number that is written in Persian digits."""

    def __format__(self, spec: str) -> str:
        return super().__format__(spec).translate(_PERSIAN_DIGITS)


@dataclass(frozen=True, slots=True)
class Figure:
    """A row: the measurement it is taken from, what it measures, our figure, and what it is compared with.

    `note` finds further numbers in the note of the measurement, by name; `value` is the measurement itself.
    """

    suite: str
    name: str
    note: str
    rows: dict[Language, tuple[str, str, str]]


FIGURES: tuple[Figure, ...] = (
    Figure(
        "feed",
        "AU of the cached feed by its ceiling at 20 ms",
        r"AU (?P<au>[\d.]+), ceiling (?P<ceiling>[\d.]+)",
        {
            "en": (
                "Busy time of a simulated accelerator, 20 ms steps, cached features",
                "{au:.1%}",
                "{ceiling:.1%} with all batches already in RAM",
            ),
            "fa": (
                "درصد زمانی که شتاب‌دهندهٔ شبیه‌سازی‌شده مشغول است؛ گام ۲۰ میلی‌ثانیه، ویژگی‌ها در کش",
                "{au:.1%}",
                "{ceiling:.1%} وقتی همهٔ batchها از قبل در RAM باشند",
            ),
        },
    ),
    Figure(
        "feed",
        "AU of the cached feed by its ceiling at 5 ms",
        r"AU (?P<au>[\d.]+), ceiling (?P<ceiling>[\d.]+)",
        {
            "en": ("The same with 5 ms steps", "{au:.1%}", "{ceiling:.1%} with all batches already in RAM"),
            "fa": ("همان، با گام ۵ میلی‌ثانیه", "{au:.1%}", "{ceiling:.1%} وقتی همهٔ batchها از قبل در RAM باشند"),
        },
    ),
    Figure(
        "feed",
        "step-time variation at 20 ms",
        r"ceiling (?P<ceiling>[\d.]+)",
        {
            "en": (
                "Jitter of the step time (standard deviation / mean), 20 ms steps",
                "{value:.1%}",
                "{ceiling:.1%} with all batches already in RAM",
            ),
            "fa": (
                "نوسان زمان گام (انحراف معیار تقسیم بر میانگین)، گام ۲۰ میلی‌ثانیه",
                "{value:.1%}",
                "{ceiling:.1%} وقتی همهٔ batchها از قبل در RAM باشند",
            ),
        },
    ),
    Figure(
        "loading",
        "recordings to batches on the fly by librosa in numpy_function",
        r"product (?P<own>\d+)/s.*librosa in numpy_function (?P<librosa>\d+)/s.*scipy (?P<processes>\d+)/s",
        {
            "en": (
                "Clips loaded per second on the fly (no feature cache)",
                "{own:.0f}",
                "{librosa:.0f} with `librosa` in `tf.numpy_function`; {processes:.0f} with soundfile in two processes",
            ),
            "fa": (
                "تعداد کلیپی که در هر ثانیه on-the-fly (بدون کش) بارگذاری می‌شود",
                "{own:.0f}",
                "{librosa:.0f} با `librosa` در `tf.numpy_function`؛ {processes:.0f} با soundfile در دو پروسه",
            ),
        },
    ),
    Figure(
        "store",
        "TFRecord in tf.data, CPU time of tensors by dlpack",
        r"dlpack (?P<own>\d+) µs.*np.load (?P<npy>\d+) µs, TFRecord (?P<record>\d+) µs",
        {
            "en": (
                "CPU time to read one clip from the feature cache into a tensor",
                "{own:.0f} µs",
                "{npy:.0f} µs from one `.npy` file per clip; {record:.0f} µs from TFRecord in `tf.data`",
            ),
            "fa": (
                "زمان CPU برای خواندن یک کلیپ از کش ویژگی‌ها تا تنسور",
                "{own:.0f} میکروثانیه",
                "{npy:.0f} میکروثانیه با یک فایل `.npy` برای هر کلیپ؛ {record:.0f} میکروثانیه با TFRecord در `tf.data`",
            ),
        },
    ),
    Figure(
        "features",
        "host features, WAV to log-mel, CPU time of librosa",
        r"librosa (?P<librosa>[\d.]+) ms, plain (?P<own>[\d.]+) ms",
        {
            "en": (
                "CPU time from a WAV file to its log-mel spectrogram, per clip",
                "{own:.2f} ms",
                "{librosa:.2f} ms with `librosa` (one BLAS thread)",
            ),
            "fa": (
                "زمان CPU از فایل WAV تا log-mel، برای هر کلیپ",
                "{own:.2f} میلی‌ثانیه",
                "{librosa:.2f} میلی‌ثانیه با `librosa` (یک ترد BLAS)",
            ),
        },
    ),
    Figure(
        "voice",
        "training step of tiny, by one fed from memory",
        r"(?P<own>[\d.]+) s from the feed, (?P<memory>[\d.]+) s from memory",
        {
            "en": (
                "One training step of `tiny` on the CPU, batch 16, data pipeline included",
                "{own:.3f} s",
                "{memory:.3f} s with the same batch kept in RAM",
            ),
            "fa": (
                "یک گام آموزش `tiny` روی CPU با batch ۱۶، همراه با پایپلاین داده",
                "{own:.3f} ثانیه",
                "{memory:.3f} ثانیه وقتی همان batch در RAM بماند",
            ),
        },
    ),
    Figure(
        "voice",
        "real-time factor of tiny",
        r"(?P<speech>[\d.]+) s of speech",
        {
            "en": (
                "Time to synthesise one second of speech after warm-up: `tiny`, 8 decoder steps, Griffin-Lim",
                "{value:.2f} s",
                "",
            ),
            "fa": (
                "زمان ساختن یک ثانیه گفتار پس از warm-up با `tiny`، ۸ گام decoder و Griffin-Lim",
                "{value:.2f} ثانیه",
                "",
            ),
        },
    ),
    Figure(
        "doors",
        "process start to first sound of an exported model, relative to TensorFlow",
        r"(?P<own>[\d.]+) s and (?P<tensorflow>[\d.]+) s",
        {
            "en": (
                "From starting the program to the first sound, model exported to ONNX",
                "{own:.2f} s",
                "{tensorflow:.2f} s with TensorFlow",
            ),
            "fa": (
                "از اجرای برنامه تا اولین صدا، با مدل export‌شده به ONNX",
                "{own:.2f} ثانیه",
                "{tensorflow:.2f} ثانیه با TensorFlow",
            ),
        },
    ),
    Figure(
        "monitor",
        "monitor of 8 GPUs (fake NVML)",
        r"every (?P<every>\d+) s",
        {
            "en": (
                "CPU use of `myxtts monitor`, 8 simulated GPUs, refreshed every {every:.0f} s",
                "{value:.2f}% of a core",
                "",
            ),
            "fa": (
                "مصرف CPU در `myxtts monitor` با ۸ GPU شبیه‌سازی‌شده، هر {every:.0f} ثانیه یک بار",
                "{value:.2f}٪ از یک هسته",
                "",
            ),
        },
    ),
)
"""Suites that were not measured yet are left out."""

_HEADINGS: dict[str, dict[Language, tuple[str, ...]]] = {
    "figures": {
        "en": ("what was measured", "MyXTTS", "for comparison", "results file"),
        "fa": ("چه چیزی اندازه گرفته شد", "MyXTTS", "برای مقایسه", "فایل نتیجه"),
    },
    "sizes": {
        "en": (
            "`--model-size`",
            "for",
            "parameters",
            "VRAM, batch 64",
            "VRAM, batch 96",
            "one checkpoint on disk",
            "training time",
        ),
        "fa": (
            "`--model-size`",
            "برای",
            "پارامتر",
            "VRAM با batch ۶۴",
            "VRAM با batch ۹۶",
            "حجم یک چک‌پوینت",
            "زمان آموزش",
        ),
    },
    "voices": {
        "en": ("voice and speech given", "training", "words misheard", "MOS estimate", "similarity", "hear it"),
        "fa": ("صدا و مقدار گفتار", "آموزش", "خطای کلمه", "تخمین MOS", "شباهت", "بشنوید"),
    },
}

_FILES = {"sizes": "card.json", "voices": "adaptation.json"}
_BYTES_PER_PARAMETER = 16
_SIZES: dict[str, tuple[float, dict[Language, tuple[str, str]]]] = {
    "tiny": (
        4.0,
        {
            "en": ("a CPU, a first try", "about 1 hour for 16,000 steps on two CPU cores"),
            "fa": ("CPU، آزمایش اول", "حدود ۱ ساعت برای ۱۶٬۰۰۰ گام روی دو هستهٔ CPU"),
        },
    ),
    "small": (
        18.0,
        {"en": ("one or a few voices, one GPU", "not known"), "fa": ("یک یا چند گوینده، یک GPU", "نامعلوم")},
    ),
    "normal": (
        80.0,
        {
            "en": ("many voices and languages, one large GPU", "not known"),
            "fa": ("گوینده و زبان‌های زیاد، یک GPU بزرگ", "نامعلوم"),
        },
    ),
    "big": (
        350.0,
        {
            "en": ("thousands of hours, several large GPUs", "not known"),
            "fa": ("هزاران ساعت داده، چند GPU بزرگ", "نامعلوم"),
        },
    ),
}
"""Each size by its millions of parameters, what it is for, and the training time where that was measured."""
_UNITS: dict[Language, tuple[str, str, str, str]] = {
    "en": ("million", "GiB", "MB", "GB"),
    "fa": ("میلیون", "GiB", "مگابایت", "گیگابایت"),
}


def fill_figures(path: Path, text: str, language: Language, root: Path) -> str:
    """The text of a page with the tables between its marks made again."""
    up = "../" * (len(path.relative_to(root).parts) - 1)
    results, address = root / "benchmarks" / "results", f"{up}benchmarks/results"

    number = _PersianNumber if language == "fa" else float

    def make(block: re.Match[str]) -> str:
        name = block["name"]
        if name == "figures":
            rows = _make_rows(language, results, address)
        elif not (path_of_results := results / _FILES[name]).is_file():
            return block[0]
        elif name == "sizes":
            rows = _make_size_rows(language, path_of_results)
        else:
            rows = make_voice_rows(language, path_of_results, f"{up}docs/samples", number)
        table = "\n".join(_make_table(_HEADINGS[name][language], rows))
        return f"{block['begin']}\n\n{table}\n\n{block['end']}"

    return _BLOCK.sub(make, text)


def _make_table(headings: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _make_rows(language: Language, folder: Path, address: str) -> Iterator[tuple[str, ...]]:
    kind = _PersianNumber if language == "fa" else float
    for figure in FIGURES:
        path = folder / f"{figure.suite}.json"
        if not path.is_file():
            continue
        measurement = _find(json.loads(path.read_text(encoding="utf-8")), figure)
        noted = re.search(figure.note, measurement["note"])
        assert noted is not None, f"the note of {figure.name!r} has changed"
        numbers = {name: kind(text) for name, text in noted.groupdict().items()} | {"value": kind(measurement["value"])}
        cells = [cell.format_map(numbers) for cell in figure.rows[language]]
        yield (*cells, f"[{figure.suite}.json]({address}/{figure.suite}.json)")


def _make_size_rows(language: Language, path: Path) -> Iterator[tuple[str, ...]]:
    kind = _PersianNumber if language == "fa" else float
    million, gib, mega, giga = _UNITS[language]
    measured = {one["name"]: one["value"] for one in json.loads(path.read_text(encoding="utf-8"))["measurements"]}
    for size, (millions, words) in _SIZES.items():
        memory = [
            f"{kind(measured[f'memory of a step: {size}, step, stored durations, batch {batch}, {card}']):.1f} {gib}"
            for batch, card in ((64, "RTX 3060"), (96, "RTX 3090"))
        ]
        megabytes = millions * _BYTES_PER_PARAMETER
        disk = f"{kind(megabytes / 1000):.1f} {giga}" if megabytes >= 1000 else f"{kind(megabytes):.0f} {mega}"
        yield (f"`{size}`", words[language][0], f"{kind(millions):.0f} {million}", *memory, disk, words[language][1])


def _find(results: dict[str, Any], figure: Figure) -> dict[str, Any]:
    found: list[dict[str, Any]] = [one for one in results["measurements"] if one["name"] == figure.name]
    assert len(found) == 1, f"benchmarks/results/{figure.suite}.json has no measurement {figure.name!r}"
    return found[0]
