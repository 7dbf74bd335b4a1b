"""What `myxtts data-worker` says before it loads TensorFlow: help, and errors in how it was called."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.pipeline.fake_service import greet

LIGHT = (
    "import sys\nfrom myxtts.cli.main import run\ntry:\n    run(sys.argv[1:])\n"
    "finally:\n    assert not {'tensorflow', 'keras'} & set(sys.modules)"
)


def run_data_worker(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command and checks that TensorFlow was not loaded."""
    program = [sys.executable, "-c", LIGHT, "data-worker", *(["--allow-root"] if os.geteuid() == 0 else []), *arguments]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_help_says_what_it_is_for_and_what_to_take_care_of() -> None:
    done = run_data_worker("--help")
    assert done.returncode == 0
    words = " ".join(done.stdout.replace("│", " ").split())
    for part in ("Example", "--join", "--host", "--port", "--json", "data.data_service", "5050"):
        assert part in words
    for part in ("--allow-remote-code-execution", "run code as your user", "has no authentication", "SSH tunnel"):
        assert part in words


def test_taken_port_is_an_error_with_what_to_do(taken_port: int) -> None:
    done = run_data_worker("--port", str(taken_port), "--json")
    assert done.returncode == 8
    assert f"--join 127.0.0.1:{taken_port}" in json.loads(done.stdout)["error"]["next_step"]


def test_joining_what_is_no_data_worker_is_an_error_with_its_address() -> None:
    with greet(b"220 mail.example.org ESMTP\r\n") as address:
        done = run_data_worker("--join", address)
    assert done.returncode == 3
    assert f"No tf.data service answers at {address}: what listens there is no tf.data service" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--join", "localhost"), "not an address of the form HOST:PORT"),
        (("--join", "localhost:70000"), "ports go from 1 to 65535"),
        (("--join", "192.0.2.7:5050"), "on another machine"),
        (("--host", "0.0.0.0"), "no address that others can connect to"),  # noqa: S104 - refused
        (("--host", "no such host"), "neither an address nor a name"),
        (("--host", "127.0.0.1:80"), "without a port"),
        (("--port", "70000"), "--port"),
        (("--host", "192.0.2.5"), "--allow-remote-code-execution"),
        (("--recordings", "/no/such/folder"), "there is no such folder"),
    ],
)
def test_what_cannot_be_served_is_a_usage_error(arguments: tuple[str, ...], words: str) -> None:
    done = run_data_worker(*arguments)
    assert done.returncode == 2, done.stderr
    assert words in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_is_refused_unless_it_is_asked_for() -> None:
    program = [sys.executable, "-c", LIGHT, "data-worker"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "--allow-root" in done.stderr
