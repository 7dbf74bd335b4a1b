"""Schema of the `model` section: widths, depths and regularisation of the acoustic model.

The defaults are the size `small`; the other sizes are presets in `config/presets/model_size`.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from myxtts.config.section import Contradiction, Section
from myxtts.config.setting import NEW_LOSS, NEW_SHAPES, refuse, setting

# Another value changes the shapes of the weights, so that no checkpoint fits.
_shape = partial(setting, resume=refuse(NEW_SHAPES), scope="voice")


class ModelConfig(Section):
    """Settings of the model: widths and depths of text encoder, decoder and reference encoder."""

    section_name: ClassVar[str] = "model"

    block: Literal["convolution", "transformer"] = _shape(
        "convolution", "Kind of layer in text encoder and decoder.", fa="نوع لایه در text encoder و decoder."
    )
    text_width: Annotated[int, Field(ge=8, le=8192)] = _shape(320, "Width of the text encoder.", fa="عرض text encoder.")
    text_layers: Annotated[int, Field(ge=1, le=128)] = _shape(
        6, "Layers of the text encoder.", fa="تعداد لایه‌های text encoder."
    )
    # A wider context lets the model memorise the texts of small corpora.
    text_context: Annotated[int, Field(ge=0, le=256)] | None = _shape(
        3,
        "Context of the text encoder, in tokens to either side; null means as far as its layers reach.",
        fa="میدان دید text encoder، به توکن از هر طرف؛ `null` یعنی تا هر جا که لایه‌ها ببینند.",
    )
    decoder_width: Annotated[int, Field(ge=8, le=8192)] = _shape(
        512, "Width of the flow-matching decoder.", fa="عرض decoder."
    )
    decoder_layers: Annotated[int, Field(ge=1, le=128)] = _shape(
        6, "Layers of the flow-matching decoder.", fa="تعداد لایه‌های decoder."
    )
    attention_heads: Annotated[int, Field(ge=1, le=128)] = setting(
        4,
        "Attention heads in every layer that attends.",
        fa="تعداد attention head در هر لایهٔ attention.",
        resume=refuse("attention would be cut into other heads"),
        scope="voice",
    )
    reference_width: Annotated[int, Field(ge=8, le=8192)] = _shape(
        192,
        "Width of the speaker encoder, which reads the reference.",
        fa="عرض reference encoder که نمونهٔ صدا را می‌خواند.",
    )
    reference_layers: Annotated[int, Field(ge=1, le=128)] = _shape(
        3, "Layers of the speaker encoder.", fa="تعداد لایه‌های reference encoder."
    )
    # Perceiver resampler: the decoder attends to these instead of all frames of the reference.
    num_latents: Annotated[int, Field(ge=1, le=1024)] = _shape(
        16,
        "Latent vectors that the speaker encoder makes of a reference.",
        fa="تعداد latentهایی که reference encoder از نمونهٔ صدا می‌سازد.",
    )
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = setting(
        0.1,
        "Share of activations dropped while training.",
        fa="نرخ dropout هنگام آموزش.",
        resume=refuse(NEW_LOSS),
        scope="voice",
    )
    # Classifier-free guidance: synthesis mixes predictions with and without the voice.
    guidance_dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = setting(
        0.1,
        "Share of utterances trained without a reference, for classifier-free guidance in synthesis.",
        fa="سهم کلیپ‌هایی که بدون نمونهٔ صدا آموزش می‌بینند، برای classifier-free guidance هنگام ساخت گفتار.",
        resume=refuse(NEW_LOSS),
        scope="voice",
    )
    # Off, because it was measured on the base model only.
    phone_classifier: bool = _shape(
        False,
        "Train a phone classifier beside the model, by which the decoder learns to keep phones apart.",
        fa="آموزش یک phone classifier در کنار مدل، تا decoder آواها را از هم متمایز نگه دارد.",
    )

    @model_validator(mode="after")
    def _refuse_uneven_heads(self) -> Self:
        """Multi-head attention splits a width into equal heads; convolution blocks attend in the reference only."""
        names = ["reference_width"]
        if self.block == "transformer":
            names += ["text_width", "decoder_width"]
        for name in names:
            width = getattr(self, name)
            if width % self.attention_heads:
                raise Contradiction(
                    f"{name} is {width}, which {self.attention_heads} attention_heads do not divide evenly",
                    keys=(name, "attention_heads"),
                    next_step=f"Make model.{name} a multiple of model.attention_heads.",
                )
        return self
