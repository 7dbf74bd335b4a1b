"""The HTTP application of the live page: the page, its events, samples, "say this sentence now", "stop and save".

It reads the files of the run and writes none of them. Where keys are set, a reader logs in once, and a cookie that
scripts cannot read lets the page in from then on. Requests that change something must be JSON, which a page of another
site cannot send.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from myxtts.live.follow import LiveRun
from myxtts.live.page import list_samples, make_live_page, make_login_page
from myxtts.live.speaker import SayBody, Speaker
from myxtts.serve.guard import Guard, read_limited
from myxtts.serve.protocol import RequestError, format_sse, parse_json
from myxtts.storage.regular_file import try_read_regular
from myxtts.tools.monitor.run import find_trainer
from myxtts.tools.run_files import read_run
from myxtts.tools.run_report import make_run_page
from myxtts.tools.words import Translator, choose_translator, translate_error
from myxtts.training.run.folder import SAMPLES_FOLDER_NAME
from myxtts.training.sample_files import read_samples
from myxtts.types import PAGE_LANGUAGES

POLL_S = 1.0
"""Between two looks at the files of the run, while a page is open; without one nothing is read."""
_MAX_BODY_BYTES = 10_000
_MAX_SAMPLE_BYTES = 20_000_000
_MAX_READERS = 50
_KINDS = {"sound": "audio/wav", "mel": "image/png", "alignment": "image/png"}
_SAMPLE_FOLDER = re.compile(r"recorded|real|griffin_lim|step-\d{6,12}")
_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class PageSettings:
    """Where the page is served, the keys of its readers (none on loopback), and its language without `?lang=`."""

    host: str = "127.0.0.1"
    api_keys: frozenset[str] = frozenset()
    lang: str = "en"


class _LoginBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    key: str


class LiveApp:
    """Handlers of the routes. `is_closing` says that the server ends, so that open streams end too."""

    def __init__(self, run: LiveRun, speaker: Speaker, settings: PageSettings) -> None:
        self._run, self._speaker, self._settings = run, speaker, settings
        self._readers: dict[asyncio.Queue[bytes | None], Translator] = {}
        self._guard = Guard(settings.host, settings.api_keys, _HEADERS, self._translate_error)
        self._num_sampled = 0
        self._is_stopping = False
        self.is_closing: Callable[[], bool] = lambda: False
        self.num_reports = 0

    def build(self) -> Starlette:
        """Returns the ASGI application."""
        routes = [
            Route("/", self._guard.wrap(self._show_page, is_open=True)),
            Route("/login", self._guard.wrap(self._log_in, is_open=True), methods=["POST"]),
            Route("/events", self._guard.wrap(self._send_events)),
            Route("/samples/{folder}/{name}/{kind}", self._guard.wrap(self._send_sample)),
            Route("/voices", self._guard.wrap(self._list_voices)),
            Route("/say", self._guard.wrap(self._say), methods=["POST"]),
            Route("/say/cancel", self._guard.wrap(self._cancel), methods=["POST"]),
            Route("/said/{number:int}", self._guard.wrap(self._send_said)),
            Route("/stop", self._guard.wrap(self._stop), methods=["POST"]),
        ]
        return Starlette(routes=routes, middleware=self._guard.list_middleware(), lifespan=self._live)

    @property
    def num_readers(self) -> int:
        return len(self._readers)

    @asynccontextmanager
    async def _live(self, _app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(self._follow())
        yield
        task.cancel()
        await self._speaker.end()
        self._run.close()

    def _translate(self, request: Request) -> Translator:
        asked = request.query_params.get("lang", self._settings.lang)
        return Translator(asked if asked in PAGE_LANGUAGES else self._settings.lang)

    def _translate_error(self, request: Request, message: str) -> str:
        asked = request.headers.get("accept-language", "")
        return translate_error(message, choose_translator(asked, self._settings.lang))

    async def _show_page(self, request: Request) -> Response:
        """The live page; of a run that has ended the report."""
        tr = self._translate(request)
        if not self._guard.admits(request):
            return HTMLResponse(make_login_page(tr).render())
        self._poll()
        if self._run.state != "ended":
            return HTMLResponse(make_live_page(self._run, tr, self._speaker.describe_voices()).render())
        self.num_reports += 1
        page = await asyncio.to_thread(lambda: make_run_page(read_run(self._run.path), tr).render())
        return HTMLResponse(page)

    async def _log_in(self, request: Request) -> Response:
        body = parse_json(await _read_json(request), _LoginBody, "The body")
        if not self._guard.knows(body.key):
            raise RequestError("The key is wrong.", status=401)
        response = JSONResponse({})
        self._guard.let_in(response)
        return response

    async def _send_events(self, request: Request) -> Response:
        if len(self._readers) >= _MAX_READERS:
            raise RequestError(f"{_MAX_READERS} pages are open already.", status=429, next_step="Close some of them.")
        return StreamingResponse(self._stream(self._translate(request)), media_type="text/event-stream")

    async def _stream(self, tr: Translator) -> AsyncIterator[bytes]:
        """First everything there is, then what is new, until the run ends or the server stops."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._poll()
        # Without an `await` in between, so that no point falls between what is sent first and what follows.
        queue.put_nowait(self._format_snapshot(tr))
        self._readers[queue] = tr
        try:
            while (message := await queue.get()) is not None:
                yield message
        finally:
            self._readers.pop(queue, None)

    async def _follow(self) -> None:
        """Looks for news while pages are open; tells them when the run has ended."""
        while True:
            await asyncio.sleep(POLL_S)
            if self.is_closing():
                self._tell(lambda _tr: None)
            elif self._readers:
                self._poll()
                if self._run.state == "ended":
                    self.tell_end()

    def tell_end(self) -> None:
        """Tells all open pages that the run has ended; they load the report then."""
        self._tell(lambda _tr: format_sse({"kind": "ended"}))
        self._tell(lambda _tr: None)

    def _tell(self, write: Callable[[Translator], bytes | None]) -> None:
        for queue, tr in self._readers.items():
            queue.put_nowait(write(tr))

    def _poll(self) -> None:
        """Reads what is new and sends it to all open pages."""
        points, is_replaced = self._run.poll()
        # A run that is resumed later can be stopped again.
        self._is_stopping &= self._run.state != "ended"
        if not self._readers:
            return
        if is_replaced:
            self._tell(self._format_snapshot)
            return
        samples = self._find_new_samples()
        self._tell(lambda tr: format_sse({"kind": "more", "points": points, **self._describe(tr), **samples(tr)}))

    def _find_new_samples(self) -> Callable[[Translator], dict[str, Any]]:
        """The list of samples, where some were written since the last look."""
        if self._run.num_sampled == self._num_sampled:
            return lambda _tr: {}
        self._num_sampled = self._run.num_sampled
        return lambda tr: {"samples": list_samples(self._run, tr)}

    def _format_snapshot(self, tr: Translator) -> bytes:
        everything = {"points": self._run.list_points(), "samples": list_samples(self._run, tr)}
        said = [one.to_json() for one in self._speaker.said]
        return format_sse({"kind": "all", **everything, "said": said, **self._describe(tr)})

    def _describe(self, tr: Translator) -> dict[str, Any]:
        figures = {name: list(asdict(figure).values()) for name, figure in self._run.list_figures(tr).items()}
        return {
            "state": self._run.state,
            "stopping": self._is_stopping,
            "figures": figures,
            "verdict": self._run.judge(tr),
        }

    async def _send_sample(self, request: Request) -> Response:
        """A sound or picture of a sample, by the names in its index: no path comes from the request."""
        folder, name, kind = (request.path_params[one] for one in ("folder", "name", "kind"))
        if kind not in _KINDS or not _SAMPLE_FOLDER.fullmatch(folder):
            raise RequestError("There is no such sample.", status=404)
        found = read_samples(self._run.path / SAMPLES_FOLDER_NAME / folder)
        paths = [getattr(sample, kind) for sample in found if sample.name == name]
        return _send_file(paths[0] if paths else None, _KINDS[kind], _MAX_SAMPLE_BYTES)

    async def _list_voices(self, _request: Request) -> Response:
        return JSONResponse(self._speaker.describe_voices())

    async def _say(self, request: Request) -> Response:
        body = parse_json(await _read_json(request), SayBody, "The body")
        known = self._speaker.describe_voices()["voices"]
        if body.voice is not None and body.voice not in known:
            raise RequestError("There is no such voice.", field="voice", next_step=f"Choose one of {', '.join(known)}.")
        said = await self._speaker.say(body)
        return JSONResponse(said.to_json())

    async def _cancel(self, request: Request) -> Response:
        await _read_json(request)
        return JSONResponse({"cancelled": self._speaker.cancel()})

    async def _send_said(self, request: Request) -> Response:
        path = self._speaker.find_sound(request.path_params["number"])
        return _send_file(path, "audio/flac", _MAX_SAMPLE_BYTES)

    async def _stop(self, request: Request) -> Response:
        """Sends the trainer the signal of Ctrl-C: it saves and ends with the same exit code."""
        await _read_json(request)
        process = find_trainer(self._run.path)
        if process is None or self._run.state == "ended":
            raise RequestError("No training of this run is going on here.", status=409)
        if self._is_stopping:
            # A second signal would end it without saving.
            return JSONResponse({"stopping": True})
        try:
            os.kill(process, signal.SIGINT)
        except PermissionError as error:
            raise RequestError("The training belongs to another user.", status=409) from error
        self._is_stopping = True
        return JSONResponse({"stopping": True})


async def _read_json(request: Request) -> bytes:
    """The body of a request that must be JSON."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise RequestError("The request must be JSON.", status=415)
    return await read_limited(request, _MAX_BODY_BYTES)


def _send_file(path: Path | None, kind: str, max_bytes: int) -> Response:
    content = try_read_regular(path, max_bytes)
    if not content:
        raise RequestError("There is no such file.", status=404)
    return Response(content, media_type=kind)
