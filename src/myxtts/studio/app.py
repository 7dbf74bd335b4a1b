"""The HTTP application of the studio: the page, lists and sound of clips, edits, and takes of the microphone.

Clips are named by their ids, which are looked up: no path of a request is ever opened. Edits and takes must have the
content types of the page, which a form of another site cannot send without asking, and come from the page's own origin.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from myxtts.errors import DataError
from myxtts.features.wave_file import encode_sound
from myxtts.serve.guard import Guard, read_limited
from myxtts.serve.protocol import RequestError, parse_json
from myxtts.studio.editor import EditRequest, Studio, Take
from myxtts.studio.library import Filter, Sort
from myxtts.studio.recording import MAX_TAKE_BYTES, NOISE_DB, list_warnings
from myxtts.studio.sound import LIMITS, Examined
from myxtts.tools.words import Translator, choose_translator, read_catalogue, translate_error
from myxtts.types import PAGE_LANGUAGES

_MAX_EDIT_BYTES = 200_000
_WINDOW = 100
"""Clips in one answer."""
_FILES = {
    "": ("page.html", "text/html; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
    **{
        f"{name}.js": (f"{name}.js", "text/javascript; charset=utf-8")
        for name in ("main", "api", "wave", "clips", "split", "record", "microphone", "worklet")
    },
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Cache-Control": "no-store",
}
TEXTS: dict[str, str] = json.loads((files("myxtts.studio") / "texts.json").read_text(encoding="utf-8"))
"""English texts of the page, by the keys that its HTML and scripts use."""
Prompts = Mapping[str, list[str]]
"""Sentences to record, by language."""


@dataclass(frozen=True)
class StudioSettings:
    """Address and keys of the server, language of the page ('' follows the browser), sentences to record."""

    host: str = "127.0.0.1"
    api_keys: frozenset[str] = frozenset()
    lang: str = ""
    prompts: Prompts = field(default_factory=dict)


class _ConsentBody(BaseModel):
    model_config = ConfigDict(extra="forbid")
    speaker: Annotated[str, Field(max_length=200)]
    note: Annotated[str, Field(max_length=2000)]


class StudioApp:
    """Handlers of the routes."""

    def __init__(self, studio: Studio, settings: StudioSettings) -> None:
        self._studio, self._settings = studio, settings
        self._guard = Guard(settings.host, settings.api_keys, _HEADERS, self._translate)
        folder = files("myxtts.studio") / "web"
        self._files = {name: ((folder / file).read_bytes(), kind) for name, (file, kind) in _FILES.items()}

    def build(self) -> Starlette:
        """Returns the ASGI application."""
        wrap = self._guard.wrap
        routes = [
            # The page asks for the key, so it needs none itself.
            *(Route(f"/{name}", wrap(self._send_file, is_open=True)) for name in self._files),
            Route("/texts.json", wrap(self._send_texts, is_open=True)),
            Route("/api/clips", wrap(self._list_clips)),
            Route("/api/clip", wrap(self._show_clip)),
            Route("/api/sound", wrap(self._send_sound)),
            Route("/api/prompts", wrap(self._list_prompts)),
            Route("/api/edit", wrap(self._from_page(self._edit, "application/json")), methods=["POST"]),
            Route("/api/consent", wrap(self._from_page(self._add_consent, "application/json")), methods=["POST"]),
            Route("/api/take", wrap(self._from_page(self._add_take, "audio/wav")), methods=["POST"]),
        ]
        return Starlette(routes=routes, middleware=self._guard.list_middleware())

    @staticmethod
    def _from_page(
        handle: Callable[[Request], Awaitable[Response]], kind: str
    ) -> Callable[[Request], Awaitable[Response]]:
        """Refuses requests that a page of another site could make a browser send."""

        async def answer(request: Request) -> Response:
            origin = request.headers.get("origin")
            if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
                raise RequestError("The request comes from another site.", status=403)
            if request.headers.get("content-type", "").partition(";")[0].strip() != kind:
                raise RequestError(f"The content type must be {kind}.", status=415)
            return await handle(request)

        return answer

    def _translate(self, request: Request, message: str) -> str:
        """The text of an error in the language that the page shows."""
        asked = request.headers.get("accept-language", "")
        return translate_error(message, choose_translator(asked, self._settings.lang))

    async def _send_file(self, request: Request) -> Response:
        content, kind = self._files[request.url.path.removeprefix("/")]
        return Response(content, media_type=kind)

    async def _send_texts(self, _request: Request) -> Response:
        """Answers with the texts by language and key, and the Persian of those reasons to doubt that have one."""
        texts = {lang: {key: Translator(lang)(text) for key, text in TEXTS.items()} for lang in PAGE_LANGUAGES}
        catalogue, found = read_catalogue(), self._studio.library.list_reasons()
        reasons = {reason: catalogue[reason] for reason in found if reason in catalogue}
        about = {"lang": self._settings.lang, "corpus": self._studio.path.absolute().name}
        return JSONResponse({**about, "texts": texts, "reasons": reasons})

    async def _list_clips(self, request: Request) -> Response:
        query = request.query_params
        filter: Filter = _choose(query.get("filter", "all"), Filter)
        sort: Sort = _choose(query.get("sort", "doubt"), Sort)
        offset = _read_number(query.get("offset", "0"))
        words = (query.get("search", ""), query.get("around", ""))
        return JSONResponse(await asyncio.to_thread(self._list_window, filter, sort, offset, *words))

    def _list_window(self, filter: Filter, sort: Sort, offset: int, search: str, around: str) -> dict[str, Any]:
        """Returns up to `_WINDOW` clips: those around a clip, or those from `offset` on."""
        with self._studio.lock:
            clips = self._studio.library.list_clips(filter, search, sort)
            place = next((number for number, clip in enumerate(clips) if clip.row.id == around), None)
            start = min(offset, max(0, len(clips) - 1)) if place is None else place
            start -= start % _WINDOW
            shown = [clip.to_json() for clip in clips[start : start + _WINDOW]]
            return {**self._describe(), "total": len(clips), "offset": start, "place": place, "clips": shown}

    def _describe(self) -> dict[str, Any]:
        """Returns what every answer says of the corpus."""
        studio = self._studio
        with studio.lock:
            counts = studio.library.count()
            undo = {"undo": studio.edits.can_undo, "redo": studio.edits.can_redo}
            return {"revision": studio.revision, "counts": counts, **undo}

    async def _show_clip(self, request: Request) -> Response:
        translate = partial(self._translate, request)
        return JSONResponse(await asyncio.to_thread(self._look_at, request.query_params.get("id", ""), translate))

    def _look_at(self, id: str, translate: Callable[[str], str]) -> dict[str, Any]:
        """Returns figures and pauses of a clip, or the reason why it cannot be decoded."""
        studio = self._studio
        with studio.lock:
            answer: dict[str, Any] = {"clip": studio.get(id).to_json(), "revision": studio.revision}
            answer["previous"] = studio.library.find_neighbour(id, -1)
            answer["next"] = studio.library.find_neighbour(id, 1)
        try:
            return {**answer, **_describe_sound(studio.examine(id)[1])}
        except DataError as error:
            return {**answer, "problem": f"{translate(error.problem)} {translate(error.next_step)}".strip()}

    async def _send_sound(self, request: Request) -> Response:
        _, found = await asyncio.to_thread(self._studio.examine, request.query_params.get("id", ""))
        return Response(await asyncio.to_thread(encode_sound, found.wave, ".wav"), media_type="audio/wav")

    async def _edit(self, request: Request) -> Response:
        body = parse_json(await read_limited(request, _MAX_EDIT_BYTES), EditRequest, "The edit")
        return JSONResponse(await asyncio.to_thread(self._make_edit, body))

    def _make_edit(self, body: EditRequest) -> dict[str, Any]:
        shown = self._studio.edit(body)
        return {**self._describe(), "shown": shown}

    async def _list_prompts(self, request: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(self._describe_prompts, request.query_params.get("language", "")))

    def _describe_prompts(self, language: str) -> dict[str, Any]:
        """Returns the sentences of a language, and which of them are recorded (a clip) or skipped ('')."""
        prompts, edits = self._settings.prompts, self._studio.edits
        language = language if language in prompts else next(iter(prompts), "")
        return {
            **self._describe(),
            "language": language,
            "languages": list(prompts),
            "prompts": [{"text": text, "clip": edits.prompts.get(text)} for text in prompts.get(language, [])],
            "speakers": list(edits.consents),
            "max_s": LIMITS.max_duration_s,
            "noise_db": NOISE_DB,
        }

    async def _add_consent(self, request: Request) -> Response:
        body = parse_json(await read_limited(request, _MAX_EDIT_BYTES), _ConsentBody, "The consent")
        await asyncio.to_thread(self._studio.add_consent, body.speaker, body.note)
        return JSONResponse(await asyncio.to_thread(self._describe))

    async def _add_take(self, request: Request) -> Response:
        """Stores the take in the body; answers with its figures and warnings."""
        query = request.query_params
        name = query.get("take", "")
        if not (8 <= len(name) <= 64 and name.isascii() and name.replace("-", "").isalnum()):
            raise RequestError("A take needs a name of 8 to 64 letters and figures.", field="take")
        content = await read_limited(request, MAX_TAKE_BYTES)
        take = Take(name, query.get("prompt", ""), query.get("speaker", ""), query.get("language", ""), content)
        return JSONResponse(await asyncio.to_thread(self._keep_take, take), status_code=201)

    def _keep_take(self, take: Take) -> dict[str, Any]:
        clip = self._studio.add_take(take)
        found = self._studio.examine(clip.row.id)[1]
        warnings = list_warnings(found.measured)
        return {**self._describe(), "clip": clip.to_json(), "warnings": warnings, **_describe_sound(found)}


def _describe_sound(found: Examined) -> dict[str, Any]:
    measured = found.measured
    return {
        "seconds": round(found.wave.duration_s, 3),
        "rate": found.wave.rate,
        "level_db": measured.level_db,
        "noise_db": measured.noise_db,
        "snr_db": round(measured.snr_db, 1),
        "clipped_share": measured.clipped_share,
        "pauses": [{"start": one.start_s, "end": one.end_s, "cut": round(one.cut_s, 3)} for one in found.pauses],
    }


def _choose(value: str, choices: Any) -> Any:
    if value not in get_args(choices):
        raise RequestError(f"{value[:20]!r} is none of {', '.join(get_args(choices))}.")
    return value


def _read_number(value: str) -> int:
    if not value.isascii() or not value.isdigit() or len(value) > 9:
        raise RequestError(f"{value[:20]!r} is no whole number.", field="offset")
    return int(value)
