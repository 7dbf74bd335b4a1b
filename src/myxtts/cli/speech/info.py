"""`myxtts info` and `myxtts voices`: what a model is, and the voices it can speak with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from myxtts.cli.help import option
from myxtts.cli.screen import Screen, format_length, print_note

if TYPE_CHECKING:
    from myxtts.tools.model_info import ModelInfo, VoiceInfo

_Model = Annotated[
    Path | None,
    typer.Argument(
        help="Folder of a run or exported model. \\[default: base, the model of the package]",
        metavar="MODEL",
        show_default=False,
    ),
]
_MAX_NAMES = 12


def run_info(
    model: _Model = None,
    as_json: Annotated[bool, option("Print everything as one JSON object.", flag="--json")] = False,
) -> None:
    """Show what a model is: size, languages, speakers, training, vocoder, scores and consent.

    [bold]Examples[/bold]

    myxtts info

    myxtts info runs/anna

    myxtts info anna-onnx --json
    """
    from myxtts.synthesis.loaded_bundle import load_bundle
    from myxtts.tools.model_info import describe_model

    screen = Screen(as_json=as_json)
    info = describe_model(load_bundle(model, print_note))
    for label, text in _list_facts(info):
        screen.console.print(f"{label:<11}{text}", markup=False, soft_wrap=True)
    screen.finish(asdict(info))


def run_voices(
    model: _Model = None,
    as_json: Annotated[bool, option("Print everything as one JSON object.", flag="--json")] = False,
) -> None:
    """List the voices of a model: speakers of its corpus, and voices saved with --save-voice.

    Any of them can be given to myxtts synth --voice NAME.

    [bold]Examples[/bold]

    myxtts voices runs/anna
    """
    from rich.table import Table
    from rich.text import Text

    from myxtts.synthesis.loaded_bundle import load_bundle
    from myxtts.tools.model_info import list_voices

    screen = Screen(as_json=as_json)
    voices = list_voices(load_bundle(model, print_note))
    table = Table(box=None, pad_edge=False)
    for column in ("voice", "from", "language", "reference", "consent"):
        table.add_column(column, overflow="fold")
    for voice in voices:
        reference = f"{voice.reference_s:.1f} s" if voice.reference_s is not None else ""
        consent = voice.consent or ("not stated" if voice.kind == "saved" else "")
        row = (voice.name, voice.kind, _name_language(voice), reference, voice.problem or consent)
        table.add_row(*(Text(cell) for cell in row))
    if voices:
        screen.console.print(table)
    else:
        screen.console.print("The model has no named voices. Give a recording: myxtts synth --voice FILE.wav")
    screen.finish({"voices": [asdict(voice) for voice in voices]})


def _name_language(voice: VoiceInfo) -> str:
    """The language of a voice, and where it is a default voice, for which languages."""
    if not voice.default_for:
        return voice.language
    others = "" if voice.default_for == (voice.language,) else f" for {', '.join(voice.default_for)}"
    return f"{voice.language} (default{others})".strip()


def _list_facts(info: ModelInfo) -> Iterator[tuple[str, str]]:
    """Labels and texts of the facts that are known."""
    yield "Model", f"{info.name} ({'exported model' if info.kind == 'export' else 'trained model'}) in {info.folder}"
    parameters = f"{info.num_parameters / 1e6:.1f} million parameters, " if info.num_parameters else ""
    yield "Size", f"{parameters}{info.num_bytes / 1e6:.1f} MB"
    if info.step is not None:
        yield "Trained", f"{info.step:,} steps"
    if info.trained_on is not None:
        on = info.trained_on
        yield "Data", f"{on['num_utterances']:,} utterances, {format_length(3600 * on['hours'])}"
    yield "Languages", ", ".join(info.languages)
    shown = ", ".join(info.voices[:_MAX_NAMES]) + (", …" if len(info.voices) > _MAX_NAMES else "")
    yield "Speakers", f"{info.num_speakers:,}" + (f"; voices: {shown}" if shown else "")
    if info.default_voices:
        yield "Defaults", ", ".join(f"{voice} ({code})" for code, voice in info.default_voices.items())
    yield "Sound", f"{info.sample_rate_hz:,} Hz, vocoder: {_name_vocoder(info)}"
    yield "Text", "phonemes (espeak-ng)" if info.frontend == "phonemes" else info.frontend
    for label, scores in (("Validation", info.scores), ("Evaluation", info.evaluation)):
        numbers = {key: value for key, value in scores.items() if isinstance(value, float)}
        if numbers:
            yield label, ", ".join(f"{key.replace('_', ' ')} {value:.3f}" for key, value in numbers.items())
    if info.without_consent:
        yield "Consent", f"not stated for: {', '.join(info.without_consent)}"
    if info.card is not None:
        yield "Card", info.card


def _name_vocoder(info: ModelInfo) -> str:
    if info.vocoder == "neural":
        return "neural"
    # An exported model has one vocoder; for a bundle that has none, `auto` takes another where it can.
    return "Griffin-Lim" if info.kind == "export" else "none of its own (the base model's if it fits, else Griffin-Lim)"
