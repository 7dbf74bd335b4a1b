"""The pictures of the documentation: the path of a clip, how a mode is chosen, and the packages."""

from __future__ import annotations

from documentation.drawing import Drawing, Kind
from documentation.words import Language

_WIDTH = 440

_PIPELINE: dict[Language, tuple[str, ...]] = {
    "en": (
        "The path of a clip through MyXTTS",
        "once", "every step", "synthesis",
        "Recordings|any of 8 layouts", "prepare|checks every clip", "Corpus|corpus.jsonl",
        "precompute|log-mels, tokens",
        "Feature cache|memory-mapped",
        "Loader threads|read or compute", "Data GPU|Multi-GPU mode only", "Buffer|50 batches in RAM",
        "Prefetch|2 batches on the GPU", "Training step|compiled",
        "Text + reference voice|3 to 8 s of speech", "Model|flow matching", "Vocoder|Griffin-Lim or neural",
        "WAV|22,050 Hz",
    ),
    "fa": (
        "مسیر یک کلیپ در MyXTTS",
        "یک بار", "در هر گام", "ساخت گفتار",
        "فایل‌های صوتی|یکی از ۸ ساختار", "prepare|بررسی همهٔ کلیپ‌ها", "دیتاست|corpus.jsonl",
        "precompute|محاسبهٔ log-mel",
        "کش ویژگی‌ها|memory-mapped",
        "تردهای loader|خواندن یا محاسبه", "GPU داده|فقط حالت Multi-GPU", "بافر|۵۰ batch در RAM",
        "Prefetch|۲ batch روی GPU", "گام آموزش|کامپایل‌شده",
        "متن و نمونهٔ صدا|۳ تا ۸ ثانیه", "مدل|flow matching", "وکودر|Griffin-Lim یا عصبی", "WAV|۲۲۰۵۰ هرتز",
    ),
}  # fmt: skip

_Answer = tuple[str, str, Kind]
_DECISION: dict[Language, tuple[str, str, tuple[tuple[str, tuple[_Answer, ...]], ...]]] = {
    "en": (
        "How the mode is chosen",
        "no",
        (
            (
                "data_gpu and model_gpu both given?",
                (
                    ("both exist,|on the fly", "Multi-GPU mode", "good"),
                    ("one is missing, or|features are cached", "Single-GPU buffered|with a warning", "warn"),
                    ("no GPU at all", "Error, exit code 5|--allow-cpu: CPU mode", "bad"),
                ),
            ),
            (
                "One of the two given?",
                (
                    ("it exists", "Single-GPU buffered|on that GPU", "good"),
                    ("it does not", "Error, exit code 5|lists the GPUs found", "bad"),
                ),
            ),
            (
                "How many GPUs are visible?",
                (
                    ("0", "CPU mode", "plain"),
                    ("1", "Single-GPU buffered", "good"),
                    ("2 or more", "Single-GPU buffered|on the best one", "good"),
                    ("2 or more,|--multi-gpu", "Mirrored mode|on all of them", "good"),
                ),
            ),
        ),
    ),
    "fa": (
        "حالت اجرا چطور انتخاب می‌شود",
        "نه",
        (
            (
                "data_gpu و model_gpu هر دو داده شده‌اند؟",
                (
                    ("هر دو هستند،|on-the-fly", "حالت Multi-GPU", "good"),
                    ("یکی نیست، یا|ویژگی‌ها در کش‌اند", "Single-GPU buffered|همراه با هشدار", "warn"),
                    ("هیچ GPUای نیست", "خطا، کد خروج ۵|با allow-cpu: حالت CPU", "bad"),
                ),
            ),
            (
                "فقط یکی از آن دو داده شده؟",
                (
                    ("آن GPU هست", "Single-GPU buffered|روی همان GPU", "good"),
                    ("نیست", "خطا، کد خروج ۵|با فهرست GPUها", "bad"),
                ),
            ),
            (
                "چند GPU در دسترس است؟",
                (
                    ("۰", "حالت CPU", "plain"),
                    ("۱", "Single-GPU buffered", "good"),
                    ("۲ یا بیشتر", "Single-GPU buffered|روی بهترین GPU", "good"),
                    ("۲ یا بیشتر،|multi-gpu", "حالت Mirrored|روی همهٔ GPUها", "good"),
                ),
            ),
        ),
    ),
}
"""Title, the word for no, and each question with its conditions, results and colours."""

_PACKAGES: tuple[tuple[tuple[str, str, str], ...], ...] = (
    (("cli", "one module per command", "هر دستور یک ماژول"),),
    (
        ("live", "the page of a run: curves, samples, stop", "صفحهٔ زندهٔ run: منحنی‌ها، نمونه‌ها، توقف"),
        ("studio", "the page to correct and record clips", "صفحهٔ اصلاح و ضبط کلیپ‌ها"),
    ),
    (
        ("tools", "diagnose, profile, monitor, bench", "diagnose، profile، monitor، bench"),
        ("serve", "speech over the network", "گفتار از راه شبکه"),
        ("export", "a model to ONNX graphs", "از مدل تا گراف ONNX"),
    ),
    (
        ("training", "batches to weights: voice and vocoder", "از batch تا وزن‌های مدل و وکودر"),
        ("synthesis", "text and a voice to a waveform", "از متن و صدا تا شکل موج"),
    ),
    (
        ("pipeline", "features to batches on the device", "از ویژگی‌ها تا batch روی GPU"),
        ("models", "layers, voice model, vocoder", "لایه‌ها، مدل صدا، وکودر"),
    ),
    (
        ("store", "the feature cache on disk", "کش ویژگی‌ها روی دیسک"),
        ("runtime", "hardware, plan, tf.distribute strategy", "سخت‌افزار، plan، استراتژی"),
    ),
    (("features", "waveform to log-mel and back", "از شکل موج تا log-mel و برعکس"),),
    (("corpus", "recordings to checked clips", "از فایل صوتی تا کلیپ بررسی‌شده"),),
    (("text", "sentence to token ids", "از جمله تا شناسهٔ توکن‌ها"),),
    (("config", "settings: schema, presets, layers", "تنظیم‌ها: schema، preset، لایه‌ها"),),
    (
        ("storage", "files that survive a crash", "فایل‌هایی که با crash خراب نمی‌شوند"),
        ("types", "Batch, Utterance", "Batch، Utterance"),
        ("errors", "MyXTTSError", "MyXTTSError"),
    ),
)
"""Rows from the top: a package imports only from rows below it. English and Persian say what it does."""


def draw_packages(language: Language) -> str:
    title = {"en": "The packages: each imports only from below", "fa": "پکیج‌ها: هر کدام فقط از پایین‌تر import می‌کند"}
    height = sum(26 * len(row) + 34 for row in _PACKAGES) + 10
    drawing = Drawing(_WIDTH, height, title[language], is_mirrored=language == "fa")
    top = 14
    for number, packages in enumerate(_PACKAGES):
        if number:
            drawing.add_arrow((220, top - 20), (220, top - 2))
        drawing.add_box(20, top, 400, 26 * len(packages) + 12, (), "work")
        for row, (name, english, persian) in enumerate(packages):
            drawing.add_pair(34, top + 24 + 26 * row, name, english if language == "en" else persian, gap=96)
        top += 26 * len(packages) + 34
    return drawing.to_svg()


def draw_pipeline(language: Language) -> str:
    title, once, each, speaking, *words = _PIPELINE[language]
    boxes = [word.split("|") for word in words]
    drawing = Drawing(_WIDTH, 560, title, is_mirrored=language == "fa")
    for left, label, first in ((15, once, 0), (230, each, 5)):
        drawing.add_text(left + 97, 24, label)
        for row, lines in enumerate(boxes[first : first + 5]):
            kinds: tuple[Kind, ...] = ("plain", "work", "plain", "work", "good") if not first else (
                "work", "warn", "plain", "plain", "good")  # fmt: skip
            drawing.add_box(left, 36 + 72 * row, 195, 50, lines, kinds[row])
            if row:
                drawing.add_arrow((left + 97, 36 + 72 * row - 22), (left + 97, 36 + 72 * row - 2))
    drawing.add_arrow((210, 349), (220, 349), (220, 61), (228, 61))
    drawing.add_text(220, 412, speaking)
    for number, lines in enumerate(boxes[10:14]):
        left, top = (15, 230)[number % 2], 424 + 66 * (number // 2)
        drawing.add_box(left, top, 195, 50, lines, "good" if number == 1 else "plain")
    drawing.add_arrow((210, 449), (228, 449))
    drawing.add_arrow((327, 374), (327, 422), is_dashed=True)
    drawing.add_arrow((327, 474), (327, 482), (112, 482), (112, 488))
    drawing.add_arrow((210, 515), (228, 515))
    return drawing.to_svg()


def draw_decision(language: Language) -> str:
    title, no, questions = _DECISION[language]
    height = sum(58 * len(answers) + 88 for _, answers in questions) - 20
    drawing = Drawing(_WIDTH, height, title, is_mirrored=language == "fa")
    top = 14
    for number, (question, answers) in enumerate(questions):
        drawing.add_box(15, top, 410, 44, (question,), "work")
        bottom = top + 44 + 58 * len(answers)
        for row, (condition, result, kind) in enumerate(answers):
            y = top + 54 + 58 * row
            for line, words in enumerate(condition.split("|")):
                drawing.add_text(108, y + 29 - 9 * condition.count("|") + 18 * line, words)
            drawing.add_arrow((182, y + 24), (203, y + 24))
            drawing.add_box(205, y, 220, 48, result.split("|"), kind)
        if number + 1 < len(questions):
            drawing.add_arrow((32, top + 44), (32, bottom + 42))
            drawing.add_text(48, bottom + 26, no)
        top = bottom + 44
    return drawing.to_svg()
