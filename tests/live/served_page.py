"""A live page in a thread of the test's own process, and a run that grows without a training."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.tools.fake_run import write_fake_run

from myxtts.live.app import LiveApp, PageSettings
from myxtts.live.follow import LiveRun
from myxtts.live.server import bind
from myxtts.live.speaker import Speaker
from myxtts.serve.http_server import make_server
from myxtts.storage.atomic import lock_directory

NUM_BEFORE = 150
"""Lines of metrics that are there before the run grows."""


class GrowingRun:
    """The files of a run of 400 steps, of which only the first are there yet; this process holds its lock."""

    def __init__(self, path: Path) -> None:
        self.path = write_fake_run(path)
        self._lines = {}
        for name in ("metrics.jsonl", "telemetry.jsonl"):
            lines = (path / name).read_text(encoding="utf-8").splitlines(keepends=True)
            (path / name).write_text("".join(lines[:NUM_BEFORE]), encoding="utf-8")
            self._lines[name] = lines[NUM_BEFORE:]

    @contextmanager
    def training(self) -> Iterator[None]:
        with lock_directory(self.path, "training"):
            yield
        # The process of the test lives on; the lock of a training that has ended names one that does not.
        (self.path / ".lock").write_text("process 0 (training)")

    def grow(self, num_lines: int = 10) -> None:
        for name, lines in self._lines.items():
            with (self.path / name).open("a", encoding="utf-8") as file:
                file.writelines(lines[:num_lines])
            del lines[:num_lines]
        sample = {"time": 1000.0 + len(self._lines["metrics.jsonl"]), "cores": 1.5, "memory_bytes": 1.5e9, "gpus": []}
        with (self.path / "system.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(sample) + "\n")


@contextmanager
def serve_live(run_path: Path, folder: Path, **settings: Any) -> Iterator[tuple[str, LiveApp]]:
    """Serves until the block ends; gives the address and the application."""
    started = threading.Event()
    found: dict[str, Any] = {}
    listening = bind("127.0.0.1", 0, is_chosen=True)

    async def run() -> None:
        app = LiveApp(LiveRun(run_path), Speaker(run_path, folder), PageSettings(**settings))
        server = make_server(app.build(), "127.0.0.1", 0)
        app.is_closing = lambda: server.should_exit
        found.update(app=app, server=server)

        async def announce() -> None:
            while not server.started:
                await asyncio.sleep(0.01)
            started.set()

        # Signals belong to the main thread.
        await asyncio.gather(server._serve([listening]), announce())

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert started.wait(120), "the server did not start"
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", found["app"]
    finally:
        found["server"].should_exit = True
        thread.join(120)
    assert not thread.is_alive(), "the server did not stop"
