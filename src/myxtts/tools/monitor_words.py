"""The words of `myxtts monitor` in English and Persian: alerts, reasons for throttling, and its page."""

from __future__ import annotations

from myxtts.tools.monitor.alerts import Alert
from myxtts.tools.report_words import Words

MONITOR_WORDS: dict[str, tuple[str, str]] = {
    # Alerts.
    "run_starved": (
        (
            "The run waits for data {wait_share} of the time ({wait_ms} ms a step, {depth} batches in the buffer). "
            "myxtts diagnose finds the cause."
        ),
        (
            "اجرا {wait_share} از زمان را در انتظار داده است ({wait_ms} میلی‌ثانیه در هر گام، {depth} دسته در میان‌گیر). "
            "علت را با myxtts diagnose بیابید."
        ),
    ),
    "run_swings": (
        (
            "Step times vary by {variation_share} and repeat every {period_count} steps: data comes in bursts. "
            "A deeper buffer evens them out; myxtts diagnose finds the cause."
        ),
        (
            "زمان گام‌ها {variation_share} پراکندگی دارد و هر {period_count} گام تکرار می‌شود: داده فوج‌فوج می‌رسد. "
            "میان‌گیر بزرگ‌تر آن را هموار می‌کند؛ علت را با myxtts diagnose بیابید."
        ),
    ),
    "run_uneven": (
        "Step times vary by {variation_share}, without a period (under 20 % is steady). myxtts diagnose says why.",
        "زمان گام‌ها {variation_share} پراکندگی بی‌دوره دارد. کمتر از ۲۰٪ یکنواخت است؛ علت را با myxtts diagnose بیابید.",
    ),
    "run_steps_differ": (
        (
            "Step times vary by {variation_share} though data is always there: batches of different shapes, "
            "or other work on this machine."
        ),
        (
            "زمان گام‌ها {variation_share} پراکندگی دارد، با آنکه داده همیشه آماده است: "
            "شکل دسته‌ها یکسان نیست یا کار دیگری روی این ماشین در جریان است."
        ),
    ),
    "run_stalled": (
        "No step for {idle_time}, though the training's process lives: it validates, saves or hangs.",
        "با آنکه فرایند آموزش زنده است، {idle_time} است که گامی برداشته نشده: می‌سنجد، ذخیره می‌کند یا گیر کرده است.",
    ),
    "gpu_idle": (
        "GPU {gpu} is busy only {mean_percent} of the time though a process computes on it: it is not fed fast enough.",
        "کارت گرافیک {gpu} تنها {mean_percent} از زمان کار می‌کند، با آنکه فرایندی از آن بهره می‌برد: داده کم می‌رسد.",
    ),
    "gpu_underused": (
        (
            "GPU {gpu} is busy only {mean_percent} of the time though the run does not wait for data: "
            "look into the step with myxtts profile, or raise data.batch_size."
        ),
        (
            "کارت گرافیک {gpu} تنها {mean_percent} از زمان کار می‌کند، با آنکه اجرا در انتظار داده نیست: "
            "گام را با myxtts profile بررسی کنید یا data.batch_size را بالا ببرید."
        ),
    ),
    "gpu_swings": (
        "GPU {gpu} swings between {low_percent} and {high_percent}: it is fed in bursts.",
        "کارت گرافیک {gpu} میان {low_percent} و {high_percent} نوسان دارد: داده فوج‌فوج به آن می‌رسد.",
    ),
    "gpu_throttled": (
        "GPU {gpu} is slowed down: {reasons}.",
        "کارت گرافیک {gpu} کند شده است: {reasons}.",
    ),
    "gpu_memory_full": (
        "The memory of GPU {gpu} is {used_share} full: a longer batch may not fit. Lower data.batch_size.",
        "حافظهٔ کارت گرافیک {gpu} تا {used_share} پر است: شاید دستهٔ بلندتر جا نگیرد. data.batch_size را کم کنید.",
    ),
    "host_memory_full": (
        "The machine's memory is {used_share} full: processes may be killed. Lower data.buffer_size.",
        "حافظهٔ ماشین تا {used_share} پر است: شاید فرایندها کشته شوند. data.buffer_size را کم کنید.",
    ),
    "gpu_lost": (
        "GPU {gpu} is lost: it no longer answers the driver. Restart the machine; look for Xid in the system's log.",
        (
            "کارت گرافیک {gpu} از دست رفته است و به راه‌انداز پاسخ نمی‌دهد. ماشین را از نو راه بیندازید "
            "و در گزارش سامانه دنبال Xid بگردید."
        ),
    ),
    "starvation": ("starvation", "گرسنگی"),
    "oscillation": ("oscillation", "نوسان"),
    "throttling": ("throttling", "کندشدن"),
    "memory": ("memory", "حافظه"),
    "stall": ("stall", "توقف"),
    "lost": ("lost GPU", "کارت ازدست‌رفته"),
    # Why clocks are lower than they could be.
    "power_cap": ("its power limit is reached", "به سقف توان رسیده است"),
    "slowdown": ("hardware slowdown by heat or power", "کندی سخت‌افزاری از گرما یا توان"),
    "sync_boost": ("held back by another GPU of its group (sync boost)", "هم‌گام با کارت کندتری از گروه خود"),
    "software_heat": ("too hot (driver's limit)", "بیش از حد داغ (سقف راه‌انداز)"),
    "hardware_heat": ("too hot (hardware's limit)", "بیش از حد داغ (سقف سخت‌افزار)"),
    "power_brake": ("the power supply asks for less (power brake)", "منبع تغذیه توان کمتری می‌خواهد"),
    "board_limit": ("a limit of the board is reached", "به سقف برد رسیده است"),
    "reliability": ("held back for reliability (voltage)", "مهارشده برای پایداری (ولتاژ)"),
    # States of a run.
    "absent": ("not started yet", "هنوز آغاز نشده"),
    "starting": ("starting", "در حال آغاز"),
    "running": ("running", "در حال اجرا"),
    "stalled": ("no steps", "بی‌گام"),
    "ended": ("ended", "پایان‌یافته"),
    # The page.
    "monitor_title": ("What the machine did", "ماشین چه کرد"),
    "monitor_lead": (
        "{samples} samples in {time}, from {started} (UTC). The page needs nothing but itself.",
        "{samples} نمونه در {time}، از {started} (UTC). این صفحه به هیچ چیز بیرون از خود نیاز ندارد.",
    ),
    "gpu_card": ("GPU {gpu} busy", "کار کارت گرافیک {gpu}"),
    "range": ("{low} to {high}", "{low} تا {high}"),
    "rate": ("Utterances per second", "جمله در ثانیه"),
    "cpu": ("Processor", "پردازنده"),
    "cpus": ("{count} cores", "{count} هسته"),
    "ram": ("Memory of the machine", "حافظهٔ ماشین"),
    "of": ("of {total}", "از {total}"),
    "alerts": ("Warnings", "هشدارها"),
    "no_alerts": (
        "Nothing to warn of: not starved, swinging, throttled or nearly full.",
        "هشداری نیست: نه گرسنگی، نه نوسان، نه کندی و نه حافظهٔ پر.",
    ),
    "kind": ("Kind", "گونه"),
    "message": ("What to know", "شرح"),
    "when": ("When", "زمان"),
    "share_of_samples": ("Of the samples", "سهم نمونه‌ها"),
    "run_section": ("The run", "اجرا"),
    "run_lead": (
        "{path}: {state}. Means over the last ten seconds of steps, over seconds since the start of watching.",
        "اجرای {path}: {state}. میانگین ده ثانیهٔ پایانی گام‌ها، بر حسب ثانیه از آغاز تماشا.",
    ),
    "no_run": ("No run was found.", "اجرایی یافت نشد."),
    "au_percent": ("AU, per cent", "بهره‌گیری از شتاب‌دهنده، درصد"),
    "wait_ms": ("Wait for data and step, milliseconds", "انتظار برای داده و گام، میلی‌ثانیه"),
    "waiting_line": ("wait", "انتظار"),
    "computing_line": ("step", "گام"),
    "depth": ("Batches in the buffer", "دسته‌های درون میان‌گیر"),
    "gpu_section": ("GPU {gpu}: {name}", "کارت گرافیک {gpu}: {name}"),
    "gpu_lead": ("Over seconds since the start of watching.", "بر حسب ثانیه از آغاز تماشا."),
    "utilization": ("Busy, per cent", "کار، درصد"),
    "gpu_memory": ("Memory, GiB", "حافظه، گیبی‌بایت"),
    "power": ("Power, watts", "توان، وات"),
    "temperature": ("Temperature, °C", "دما، درجهٔ سلسیوس"),
    "clocks": ("Clocks, MHz", "بسامدها، مگاهرتز"),
    "sm_clock": ("processors", "پردازنده‌ها"),
    "memory_clock": ("memory", "حافظه"),
    "pcie": ("PCIe, GB/s", "PCIe، گیگابایت بر ثانیه"),
    "pcie_in": ("into the GPU", "به درون کارت"),
    "pcie_out": ("out of the GPU", "به بیرون کارت"),
    "last_reading": ("At the end", "در پایان"),
    "link": ("PCIe link", "پیوند PCIe"),
    "processes": ("Processes", "فرایندها"),
    "no_processes": ("none", "هیچ"),
    "problem": ("Problem", "مشکل"),
    "denied": ("this user may not read it", "این کاربر اجازهٔ خواندن ندارد"),
    "not reported": ("not reported by this GPU", "این کارت آن را گزارش نمی‌کند"),
    "no answer": ("no answer", "بی‌پاسخ"),
    "missing": ("Not to be had", "نادسترس"),
    "host_section": ("The machine", "ماشین"),
    "no_gpu_line": ("No NVIDIA GPU: {reason}.", "کارت گرافیک NVIDIA نیست: {reason}."),
    "monitor_footer": ("Made by myxtts monitor.", "ساختهٔ myxtts monitor."),
}


def make_monitor_words(lang: str = "en") -> Words:
    return Words(lang, MONITOR_WORDS)


def write_percent(value: float, words: Words) -> str:
    return words.count(value) + ("٪" if words.lang == "fa" else " %")


def describe_alert(alert: Alert, words: Words) -> str:
    """The sentence of an alert. Its numbers are written by how their names end."""
    values = {name: _write(name, number, words) for name, number in alert.numbers.items()}
    if alert.gpu is not None:
        values["gpu"] = words.count(alert.gpu)
    if alert.reasons:
        comma = "، " if words.lang == "fa" else ", "
        values["reasons"] = comma.join(words.say(reason) for reason in alert.reasons)
    return words.say(alert.key, **values)


def _write(name: str, number: float, words: Words) -> str:
    kind = name.rpartition("_")[2]
    if kind == "share":
        return write_percent(100 * number, words)
    if kind == "percent":
        return write_percent(number, words)
    if kind == "count":
        return words.count(number)
    return words.time(number) if kind == "time" else words.number(number)
