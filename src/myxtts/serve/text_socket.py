"""A WebSocket that takes text in pieces, as a language model writes it, and gives sound sentence by sentence.

The client sends JSON: first {"voice": …, "language": …, "speed": …, "response_format": …, "api_key": …}, all of them
optional, then {"text": …} as often as it likes, and {"end": true}. The server sends {"type": "sentence", "text": …} and
the sound of that sentence as bytes, at the end {"type": "done"}, or {"type": "error", "error": …}. `response_format` is
pcm (24 kHz, 16 bits, mono) or wav; the bytes of all sentences together are one sound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.websockets import WebSocket, WebSocketDisconnect

from myxtts.errors import MyXTTSError
from myxtts.serve.protocol import RequestError, describe_error, parse_json
from myxtts.serve.sound_stream import SoundStream
from myxtts.serve.speech_queue import SpeechQueue, SpeechRequest, take_sentences
from myxtts.synthesis.options import SpeechOptions
from myxtts.synthesis.sentences import MAX_TEXT_LENGTH

_IDLE_S = 60.0
"""A client that sends nothing for so long is left."""
_POLICY_VIOLATION = 1008


class _Start(BaseModel):
    model_config = ConfigDict(extra="forbid")
    voice: str | None = None
    language: str | None = None
    speed: float = 1.0
    seed: int = 0
    response_format: Literal["pcm", "wav"] = "pcm"
    api_key: str = ""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: Annotated[str, Field(max_length=MAX_TEXT_LENGTH)] = ""
    end: bool = False


class TextSocket:
    """Serves one WebSocket after another; `knows` says whether a key is valid."""

    def __init__(self, queue: SpeechQueue, default_voice: str | None, knows: Callable[[str], bool]) -> None:
        self._queue, self._default_voice, self._knows = queue, default_voice, knows

    async def serve(self, socket: WebSocket) -> None:
        await socket.accept()
        try:
            start = await _receive(socket, _Start)
            if not self._knows(start.api_key):
                raise RequestError("The key is missing or wrong.", status=401, field="api_key")
            await self._converse(socket, start)
            await socket.send_json({"type": "done"})
            await socket.close()
        except WebSocketDisconnect:
            return
        except MyXTTSError as error:
            _, body, _ = describe_error(error)
            await socket.send_json({"type": "error", **body})
            await socket.close(_POLICY_VIOLATION)

    async def _converse(self, socket: WebSocket, start: _Start) -> None:
        """Speaks every sentence as soon as it is complete, and the rest at the end."""
        synthesizer = self._queue.synthesizer
        stream = SoundStream(start.response_format, synthesizer.rate, synthesizer.loaded.describe_mark())
        language = start.language or synthesizer.loaded.spec.languages[0]
        waiting, is_over = "", False
        while not is_over:
            part = await _receive(socket, _Part)
            waiting, is_over = waiting + part.text, part.end
            if len(waiting) > MAX_TEXT_LENGTH:
                raise RequestError(f"A sentence has more than {MAX_TEXT_LENGTH:,} characters.", field="text")
            ready, waiting = take_sentences(waiting, language)
            for sentence in [*ready, waiting] if is_over and waiting.strip() else ready:
                await self._say(socket, sentence, start, stream)
        await socket.send_bytes(stream.finish())

    async def _say(self, socket: WebSocket, sentence: str, start: _Start, stream: SoundStream) -> None:
        options = SpeechOptions(speed=start.speed, seed=start.seed)
        request = SpeechRequest(sentence, start.voice or self._default_voice, start.language, options)
        await socket.send_json({"type": "sentence", "text": sentence})
        async for piece in await self._queue.open(request):
            await socket.send_bytes(stream.add(piece.wave))


async def _receive(socket: WebSocket, model: Any) -> Any:
    """Receives one message; raises RequestError for one that is no such object, or that does not come."""
    try:
        return parse_json(await asyncio.wait_for(socket.receive_text(), _IDLE_S), model, "The message")
    except TimeoutError as error:
        raise RequestError(f"Nothing was sent for {_IDLE_S:g} s.", status=408) from error
    except KeyError as error:
        raise RequestError("A message holds bytes; send JSON as text.") from error
