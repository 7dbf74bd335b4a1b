"""Makes the demo corpus: built in a temporary folder, renamed when it is complete, kept if it is there already.

The folder has metadata.csv (a manifest with a heading), wavs/ and demo.json with the settings. An existing folder is
replaced only if it has demo.json and nothing but these three.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from myxtts.corpus.demo import speak
from myxtts.corpus.demo.sentences import DEMO_LANGUAGES
from myxtts.errors import DataError, UsageError
from myxtts.storage.atomic import (
    TEMPORARY_SUFFIX,
    explain_storage_errors,
    lock_directory,
    pass_fault_point,
    sync_directory,
    write_file,
)
from myxtts.storage.json_file import FileModel, try_read_json, write_json
from myxtts.text.espeak import read_espeak_version

_RECIPE_VERSION = 1
"""Raised whenever the same settings give other clips than before, so that an older corpus is made again."""
_SETTINGS_FILE = "demo.json"
_METADATA_FILE = "metadata.csv"
_LOCK_FILE = ".lock"
_MAX_MINUTES = 6000.0
_MAX_SPEAKERS = 500
_MINUTES_WORTH_PROCESSES = 5.0
"""Below this, starting processes takes longer than they save."""
_MAX_PROCESSES = 4
"""Where the caller does not choose; fewer on machines with fewer cores."""


class _SettingsFile(FileModel):
    """The content of demo.json, which makes a folder a demo corpus."""

    made_by: Literal["myxtts demo"]
    settings: dict[str, Any]
    num_clips: int
    duration_s: float
    espeak_version: str | None


@dataclass(frozen=True, slots=True)
class DemoSummary:
    """Content of a demo corpus. `was_kept` says that it was there already, made with the same settings."""

    folder: Path
    num_clips: int
    num_speakers: int
    duration_s: float
    was_kept: bool = False


def make_demo_corpus(
    folder: Path,
    *,
    minutes: float = 60.0,
    seed: int = 0,
    languages: Sequence[str] = DEMO_LANGUAGES,
    num_speakers: int = 8,
    num_processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> DemoSummary:
    """Makes `metadata.csv` and `wavs/` with espeak-ng; the same settings give the same bytes.

    `minutes` is the total over all speakers. `progress` gets the number of finished clips and an estimate of the total.
    """
    folder = Path(folder).absolute()
    settings = _check_settings(folder, minutes, seed, languages, num_speakers)
    draft = folder.with_name(f".{folder.name}.demo{TEMPORARY_SUFFIX}")
    kept = _find_kept(folder, settings)
    if kept is not None and not draft.exists():
        return kept
    with lock_directory(draft, "making a demo corpus"), explain_storage_errors(draft, "write"):
        _empty_folder(draft)
        if kept is not None:
            shutil.rmtree(draft)
            return kept
        (draft / speak.WAV_FOLDER).mkdir()
        speakers = speak.choose_speakers(settings["languages"], num_speakers, seed)
        clips = []
        about = max(num_speakers, round(60.0 * minutes / speak.TYPICAL_DURATION_S))
        for clip in _speak(speakers, minutes, seed, draft, num_processes):
            clips.append(clip)
            if progress is not None:
                progress(len(clips), max(len(clips), about))
        clips.sort(key=lambda clip: clip.id)
        summary = DemoSummary(folder, len(clips), num_speakers, sum(clip.duration_s for clip in clips))
        _write_tables(draft, settings, speakers, clips, summary)
        _move_into_place(draft, folder)
    return summary


def _check_settings(
    folder: Path, minutes: float, seed: int, languages: Sequence[str], num_speakers: int
) -> dict[str, Any]:
    """Returns the settings as demo.json records them; raises UsageError where they cannot be met."""
    if not folder.name:
        raise UsageError(f"{folder} cannot be the folder of a corpus.", next_step="Name a folder below it.")
    if not 0 < minutes <= _MAX_MINUTES:
        raise UsageError(f"{minutes} minutes cannot be made.", next_step=f"Ask for up to {_MAX_MINUTES:g} minutes.")
    unknown = [language for language in languages if language not in DEMO_LANGUAGES]
    if unknown or not languages or len(set(languages)) != len(languages):
        raise UsageError(
            f"The demo corpus cannot be made in {', '.join(languages) or 'no language'}.",
            next_step=f"Choose among {', '.join(DEMO_LANGUAGES)}, each once.",
        )
    if not len(languages) <= num_speakers <= _MAX_SPEAKERS:
        raise UsageError(
            f"{num_speakers} speakers cannot speak {len(languages)} languages.",
            next_step=f"Ask for {len(languages)} to {_MAX_SPEAKERS} speakers.",
        )
    if seed < 0:
        raise UsageError(f"The seed is {seed}.", next_step="Take 0 or a larger number.")
    return {
        "recipe": _RECIPE_VERSION,
        "minutes": float(minutes),
        "seed": seed,
        "languages": list(languages),
        "num_speakers": num_speakers,
    }


def _find_kept(folder: Path, settings: dict[str, Any]) -> DemoSummary | None:
    """Returns the existing corpus with these settings; None if there is none, or one that may be replaced.

    Raises DataError where the folder holds anything else.
    """
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file.", next_step="Choose another folder for the demo corpus.")
    if not names - {_LOCK_FILE}:
        return None
    strange = sorted(names - {_SETTINGS_FILE, _METADATA_FILE, speak.WAV_FOLDER, _LOCK_FILE})
    made = try_read_json(folder / _SETTINGS_FILE, _SettingsFile)
    if made is None or strange:
        what = f"holds {strange[0]}" if strange else "was not made as a demo corpus"
        raise DataError(
            f"{folder} {what}, so nothing in it is touched.", next_step="Choose another folder, or empty this one."
        )
    num_wavs = sum(1 for _ in folder.glob(f"{speak.WAV_FOLDER}/*.wav"))
    if made.settings != settings or num_wavs != made.num_clips or not (folder / _METADATA_FILE).is_file():
        return None
    return DemoSummary(folder, made.num_clips, settings["num_speakers"], made.duration_s, was_kept=True)


def _empty_folder(draft: Path) -> None:
    """Removes what a killed process left in the draft, but not the lock that this one holds."""
    for path in draft.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != _LOCK_FILE:
            path.unlink()


def _speak(
    speakers: list[speak.Speaker], minutes: float, seed: int, draft: Path, num_processes: int | None
) -> Iterator[speak.Clip]:
    """Synthesises the clips of all speakers, in one process or several; they have equal shares of the duration."""
    total_s = 60.0 * minutes / len(speakers)
    if num_processes is None:
        num_processes = min(os.cpu_count() or 1, _MAX_PROCESSES) if minutes >= _MINUTES_WORTH_PROCESSES else 1
    if num_processes > 1:
        yield from speak.speak_in_processes(speakers, total_s, seed, draft, num_processes)
    else:
        for speaker in speakers:
            yield from speak.speak_clips(speaker, total_s, seed, draft)


def _write_tables(
    draft: Path, settings: dict[str, Any], speakers: list[speak.Speaker], clips: list[speak.Clip], summary: DemoSummary
) -> None:
    """Writes metadata.csv and demo.json, after the recordings have reached the disk."""
    languages = {speaker.id: speaker.language for speaker in speakers}
    rows = ["id|audio|text|speaker|language"]
    for clip in clips:
        audio, speaker_id = f"{speak.WAV_FOLDER}/{clip.id}.wav", clip.speaker_id
        rows.append(f"{clip.id}|{audio}|{clip.text}|{speaker_id}|{languages[speaker_id]}")
    made = {
        "made_by": "myxtts demo",
        "settings": settings,
        "num_clips": summary.num_clips,
        "duration_s": summary.duration_s,
        "espeak_version": read_espeak_version(),
    }
    sync_directory(draft / speak.WAV_FOLDER)
    write_file(draft / _METADATA_FILE, "".join(f"{row}\n" for row in rows).encode("utf-8"))
    # Last, because a folder that has it is taken to be whole.
    write_json(draft / _SETTINGS_FILE, made)


def _move_into_place(draft: Path, folder: Path) -> None:
    """Renames the draft to its final name; an older demo corpus is moved aside first and removed afterwards."""
    replaced = folder.with_name(f".{folder.name}.replaced{TEMPORARY_SUFFIX}")
    if replaced.exists():
        shutil.rmtree(replaced)
    if folder.exists() and any(folder.iterdir()):
        folder.rename(replaced)
    pass_fault_point("replace")
    draft.rename(folder)
    (folder / _LOCK_FILE).unlink(missing_ok=True)
    sync_directory(folder.parent)
    if replaced.exists():
        shutil.rmtree(replaced)
