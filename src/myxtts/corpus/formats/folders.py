"""Readers of corpora with one small text file per recording: VCTK, LibriTTS, and any other pairs of ID.wav and ID.txt.

VCTK       txt/p225/p225_001.txt                wav48_silence_trimmed/p225/p225_001_mic1.flac
LibriTTS   train-clean-100/19/198/19_198_000000_000000.normalized.txt      beside the .wav of the same name
pairs      anna/001.txt, anna/001.wav           or txt/anna/001.txt and wav/anna/001.wav
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

from myxtts.corpus.formats.base import (
    DEFAULT_SPEAKER,
    NOT_TRANSCRIPTS,
    SPLIT_WORDS,
    CorpusFormat,
    Row,
    Source,
    find_audio_folder,
    reject_line,
)
from myxtts.corpus.rejections import Reason, Rejection
from myxtts.corpus.transcripts import AUDIO_FOLDERS, AUDIO_SUFFIXES, FOREIGN_SUFFIXES, BadLine, CorpusRoot, read_lines
from myxtts.types import Split

_VCTK_AUDIO_FOLDERS = ("wav48_silence_trimmed", "wav48", "wav22", "wav16", "wavs", "wav")
"""In the order of preference: release 0.92 first, then older releases and common conversions."""
_VCTK_MICROPHONES = ("", "_mic1", "_mic2")
"""Suffixes of recordings; releases before 0.92 have none."""
_LIBRITTS_ENDINGS = (".normalized.txt", ".original.txt")
"""Normalised text first; the original is read only where there is no other."""
_TEXT_FOLDERS = ("txt", "text", "texts", "transcripts")
_NUM_FILES_LOOKED_AT = 1000
"""Files by which a corpus is recognised: a wrong guess must stay cheap."""


def walk_files(folder: Path) -> Iterator[Path]:
    """Yields all files below `folder` in a fixed order, one folder's names in memory at a time; follows no links."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            yield Path(place, name)


def find_recordings(folder: Path) -> Iterator[Path]:
    """Yields the recordings below a folder, of readable and of other formats."""
    suffixes = (*AUDIO_SUFFIXES, *FOREIGN_SUFFIXES)
    return (file for file in walk_files(folder) if file.suffix.lower() in suffixes)


def _read_row(source: Source, path: Path, id: str, audio: str, speaker: str, split: Split | None) -> Row | Rejection:
    """Returns the row of a text file, its lines joined, or the rejection of an empty, undecodable or foreign file."""
    if path.is_symlink() and CorpusRoot(source.folder).resolve(str(path.absolute())) is None:
        return Rejection(id, source.name_of(path), 1, Reason.OUTSIDE_ROOT, "the text file is a link out of the corpus")
    texts = []
    for line in read_lines(path):
        if isinstance(line, BadLine):
            return reject_line(source, path, line)
        texts.append(line.text.strip())
    if not texts:
        return Rejection(id, source.name_of(path), 1, Reason.EMPTY_TEXT, "the text file is empty")
    return Row(id, audio, " ".join(texts), speaker, source.language, source.name_of(path), 1, split=split)


def _find_vctk_audio(source: Source, audio_folder: str, speaker: str, stem: str) -> str:
    """Returns the recording of a sentence: of the two microphones of VCTK 0.92 the first that exists."""
    candidates = [source.root.find_audio(f"{audio_folder}/{speaker}", stem + mic) for mic in _VCTK_MICROPHONES]
    return next((candidate for candidate in candidates if _is_there(source.root, candidate)), candidates[0])


def _recognize_vctk(path: Path) -> str:
    if not any((path / "txt").glob("*/*.txt")):
        return ""
    audio_folder = next((name for name in _VCTK_AUDIO_FOLDERS if (path / name).is_dir()), "")
    return f"txt/ with a folder per speaker, recordings in {audio_folder}/" if audio_folder else ""


def _read_vctk(source: Source) -> Iterator[Row | Rejection]:
    """Yields the rows of txt/SPEAKER/ID.txt; the checks that follow reject a sentence without a recording."""
    audio_folder = find_audio_folder(source, _VCTK_AUDIO_FOLDERS)
    for path in walk_files(source.path / "txt"):
        if path.suffix.lower() != ".txt":
            continue
        speaker, stem = path.parent.name, path.stem
        yield _read_row(source, path, stem, _find_vctk_audio(source, audio_folder, speaker, stem), speaker, None)


def _strip_libritts_ending(name: str) -> str:
    return next((name.removesuffix(ending) for ending in _LIBRITTS_ENDINGS if name.endswith(ending)), "")


def _recognize_libritts(path: Path) -> str:
    if not path.is_dir():
        return ""
    for file in islice(walk_files(path), _NUM_FILES_LOOKED_AT):
        if _strip_libritts_ending(file.name):
            return f"{file.name} in a folder per speaker and chapter"
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
    for path in walk_files(source.path):
        stem = _strip_libritts_ending(path.name)
        is_superseded = (
            path.name.endswith(_LIBRITTS_ENDINGS[1]) and path.with_name(stem + _LIBRITTS_ENDINGS[0]).exists()
        )
        if not stem or is_superseded:
            continue
        audio = source.root.find_audio(str(path.parent.relative_to(source.path)), stem)
        yield _read_row(source, path, stem, audio, stem.split("_")[0], _find_libritts_split(path))


def _find_paired_audio(root: CorpusRoot, text: PurePosixPath) -> str:
    """Returns the recording of a text file, both below the root: beside it, or in wav/ where the text is in txt/."""
    beside = root.find_audio("", str(text.with_suffix("")))
    if text.parts[0].lower() in _TEXT_FOLDERS and not _is_there(root, beside):
        for folder in AUDIO_FOLDERS:
            audio = root.find_audio(folder, str(PurePosixPath(*text.parts[1:]).with_suffix("")))
            if _is_there(root, audio):
                return audio
    return beside


def _is_there(root: CorpusRoot, audio: str) -> bool:
    real = root.resolve(audio)
    return real is not None and Path(real).exists()


def _list_paired_texts(folder: Path) -> Iterator[PurePosixPath]:
    """Yields the text files of a corpus, relative to it; documents such as README.txt are left out."""
    for file in walk_files(folder):
        if file.suffix.lower() == ".txt" and not file.stem.lower().startswith(NOT_TRANSCRIPTS):
            yield PurePosixPath(file.relative_to(folder))


def _recognize_pairs(path: Path) -> str:
    root = CorpusRoot(path)
    for text in islice(_list_paired_texts(path), _NUM_FILES_LOOKED_AT) if path.is_dir() else ():
        audio = _find_paired_audio(root, text)
        if _is_there(root, audio):
            return f"{text} has the text of {audio}"
    return ""


def _read_pairs(source: Source) -> Iterator[Row | Rejection]:
    """Yields a row for each text file. The outermost folder that is no split, txt/ or wav/ is the speaker."""
    for text_path in _list_paired_texts(source.path):
        path = source.path / text_path
        shared = (*_TEXT_FOLDERS, *AUDIO_FOLDERS)
        folders = [folder for folder in text_path.parts[:-1] if folder.lower() not in shared]
        split = SPLIT_WORDS.get(folders[0].lower()) if folders else None
        id = "/".join([*folders, text_path.stem])
        speaker = next(iter(folders[1:] if split else folders), DEFAULT_SPEAKER)
        yield _read_row(source, path, id, _find_paired_audio(source.root, text_path), speaker, split)


VCTK = CorpusFormat(
    "vctk", "txt/SPEAKER/ID.txt and wav48_silence_trimmed/SPEAKER/ID_mic1.flac or wav48/", _recognize_vctk, _read_vctk
)
LIBRITTS = CorpusFormat(
    "libritts", "SUBSET/SPEAKER/CHAPTER/ID.normalized.txt beside ID.wav", _recognize_libritts, _read_libritts
)
PAIRS = CorpusFormat(
    "pairs", "ID.txt with the text of ID.wav beside it, also in a folder per speaker", _recognize_pairs, _read_pairs
)
