"""Serves the live page of a run: in the process of `myxtts monitor`, or in a process of its own beside a training.

The process beside a training reads the run's files and nothing else, so that a training is the same with and without
its page. It lives as long as the pipe from the training is open, which also ends when the training is killed; then it
tells open pages, gives them the report, and ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from myxtts.errors import MissingExtraError, MyXTTSError, UsageError
from myxtts.types import Say

if TYPE_CHECKING:
    import uvicorn

    from myxtts.live.app import LiveApp
    from myxtts.live.follow import LiveRun

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8030
_MAX_PORT = 65535
_MODULES = ("starlette", "uvicorn", "websockets")
_LINGER_S = 15.0
"""For open pages to fetch the report of a training that has ended."""
_PRIORITY = 10
"""The process of a page gives way to the training."""


def read_address(text: str | None) -> tuple[str, int]:
    """Reads PORT or HOST:PORT; nothing is the usual port on loopback. Raises UsageError for anything else."""
    host, _, port = (text or "").rpartition(":")
    if not text:
        return DEFAULT_HOST, DEFAULT_PORT
    if not port.isdecimal() or int(port) > _MAX_PORT:
        raise UsageError(f"{text!r} is no address.", next_step="Give PORT or HOST:PORT, such as 8030 or 0.0.0.0:8030.")
    return host.strip("[]") or DEFAULT_HOST, int(port)


def require_server() -> None:
    """Raises MissingExtraError where the packages of the server are not installed."""
    missing = [name for name in _MODULES if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"The page needs {', '.join(missing)}, which is not installed.",
            next_step="Run: pip install 'myxtts[serve]'",
        )


def bind(host: str, port: int, *, is_chosen: bool) -> socket.socket:
    """Opens the port; where the usual one is taken, any free one. Raises UsageError for one that was asked for."""
    from myxtts.serve.http_server import open_socket

    try:
        return open_socket(host, port)
    except UsageError:
        if is_chosen:
            raise
    return open_socket(host, 0)


def serve_page(
    run_path: Path, address: str | None, key_file: Path | None, lang: str, say: Say, *, is_beside_training: bool = False
) -> None:
    """Serves the page of a run until Ctrl-C; beside a training until standard input is closed.

    `say` is told the address.
    """
    from myxtts.live.app import LiveApp, PageSettings
    from myxtts.live.follow import LiveRun
    from myxtts.live.speaker import Speaker
    from myxtts.serve.http_server import make_server, name_address, read_api_keys

    host, port = read_address(address)
    keys = read_api_keys(key_file, host)
    listening = bind(host, port, is_chosen=address is not None)
    say(name_address(listening))

    async def serve(folder: Path) -> None:
        run = LiveRun(run_path, is_expected=is_beside_training)
        app = LiveApp(run, Speaker(run_path, folder), PageSettings(host, keys, lang))
        server = make_server(app.build(), host, port)
        app.is_closing = lambda: server.should_exit
        waiting = asyncio.create_task(_end_with_training(app, run, server)) if is_beside_training else None
        # uvicorn raises the signal again when it has stopped; ending by it is what a server is meant to do.
        with suppress(KeyboardInterrupt, SystemExit):
            await server.serve(sockets=[listening])
        if waiting is not None:
            waiting.cancel()

    with tempfile.TemporaryDirectory(prefix="myxtts-page-") as folder:
        asyncio.run(serve(Path(folder)))


async def _end_with_training(app: LiveApp, run: LiveRun, server: uvicorn.Server) -> None:
    """Waits until standard input is closed; then gives open pages the report, and ends the server."""
    loop, is_closed = asyncio.get_running_loop(), asyncio.Event()

    def watch() -> None:
        while sys.stdin.buffer.read(1):
            pass
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(is_closed.set)

    threading.Thread(target=watch, name="training", daemon=True).start()
    await is_closed.wait()
    num_open, num_before = app.num_readers, app.num_reports
    run.is_over = True
    app.tell_end()
    deadline = loop.time() + _LINGER_S
    while app.num_reports - num_before < num_open and loop.time() < deadline:
        await asyncio.sleep(0.1)
    server.should_exit = True


class PageProcess:
    """Context of a page beside a training, in a process of its own that ends with this one, however that ends."""

    def __init__(self, run_path: Path, address: str | None, key_file: Path | None, lang: str) -> None:
        keys = str(key_file) if key_file is not None else None
        self._settings = {"run": str(run_path), "address": address, "key_file": keys, "lang": lang}
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        """Starts the server; raises UsageError where it cannot serve."""
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", "myxtts.live.server", json.dumps(self._settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for the training; the page ends after it.
            start_new_session=True,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            answer = json.loads(line)
        except ValueError:
            answer = {"problem": "The server of the page did not start.", "next_step": "Leave out --page."}
        if "problem" in answer:
            self.__exit__(None, None, None)
            raise UsageError(answer["problem"], next_step=answer["next_step"])
        self.url = str(answer["url"])
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Closes the pipe and waits until open pages have their report."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(2 * _LINGER_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def main() -> None:
    """Entry point of the process beside a training; its only argument is JSON."""
    settings = json.loads(sys.argv[1])

    def answer(content: dict[str, str]) -> None:
        sys.stdout.write(json.dumps(content) + "\n")
        sys.stdout.flush()

    os.nice(_PRIORITY)
    key_file = Path(settings["key_file"]) if settings["key_file"] else None
    try:
        serve_page(
            Path(settings["run"]),
            settings["address"],
            key_file,
            settings["lang"],
            lambda url: answer({"url": url}),
            is_beside_training=True,
        )
    except MyXTTSError as error:
        answer({"problem": error.problem, "next_step": error.next_step})


if __name__ == "__main__":
    main()
