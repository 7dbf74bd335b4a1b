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
    """Length and devices of a run, compilation and precision of a step, optimiser and weight averaging."""

    section_name: ClassVar[str] = "training"

    # The run. Where several of steps, epochs and minutes are given, the first to be reached ends it.
    run_name: Annotated[str, Field(pattern=r"^\w[\w.-]{0,99}$")] = setting(
        "run",
        "Name of the run.",
        fa="نام اجرا.",
        resume=accept(ONLY_PLACE),
        allowed=Words(
            "a name of letters, digits, dots, dashes and underscores, up to 100 long",
            "نامی از حرف، رقم، نقطه، خط تیره و زیرخط، حداکثر ۱۰۰ نویسه",
        ),
    )
    run_dir: str | None = setting(
        None,
        "Folder of the run; null means runs/ followed by run_name.",
        fa="پوشهٔ اجرا؛ `null` یعنی `runs/` و سپس `run_name`.",
        resume=accept(ONLY_PLACE),
    )
    checkpoint_steps: Annotated[int, Field(ge=1)] = setting(
        1000,
        "Steps from one checkpoint to the next.",
        fa="هر چند گام یک نقطهٔ بازیابی ذخیره شود.",
        resume=accept("it only says when to save"),
    )
    keep_checkpoints: Annotated[int, Field(ge=1, le=1000)] = setting(
        3,
        "Newest checkpoints that are kept, besides the best one.",
        fa="چند نقطهٔ بازیابی آخر، افزون بر بهترین، نگه داشته شود.",
        resume=accept("it only says how much is kept"),
    )
    bundle_weights: Literal["latest", "best"] = setting(
        "best",
        "Weights that the bundle holds: the latest, or those with the best score.",
        fa="بستهٔ مدل کدام وزن‌ها را داشته باشد: آخرین‌ها، یا آن‌ها که بهترین نمره را گرفتند.",
        resume=accept("it only chooses which of the saved weights the bundle gets"),
    )
    log_steps: Annotated[int, Field(ge=1)] = setting(
        10,
        "Steps from one line of metrics.jsonl to the next.",
        fa="هر چند گام یک سطر در `metrics.jsonl` نوشته شود.",
        resume=accept("it only says how often numbers are written down"),
    )
    busy_minutes: Annotated[float, Field(ge=0, le=10_000)] = setting(
        10.0,
        "Minutes from one measurement of the GPU's busy time, over five steps, to the next; 0 means never.",
        fa="هر چند دقیقه مشغول‌بودن GPU در پنج گام اندازه گرفته شود؛ ۰ یعنی هرگز.",
        resume=accept("it only says how often the GPU is measured"),
    )
    sample_steps: Annotated[int, Field(ge=0)] = setting(
        0,
        "Steps from one set of synthesised samples to the next; 0 makes them with each checkpoint.",
        fa="هر چند گام نمونه‌های گفتار ساخته شود؛ ۰ یعنی همراه هر نقطهٔ بازیابی.",
        resume=accept("samples are not trained on"),
    )
    early_stopping: Annotated[int, Field(ge=0)] = setting(
        0,
        "Validations in a row without improvement that end training; 0 means never.",
        fa="پس از چند اعتبارسنجی پیاپی بی‌بهبود آموزش تمام شود؛ ۰ یعنی هرگز.",
        resume=accept(ONLY_STOP),
    )
    # Freezes the text encoder and the prosody predictor, which overfit small corpora long before the decoder.
    text_patience_steps: Annotated[int, Field(ge=0)] = setting(
        2000,
        "Steps without a better held-out loss after which text encoder and prosody are frozen; 0 means never.",
        fa="پس از چند گام بی‌بهبود در خطای اعتبارسنجی، رمزگذار متن و پیش‌بین نوای گفتار منجمد شوند؛ ۰ یعنی هرگز.",
        resume=accept("frozen weights stay frozen, and otherwise it takes effect from this step on"),
        scope="voice",
    )
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = setting(
        0,
        "Start of all randomness; the same seed gives the same run.",
        fa="سرآغاز همهٔ تصادف‌ها؛ بذر یکسان اجرای یکسان می‌دهد.",
        resume=refuse("all randomness, the order of the utterances among it, would be another"),
    )
    steps: Annotated[int, Field(ge=1)] | None = _end(
        None,
        "Optimiser steps after which training ends; null means no limit.",
        fa="گام‌های بهینه‌ساز تا پایان آموزش؛ `null` یعنی بی‌حد.",
    )
    epochs: Annotated[int, Field(ge=1)] | None = _end(
        None,
        "Passes over the corpus after which training ends; null means no limit.",
        fa="تعداد دورها روی پیکره تا پایان آموزش؛ `null` یعنی بی‌حد.",
    )
    minutes: Annotated[float, Field(gt=0.0)] | None = _end(
        None,
        "Minutes after which training ends, the learning rate falling towards it; null means no limit.",
        fa="دقیقه‌ها تا پایان آموزش، که نرخ یادگیری رو به آن کم می‌شود؛ `null` یعنی بی‌حد.",
    )

    # Devices of the model; those of the input pipeline are in the data section.
    multi_gpu: bool = _device(
        False, "Mirror the model over all visible GPUs.", fa="مدل روی همهٔ کارت‌های گرافیک دیدنی آینه شود."
    )
    visible_gpus: str | None = _device(
        None,
        "GPUs that may be used; null means all.",
        fa="کارت‌های گرافیکی که می‌توان به کار برد؛ `null` یعنی همه.",
        allowed=Words('GPU numbers such as "0" or "0,1" or null', 'شمارهٔ کارت‌ها مانند "0" یا "0,1"، یا null'),
    )

    # Monotonic alignment search in every step, or its result in the store (`precompute --durations-from`).
    durations: Literal["search", "stored"] = _from_now_on(
        "search",
        "Where durations of tokens come from: searched in every step, or written to the store before.",
        fa="دیرش نشانه‌ها از کجا بیاید: در هر گام جست‌وجو شود، یا از پیش در انباره نوشته شده باشد.",
        scope="voice",
    )

    # Compilation and precision; `training.execution` decides what auto means on a device.
    enable_graph_mode: bool = _device(
        True,
        "Compile the training step into a graph; off runs it eagerly.",
        fa="گام آموزش به گراف تبدیل شود؛ خاموش یعنی اجرای بی‌درنگ، عمل به عمل.",
    )
    enable_xla_compilation: bool | Literal["auto"] = _device(
        "auto",
        "Compile the step with XLA; auto does so where it pays.",
        fa="گام با XLA کامپایل شود؛ با `auto` هر جا که بیرزد.",
    )
    enable_eager_debug: bool = _device(
        False,
        "Run every operation eagerly, for stepping through with a debugger.",
        fa="هر عمل جداگانه و بی‌درنگ اجرا شود، برای پیش‌رفتن گام‌به‌گام با اشکال‌یاب.",
    )
    mixed_precision: bool | Literal["auto"] = setting(
        "auto",
        "Compute in 16 bits; auto does so in bfloat16 where the device has it.",
        fa="محاسبه با ۱۶ بیت؛ با `auto` هر جا دستگاه bfloat16 داشته باشد.",
        resume=accept("weights stay in 32 bits, whatever the step is computed in"),
    )

    # The step. AdamW with linear warm-up and cosine decay.
    # 128 frames are 1.5 s at the default hop and sample rate.
    crop_frames: Annotated[int, Field(ge=32, le=8192, multiple_of=2)] = _from_now_on(
        128,
        "Frames of each utterance that the decoder learns from at a step, chosen at random.",
        fa="شمار فریم‌هایی از هر گفته که رمزگشا در یک گام از آن‌ها می‌آموزد؛ جایشان تصادفی است.",
        scope="voice",
        allowed=Words("an even number from 32 to 8192", "عدد زوج از `32` تا `8192`"),
    )
    voice_stretch: Annotated[float, Field(ge=0.0, le=0.5)] = _from_now_on(
        0.1,
        "Vocal tract length perturbation: share by which mel frequencies are warped at random; 0 turns it off.",
        fa="تغییر تصادفی طول مجرای گفتار (VTLP): بسامدهای مِل تا چه نسبتی کشیده شوند؛ ۰ یعنی خاموش.",
        scope="voice",
    )
    gradient_accumulation_steps: Annotated[int, Field(ge=1, le=1024)] = setting(
        1,
        "Batches whose gradients are summed into one optimiser step.",
        fa="گرادیان چند دسته در یک گام بهینه‌ساز جمع شود.",
        resume=refuse(NEW_BATCHES),
    )
    learning_rate: Annotated[float, Field(gt=0.0, le=1.0)] = _from_now_on(
        1.2e-3,
        "Highest learning rate, reached after the warm-up.",
        fa="بالاترین نرخ یادگیری، که پس از گرم‌شدن به دست می‌آید.",
    )
    warmup_steps: Annotated[int, Field(ge=0)] = _from_now_on(
        250,
        "Steps over which the learning rate rises from zero.",
        fa="گام‌هایی که نرخ یادگیری در آن‌ها از صفر بالا می‌رود.",
    )
    weight_decay: Annotated[float, Field(ge=0.0, le=1.0)] = _from_now_on(
        0.01, "Weight decay of AdamW.", fa="کاهش وزن در AdamW."
    )
    clip_norm: Annotated[float, Field(gt=0.0)] = _from_now_on(
        2.0,
        "Largest gradient norm; larger gradients are scaled down to it.",
        fa="بیشترین نُرم گرادیان؛ گرادیان‌های بزرگ‌تر تا این اندازه کوچک می‌شوند.",
    )
    # 0.999 averages over about 1 / (1 - 0.999) = 1000 steps.
    ema_decay: Annotated[float, Field(ge=0.0, lt=1.0)] = setting(
        0.999,
        "Decay of the exponential moving average (EMA) of the weights, which synthesis uses; 0 turns it off.",
        fa="نرخ میراییِ میانگین متحرک نمایی وزن‌ها (EMA) که در ساخت گفتار به کار می‌رود؛ ۰ آن را خاموش می‌کند.",
        resume=refuse_switch("turning the average of the weights on or off leaves it without its past"),
    )

    @property
    def run_path(self) -> Path:
        """The folder of checkpoints, logs and bundle: `run_dir`, or runs/`run_name`."""
        return Path(self.run_dir) if self.run_dir is not None else Path("runs") / self.run_name

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
