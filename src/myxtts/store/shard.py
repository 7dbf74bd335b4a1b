"""A shard: the utterances of one segment. Computes their features and writes them, here or on another host.

`ShardMaker` is what computes, wherever it runs. `LocalShards` makes shards one after the other with threads of this
process; `store.ray_shards` gives them to the hosts of a Ray cluster. Both commit segments in the order of the corpus,
so that a run that was killed leaves its first part, and both write the same files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.features.extract import AudioFeatures, FeatureExtractor
from myxtts.store.index import PartEntry, Row
from myxtts.store.layout import Part, StoreSettings
from myxtts.store.segment import SegmentWriter
from myxtts.text.frontend import FrontEnd
from myxtts.types import Utterance

_WINDOW_UTTERANCES = 64
"""Recordings in flight: enough for any number of threads, and bounded in memory."""


@dataclass(frozen=True, slots=True)
class Task:
    """One utterance to write: `kept` parts are referred to, the others computed.

    `row` is None for a new one, else its row; `source_crc` is then the checksum of its recording as it was stored.
    """

    utterance: Utterance
    line: int
    text_crc: int
    source_frames: int
    kept: dict[Part, PartEntry]
    row: int | None
    source_crc: int = 0


@dataclass(frozen=True, slots=True)
class Made:
    """An utterance that was written, and which of its features were computed for it."""

    has_spectrogram: bool
    has_tokens: bool


Outcome = Made | AudioProblem


class Shards(Protocol):
    """A way to make shards. `segments` are those that were written, in order."""

    segments: list[int]

    def run(self, shards: Iterable[Sequence[Task]], folder: Path, first: int) -> Generator[tuple[Task, Outcome]]:
        """Writes the shards as segments from number `first` on, and gives the outcome of every task, in order.

        Closing the generator, or an error, leaves the segments committed so far.
        """


class ShardMaker:
    """Computes the features of utterances, with settings and limits of a store, and adds them to a segment."""

    def __init__(self, settings: StoreSettings, limits: AudioLimits, frontend: FrontEnd) -> None:
        self._settings, self._frontend = settings, frontend
        self._mel_dtype = np.dtype(settings.mel_dtype).newbyteorder("<")
        self._extractor = FeatureExtractor(settings.mel, settings.audio, limits, keep_pcm=settings.has_pcm)

    def write(self, tasks: Sequence[Task], segment: SegmentWriter, pool: ThreadPoolExecutor) -> Iterator[Outcome]:
        """Yields after each utterance, for progress and interrupts. Tokens are made for all tasks at once."""
        tokens = self._make_tokens(tasks)
        for task, ids, audio in zip(tasks, tokens, self._extract(tasks, pool), strict=True):
            yield self._write_utterance(segment, task, ids, audio)

    def _make_tokens(self, tasks: Sequence[Task]) -> list[NDArray[np.int32] | None]:
        """Returns the token ids of each task from one batched front-end call; None where stored ones are kept."""
        wanted = [task.utterance for task in tasks if "tokens" not in task.kept]
        encodings = iter(
            self._frontend.encode_batch(
                [utterance.text for utterance in wanted],
                [utterance.language for utterance in wanted],
                [utterance.phonemes for utterance in wanted],
            )
        )
        return [None if "tokens" in task.kept else next(encodings).ids for task in tasks]

    def _extract(
        self, tasks: Sequence[Task], pool: ThreadPoolExecutor
    ) -> Iterator[AudioFeatures | AudioProblem | None]:
        """Yields audio features in task order, computed up to a window ahead; None where no audio part is needed."""
        window: deque[Future[AudioFeatures | AudioProblem] | None] = deque()
        for task in tasks:
            window.append(pool.submit(self._extract_one, task.utterance) if self._needs_audio(task) else None)
            if len(window) >= _WINDOW_UTTERANCES:
                done = window.popleft()
                yield done.result() if done else None
        while window:
            done = window.popleft()
            yield done.result() if done else None

    def _needs_audio(self, task: Task) -> bool:
        return any(part not in task.kept for part in self._settings.parts if part != "tokens")

    def _extract_one(self, utterance: Utterance) -> AudioFeatures | AudioProblem:
        """Runs in the pool; returns the problem as a value, so that it stays with its utterance."""
        try:
            return self._extractor.extract(utterance)
        except AudioProblem as problem:
            return problem

    def _write_utterance(
        self,
        segment: SegmentWriter,
        task: Task,
        tokens: NDArray[np.int32] | None,
        audio: AudioFeatures | AudioProblem | None,
    ) -> Outcome:
        """Adds an utterance to the segment, unless it cannot be used.

        `tokens` and `audio` are None for what is kept. Stored durations are dropped if the recording has changed.
        """
        problem = audio if isinstance(audio, AudioProblem) else _compare_lengths(task, tokens, audio)
        if problem is not None:
            return problem
        values: dict[Part, NDArray[np.generic]] = {}
        source_crc = task.source_crc
        if isinstance(audio, AudioFeatures):
            values["mel"] = audio.mel.astype(self._mel_dtype, copy=False)
            if audio.pcm is not None:
                values["pcm"] = audio.pcm
            source_crc = audio.checksum
        if tokens is not None:
            values["tokens"] = tokens
        kept = {part: entry for part, entry in task.kept.items() if part not in values}
        if source_crc != task.source_crc:
            # A corpus that was prepared from headers has no checksums: the change is known only after decoding.
            kept.pop("durations", None)
        segment.add(_make_row(task, source_crc, kept), values)
        return Made("mel" in values, "tokens" in values)


class LocalShards:
    """Makes shards with threads of this process, one shard after the other."""

    def __init__(self, maker: ShardMaker, num_threads: int) -> None:
        self._maker, self._num_threads = maker, num_threads
        self.segments: list[int] = []

    def run(self, shards: Iterable[Sequence[Task]], folder: Path, first: int) -> Generator[tuple[Task, Outcome]]:
        pool = ThreadPoolExecutor(self._num_threads, "features")
        try:
            for tasks in shards:
                with SegmentWriter(folder, first + len(self.segments)) as segment:
                    yield from zip(tasks, self._maker.write(tasks, segment, pool), strict=True)
                    if len(segment):
                        segment.commit()
                        self.segments.append(segment.number)
        finally:
            # After an error or an interrupt, submitted but unstarted extractions are cancelled.
            pool.shutdown(wait=True, cancel_futures=True)


def _compare_lengths(task: Task, tokens: NDArray[np.int32] | None, audio: AudioFeatures | None) -> AudioProblem | None:
    """Rejects utterances with more tokens than frames (after trimming): no monotonic alignment exists for them."""
    num_frames = len(audio.mel) if audio is not None else task.kept["mel"].length
    num_tokens = len(tokens) if tokens is not None else task.kept["tokens"].length
    if num_tokens <= num_frames:
        return None
    return AudioProblem(Reason.TOO_MANY_TOKENS, f"{num_tokens} tokens for {num_frames} frames of sound")


def _make_row(task: Task, source_crc: int, kept: dict[Part, PartEntry]) -> Row:
    utterance = task.utterance
    return Row(
        id=utterance.id,
        speaker=utterance.speaker,
        language=utterance.language,
        split=utterance.split,
        source_crc=source_crc,
        text_crc=task.text_crc,
        source_frames=task.source_frames,
        parts=kept,
    )
