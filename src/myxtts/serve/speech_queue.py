"""The queue in front of the engine: one thread makes sentences, in turns for all requests, up to a limit of requests.

A request gets its next sentence only when it asks for it, so a client that leaves costs at most the sentence that is
being made, and a long text does not hold up a short one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakSet

from myxtts.errors import DataError, MyXTTSError
from myxtts.serve.metrics import Metrics
from myxtts.synthesis.options import SpeechOptions
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.synthesis.timing import SpokenPiece
from myxtts.text.normalize import split_sentences

_Outcome = TypeVar("_Outcome")
_USUAL_SENTENCE_S = 1.0
"""Guess of how long a sentence takes, until some were made."""


class QueueFullError(MyXTTSError):
    """More requests than the limit; `retry_after_s` is when to try again."""

    def __init__(self, num_requests: int, retry_after_s: int) -> None:
        super().__init__(f"{num_requests} requests are waiting.", next_step=f"Try again in {retry_after_s} s.")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """What a client asks for; without a voice, that of a model of one speaker; without a language, the voice's own."""

    text: str
    voice: str | None = None
    language: str | None = None
    options: SpeechOptions = field(default_factory=SpeechOptions)


class Speech:
    """The sentences of one request, each made when it is asked for."""

    def __init__(self, queue: SpeechQueue) -> None:
        self._queue = queue
        self._pieces: Iterator[SpokenPiece] = iter(())
        self._first: SpokenPiece | None = None

    async def begin(self, request: SpeechRequest) -> None:
        """Checks the request and makes its first sentence."""
        try:
            self._pieces = await self._queue.call(lambda: self._queue.plan(request))
            self._first = await self._queue.call(lambda: next(self._pieces))
        finally:
            if self._first is None:
                self._queue.leave(self)

    async def __aiter__(self) -> AsyncIterator[SpokenPiece]:
        try:
            piece, self._first = self._first, None
            while piece is not None:
                yield piece
                piece = await self._queue.call(lambda: next(self._pieces, None))
        finally:
            self._queue.leave(self)


class SpeechQueue:
    """Speech of one model for many clients. Used within one event loop."""

    def __init__(self, synthesizer: Synthesizer, metrics: Metrics, max_requests: int) -> None:
        self.synthesizer, self._metrics, self._max_requests = synthesizer, metrics, max_requests
        self._thread = ThreadPoolExecutor(1, "speech")
        # A request whose answer is not referenced any more removes itself.
        self._open: WeakSet[Speech] = WeakSet()
        self._sentence_s = _USUAL_SENTENCE_S

    def close(self) -> None:
        """Ends the thread, after the sentence that is being made."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def open(self, request: SpeechRequest) -> Speech:
        """Returns the sentences of a request; raises in this call what is wrong with it, or QueueFullError."""
        if len(self._open) >= self._max_requests:
            raise QueueFullError(len(self._open), max(1, round(len(self._open) * self._sentence_s)))
        speech = Speech(self)
        self._open.add(speech)
        self._metrics.set_waiting(len(self._open))
        await speech.begin(request)
        return speech

    def leave(self, speech: Speech) -> None:
        self._open.discard(speech)
        self._metrics.set_waiting(len(self._open))

    def plan(self, request: SpeechRequest) -> Iterator[SpokenPiece]:
        """Checks the request and begins it; runs in the thread."""
        loaded, voice = self.synthesizer.loaded, request.voice
        # Names only: a path would make files of this machine audible to clients.
        if voice is not None and voice not in loaded.list_voices():
            known = ", ".join(loaded.list_voices()[:50]) or "none: the model has one speaker"
            raise DataError(f"There is no voice {voice[:80]!r}.", next_step=f"The voices are {known}.")
        chosen = loaded.choose_voice(voice, request.language, request.text)
        pieces = list(loaded.plan(request.text, chosen.language))
        embedding = self.synthesizer.resolve(chosen.source)
        return self.synthesizer.speak([(piece, embedding) for piece in pieces], request.options)

    async def call(self, work: Callable[[], _Outcome]) -> _Outcome:
        """Runs `work` in the thread, and notes how long it took."""

        def timed() -> _Outcome:
            started = time.perf_counter()
            outcome = work()
            took_s = time.perf_counter() - started
            if isinstance(outcome, SpokenPiece):
                self._sentence_s += 0.2 * (took_s - self._sentence_s)
                self._metrics.add_sentence(outcome.wave.duration_s, took_s)
            return outcome

        return await asyncio.get_running_loop().run_in_executor(self._thread, timed)


def take_sentences(text: str, language: str) -> tuple[list[str], str]:
    """Splits text that comes in pieces into the sentences that are complete, and the rest, which may still go on."""
    *ready, rest = split_sentences(text, language) or [""]
    return ready, rest + " " * text[-1:].isspace()
