"""Recording with the microphone: sentences to read, takes that are uploaded, and warnings of their sound."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from myxtts.config.languages import canonical_language
from myxtts.corpus.audio import inspect_audio
from myxtts.corpus.prompts import PROMPT_LANGUAGES, read_prompts
from myxtts.corpus.rejections import AudioProblem
from myxtts.corpus.transcripts import BadLine, read_lines
from myxtts.errors import DataError, UsageError
from myxtts.studio.sound import LIMITS, read_sound
from myxtts.tools.collect.clips import Measured
from myxtts.types import Waveform

MAX_PROMPT_LENGTH = 500
_MAX_PROMPTS = 20_000
MAX_TAKE_BYTES = 16_000_000
"""Half a minute of 16-bit stereo at 96 kHz and some; the length is checked apart."""
NOISE_DB = -50.0
"""Of the room, above which the page warns."""
_QUIET_DB, _MIN_SNR_DB, _CLIPPED_SHARE = -36.0, 25.0, 0.0002
"""Level of the speech, its distance from the noise, and share of samples at full scale at which the page warns."""


def list_prompts(path: Path | None, language: str) -> dict[str, list[str]]:
    """Returns the sentences by language: those of the file, or the lists of the project, that of `language` first."""
    own = canonical_language(language)
    if path is not None:
        return {own: read_prompt_file(path)}
    codes = sorted(PROMPT_LANGUAGES, key=lambda code: code != own.partition("-")[0])
    return {own if code == own.partition("-")[0] else code: list(read_prompts(code)) for code in codes}


def read_prompt_file(path: Path) -> list[str]:
    """Reads one sentence a line; empty lines and repetitions are left out. Raises DataError with the line."""
    prompts: dict[str, None] = {}
    for line in read_lines(path, "The list of prompts"):
        if isinstance(line, BadLine):
            raise DataError(
                f"{path}, line {line.number}: {line.detail}.", next_step="Write one sentence a line, as UTF-8."
            )
        sentence = " ".join(line.text.split())
        if len(sentence) > MAX_PROMPT_LENGTH:
            raise DataError(
                f"{path}, line {line.number} has {len(sentence)} characters, more than {MAX_PROMPT_LENGTH}.",
                next_step="Write one sentence a line.",
            )
        if any(letter.isalnum() for letter in sentence):
            prompts[sentence] = None
    if not 1 <= len(prompts) <= _MAX_PROMPTS:
        raise DataError(
            f"{path} has {len(prompts):,} sentences; 1 to {_MAX_PROMPTS:,} are read.",
            next_step="Write one sentence a line.",
        )
    return list(prompts)


def read_take(content: bytes) -> Waveform:
    """Decodes an upload of the microphone; raises UsageError where it is no WAV or FLAC, silent, too short or too long.

    A clipped take is accepted: the page warns of it, and the user decides.
    """
    if not content.startswith((b"RIFF", b"fLaC")):
        raise UsageError("The take is neither WAV nor FLAC.")
    with tempfile.TemporaryDirectory(prefix="myxtts-take-") as folder:
        file = Path(folder) / ("take.wav" if content.startswith(b"RIFF") else "take.flac")
        file.write_bytes(content)
        try:
            inspect_audio(os.path.realpath(file), replace(LIMITS, max_clipped_share=1.0))
        except AudioProblem as problem:
            raise UsageError(f"The take is not stored: {problem.detail}.", next_step="Record it again.") from problem
        return read_sound(os.path.realpath(file))


def list_warnings(measured: Measured) -> list[str]:
    """Returns what is wrong with the sound of a take, as keys of the page's texts."""
    warnings = []
    if measured.clipped_share > _CLIPPED_SHARE:
        warnings.append("takeClipped")
    if measured.level_db < _QUIET_DB:
        warnings.append("takeQuiet")
    if measured.noise_db > NOISE_DB and measured.snr_db < _MIN_SNR_DB:
        warnings.append("takeNoisy")
    return warnings
