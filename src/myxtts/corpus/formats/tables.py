"""Readers of tables, with a heading (manifests, Coqui, Common Voice) or without (LJSpeech, Piper), and of JSON lines.

LJSpeech       001|Chapter 1.|Chapter one.            id, text, normalised text
Piper          001|anna|Good morning.                 id, speaker, text
Coqui          audio_file|text|speaker_name           heading of metadata.csv or metadata_train.csv
Common Voice   client_id⇥path⇥sentence⇥…              heading of train.tsv, dev.tsv, test.tsv, validated.tsv
manifest       id,audio,text,speaker,language         heading with any of the names in COLUMN_NAMES
               {"audio_filepath": "a.wav", "text": …}  one JSON object a line with the same names, as NeMo writes them
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Any

from myxtts.corpus.formats.base import (
    DEFAULT_SPEAKER,
    NOT_TRANSCRIPTS,
    SPLIT_WORDS,
    CorpusFormat,
    Row,
    Source,
    find_audio_folder,
    refuse_link_outside,
    reject_line,
)
from myxtts.corpus.rejections import Reason, Rejection
from myxtts.corpus.transcripts import (
    AUDIO_FOLDERS,
    AUDIO_SUFFIXES,
    BadLine,
    read_first_lines,
    read_lines,
    read_records,
    split_fields,
)
from myxtts.types import Split

TABLE_SUFFIXES = (".csv", ".tsv", ".txt")
JSONL_SUFFIXES = (".jsonl", ".ndjson", ".json")
_ONLY_SUFFIXES = (*TABLE_SUFFIXES, ".jsonl", ".ndjson")
NUM_LINES_LOOKED_AT = 200
"""Lines by which a table without a heading is recognised: enough for speakers to repeat."""
# Common Voice's own split; other tables of a release, such as invalidated.tsv, are not read.
_COMMON_VOICE_TABLES: tuple[tuple[str, Split | None], ...] = (
    ("train.tsv", "train"),
    ("dev.tsv", "val"),
    ("test.tsv", "test"),
)

COLUMN_NAMES: dict[str, str] = {
    name: field
    for field, names in {
        "id": "id utterance_id utt_id uttid clip_id name",
        "audio": "audio audio_file audio_filepath audio_path audio_filename path file filename file_name filepath "
        "file_path wav wav_path wav_file wav_filename wav_filepath clip recording",
        "text": "text txt sentence transcript transcription raw_text",
        "normalised": "normalised normalized normalised_text normalized_text text_normalised text_normalized",
        "speaker": "speaker spk speaker_name speaker_id spk_id spkid speakerid client_id",
        "language": "language lang locale lang_id lang_code language_code",
        "phonemes": "phonemes ipa",
        "split": "split subset",
    }.items()
    for name in names.split()
}
"""Names of columns and JSON keys in the wild, as `read_column_name` returns them, and the field that each one means."""
_TEXT_FIELDS = ("text", "normalised", "phonemes")


def read_column_name(cell: str) -> str:
    """Returns the field that a column or JSON key means, '' for an unknown one: "Wav-Path" is audio."""
    return COLUMN_NAMES.get(cell.strip().lower().replace(" ", "_").replace("-", "_"), "")


def find_transcripts(path: Path, suffixes: Sequence[str] = TABLE_SUFFIXES) -> list[tuple[Path, Split | None]]:
    """Returns the transcripts of a corpus with the split of each: `path` itself; metadata.* or manifest.*; or files
    named after splits, such as train.csv and metadata_eval.csv; or the only file that can be one."""
    if path.is_file():
        return [(path, None)] if path.suffix.lower() in suffixes else []
    for stem in ("metadata", "manifest"):
        for suffix in suffixes:
            if (path / (stem + suffix)).is_file():
                return [(refuse_link_outside(path, path / (stem + suffix)), None)]
    found: list[tuple[Path, Split | None]] = []
    for candidate in sorted(path.iterdir()):
        if candidate.suffix.lower() in suffixes and candidate.is_file():
            split = SPLIT_WORDS.get(candidate.stem.lower().removeprefix("metadata_").removeprefix("manifest_"))
            if split is not None:
                found.append((refuse_link_outside(path, candidate), split))
    return found or _find_only_transcript(path, suffixes)


def _find_only_transcript(folder: Path, suffixes: Sequence[str]) -> list[tuple[Path, Split | None]]:
    """Returns the transcript of a folder that has just one, whatever its name is."""
    files = list_possible_transcripts(folder)
    if len(files) != 1 or files[0].suffix.lower() not in suffixes:
        return []
    return [(refuse_link_outside(folder, files[0]), None)]


def list_possible_transcripts(folder: Path) -> list[Path]:
    """Returns the tables and JSON lines of a folder, except for documents and the texts of single recordings."""
    files = [entry for entry in sorted(folder.iterdir()) if entry.suffix.lower() in _ONLY_SUFFIXES and entry.is_file()]
    files = [file for file in files if not file.stem.lower().startswith(NOT_TRANSCRIPTS)]
    return [file for file in files if not any(file.with_suffix(suffix).is_file() for suffix in AUDIO_SUFFIXES)]


def find_delimiter(lines: Sequence[str]) -> str:
    """Returns the first of pipe, tab, semicolon and comma in the first line, in this order: sentences have commas."""
    heading = lines[0] if lines else ""
    return next((mark for mark in "|\t;," if mark in heading), "|")


def read_heading(path: Path) -> dict[str, int]:
    """Returns the position of each field, if the first line is a heading that names audio or id, and text; else {}."""
    columns: dict[str, int] = {}
    for position, cell in enumerate(read_first_cells(path)):
        name = read_column_name(cell)
        if name:
            columns.setdefault(name, position)
    if "text" in columns:
        columns.pop("normalised", None)
    return columns if names_utterances(columns) else {}


def read_first_cells(path: Path) -> list[str]:
    lines = read_first_lines(path, 1)
    return [cell.strip() for cell in split_fields(lines[0], find_delimiter(lines))] if lines else []


def names_utterances(fields: Container[str]) -> bool:
    """Whether the fields suffice to read utterances: a text, and a recording or an id."""
    return any(name in fields for name in _TEXT_FIELDS) and ("audio" in fields or "id" in fields)


def looks_like_heading(cells: Sequence[str]) -> bool:
    """Whether the first line of a table names columns, known or not: words without spaces, one of them known."""
    is_named = all(re.fullmatch(r"[^\W\d][\w -]{0,30}", cell) for cell in cells)
    return is_named and any(read_column_name(cell) for cell in cells)


def explain_columns(path: Path) -> str:
    """Says which columns or JSON keys of a transcript are known and which are needed; '' if it names none."""
    lines = read_first_lines(path, 1)
    cells = read_first_cells(path)
    if lines and lines[0].lstrip().startswith("{"):
        values = parse_json_row(lines[0])
        cells = list(values) if isinstance(values, dict) else []
    elif find_delimiter(lines) == "|" and not looks_like_heading(cells):
        return ""
    if not cells:
        return ""
    known = {cell: read_column_name(cell) for cell in cells}
    needed = "" if any(field in _TEXT_FIELDS for field in known.values()) else "text"
    if not {"audio", "id"} & set(known.values()):
        needed = f"audio (or id) and {needed}" if needed else "audio (or id)"
    meant = [f"{cell!r} may mean {COLUMN_NAMES[near[0]]}" for cell in cells if (near := _find_near(cell))]
    listed = ", ".join(repr(cell[:40]) for cell in cells[:20])
    hints = f" {'; '.join(meant)}." if meant else ""
    return f"{path} has the columns {listed}; {needed} cannot be found among them.{hints}"


def _find_near(cell: str) -> list[str]:
    """Returns the known name of a column that is spelled nearly as an unknown one."""
    return [] if read_column_name(cell) else get_close_matches(cell.lower(), COLUMN_NAMES, 1, 0.7)


def read_table(source: Source, path: Path, split: Split | None, names: Sequence[str] = ()) -> Iterator[Row | Rejection]:
    """Yields the rows of a table: its first line names the columns, or they are `names` between pipes."""
    columns = {name: position for position, name in enumerate(names)} or read_heading(path)
    delimiter = "|" if names else find_delimiter(read_first_lines(path, 1))
    file, folder = source.name_of(path), find_audio_folder(source)
    is_heading = not names
    for record in read_records(path, delimiter):
        if isinstance(record, BadLine):
            yield reject_line(source, path, record)
            continue
        line, cells = record
        missing = [name for name, position in columns.items() if position >= len(cells)]
        if is_heading:
            is_heading = False
        elif missing:
            detail = f"the line has no {', '.join(missing)}; its columns are {'|'.join(columns)}"
            yield Rejection(cells[0].strip(), file, line, Reason.MISSING_COLUMN, detail)
        elif names and len(cells) > len(names):
            detail = f"the line has {len(cells)} columns, expected {len(names)} ({'|'.join(names)})"
            yield Rejection(cells[0].strip(), file, line, Reason.BAD_LINE, detail)
        else:
            fields = {name: cells[position].strip() for name, position in columns.items()}
            if names and fields["id"].lower().endswith(AUDIO_SUFFIXES):
                fields["audio"] = fields.pop("id")
            yield make_row(source, fields, file=file, line=line, split=split, audio_folder=folder)


def make_row(
    source: Source, fields: dict[str, str], *, file: str, line: int, split: Split | None, audio_folder: str
) -> Row | Rejection:
    """Makes a row from named fields. A missing id is derived from the path and a missing path from the id; the
    language defaults to that of the source; `split` counts where the row has none of its own; normalised text is
    preferred to text."""
    id, audio = fields.get("id", ""), fields.get("audio", "")
    if not id and not audio:
        return Rejection("", file, line, Reason.MISSING_COLUMN, "neither id nor audio is given")
    if fields.get("split"):
        split = SPLIT_WORDS.get(fields["split"].lower())
        if split is None:
            known = ", ".join(sorted(SPLIT_WORDS))
            return Rejection(id, file, line, Reason.BAD_LINE, f"split {fields['split']!r} is none of {known}")
    id = id or name_utterance(audio)
    return Row(
        id=id,
        audio=place_audio(source, audio, audio_folder) if audio else source.root.find_audio(audio_folder, id),
        text=fields.get("normalised") or fields.get("text", ""),
        speaker=fields.get("speaker") or DEFAULT_SPEAKER,
        language=fields.get("language") or source.language,
        phonemes=fields.get("phonemes") or None,
        file=file,
        line=line,
        split=split,
    )


def name_utterance(audio: str) -> str:
    """Derives an id from a path: without the suffix, and without a leading folder of `AUDIO_FOLDERS`."""
    path = PurePosixPath(audio.replace("\\", "/"))
    bare = path.with_suffix("") if path.suffix.lower() in AUDIO_SUFFIXES else path
    shared = len(bare.parts) > 1 and bare.parts[0].lower() in AUDIO_FOLDERS
    return "/".join(bare.parts[1:] if shared else bare.parts)


def place_audio(source: Source, audio: str, audio_folder: str) -> str:
    """Returns a path as the transcript writes it, or inside the audio folder where only a file name is given."""
    written = audio.replace("\\", "/")
    if "/" in written or not audio_folder or os.path.exists(f"{source.root.real}/{written}"):  # noqa: PTH110 -- per clip
        return source.root.find_audio("", written)
    return source.root.find_audio(audio_folder, written)


def count_columns(lines: Sequence[str]) -> int:
    """Returns the number of columns that most lines have."""
    counts = Counter(len(line.split("|")) for line in lines)
    return counts.most_common(1)[0][0] if counts else 0


def has_speaker_column(lines: Sequence[str]) -> bool:
    """Whether column two of three holds speaker names rather than sentences.

    Over 90 % of the cells must be without a space, and over 70 % shorter than column three.
    """
    rows = [line.split("|") for line in lines]
    rows = [row for row in rows if len(row) == 3]
    if not rows:
        return False
    names = [row[1].strip() for row in rows]
    share_without_space = sum(bool(name) and " " not in name for name in names) / len(names)
    is_shorter = sum(len(row[1]) < len(row[2]) for row in rows) > 0.7 * len(rows)
    return share_without_space > 0.9 and is_shorter


def _recognize_headless(path: Path, *, with_speaker: bool) -> str:
    """Recognises LJSpeech or, `with_speaker`, Piper. Both may have three columns; Piper's second is the speaker."""
    transcripts = find_transcripts(path)
    if len(transcripts) != 1 or looks_like_heading(read_first_cells(transcripts[0][0])):
        return ""
    lines = read_first_lines(transcripts[0][0], NUM_LINES_LOOKED_AT)
    num_columns = count_columns(lines)
    if with_speaker:
        matches = num_columns == 3 and has_speaker_column(lines)
    else:
        matches = num_columns in (2, 3) and not has_speaker_column(lines)
    return f"{transcripts[0][0].name} has {num_columns} columns between | and no heading" if matches else ""


def _read_headless_tables(source: Source, wide_names: Sequence[str]) -> Iterator[Row | Rejection]:
    """Yields the rows of tables with the columns `wide_names`, or with id and text alone."""
    for path, split in find_transcripts(source.path):
        is_wide = count_columns(read_first_lines(path, NUM_LINES_LOOKED_AT)) >= 3
        yield from read_table(source, path, split, wide_names if is_wide else ("id", "text"))


def read_jsonl(source: Source, path: Path, split: Split | None) -> Iterator[Row | Rejection]:
    """Yields the rows of one manifest; a line that is no JSON object or has no text becomes a rejection."""
    folder = find_audio_folder(source)
    file = source.name_of(path)
    for line in read_lines(path):
        if isinstance(line, BadLine):
            yield reject_line(source, path, line)
            continue
        values = parse_json_row(line.text)
        fields = values if isinstance(values, str) else pick_fields(values)
        if isinstance(fields, str):
            yield Rejection("", file, line.number, Reason.BAD_LINE, fields)
        elif not names_utterances(fields):
            keys = ", ".join(key[:40] for key in list(values)[:20])
            detail = f"the object has {keys or 'no fields'}: a text, and audio or id, are needed"
            yield Rejection(fields.get("id", ""), file, line.number, Reason.MISSING_COLUMN, detail)
        else:
            yield make_row(source, fields, file=file, line=line.number, split=split, audio_folder=folder)


def parse_json_row(text: str) -> dict[str, Any] | str:
    """Returns the content of one JSON object, or in words what is wrong with it."""
    try:
        values = json.loads(text)
    except RecursionError:
        return "the JSON is nested too deeply"
    except ValueError as error:
        return f"not valid JSON: {error}"
    return values if isinstance(values, dict) else f"expected a JSON object, found a {type(values).__name__}"


def pick_fields(values: dict[str, Any]) -> dict[str, str] | str:
    """Returns the known fields of one JSON object, or in words what is wrong with one of them."""
    fields: dict[str, str] = {}
    for key, value in values.items():
        name = read_column_name(key)
        if not name or value is None or name in fields:
            continue
        # Ids and speakers are often written as numbers; a text or path that is a number is a mistake.
        is_number = isinstance(value, int) and not isinstance(value, bool) and name in ("id", "speaker")
        if not isinstance(value, str) and not is_number:
            return f"{key} is {str(value)[:40]!r}, expected text"
        fields[name] = str(value).strip()
    return fields


def _recognize_manifest(path: Path) -> str:
    """Recognises JSON lines by the first character, and tables that all have a heading."""
    for transcript, _ in find_transcripts(path, JSONL_SUFFIXES):
        lines = read_first_lines(transcript, 1)
        if lines and lines[0].lstrip().startswith("{"):
            return f"{transcript.name} holds one JSON object a line"
    transcripts = find_transcripts(path)
    if transcripts and all(read_heading(transcript) for transcript, _ in transcripts):
        return f"{transcripts[0][0].name} names its columns in the first line"
    return ""


def _read_manifest(source: Source) -> Iterator[Row | Rejection]:
    """Yields the rows of the JSON lines, or of the tables where there are none."""
    transcripts = find_transcripts(source.path, JSONL_SUFFIXES)
    if not transcripts:
        yield from _read_headed_tables(source)
    for path, split in transcripts:
        yield from read_jsonl(source, path, split)


def _recognize_coqui(path: Path) -> str:
    """Recognises Coqui's heading, which is a manifest too: the registry asks for it first."""
    transcripts = find_transcripts(path)
    heads = [read_first_lines(transcript, 1) for transcript, _ in transcripts]
    if heads and all(head and head[0].lower().startswith("audio_file|") for head in heads):
        return f"{transcripts[0][0].name} opens with audio_file|"
    return ""


def _read_headed_tables(source: Source) -> Iterator[Row | Rejection]:
    for path, split in find_transcripts(source.path):
        yield from read_table(source, path, split)


LJSPEECH = CorpusFormat(
    "ljspeech",
    "metadata.csv with id|text or id|text|normalised text, recordings in wavs/",
    lambda path: _recognize_headless(path, with_speaker=False),
    lambda source: _read_headless_tables(source, ("id", "text", "normalised")),
)
PIPER = CorpusFormat(
    "piper",
    "metadata.csv with id|speaker|text or id|text, recordings in wavs/ or wav/",
    lambda path: _recognize_headless(path, with_speaker=True),
    lambda source: _read_headless_tables(source, ("id", "speaker", "text")),
)
COQUI = CorpusFormat(
    "coqui",
    "metadata.csv, or metadata_train.csv and metadata_eval.csv, with the heading audio_file|text|speaker_name",
    _recognize_coqui,
    _read_headed_tables,
)
MANIFEST = CorpusFormat(
    "manifest",
    "CSV, TSV or JSONL with id, audio, text, speaker, language, phonemes (audio or id, and text, are needed)",
    _recognize_manifest,
    _read_manifest,
)


def _find_common_voice_tables(folder: Path) -> list[tuple[Path, Split | None]]:
    """Returns the tables of the splits; validated.tsv repeats their clips, so it is read only where they are absent."""
    tables = [(folder / name, split) for name, split in _COMMON_VOICE_TABLES if (folder / name).is_file()]
    validated = folder / "validated.tsv"
    found = tables or ([(validated, None)] if validated.is_file() else [])
    return [(refuse_link_outside(folder, table), split) for table, split in found]


def _recognize_common_voice(path: Path) -> str:
    """Recognises the heading of the first table, beside a folder clips/."""
    tables = _find_common_voice_tables(path) if path.is_dir() else []
    if not tables or not (path / "clips").is_dir():
        return ""
    heading = read_first_lines(tables[0][0], 1)
    is_common_voice = bool(heading) and {"client_id", "path", "sentence"} <= set(heading[0].split("\t"))
    return f"{tables[0][0].name} has client_id, path and sentence, beside clips/" if is_common_voice else ""


def _read_common_voice(source: Source) -> Iterator[Row | Rejection]:
    for path, split in _find_common_voice_tables(source.path):
        yield from read_table(source, path, split)


COMMON_VOICE = CorpusFormat(
    "commonvoice",
    "train.tsv, dev.tsv, test.tsv or validated.tsv beside clips/",
    _recognize_common_voice,
    _read_common_voice,
)
