"""The pictures of the documentation: the way of an utterance, how a mode is chosen, and the packages."""

from __future__ import annotations

from documentation.drawing import Drawing
from documentation.words import Language

_PIPELINE: dict[Language, tuple[str, ...]] = {
    "en": (
        "The way of an utterance through MyXTTS",
        "once", "every step", "speaking",
        "Recordings|any of 7 layouts", "prepare|check everything", "Corpus|corpus.jsonl", "precompute|features once",
        "Feature store|memory-mapped", "on the fly",
        "Loader threads|cached, native, python", "Data GPU|Multi-GPU mode only", "Buffer|50 batches",
        "Prefetch|2 on the device", "Training step|compiled",
        "Text + voice|3 to 8 s of speech", "Model|flow matching", "Vocoder|Griffin-Lim or neural", "WAV|22,050 Hz",
    ),
    "fa": (
        "راه یک جمله در MyXTTS",
        "یک بار", "در هر گام", "گفتار",
        "صداهای ضبط‌شده|یکی از ۷ چیدمان", "prepare|بررسی همه‌چیز", "پیکره|corpus.jsonl", "precompute|ساخت یک‌بارهٔ ویژگی‌ها",
        "انبارهٔ ویژگی‌ها|نگاشته در حافظه", "در لحظه",
        "رشته‌های بارگذار|cached، native، python", "کارت داده|فقط حالت چند-GPU", "میان‌گیر|۵۰ دسته",
        "پیش‌واکشی|۲ دسته روی دستگاه", "گام آموزش|کامپایل‌شده",
        "متن و صدا|۳ تا ۸ ثانیه گفتار", "مدل|flow matching", "صداساز|Griffin-Lim یا عصبی", "WAV|۲۲۰۵۰ هرتز",
    ),
}  # fmt: skip

_DECISION: dict[Language, tuple[str, ...]] = {
    "en": (
        "How the mode is chosen",
        "yes", "no", "0", "1", "2 or more",
        "data_gpu and model_gpu|both given?", "Do they exist and differ,|features on the fly?", "Multi-GPU mode",
        "Single-GPU buffered|with a warning that says why",
        "One of the two|given?", "Does it exist?", "Single-GPU buffered|on that GPU",
        "Error, exit code 5|lists what exists",
        "How many GPUs|are visible?", "CPU mode", "Single-GPU buffered|on that GPU", "multi_gpu: true?",
        "Mirrored mode|over all of them", "Single-GPU buffered|on the best",
    ),
    "fa": (
        "حالت چگونه انتخاب می‌شود",
        "بله", "نه", "۰", "۱", "۲ یا بیشتر",
        "data_gpu و model_gpu|هر دو داده شده؟", "هر دو هستند و یکی نیستند،|ویژگی‌ها در لحظه؟", "حالت چند-GPU",
        "تک-GPU با میان‌گیر|با هشداری که علت را می‌گوید",
        "یکی از آن دو|داده شده؟", "آن GPU هست؟", "تک-GPU با میان‌گیر|روی همان GPU", "خطا، کد خروج ۵|با فهرست آنچه هست",
        "چند GPU|دیده می‌شود؟", "حالت CPU", "تک-GPU با میان‌گیر|روی همان GPU", "multi_gpu: true؟",
        "حالت آینه‌ای|روی همهٔ آن‌ها", "تک-GPU با میان‌گیر|روی بهترین",
    ),
}  # fmt: skip


_PACKAGES: tuple[tuple[tuple[str, str, str], ...], ...] = (
    (("cli", "one module per command", "هر فرمان یک ماژول"),),
    (
        ("tools", "diagnose, profile, monitor, bench", "عیب‌یابی، نمایه‌برداری، پایش، سنجش"),
        ("serve", "speech over the network", "گفتار از راه شبکه"),
        ("export", "a model to ONNX graphs", "از مدل تا گراف‌های ONNX"),
    ),
    (
        ("training", "batches to weights: voice and vocoder", "از دسته‌ها تا وزن‌ها: صدا و صداساز"),
        ("synthesis", "text and a voice to a waveform", "از متن و صدا تا موج"),
    ),
    (
        ("pipeline", "features to batches on the device", "از ویژگی‌ها تا دسته‌ها روی دستگاه"),
        ("models", "layers, model bundle, vocoder", "لایه‌ها، بستهٔ مدل، صداساز"),
    ),
    (
        ("store", "features on disk", "ویژگی‌ها روی دیسک"),
        ("runtime", "machine, plan, strategy", "ماشین، طرح، راهبرد"),
    ),
    (("features", "waveform to log-mel and back", "از موج تا log-mel و برگشت"),),
    (("corpus", "recordings to checked utterances", "از ضبط‌ها تا جمله‌های بررسی‌شده"),),
    (("text", "sentence to token ids", "از جمله تا شناسهٔ نشانه‌ها"),),
    (("config", "settings: schema, presets, layers", "تنظیم‌ها: طرح‌واره، پیش‌تنظیم، لایه‌ها"),),
    (
        ("storage", "durable files", "پرونده‌های پایدار"),
        ("types", "Batch, Utterance", "Batch، Utterance"),
        ("errors", "MyXTTSError", "MyXTTSError"),
    ),
)
"""Rows from the top: a package imports only from rows below it. English and Persian say what it does."""


def draw_packages(language: Language) -> str:
    title = {"en": "The packages: each imports only from below", "fa": "بسته‌ها: هر یک فقط از پایین‌تر وارد می‌کند"}
    drawing = Drawing(960, 68 * len(_PACKAGES) + 20, title[language], is_mirrored=language == "fa")
    for row, packages in enumerate(_PACKAGES):
        width = (900 - 20 * (len(packages) - 1)) // len(packages)
        top = 20 + 68 * row
        for column, (name, english, persian) in enumerate(packages):
            left = 30 + column * (width + 20)
            drawing.add_box(left, top, width, 50, (name, english if language == "en" else persian), "work")
        if row:
            drawing.add_arrow((480, top - 18), (480, top - 2))
    return drawing.to_svg()


def draw_pipeline(language: Language) -> str:
    title, once, each, speaking, *words = _PIPELINE[language]
    boxes = [word.split("|") for word in words]
    fly = boxes.pop(5)[0]
    drawing = Drawing(960, 400, title, is_mirrored=language == "fa")
    for y, label in ((40, once), (170, each), (320, speaking)):
        drawing.add_text(50, y + 34, label)
    for number, lines in enumerate(boxes[:5]):
        drawing.add_box(105 + number * 172, 40, 150, 58, lines, "work" if number in (1, 3) else "plain")
        if number:
            drawing.add_arrow((105 + number * 172 - 22, 69), (105 + number * 172 - 2, 69))
    for number, lines in enumerate(boxes[5:10]):
        kind = ("work", "warn", "plain", "plain", "good")
        drawing.add_box(105 + number * 172, 185, 150, 58, lines, kind[number])  # type: ignore[arg-type]
        if number:
            drawing.add_arrow((105 + number * 172 - 22, 214), (105 + number * 172 - 2, 214))
    drawing.add_arrow((868, 98), (868, 142), (190, 142), (190, 183))
    drawing.add_arrow((150, 98), (150, 183), is_dashed=True)
    drawing.add_text(150 - 42, 142, fly)
    for number, lines in enumerate(boxes[10:14]):
        drawing.add_box(105 + number * 214, 310, 180, 58, lines, "good" if number == 1 else "plain")
        if number:
            drawing.add_arrow((105 + number * 214 - 34, 339), (105 + number * 214 - 2, 339))
    drawing.add_arrow((868, 243), (868, 276), (409, 276), (409, 308))
    return drawing.to_svg()


def draw_decision(language: Language) -> str:
    title, yes, no, none, one, many, *words = _DECISION[language]
    boxes = [word.split("|") for word in words]
    both, differ, multi, fallback, single, exists, named, missing, count, cpu, first, mirror, mirrored, lone = boxes
    drawing = Drawing(960, 560, title, is_mirrored=language == "fa")
    drawing.add_box(30, 40, 220, 62, both, "work")
    drawing.add_arrow((250, 71), (338, 71), label=yes)
    drawing.add_box(340, 40, 220, 62, differ, "work")
    drawing.add_arrow((560, 71), (678, 71), label=yes)
    drawing.add_box(680, 40, 250, 62, multi, "good")
    drawing.add_arrow((450, 102), (450, 148), (678, 148), label=no)
    drawing.add_box(680, 118, 250, 62, fallback, "warn")
    drawing.add_arrow((140, 102), (140, 228), label=no)
    drawing.add_box(30, 230, 220, 62, single, "work")
    drawing.add_arrow((250, 261), (338, 261), label=yes)
    drawing.add_box(340, 230, 220, 62, exists, "work")
    drawing.add_arrow((560, 261), (678, 261), label=yes)
    drawing.add_box(680, 230, 250, 62, named, "good")
    drawing.add_arrow((450, 292), (450, 335), (678, 335), label=no)
    drawing.add_box(680, 304, 250, 62, missing, "bad")
    drawing.add_arrow((140, 292), (140, 418), label=no)
    drawing.add_box(30, 420, 220, 62, count, "work")
    drawing.add_arrow((250, 432), (310, 432), (310, 385), (338, 385), label=none)
    drawing.add_box(340, 360, 220, 50, cpu, "plain")
    drawing.add_arrow((250, 458), (338, 458), label=one)
    drawing.add_box(340, 424, 220, 54, first, "good")
    drawing.add_arrow((140, 482), (140, 522), (338, 522), label=many)
    drawing.add_box(340, 494, 220, 54, mirror, "work")
    drawing.add_arrow((560, 510), (620, 510), (620, 419), (678, 419), label=yes)
    drawing.add_box(680, 388, 250, 62, mirrored, "good")
    drawing.add_arrow((560, 530), (678, 530), label=no)
    drawing.add_box(680, 494, 250, 54, lone, "good")
    return drawing.to_svg()
