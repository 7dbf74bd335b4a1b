"""Access to a local server: keys of clients, names of hosts, limits of bodies, error answers.

Shared by the speech server and by pages such as the studio.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from myxtts.errors import MyXTTSError
from myxtts.serve.http_server import LOOPBACK
from myxtts.serve.protocol import RequestError, describe_error

BODY_DEADLINE_S = 20.0
_COOKIE = "myxtts"

Handler = Callable[[Request], Awaitable[Response]]
Translate = Callable[[Request, str], str]
"""The text of an error in the language of whoever asks."""


class Guard:
    """Checks of every request: a key where keys are set, on loopback the name of the host.

    Scripts send the key with every request. A browser that follows links cannot: `let_in` gives it a cookie instead.
    """

    def __init__(
        self,
        host: str,
        api_keys: frozenset[str],
        headers: Mapping[str, str],
        translate: Translate = lambda _request, text: text,
    ) -> None:
        self._host, self._keys, self._headers, self._translate = host, api_keys, headers, translate
        self._session = secrets.token_urlsafe(32)

    def knows(self, key: str) -> bool:
        """Whether a client may use the server; all keys are compared, so that time tells nothing."""
        return not self._keys or sum(hmac.compare_digest(key.encode(), known.encode()) for known in self._keys) > 0

    def admits(self, request: Request) -> bool:
        """Whether a request has a key, or the cookie of a reader who has given one."""
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        cookie = request.cookies.get(_COOKIE, "")
        return self.knows(key) or hmac.compare_digest(cookie.encode(), self._session.encode())

    def let_in(self, response: Response) -> None:
        """Sends a reader who has given a key the cookie, which scripts cannot read."""
        response.set_cookie(_COOKIE, self._session, httponly=True, samesite="strict")

    def list_middleware(self) -> list[Middleware]:
        if self._host not in LOOPBACK:
            return []
        # A page of another site could otherwise reach this server under a name of its own (DNS rebinding).
        return [Middleware(TrustedHostMiddleware, allowed_hosts=["localhost", "127.0.0.1", "[::1]"])]

    def wrap(self, handle: Handler, *, is_open: bool = False) -> Handler:
        """Adds the check of the key, error answers and headers to a handler; `is_open` needs no key."""

        async def answer(request: Request) -> Response:
            try:
                if not is_open and not self.admits(request):
                    raise RequestError("The key is missing or wrong.", status=401, next_step="Send a Bearer token.")
                response = await handle(request)
            except MyXTTSError as error:
                status, body, headers = describe_error(error, partial(self._translate, request))
                response = JSONResponse(body, status, headers)
            response.headers.update(self._headers)
            return response

        return answer


async def read_limited(request: Request, max_bytes: int) -> bytes:
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
