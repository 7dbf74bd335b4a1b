"""Schema of the `data` section: corpus, text front end, audio checks, mel features, store, batching, input pipeline.

The order of the fields is that of the page of settings. Defaults follow the usual 22.05 kHz, 80-band log-mel set-up of
neural vocoders.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from myxtts.config.choices import CorpusFormat
from myxtts.config.languages import canonical_language
from myxtts.config.section import Contradiction, Section
from myxtts.config.setting import (
    NEW_BATCHES,
    NEW_FEATURES,
    NEW_SCORES,
    NEW_SELECTION,
    NEW_SHAPES,
    NEW_TOKENS,
    ONLY_DEVICE,
    ONLY_PLACE,
    ONLY_REBUILD,
    ONLY_SPEED,
    ONLY_STOP,
    Words,
    accept,
    refuse,
    setting,
)
from myxtts.config.values import accept_path, check_address, check_repeats, format_gpu_numbers, parse_gpu_numbers
from myxtts.errors import DataError

# Shorthands for the most frequent resume rules; the other fields state theirs.
_selection = partial(setting, resume=refuse(NEW_SELECTION))
_feature = partial(setting, resume=refuse(NEW_FEATURES))
_speed = partial(setting, resume=accept(ONLY_SPEED))
_tokens = partial(setting, resume=refuse(NEW_TOKENS))
_batches = partial(setting, resume=refuse(NEW_BATCHES))


class DataConfig(Section):
    """Settings of data: corpus, text, audio, features, cache and loading."""

    section_name: ClassVar[str] = "data"

    # The corpus. Paths are relative to the working folder. Changed content is detected by
    # fingerprints of corpus and store, so the paths themselves may change on --resume.
    train_data: str | None = setting(
        None, "Corpus folder or file to train on.", fa="پوشه یا فایل دیتاست آموزش.", resume=accept(ONLY_PLACE)
    )
    val_data: str | None = setting(
        None,
        "Corpus folder or file to validate on; null takes val_share of the training corpus.",
        fa="پوشه یا فایل دیتاست اعتبارسنجی؛ با `null` سهم `val_share` از دیتاست آموزش برداشته می‌شود.",
        resume=refuse(NEW_SCORES),
    )
    cache_dir: str | None = setting(
        None,
        "Folder of the feature cache; null means cached_features/ beside the corpus.",
        fa="پوشهٔ کش ویژگی‌ها؛ `null` یعنی پوشهٔ `cached_features/` کنار دیتاست.",
        resume=accept(ONLY_PLACE),
    )
    corpus_format: CorpusFormat = _selection(
        "auto", "Layout of the corpus; auto recognises it.", fa="ساختار دیتاست؛ با `auto` خود برنامه آن را تشخیص می‌دهد."
    )
    language: str = _tokens(
        "en",
        "Language of clips that name none.",
        fa="زبان خط‌هایی که زبانشان نوشته نشده است.",
        allowed=Words(
            "a language code or name such as en, fa, pt-br or german",
            "کد یا نام زبان مانند `en`، `fa`، `pt-br` یا `فارسی`",
        ),
    )
    val_share: Annotated[float, Field(ge=0.0, le=0.5)] = _selection(
        0.05,
        "Share of the utterances kept for validation when the corpus has no split.",
        fa="سهمی از کلیپ‌ها که اگر دیتاست تقسیم‌بندی ندارد برای اعتبارسنجی کنار گذاشته می‌شود.",
    )
    split_by: Literal["utterance", "speaker", "text"] = _selection(
        "utterance",
        "speaker or text: keep all clips of a speaker, or of a text, in one split.",
        fa="با `speaker` یا `text` همهٔ کلیپ‌های یک گوینده یا یک متن در یک بخش (آموزش یا اعتبارسنجی) می‌مانند.",
    )
    max_rejected_share: Annotated[float, Field(ge=0.0, le=1.0)] = setting(
        0.25,
        "Share of rejected utterances above which a corpus is not prepared; 1 accepts any.",
        fa="اگر سهم کلیپ‌های ردشده از این بیشتر شود، دیتاست ساخته نمی‌شود؛ با ۱ هر سهمی پذیرفته است.",
        resume=accept(ONLY_STOP),
    )
    max_bad_share: Annotated[float, Field(ge=0.0, le=1.0)] = setting(
        0.01,
        "Share of clips that fail while features are computed above which the command stops.",
        fa="اگر هنگام محاسبهٔ ویژگی‌ها سهم کلیپ‌های ناموفق از این بیشتر شود، دستور متوقف می‌شود.",
        resume=accept(ONLY_STOP),
    )

    # Text to token ids. The choice is frozen into the corpus and the model bundle.
    text_frontend: Literal["auto", "phonemes", "characters"] = _tokens(
        "auto",
        "Phonemes by espeak-ng or plain characters; auto takes phonemes where espeak-ng is installed.",
        fa="فونم با espeak-ng یا کاراکتر ساده؛ با `auto` اگر espeak-ng نصب باشد فونم استفاده می‌شود.",
    )
    lexicon: str | None = _tokens(
        None,
        "File of pronunciations that take precedence over the front end.",
        fa="فایل تلفظ‌هایی که بر front end متن مقدم‌اند.",
    )
    persian_ezafe: bool = _tokens(
        True,
        "Whether the linking vowel of Persian (ezafe) is found and spoken where it is not written.",
        fa="آیا کسرهٔ اضافه، جایی که نوشته نشده، پیدا و خوانده شود.",
    )
    persian_homographs: str | None = _tokens(
        None,
        "File of readings of Persian words by context (word, IPA, condition), which come before the built-in ones.",
        fa="فایل تلفظ کلمه‌های فارسی بر اساس متن اطراف (کلمه، IPA، شرط) که بر تلفظ‌های آماده مقدم است.",
    )
    persian_register: Literal["formal", "colloquial"] = _tokens(
        "formal",
        "How Persian words are read whose formal and colloquial sound differ.",
        fa="کلمه‌هایی که تلفظ رسمی و گفتاری‌شان فرق دارد چگونه خوانده شوند.",
    )

    # Recordings that are accepted, and what is done to them before features are made. An RMS of 0.06 is -24 dBFS,
    # which leaves speech the headroom of its peaks.
    min_duration_s: Annotated[float, Field(ge=0.0, le=3600.0)] = _selection(
        0.3, "Shorter recordings are rejected.", fa="فایل‌های کوتاه‌تر از این، به ثانیه، رد می‌شوند."
    )
    max_duration_s: Annotated[float, Field(gt=0.0, le=3600.0)] = _selection(
        30.0, "Longer recordings are rejected.", fa="فایل‌های بلندتر از این، به ثانیه، رد می‌شوند."
    )
    max_source_rate_hz: Annotated[int, Field(ge=8000, le=768_000)] = _selection(
        192_000,
        "Recordings with a higher sample rate are rejected.",
        fa="فایل‌هایی با نرخ نمونه‌برداری بالاتر از این رد می‌شوند.",
    )
    max_channels: Annotated[int, Field(ge=1, le=64)] = _selection(
        8, "Recordings with more channels are rejected.", fa="فایل‌هایی که بیش از این تعداد کانال دارند رد می‌شوند."
    )
    silence_db: Annotated[float, Field(ge=-200.0, le=0.0)] = _selection(
        -60.0,
        "A recording whose peak stays below this level is rejected as silent.",
        fa="فایلی که اوج صدایش به این سطح نرسد ساکت حساب و رد می‌شود.",
    )
    max_clipped_share: Annotated[float, Field(ge=0.0, le=1.0)] = _selection(
        0.005,
        "Share of samples at full scale above which a recording is rejected.",
        fa="اگر سهم نمونه‌هایی که به حداکثر دامنه رسیده‌اند از این بیشتر باشد، فایل رد می‌شود.",
    )
    trim_silence: bool = _feature(
        True, "Cut silence from both ends of a recording.", fa="سکوت دو سر هر فایل بریده شود."
    )
    trim_db: Annotated[float, Field(gt=0.0, le=120.0)] = _feature(
        38.0,
        "How far below the loudest part counts as silence when trimming.",
        fa="هنگام برش، هر چه این‌قدر دسی‌بل پایین‌تر از بلندترین بخش باشد سکوت حساب می‌شود.",
    )
    loudness: Literal["rms", "peak", "none"] = _feature(
        "rms",
        "What is brought to loudness_target; none leaves recordings as they are.",
        fa="چه چیزی به `loudness_target` رسانده شود؛ `none` فایل‌ها را همان‌طور که هستند نگه می‌دارد.",
    )
    loudness_target: Annotated[float, Field(gt=0.0, le=1.0)] = _feature(
        0.06,
        "Level that loudness is brought to, full scale being 1.",
        fa="سطحی که بلندی صدا به آن رسانده می‌شود؛ حداکثر دامنه ۱ است.",
    )

    # Features: log-mel spectrograms. At 22,050 Hz a hop of 256 samples is 11.6 ms (86 frames per second) and a window
    # of 1024 is 46 ms.
    sample_rate: Annotated[int, Field(ge=8000, le=48_000)] = _feature(
        22_050,
        "Sample rate in Hz that recordings are resampled to.",
        fa="نرخ نمونه‌برداری، به هرتز، که فایل‌ها به آن تبدیل می‌شوند.",
    )
    n_fft: Annotated[int, Field(ge=16, le=16_384)] = _feature(
        1024, "Length of the Fourier transform in samples.", fa="طول تبدیل فوریه، به نمونه."
    )
    hop_length: Annotated[int, Field(ge=1, le=16_384)] = _feature(
        256, "Samples from one mel frame to the next.", fa="فاصلهٔ یک فریم mel تا فریم بعدی، به نمونه."
    )
    win_length: Annotated[int, Field(ge=2, le=16_384)] = _feature(
        1024, "Length of the analysis window in samples.", fa="طول پنجرهٔ تحلیل، به نمونه."
    )
    n_mels: Annotated[int, Field(ge=1, le=1024)] = setting(
        80, "Number of mel bands.", fa="تعداد باندهای mel.", resume=refuse(NEW_SHAPES)
    )
    fmin: Annotated[float, Field(ge=0.0, le=24_000.0)] = _feature(
        0.0, "Lowest frequency of the mel bands in Hz.", fa="پایین‌ترین فرکانس باندهای mel، به هرتز."
    )
    fmax: Annotated[float, Field(gt=0.0, le=24_000.0)] = _feature(
        8000.0, "Highest frequency of the mel bands in Hz.", fa="بالاترین فرکانس باندهای mel، به هرتز."
    )
    # ln 1e-5 = -11.5 is the value of digital silence, and of padding in batches.
    log_floor: Annotated[float, Field(gt=0.0, le=1.0)] = _feature(
        1e-5, "Smallest mel value before the logarithm.", fa="کمترین مقدار mel پیش از لگاریتم."
    )
    max_mel_frames: Annotated[int, Field(ge=1)] | None = _selection(
        None,
        "Longest utterance in mel frames before trimming; longer ones are left out. null means no limit.",
        fa="بلندترین کلیپ به فریم mel، پیش از برش سکوت؛ بلندترها کنار گذاشته می‌شوند. `null` یعنی بدون محدودیت.",
    )

    # Oversampling: a voice that must be good among many short ones.
    repeat_speakers: Annotated[str, AfterValidator(check_repeats)] | None = _selection(
        None,
        "Speakers whose clips are used several times per epoch, such as anna=3,reza=2. null uses every clip once.",
        fa="گوینده‌هایی که کلیپ‌هایشان در هر epoch چند بار می‌آید، مانند `anna=3,reza=2`. با `null` هر کلیپ یک بار.",
    )

    # Input of the speaker encoder.
    reference_s: Annotated[float, Field(gt=0.0, le=30.0)] = _feature(
        5.0,
        "Seconds of reference audio that a batch carries: another clip of the same speaker.",
        fa="چند ثانیه از کلیپ دیگری از همان گوینده که هر batch به‌عنوان نمونهٔ صدا همراه دارد.",
    )

    # The feature store. An utterance of 5 s with 80 bands takes 138 kB in float32, half of it in float16.
    preprocessing_mode: Literal["precompute", "on_the_fly"] = _batches(
        "precompute",
        "precompute: features are computed once into the feature cache; on_the_fly: in every epoch.",
        fa="ویژگی‌ها یک بار ساخته و در کش نگه داشته شوند، یا در هر epoch دوباره محاسبه شوند.",
    )
    mel_dtype: Literal["float16", "float32"] = _feature(
        "float32", "Number format of cached spectrograms.", fa="فرمت عددی ویژگی‌های mel در کش."
    )
    cache_waveforms: bool = setting(
        False,
        "Keep the processed audio beside the features in the feature cache.",
        fa="صدای پردازش‌شده هم کنار ویژگی‌ها در کش بماند.",
        resume=accept("stored audio is not trained on"),
        old_name="store_pcm",
    )
    cache_verification: Literal["off", "sampled", "full"] = setting(
        "sampled",
        "How much of the feature cache is checked against its checksums before training.",
        fa="پیش از آموزش چه مقدار از کش با چک‌سام بررسی شود.",
        resume=accept("it says how much is checked, not what is read"),
    )
    auto_rebuild_token_cache: bool = setting(
        True,
        "Update the feature cache automatically when text settings, texts or recordings have changed.",
        fa="اگر تنظیم‌های متن، متن‌ها یا فایل‌ها عوض شده باشند، ویژگی‌های ذخیره‌شده خودکار به‌روز شوند.",
        resume=accept(ONLY_REBUILD),
    )
    auto_rebuild_mel_cache: bool = setting(
        False,
        "Recompute cached spectrograms automatically when audio settings have changed.",
        fa="اگر تنظیم‌های صدا عوض شده باشد، ویژگی‌های mel کش خودبه‌خود دوباره محاسبه شوند.",
        resume=accept(ONLY_REBUILD),
    )

    # Batches. Utterances are bucketed by length into static shapes; each shape is traced and compiled once, so more
    # shapes mean less padding and more compiling.
    batch_size: Annotated[int, Field(ge=1, le=65_536)] | Literal["auto"] = _batches(
        32,
        "Utterances in a batch; auto finds what fits.",
        fa="تعداد کلیپ‌ها در هر batch؛ با `auto` بزرگ‌ترین اندازه‌ای که جا شود پیدا می‌شود.",
    )
    frame_budget: Annotated[int, Field(ge=1)] | None = _batches(
        None,
        "Padded mel frames in a batch, instead of a fixed number of utterances.",
        fa="تعداد فریم‌های mel هر batch، با padding، به‌جای تعداد ثابت کلیپ‌ها.",
    )
    num_shapes: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = _batches(
        "auto",
        "Number of static batch shapes that utterances are sorted into by length; auto takes what pays for the run.",
        fa="تعداد شکل‌های ثابت batch که کلیپ‌ها بر اساس طول در آن‌ها چیده می‌شوند؛ با `auto` به طول آموزش بستگی دارد.",
    )

    # The input pipeline: loader threads fill the buffer in memory, from which batches are copied to the device ahead of
    # time. A batch of 32 utterances of 5 s has 4.4 MB of float32 mels, so a buffer of 50 takes 220 MB.
    num_workers: Annotated[int, Field(ge=0, le=1024)] | Literal["auto"] = _speed(
        "auto",
        "Loader threads; auto takes what the cores allow.",
        fa="تعداد تردهای loader؛ با `auto` هر چه هسته‌ها اجازه دهند.",
    )
    buffer_size: Annotated[int, Field(ge=1, le=10_000)] = _speed(
        50, "Batches held ready in memory.", fa="تعداد batchهایی که در حافظه آماده نگه داشته می‌شوند."
    )
    prefetch_buffer_size: Annotated[int, Field(ge=1, le=64)] = _speed(
        2, "Batches held ready on the device.", fa="تعداد batchهایی که روی GPU آماده نگه داشته می‌شوند."
    )
    ram_budget_gb: Annotated[float, Field(gt=0.0)] | None = _speed(
        None,
        "RAM in GB that the data pipeline may use; null derives it from the machine.",
        fa="مقدار RAM، به گیگابایت، که پایپلاین داده می‌تواند بگیرد؛ با `null` از روی سیستم حساب می‌شود.",
    )
    use_tf_native_loading: bool = setting(
        True,
        "Read and decode inside the TensorFlow graph; off uses the Python loader.",
        fa="خواندن و decode داخل گراف TensorFlow؛ خاموش یعنی loader پایتون.",
        resume=accept("both loaders give the same features, up to rounding"),
    )
    prefetch_to_gpu: bool = _speed(
        True, "Copy batches to the device before they are asked for.", fa="batchها از قبل روی GPU کپی شوند."
    )
    enhanced_gpu_prefetch: bool = _speed(
        True,
        "Hold prefetch_buffer_size batches on the device; off holds one.",
        fa="به تعداد `prefetch_buffer_size` batch روی GPU نگه داشته شود؛ خاموش یعنی فقط یکی.",
    )
    optimize_cpu_gpu_overlap: bool = _speed(
        True,
        "Keep loader threads off the cores that drive the devices.",
        fa="تردهای loader از هسته‌هایی که برای GPU کار می‌کنند استفاده نکنند.",
    )
    auto_tune_performance: bool = _speed(
        True,
        "Adjust buffer and threads from waits measured in the first steps.",
        fa="بافر و تردها از روی انتظارهای گام‌های اول تنظیم شوند.",
    )
    data_service: Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$")] | None = _speed(
        None,
        "Address of a tf.data service that does on-the-fly feature work.",
        fa="آدرس یک tf.data service که ویژگی‌ها را on-the-fly محاسبه می‌کند.",
        allowed=Words("an address such as 10.0.0.5:5050 or null", "آدرس، مانند `10.0.0.5:5050`، یا null"),
    )

    # Devices of the input pipeline: requests, from which `runtime.plan` chooses by what the machine has.
    data_gpu: Annotated[int, Field(ge=0, le=9999)] | None = setting(
        None,
        "GPU that computes features on the fly; with model_gpu it turns on Multi-GPU mode.",
        fa="GPUای که ویژگی‌ها را on-the-fly محاسبه می‌کند؛ همراه با `model_gpu` حالت Multi-GPU را روشن می‌کند.",
        resume=accept(ONLY_DEVICE),
    )
    model_gpu: int | str | None = setting(
        None,
        "GPU that trains the model; several are mirrored and fed by data_gpu.",
        fa="GPU آموزش مدل؛ اگر چند تا باشد آموزش data-parallel است و `data_gpu` به آن‌ها داده می‌رساند.",
        resume=accept(ONLY_DEVICE),
        allowed=Words('a GPU number, several as "1,2,3" or null', 'شمارهٔ کارت، یا چند تا مانند "1,2,3"، یا null'),
    )
    model_start_delay: Annotated[float, Field(ge=0.0, le=600.0)] = _speed(
        2.0,
        "Seconds the data GPU works before the model may start, in Multi-GPU mode.",
        fa="در حالت Multi-GPU، چند ثانیه GPU داده جلوتر شروع کند.",
    )

    @field_validator("train_data", "val_data", "cache_dir", "lexicon", "persian_homographs", mode="before")
    @classmethod
    def _accept_path(cls, value: object) -> object:
        return accept_path(value)

    @field_validator("language")
    @classmethod
    def _canonicalise_language(cls, value: str) -> str:
        try:
            return canonical_language(value)
        except DataError as error:
            raise ValueError(str(error)) from error

    @field_validator("data_service")
    @classmethod
    def _check_address(cls, value: str | None) -> str | None:
        """Checks the port, which the pattern bounds to five digits only."""
        return check_address(value)

    @field_validator("model_gpu", mode="before")
    @classmethod
    def _canonicalise_model_gpu(cls, value: object) -> int | str | None:
        """Normalises "1", 1 and [1] to 1, and [1, 2] to "1,2", so that equal choices compare equal."""
        if value is None:
            return None
        numbers = parse_gpu_numbers(value)
        return numbers[0] if len(numbers) == 1 else format_gpu_numbers(numbers)

    @model_validator(mode="after")
    def _refuse_impossible_features(self) -> Self:
        """The mel filter bank must lie below the Nyquist frequency, and every sample inside some analysis window."""
        if self.fmax > self.sample_rate / 2:
            raise Contradiction(
                f"fmax is {self.fmax}, above half the sample rate, {self.sample_rate / 2}",
                keys=("fmax", "sample_rate"),
                next_step=f"Set data.fmax to {self.sample_rate / 2} or less, or raise data.sample_rate.",
            )
        if self.fmin >= self.fmax:
            raise self._contradict("fmin", "not below", "fmax")
        if self.n_mels > self.n_fft // 2 + 1:
            raise Contradiction(
                f"n_mels is {self.n_mels}, but n_fft {self.n_fft} gives only {self.n_fft // 2 + 1} frequencies",
                keys=("n_mels", "n_fft"),
                next_step="Lower data.n_mels or raise data.n_fft.",
            )
        if self.win_length > self.n_fft:
            raise self._contradict("win_length", "longer than", "n_fft")
        if self.hop_length > self.win_length:
            raise self._contradict("hop_length", "longer than", "win_length", ", and would skip samples")
        return self

    @model_validator(mode="after")
    def _refuse_impossible_lengths(self) -> Self:
        """Duration limits must leave a range, and a frame budget must hold the longest utterance that is accepted."""
        if self.min_duration_s >= self.max_duration_s:
            raise self._contradict("min_duration_s", "not below", "max_duration_s")
        if self.frame_budget is not None and self.frame_budget < (self.max_mel_frames or 0):
            raise Contradiction(
                f"frame_budget is {self.frame_budget}, too small for one of max_mel_frames, {self.max_mel_frames}",
                keys=("frame_budget", "max_mel_frames"),
                next_step="Raise data.frame_budget or lower data.max_mel_frames.",
            )
        return self

    @property
    def reads_store(self) -> bool:
        """Whether training reads finished features: data are named, and they are not computed again in every epoch."""
        return self.preprocessing_mode == "precompute" and (self.train_data or self.cache_dir) is not None

    def _contradict(self, lower: str, relation: str, upper: str, remark: str = "") -> Contradiction:
        """Returns the error of two settings in the wrong order."""
        return Contradiction(
            f"{lower} is {getattr(self, lower)}, {relation} {upper}, {getattr(self, upper)}{remark}",
            keys=(lower, upper),
            next_step=f"Lower data.{lower} or raise data.{upper}.",
        )
