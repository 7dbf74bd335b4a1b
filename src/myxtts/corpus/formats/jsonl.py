"""Manifests of one JSON object a line, as NeMo and Whisper tools write them.

    {"audio_filepath": "wavs/001.wav", "text": "Good morning.", "speaker": "anna", "lang": "en"}

Keys may have any name of `tables.COLUMN_NAMES`; other keys, such as duration, are ignored. `MANIFEST` reads these files
and, where there are none, tables with the same names as headings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from myxtts.corpus.formats.base import CorpusFormat, Row, Source, find_audio_folder, reject_line, reject_missing_column
from myxtts.corpus.formats.tables import COLUMN_NAMES, TABLE_MANIFEST, find_transcripts, make_row
from myxtts.corpus.rejections import Reason, Rejection
from myxtts.corpus.transcripts import BadLine, read_first_lines, read_lines
from myxtts.types import Split

JSONL_SUFFIXES = (".jsonl", ".ndjson", ".json")


def _read_jsonl(source: Source, path: Path, split: Split | None) -> Iterator[Row | Rejection]:
    """Yields the rows of one manifest; a line that is no JSON object or has no text becomes a rejection."""
    folder = find_audio_folder(source.folder)
    file = source.name_of(path)
    for line in read_lines(path):
        if isinstance(line, BadLine):
            yield reject_line(source, path, line)
            continue
        fields = _parse_object(line.text)
        if isinstance(fields, str):
            yield Rejection("", file, line.number, Reason.BAD_LINE, fields)
        elif "text" not in fields and "phonemes" not in fields:
            yield reject_missing_column(file, line.number, "the object has no text", fields.get("id", ""))
        else:
            yield make_row(source, fields, file=file, line=line.number, split=split, audio_folder=folder)


def _parse_object(text: str) -> dict[str, str] | str:
    """Returns the known fields of one JSON object, or in words what is wrong with it."""
    try:
        values = json.loads(text)
    except RecursionError:
        return "the JSON is nested too deeply"
    except ValueError as error:
        return f"not valid JSON: {error}"
    if not isinstance(values, dict):
        return f"expected a JSON object, found a {type(values).__name__}"
    fields: dict[str, str] = {}
    for key, value in values.items():
        name = COLUMN_NAMES.get(key.strip().lower())
        if name is None or value is None or name in fields:
            continue
        # Ids and speakers are often written as numbers; a text or path that is a number is a mistake.
        is_number = isinstance(value, int) and not isinstance(value, bool) and name in ("id", "speaker")
        if not isinstance(value, str) and not is_number:
            return f"{key} is {str(value)[:40]!r}, expected text"
        fields[name] = str(value).strip()
    return fields


def _recognize(path: Path) -> str:
    for transcript, _ in find_transcripts(path, JSONL_SUFFIXES):
        lines = read_first_lines(transcript, 1)
        if lines and lines[0].lstrip().startswith("{"):
            return f"{transcript.name} holds one JSON object a line"
    return TABLE_MANIFEST.recognize(path)


def _read(source: Source) -> Iterator[Row | Rejection]:
    transcripts = find_transcripts(source.path, JSONL_SUFFIXES)
    if not transcripts:
        yield from TABLE_MANIFEST.read(source)
    for path, split in transcripts:
        yield from _read_jsonl(source, path, split)


MANIFEST = CorpusFormat(TABLE_MANIFEST.name, TABLE_MANIFEST.layout, _recognize, _read)
