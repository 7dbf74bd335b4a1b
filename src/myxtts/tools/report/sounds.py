"""The samples of a run on a page: sound as FLAC, which is smaller than WAV and loses nothing, spectrograms, alignments.

Every sentence stands beside the recording and beside the recording through Griffin-Lim, each under its own name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from myxtts.storage.regular_file import FileRefusedError, open_regular, try_read_regular
from myxtts.tools import page
from myxtts.tools.run_files import RunFiles
from myxtts.tools.words import Translator, mark
from myxtts.training.sample_files import (
    SampleFiles,
    encode_wav,
    list_steps,
    name_step_folder,
    read_references,
    read_samples,
)
from myxtts.training.terms import VOCODER, Measures

_NUM_SAMPLE_STEPS = 3
"""Steps whose samples are embedded: the first, the middle and the last."""
_MAX_SOUND_BYTES = 3_000_000
"""Larger files are not embedded: base64 makes them 4 MB of the page each."""
PLOTS = {
    "mel": (mark("mel spectrogram"), mark("mel band")),
    "alignment": (mark("alignment of text and sound"), mark("token")),
}
"""Names of the pictures of a sample, and the titles of their vertical axes; they have the horizontal one in common."""
PLOT_X = mark("time (s)")


@dataclass(frozen=True)
class RunSounds:
    """All samples of a run, by sentence: the recordings, the same through Griffin-Lim, and those of each step."""

    recorded: Mapping[str, SampleFiles]
    copies: Mapping[str, SampleFiles]
    by_step: Mapping[int, Mapping[str, SampleFiles]]

    @classmethod
    def read(cls, samples_path: Path, measures: Measures, num_steps: int | None = None) -> RunSounds:
        """Reads the indices of the samples; `num_steps` chooses so many steps, evenly spaced: 1 is the last."""
        steps = list_steps(samples_path)
        if num_steps is not None and steps:
            steps = sorted({steps[round(place)] for place in np.linspace(len(steps) - 1, 0, num_steps)})
        recorded, copies = read_references(samples_path, is_vocoder=measures is VOCODER)
        by_step = {step: _by_name(read_samples(samples_path / name_step_folder(step))) for step in steps}
        return cls(_by_name(recorded), _by_name(copies), by_step)

    @property
    def last_step(self) -> int | None:
        return max(self.by_step, default=None)


def _by_name(samples: Sequence[SampleFiles]) -> dict[str, SampleFiles]:
    return {sample.name: sample for sample in samples}


def show_sounds(run: RunFiles, measures: Measures, tr: Translator) -> page.Html:
    """Samples of three steps beside the recording: audio players, mel spectrograms and the last alignment."""
    sounds = RunSounds.read(run.samples_path, measures, _NUM_SAMPLE_STEPS)
    if sounds.last_step is None:
        return page.NOTHING
    panels = []
    for name, sample in sounds.by_step[sounds.last_step].items():
        players = [
            embed_file(sounds.recorded.get(name), tr("Recorded")),
            embed_file(sounds.copies.get(name), tr("Recorded, through Griffin-Lim")),
            *(
                embed_file(of_step.get(name), tr("Step {step}", step=tr.count(step)))
                for step, of_step in sounds.by_step.items()
            ),
        ]
        real = sounds.recorded.get(name) or sounds.copies.get(name)
        last = tr("Step {step}", step=tr.count(sounds.last_step))
        pictures = [
            _embed_picture(real.mel if real else None, "mel", tr("Recorded"), tr),
            _embed_picture(sample.mel, "mel", last, tr),
            _embed_picture(sample.alignment, "alignment", last, tr),
        ]
        text = page.make_paragraph(sample.about["text"] or sample.about["id"], "quote")
        panels.append(page.make_panel(name_sentence(sample), text, *players, *pictures))
    return page.make_section(tr("Samples"), page.make_grid(*panels), lead=tr(measures.about_samples))


def show_sounds_side_by_side(runs: Mapping[str, RunFiles], measures: Measures, tr: Translator) -> page.Html:
    """The last samples of each run, sentence by sentence, beside the recording of the first run that has it."""
    all_sounds = {label: RunSounds.read(run.samples_path, measures, 1) for label, run in runs.items()}
    newest = {label: of_step for label, sounds in all_sounds.items() for of_step in sounds.by_step.values()}
    sentences: dict[tuple[str, str], SampleFiles] = {}
    for of_run in newest.values():
        for name, sample in of_run.items():
            sentences.setdefault((name, sample.about["id"]), sample)
    panels = []
    for (name, sentence_id), sample in sentences.items():
        same = [sounds.recorded.get(name) for sounds in all_sounds.values()]
        recorded = next((one for one in same if one is not None and one.about["id"] == sentence_id), None)
        players = [embed_file(recorded, tr("Recorded"))]
        for label, of_run in newest.items():
            if name in of_run and of_run[name].about["id"] == sentence_id:
                players.append(embed_file(of_run[name], label))
        text = page.make_paragraph(sample.about["text"] or sentence_id, "quote")
        panels.append(page.make_panel(name_sentence(sample), text, *players))
    return page.make_section(tr("Samples"), page.make_grid(*panels), lead=tr("The newest samples of each run."))


def name_sentence(sample: SampleFiles) -> str:
    """Language and speaker of a sample, else its name."""
    return " · ".join(text for text in (sample.about["language"], sample.about["speaker"]) if text) or sample.name


def embed_file(sample: SampleFiles | None, label: str) -> page.Html:
    content = compress_sound(sample.sound if sample is not None else None)
    return page.embed_sound(content, label) if content else page.NOTHING


def compress_sound(path: Path | None) -> bytes:
    """Returns a sound file of the run as FLAC; nothing where it is missing, too large or no sound."""
    if path is None:
        return b""
    try:
        with open_regular(path, _MAX_SOUND_BYTES) as file:
            samples, rate_hz = soundfile.read(file, dtype="float32")
            return encode_wav(samples, rate_hz, "FLAC")
    except (OSError, FileRefusedError, soundfile.SoundFileError):
        return b""


def _embed_picture(path: Path | None, kind: str, label: str, tr: Translator) -> page.Html:
    content = try_read_regular(path, _MAX_SOUND_BYTES)
    name, y = (tr(text) for text in PLOTS[kind])
    return page.embed_plot(content, f"{label}: {name}", tr(PLOT_X), y) if content else page.NOTHING
