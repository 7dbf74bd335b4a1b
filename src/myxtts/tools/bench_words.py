"""The words of a benchmark's report in English and Persian."""

from __future__ import annotations

from myxtts.tools.report_words import Words

BENCH_WORDS: dict[str, tuple[str, str]] = {
    "title": ("Benchmark of the feed", "سنجش خوراک‌رسانی به شتاب‌دهنده"),
    "lead": (
        (
            "An emulated accelerator: each step lasts {step}. {rounds} rounds of {steps} steps for each contender, in "
            "alternating order; figures are medians of the rounds."
        ),
        (
            "شتاب‌دهندهٔ شبیه‌سازی‌شده: هر گام {step} طول می‌کشد. {rounds} دور با {steps} گام برای هر رقیب، به ترتیب "
            "متناوب؛ رقم‌ها میانهٔ دورهاست."
        ),
    ),
    "step_time": ("{fixed} ms", "{fixed} میلی‌ثانیه"),
    "step_time_frames": (
        "{fixed} ms and {frame} µs for each frame",
        "{fixed} میلی‌ثانیه و {frame} میکروثانیه برای هر فریم",
    ),
    "host_load": ("; the host is busy for {load} ms of it", "؛ {load} میلی‌ثانیهٔ آن میزبان مشغول است"),
    "best_contender": ("Fastest", "سریع‌ترین"),
    "rate": ("Utterances per second", "جمله در ثانیه"),
    "rate_remark": ("of the fastest", "از سریع‌ترین"),
    "au_card": ("AU (emulated)", "بهره‌گیری (شبیه‌سازی)"),
    "au_ceiling": ("ceiling {value}", "سقف {value}"),
    "ratio_card": ("{name} against {other}", "{name} در برابر {other}"),
    "ratio": ("{value} times", "{value} برابر"),
    "ratio_range": ("{lowest} to {highest} by round", "{lowest} تا {highest} در دورها"),
    "who": ("Contenders", "رقیبان"),
    "who_lead": (
        (
            "AU is nominal step time by wall time, the first step left out, and stands beside its ceiling: the same "
            "steps over batches that are already in memory. Effective AU counts padding as waste."
        ),
        (
            "بهره‌گیری، زمان اسمی گام به زمان واقعی است؛ گام نخست شمرده نمی‌شود و سقف آن، همان گام‌ها روی دسته‌هایی است "
            "که از پیش در حافظه‌اند. بهره‌گیری مؤثر، پُرکردن را هدررفت می‌شمارد."
        ),
    ),
    "au_bars": ("AU, and its ceiling", "بهره‌گیری و سقف آن"),
    "rate_bars": ("Utterances per second", "جمله در ثانیه"),
    "cpu_bars": ("CPU time of an utterance in milliseconds", "زمان پردازنده برای هر جمله به میلی‌ثانیه"),
    "of_ceiling": ("{au} of {ceiling}", "{au} از {ceiling}"),
    "all_figures": ("All figures", "همهٔ رقم‌ها"),
    "contender": ("Contender", "رقیب"),
    "ceiling": ("Ceiling", "سقف"),
    "effective": ("Effective AU", "بهره‌گیری مؤثر"),
    "cpu": ("CPU ms each", "میلی‌ثانیه پردازنده"),
    "wait_ms": ("Wait ms", "انتظار (میلی‌ثانیه)"),
    "memory": ("Memory MB", "حافظه (مگابایت)"),
    "memory_note": (
        "Memory is the most that the whole process held while the contender ran.",
        "حافظه، بیشترین مقداری است که کل فرایند هنگام اجرای رقیب داشته است.",
    ),
    "timeline": ("Time of a step in the last round", "زمان گام در دور آخر"),
    "timeline_lead": (
        "Milliseconds from the end of one step to the end of the next. A flat line is a busy accelerator.",
        "میلی‌ثانیه از پایان یک گام تا پایان گام بعد. خط هموار یعنی شتاب‌دهنده بی‌وقفه کار می‌کند.",
    ),
    "sweep": ("What a setting changes", "اثر یک تنظیم"),
    "sweep_rate": ("Utterances per second by {setting}", "جمله در ثانیه بر حسب {setting}"),
    "sweep_au": ("AU and ceiling by {setting}", "بهره‌گیری و سقف بر حسب {setting}"),
    "comparisons": ("In comparison", "در مقایسه"),
    "comparisons_lead": (
        "Figures of {name} by those of each other contender in the same round.",
        "رقم‌های {name} به رقم‌های هر رقیب دیگر در همان دور.",
    ),
    "median_ratio": ("Utterances per second", "جمله در ثانیه"),
    "effective_bars": ("Effective AU", "بهره‌گیری مؤثر"),
    "milliseconds": ("Milliseconds", "میلی‌ثانیه"),
    "range": ("Range", "بازه"),
    "left_out": ("Not in this run", "غایب در این اجرا"),
    "reason": ("Reason", "دلیل"),
    "no_store": (
        "There are no features in {detail}. Make them with myxtts precompute.",
        "در {detail} ویژگی‌ای نیست. با myxtts precompute بسازید.",
    ),
    "no_corpus": ("The prepared corpus is not there.", "پیکرهٔ آماده‌شده در دسترس نیست."),
    "no_librosa": ("librosa is not installed.", "librosa نصب نشده است."),
    "no_wav": ("No recording is a 16-bit WAV file.", "هیچ ضبطی پروندهٔ WAV شانزده‌بیتی نیست."),
    "cached": ("MyXTTS, stored features", "MyXTTS با ویژگی‌های ذخیره‌شده"),
    "native": ("MyXTTS on the fly, in the graph", "MyXTTS در لحظه، درون گراف"),
    "python": ("MyXTTS on the fly, in Python", "MyXTTS در لحظه، با پایتون"),
    "tfrecord": ("TFRecord in tf.data", "TFRecord در tf.data"),
    "librosa": ("librosa in numpy_function", "librosa در numpy_function"),
    "settings": ("These settings", "این تنظیم‌ها"),
    "against": ("The other settings", "تنظیم‌های دیگر"),
    "on_the_fly_note": (
        (
            "On the fly nothing is kept in memory between epochs. The two usual ways deliver spectrograms alone, "
            "without tokens and a voice, which is in their favour."
        ),
        (
            "در حالت «در لحظه» چیزی میان دورها در حافظه نمی‌ماند. دو روش معمول تنها طیف‌نگار می‌دهند، بدون نشانه‌ها و "
            "صدای مرجع، که به سود آن‌هاست."
        ),
    ),
    "disturbed": (
        "A contender seems busier than its ceiling: other work disturbed this machine. Measure again when it is quiet.",
        "رقیبی پُرکارتر از سقف خود می‌نماید: کار دیگری این ماشین را مشغول کرده است. در زمان آرام دوباره بسنجید.",
    ),
    "corpus_heading": ("Corpus", "پیکره"),
    "footer": (
        "Made by MyXTTS. All figures of the accelerator are emulated.",
        "ساختهٔ MyXTTS. همهٔ رقم‌های شتاب‌دهنده شبیه‌سازی‌شده است.",
    ),
}


def choose_bench_words(lang: str) -> Words:
    return Words(lang, BENCH_WORDS)
