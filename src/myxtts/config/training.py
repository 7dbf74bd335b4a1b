"""Schema of the `training` section: run length, checkpoints, devices, compilation, precision, optimiser, EMA."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from myxtts.config.section import Contradiction, Section
from myxtts.config.setting import (
    FROM_NOW_ON,
    NEW_BATCHES,
    NEW_END,
    NEW_SCORES,
    NEW_WEIGHTS,
    ONLY_DEVICE,
    ONLY_PLACE,
    ONLY_STOP,
    Words,
    accept,
    refuse,
    refuse_switch,
    setting,
)
from myxtts.config.values import accept_path, format_gpu_numbers, parse_gpu_numbers

# Shorthands for the three most frequent resume rules; the other fields state theirs.
_from_now_on = partial(setting, resume=accept(FROM_NOW_ON))
_device = partial(setting, resume=accept(ONLY_DEVICE))
_end = partial(setting, resume=accept(NEW_END))


class TrainingConfig(Section):
    """Settings of training: length, devices, compilation, precision, optimiser, EMA, validation."""

    section_name: ClassVar[str] = "training"

    # The run. Where several of steps, epochs and minutes are given, the first to be reached ends it.
    run_name: Annotated[str, Field(pattern=r"^\w[\w.-]{0,99}$")] = setting(
        "run",
        "Name of the run.",
        fa="نام run.",
        resume=accept(ONLY_PLACE),
        allowed=Words(
            "a name of letters, digits, dots, dashes and underscores, up to 100 long",
            "نامی از حرف، رقم، نقطه، خط تیره و زیرخط، حداکثر ۱۰۰ کاراکتر",
        ),
    )
    run_dir: str | None = setting(
        None,
        "Folder of the run; null means runs/ followed by run_name.",
        fa="پوشهٔ run؛ `null` یعنی `runs/` و سپس `run_name`.",
        resume=accept(ONLY_PLACE),
    )
    checkpoint_steps: Annotated[int, Field(ge=1)] = setting(
        1000,
        "Steps from one checkpoint to the next.",
        fa="هر چند گام یک چک‌پوینت ذخیره شود.",
        resume=accept("it only says when to save"),
    )
    keep_checkpoints: Annotated[int, Field(ge=1, le=1000)] = setting(
        3,
        "Newest checkpoints that are kept, besides the best one.",
        fa="چند چک‌پوینت آخر، علاوه بر بهترین، نگه داشته شود.",
        resume=accept("it only says how much is kept"),
    )
    bundle_weights: Literal["latest", "best"] = setting(
        "best",
        "Weights that the bundle holds: the latest, or those with the best score.",
        fa="وزن‌های داخل bundle: آخرین وزن‌ها، یا وزن‌های بهترین score.",
        resume=accept("it only chooses which of the saved weights the bundle gets"),
    )
    log_steps: Annotated[int, Field(ge=1)] = setting(
        10,
        "Steps from one line of metrics.jsonl to the next.",
        fa="هر چند گام یک خط در `metrics.jsonl` نوشته شود.",
        resume=accept("it only says how often numbers are written down"),
    )
    busy_minutes: Annotated[float, Field(ge=0, le=10_000)] = setting(
        10.0,
        "Minutes from one measurement of the GPU's busy time, over five steps, to the next; 0 means never.",
        fa="هر چند دقیقه مشغول‌بودن GPU در پنج گام اندازه گرفته شود؛ ۰ یعنی هیچ‌وقت.",
        resume=accept("it only says how often the GPU is measured"),
    )
    sample_steps: Annotated[int, Field(ge=0)] = setting(
        0,
        "Steps from one set of synthesised samples to the next; 0 makes them with each checkpoint.",
        fa="هر چند گام نمونه‌های گفتار ساخته شود؛ ۰ یعنی همراه هر چک‌پوینت.",
        resume=accept("samples are not trained on"),
    )
    early_stopping: Annotated[int, Field(ge=0)] = setting(
        0,
        "Validations in a row without improvement that end training; 0 means never.",
        fa="پس از چند اعتبارسنجی پشت سر هم بدون بهبود، آموزش تمام شود؛ ۰ یعنی هیچ‌وقت.",
        resume=accept(ONLY_STOP),
    )
    # Freezes the text encoder and the prosody predictor, which overfit small corpora long before the decoder.
    text_freeze_patience_steps: Annotated[int, Field(ge=0)] = setting(
        2000,
        "Steps without a better held-out loss after which text encoder and prosody are frozen; 0 means never.",
        fa="پس از چند گام بدون بهبود در loss اعتبارسنجی، text encoder و پیش‌بینی‌کنندهٔ duration و pitch "
        "فریز (freeze) شوند؛ ۰ یعنی هیچ‌وقت.",
        resume=accept("frozen weights stay frozen, and otherwise it takes effect from this step on"),
        scope="voice",
        old_name="text_patience_steps",
    )
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = setting(
        0,
        "Seed of all random numbers; the same seed gives the same run.",
        fa="seed همهٔ اعداد تصادفی؛ seed یکسان run یکسان می‌دهد.",
        resume=refuse("all randomness, the order of the utterances among it, would be another"),
    )
    steps: Annotated[int, Field(ge=1)] | None = _end(
        None,
        "Optimiser steps after which training ends; null means no limit.",
        fa="گام‌های optimizer تا پایان آموزش؛ `null` یعنی بدون محدودیت.",
    )
    epochs: Annotated[int, Field(ge=1)] | None = _end(
        None,
        "Passes over the corpus after which training ends; null means no limit.",
        fa="تعداد epoch روی دیتاست تا پایان آموزش؛ `null` یعنی بدون محدودیت.",
    )
    minutes: Annotated[float, Field(gt=0.0)] | None = _end(
        None,
        "Minutes after which training ends; the learning rate decays until then. null means no limit.",
        fa="چند دقیقه تا پایان آموزش؛ learning rate تا آن موقع کم می‌شود؛ `null` یعنی بدون محدودیت.",
    )

    # Devices of the model; those of the input pipeline are in the data section.
    multi_gpu: bool = _device(
        False, "Mirror the model over all visible GPUs.", fa="مدل روی همهٔ GPUهای در دسترس (visible) کپی شود."
    )
    visible_gpus: str | None = _device(
        None,
        "GPUs that may be used; null means all.",
        fa="GPUهایی که می‌شود استفاده کرد؛ `null` یعنی همه.",
        allowed=Words('GPU numbers such as "0" or "0,1" or null', 'شمارهٔ کارت‌ها مانند "0" یا "0,1"، یا null'),
    )
    allow_cpu: bool = _device(
        False,
        "Train on the CPU if GPUs are named that do not exist, instead of ending with an error.",
        fa="اگر GPUهایی که نام برده شده‌اند وجود نداشته باشند، به‌جای خطا، آموزش روی CPU انجام شود.",
    )

    # Monotonic alignment search in every step, or its result in the store (`precompute --durations-from`).
    durations: Literal["auto", "search", "stored"] = _from_now_on(
        "auto",
        "Where durations of tokens come from: searched in every step, or stored in the feature cache; auto searches, "
        "and on GPUs writes them to the run once they are stable and then uses them.",
        fa="duration توکن‌ها از کجا بیاید: در هر گام جست‌وجو شود، یا از پیش در کش نوشته شده باشد؛ با `auto` "
        "جست‌وجو می‌شود و روی GPU، همین که پایدار شد، در پوشهٔ run نوشته می‌شود و آموزش از آن ادامه می‌یابد.",
        scope="voice",
    )

    # Compilation and precision; `training.execution` decides what auto means on a device.
    enable_graph_mode: bool = _device(
        True,
        "Compile the training step into a graph; off runs it eagerly.",
        fa="گام آموزش به گراف کامپایل شود؛ خاموش یعنی اجرای eager.",
    )
    enable_xla_compilation: bool | Literal["auto"] = _device(
        "auto",
        "Compile the step with XLA; auto does so where it pays.",
        fa="گام با XLA کامپایل شود؛ با `auto` هر جا که بیرزد.",
    )
    compile_cache: bool = _device(
        True,
        "Keep compiled steps for the next start, in ~/.cache/myxtts or in XDG_CACHE_HOME.",
        fa="گام‌های کامپایل‌شده برای شروع بعدی نگه داشته شوند، در `~/.cache/myxtts` یا در `XDG_CACHE_HOME`.",
    )
    enable_eager_debug: bool = _device(
        False,
        "Run every operation eagerly, for stepping through with a debugger.",
        fa="هر عملیات به شکل eager اجرا شود، برای دیباگ گام‌به‌گام.",
    )
    mixed_precision: bool | Literal["auto"] = setting(
        "auto",
        "Compute in 16 bits; auto does so in bfloat16 where the device has it.",
        fa="محاسبه با ۱۶ بیت؛ با `auto` هر جا GPU از bfloat16 پشتیبانی کند.",
        resume=accept("weights stay in 32 bits, whatever the step is computed in"),
    )

    # The step. AdamW with linear warm-up and cosine decay.
    # 128 frames are 1.5 s at the default hop and sample rate.
    crop_frames: Annotated[int, Field(ge=32, le=8192, multiple_of=2)] = _from_now_on(
        128,
        "Frames of each utterance that the decoder learns from at a step, chosen at random.",
        fa="تعداد فریم‌هایی از هر کلیپ که decoder در یک گام از آن‌ها یاد می‌گیرد؛ جایشان تصادفی است.",
        scope="voice",
        allowed=Words("an even number from 32 to 8192", "عدد زوج از `32` تا `8192`"),
    )
    voice_augmentation: Annotated[float, Field(ge=0.0, le=0.5)] = _from_now_on(
        0.1,
        "Voice augmentation (VTLP): share by which mel frequencies are warped at random; 0 turns it off.",
        fa="تغییر تصادفی طول مجرای گفتار (VTLP): فرکانس‌های mel تا چه نسبتی کشیده شوند؛ ۰ یعنی خاموش.",
        scope="voice",
        old_name="voice_stretch",
    )
    gradient_accumulation_steps: Annotated[int, Field(ge=1, le=1024)] = setting(
        1,
        "Batches whose gradients are summed into one optimiser step.",
        fa="گرادیان چند batch در یک گام optimizer جمع شود.",
        resume=refuse(NEW_BATCHES),
    )
    learning_rate: Annotated[float, Field(gt=0.0, le=1.0)] = _from_now_on(
        1.2e-3, "Highest learning rate, reached after the warm-up.", fa="بالاترین learning rate، پس از warm-up."
    )
    warmup_steps: Annotated[int, Field(ge=0)] = _from_now_on(
        250,
        "Steps over which the learning rate rises from zero.",
        fa="گام‌های warm-up که learning rate در آن‌ها از صفر بالا می‌رود.",
    )
    weight_decay: Annotated[float, Field(ge=0.0, le=1.0)] = _from_now_on(
        0.01, "Weight decay of AdamW.", fa="مقدار weight decay در AdamW."
    )
    clip_norm: Annotated[float, Field(gt=0.0)] = _from_now_on(
        2.0,
        "Largest gradient norm; larger gradients are scaled down to it.",
        fa="حداکثر norm گرادیان؛ گرادیان بزرگ‌تر تا این حد کوچک می‌شود (clip).",
    )
    # 0.999 averages over about 1 / (1 - 0.999) = 1000 steps.
    ema_decay: Annotated[float, Field(ge=0.0, lt=1.0)] = setting(
        0.999,
        "Decay of the exponential moving average (EMA) of the weights, which synthesis uses; 0 turns it off.",
        fa="ضریب decay در EMA وزن‌ها که در ساخت گفتار استفاده می‌شود؛ ۰ آن را خاموش می‌کند.",
        resume=refuse_switch("turning the average of the weights on or off leaves it without its past"),
    )

    # Adaptation of a trained model (--init-from) to a few minutes of speech; `training.voice.adapt` chooses the rest.
    adapt: Literal["voice", "all"] | None = setting(
        None,
        "With --init-from: adapt the model to a new voice in languages that it knows (voice), or train all of it, for "
        "new languages too (all); null adapts to less than 15 minutes of one new voice, and to other corpora of less "
        "than 15 minutes if no length is given.",
        fa="همراه `--init-from`: مدل با یک صدای جدید در زبان‌هایی که بلد است تطبیق داده شود (`voice`)، یا همهٔ مدل "
        "آموزش ببیند، برای زبان‌های جدید هم (`all`)؛ با `null` فقط برای کمتر از ۱۵ دقیقه از یک صدای جدید، یا هر دیتاست "
        "کمتر از ۱۵ دقیقه که طول آموزش برایش داده نشده باشد.",
        resume=refuse(NEW_WEIGHTS),
        scope="voice",
    )
    start_pull: Annotated[float, Field(ge=0.0, le=1000.0)] = setting(
        0.0,
        "Weight decay towards the weights of --init-from (L2-SP) instead of towards zero; 0 turns it off.",
        fa="مقدار weight decay به سمت وزن‌های `--init-from` (L2-SP) به‌جای صفر؛ ۰ آن را خاموش می‌کند.",
        resume=refuse_switch("the checkpoint holds the starting weights of a pulled run, and no other does"),
        scope="voice",
    )
    start_mix: Annotated[float, Field(ge=0.0, lt=1.0)] = setting(
        0.0,
        "Share of the weights of --init-from in those that validation and synthesis use (weight interpolation); "
        "needs start_pull and ema_decay above 0.",
        fa="سهم وزن‌های `--init-from` در وزن‌هایی که اعتبارسنجی و ساخت گفتار با آن‌ها انجام می‌شود (weight interpolation)؛ "
        "`start_pull` و `ema_decay` باید بیشتر از ۰ باشند.",
        resume=refuse(NEW_SCORES),
        scope="voice",
    )

    @property
    def run_path(self) -> Path:
        """The folder of checkpoints, logs and bundle: `run_dir`, or runs/`run_name`."""
        return Path(self.run_dir) if self.run_dir is not None else Path("runs") / self.run_name

    def count_steps(self, num_batches_per_epoch: int) -> int | None:
        """The step at which a run ends: the earlier of `steps` and `epochs`, None where neither is given."""
        ends = [] if self.steps is None else [self.steps]
        if self.epochs is not None:
            ends.append(self.epochs * num_batches_per_epoch // self.gradient_accumulation_steps)
        return min(ends, default=None)

    @field_validator("run_dir", mode="before")
    @classmethod
    def _accept_path(cls, value: object) -> object:
        return accept_path(value)

    @field_validator("visible_gpus", mode="before")
    @classmethod
    def _canonicalise_visible_gpus(cls, value: object) -> str | None:
        return None if value is None else format_gpu_numbers(parse_gpu_numbers(value))

    @model_validator(mode="after")
    def _refuse_compiling_eager_steps(self) -> Self:
        """XLA compiles graphs, so it needs graph mode. Only an explicit true contradicts; `auto` adapts."""
        if self.enable_xla_compilation is not True:
            return self
        if self.enable_eager_debug:
            raise Contradiction(
                "enable_eager_debug and enable_xla_compilation are both true, but a compiled step cannot run eagerly",
                keys=("enable_eager_debug", "enable_xla_compilation"),
                next_step="Drop training.enable_xla_compilation to debug, or training.enable_eager_debug to train.",
            )
        if not self.enable_graph_mode:
            raise Contradiction(
                "enable_xla_compilation is true and enable_graph_mode is false, but XLA compiles graphs",
                keys=("enable_xla_compilation", "enable_graph_mode"),
                next_step="Drop training.enable_xla_compilation, or set training.enable_graph_mode to true.",
            )
        return self
