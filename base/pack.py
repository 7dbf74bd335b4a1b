"""Packs the best weights of a run as the base model of the package: `python -m base pack RUN`.

Weights are stored as float16, and graphs are added that speak them without TensorFlow. The packaged folder says where
its speech comes from, under which licences, what was measured and what its limits are (card.json and CARD.md); no file
in it names a folder of the machine that trained it.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from base.graphs import add_graphs
from myxtts.errors import DataError
from myxtts.models.bundle import WEIGHTS_FILE_NAME, Bundle, find_bundle, read_bundle, refresh_card, write_bundle
from myxtts.models.card import STATED_FILE_NAME
from myxtts.models.vocoder_bundle import find_vocoder, put_into
from myxtts.storage.json_file import read_json, write_json
from myxtts.synthesis.loaded_bundle import load_bundle
from myxtts.tools.run_files import count_steps, measure_time, read_run

MAX_BYTES = 20_000_000
"""Of the whole packaged folder."""
DEFAULT_VOICES = {"en": "slt", "de": "kerstin", "nl": "nathalie"}
"""The English voice of which most words are understood (the scores are in the card), and the readers of the recordings
that have most minutes; for any other language the voice with most speech is taken.
"""
MACHINE_PATH = re.compile(rb"(?<![\w.:/])(?:/(?:tmp|work|home|root|Users|mnt|media|data|var|opt|srv)/|[A-Z]:\\\\)")
"""A path of one machine in a file, as it is written in text and in JSON."""
_SOURCES: tuple[dict[str, Any], ...] = (
    {"name": "LJ Speech 1.1", "languages": ["en"], "speech": "recorded", "licence": "public domain"},
    {"name": "rhasspy/dataset-voice-kerstin", "languages": ["de"], "speech": "recorded", "licence": "CC0 1.0"},
    {"name": "rhasspy/dataset-voice-nathalie", "languages": ["nl"], "speech": "recorded", "licence": "CC0 1.0"},
    {
        "name": "speechocean762",
        "languages": ["en"],
        "speech": "recorded, English as a second language",
        "licence": "CC BY 4.0 (OpenSLR 101), free for any use by its README",
    },
    {
        "name": "slt of festival (festvox-us-slt-hts)",
        "languages": ["en"],
        "speech": "synthetic: example sentences of WordNet 3.0 in a voice that was made from the CMU ARCTIC recordings",
        "licence": "free for any use, with the notices of Carnegie Mellon University and Princeton University",
    },
    {
        "name": "demo voices of espeak-ng",
        "languages": ["fa"],
        "speech": "synthetic, no person was recorded",
        "licence": "speech that espeak-ng made from sentences of this project",
    },
)
_CONSENT = (
    "They recorded for the corpora that are named above, whose licences allow it; nobody was asked about this model. "
    "Numbered speakers are of speechocean762. The voice slt and those that begin with fa are synthetic: they were "
    "learnt from the output of other synthesisers."
)
_LIMITS = (
    "The model is small and was trained for hours, not days: single words can be hard to understand.",
    "The voice slt was learnt from a synthesiser. Its MOS estimate is lower than that of lj, who was recorded.",
    "Its Persian was learnt from the synthetic voices of espeak-ng and sounds like them.",
    "Numbered voices speak English as a second language, with its accents.",
    "A voice cloned from a recording resembles its speaker only roughly; fine-tune the model for more.",
)
_LICENCE = (
    "The weights may be used for any purpose under the Apache License 2.0, as MyXTTS itself. The recordings behind "
    "them keep their own licences: public domain, CC0 1.0, and CC BY 4.0, whose authors are to be named: "
    "speechocean762 by Junbo Zhang and others. Clone only voices of people who agreed to it."
)


def pack(
    run_folder: Path,
    out: Path,
    *,
    vocoder: Path | None = None,
    scores: Path | None = None,
    earlier: Sequence[Path] = (),
) -> None:
    """Writes the packaged folder, with the vocoder of a run; `earlier` are the runs that this one started from.

    Raises DataError where the folder is too large, or names folders of this machine.
    """
    bundle = read_bundle(find_bundle(run_folder))
    if vocoder is not None:
        bundle = put_into(bundle, find_vocoder(vocoder))
    judged = read_json(scores, dict[str, Any]) if scores is not None else {}
    if scores is not None and not isinstance(judged.get("judge"), str):
        raise DataError(f"{scores} does not say who judged.", next_step='Add a field "judge" with a sentence about it.')
    # Before anything is written, because a packed model may be packed again into its own folder.
    trained = _sum_up((*earlier, run_folder))
    of_vocoder = {} if vocoder is None else {"vocoder_training": _describe_training(vocoder)}
    bundle = _make_portable(bundle)
    write_bundle(out, bundle)
    write_json(
        out / STATED_FILE_NAME, _make_card(trained, of_vocoder, bundle, out / WEIGHTS_FILE_NAME, remove_paths(judged))
    )
    refresh_card(out)
    add_graphs(out)
    _check(out)


def choose_default_voices(bundle: Bundle) -> dict[str, str]:
    """The voice of each language: those of `DEFAULT_VOICES`, else the first, which has most speech."""
    voices: Mapping[str, Mapping[str, Any]] = bundle.notes.get("voices", {})
    chosen: dict[str, str] = {}
    for language in bundle.model_spec["languages"]:
        speakers = [name for name, voice in voices.items() if voice.get("language") == language]
        named = DEFAULT_VOICES.get(language)
        if speakers:
            chosen[language] = named if named in speakers else speakers[0]
    return chosen


def remove_paths(value: Any) -> Any:
    """JSON without the folders of a machine: absolute paths are cut down to their last part."""
    if isinstance(value, dict):
        return {key: remove_paths(inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [remove_paths(inside) for inside in value]
    if isinstance(value, str):
        for kind in (PurePosixPath, PureWindowsPath):
            if kind(value).is_absolute() and kind(value).name:
                return kind(value).name
    return value


def _make_portable(bundle: Bundle) -> Bundle:
    """The bundle as it is packaged: default voices, weights as float16, no paths in what a run has noted.

    The phone classifier, which only training needs, is left out; without it the model is of the size `tiny`.
    """
    notes = {**remove_paths(bundle.notes), "run": "base", "default_voices": choose_default_voices(bundle)}
    return replace(
        bundle,
        model_config=bundle.model_config.model_copy(update={"phone_classifier": False}),
        weights={name: array for name, array in bundle.weights.items() if not name.startswith("phone_classifier.")},
        notes=notes,
        vocoder=remove_paths(bundle.vocoder),
        storage_dtype="float16",
    )


def _make_card(
    trained: Amount, of_vocoder: Mapping[str, str], bundle: Bundle, weights: Path, scores: Mapping[str, Any]
) -> dict[str, Any]:
    """What card.json states."""
    by_language = bundle.notes.get("trained_on", {}).get("hours_by_language", {})
    languages = set(bundle.model_spec["languages"])
    return {
        "format": "myxtts-card",
        "version": 1,
        "name": "MyXTTS base",
        "sources": [source for source in _SOURCES if languages.issuperset(source["languages"])],
        "consent": _CONSENT,
        "minutes_by_language": {language: round(60 * hours, 1) for language, hours in by_language.items()},
        "training": trained.describe(),
        **of_vocoder,
        "training_minutes": round(trained.minutes, 1),
        "training_steps": trained.num_steps,
        "step": bundle.notes.get("step"),
        "num_parameters": sum(int(array.size) for array in bundle.weights.values()),
        "weights": {
            "file": weights.name,
            "dtype": "float16",
            "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        },
        "scores": dict(scores),
        "limits": list(_LIMITS),
        "licence": _LICENCE,
    }


@dataclass(frozen=True)
class Amount:
    """How much was trained, and on what."""

    minutes: float
    num_steps: int
    device: str

    def describe(self) -> str:
        return f"{self.num_steps:,} steps in {self.minutes:.0f} minutes on {self.device}"


def _sum_up(runs: Sequence[Path]) -> Amount:
    """All steps of runs, of which each started from the one before; the device is that of the last."""
    amounts = [read_amount(run) for run in runs]
    minutes, num_steps = sum(one.minutes for one in amounts), sum(one.num_steps for one in amounts)
    return Amount(minutes, num_steps, amounts[-1].device)


def _describe_training(vocoder: Path) -> str:
    """How long a vocoder was trained: from its run, or from the card of a packed model that has it."""
    if (vocoder / STATED_FILE_NAME).is_file():
        return str(read_json(vocoder / STATED_FILE_NAME, dict[str, Any])["vocoder_training"])
    return _sum_up([vocoder]).describe()


def read_amount(run: Path) -> Amount:
    """From the files of a run, or from the card of a model that was packed before."""
    if (run / STATED_FILE_NAME).is_file():
        stated = read_json(run / STATED_FILE_NAME, dict[str, Any])
        return Amount(stated["training_minutes"], stated["training_steps"], stated["training"].partition(" on ")[2])
    files = read_run(run)
    machine = files.sessions[-1] if files.sessions else {}
    device = ", ".join(map(str, machine.get("gpus") or ())) or f"{machine.get('num_cpus', 'some')} CPU cores, no GPU"
    return Amount(measure_time(files) / 60, count_steps(files), device)


def find_machine_paths(folder: Path) -> list[str]:
    """Files of the folder, other than weights, that name a folder of some machine."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.suffix != ".safetensors"]
    return [file.name for file in files if MACHINE_PATH.search(file.read_bytes())]


def _check(folder: Path) -> None:
    """Loads what was packed, and says what it is; raises DataError where it may not be shipped."""
    num_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if num_bytes > MAX_BYTES:
        raise DataError(f"{folder} has {num_bytes / 1e6:.1f} MB, more than {MAX_BYTES / 1e6:.0f}.")
    if named := find_machine_paths(folder):
        raise DataError(f"These files name folders of this machine: {', '.join(named)}.")
    loaded = load_bundle(folder)
    voices = ", ".join(f"{voice} ({language})" for language, voice in loaded.default_voices.items())
    sys.stdout.write(
        f"{folder}: {num_bytes / 1e6:.1f} MB, step {loaded.bundle.notes.get('step')}, "
        f"{len(loaded.list_voices())} voices, default voices {voices}\n"
    )
