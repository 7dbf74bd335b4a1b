"""HTTP server with deadlines: a connection that sends no complete request header in time is closed."""

from __future__ import annotations

import asyncio
import errno
import socket
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from myxtts.errors import UsageError
from myxtts.storage.regular_file import FileRefusedError, read_regular

HEADER_DEADLINE_S = 10.0
"""From the beginning of a connection, or of its next request, to the end of the header."""
KEEP_ALIVE_S = 15
_MAX_CONNECTIONS = 1000
_MAX_HEADER_BYTES = 32_768
_SHUTDOWN_S = 30
"""For answers that are being given when the server is told to stop."""
_BACKLOG = 128
_MAX_KEY_BYTES = 10_000
_MIN_KEY_LENGTH = 16
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class _DeadlineProtocol(H11Protocol):
    """A connection of uvicorn, which has no deadline for headers of its own."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._set_deadline()
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def _set_deadline(self) -> None:
        self._deadline = self.loop.call_later(HEADER_DEADLINE_S, self.transport.abort)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def read_api_keys(path: Path | None, host: str) -> frozenset[str]:
    """Reads the keys of clients, one a line; raises UsageError where others could reach the server without one."""
    if path is None:
        if host not in LOOPBACK:
            raise UsageError(
                f"Anyone who can reach {host} could use the server.",
                next_step="Give --api-key-file FILE with a key on each line, or --host 127.0.0.1.",
            )
        return frozenset()
    try:
        lines = read_regular(path, _MAX_KEY_BYTES).decode("ascii").split()
    except (OSError, FileRefusedError, UnicodeDecodeError) as error:
        raise UsageError(f"The keys in {path} cannot be read: {error}.", next_step="Write one key a line.") from error
    if not lines or any(len(line) < _MIN_KEY_LENGTH for line in lines):
        raise UsageError(
            f"{path} holds no key, or one of fewer than {_MIN_KEY_LENGTH} characters.",
            next_step="Make one: python3 -c 'import secrets; print(secrets.token_urlsafe(24))'",
        )
    return frozenset(lines)


def open_socket(host: str, port: int) -> socket.socket:
    """Opens the port of a server; raises UsageError where it is taken, or the address is not of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        # It listens already: clients that read the printed address wait until the server answers.
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            problem = f"Port {port} of {host} is used by another program."
        else:
            problem = f"Cannot listen on {host}, port {port}: {error.strerror or error}."
        raise UsageError(problem, next_step="Choose another address or port (0 finds a free port).") from error


def name_address(listening: socket.socket) -> str:
    """Returns the address of a server as a browser takes it."""
    host, port, *_ = listening.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make_server(app: Any, host: str, port: int) -> uvicorn.Server:
    """Makes the server; `run` serves until SIGINT or SIGTERM, and lets answers that have begun end."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=_DeadlineProtocol,
        ws="websockets-sansio",
        ws_max_size=200_000,
        ws_per_message_deflate=False,
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
    )
    return uvicorn.Server(config)
