"""Arguments of `myxtts synth`: what is missing or contradictory is refused before the model is loaded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from myxtts.errors import UsageError

if TYPE_CHECKING:
    from myxtts.synthesis.sentences import TextLine

STREAM = "-"
"""As a text: standard input. As --out: standard output."""


def check_additions(
    out: str | None,
    file: Path | None,
    voice: list[str] | None,
    save_voice: str | None,
    subtitles: Path | None,
    *,
    is_dialogue: bool,
) -> None:
    """Raises UsageError where --dialogue or --subtitles contradict other arguments."""
    if is_dialogue and (voice or save_voice is not None):
        given = "--voice" if voice else "--save-voice"
        raise UsageError(
            f"With --dialogue each line names its voice, so {given} cannot be used.", next_step=f"Leave out {given}."
        )
    if subtitles is not None:
        from myxtts.synthesis.timing import check_subtitle_path

        check_subtitle_path(subtitles)
        if file is not None and not is_dialogue:
            raise UsageError(
                "--subtitles works with one text only, not with --file.", next_step="Leave one of them out."
            )


def check_request(
    text: str | None,
    model: Path | None,
    voice: list[str] | None,
    out: str | None,
    file: Path | None,
    save_voice: str | None,
    *,
    is_dialogue: bool,
    as_json: bool,
) -> None:
    """Raises UsageError for missing or contradictory arguments. Without `model` the package must have a base model."""
    from myxtts.synthesis.loaded_bundle import has_base_model

    if text is not None and file is not None:
        raise UsageError("Both a text and --file are given.", next_step="Give one of them.")
    is_silent = text is None and file is None
    missing = []
    if is_silent and (save_voice is None or out is not None):
        missing.append("a text to say (or --file FILE)")
    if model is None and not has_base_model():
        missing += ["--model MODEL (a run or exported model)", "--voice VOICE (unless the model has one speaker)"]
    elif model is None and save_voice is not None and not voice:
        missing.append("--voice VOICE (a recording to save)")
    if missing:
        example = 'myxtts synth "Good morning." --model runs/run --voice reference.wav --out hello.wav'
        raise UsageError(f"Missing: {', '.join(missing)}.", next_step=f"For example: {example}")
    if out == STREAM:
        if file is not None and not is_dialogue:
            raise UsageError("With --file, --out must be a folder.", next_step="Give --out FOLDER.")
        if as_json:
            raise UsageError("--out - and --json both use standard output.", next_step="Leave out --json.")
        if sys.stdout.isatty():
            raise UsageError("A terminal cannot play sound.", next_step="Send it to a player: … --out - | aplay")
    elif out is not None and (file is None or is_dialogue):
        _check_ending(Path(out))


def find_free_path(name: str) -> str:
    """Returns the first of out.wav, out-2.wav, … that does not exist, for speech without --out."""
    path, number = Path(name), 1
    while path.exists():
        number += 1
        path = Path(f"{Path(name).stem}-{number}{Path(name).suffix}")
    return str(path)


def _check_ending(path: Path) -> None:
    """Raises UsageError for the ending of a format that cannot be written; a name without one becomes a WAV file."""
    from myxtts.features.wave_file import list_endings

    if path.is_dir():
        raise UsageError(f"{path} is a folder.", next_step="Give --out FILE.wav.")
    if path.suffix and path.suffix.lower() not in list_endings():
        raise UsageError(
            f"The audio format {path.suffix} is not supported ({path}).",
            next_step=f"Use one of {', '.join(list_endings())}.",
        )


def read_lines(text: str | None, file: Path | None, *, is_dialogue: bool) -> list[TextLine]:
    """Returns the texts: the lines of --file or of a dialogue, or a single one from the argument or stdin."""
    from myxtts.synthesis.sentences import TextLine, read_dialogue, read_stdin, read_texts

    if file is not None:
        return read_dialogue(file) if is_dialogue else read_texts(file)
    if text is None:
        return []
    text = read_stdin() if text == STREAM else text
    return read_dialogue(text) if is_dialogue else [TextLine("", text, "")]
