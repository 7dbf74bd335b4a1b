"""What the page of settings says around its tables, in both languages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from documentation.words import Language

GROUPS: Mapping[str, Mapping[Language, str]] = {
    "model_size": {"en": "Presets to choose from", "fa": "انتخاب پیش‌تنظیم‌ها"},
    "data.train_data": {"en": "Corpus", "fa": "پیکره"},
    "data.text_frontend": {"en": "Text", "fa": "متن"},
    "data.min_duration_s": {"en": "Recordings", "fa": "صداهای ضبط‌شده"},
    "data.sample_rate": {"en": "Features", "fa": "ویژگی‌ها"},
    "data.preprocessing_mode": {"en": "Feature store", "fa": "انبارهٔ ویژگی‌ها"},
    "data.batch_size": {"en": "Batches", "fa": "دسته‌ها"},
    "data.num_workers": {"en": "Feed", "fa": "خوراک‌رسانی"},
    "data.data_gpu": {"en": "Devices of the pipeline", "fa": "دستگاه‌های خط داده"},
    "model.block": {"en": "Model", "fa": "مدل"},
    "training.run_name": {"en": "Run", "fa": "اجرا"},
    "training.multi_gpu": {"en": "Devices of training", "fa": "دستگاه‌های آموزش"},
    "training.durations": {"en": "Alignment, compilation and precision", "fa": "هم‌ترازی، کامپایل و دقت اعداد"},
    "training.gradient_accumulation_steps": {"en": "Optimiser", "fa": "بهینه‌ساز"},
}
"""Each group by the setting it begins with."""


@dataclass(frozen=True, slots=True)
class ConfigurationWords:
    introduction: str
    layers: str
    layers_text: str
    presets: str
    presets_text: str
    columns: tuple[str, str, str, str]
    key: str
    fixed_mark: str


_EN = ConfigurationWords(
    introduction="""# Configuration

<!-- Made from the schema by `make docs`; do not edit. -->

Every setting of MyXTTS. A key means the same in YAML, in Python, behind `--set` and here, and each quantity exists
once.
`myxtts config` shows all values with the place each came from; `myxtts config buffer_size` explains one.

```bash run
myxtts config batch_size buffer_size
myxtts config --gpu-card rtx3060 --changed
myxtts config --plan
```

In a YAML file, settings stand in their sections; in Python, `XTTSConfig` takes them flat:

```yaml
model_size: tiny
data:
  batch_size: 48
  num_workers: 16
training:
  steps: 8000
```

```python
from myxtts import XTTSConfig

config = XTTSConfig(model_size="tiny", batch_size=48, num_workers=16, steps=8000)
config = XTTSConfig.load("my.yaml", batch_size=32)
```

An unknown key ends with exit code 4 and the nearest known one:
`data.batch_sise (--set data.batch_sise) is not a setting. Did you mean data.batch_size?`
In the tables ⚑ marks what a run that was begun must keep: `--resume` refuses another value, `--override`
accepts it.""",
    layers="Which value wins",
    layers_text="""Defaults, then presets, then the YAML file, then arguments in Python, then flags: the later wins. Of
the presets, a GPU card beats a model size. The resolved configuration is written into every corpus, store and run as
`config.yaml`, with the origin of each value that is not the default.""",
    presets="What presets set",
    presets_text="Everything here can be set by hand as well; a value of yours always beats that of a preset.",
    columns=("key and flag", "default", "allowed", "effect"),
    key="key",
    fixed_mark="⚑",
)

_FA = ConfigurationWords(
    introduction="""# پیکربندی

<!-- این صفحه را make docs از روی طرح‌وارهٔ تنظیم‌ها می‌سازد؛ دستی ویرایشش نکنید. -->

همهٔ تنظیم‌های MyXTTS. هر کلید در YAML، در پایتون، پشت `--set` و در این صفحه یک معنا دارد و هر کمیت فقط یک جا تعریف
شده است.
فرمان `myxtts config` همهٔ مقدارها را با خاستگاه هر کدام نشان می‌دهد و `myxtts config buffer_size` یکی را توضیح می‌دهد.

```bash run
myxtts config batch_size buffer_size
myxtts config --gpu-card rtx3060 --changed
myxtts config --plan
```

در پروندهٔ YAML هر تنظیم در بخش خودش می‌آید؛ در پایتون، `XTTSConfig` آن‌ها را بدون بخش می‌گیرد:

```yaml
model_size: tiny
data:
  batch_size: 48
  num_workers: 16
training:
  steps: 8000
```

```python
from myxtts import XTTSConfig

config = XTTSConfig(model_size="tiny", batch_size=48, num_workers=16, steps=8000)
config = XTTSConfig.load("my.yaml", batch_size=32)
```

کلید ناشناخته با کد خروج ۴ و نزدیک‌ترین کلید شناخته‌شده رد می‌شود:
`data.batch_sise (--set data.batch_sise) is not a setting. Did you mean data.batch_size?`

در جدول‌ها نشان ⚑ یعنی اجرایی که آغاز شده باید همان مقدار را نگه دارد: `--resume` مقدار دیگری را نمی‌پذیرد، مگر با
`--override`.""",
    layers="کدام مقدار برنده است",
    layers_text="""اول پیش‌فرض‌ها، بعد پیش‌تنظیم‌ها، بعد پروندهٔ YAML، بعد آرگومان‌های پایتون و در آخر گزینه‌های خط فرمان:
هر کدام دیرتر بیاید برنده است. میان پیش‌تنظیم‌ها، کارت گرافیک بر اندازهٔ مدل مقدم است. پیکربندی نهایی در هر پیکره، انباره و
اجرا در پروندهٔ `config.yaml` نوشته می‌شود و کنار هر مقداری که پیش‌فرض نیست، خاستگاهش هم می‌آید.""",
    presets="پیش‌تنظیم‌ها چه مقدارهایی می‌گذارند",
    presets_text="همهٔ این‌ها را دستی هم می‌توان تنظیم کرد؛ مقداری که خودتان بدهید همیشه بر پیش‌تنظیم مقدم است.",
    columns=("کلید و گزینه", "پیش‌فرض", "مقدارهای مجاز", "اثر"),
    key="کلید",
    fixed_mark="⚑",
)

PAGE_WORDS: Mapping[Language, ConfigurationWords] = {"en": _EN, "fa": _FA}
