"""The words of a diagnosis in English and Persian: causes, what shows them, what to do, and the page."""

from __future__ import annotations

from myxtts.tools.diagnose.words_page import PAGE_WORDS
from myxtts.tools.report_words import Words

CAUSE_WORDS: dict[str, tuple[str, str]] = {
    "rate_deficit": ("Data is made too slowly", "داده کُند ساخته می‌شود"),
    "why_rate_deficit": (
        "A batch takes {data_ms} ms on the data side and the step only {step_ms} ms; most of it is the stage {stage}.",
        "هر دسته در سمت داده {data_ms} میلی‌ثانیه و گام تنها {step_ms} میلی‌ثانیه می‌خواهد؛ بیشترِ آن مرحلهٔ {stage} است.",
    ),
    "bursts": ("Data comes in bursts", "داده فوج‌فوج می‌رسد"),
    "why_bursts": (
        "Batches take {data_ms} ms on average, which is enough, but up to {worst_ms} ms: the buffer runs empty.",
        "دسته‌ها به‌طور میانگین {data_ms} میلی‌ثانیه می‌خواهند که بس است، اما گاه تا {worst_ms}: میان‌گیر خالی می‌شود.",
    ),
    "no_overlap": ("Nothing is read ahead", "پیش‌خوانی نمی‌شود"),
    "why_no_overlap": (
        "Loading ({data_ms} ms) and the step take turns instead of running side by side: overlap {overlap}.",
        "بارگذاری ({data_ms} میلی‌ثانیه) و گام به‌جای همزمانی نوبتی پیش می‌روند: همپوشانی {overlap}.",
    ),
    "transfer_not_overlapped": ("The copy to the device is waited for", "گام منتظر رونوشت به دستگاه می‌ماند"),
    "why_transfer_not_overlapped": (
        "Every step waits {ms} ms until its batch has been copied to the device.",
        "هر گام {ms} میلی‌ثانیه منتظر می‌ماند تا دسته‌اش به دستگاه رونوشت شود.",
    ),
    "too_many_threads": ("Too many threads for the cores", "رشته‌های پردازشی بیش از هسته‌ها"),
    "why_too_many_threads": (
        "{threads} threads share {cores} cores; {wanted} of them want to run at any time and stand in line.",
        "{threads} رشته بر سر {cores} هسته‌اند؛ در هر لحظه {wanted} رشته آمادهٔ کار است و در صف می‌ماند.",
    ),
    "retracing": ("Shapes change and graphs are made anew", "شکل‌ها عوض می‌شوند و گراف از نو ساخته می‌شود"),
    "why_retracing": (
        "{shapes} of {steps} steps came with a shape that had not been seen before, and traced or compiled first.",
        "{shapes} گام از {steps} گام شکلی تازه داشت و پیش از کار گراف ساخت یا کامپایل کرد.",
    ),
    "epoch_end_stall": ("A stall at the end of every epoch", "ایست در پایان هر دور"),
    "why_epoch_end_stall": (
        "Every {batches} batches the pipeline is built and filled again, which takes {ms} ms.",
        "هر {batches} دسته یک‌بار خط داده از نو ساخته و پر می‌شود و {ms} میلی‌ثانیه می‌برد.",
    ),
    "python_functions": ("Python functions in the data graph", "تابع‌های پایتون در گراف داده"),
    "why_python_functions": (
        "{python_ms} ms of a batch are Python, one thread at a time: {functions}.",
        "{python_ms} میلی‌ثانیه از هر دسته پایتون است که هر بار تنها در یک رشته اجرا می‌شود: {functions}.",
    ),
    "small_files_or_slow_disk": ("Small files or a slow disk", "پرونده‌های کوچک یا دیسک کُند"),
    "why_small_files": (
        "{read_ms} ms of a batch are waiting for many small files ({kib} KiB each).",
        "{read_ms} میلی‌ثانیه از هر دسته انتظار برای پرونده‌های کوچک پرشمار است (هر یک {kib} کیلوبایت).",
    ),
    "why_slow_disk": (
        "{read_ms} ms of a batch are waiting for the disk; the processor is idle meanwhile.",
        "{read_ms} میلی‌ثانیه از هر دسته انتظار برای دیسک است و پردازنده در این میان بیکار می‌ماند.",
    ),
    "padding_waste": ("Padding is computed on", "محاسبه روی پُرکننده"),
    "why_padding_waste": (
        "{padding} of all frames only fill up batches; the device computes on them as on any other.",
        "{padding} از همهٔ فریم‌ها تنها دسته را پر می‌کنند و دستگاه روی آن‌ها هم محاسبه می‌کند.",
    ),
    "eager_mode": ("The step runs eagerly", "گام بدون گراف اجرا می‌شود"),
    "why_eager_mode": (
        "Python starts {ops} operations one by one in every step of {ms} ms.",
        "پایتون در هر گامِ {ms} میلی‌ثانیه‌ای {ops} عملیات را تک‌تک آغاز می‌کند.",
    ),
    "compute_bound": (
        "The model sets the pace: stop tuning the pipeline",
        "سرعت را مدل تعیین می‌کند: خط داده را رها کنید",
    ),
    "why_compute_bound": (
        "Data could come {spare} times as fast as the step of {step_ms} ms takes it. Look at the model instead.",
        "داده می‌تواند {spare} برابرِ سرعت گامِ {step_ms} میلی‌ثانیه‌ای برسد. به‌جای آن سراغ مدل بروید.",
    ),
    "healthy": ("The pipeline is healthy", "خط داده سالم است"),
    "why_healthy": (
        "The step of {step_ms} ms hardly ever waits, and data could come {spare} times as fast.",
        "گامِ {step_ms} میلی‌ثانیه‌ای تقریباً هرگز منتظر نمی‌ماند و داده می‌تواند {spare} برابر سریع‌تر برسد.",
    ),
    # What to do.
    "deeper_buffer": (
        "Batches that wait in memory absorb what is uneven.",
        "دسته‌های آماده در حافظه ناهمواری‌ها را می‌پوشانند.",
    ),
    "precompute": (
        "Features that are computed once need not be computed in every epoch.",
        "ویژگی‌هایی که یک‌بار محاسبه شوند در هر دور از نو محاسبه نمی‌شوند.",
    ),
    "no_python": (
        "Compute features once, or rewrite the function with TensorFlow operations, which run on all cores.",
        "ویژگی‌ها را یک‌بار محاسبه کنید یا تابع را با عملیات TensorFlow بنویسید که روی همهٔ هسته‌ها اجرا می‌شود.",
    ),
    "more_threads": (
        "The stage runs on one thread while there is room for more.",
        "این مرحله روی یک رشته اجرا می‌شود، با آنکه جا برای بیشتر هست.",
    ),
    "cache": (
        "What was made once can be kept in memory for the next epoch.",
        "آنچه یک‌بار ساخته شد می‌تواند برای دور بعد در حافظه بماند.",
    ),
    "larger_step": (
        "The feed is at its limit; a larger batch makes fewer, longer steps.",
        "خوراک به حد خود رسیده است؛ دستهٔ بزرگ‌تر گام‌های کمتر و بلندتر می‌سازد.",
    ),
    "store_in_memory": (
        "A store that fits into memory is read from the disk only once.",
        "انباره‌ای که در حافظه جا شود تنها یک‌بار از دیسک خوانده می‌شود.",
    ),
    "parallel_reads": (
        "Many reads at once wait as long as one.",
        "چند خواندنِ همزمان به اندازهٔ یکی انتظار می‌کشند.",
    ),
    "few_large_files": (
        "A few large files are read at the speed of the disk, without a search for each utterance.",
        "چند پروندهٔ بزرگ با سرعت کامل دیسک خوانده می‌شوند و برای هر جمله جست‌وجویی لازم نیست.",
    ),
    "prefetch_to_device": (
        "Copied while the step before computes, a batch is there when it is wanted.",
        "اگر رونوشت در میان گام پیشین انجام شود، دسته به‌هنگام آماده است.",
    ),
    "fewer_threads": (
        "Threads that stand in line for a core only keep the step from its own.",
        "رشته‌هایی که در صف هسته‌اند تنها راه گام را می‌بندند.",
    ),
    "few_shapes": (
        "A few fixed shapes, or a signature with open lengths, are traced once.",
        "چند شکل ثابت، یا امضایی با طول آزاد، تنها یک‌بار گراف می‌سازد.",
    ),
    "repeat": (
        "The next epoch is begun while the last batches of this one are trained on.",
        "دور بعد در میانِ آموزشِ آخرین دسته‌های این دور آغاز می‌شود.",
    ),
    "graph_mode": (
        "As a graph the step is started once instead of operation by operation.",
        "گام در حالت گراف یک‌جا آغاز می‌شود، نه عملیات به عملیات.",
    ),
    "buckets": (
        "Utterances of like length in one batch leave little to fill up.",
        "جمله‌های هم‌طول در یک دسته جای کمی برای پرکردن می‌گذارند.",
    ),
}


def make_words(lang: str) -> Words:
    return Words(lang, {**PAGE_WORDS, **CAUSE_WORDS})
