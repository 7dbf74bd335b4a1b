"""Common Voice: a clips/ folder and tables train.tsv, dev.tsv, test.tsv, or validated.tsv alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from myxtts.corpus.formats.base import CorpusFormat, Row, Source, refuse_link_outside
from myxtts.corpus.formats.tables import read_headed
from myxtts.corpus.rejections import Rejection
from myxtts.corpus.transcripts import read_first_lines
from myxtts.types import Split

# validated.tsv repeats the clips of the other three, so it is read only where they are absent.
_SPLIT_TABLES: tuple[tuple[str, Split | None], ...] = (("train.tsv", "train"), ("dev.tsv", "val"), ("test.tsv", "test"))


def _find_tables(folder: Path) -> list[tuple[Path, Split | None]]:
    tables = [(folder / name, split) for name, split in _SPLIT_TABLES if (folder / name).is_file()]
    validated = folder / "validated.tsv"
    found = tables or ([(validated, None)] if validated.is_file() else [])
    return [(refuse_link_outside(folder, table), split) for table, split in found]


def _recognize(path: Path) -> str:
    tables = _find_tables(path) if path.is_dir() else []
    if not tables or not (path / "clips").is_dir():
        return ""
    heading = read_first_lines(tables[0][0], 1)
    is_common_voice = bool(heading) and {"client_id", "path", "sentence"} <= set(heading[0].split("\t"))
    return f"{tables[0][0].name} has client_id, path and sentence, beside clips/" if is_common_voice else ""


def _read(source: Source) -> Iterator[Row | Rejection]:
    for path, split in _find_tables(source.path):
        yield from read_headed(source, path, split)


COMMON_VOICE = CorpusFormat(
    "commonvoice", "train.tsv, dev.tsv, test.tsv or validated.tsv beside clips/", _recognize, _read
)
