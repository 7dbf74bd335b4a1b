"""The words of a run's report in English and Persian, and how each language writes numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

_WORDS: dict[str, tuple[str, str]] = {
    "title": ("Training report: {name}", "گزارش آموزش: {name}"),
    "lead": (
        "{steps} steps in {time}. The page needs nothing but itself and can be made again from the run's folder.",
        "{steps} گام در {time}. این صفحه به هیچ چیز بیرون از خود نیاز ندارد و از پوشهٔ اجرا دوباره ساخته می‌شود.",
    ),
    "steps": ("Steps", "گام‌ها"),
    "of_steps": ("of {total}", "از {total}"),
    "epochs": ("{epochs} epochs", "{epochs} دور"),
    "time": ("Training time", "زمان آموزش"),
    "per_step": ("{seconds} s per step", "{seconds} ثانیه در هر گام"),
    "loss": ("Loss", "خطا"),
    "from_loss": ("from {value} at the start", "در آغاز {value}"),
    "validation": ("Validation score", "نمرهٔ اعتبارسنجی"),
    "best_at": ("best: {value} at step {step}", "بهترین: {value} در گام {step}"),
    "no_validation": ("no validation", "بدون اعتبارسنجی"),
    "au": ("AU", "بهره‌گیری از شتاب‌دهنده"),
    "au_remark": ("share of time not waiting for data", "سهم زمان بدون انتظار برای داده"),
    "variation": ("Step variation", "پراکندگی زمان گام"),
    "variation_remark": ("deviation over mean", "انحراف معیار به میانگین"),
    "unknown": ("not known", "نامعلوم"),
    "learning": ("How it learnt", "روند یادگیری"),
    "learning_lead": (
        "Means over the steps between two records; faint lines are the records, strong ones their running mean.",
        "میانگین گام‌ها میان دو ثبت؛ خط کم‌رنگ خود ثبت‌ها و خط پررنگ میانگین روان آن‌هاست.",
    ),
    "terms": ("Terms of the loss", "اجزای خطا"),
    "measures": ("Other measures", "سنجه‌های دیگر"),
    "flow": ("flow", "جریان"),
    "prior": ("prior", "پیشین"),
    "duration": ("durations", "دیرش‌ها"),
    "pitch": ("pitch", "زیروبمی"),
    "speaker": ("speaker", "گوینده"),
    "length_error": ("error of utterance length", "خطای طول جمله"),
    "learning_rate": ("Learning rate", "نرخ یادگیری"),
    "gradient_norm": ("Gradient norm", "اندازهٔ گرادیان"),
    "validating": ("Validation", "اعتبارسنجی"),
    "validating_lead": (
        (
            "The same utterances with the same noise every time. The score is the mel distance with real durations "
            "plus a quarter of the error of token durations; the best checkpoint is "
            "chosen by it. Lower is better, except for similarity."
        ),
        (
            "هر بار همان جمله‌ها با همان نوفه. نمره، فاصلهٔ مِل با دیرش‌های واقعی به‌علاوهٔ یک‌چهارم خطای دیرش نشانه‌هاست "
            "و بهترین نقطهٔ بازیابی با آن برگزیده می‌شود. کمتر بهتر است، جز برای شباهت."
        ),
    ),
    "validating_vocoder": (
        (
            "The same segments of held-out recordings every time, made from their mel spectrograms and compared with "
            "the recordings. The score is the mel distance; the best checkpoint is chosen by it. Griffin-Lim, for "
            "comparison, is made to meet the mel bands but knows nothing between and above them. Lower is better."
        ),
        (
            "هر بار همان قطعه‌های ضبط‌های کنارگذاشته که از طیف‌نگار مِل ساخته و با خود ضبط سنجیده می‌شوند. نمره، فاصلهٔ "
            "مِل است و بهترین نقطهٔ بازیابی با آن برگزیده می‌شود. گریفین–لیم که برای سنجش آمده، خود را با باندهای مِل "
            "هماهنگ می‌کند ولی از میان و بالای آن‌ها چیزی نمی‌داند. کمتر بهتر است."
        ),
    ),
    "sound_vocoder": (
        "Segments of held-out recordings, made from their mel spectrograms.",
        "قطعه‌هایی از ضبط‌های کنارگذاشته که از طیف‌نگار مِل ساخته شده‌اند.",
    ),
    "mel": ("mel spectrogram", "طیف‌نگار مِل"),
    "stft": ("STFT magnitude", "دامنهٔ طیف"),
    "adversarial": ("adversarial", "رقابتی"),
    "features": ("feature matching", "همسانی ویژگی‌ها"),
    "critic_loss": ("loss of the discriminators", "خطای تمییزدهنده‌ها"),
    "vocoder_mel_distance": ("mel distance", "فاصلهٔ مِل"),
    "vocoder_spectral_distance": ("spectral distance", "فاصلهٔ طیفی"),
    "griffin_lim_mel_distance": ("mel distance of Griffin-Lim", "فاصلهٔ مِل گریفین–لیم"),
    "griffin_lim_spectral_distance": ("spectral distance of Griffin-Lim", "فاصلهٔ طیفی گریفین–لیم"),
    "text_rests": (
        "From step {step} on the text side rests: it had stopped improving on these utterances.",
        "از گام {step} بخش متن از آموزش بازایستاده است، زیرا دیگر روی این جمله‌ها بهتر نمی‌شد.",
    ),
    "score": ("score", "نمره"),
    "mel_distance": ("mel distance, real durations", "فاصلهٔ مِل با دیرش واقعی"),
    "free_mel_distance": ("mel distance, predicted durations", "فاصلهٔ مِل با دیرش پیش‌بینی‌شده"),
    "token_duration_error": ("error of token durations", "خطای دیرش نشانه‌ها"),
    "length_ratio": ("predicted over real length", "طول پیش‌بینی‌شده به واقعی"),
    "speaker_similarity": ("similarity of the voice", "شباهت صدا"),
    "voice": ("Voice", "صدا"),
    "speaker_accuracy": ("speakers recognised", "گویندگان بازشناخته"),
    "unaligned": ("not aligned", "هم‌ترازنشده"),
    "distances": ("Distance from real speech", "فاصله از گفتار واقعی"),
    "durations": ("Errors of rhythm", "خطاهای ضرب‌آهنگ"),
    "best_and_last": ("Best and last", "بهترین و آخرین"),
    "number": ("Measure", "سنجه"),
    "best": ("Best (step {step})", "بهترین (گام {step})"),
    "last": ("Last (step {step})", "آخرین (گام {step})"),
    "sound": ("How it sounds", "چگونه به گوش می‌رسد"),
    "sound_lead": (
        (
            "Held-out sentences in the voice of another clip of the same speaker. “Recorded” went through the same "
            "spectrogram and back, so that only the model makes the difference."
        ),
        (
            "جمله‌های کنارگذاشته با صدای قطعهٔ دیگری از همان گوینده. «ضبط‌شده» نیز از همان طیف‌نگار گذشته است تا "
            "تفاوت تنها از مدل باشد."
        ),
    ),
    "recorded": ("Recorded", "ضبط‌شده"),
    "step": ("Step {step}", "گام {step}"),
    "mel_real": ("Recorded, mel bands over seconds", "ضبط‌شده؛ باندهای مِل بر حسب ثانیه"),
    "mel_made": ("Step {step}, mel bands over seconds", "گام {step}؛ باندهای مِل بر حسب ثانیه"),
    "alignment": ("Alignment: tokens over seconds", "هم‌ترازی: نشانه‌ها بر حسب ثانیه"),
    "where_time": ("Where the time went", "زمان کجا رفت"),
    "time_lead": (
        (
            "The first step of each session, which compiles, is left out. Variation also leaves out steps that "
            "traced a graph, validated, spoke or saved."
        ),
        (
            "نخستین گام هر نشست که کامپایل می‌کند کنار گذاشته شده است. پراکندگی، گام‌هایی را که گراف ساخته، "
            "سنجیده، گفته یا ذخیره کرده‌اند نیز نمی‌شمارد."
        ),
    ),
    "computing": ("computing", "محاسبه"),
    "waiting": ("waiting for data", "انتظار برای داده"),
    "watching": ("validation and samples", "اعتبارسنجی و نمونه‌ها"),
    "all_time": ("All of the time", "همهٔ زمان"),
    "interval": ("Time of a step in milliseconds", "زمان یک گام به میلی‌ثانیه"),
    "in_numbers": ("Milliseconds and shares", "میلی‌ثانیه‌ها و سهم‌ها"),
    "wait": ("wait for data", "انتظار برای داده"),
    "stage_transfer": ("copy to the device (beside the step)", "رونوشت به دستگاه (همزمان با گام)"),
    "stage_features": ("features on the data device (beside the step)", "ویژگی‌ها روی دستگاه داده (همزمان با گام)"),
    "load": ("loading a batch (beside the step)", "بارگذاری دسته (همزمان با گام)"),
    "whole_step": ("step", "گام"),
    "median": ("Median", "میانه"),
    "mean": ("Mean", "میانگین"),
    "ninety_nine": ("99 %", "۹۹٪"),
    "effective_au": ("effective AU (padding counts as waste)", "بهره‌گیری مؤثر (پُرکردن هدررفت است)"),
    "padding": ("padding", "پُرکردن"),
    "utterances_per_s": ("utterances per second", "جمله در ثانیه"),
    "retraces": ("graphs traced while training", "گراف‌های ساخته‌شده در میان آموزش"),
    "skipped": ("Steps that went wrong", "گام‌های نادرست"),
    "skipped_lead": (
        "Skipped: {skipped}. Spikes of the loss: {spikes}. Rolled back: {rollbacks}.",
        "رد شده: {skipped}. جهش خطا: {spikes}. بازگشت به عقب: {rollbacks}.",
    ),
    "no_skipped": ("No step was skipped, no spike, no rollback.", "هیچ گامی رد نشد؛ نه جهشی و نه بازگشتی."),
    "kind_skipped": ("skipped", "رد شد"),
    "kind_spike": ("spike", "جهش"),
    "kind_rolled back": ("rolled back", "بازگشت"),
    "events": ("What happened", "رویدادها"),
    "what": ("What", "رویداد"),
    "no_gpu": ("no GPU", "بدون GPU"),
    "batch": ("Utterances of the batch", "جمله‌های دسته"),
    "configuration": ("Configuration", "پیکربندی"),
    "changed": ("Differs from the defaults", "متفاوت با پیش‌فرض"),
    "setting": ("Setting", "تنظیم"),
    "value": ("Value", "مقدار"),
    "default": ("Default", "پیش‌فرض"),
    "all_settings": ("All settings", "همهٔ تنظیم‌ها"),
    "environment": ("Environment", "محیط"),
    "session": ("From step {step}", "از گام {step}"),
    "started": ("started", "آغاز"),
    "command": ("command", "فرمان"),
    "machine": ("machine", "ماشین"),
    "versions": ("versions", "نسخه‌ها"),
    "fingerprints": ("Fingerprints", "اثر انگشت‌ها"),
    "footer": ("Made by MyXTTS from the files of the run.", "ساختهٔ MyXTTS از پرونده‌های اجرا."),
    "hours": ("{value} h", "{value} ساعت"),
    "minutes": ("{value} min", "{value} دقیقه"),
    "seconds": ("{value} s", "{value} ثانیه"),
}
LANGUAGES = ("en", "fa")
_PERSIAN = str.maketrans("0123456789.,", "۰۱۲۳۴۵۶۷۸۹٫٬")


@dataclass(frozen=True, slots=True)
class Words:
    """The words and numbers of one language. `more` are those of another report, which count before these."""

    lang: str = "en"
    more: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def say(self, key: str, **values: str) -> str:
        text = (self.more.get(key) or _WORDS[key])[LANGUAGES.index(self.lang)]
        return text.format(**values) if values else text

    def translate(self, english: str) -> str:
        """A text that is written down elsewhere in English; as it is where it has no translation."""
        texts = (text for text in (*self.more.values(), *_WORDS.values()) if text[0] == english)
        return next(texts, (english, english))[LANGUAGES.index(self.lang)]

    def name(self, key: str) -> str:
        """The word for something measured, or its own name where there is none."""
        return self.say(key) if key in self.more or key in _WORDS else key

    def count(self, number: float) -> str:
        return self._localize(f"{round(number):,}")

    def number(self, value: float) -> str:
        """Three or four digits that count."""
        if not math.isfinite(value):
            return "–"
        size = abs(value)
        if value == 0 or size >= 1000:
            return self._localize(f"{value:,.0f}")
        if size < 0.001:
            return self._localize(f"{value:.1e}".replace("e-0", "e-"))
        return self._localize(f"{value:.{max(0, 3 - max(0, math.floor(math.log10(size)) + 1))}f}")

    def tick(self, value: float) -> str:
        """As short as an axis wants it."""
        return self._localize(f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}".replace("e-0", "e-"))

    def share(self, value: float) -> str:
        sign = "٪" if self.lang == "fa" else " %"
        return self._localize(f"{100 * value:.1f}") + sign

    def time(self, seconds: float) -> str:
        if seconds >= 5400:
            return self.say("hours", value=self._localize(f"{seconds / 3600:.1f}"))
        if seconds >= 90:
            return self.say("minutes", value=self._localize(f"{seconds / 60:.1f}"))
        return self.say("seconds", value=self._localize(f"{seconds:.0f}"))

    def _localize(self, digits: str) -> str:
        return digits.translate(_PERSIAN) if self.lang == "fa" else digits
