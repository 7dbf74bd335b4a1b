"""Decides which clips are used: those with a text that is not in doubt, one voice, little noise and no clipping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from myxtts.corpus.rejections import Reason
from myxtts.tools.collect.clips import CLIP_FOLDER, Clip, Measured

_MIN_CLIPS_TO_COMPARE = 10
"""With fewer the usual tempo of a speaker cannot be estimated."""
_MIN_RATE, _MAX_RATE = 0.45, 2.2
"""Letters a second, as a share of the usual."""

ADVICE = {
    Reason.UNREADABLE: "Export the recording again from its source as WAV or FLAC, or move it elsewhere.",
    Reason.EMPTY: "Copy the recording again from its source, or move it elsewhere.",
    Reason.SILENT: "Listen to it: it may be the wrong file, music, or far too quiet.",
    Reason.CLIPPED: (
        "Record with less gain. Or accept it in the studio (myxtts studio CORPUS), and give myxtts prepare "
        "--set data.max_clipped_share=SHARE."
    ),
    Reason.BAD_CHANNELS: "Mix the recording to mono or stereo: ffmpeg -i FILE -ac 1 FILE.wav.",
    Reason.EMPTY_TEXT: "Write down what is said if you want to use it: in the text, the subtitles, or the studio.",
}
"""What to do about a rejection, where a recording asks for another advice than a transcript of clips."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Noise and clipping that are accepted."""

    min_snr_db: float = 12.0
    max_clipped_share: float = 0.005


@dataclass(frozen=True, slots=True)
class Collected:
    """A clip with its text. `problem` is the reason and the detail why it is not used, None if it is."""

    clip: Clip
    text: str
    speaker: str
    language: str
    measured: Measured
    problem: tuple[Reason, str] | None = None

    def to_row(self) -> dict[str, Any]:
        """Returns the line of the manifest; `prepare` reads the first five fields, the others are for people."""
        span = self.clip.span
        return {
            "id": self.clip.id,
            "audio": f"{CLIP_FOLDER}/{self.clip.id}.wav",
            "text": self.text,
            "speaker": self.speaker,
            "language": self.language,
            "source": self.clip.recording.path.name,
            "start_s": round(span.start_s, 3),
            "end_s": round(span.end_s, 3),
            "level_db": self.measured.level_db,
            "noise_db": self.measured.noise_db,
        }


def judge_clips(rows: Sequence[Collected], limits: Limits, *, is_aligned: bool) -> list[Collected]:
    """Returns the clips with their problems.

    `is_aligned` says that the texts were compared with the sound before; else the letters of a clip are counted.
    """
    rates = np.array([_count_letters(row) for row in rows])
    spoken = rates[rates > 0]
    is_compared = len(spoken) >= _MIN_CLIPS_TO_COMPARE and not is_aligned
    usual = float(np.median(spoken)) if is_compared else 0.0
    return [
        replace(row, problem=_find_problem(row, limits, rate, usual)) for row, rate in zip(rows, rates, strict=True)
    ]


def _count_letters(row: Collected) -> float:
    """Returns letters and figures of the text per second of speech."""
    spoken_s = sum(phrase.end_s - phrase.start_s for phrase in row.clip.span.phrases)
    return sum(letter.isalnum() for letter in row.text) / max(spoken_s, 0.1)


def _find_problem(row: Collected, limits: Limits, rate: float, usual: float) -> tuple[Reason, str] | None:
    """Returns the first thing that speaks against a clip: its sound first, since no text can mend that."""
    measured = row.measured
    if measured.clipped_share > limits.max_clipped_share:
        found, allowed = 100 * measured.clipped_share, 100 * limits.max_clipped_share
        return Reason.CLIPPED, f"{found:.1f} % of the samples are at full scale, allowed are {allowed:g} %"
    if measured.snr_db < limits.min_snr_db:
        needed = f"at least {limits.min_snr_db:g} dB are needed"
        return Reason.NOISY, f"the speech is {measured.snr_db:.0f} dB above the noise, {needed}"
    if (strangeness := row.clip.span.strangeness) > 1:
        return Reason.OTHER_VOICE, f"its voice is {strangeness:.1f} times as far from the main voice as is usual"
    if row.clip.span.doubt:
        return Reason.DOUBTFUL_TEXT, row.clip.span.doubt
    if not any(letter.isalnum() for letter in row.text):
        return Reason.EMPTY_TEXT, "there is no text for it"
    if usual and not _MIN_RATE <= rate / usual <= _MAX_RATE:
        return Reason.DOUBTFUL_TEXT, f"{rate:.0f} letters a second, {usual:.0f} are usual"
    return None


def format_time(seconds: float) -> str:
    """Returns a place in a recording as players show it, with tenths of seconds."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02}:{rest:04.1f}"
