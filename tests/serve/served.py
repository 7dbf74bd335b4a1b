"""A server in a thread of the test's own process, with a small model behind it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from myxtts.serve.app import ServerSettings, make_app
from myxtts.serve.http_server import make_server
from myxtts.serve.metrics import Metrics
from myxtts.serve.speech_queue import SpeechQueue
from myxtts.serve.wyoming_server import start_wyoming


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
    assert started.wait(30), "the server did not start"
    try:
        yield found["http"], found["wyoming"]
    finally:
        found["server"].should_exit = True
        thread.join(30)
    assert not thread.is_alive(), "the server did not stop"


async def _announce(server: Any, started: threading.Event) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    started.set()
