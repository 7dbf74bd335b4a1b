"""CARD.md of a bundle: what the model was trained on, what was measured, and what was not.

The card is made from the files of the bundle alone (bundle.json, voices/, evaluation.json, card.json), so that it can
be made again wherever the bundle is copied to. A number that was not measured is not in it. What a training cannot know
(where the recordings come from, the licence) is in card.json, if whoever passes the model on has stated it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from myxtts.storage.atomic import write_atomically
from myxtts.storage.json_file import is_number, try_read_json, write_json
from myxtts.storage.regular_file import FileRefusedError, open_regular
from myxtts.storage.tensor_file import read_heading

CARD_FILE_NAME = "CARD.md"
EVALUATION_FILE_NAME = "evaluation.json"
STATED_FILE_NAME = "card.json"
_MAX_VOICE_BYTES = 40_000_000
_MAX_NAMES = 50
_MAX_STATED = 1000
"""Characters of a sentence of card.json."""
_SCORES = {
    "mel_distance": ("Mel distance", "mean absolute difference of log-mels, with the durations of the recording"),
    "free_mel_distance": ("Mel distance, own durations", "the same after time warping"),
    "token_duration_error": ("Token duration error", "of single sounds, as a share of their duration"),
    "speaker_similarity": ("Speaker similarity", "cosine by the model's own encoder, 1 is the same voice"),
}
"""Numbers of a validation in metrics.jsonl, with their labels and what they mean."""
_EVALUATED = {
    "mel_distance": ("Mel distance", "of log-mels, time warped"),
    "length_error": ("Utterance length error", "as a share of the length of the recording"),
    "duration_error": ("Utterance length error", "as a share of the length of the recording"),
    "speaker_similarity": ("Speaker similarity", "cosine by the model's own encoder"),
    "real_similarity": ("Similarity of two real recordings", "of the same speaker, to compare with"),
    "real_time_factor": ("Real-time factor", "computing time by duration, on the machine of the evaluation"),
    "word_error": ("Word error", "of the recogniser that was given, 0.1 is one word in ten"),
    "character_error": ("Character error", "of the same recogniser"),
}
"""Results of `myxtts evaluate`; `duration_error` is the older name of `length_error`."""


class TrainedOn(BaseModel):
    """Facts on the training split, as the notes of a bundle hold them."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    num_utterances: int
    hours: float
    num_speakers: int
    hours_by_language: dict[str, float]


class Source(BaseModel):
    """A corpus that a model was trained on; `speech` is recorded or synthetic."""

    model_config = ConfigDict(extra="ignore")

    name: str
    languages: list[str]
    speech: str
    licence: str


class StatedCard(BaseModel):
    """The content of card.json. `scores` are of an outside judge, which the field `judge` in them names."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    name: str = ""
    sources: list[Source] = []
    consent: str = ""
    training: str = ""
    vocoder_training: str = ""
    weights: dict[str, str] = {}
    scores: dict[str, Any] = {}
    limits: list[str] = []
    licence: str = ""


@dataclass(frozen=True)
class _Facts:
    """What the files of a bundle say; empty where a file is of an earlier version."""

    description: Mapping[str, Any]
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    consents: Mapping[str, str] = field(default_factory=dict)
    stated: StatedCard = field(default_factory=StatedCard)

    @property
    def notes(self) -> Mapping[str, Any]:
        notes = self.description.get("notes")
        return notes if isinstance(notes, dict) else {}

    @property
    def trained_on(self) -> TrainedOn | None:
        with suppress(ValueError):
            return TrainedOn.model_validate(self.notes.get("trained_on"))
        return None


def write_card(path: Path, description: Mapping[str, Any], folder: Path, voices: Path) -> None:
    """Writes the card of the bundle in `folder`; `description` is the content of its bundle.json."""
    stated = try_read_json(folder / STATED_FILE_NAME, StatedCard) or StatedCard()
    facts = _Facts(description, _read_evaluation(folder, description), _read_consents(voices), stated)
    with write_atomically(path) as file:
        file.write("".join(f"{line}\n" for line in _list_lines(facts)).encode())


def write_evaluation(folder: Path, description: Mapping[str, Any], split: str, scores: Mapping[str, Any]) -> None:
    """Keeps the scores of an evaluation in a bundle, with the step that they are of."""
    step = _read_step(description)
    write_json(folder / EVALUATION_FILE_NAME, {"step": step, "split": split, **scores})


def _list_lines(facts: _Facts) -> Iterator[str]:
    notes = facts.notes
    step = _read_step(facts.description)
    yield f"# {_plain(facts.stated.name) or _plain(notes.get('run')) or 'A voice model'}"
    yield ""
    yield (
        "A text-to-speech model, trained with MyXTTS. The program wrote this card from the files of the model; "
        "it is written again with every checkpoint."
    )
    yield from ("", "## Training data", "", *_list_data(facts))
    yield from ("", "## The model", "", *_list_model(facts, step))
    yield from ("", "## Scores", "", *_list_scores(facts, step))
    yield from ("", "## Voices and consent", "", *_list_voices(facts))
    yield from ("", "## Limits", "", *_list_limits(facts))
    yield from ("", "## Licence", "")
    yield _plain(facts.stated.licence, _MAX_STATED) or (
        "No licence of this model is stated. It depends on the recordings that it was trained on: ask who trained it "
        "before you pass it on. MyXTTS itself is under the Apache License 2.0; that says nothing about the model."
    )


def _list_data(facts: _Facts) -> Iterator[str]:
    trained_on = facts.trained_on
    if trained_on is None:
        yield "- Amount: not noted in this bundle."
    else:
        hours, count = _describe_hours(trained_on.hours), trained_on.num_utterances
        yield f"- {count:,} utterances, {hours}, {_count(trained_on.num_speakers, 'speaker')}."
        by_language = trained_on.hours_by_language.items()
        yield f"- Languages: {', '.join(f'{_plain(name)} ({_describe_hours(part)})' for name, part in by_language)}."
    for source in facts.stated.sources:
        languages = ", ".join(map(_plain, source.languages))
        yield f"- {_plain(source.name)} ({languages}; {_plain(source.speech)}): {_plain(source.licence)}."
    if not facts.stated.sources:
        yield "- Where the recordings come from is not noted in the files of the model."


def _list_model(facts: _Facts, step: int | None) -> Iterator[str]:
    mel = facts.description.get("mel")
    rate = mel.get("sample_rate") if isinstance(mel, dict) else None
    best = " (the best by the validation score)" if facts.notes.get("is_best") is True else ""
    yield f"- Step: {f'{step:,}{best}' if step is not None else 'not noted'}."
    yield f"- Vocoder: {_name_vocoder(facts.description.get('vocoder'))}."
    yield f"- Sound: {f'{rate:,} Hz, mono' if is_number(rate) else 'not noted'}."
    if facts.stated.training:
        yield f"- Training: {_plain(facts.stated.training)}."
    if facts.stated.vocoder_training:
        yield f"- Training of the vocoder: {_plain(facts.stated.vocoder_training)}."
    if facts.stated.weights:
        yield f"- Weights: {', '.join(f'{_plain(key)} {_plain(text)}' for key, text in facts.stated.weights.items())}."
    versions = facts.description.get("versions")
    if isinstance(versions, dict):
        yield f"- Made with {', '.join(f'{_plain(key)} {_plain(value)}' for key, value in versions.items())}."


def _name_vocoder(vocoder: object) -> str:
    """What a bundle says of its vocoder. A neural one without bands in its description has no source at F0."""
    known = vocoder if isinstance(vocoder, dict) else {}
    if known.get("name") == "griffin_lim":
        return "none of its own; MyXTTS uses that of its base model if the audio settings agree, else Griffin-Lim"
    config = known.get("config")
    if not isinstance(config, dict):
        return _plain(known.get("name")) or "not noted"
    return "neural, pulses at F0 and noise through predicted filters" if config.get("band_hz") else "neural, Vocos"


def _list_scores(facts: _Facts, step: int | None) -> Iterator[str]:
    """Scores of the step of this bundle; those of another step are left out."""
    scores = facts.notes.get("scores")
    found = _select(scores if isinstance(scores, dict) else {}, _SCORES)
    if found:
        yield "On held-out utterances of the same corpus, during training:"
        yield from ("", *found)
    else:
        yield "No scores of this step are noted."
    evaluated = _select(facts.evaluation, _EVALUATED)
    if evaluated:
        count = facts.evaluation.get("num_utterances")
        amount = f"{count:,} " if isinstance(count, int) else ""
        split = _plain(facts.evaluation.get("split")) or "an unnamed split"
        yield from ("", f"By `myxtts evaluate` on {amount}utterances of the split {split}:", "", *evaluated)
    judged = _list_numbers(facts.stated.scores)
    if judged:
        yield from ("", f"By {_plain(facts.stated.scores.get('judge'), _MAX_STATED) or 'a judge without a name'}:", "")
        yield from (f"- {_plain(name)}: {value:.4g}." for name, value in judged.items())
    has_words = is_number(facts.evaluation.get("word_error")) or any("error" in name for name in judged)
    missing = [] if has_words else ["how many words a listener or recogniser gets wrong"]
    missing.append("how natural listeners find it")
    yield from ("", f"Not measured: {', '.join(missing)}.")


def _list_numbers(value: object, name: str = "") -> dict[str, float]:
    """The numbers inside of nested JSON objects, by the names of the way to them."""
    if isinstance(value, dict):
        found: dict[str, float] = {}
        for key, inside in value.items():
            found |= _list_numbers(inside, f"{name}, {key}" if name else str(key))
        return found
    return {name.replace("_", " "): float(value)} if isinstance(value, int | float) and is_number(value) else {}


def _select(scores: Mapping[str, Any], known: Mapping[str, tuple[str, str]]) -> list[str]:
    return [
        f"- {label}: {scores[name]:.3f} ({meaning})."
        for name, (label, meaning) in known.items()
        if is_number(scores.get(name))
    ]


def _list_voices(facts: _Facts) -> Iterator[str]:
    spec = facts.description.get("model_spec")
    speakers = spec.get("speakers") if isinstance(spec, dict) else None
    names = [_plain(name) for name in speakers] if isinstance(speakers, list) else []
    shown = ", ".join(names[:_MAX_NAMES]) + (
        f", and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    )
    consent = _plain(facts.stated.consent, _MAX_STATED) or "Whether they consented is not noted."
    yield f"- Speakers of the corpus: {shown or 'not noted'}. {consent}"
    for name, consent in facts.consents.items():
        said = f"consent: {_plain(consent)}" if consent else "**no consent is noted**"
        yield f"- Saved voice {_plain(name)}: {said}."


def _list_limits(facts: _Facts) -> Iterator[str]:
    spec = facts.description.get("model_spec")
    languages = spec.get("languages") if isinstance(spec, dict) else None
    known = ", ".join(map(_plain, languages)) if isinstance(languages, list) else "those of its corpus"
    yield f"- It speaks {known}, and no other language."
    if facts.trained_on is not None:
        hours = _describe_hours(facts.trained_on.hours)
        yield f"- It was trained on {hours} of speech; what is unlike it may go wrong."
    for limit in facts.stated.limits:
        yield f"- {_plain(limit, _MAX_STATED)}"
    yield "- Voices of people who are not in the corpus are imitated; how well is known only as stated above."
    yield "- Files that `myxtts synth` and `myxtts serve` write say that a machine made them, unless told not to."


def _read_step(description: Mapping[str, Any]) -> int | None:
    notes = description.get("notes")
    step = notes.get("step") if isinstance(notes, dict) else None
    return step if isinstance(step, int) else None


def _read_evaluation(folder: Path, description: Mapping[str, Any]) -> Mapping[str, Any]:
    """Scores of `myxtts evaluate`, if they are of the same step as the bundle."""
    found = try_read_json(folder / EVALUATION_FILE_NAME, dict[str, Any]) or {}
    return found if found.get("step") == _read_step(description) else {}


def _read_consents(folder: Path) -> dict[str, str]:
    """Who agreed to the use of each saved voice; '' where the file does not say. Damaged files are left out."""
    consents = {}
    for path in sorted(folder.glob("*.safetensors")):
        with suppress(OSError, FileRefusedError), open_regular(path, _MAX_VOICE_BYTES) as file:
            consents[path.stem] = read_heading(file).metadata.get("consent", "")
    return consents


def _describe_hours(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1.5 else _count(round(hours * 60), "minute")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _plain(value: object, max_length: int = 200) -> str:
    """Text of a file as one short line without Markdown: names may come from anywhere."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>#|!" else sign for sign in text[:max_length])
