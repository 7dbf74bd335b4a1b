"""Choices for enumerated settings: preset names, listed from their YAML files, corpus formats, decoder steps.

Standard library only: the command line needs these names for `--help`, before it loads the schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

SELECTORS = ("model_size", "optimization_level", "gpu_card")
"""The settings that choose a preset, the stronger ones last: a card knows better than a size what fits its memory."""

CorpusFormat = Literal["auto", "ljspeech", "vctk", "libritts", "commonvoice", "piper", "coqui", "manifest", "pairs"]
"""`auto` and the names of `myxtts.corpus.formats.FORMATS`, which this package may not import."""

DEFAULT_NUM_STEPS = 16
"""Euler steps of the decoder: eight are intelligible, sixteen sound cleaner, more are hardly audible."""

_FOLDER = Path(__file__).with_name("presets")


@cache
def list_presets(selector: str) -> Mapping[str, Path]:
    """Presets of a selector and their files. `presets/model_size/1-tiny.yaml` is `tiny`; the number is its rank."""
    return {path.stem.partition("-")[2]: path for path in sorted((_FOLDER / selector).glob("*.yaml"))}


def join_with_or(names: Sequence[str]) -> str:
    """For instance `tiny, small or big`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
