"""Checksums of the files beside the features in a cache folder, so that damage to any of them is found.

Precompute writes more than features there: the list of utterances that it made of raw recordings, their front end,
reports of rejections and the configuration. checksums.json holds the crc32c of each, a copy of the configuration, and
a fingerprint of the raw recordings, by which recordings that were added, replaced or removed later are noticed. Like
the other files of a store it carries its own checksum.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from myxtts.config.load import RESOLVED_FILE_NAME
from myxtts.corpus.corpus_file import CORPUS_FILE_NAME, FRONTEND_FILE_NAME, Corpus, open_corpus, read_corpus_heading
from myxtts.corpus.transcripts import CorpusRoot, checksum_file
from myxtts.errors import DataError
from myxtts.storage.atomic import explain_storage_errors, write_file
from myxtts.storage.json_file import NO_OTHER_FIELDS
from myxtts.storage.regular_file import FileRefusedError, open_regular
from myxtts.store.layout import read_checked_json, write_checked_json

CORPUS_FOLDER_NAME = "corpus"
"""Raw recordings are prepared into this folder of their store."""
CHECKSUMS_FILE_NAME = "checksums.json"
_REPORTS = ("rejections.csv", "rejections.json")
_CORPUS_FILES = tuple(f"{CORPUS_FOLDER_NAME}/{name}" for name in (CORPUS_FILE_NAME, FRONTEND_FILE_NAME, *_REPORTS))
_FILES = (*_CORPUS_FILES, *_REPORTS, RESOLVED_FILE_NAME)
_MAX_RECORDING_BYTES = 1 << 32
_NUM_COMPARED = 16
"""Recordings whose content is compared where the folder of recordings has another path than before."""


@dataclass(frozen=True)
class CacheFiles:
    """The content of checksums.json: size and crc32c of each file by its path, and the text of config.yaml.

    `recordings` is the fingerprint of the raw recordings.
    """

    __pydantic_config__ = NO_OTHER_FIELDS

    files: dict[str, tuple[int, int]]
    config: str = ""
    recordings: str = ""


def write_checksums(folder: Path, recordings: str | None = None) -> None:
    """Notes the files as they are now; the fingerprint of recordings that was noted stays unless one is given."""
    known = read_checksums(folder) or CacheFiles({})
    sums = {name: found for name in _FILES if (found := _checksum_file(folder / name)) is not None}
    config = (folder / RESOLVED_FILE_NAME).read_text("utf-8") if RESOLVED_FILE_NAME in sums else ""
    written = CacheFiles(sums, config, known.recordings if recordings is None else recordings)
    write_checked_json(folder / CHECKSUMS_FILE_NAME, asdict(written))


def read_checksums(folder: Path) -> CacheFiles | None:
    """Returns what was noted; None in a cache folder of an earlier version, and where the file is damaged."""
    try:
        return read_checked_json(folder / CHECKSUMS_FILE_NAME, CacheFiles)
    except (FileNotFoundError, NotADirectoryError, DataError):
        return None


def forget_files(folder: Path) -> None:
    """Drops the checksums before files are written again: a kill in between must not look like damage."""
    known = read_checksums(folder)
    if known is not None:
        write_checked_json(folder / CHECKSUMS_FILE_NAME, asdict(replace(known, files={})))


def find_damaged_files(folder: Path) -> list[str]:
    """Returns the files, by their path in the cache folder, that are not as they were written.

    In a cache folder of an earlier version only a list of utterances that cannot be read is found.
    """
    try:
        known = read_checked_json(folder / CHECKSUMS_FILE_NAME, CacheFiles)
    except FileNotFoundError:
        return [] if _is_list_readable(folder) else [_CORPUS_FILES[0]]
    except DataError:
        return [CHECKSUMS_FILE_NAME]
    return [name for name, written in known.files.items() if _checksum_file(folder / name, written[0]) != written]


def _is_list_readable(folder: Path) -> bool:
    if not (folder / _CORPUS_FILES[0]).exists():
        return True
    try:
        corpus = open_corpus(folder / CORPUS_FOLDER_NAME)
        corpus.load_frontend()
        return sum(1 for _ in corpus.utterances()) == corpus.num_utterances
    except DataError:
        return False


def restore_config(folder: Path) -> None:
    """Writes config.yaml again as it was."""
    known = read_checksums(folder)
    if known is not None and known.config:
        write_file(folder / RESOLVED_FILE_NAME, known.config.encode())


def is_list_damaged(damaged_files: Sequence[str]) -> bool:
    """Whether one of the files that preparing raw recordings wrote is among the damaged ones."""
    return any(name in _CORPUS_FILES for name in damaged_files)


def _checksum_file(path: Path, max_bytes: int | None = None) -> tuple[int, int] | None:
    """Returns size and crc32c of a file; None where there is none that can be read, and for a larger one."""
    try:
        with open_regular(path, max_bytes) as file:
            return os.fstat(file.fileno()).st_size, checksum_file(file.fileno())
    except (OSError, FileRefusedError):
        return None


def fingerprint_recordings(inputs: Sequence[Path], cache_folder: Path) -> str:
    """Returns a hash of the names, sizes and times of all files in folders of recordings.

    `cache_folder` is left out, which may lie among them. A path may also be that of a transcript; then the folder that
    it lies in counts.
    """
    digest = hashlib.blake2b(digest_size=16)
    skipped = os.path.realpath(cache_folder)
    for path in inputs:
        for entry in _list_files(str(path if path.is_dir() else path.parent), skipped):
            digest.update(entry.encode("utf-8", "surrogateescape"))
        digest.update(b"\0\0")
    return digest.hexdigest()


def _list_files(folder: str, skipped: str) -> Iterator[str]:
    """Yields a line with name, size and time of each file below a folder, in a fixed order."""
    with explain_storage_errors(folder, "read"):
        for place, folders, names in os.walk(folder):
            folders[:] = sorted(name for name in folders if os.path.realpath(f"{place}/{name}") != skipped)
            for name in sorted(names):
                try:
                    status = os.stat(f"{place}/{name}")  # noqa: PTH116 -- per clip, half the cost of Path
                except OSError:
                    # A link that leads nowhere.
                    continue
                yield f"{os.path.relpath(place, folder)}/{name}\0{status.st_size}\0{status.st_mtime_ns}\0"


def is_list_of(corpus: Corpus, path: Path, folder: Path) -> bool:
    """Whether the list in a cache folder names the recordings in `path`; False where they were moved there since.

    Then some of them are compared by their content. Raises DataError where they are other recordings.
    """
    wanted = os.path.realpath(path if path.is_dir() else path.parent)
    roots = [os.path.realpath(corpus.file.parent / root) for root in read_corpus_heading(corpus.file).roots]
    if any(os.path.commonpath([wanted, root]) in (wanted, root) for root in roots):
        return True
    step = max(1, corpus.num_utterances // _NUM_COMPARED)
    listed = [(one.audio, one.checksum) for number, one in enumerate(corpus.utterances()) if number % step == 0]
    inside = CorpusRoot(Path(wanted))
    num_same = 0
    for audio, checksum in listed:
        root = next((root for root in roots if audio.startswith(root + os.sep)), "")
        real = inside.resolve(os.path.relpath(audio, root)) if root else None
        found = _checksum_file(Path(real), _MAX_RECORDING_BYTES) if real is not None else None
        num_same += found is not None and found[1] == checksum
    if num_same * 2 < len(listed) or not listed:
        raise DataError(
            f"The features in {folder} belong to another corpus: they were computed from the recordings in "
            f"{roots[0]}, of which {num_same} of {len(listed)} that were compared are in {path}.",
            next_step=f"Give these recordings their own feature cache: --cache-dir {Path(wanted).name}_features.",
        )
    return False
