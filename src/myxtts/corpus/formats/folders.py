"""Readers of corpora with one small text file per recording: VCTK and LibriTTS.

VCTK       txt/p225/p225_001.txt                wav48_silence_trimmed/p225/p225_001_mic1.flac
LibriTTS   train-clean-100/19/198/19_198_000000_000000.normalized.txt      beside the .wav of the same name
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from myxtts.corpus.formats.base import SPLIT_WORDS, CorpusFormat, Row, Source, reject_line
from myxtts.corpus.rejections import Reason, Rejection
from myxtts.corpus.transcripts import BadLine, CorpusRoot, read_lines
from myxtts.types import Split

_VCTK_AUDIO_FOLDERS = ("wav48_silence_trimmed", "wav48", "wav22", "wav16", "wavs", "wav")
"""In the order of preference: release 0.92 first, then older releases and common conversions."""
_VCTK_MICROPHONES = ("", "_mic1", "_mic2")
"""Suffixes of recordings; releases before 0.92 have none."""
_LIBRITTS_ENDINGS = (".normalized.txt", ".original.txt")
"""Normalised text first; the original is read only where there is no other."""


def _walk_files(folder: Path) -> Iterator[Path]:
    """Yields all files below `folder` in a fixed order, one folder's names in memory at a time; follows no links."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            yield Path(place, name)


def _read_text_file(source: Source, path: Path, id: str) -> str | Rejection:
    """Returns the text of a file, its lines joined, or the rejection of an empty, undecodable or foreign file."""
    if path.is_symlink() and CorpusRoot(source.folder).resolve(str(path.absolute())) is None:
        return Rejection(id, source.name_of(path), 1, Reason.OUTSIDE_ROOT, "the text file is a link out of the corpus")
    texts = []
    for line in read_lines(path):
        if isinstance(line, BadLine):
            return reject_line(source, path, line)
        texts.append(line.text.strip())
    if not texts:
        return Rejection(id, source.name_of(path), 1, Reason.EMPTY_TEXT, "the text file is empty")
    return " ".join(texts)


def _find_vctk_audio(source: Source, audio_folder: str, speaker: str, stem: str) -> str:
    """Returns the recording of a sentence: of the two microphones of VCTK 0.92 the first that exists."""
    candidates = [source.root.find_audio(f"{audio_folder}/{speaker}", stem + mic) for mic in _VCTK_MICROPHONES]
    for candidate in candidates:
        real = source.root.resolve(candidate)
        if real is not None and Path(real).exists():
            return candidate
    return candidates[0]


def _find_vctk_audio_folder(path: Path) -> str:
    return next((name for name in _VCTK_AUDIO_FOLDERS if (path / name).is_dir()), "")


def _recognize_vctk(path: Path) -> str:
    audio_folder = _find_vctk_audio_folder(path) if path.is_dir() and (path / "txt").is_dir() else ""
    return f"txt/ with a folder per speaker, recordings in {audio_folder}/" if audio_folder else ""


def _read_vctk(source: Source) -> Iterator[Row | Rejection]:
    """Yields the rows of txt/SPEAKER/ID.txt; the checks that follow reject a sentence without a recording."""
    audio_folder = _find_vctk_audio_folder(source.path)
    for path in _walk_files(source.path / "txt"):
        if path.suffix.lower() != ".txt":
            continue
        speaker, stem = path.parent.name, path.stem
        text = _read_text_file(source, path, stem)
        if isinstance(text, Rejection):
            yield text
            continue
        audio = _find_vctk_audio(source, audio_folder, speaker, stem)
        yield Row(stem, audio, text, speaker, source.language, source.name_of(path), 1)


def _strip_libritts_ending(name: str) -> str:
    return next((name.removesuffix(ending) for ending in _LIBRITTS_ENDINGS if name.endswith(ending)), "")


def _recognize_libritts(path: Path) -> str:
    if not path.is_dir():
        return ""
    # A LibriTTS tree has text files within its first few folders; a look at those keeps a wrong guess cheap.
    for number, file in enumerate(_walk_files(path)):
        if _strip_libritts_ending(file.name):
            return f"{file.name} in a folder per speaker and chapter"
        if number >= 1000:
            break
    return ""


def _find_libritts_split(path: Path) -> Split | None:
    """Returns the split of a folder such as train-clean-100 in the path, the last one; the corpus itself may be one."""
    for part in reversed(path.parts):
        word = part.split("-")[0].lower()
        if "-" in part and word in SPLIT_WORDS:
            return SPLIT_WORDS[word]
    return None


def _read_libritts(source: Source) -> Iterator[Row | Rejection]:
    """Yields rows of the normalised texts, or of the original ones where there are no others. Ids begin with the
    speaker."""
    for path in _walk_files(source.path):
        stem = _strip_libritts_ending(path.name)
        is_superseded = (
            path.name.endswith(_LIBRITTS_ENDINGS[1]) and path.with_name(stem + _LIBRITTS_ENDINGS[0]).exists()
        )
        if not stem or is_superseded:
            continue
        text = _read_text_file(source, path, stem)
        if isinstance(text, Rejection):
            yield text
            continue
        audio = source.root.find_audio(str(path.parent.relative_to(source.path)), stem)
        speaker = stem.split("_")[0]
        split = _find_libritts_split(path)
        yield Row(stem, audio, text, speaker, source.language, source.name_of(path), 1, split=split)


VCTK = CorpusFormat(
    "vctk", "txt/SPEAKER/ID.txt and wav48_silence_trimmed/SPEAKER/ID_mic1.flac or wav48/", _recognize_vctk, _read_vctk
)
LIBRITTS = CorpusFormat(
    "libritts", "SUBSET/SPEAKER/CHAPTER/ID.normalized.txt beside ID.wav", _recognize_libritts, _read_libritts
)
