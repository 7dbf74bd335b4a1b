"""The terms of both models' losses and the numbers of their validation, each declared once, without TensorFlow.

Training weighs the terms, validation averages each over the rows that have it, freezing follows those of the text side,
and the report draws and labels them. A new term is a line here and its value in `voice.losses` or `vocoder.losses`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

MEL_DISTANCE, SPECTRAL_DISTANCE = "mel_distance", "spectral_distance"
GRIFFIN_LIM_PREFIX = "griffin_lim_"
"""Names of the distances of a vocoder; with the prefix they are those of Griffin-Lim."""
Rows = Literal["aligned", "real", "speaker"]
"""Rows of a batch that a term is averaged over."""
Side = Literal["text", "decoder", "speaker", "vocoder", "discriminators"]
"""Part of the model that a term trains or measures."""


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a loss, or a measurement beside it, recorded by `name` as a sum over rows.

    `weight` is its factor in the loss, 0 for measurements. `over` says which rows have it: utterances that could be
    aligned, all real ones, or those with a reference and a speaker label. `side` is the part of the model that it
    trains or measures, `label` its name in reports.
    """

    name: str
    weight: float
    over: Rows
    side: Side
    label: str


@dataclass(frozen=True, slots=True)
class Measures:
    """All metrics that a run of one model records: loss terms while training, and validation metrics by chart.

    `table_labels` name metrics that no chart shows. `shares` are the metrics that people read in per cent; they are
    recorded from 0 to 1, and share a chart with each other only. `about_validation` and `about_samples` are sentences
    for the report: what is measured, and what the samples are.
    """

    terms: tuple[Term, ...]
    charts: Mapping[str, Mapping[str, str]]
    table_labels: Mapping[str, str]
    about_validation: str
    about_samples: str
    shares: frozenset[str] = frozenset()

    @property
    def labels(self) -> dict[str, str]:
        of_charts = {name: label for chart in self.charts.values() for name, label in chart.items()}
        return {term.name: term.label for term in self.terms} | of_charts | dict(self.table_labels)

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
        Term("phone", 0.1, "aligned", "decoder", "phones, distance from the recording"),
        Term("phone_classifier", 0.1, "aligned", "decoder", "phone classifier"),
        Term("length_error", 0.0, "aligned", "text", "utterance length error, without the length factor"),
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
        "Speaker similarity": {"speaker_similarity": "speaker similarity"},
        "Speaker accuracy": {"speaker_accuracy": "speaker accuracy"},
    },
    table_labels={"length_ratio": "predicted length / real length"},
    about_validation="The same utterances with the same noise every time. The score is the mel distance with real "
    "durations plus a quarter of the token duration error; the best checkpoint is chosen by it. Lower is better, "
    "except for similarity.",
    about_samples="Held-out sentences in the voice of another clip of the same speaker. “Recorded” is the recording. "
    "“Recorded, through Griffin-Lim” is the recording converted to a spectrogram and back, as the samples are: none of "
    "them can sound better than that. With a neural vocoder, which myxtts synth uses where one fits, the voice sounds "
    "clearer.",
    shares=frozenset({"token_duration_error", "length_error", "unaligned", "speaker_accuracy"}),
)
"""Metrics of the voice model; `voice.losses` computes the terms, `voice.metrics` the charts."""

VOCODER = Measures(
    terms=(
        Term("mel", 15.0, "real", "vocoder", "mel spectrogram"),
        Term("stft", 5.0, "real", "vocoder", "STFT magnitude"),
        Term("adversarial", 1.0, "real", "vocoder", "adversarial"),
        Term("features", 2.0, "real", "vocoder", "feature matching"),
        Term("discriminator_loss", 0.0, "real", "discriminators", "loss of the discriminators"),
    ),
    charts={
        "Distance from real speech": {
            "mel_distance": "mel distance",
            "griffin_lim_mel_distance": "mel distance of Griffin-Lim",
            "spectral_distance": "spectral distance",
            "griffin_lim_spectral_distance": "spectral distance of Griffin-Lim",
        },
    },
    table_labels={},
    about_validation="The same segments of held-out recordings every time, made from their mel spectrograms and "
    "compared with the recordings. The score is the mel distance; the best checkpoint is chosen by it. Griffin-Lim, "
    "for comparison, is made to meet the mel bands but knows nothing between and above them. Lower is better.",
    about_samples="Segments of held-out recordings, made from their mel spectrograms.",
)
"""Metrics of the vocoder; `vocoder.losses` computes the terms, `vocoder.validation` the charts."""


def add_weighted(terms: Iterable[Term], values: Mapping[str, Any]) -> Any:
    """Weighted sum of the terms that have a value (numbers or tensors), in the order of the table.

    Adds pairwise, ((a + b) + (c + d)): rounding errors of float32 stay smaller than in a running sum.
    """
    parts = [term.weight * values[term.name] for term in terms if term.weight and term.name in values]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [one + other for one, other in pairs] + parts[len(parts) // 2 * 2 :]
    return parts[0]
