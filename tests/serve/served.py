"""A server in a thread of the test's own process, with a small model behind it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

from myxtts.serve.app import ServerSettings, make_app
from myxtts.serve.http_server import make_server
from myxtts.serve.metrics import Metrics
from myxtts.serve.speech_queue import SpeechQueue
from myxtts.serve.wyoming_server import start_wyoming

PATIENCE_S = 120.0
"""For an answer of a server on a machine that is busy with other tests."""
HTTP = httpx.Client(timeout=PATIENCE_S, limits=httpx.Limits(max_keepalive_connections=0))
"""Asks a server; every request has a connection of its own."""


def open_stream(url: str) -> ClientConnection:
    """Opens the WebSocket of a server for text in pieces."""
    address = f"{url.replace('http', 'ws')}/v1/audio/stream"
    return connect(address, open_timeout=PATIENCE_S, ping_interval=None)


@contextmanager
def serve(synthesizer: Any, *, max_requests: int = 8, **settings: Any) -> Iterator[tuple[str, str]]:
    """Serves until the block ends; gives the addresses of HTTP and of Wyoming."""
    started = threading.Event()
    found: dict[str, Any] = {}

    async def run() -> None:
        metrics = Metrics()
        queue = SpeechQueue(synthesizer, metrics, max_requests)
        server = make_server(make_app(queue, metrics, ServerSettings(**settings)), "127.0.0.1", 0)
        listening = server.config.bind_socket()
        wyoming = await start_wyoming(queue, settings.get("default_voice"), "127.0.0.1", 0)
        found["http"] = f"http://127.0.0.1:{listening.getsockname()[1]}"
        found["wyoming"] = f"tcp://127.0.0.1:{wyoming.sockets[0].getsockname()[1]}"
        found["server"] = server
        # Signals belong to the main thread.
        await asyncio.gather(server._serve([listening]), _announce(server, started))
        wyoming.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert started.wait(PATIENCE_S), "the server did not start"
    try:
        yield found["http"], found["wyoming"]
    finally:
        found["server"].should_exit = True
        thread.join(PATIENCE_S)
    assert not thread.is_alive(), "the server did not stop"


async def _announce(server: Any, started: threading.Event) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    started.set()
