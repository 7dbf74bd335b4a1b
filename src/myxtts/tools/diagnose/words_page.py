"""The words of the page and the screen of a diagnosis, in English and Persian."""

from __future__ import annotations

PAGE_WORDS: dict[str, tuple[str, str]] = {
    "diagnosis_title": ("Diagnosis of the data pipeline", "عیب‌یابی خط داده"),
    "diagnosis_lead": (
        "{steps} steps measured with everything at work, then each stage on its own. {kind}",
        "{steps} گام با همهٔ بخش‌ها سنجیده شد، سپس هر مرحله به‌تنهایی. {kind}",
    ),
    "step_emulated": ("The step was emulated.", "گام شبیه‌سازی شده بود."),
    "step_real": ("The step was a real one.", "گام واقعی بود."),
    "loading": ("Data loading", "بارگذاری داده"),
    "good": ("good, under 100 ms", "خوب؛ کمتر از ۱۰۰ میلی‌ثانیه"),
    "moderate": ("moderate, 100 to 500 ms", "متوسط؛ ۱۰۰ تا ۵۰۰ میلی‌ثانیه"),
    "slow": ("slow, over 500 ms", "کُند؛ بیش از ۵۰۰ میلی‌ثانیه"),
    "ms": ("{value} ms", "{value} میلی‌ثانیه"),
    "busy": ("Accelerator busy", "شتاب‌دهنده در کار"),
    "busy_remark": ("step by interval (AU)", "سهم گام از فاصلهٔ گام‌ها (AU)"),
    "stable": ("stable, under 20 %", "یکنواخت؛ کمتر از ۲۰٪"),
    "unstable": ("uneven, over 20 %", "ناهموار؛ بیش از ۲۰٪"),
    "whole_interval": ("One step with everything", "یک گام با همه‌چیز"),
    "batches_per_s": ("{value} batches a second", "{value} دسته در ثانیه"),
    "to_gain": ("To be gained", "دستاورد ممکن"),
    "times_faster": ("{value}×", "{value} برابر"),
    "between": ("{low} to {high}", "{low} تا {high}"),
    "nothing_to_gain": ("nothing in the pipeline", "در خط داده چیزی نیست"),
    "causes": ("What costs time", "چه چیزی زمان می‌برد"),
    "causes_lead": (
        "The most costly first; harmless things are not listed.",
        "پرهزینه‌ترین در آغاز؛ بی‌ضررها نیامده‌اند.",
    ),
    "lost": ("{ms} ms of a step ({share})", "{ms} میلی‌ثانیه از هر گام ({share})"),
    "recommendations": ("What to change", "چه چیزی را تغییر دهید"),
    "reason": ("Why", "چرا"),
    "gain": ("Expected gain", "دستاورد پیش‌بینی‌شده"),
    "basis": ("Known from", "بر پایهٔ"),
    "tried": ("a trial", "آزمایش"),
    "modelled": ("measured times", "زمان‌های سنجیده"),
    "estimated": ("an estimate", "برآورد"),
    "predicted_measured": (
        "Predicted {predicted}, measured {measured} (blocks between {low} and {high}).",
        "پیش‌بینی {predicted}، سنجیده {measured} (بلوک‌ها میان {low} و {high}).",
    ),
    "verified": ("Old and new in turn", "قدیم و جدید به نوبت"),
    "stages": ("Stages", "مرحله‌ها"),
    "stages_lead": (
        "What each stage adds to a batch on its own, and how many batches a second it could give.",
        "آنچه هر مرحله به‌تنهایی به یک دسته می‌افزاید و شمار دسته‌هایی که در ثانیه می‌تواند بدهد.",
    ),
    "stage": ("Stage", "مرحله"),
    "alone": ("alone, ms", "به‌تنهایی، میلی‌ثانیه"),
    "capacity": ("capacity, batches/s", "گنجایش، دسته در ثانیه"),
    "name_read": ("read", "خواندن"),
    "name_decode": ("decode", "رمزگشایی"),
    "name_features": ("features", "ویژگی‌ها"),
    "name_batch": ("batch", "دسته‌بندی"),
    "name_transfer": ("transfer", "انتقال"),
    "name_step": ("step", "گام"),
    "all_data": ("data side as a whole", "سمت داده روی هم"),
    "together": ("everything together", "همه با هم"),
    "rhythm": ("Rhythm", "ضرب‌آهنگ"),
    "timeline": ("Timeline", "خط زمان"),
    "no_period": ("The steps do not swing.", "گام‌ها نوسان ندارند."),
    "period": (
        "The steps swing with a period of {steps} steps, {seconds} s (autocorrelation {correlation}).",
        "گام‌ها با دورهٔ {steps} گام، {seconds} ثانیه، نوسان می‌کنند (خودهمبستگی {correlation}).",
    ),
    "step_axis": ("Milliseconds of each step", "میلی‌ثانیهٔ هر گام"),
    "python_heading": ("Python in the graph", "پایتون در گراف"),
    "function": ("Function", "تابع"),
    "place": ("Place", "جا"),
    "operation": ("Operation", "عملیات"),
    "machine_heading": ("Settings for this machine", "تنظیم‌های این ماشین"),
    "for_card": ("preset for {card}", "پیش‌تنظیم {card}"),
    "for_cores": ("{cores} cores; one is left to the step", "{cores} هسته؛ یکی برای گام می‌ماند"),
    "for_memory": ("{gb} GB of memory may be used", "{gb} گیگابایت حافظه در دسترس است"),
    "for_vram": ("{gb} GB are free on {card}", "{gb} گیگابایت روی {card} آزاد است"),
    "split_heading": ("Data GPU or data-parallel", "کارت داده یا آموزش موازی"),
    "split_numbers": (
        (
            "Features take {features_ms} ms and steps {step_ms} ms. On equal cards a data GPU would reach {split} "
            "batches a second, data-parallel training {parallel}."
        ),
        (
            "ویژگی‌ها {features_ms} و گام‌ها {step_ms} میلی‌ثانیه می‌خواهند. روی کارت‌های برابر، کارت داده {split} دسته "
            "در ثانیه و آموزش موازی {parallel} دسته می‌دهد."
        ),
    ),
    "split_split": ("A data GPU gains {gain}.", "کارت داده {gain} می‌افزاید."),
    "split_data-parallel": (
        "Data-parallel is {gain} faster: set training.multi_gpu and leave out data_gpu.",
        "آموزش موازی {gain} سریع‌تر است: training.multi_gpu را روشن و data_gpu را حذف کنید.",
    ),
    "split_neither": ("The difference, {gain}, is not worth a change.", "تفاوت، {gain}، ارزش تغییر ندارد."),
    "diagnosis_footer": ("Made by myxtts diagnose.", "ساختهٔ myxtts diagnose."),
}
