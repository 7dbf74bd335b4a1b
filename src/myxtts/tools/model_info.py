"""What the files of a model say: size, languages, speakers, steps, vocoder, front end, scores, and its voices.

Works for a run, a bundle and an exported model, without TensorFlow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from myxtts.errors import DataError
from myxtts.models.card import CARD_FILE_NAME, EVALUATION_FILE_NAME, TrainedOn
from myxtts.storage.json_file import JsonRefusedError, check_fields, is_number, try_read_json
from myxtts.synthesis.loaded_bundle import LoadedBundle

_KNOWN_SCORES = ("mel_distance", "token_duration_error", "speaker_similarity", "word_error", "character_error")


@dataclass(frozen=True, slots=True)
class VoiceInfo:
    """A voice that the model can speak with. `kind` is corpus or saved; a `problem` says why it cannot be used.

    `default_for` are the languages that it speaks where no voice is asked for.
    """

    name: str
    kind: str
    language: str = ""
    reference_s: float | None = None
    consent: str = ""
    problem: str = ""
    default_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Facts on a model; None and empty where its files do not say it."""

    folder: str
    kind: str
    name: str
    step: int | None
    num_parameters: int | None
    num_bytes: int
    languages: tuple[str, ...]
    num_speakers: int
    voices: tuple[str, ...]
    default_voices: dict[str, str]
    sample_rate_hz: int
    vocoder: str
    frontend: str
    trained_on: dict[str, Any] | None
    scores: dict[str, float]
    evaluation: dict[str, Any]
    without_consent: tuple[str, ...]
    card: str | None
    versions: dict[str, str]


def describe_model(loaded: LoadedBundle) -> ModelInfo:
    """Collects the facts on a model from the files that were read and from those beside them."""
    bundle, folder = loaded.bundle, loaded.folder
    notes = bundle.notes
    step = notes.get("step")
    found = try_read_json(folder / EVALUATION_FILE_NAME, dict[str, Any]) or {}
    scores = notes.get("scores")
    card = folder / CARD_FILE_NAME
    return ModelInfo(
        folder=str(folder),
        kind="export" if loaded.exported is not None else "bundle",
        name=loaded.name,
        step=step if isinstance(step, int) else None,
        num_parameters=sum(int(array.size) for array in bundle.weights.values()) or None,
        num_bytes=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        languages=tuple(loaded.spec.languages),
        num_speakers=len(loaded.spec.speakers),
        voices=tuple(loaded.list_voices()),
        default_voices=dict(loaded.default_voices),
        sample_rate_hz=loaded.mel.sample_rate,
        vocoder="neural" if loaded.has_neural_vocoder else "griffin_lim",
        frontend=loaded.frontend.kind,
        trained_on=_read_trained_on(notes),
        scores={key: float(scores[key]) for key in _KNOWN_SCORES if is_number(scores.get(key))}
        if isinstance(scores, dict)
        else {},
        evaluation=found if found.get("step") == step else {},
        without_consent=tuple(
            voice.name for voice in list_voices(loaded) if voice.kind == "saved" and not voice.consent
        ),
        card=str(card) if card.is_file() else None,
        versions=dict(bundle.versions),
    )


def list_voices(loaded: LoadedBundle) -> list[VoiceInfo]:
    """Lists the default voices, the other speakers of the corpus, and the saved voices.

    A saved voice hides a speaker of the same name.
    """
    saved = loaded.voices.list_names()
    voices = [
        VoiceInfo(name, "corpus", source.language)
        for name, source in sorted(loaded.noted_voices.items())
        if name not in saved
    ]
    voices += [_describe_saved(loaded, name) for name in saved]
    defaults = loaded.default_voices.items()
    voices = [replace(one, default_for=tuple(code for code, name in defaults if name == one.name)) for one in voices]
    return sorted(voices, key=lambda voice: not voice.default_for)


def _describe_saved(loaded: LoadedBundle, name: str) -> VoiceInfo:
    try:
        source = loaded.voices.load(name)
    except DataError as error:
        return VoiceInfo(name, "saved", problem=error.problem)
    frame_s = loaded.mel.hop_length / loaded.mel.sample_rate
    seconds = sum(len(mel_RM) for mel_RM in source.references) * frame_s
    return VoiceInfo(name, "saved", source.language, round(seconds, 1) if seconds else None, source.consent)


def _read_trained_on(notes: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return check_fields(notes["trained_on"], TrainedOn).model_dump() if "trained_on" in notes else None
    except JsonRefusedError:
        return None  # Of another version; the card leaves it out, too.
