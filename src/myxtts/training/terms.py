"""The terms of both models' losses and the numbers of their validation, each declared once, without TensorFlow.

Training weighs the terms, validation averages each over the rows that have it, freezing follows those of the text side,
and the report draws and labels them. A new term is a line here and its value in `voice.losses` or `vocoder.losses`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Rows = Literal["aligned", "real", "speaker"]
Side = Literal["text", "decoder", "speaker", "vocoder", "discriminators"]


@dataclass(frozen=True, slots=True)
class Term:
    """A sum over rows of a batch that training records by `name`.

    `weight` is its factor in the loss, 0 for what is only measured. `over` says which rows have it: utterances that
    could be aligned, all real ones, or those with a reference and a speaker label. `side` is what it trains or judges.
    `label` is its name in reports.
    """

    name: str
    weight: float
    over: Rows
    side: Side
    label: str


@dataclass(frozen=True, slots=True)
class Measures:
    """What the run of a model records: terms while training, and numbers of its validation, by chart and with labels.

    The sentences tell what validation measures and what the samples are.
    """

    terms: tuple[Term, ...]
    charts: Mapping[str, Mapping[str, str]]
    about_validation: str
    about_samples: str

    @property
    def labels(self) -> dict[str, str]:
        of_charts = {name: label for chart in self.charts.values() for name, label in chart.items()}
        return {term.name: term.label for term in self.terms} | of_charts

    @property
    def term_labels(self) -> dict[str, str]:
        """Labels of the terms that are part of the loss, by name."""
        return {term.name: term.label for term in self.trained_terms}

    @property
    def trained_terms(self) -> tuple[Term, ...]:
        return tuple(term for term in self.terms if term.weight)


VOICE = Measures(
    terms=(
        Term("flow", 1.0, "aligned", "decoder", "flow"),
        Term("prior", 10.0, "aligned", "text", "prior"),
        Term("duration", 0.5, "aligned", "text", "durations"),
        Term("pitch", 0.25, "aligned", "text", "pitch"),
        Term("speaker", 0.1, "speaker", "speaker", "speaker"),
        Term("length_error", 0.0, "aligned", "text", "utterance length error"),
        Term("unaligned", 0.0, "real", "text", "not aligned"),
        Term("speaker_accuracy", 0.0, "speaker", "speaker", "speaker accuracy"),
    ),
    charts={
        "Distance from real speech": {
            "score": "score",
            "mel_distance": "mel distance, real durations",
            "free_mel_distance": "mel distance, predicted durations",
        },
        "Duration errors": {
            "token_duration_error": "token duration error",
            "length_error": "utterance length error",
        },
        "Voice": {"speaker_similarity": "speaker similarity", "speaker_accuracy": "speaker accuracy"},
    },
    about_validation="The same utterances with the same noise every time. The score is the mel distance with real "
    "durations plus a quarter of the token duration error; the best checkpoint is chosen by it. Lower is better, "
    "except for similarity.",
    about_samples="Held-out sentences in the voice of another clip of the same speaker. “Recorded” is the "
    "recording converted to a spectrogram and back in the same way, so that only the model makes the difference.",
)

VOCODER = Measures(
    terms=(
        Term("mel", 15.0, "real", "vocoder", "mel spectrogram"),
        Term("stft", 5.0, "real", "vocoder", "STFT magnitude"),
        Term("adversarial", 1.0, "real", "vocoder", "adversarial"),
        Term("features", 2.0, "real", "vocoder", "feature matching"),
        Term("critic_loss", 0.0, "real", "discriminators", "loss of the discriminators"),
    ),
    charts={
        "Distance from real speech": {
            "mel_distance": "mel distance",
            "griffin_lim_mel_distance": "mel distance of Griffin-Lim",
            "spectral_distance": "spectral distance",
            "griffin_lim_spectral_distance": "spectral distance of Griffin-Lim",
        },
    },
    about_validation="The same segments of held-out recordings every time, made from their mel spectrograms and "
    "compared with the recordings. The score is the mel distance; the best checkpoint is chosen by it. Griffin-Lim, "
    "for comparison, is made to meet the mel bands but knows nothing between and above them. Lower is better.",
    about_samples="Segments of held-out recordings, made from their mel spectrograms.",
)


def add_weighted(terms: Iterable[Term], values: Mapping[str, Any]) -> Any:
    """The weighted sum of the terms that have a value, as numbers or tensors, in the order of the table.

    Neighbours are added first, ((a + b) + (c + d)): rounding errors of float32 stay smaller than in a running sum.
    """
    parts = [term.weight * values[term.name] for term in terms if term.weight and term.name in values]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [one + other for one, other in pairs] + parts[len(parts) // 2 * 2 :]
    return parts[0]
