"""File layout of the feature store, and the settings that its features were made with.

    cached_features/
      store.json             which generation is current, which segments it has, and how it was made
      generation-0001/       appended to by whole segments, never changed
        generation.json      how it was made
        000000.index         columns, one row an utterance: where its parts are, how long, their checksums
        000000.mel           the parts: flat records, aligned, behind a heading of one alignment
        000000.tokens
        000000.pcm           only with cache_waveforms
        000000.durations     only once alignments were written

A segment's index is renamed into place after its data has reached the disk; a store.json that names the segment makes
it a part of the store. A row of a later segment replaces the row of the same utterance in an earlier one, so one
utterance is rebuilt, added or removed without rewriting the rest. A row names the segment of each of its parts, so that
new tokens can refer to spectrograms that stay where they are.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import google_crc32c
from pydantic import Field

from myxtts.config.schema import DataConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.errors import ConfigError, DataError, refuse
from myxtts.features.definition import DEFINITION_VERSION, AudioDefinition, MelDefinition
from myxtts.storage.json_file import NO_OTHER_FIELDS, FileModel, Model, parse_json, write_json
from myxtts.storage.regular_file import explain_read_errors, read_regular

Part = Literal["mel", "tokens", "pcm", "durations"]
"""Kind of record. Each has a data file of its own in a segment, named by this suffix."""
PARTS: tuple[Part, ...] = ("mel", "tokens", "pcm", "durations")

ALIGNMENT = 64
"""Records begin at multiples of a cache line."""
CHUNK_UTTERANCES = 1024
"""Utterances of a segment: the most work that a kill can lose."""
STORE_FILE_NAME = "store.json"
GENERATION_FILE_NAME = "generation.json"
STORE_VERSION = 2
"""Version of store.json; a store of another version must be rebuilt."""
_MAGIC = b"MYXTTS01"
_MAX_JSON_BYTES = 10_000_000
_REBUILD = "It was altered, or written by another version of myxtts: run myxtts cache rebuild."


def align(num_bytes: int) -> int:
    """Rounds a size up to the alignment."""
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def name_generation(number: int) -> str:
    return f"generation-{number:04}"


def find_generations(folder: Path) -> list[int]:
    """Lists the generations in a store's folder, finished or not, oldest first."""
    numbers = (path.name.removeprefix("generation-") for path in folder.glob("generation-*"))
    return sorted(int(number) for number in numbers if number.isdecimal())


def index_path(folder: Path, segment: int) -> Path:
    return folder / f"{segment:06}.index"


def part_path(folder: Path, segment: int, part: Part) -> Path:
    return folder / f"{segment:06}.{part}"


def make_part_heading(segment: int, part: Part) -> bytes:
    """Returns the first bytes of a data file: magic, segment, part, crc32c. They reveal swapped or renamed files."""
    body = struct.pack("<8sI20s", _MAGIC, segment, part.encode())
    heading = body + struct.pack("<I", google_crc32c.value(body))
    return heading.ljust(ALIGNMENT, b"\0")


def find_segments(folder: Path) -> list[int]:
    """Lists the segments of a generation that have an index, oldest first."""
    return sorted(int(path.stem) for path in folder.glob("*.index") if path.stem.isdecimal())


_Count = Annotated[int, Field(ge=0, lt=1 << 32)]


@dataclass(frozen=True)
class StoreSettings:
    """Everything that determines features besides their sources: equal settings and sources give equal features."""

    __pydantic_config__ = NO_OTHER_FIELDS

    mel: MelDefinition
    audio: AudioDefinition
    mel_dtype: Literal["float16", "float32"]
    has_pcm: bool
    frontend: str
    definition: int = DEFINITION_VERSION

    @classmethod
    def of(cls, data: DataConfig, frontend: str) -> StoreSettings:
        """Collects the settings that a configuration and the fingerprint of a front end ask for."""
        mel, audio = MelDefinition.from_config(data), AudioDefinition.from_config(data)
        return cls(mel, audio, mel_dtype=data.mel_dtype, has_pcm=data.cache_waveforms, frontend=frontend)

    @property
    def parts(self) -> tuple[Part, ...]:
        return ("mel", "tokens", "pcm") if self.has_pcm else ("mel", "tokens")


@dataclass(frozen=True)
class StoreOrigin:
    """What features were made from: the path and crc32c of a corpus file, and the limits that its recordings kept to.

    Stores of earlier versions note no checksum.
    """

    __pydantic_config__ = NO_OTHER_FIELDS

    corpus: str
    limits: AudioLimits
    checksum: _Count | None = None


Purpose = Literal["features", "tokens", "compaction"]
"""Why a generation was begun: all features again, new tokens for shared spectrograms, or a copy without garbage."""


def _refuse_impossible(settings: StoreSettings, origin: StoreOrigin) -> None:
    """Raises ValueError where settings or limits break the limits of a configuration."""
    if settings.mel.sample_rate != settings.audio.sample_rate:
        raise ValueError("spectrograms and recordings have different sample rates")
    try:
        DataConfig(**{**asdict(settings.mel), **asdict(settings.audio), **asdict(origin.limits)})
    except ConfigError as error:
        raise ValueError(error.problem.rstrip(".")) from error


@dataclass(frozen=True)
class Generation:
    """The content of generation.json, from which a damaged store.json can be restored."""

    __pydantic_config__ = NO_OTHER_FIELDS

    settings: StoreSettings
    origin: StoreOrigin
    purpose: Purpose

    def __post_init__(self) -> None:
        _refuse_impossible(self.settings, self.origin)


@dataclass(frozen=True)
class StoreState:
    """The content of store.json: the current generation, its segments in order, and how it was made.

    Segments it does not name belong to a writer that has not finished; readers do not see them.
    """

    __pydantic_config__ = NO_OTHER_FIELDS

    generation: _Count
    segments: tuple[_Count, ...]
    settings: StoreSettings
    origin: StoreOrigin
    num_utterances: _Count = 0
    seconds: Annotated[float, Field(ge=0)] = 0.0
    num_token_ids: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    """Token ids are below this; 0 in stores of earlier versions, which do not say."""
    version: int = STORE_VERSION

    def __post_init__(self) -> None:
        _refuse_impossible(self.settings, self.origin)
        if any(later <= earlier for earlier, later in pairwise(self.segments)):
            raise ValueError("its segments are not in order")


class _Checked(FileModel):
    """A JSON file that carries its own crc32c: `content` is JSON, too."""

    crc32c: int
    content: str


def write_checked_json(path: Path, fields: Mapping[str, Any]) -> None:
    """JSON that carries its own crc32c, written in one step."""
    content = json.dumps(fields, ensure_ascii=False, sort_keys=True)
    write_json(path, {"crc32c": google_crc32c.value(content.encode()), "content": content})


def read_checked_json(path: Path, model: type[Model]) -> Model:
    """Reads what `write_checked_json` wrote; raises DataError if a single bit of it has changed."""
    with explain_read_errors(lambda reason: damaged(path, reason), is_optional=True):
        raw = read_regular(path, _MAX_JSON_BYTES)
        outer = parse_json(raw, _Checked)
    content = outer.content.encode()
    # The checksum covers the content, not the JSON around it: compare the whole file with its canonical form.
    if google_crc32c.value(content) != outer.crc32c or raw != json.dumps(outer.model_dump(), indent=1).encode():
        raise damaged(path, "its checksum does not match")
    with explain_read_errors(lambda reason: refuse(path, reason, _REBUILD)):
        return parse_json(content, model)


def write_state(folder: Path, state: StoreState) -> None:
    """Replaces store.json atomically: the commit point of every change to a store."""
    write_checked_json(folder / STORE_FILE_NAME, asdict(state))


def read_state(folder: Path) -> StoreState | None:
    """Reads store.json; returns None if there is no store, raises DataError if it is damaged or of another version."""
    path = folder / STORE_FILE_NAME
    try:
        version = read_checked_json(path, dict[str, Any]).get("version")
        if version == STORE_VERSION:
            return read_checked_json(path, StoreState)
    except (FileNotFoundError, NotADirectoryError):
        return None
    raise refuse(path, f"it is of version {version!r}, this program reads {STORE_VERSION}", _REBUILD)


def require_store(folder: Path) -> None:
    """Raises DataError where no store was ever finished."""
    if not (folder / STORE_FILE_NAME).exists():
        raise DataError(
            f"There is no complete feature cache in {folder}.",
            next_step=f"Run: myxtts precompute --train-data CORPUS --cache-dir {folder}",
        )


def damaged(what: object, problem: str, next_step: str = "Run myxtts cache repair.") -> DataError:
    """Makes the DataError for a file or record of the store with a wrong checksum or structure."""
    return DataError(f"{what} is damaged: {problem}.", next_step=next_step)


def list_differences(stored: StoreSettings, wanted: StoreSettings) -> dict[str, tuple[Any, Any]]:
    """Returns the settings that differ, by name, with the stored and the wanted value."""
    old, new = _flatten(asdict(stored)), _flatten(asdict(wanted))
    return {name: (old.get(name), new.get(name)) for name in new if old.get(name) != new.get(name)}


def describe_differences(differences: dict[str, tuple[Any, Any]]) -> str:
    """Formats differences for messages: `hop_length 256 → 300`."""
    names = {"frontend": "text front end", "definition": "definition of the features"}
    return ", ".join(
        f"{names.get(name, name)} {_shorten(old)} → {_shorten(new)}" for name, (old, new) in differences.items()
    )


def _flatten(fields: dict[str, Any]) -> dict[str, Any]:
    """Merges nested definitions into one level; their field names do not clash."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        flat |= _flatten(value) if isinstance(value, dict) else {name: value}
    return flat


def _shorten(value: object) -> str:
    text = str(value)
    return f"{text[:8]}…" if len(text) > 20 else text
