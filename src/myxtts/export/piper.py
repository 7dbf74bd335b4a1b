"""Exports a voice for Piper: NAME.onnx and NAME.onnx.json, which piper-tts and wyoming-piper load, and tokens.txt, with
which sherpa-onnx loads the same model.

These programs bring their own text front end: espeak-ng, whose IPA they send code point by code point. The graph turns
that into the tokens of the model (`piper_tokens`). A Piper voice speaks one language; its speakers are voices of the
model. Before anything is written, the graph is compared with the TensorFlow model (`single_file`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from myxtts.errors import ConfigError, UsageError
from myxtts.export.single_file import SingleFileProof, list_ids, make_single_file
from myxtts.export.speech_graph import FixedSpeaker
from myxtts.models.bundle import refresh_card
from myxtts.storage.atomic import write_file
from myxtts.synthesis.loaded_bundle import KnownVocoder, LoadedBundle
from myxtts.synthesis.voices import SpeakerEmbedding, check_voice_name
from myxtts.text.phonemes import find_voice
from myxtts.text.tokenizer import PhonemeTokenizer
from myxtts.types import DEFAULT_NOISE_SCALE

_PIPER_VERSION = "1.8.0"
"""The version of piper-tts whose format this is."""


@dataclass(frozen=True)
class PiperVoice:
    """What is exported: a name for the files, the language, and speakers with their embeddings."""

    name: str
    language: str
    speakers: dict[str, SpeakerEmbedding]

    @property
    def espeak_voice(self) -> str:
        return find_voice(self.language)


def choose_piper_voice(
    loaded: LoadedBundle, names: Sequence[str] = (), language: str | None = None, name: str | None = None
) -> PiperVoice:
    """Returns the voice to export: the named speakers, or all that speak the language.

    Raises ConfigError for a model of characters, UsageError where no speaker is left.
    """
    if not isinstance(loaded.frontend.tokenizer, PhonemeTokenizer):
        raise ConfigError(
            "The model reads characters, and Piper sends phonemes.",
            next_step="Export with --format onnx, or train with text_frontend: phonemes.",
        )
    first = loaded.find_voice(names[0]) if names else None
    spoken = loaded.find_language(language, first)
    chosen = list(names) or [one for one in loaded.list_voices() if loaded.find_voice(one).language in ("", spoken)]
    embeddings = {one: loaded.find_voice(one).embedding for one in chosen}
    stale = [one for one, embedding in embeddings.items() if embedding is None]
    if stale:
        raise UsageError(
            f"The voice {stale[0]!r} has no embedding of this model.",
            next_step="Save it again with myxtts synth --save-voice, and export that.",
        )
    if not embeddings:
        raise UsageError(
            f"The model has no voice that speaks {spoken!r}.",
            next_step=f"Name voices with --voice: {', '.join(loaded.list_voices()[:20]) or 'save one first'}.",
        )
    speakers = {one: embedding for one, embedding in embeddings.items() if embedding is not None}
    return PiperVoice(check_voice_name(name or loaded.name), spoken, speakers)


def export_piper(loaded: LoadedBundle, voice: PiperVoice, vocoder: KnownVocoder, out: Path) -> SingleFileProof:
    """Writes NAME.onnx, NAME.onnx.json, tokens.txt and CARD.md into `out`; raises DataError where the proof fails."""
    speakers = [FixedSpeaker(embedding, voice.language) for embedding in voice.speakers.values()]
    model, proof = make_single_file(loaded, speakers, vocoder)
    id_map = list_ids(loaded.frontend.tokenizer)
    _add_metadata(model, loaded, voice)
    out.mkdir(parents=True, exist_ok=True)
    write_file(out / f"{voice.name}.onnx", model.SerializeToString())
    description = json.dumps(_describe(loaded, voice, id_map), ensure_ascii=False, indent=1)
    write_file(out / f"{voice.name}.onnx.json", f"{description}\n".encode())
    write_file(out / "tokens.txt", "".join(_list_tokens(id_map)).encode())
    refresh_card(loaded.folder, out=out)
    return proof


def _add_metadata(model: Any, loaded: LoadedBundle, voice: PiperVoice) -> None:
    """What sherpa-onnx reads from the model itself, and who made it."""
    entries = {
        "model_type": "vits",
        "comment": f"piper voice. {loaded.describe_mark()}",
        "language": voice.language,
        "voice": voice.espeak_voice,
        "has_espeak": 1,
        "n_speakers": len(voice.speakers),
        "sample_rate": loaded.mel.sample_rate,
    }
    for key, value in entries.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, str(value)


def _describe(loaded: LoadedBundle, voice: PiperVoice, id_map: dict[str, list[int]]) -> dict[str, Any]:
    """The content of NAME.onnx.json."""
    return {
        "audio": {"sample_rate": loaded.mel.sample_rate, "quality": "medium"},
        "espeak": {"voice": voice.espeak_voice},
        "language": {"code": voice.language},
        "dataset": voice.name,
        "phoneme_type": "espeak",
        "phoneme_map": {},
        "phoneme_id_map": id_map,
        "num_symbols": 1 + max(number for numbers in id_map.values() for number in numbers),
        "num_speakers": len(voice.speakers),
        "speaker_id_map": {name: number for number, name in enumerate(voice.speakers)}
        if len(voice.speakers) > 1
        else {},
        "inference": {"noise_scale": DEFAULT_NOISE_SCALE, "length_scale": 1.0, "noise_w": 0.0},
        "hop_length": loaded.mel.hop_length,
        "piper_version": _PIPER_VERSION,
        "made_by": loaded.describe_mark(),
    }


def _list_tokens(id_map: dict[str, list[int]]) -> Iterable[str]:
    """Lines of tokens.txt: sherpa-onnx knows one id for each code point, and splits lines at spaces."""
    return [f"{sign} {numbers[0]}\n" for sign, numbers in id_map.items() if len(numbers) == 1]
