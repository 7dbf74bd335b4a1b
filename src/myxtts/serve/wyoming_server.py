"""The Wyoming protocol, by which Home Assistant asks for speech: whole texts, or texts that come in pieces.

The protocol has no keys, so the server listens on loopback unless it was asked to do otherwise.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.server import AsyncEventHandler
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped, SynthesizeVoice

from myxtts import __version__
from myxtts.errors import MyXTTSError, UsageError
from myxtts.features.wave_file import encode_samples
from myxtts.serve.http_server import LOOPBACK
from myxtts.serve.speech_queue import SpeechQueue, SpeechRequest, take_sentences
from myxtts.synthesis.sentences import MAX_TEXT_LENGTH

_SAMPLES_PER_CHUNK = 2048
_MAX_LINE_BYTES = 4 * MAX_TEXT_LENGTH + 20_000


def read_address(uri: str, *, allows_others: bool) -> tuple[str, int]:
    """Returns host and port of tcp://HOST:PORT; raises UsageError where others could reach it without being asked."""
    parts = urlsplit(uri)
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if parts.scheme != "tcp" or not host or port is None:
        raise UsageError(f"{uri!r} is no address.", next_step="Give --wyoming tcp://127.0.0.1:10200.")
    if host not in LOOPBACK and not allows_others:
        raise UsageError(
            f"The Wyoming protocol has no keys, so anyone who can reach {host} could use the server.",
            next_step="Give --wyoming tcp://127.0.0.1:10200, or --wyoming-open if your network is trusted.",
        )
    return host, port


async def start_wyoming(queue: SpeechQueue, default_voice: str | None, host: str, port: int) -> asyncio.Server:
    """Starts to listen; the server ends when it is closed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _Handler(queue, default_voice, reader, writer).run()
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            # The client has left, or does not speak the protocol.
            writer.close()

    return await asyncio.start_server(serve, host, port, limit=_MAX_LINE_BYTES)


class _Handler(AsyncEventHandler):
    """One connection."""

    def __init__(
        self, queue: SpeechQueue, default_voice: str | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        super().__init__(reader, writer)
        self._queue, self._default_voice = queue, default_voice
        self._voice: SynthesizeVoice | None = None
        self._waiting: str | None = None
        """Text that has come in pieces and is not spoken yet; None outside of such a text."""
        self._has_begun = False

    async def handle_event(self, event: Event) -> bool:
        try:
            await self._handle(event)
        except MyXTTSError as error:
            self._waiting = None
            await self.write_event(Error(text=str(error), code=error.kind).event())
        return True

    async def _handle(self, event: Event) -> None:
        if Describe.is_type(event.type):
            await self.write_event(self._describe().event())
        elif SynthesizeStart.is_type(event.type):
            self._voice, self._waiting, self._has_begun = SynthesizeStart.from_event(event).voice, "", False
        elif SynthesizeChunk.is_type(event.type) and self._waiting is not None:
            self._waiting += SynthesizeChunk.from_event(event).text
            await self._say_complete_sentences()
        elif SynthesizeStop.is_type(event.type) and self._waiting is not None:
            if self._waiting.strip():
                await self._say(self._waiting)
            self._waiting = None
            await self._end()
            await self.write_event(SynthesizeStopped().event())
        # Clients that stream send the whole text too, for servers that cannot; it is spoken already.
        elif Synthesize.is_type(event.type) and self._waiting is None:
            asked = Synthesize.from_event(event)
            self._voice, self._has_begun = asked.voice, False
            await self._say(asked.text)
            await self._end()

    def _describe(self) -> Info:
        """Who speaks here: one program with a voice of each name."""
        loaded = self._queue.synthesizer.loaded
        attribution = Attribution(name="MyXTTS", url="")
        voices = [
            TtsVoice(
                name=name,
                description=name,
                attribution=attribution,
                installed=True,
                version=None,
                languages=list(loaded.spec.languages),
            )
            for name in loaded.list_voices() or [loaded.name]
        ]
        program = TtsProgram(
            name="myxtts",
            description="MyXTTS",
            attribution=attribution,
            installed=True,
            version=__version__,
            voices=voices,
            supports_synthesize_streaming=True,
        )
        return Info(tts=[program])

    async def _say_complete_sentences(self) -> None:
        assert self._waiting is not None, "there is no text in pieces"
        ready, self._waiting = take_sentences(self._waiting, self._queue.synthesizer.loaded.spec.languages[0])
        for sentence in ready:
            await self._say(sentence)

    async def _say(self, text: str) -> None:
        voice = self._voice or SynthesizeVoice()
        known = self._queue.synthesizer.loaded.list_voices()
        named = voice.speaker or voice.name
        # Home Assistant sends the name of the model where a model has no named voices.
        request = SpeechRequest(text, named if known and named else self._default_voice, voice.language)
        rate = self._queue.synthesizer.rate
        async for piece in await self._queue.open(request):
            if not self._has_begun:
                self._has_begun = True
                await self.write_event(AudioStart(rate=rate, width=2, channels=1).event())
            sound = encode_samples(piece.wave)
            for start in range(0, len(sound), 2 * _SAMPLES_PER_CHUNK):
                part = sound[start : start + 2 * _SAMPLES_PER_CHUNK]
                await self.write_event(AudioChunk(rate=rate, width=2, channels=1, audio=part).event())

    async def _end(self) -> None:
        if self._has_begun:
            await self.write_event(AudioStop().event())
