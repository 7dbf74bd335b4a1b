"""The HTTP application: OpenAI's speech interface, a WebSocket for text that comes in pieces, health, metrics, a page.

Clients are authenticated by a key where keys are set. Bodies have a limit and a deadline. Voices are names; a recording
can be uploaded as a new voice only where that is switched on.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute

from myxtts.serve.guard import Guard, Handler, read_limited
from myxtts.serve.metrics import Metrics
from myxtts.serve.protocol import MAX_BODY_BYTES, RequestError, SpeechBody, format_delta, format_done, parse_json
from myxtts.serve.sound_stream import CONTENT_TYPES, SoundStream
from myxtts.serve.speech_queue import Speech, SpeechQueue
from myxtts.serve.text_socket import TextSocket

MAX_UPLOAD_BYTES = 10_000_000
_OWNER = "myxtts"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; media-src blob:; img-src data:",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True)
class ServerSettings:
    """What the server allows: keys of clients (none on loopback), the voice of requests without one, uploads."""

    host: str = "127.0.0.1"
    api_keys: frozenset[str] = frozenset()
    default_voice: str | None = None
    allows_uploads: bool = False


class SpeechApp:
    """Handlers of the routes. `queue` makes the speech."""

    def __init__(self, queue: SpeechQueue, metrics: Metrics, settings: ServerSettings) -> None:
        self._queue, self._metrics, self._settings = queue, metrics, settings
        self._guard = Guard(settings.host, settings.api_keys, _HEADERS)
        self._loaded = queue.synthesizer.loaded
        head, body = files("myxtts.synthesis") / "page_head.html", files("myxtts.serve") / "page.html"
        self._page = head.read_text(encoding="utf-8") + body.read_text(encoding="utf-8")

    def build(self) -> Starlette:
        """Returns the ASGI application."""
        routes = [
            # The page asks for the key.
            Route("/", self._counted(self._show_page, is_open=True)),
            Route("/health", self._counted(self._tell_health, is_open=True)),
            Route("/metrics", self._counted(self._tell_metrics)),
            Route("/v1/models", self._counted(self._list_models)),
            Route("/v1/audio/voices", self._counted(self._list_voices)),
            Route("/v1/audio/voices", self._counted(self._add_voice), methods=["POST"]),
            Route("/v1/audio/speech", self._counted(self._speak), methods=["POST"]),
            WebSocketRoute(
                "/v1/audio/stream", TextSocket(self._queue, self._settings.default_voice, self._guard.knows).serve
            ),
        ]
        return Starlette(routes=routes, middleware=self._guard.list_middleware(), lifespan=self._live)

    @asynccontextmanager
    async def _live(self, _app: Starlette) -> AsyncIterator[None]:
        yield
        self._queue.close()

    def _counted(self, handle: Handler, *, is_open: bool = False) -> Handler:
        """Adds the checks of every request and counting to a handler; `is_open` needs no key."""
        guarded = self._guard.wrap(handle, is_open=is_open)

        async def answer(request: Request) -> Response:
            response = await guarded(request)
            self._metrics.add_request(request.url.path, response.status_code)
            return response

        return answer

    async def _show_page(self, _request: Request) -> Response:
        return HTMLResponse(self._page)

    async def _tell_health(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _tell_metrics(self, _request: Request) -> Response:
        return PlainTextResponse(self._metrics.describe(), headers={"Cache-Control": "no-store"})

    async def _list_models(self, _request: Request) -> Response:
        model = {"id": self._loaded.name, "object": "model", "created": 0, "owned_by": _OWNER}
        return JSONResponse({"object": "list", "data": [model]})

    async def _list_voices(self, _request: Request) -> Response:
        voices = [{"id": name, "name": name} for name in self._loaded.list_voices()]
        defaults = dict(self._loaded.default_voices)
        return JSONResponse(
            {"voices": voices, "languages": list(self._loaded.spec.languages), "default_voices": defaults}
        )

    async def _speak(self, request: Request) -> Response:
        """Sends the sound as it is made: as the bytes of a file, or as events."""
        started = time.perf_counter()
        body = parse_json(await read_limited(request, MAX_BODY_BYTES), SpeechBody, "The body")
        pieces = await self._queue.open(body.to_request(self._settings.default_voice))
        self._metrics.add_first_sound(time.perf_counter() - started)
        is_sse = body.stream_format == "sse"
        content_type = "text/event-stream" if is_sse else CONTENT_TYPES[body.response_format]
        sound = _send_events(pieces, self._begin(body), len(body.input)) if is_sse else _send(pieces, self._begin(body))
        return StreamingResponse(sound, media_type=content_type, headers={"Cache-Control": "no-store"})

    def _begin(self, body: SpeechBody) -> SoundStream:
        return SoundStream(body.response_format, self._queue.synthesizer.rate, self._loaded.describe_mark())

    async def _add_voice(self, request: Request) -> Response:
        """Saves the recording in the body as a voice: ?name=anna&language=en&consent=own%20voice."""
        if not self._settings.allows_uploads:
            raise RequestError(
                "This server takes no new voices.", status=403, next_step="Start it with --allow-uploads."
            )
        name, consent = request.query_params.get("name", ""), request.query_params.get("consent", "")
        if not name or not consent:
            raise RequestError(
                "A voice needs a name and the consent of its owner.",
                field="name" if not name else "consent",
                next_step="Send ?name=NAME&consent=WORDS in the address and the recording as the body.",
            )
        content = await read_limited(request, MAX_UPLOAD_BYTES)
        language = request.query_params.get("language", "")
        await asyncio.to_thread(self._save_voice, name, content, language, consent)
        return JSONResponse({"id": name, "name": name}, status_code=201)

    def _save_voice(self, name: str, content: bytes, language: str, consent: str) -> None:
        with tempfile.TemporaryDirectory(prefix="myxtts-voice-") as folder:
            recording = Path(folder) / "recording"
            recording.write_bytes(content)
            self._queue.synthesizer.save_voice(name, recording, language=language, consent=consent)


async def _send(pieces: Speech, stream: SoundStream) -> AsyncIterator[bytes]:
    async for piece in pieces:
        if content := stream.add(piece.wave):
            yield content
    yield stream.finish()


async def _send_events(pieces: Speech, stream: SoundStream, num_characters: int) -> AsyncIterator[bytes]:
    async for content in _send(pieces, stream):
        yield format_delta(content)
    yield format_done(num_characters)


def make_app(queue: SpeechQueue, metrics: Metrics, settings: ServerSettings) -> Any:
    return SpeechApp(queue, metrics, settings).build()
