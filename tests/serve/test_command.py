"""`myxtts serve` as a process of its own: it stays up under hostile clients, within its memory, and stops when told."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from tests.serve.served import PATIENCE_S, open_stream

from benchmarks.doors_server import load_server

KEY = "a-key-of-more-than-sixteen-characters"
PRIVATE = "a line that no client may read"
MAX_GROWTH_BYTES = 40 * 2**20
"""Less than what hostile clients send below, by far: 300 MB of bodies and 200 connections."""


def start(bundle: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "myxtts", "serve", "--model", str(bundle), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def server(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server with a key, whose graphs are traced; its address."""
    folder = tmp_path_factory.mktemp("keys")
    (folder / "keys.txt").write_text(f"{KEY}\n", encoding="utf-8")
    arguments = ("--port", "0", "--voice", "anna", "--api-key-file", str(folder / "keys.txt"), "--max-requests", "4")
    process = start(bundle, *arguments)
    assert process.stdout is not None
    url = process.stdout.readline().split()[2]
    with make_client(url) as client:
        for kind in ("mp3", "opus", "flac", "wav", "pcm"):
            body = {"input": "The fox. " * 3, "response_format": kind}
            assert client.post("/v1/audio/speech", json=body).status_code == 200
    yield url, process
    if process.poll() is None:
        process.kill()
        process.communicate()


def make_client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {KEY}"}, timeout=PATIENCE_S)


def connect_raw(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def test_a_server_that_others_could_use_without_a_key_does_not_start(bundle: Path, tmp_path: Path) -> None:
    open_to_all = start(bundle, "--host", "192.0.2.1")
    _, words = open_to_all.communicate(timeout=PATIENCE_S)
    assert (open_to_all.returncode, "--api-key-file" in words) == (2, True)
    (tmp_path / "keys.txt").write_text("short\n", encoding="utf-8")
    weak = start(bundle, "--api-key-file", str(tmp_path / "keys.txt"))
    assert "fewer than 16" in weak.communicate(timeout=PATIENCE_S)[1]


def test_hostile_clients_cost_neither_memory_nor_connections(server: tuple[str, subprocess.Popen[str]]) -> None:
    url, process = server
    watched = psutil.Process(process.pid)
    before, num_files = watched.memory_info().rss, watched.num_fds()
    half_open = [connect_raw(url) for _ in range(200)]
    for connection in half_open:
        connection.sendall(b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    with make_client(url) as client:
        statuses = [client.post("/v1/audio/speech", content=b"x" * 10_000_000).status_code for _ in range(30)]
    assert statuses == [413] * 30
    leave_in_the_middle(url)
    with make_client(url) as client:
        assert client.post("/v1/audio/speech", json={"input": "The fox."}).status_code in (200, 429)
        assert client.get("/health").status_code == 200
    assert watched.memory_info().rss - before < MAX_GROWTH_BYTES
    for connection in half_open:
        connection.close()
    deadline = time.monotonic() + PATIENCE_S
    while watched.num_fds() > num_files + 5:
        assert time.monotonic() < deadline, f"{watched.num_fds()} files are open, {num_files} before"
        time.sleep(0.1)


def leave_in_the_middle(url: str) -> None:
    """Clients that ask for minutes of speech: some leave, some never read what they get."""
    body = b'{"input": "%s", "response_format": "wav"}' % (b"The fox jumps over the dog. " * 300)
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
    connections = []
    for _ in range(12):
        connection = connect_raw(url)
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        connections.append(connection)
    for connection in connections[::2]:
        connection.recv(100)
        connection.close()
    time.sleep(1.0)
    for connection in connections[1::2]:
        connection.close()


@pytest.mark.parametrize("name", ["../secret", "../../etc/passwd", "/etc/passwd", "file:///etc/passwd", "anna/../anna"])
def test_nothing_of_the_disk_is_readable(server: tuple[str, subprocess.Popen[str]], bundle: Path, name: str) -> None:
    (bundle.parent / "secret").write_text(PRIVATE, encoding="utf-8")
    (bundle.parent / "secret.safetensors").write_text(PRIVATE, encoding="utf-8")
    url, _ = server
    answers = []
    with make_client(url) as client:
        for voice in (name, {"id": name}, {"name": name}):
            answers.append(client.post("/v1/audio/speech", json={"input": "x", "voice": voice}))
        answers.append(client.get(f"/v1/audio/voices/{name}"))
        answers.append(client.get(f"/{name}"))
        answers.append(client.post("/v1/audio/voices", params={"name": name, "consent": "c"}, content=b"RIFF"))
    assert {answer.status_code for answer in answers} <= {400, 403, 404, 405}
    assert not any(PRIVATE in answer.text or "root:" in answer.text for answer in answers)
    with open_stream(url) as socket_:
        socket_.send(json.dumps({"api_key": KEY, "voice": name}))
        socket_.send('{"text": "The fox.", "end": true}')
        messages: list[str] = []
        while not messages or '"error"' not in messages[-1]:
            messages.append(str(socket_.recv(timeout=PATIENCE_S)))
    assert not any(PRIVATE in message for message in messages)


def test_many_clients_get_an_answer_or_are_told_to_come_again(server: tuple[str, subprocess.Popen[str]]) -> None:
    url, process = server
    statuses, growth_mb = load_server(
        url, psutil.Process(process.pid), 8, 4.0, headers={"Authorization": f"Bearer {KEY}"}
    )
    assert set(statuses) <= {200, 429}
    assert statuses[200] > 0
    assert growth_mb * 2**20 < MAX_GROWTH_BYTES


def test_answers_that_have_begun_end_before_the_server_stops(server: tuple[str, subprocess.Popen[str]]) -> None:
    url, process = server
    sizes: list[int] = []

    def ask() -> None:
        with make_client(url) as client:
            body = {"input": "The fox jumps. " * 10, "response_format": "pcm"}
            with client.stream("POST", "/v1/audio/speech", json=body) as answer:
                begun.set()
                sizes.append(sum(map(len, answer.iter_raw())))

    begun = threading.Event()
    client = threading.Thread(target=ask)
    client.start()
    assert begun.wait(PATIENCE_S)
    process.send_signal(signal.SIGTERM)
    rest, words = process.communicate(timeout=PATIENCE_S)
    client.join(PATIENCE_S)
    assert (process.returncode, rest) == (0, "Stopped.\n"), words
    assert sizes[0] > 10_000
