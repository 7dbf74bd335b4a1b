"""Which vocoder a model speaks through: one of the two kinds, or one from another run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from myxtts.errors import ConfigError
from myxtts.models.vocoder_bundle import find_vocoder, put_into
from myxtts.synthesis.package import Package

KnownVocoder = Literal["griffin_lim", "neural"]
VocoderChoice = str | Path
"""auto, griffin_lim, neural, or the folder of a run or bundle that has a vocoder."""
AUTO, GRIFFIN_LIM, NEURAL = "auto", "griffin_lim", "neural"


def equip_package(package: Package, asked: VocoderChoice) -> tuple[Package, KnownVocoder]:
    """The package with the vocoder that was asked for, and its kind; auto takes the neural one where there is one.

    Raises ConfigError where the vocoder was made for other spectrograms.
    """
    if asked == GRIFFIN_LIM:
        return package, "griffin_lim"
    if asked == AUTO:
        return package, "neural" if package.has_neural_vocoder else "griffin_lim"
    if asked == NEURAL:
        if not package.has_neural_vocoder:
            raise ConfigError(
                f"The bundle {package.folder} has no neural vocoder.",
                next_step="Use griffin_lim, or train one: myxtts train --part vocoder.",
            )
        return package, "neural"
    folder = Path(asked)
    if not folder.is_dir():
        raise ConfigError(
            f"There is no vocoder {str(asked)[:200]!r}.",
            next_step="Choose auto, griffin_lim or neural, or name the folder of a run that trained one.",
        )
    return replace(package, bundle=put_into(package.bundle, find_vocoder(folder))), "neural"
