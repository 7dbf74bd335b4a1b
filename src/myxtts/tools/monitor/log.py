"""Log file of the monitor: one CSV row or JSON line per sample, appended unbuffered and in whole lines.

A log may be continued by a later watch and read while it is written. CSV has fixed columns (`Sample.to_row`); JSON
lines hold everything, processes included (`Sample.to_json`).
"""

from __future__ import annotations

import csv
import errno
import io
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from myxtts.errors import UsageError
from myxtts.storage.atomic import explain_storage_errors
from myxtts.storage.json_file import ends_with_newline
from myxtts.storage.regular_file import open_output, open_regular
from myxtts.tools.monitor.alerts import Alert
from myxtts.tools.monitor.sample import Row, Sample

_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_MAX_HEADER_BYTES = 1024 * 1024
"""Read of the first line of an existing CSV file, which may be any large file named by mistake."""


class SampleLog:
    """Appends samples to a new or existing file. A full disk ends the log, with `problem` set, but not the watch."""

    def __init__(self, path: Path) -> None:
        """Chooses the format by the suffix. Raises UsageError where it is neither CSV nor JSON lines."""
        suffix = path.suffix.lower()
        if suffix != ".csv" and suffix not in _JSON_SUFFIXES:
            raise UsageError(
                f"The log file {path} ends with {path.suffix or 'no suffix'}, which does not say how to write it.",
                next_step="Choose a name that ends with .csv, or with .jsonl for lines of JSON.",
            )
        self.path = path
        self._is_csv = suffix == ".csv"
        self._columns: list[str] | None = None
        self._file: IO[bytes] | None = None
        self.num_samples = 0
        self.problem = ""
        """The error that ended the log before the watch; empty while it is written."""

    def __enter__(self) -> Self:
        """Raises StorageError where the file cannot be opened."""
        with explain_storage_errors(self.path, "write"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: samples reach the file even if this process is killed.
            self._file = open_output(self.path, append=True, buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def write(self, sample: Sample, alerts: Sequence[Alert]) -> None:
        """Appends one sample with one write call. Raises UsageError where an existing CSV file has other columns."""
        if self._file is None:
            return
        text = self._format_row(sample, alerts) if self._is_csv else self._format_json(sample, alerts)
        try:
            # A watch that was killed may have left half a line: the first sample starts a new one.
            if self.num_samples == 0 and not ends_with_newline(self.path):
                text = "\n" + text
            self._write_whole(self._file, text.encode("utf-8", "backslashreplace"))
            self.num_samples += 1
        except OSError as error:
            self.problem = error.strerror or str(error)
            self._close()

    @staticmethod
    def _write_whole(file: IO[bytes], content: bytes) -> None:
        """Writes a line or nothing: a partial write on a full disk is truncated again and raised as ENOSPC."""
        start = os.fstat(file.fileno()).st_size
        num_written = file.write(content)
        if num_written != len(content):
            os.ftruncate(file.fileno(), start)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _format_json(self, sample: Sample, alerts: Sequence[Alert]) -> str:
        fields = {**sample.to_json(), "warnings": sorted({alert.kind for alert in alerts})}
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"

    def _format_row(self, sample: Sample, alerts: Sequence[Alert]) -> str:
        """Formats a CSV row, with the header before the first row of a new file. Missing numbers are empty cells."""
        row: Row = {**sample.to_row(), "warnings": " ".join(sorted({alert.kind for alert in alerts}))}
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if self._columns is None:
            self._columns = list(row)
            if not self._has_header(self._columns):
                writer.writerow(self._columns)
        writer.writerow(["" if row[name] is None else row[name] for name in self._columns])
        return text.getvalue()

    def _has_header(self, columns: list[str]) -> bool:
        """Whether the file starts with these columns. Raises UsageError where it has others, leaving it as it is."""
        with open_regular(self.path) as file:
            first_line = file.readline(_MAX_HEADER_BYTES).decode("utf-8", "replace")
        if not first_line.strip():
            return False
        if next(csv.reader([first_line])) != columns:
            raise UsageError(
                f"{self.path} holds other columns than this watch would write (another number of GPUs, or no log).",
                next_step="Choose another --log-file, or move the old one away.",
            )
        return True

    def _close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None
