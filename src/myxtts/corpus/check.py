"""Validates each utterance of a corpus: path, recording, text, then duplicates and leaks between splits.

Recordings are decoded by several threads; what depends on the order (duplicates, the report) is done in order, so the
same corpus gives the same result with any number of threads. `prepare` writes the results.

Duplicates are found in constant memory by a SQLite table of seen ids, texts and audio checksums. Its keys are 16-byte
BLAKE2b hashes of a kind and a value, so that a long text takes no more space than an id.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from myxtts.config.data import DataConfig
from myxtts.config.languages import canonical_language
from myxtts.corpus.audio import AudioFacts, AudioLimits, Levels, inspect_audio
from myxtts.corpus.formats.base import Row
from myxtts.corpus.rejections import AudioProblem, Reason, Rejection
from myxtts.corpus.transcripts import CorpusRoot
from myxtts.errors import DataError
from myxtts.text.frontend import MAX_TEXT_LENGTH, FrontEnd
from myxtts.text.script import wrong_script
from myxtts.types import Split, Utterance

_CHUNK_ROWS = 256
"""Rows whose texts are encoded together; up to three chunks are in memory."""
_MAX_ID_LENGTH = 200
"""Characters."""
_NUM_SYMBOLS_SHOWN = 8
"""Unknown symbols that a rejection names."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row whose recording passed, with the resolved path and the properties of the recording."""

    row: Row
    real_path: str
    facts: AudioFacts


_Checked = tuple[Candidate | Rejection, str]
"""The result for one recording and its real path, which is '' where the row names no file of the corpus."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """An utterance that passed every check; the split groups utterances by `normalized_text`.

    `tokens` are the ids of the front end; `levels` is None where only the header was read.
    """

    utterance: Utterance
    relative_audio: str
    normalized_text: str
    tokens: NDArray[np.int32]
    levels: Levels | None


def reject(row: Row, reason: Reason, detail: str, what_to_do: str = "") -> Rejection:
    """Makes the rejection of a row, with its line in the transcript."""
    return Rejection(row.id, row.file, row.line, reason, detail, row.audio, what_to_do)


def refuse_half_characters(row: Row) -> Row | Rejection:
    """Returns the row, or its rejection where it holds a lone surrogate: JSON can name one, UTF-8 cannot encode it."""
    try:
        "".join((row.id, row.audio, row.text, row.speaker, row.language, row.phonemes or "", row.file)).encode()
    except UnicodeEncodeError as error:
        broken = error.object[error.start]
        detail = f"the line holds {broken!a}, half of a character (a lone surrogate)"
        return reject(row, Reason.BAD_LINE, detail)
    return row


@dataclass(frozen=True, slots=True)
class Sighting:
    """The transcript line on which a key was seen first; `split` is None for paths of recordings."""

    file: str
    line: int
    id: str
    split: Split | None

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.id})"


class SeenTable:
    """Keys of accepted utterances, and sizes of the groups that must lie in one split.

    A context manager; the database file is removed at its end.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.unlink(missing_ok=True)
        self._database = sqlite3.connect(path)
        # A scratch file, worthless after a crash: no journal and no syncing.
        self._database.executescript(
            """PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -32768;
            CREATE TABLE seen (key BLOB PRIMARY KEY, file TEXT, line INTEGER, id TEXT, split TEXT) WITHOUT ROWID;
            CREATE TABLE groups (rank BLOB PRIMARY KEY, num_utterances INTEGER) WITHOUT ROWID;"""
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()
        self._path.unlink(missing_ok=True)

    def find_any(self, keys: Mapping[str, str]) -> dict[str, Sighting]:
        """Returns the sightings of those keys that were seen before, by kind, in the order of `keys`."""
        kinds = {_digest(kind, value): kind for kind, value in keys.items()}
        query = f"SELECT key, file, line, id, split FROM seen WHERE key IN ({', '.join('?' * len(kinds))})"  # noqa: S608
        with closing(self._database.execute(query, tuple(kinds))) as rows:
            found = {kinds[key]: Sighting(*place) for key, *place in rows}
        return {kind: found[kind] for kind in keys if kind in found}

    def record(self, keys: Mapping[str, str], sighting: Sighting) -> None:
        """Stores the sighting of keys; the first of each key is kept."""
        place = (sighting.file, sighting.line, sighting.id, sighting.split)
        rows = [(_digest(kind, value), *place) for kind, value in keys.items()]
        self._database.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?, ?, ?, ?)", rows)

    def count_in_group(self, rank: bytes) -> None:
        """Adds one utterance to the group of this rank, a hash of what its utterances have in common."""
        statement = "INSERT INTO groups VALUES (?, 1) ON CONFLICT DO UPDATE SET num_utterances = num_utterances + 1"
        self._database.execute(statement, (rank,))

    @property
    def num_groups(self) -> int:
        return int(self._database.execute("SELECT count(*) FROM groups").fetchone()[0])

    def find_validation_limit(self, num_wanted: float) -> bytes | None:
        """Returns the highest rank of the validation split: groups in order of rank until there are enough utterances.

        The order is random, since ranks are hashes. The last group always stays with training.
        """
        limit, total = None, 0
        remaining = self.num_groups
        with closing(self._database.execute("SELECT rank, num_utterances FROM groups ORDER BY rank")) as rows:
            for rank, num_utterances in rows:
                remaining -= 1
                if total >= num_wanted or remaining == 0:
                    break
                limit, total = bytes(rank), total + num_utterances
        return limit


def _digest(kind: str, value: str) -> bytes:
    # Names of files may hold bytes that are not UTF-8.
    return hashlib.blake2b(f"{kind}\0{value}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Checker:
    """Runs all checks on the rows of one root. With `headers_only` recordings are not decoded.

    `seen` is shared by the checkers of all roots, so that duplicates between them are found.
    """

    def __init__(
        self, root: CorpusRoot, data: DataConfig, frontend: FrontEnd, seen: SeenTable, *, headers_only: bool = False
    ) -> None:
        self._root = root
        self._limits = AudioLimits.from_config(data)
        self._frames_per_second = data.sample_rate / data.hop_length
        self._frontend = frontend
        self._seen = seen
        self._headers_only = headers_only

    def check(self, rows: Iterable[Row | Rejection], num_threads: int) -> Iterator[Accepted | Rejection]:
        """Yields the result for each row, in the order of the rows."""
        rows = map(_name_language, rows)
        with ThreadPoolExecutor(num_threads, "check") as pool:
            # Two chunks ahead keep the threads busy while this one is finished; memory stays at a few hundred rows.
            ahead: deque[list[Future[_Checked]]] = deque()
            try:
                while chunk := list(islice(rows, _CHUNK_ROWS)):
                    ahead.append([pool.submit(self._check_recording, row) for row in chunk])
                    if len(ahead) > 2:
                        yield from self._finish(ahead.popleft())
                while ahead:
                    yield from self._finish(ahead.popleft())
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _check_recording(self, row: Row | Rejection) -> _Checked:
        """Checks the id, the path and the recording of a row; runs in a worker thread."""
        if isinstance(row, Rejection):
            return row, ""
        if not row.id.isprintable() or len(row.id) > _MAX_ID_LENGTH:
            detail = f"the id {row.id[:20]!r}… is not up to {_MAX_ID_LENGTH} printable characters"
            return reject(row, Reason.BAD_LINE, detail), ""
        real_path = self._root.locate(row.audio)
        if real_path is None:
            return reject(row, Reason.OUTSIDE_ROOT, f"{row.audio!r} leads out of {self._root.folder}"), ""
        try:
            facts = inspect_audio(real_path, self._limits, headers_only=self._headers_only)
        except AudioProblem as problem:
            is_missing = problem.reason == Reason.MISSING_FILE
            detail = f"there is no {row.audio!r} in {self._root.folder}" if is_missing else problem.detail
            return reject(row, problem.reason, detail), real_path
        return Candidate(row, real_path, facts), real_path

    def _finish(self, futures: list[Future[_Checked]]) -> Iterator[Accepted | Rejection]:
        """Checks the texts of a chunk in one batch, since the front end is faster with many, then duplicates in order.

        Paths of rejected recordings are recorded too: `prepare` reports files that no transcript line names.
        """
        checked = [future.result() for future in futures]
        texts = iter(self._check_texts([result for result, _ in checked if isinstance(result, Candidate)]))
        for result, real_path in checked:
            if real_path:
                row = result.row if isinstance(result, Candidate) else result
                self._seen.record({"path": real_path}, Sighting(row.file, row.line, row.id, None))
            if isinstance(result, Rejection):
                yield result
                continue
            text = next(texts)
            yield text if isinstance(text, Rejection) else self._check_unseen(result, *text)

    def _check_texts(self, candidates: list[Candidate]) -> list[tuple[str, NDArray[np.int32]] | Rejection]:
        """Returns the normalised text and the tokens of each candidate, or the rejection of its text."""
        texts: list[str | Rejection] = [self._check_words(candidate.row) for candidate in candidates]
        speakable = [(index, text) for index, text in enumerate(texts) if isinstance(text, str)]
        rows = [candidates[index].row for index, _ in speakable]
        encodings = self._frontend.encode_normalized(
            [text for _, text in speakable], [row.language for row in rows], [row.phonemes for row in rows]
        )
        checked: dict[int, tuple[str, NDArray[np.int32]] | Rejection] = {
            index: text for index, text in enumerate(texts) if isinstance(text, Rejection)
        }
        for (index, text), encoding in zip(speakable, encodings, strict=True):
            problem = self._check_tokens(candidates[index], len(encoding.ids), encoding.unknown)
            checked[index] = problem or (text, encoding.ids)
        return [checked[index] for index in range(len(texts))]

    def _check_words(self, row: Row) -> str | Rejection:
        """Returns the normalised text of a row, or its rejection: too long, unknown language, no letter or figure."""
        broken = next((char for char in row.text if "\ud800" <= char <= "\udfff"), None)
        if broken is not None:
            return reject(row, Reason.BAD_LINE, f"the text has {broken!a}, half of a character: it is not UTF-8")
        if max(len(row.text), len(row.phonemes or "")) > MAX_TEXT_LENGTH:
            return reject(row, Reason.BAD_LINE, f"the text is longer than {MAX_TEXT_LENGTH:,} characters")
        if reason := self._frontend.explain_unsupported(row.language):
            return reject(row, Reason.UNKNOWN_LANGUAGE, reason)
        if not row.phonemes and (wrong := wrong_script(row.text, row.language)):
            return reject(row, Reason.WRONG_SCRIPT, wrong.problem, wrong.next_step)
        text = self._frontend.normalize(row.text, row.language)
        if not row.phonemes and not any(symbol.isalnum() for symbol in text):
            return reject(row, Reason.EMPTY_TEXT, f"nothing to say is left of {row.text[:60]!r}")
        return text

    def _check_tokens(self, candidate: Candidate, num_tokens: int, unknown: tuple[str, ...]) -> Rejection | None:
        """Rejects symbols that the front end lacks, and texts with more tokens than the recording has frames.

        Monotonic alignment search needs at least one frame for every token.
        """
        if unknown:
            symbols = sorted(set(unknown))
            shown = " ".join(f"{symbol} (U+{ord(symbol[0]):04X})" for symbol in symbols[:_NUM_SYMBOLS_SHOWN])
            more = f" and {len(symbols) - _NUM_SYMBOLS_SHOWN} more" if len(symbols) > _NUM_SYMBOLS_SHOWN else ""
            return reject(candidate.row, Reason.UNKNOWN_SYMBOLS, f"the front end does not know {shown}{more}")
        facts = candidate.facts
        num_frames = int(facts.num_samples / facts.sample_rate_hz * self._frames_per_second)
        if num_tokens > num_frames:
            detail = f"{num_tokens} tokens for {num_frames} frames of sound"
            return reject(candidate.row, Reason.TOO_MANY_TOKENS, detail)
        return None

    def _check_unseen(self, candidate: Candidate, text: str, tokens: NDArray[np.int32]) -> Accepted | Rejection:
        """Rejects duplicates and leaks between splits; records the keys of an utterance that passes.

        The same sentence by the same speaker may occur twice within a split, but not in two.
        """
        row, facts = candidate.row, candidate.facts
        split = row.split or "train"
        # Without a checksum (only the header was read) a recording is identified by its path.
        sound = f"{facts.checksum:08x} {facts.num_bytes}" if facts.checksum else candidate.real_path
        keys = {"id": row.id, "audio": sound, "sentence": f"{row.speaker}\0{text}"}
        for kind, first in self._seen.find_any(keys).items():
            if split != first.split:
                what = {"id": "id", "audio": "recording", "sentence": "sentence by the same speaker"}[kind]
                return reject(row, Reason.LEAK, f"{split} has the same {what} as {first.split} at {first}")
            if kind == "id":
                return reject(row, Reason.DUPLICATE_ID, f"lines {first.line} and {row.line}: first seen at {first}")
            if kind == "audio":
                return reject(row, Reason.DUPLICATE_AUDIO, f"the same recording as {first}")
        self._seen.record(keys, Sighting(row.file, row.line, row.id, split))
        written = (row.text, row.speaker, row.language, row.phonemes, split)
        measured = (facts.num_samples, facts.sample_rate_hz, facts.num_channels, facts.checksum)
        utterance = Utterance(row.id, candidate.real_path, *written, *measured)
        return Accepted(utterance, self._root.relative(candidate.real_path), text, tokens, facts.levels)


def _name_language(row: Row | Rejection) -> Row | Rejection:
    """Gives a row the canonical code of its language: en and EN are one. What is unknown is rejected with its text."""
    try:
        return replace(row, language=canonical_language(row.language)) if isinstance(row, Row) else row
    except DataError:
        return row
