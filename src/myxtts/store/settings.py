"""Everything that shapes stored features, as one comparable record: the store's fingerprint."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from myxtts.config.schema import DataConfig
from myxtts.errors import DataError
from myxtts.features.definition import DEFINITION_VERSION, AudioDefinition, MelDefinition
from myxtts.store.layout import Part
from myxtts.text.frontend import FrontEnd


@dataclass(frozen=True)
class StoreSettings:
    """How features are made. Two stores with equal settings and sources hold equal features."""

    mel: MelDefinition
    audio: AudioDefinition
    mel_dtype: str
    has_pcm: bool
    frontend: str
    definition: int = DEFINITION_VERSION

    @classmethod
    def of(cls, data: DataConfig, frontend: FrontEnd) -> StoreSettings:
        return cls(
            mel=MelDefinition.from_config(data),
            audio=AudioDefinition.from_config(data),
            mel_dtype=data.mel_dtype,
            has_pcm=data.store_pcm,
            frontend=frontend.fingerprint(),
        )

    @property
    def parts(self) -> tuple[Part, ...]:
        return ("mel", "tokens", "pcm") if self.has_pcm else ("mel", "tokens")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> StoreSettings:
        try:
            mel, audio = MelDefinition(**fields["mel"]), AudioDefinition(**fields["audio"])
            return cls(**{**fields, "mel": mel, "audio": audio})
        except (TypeError, KeyError) as error:
            raise DataError(
                f"The store's settings cannot be read ({error}).",
                next_step="It was made by another version: run myxtts precompute --rebuild.",
            ) from error


def list_differences(stored: StoreSettings, wanted: StoreSettings) -> dict[str, tuple[Any, Any]]:
    """Each setting that differs, by name, with the stored and the wanted value."""
    old, new = _flatten(stored.to_json()), _flatten(wanted.to_json())
    return {name: (old.get(name), new.get(name)) for name in new if old.get(name) != new.get(name)}


def is_text_only(differences: dict[str, tuple[Any, Any]]) -> bool:
    """Whether spectrograms stay valid and only tokens must be made anew."""
    return set(differences) == {"frontend"}


def describe_differences(differences: dict[str, tuple[Any, Any]]) -> str:
    names = {"frontend": "text front end", "definition": "definition of the features"}
    return ", ".join(
        f"{names.get(name, name)} {_shorten(old)} → {_shorten(new)}" for name, (old, new) in differences.items()
    )


def _flatten(fields: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        flat |= _flatten(value) if isinstance(value, dict) else {name: value}
    return flat


def _shorten(value: object) -> str:
    text = str(value)
    return f"{text[:8]}…" if len(text) > 20 else text
