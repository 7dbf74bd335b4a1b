"""The words of a profile's report in English and Persian."""

from __future__ import annotations

from myxtts.tools.report_words import Words

PROFILE_WORDS: dict[str, tuple[str, str]] = {
    "title": ("Profile of training", "نیم‌رخ زمانی آموزش"),
    "lead": (
        "{steps} real steps of a model with {parameters} million parameters, {mode}.",
        "{steps} گام واقعی از مدلی با {parameters} میلیون پارامتر، {mode}.",
    ),
    "mode_xla": ("compiled with XLA", "کامپایل‌شده با XLA"),
    "mode_graph": ("in graph mode", "در حالت گراف"),
    "mode_eager": ("eagerly, operation by operation", "بی‌درنگ، عمل به عمل"),
    "step_card": ("Step", "گام"),
    "milliseconds": ("{value} ms", "{value} میلی‌ثانیه"),
    "median_remark": ("median; {variation} variation", "میانه؛ پراکندگی {variation}"),
    "wait_card": ("Wait for data", "انتظار برای داده"),
    "wait_remark": ("mean of a step", "میانگین هر گام"),
    "load_card": ("Loading a batch", "بارگذاری یک دسته"),
    "au_remark": ("share of time not waiting for data", "سهم زمان بدون انتظار برای داده"),
    "graphs_card": ("Graphs made", "گراف‌های ساخته‌شده"),
    "graphs_remark": ("{count} while training", "{count} در میان آموزش"),
    "good": ("good", "خوب"),
    "moderate": ("moderate", "متوسط"),
    "slow": ("slow", "کند"),
    "stable": ("stable", "پایدار"),
    "unstable": ("not stable", "ناپایدار"),
    "stages": ("Stage by stage", "مرحله به مرحله"),
    "stages_lead": (
        (
            "An average step. Checkpoints and records are spread over the steps between them. Forward, backward and "
            "optimiser were timed as functions of their own on batches of {shape}; together they took {sum} ms, the "
            "whole step {whole} ms."
        ),
        (
            "یک گام میانگین. نقطه‌های بازیابی و ثبت‌ها بر گام‌های میانشان پخش شده‌اند. پیش‌رو، پس‌رو و بهینه‌ساز هرکدام "
            "تابعی جدا روی دسته‌های {shape} بوده‌اند؛ با هم {sum} میلی‌ثانیه و گام کامل {whole} میلی‌ثانیه."
        ),
    ),
    "average_step": ("Average step", "گام میانگین"),
    "training_step": ("training step", "گام آموزش"),
    "data_wait": ("wait for data", "انتظار برای داده"),
    "forward": ("forward", "پیش‌رو"),
    "backward": ("backward", "پس‌رو"),
    "optimizer": ("optimiser", "بهینه‌ساز"),
    "averaging": ("running average", "میانگین روان وزن‌ها"),
    "rest": ("rest", "باقی"),
    "checkpoint": ("checkpoint", "نقطهٔ بازیابی"),
    "logging": ("records", "ثبت‌ها"),
    "flame": ("Where an average step goes", "زمان یک گام میانگین"),
    "in_numbers": ("Milliseconds of a step", "میلی‌ثانیه در هر گام"),
    "stage": ("Stage", "مرحله"),
    "ms": ("ms", "میلی‌ثانیه"),
    "share_of_step": ("Share", "سهم"),
    "once": ("Each time", "هر بار"),
    "held": ("checkpoint, training held up", "نقطهٔ بازیابی، توقف آموزش"),
    "written": ("checkpoint, written beside training", "نقطهٔ بازیابی، نوشتن همزمان با آموزش"),
    "every": ("every {steps} steps", "هر {steps} گام"),
    "record": ("record of metrics", "ثبت سنجه‌ها"),
    "loading": ("Data loading performance", "کارایی بارگذاری داده"),
    "loading_lead": (
        (
            "Loader: {loader}. A batch under 100 ms is good, up to 500 ms moderate, above slow; a variation under "
            "20 % is stable. Loading goes on beside the step: only what is waited for costs time."
        ),
        (
            "بارگذار: {loader}. دستهٔ زیر ۱۰۰ میلی‌ثانیه خوب، تا ۵۰۰ متوسط و بیش از آن کند است؛ پراکندگی زیر ۲۰٪ پایدار "
            "است. بارگذاری همزمان با گام است: تنها انتظار، زمان می‌برد."
        ),
    ),
    "loading_stage": ("loading a batch", "بارگذاری یک دسته"),
    "stage_transfer": ("copy to the device", "رونوشت به دستگاه"),
    "stage_features": ("features on the data device", "ویژگی‌ها روی دستگاه داده"),
    "highest": ("Highest", "بیشترین"),
    "spread": ("Variation", "پراکندگی"),
    "verdict": ("verdict", "داوری"),
    "depth": ("batches waiting in memory", "دسته‌های منتظر در حافظه"),
    "step_times": ("Time of each step in milliseconds", "زمان هر گام به میلی‌ثانیه"),
    "ops": ("Operations of tf.data", "عمل‌های tf.data"),
    "ops_lead": (
        "From the model that TensorFlow's iterator keeps of itself: own time for a batch, inputs left out.",
        "از مدلی که پیمایشگر TensorFlow از خود نگه می‌دارد: زمان خود عمل برای یک دسته، بدون ورودی‌ها.",
    ),
    "op": ("Operation", "عمل"),
    "own_ms": ("Own ms", "زمان خود (میلی‌ثانیه)"),
    "elements": ("Elements", "عضوها"),
    "buffered": ("Buffered", "در میان‌گیر"),
    "parallelism": ("At once", "همزمان"),
    "megabytes": ("MB made", "مگابایت"),
    "pipeline": ("Pipeline", "خط داده"),
    "of_a_batch": ("Milliseconds of a batch", "میلی‌ثانیه برای هر دسته"),
    "no_ops_stored": (
        "Stored features are read without tf.data, so there are no operations to show.",
        "ویژگی‌های ذخیره‌شده بدون tf.data خوانده می‌شوند؛ عملی برای نمایش نیست.",
    ),
    "no_ops_python": (
        "Recordings are loaded by the Python loader, without tf.data.",
        "ضبط‌ها با بارگذار پایتون و بدون tf.data خوانده می‌شوند.",
    ),
    "no_ops_mixed": (
        "Some recordings go through Python, so the pipeline is not one of tf.data alone.",
        "برخی ضبط‌ها از پایتون می‌گذرند؛ پس خط داده تنها از tf.data نیست.",
    ),
    "compiling": ("Graphs and compiling", "گراف‌ها و کامپایل"),
    "compiling_lead": (
        "Every shape takes this once, before the first step. A graph made while training is one too many.",
        "هر شکل یک بار، پیش از گام نخست. گرافی که میان آموزش ساخته شود زیادی است.",
    ),
    "shape": ("Shape (utterances × frames × tokens)", "شکل (جمله × فریم × نشانه)"),
    "seconds_taken": ("Seconds", "ثانیه"),
    "kind": ("Kind", "گونه"),
    "traced": ("traced", "گراف‌سازی"),
    "compiled": ("compiled with XLA", "کامپایل با XLA"),
    "when": ("When", "زمان"),
    "before": ("before the first step", "پیش از گام نخست"),
    "at_step": ("step {step}", "گام {step}"),
    "by_shape": ("Step by shape", "گام بر حسب شکل"),
    "eager_note": ("The step runs eagerly: no graph is made.", "گام بی‌درنگ اجرا می‌شود؛ گرافی ساخته نمی‌شود."),
    "trace": ("The TensorFlow trace is in {place}.", "ردیابی TensorFlow در {place} است."),
    "footer": ("Made by MyXTTS.", "ساختهٔ MyXTTS."),
}


def choose_profile_words(lang: str) -> Words:
    return Words(lang, PROFILE_WORDS)
