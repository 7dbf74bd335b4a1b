"""Settings of the model's shape. The defaults are the size `small`; the other sizes are presets."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from myxtts.config.section import Contradiction, Section


class ModelConfig(Section):
    section_name: ClassVar[str] = "model"

    block: Literal["convolution", "transformer"] = Field(
        default="convolution", description="Kind of layer in text encoder and decoder."
    )
    text_width: int = Field(default=320, ge=8, le=8192, description="Width of the text encoder.")
    text_layers: int = Field(default=6, ge=1, le=128, description="Layers of the text encoder.")
    text_context: int | None = Field(
        default=3,
        ge=0,
        le=256,
        description="Tokens to either side that shape a token's sound; null for all that the layers reach.",
    )
    decoder_width: int = Field(default=512, ge=8, le=8192, description="Width of the flow-matching decoder.")
    decoder_layers: int = Field(default=6, ge=1, le=128, description="Layers of the flow-matching decoder.")
    attention_heads: int = Field(default=4, ge=1, le=128, description="Attention heads in every layer that attends.")
    reference_width: int = Field(
        default=192, ge=8, le=8192, description="Width of the reference encoder, which hears the voice."
    )
    reference_layers: int = Field(default=3, ge=1, le=128, description="Layers of the reference encoder.")
    num_latents: int = Field(
        default=16, ge=1, le=1024, description="Latent vectors that a reference voice is summed up in."
    )
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0, description="Share of activations dropped while training.")
    guidance_dropout: float = Field(
        default=0.1,
        ge=0.0,
        lt=1.0,
        description="Share of utterances trained without their voice, so that synthesis can be guided.",
    )

    @model_validator(mode="after")
    def _refuse_uneven_heads(self) -> Self:
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
