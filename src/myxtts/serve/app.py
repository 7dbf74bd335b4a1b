"""The HTTP application: OpenAI's speech interface, a WebSocket for text that comes in pieces, health, metrics, a page.

Clients are authenticated by a key where keys are set. Bodies have a limit and a deadline. Voices are names; a recording
can be uploaded as a new voice only where that is switched on.
"""

from __future__ import annotations

import asyncio
import hmac
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute

from myxtts.errors import MyXTTSError
from myxtts.serve.http_server import LOOPBACK
from myxtts.serve.metrics import Metrics
from myxtts.serve.protocol import (
    MAX_BODY_BYTES,
    RequestError,
    SpeechBody,
    describe_error,
    format_delta,
    format_done,
    parse_json,
)
from myxtts.serve.sound_stream import CONTENT_TYPES, SoundStream
from myxtts.serve.speech_queue import Speech, SpeechQueue
from myxtts.serve.text_socket import TextSocket

BODY_DEADLINE_S = 20.0
MAX_UPLOAD_BYTES = 10_000_000
_OWNER = "myxtts"
_OPEN_PATHS = ("/", "/health")
"""Answered without a key: the page asks for it."""
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
        self._loaded = queue.synthesizer.loaded
        self._page = files("myxtts.serve").joinpath("page.html").read_text(encoding="utf-8")

    def build(self) -> Starlette:
        """Returns the ASGI application."""
        routes = [
            Route("/", self._guarded(self._show_page)),
            Route("/health", self._guarded(self._tell_health)),
            Route("/metrics", self._guarded(self._tell_metrics)),
            Route("/v1/models", self._guarded(self._list_models)),
            Route("/v1/audio/voices", self._guarded(self._list_voices)),
            Route("/v1/audio/voices", self._guarded(self._add_voice), methods=["POST"]),
            Route("/v1/audio/speech", self._guarded(self._speak), methods=["POST"]),
            WebSocketRoute("/v1/audio/stream", TextSocket(self._queue, self._settings.default_voice, self.knows).serve),
        ]
        middleware = []
        if self._settings.host in LOOPBACK:
            # A page of another site could otherwise reach this server under a name of its own (DNS rebinding).
            middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=["localhost", "127.0.0.1", "[::1]"])]
        return Starlette(routes=routes, middleware=middleware, lifespan=self._live)

    def knows(self, key: str) -> bool:
        """Whether a client may use the server; all keys are compared, so that time tells nothing."""
        keys = self._settings.api_keys
        return not keys or sum(hmac.compare_digest(key.encode(), known.encode()) for known in keys) > 0

    @asynccontextmanager
    async def _live(self, _app: Starlette) -> AsyncIterator[None]:
        yield
        self._queue.close()

    def _guarded(self, handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Adds the check of the key, error answers and counting to a handler."""

        async def answer(request: Request) -> Response:
            path = request.url.path
            try:
                key = request.headers.get("authorization", "").removeprefix("Bearer ")
                if path not in _OPEN_PATHS and not self.knows(key):
                    raise RequestError("The key is missing or wrong.", status=401, next_step="Send a Bearer token.")
                response = await handle(request)
            except MyXTTSError as error:
                status, body, headers = describe_error(error)
                response = JSONResponse(body, status, headers)
            response.headers.update(_HEADERS)
            self._metrics.add_request(path, response.status_code)
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
        return JSONResponse({"voices": voices, "languages": list(self._loaded.spec.languages)})

    async def _speak(self, request: Request) -> Response:
        """Sends the sound as it is made: as the bytes of a file, or as events."""
        started = time.perf_counter()
        body = parse_json(await _read_limited(request, MAX_BODY_BYTES), SpeechBody, "The body")
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
        content = await _read_limited(request, MAX_UPLOAD_BYTES)
        language = request.query_params.get("language", "")
        await asyncio.to_thread(self._save_voice, name, content, language, consent)
        return JSONResponse({"id": name, "name": name}, status_code=201)

    def _save_voice(self, name: str, content: bytes, language: str, consent: str) -> None:
        with tempfile.TemporaryDirectory(prefix="myxtts-voice-") as folder:
            recording = Path(folder) / "recording"
            recording.write_bytes(content)
            self._queue.synthesizer.save_voice(name, recording, language=language, consent=consent)


async def _read_limited(request: Request, max_bytes: int) -> bytes:
    """Reads the body; raises RequestError where it is too large or too slow."""
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_DEADLINE_S):
            async for chunk in request.stream():
                content += chunk
                if len(content) > max_bytes:
                    raise RequestError(f"The body has more than {max_bytes:,} bytes.", status=413)
    except TimeoutError as error:
        raise RequestError(f"The body did not arrive within {BODY_DEADLINE_S:g} s.", status=408) from error
    return bytes(content)


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
