"""Addresses of the tf.data service: probing one without TensorFlow, and the address a data worker listens on.

A tf.data service executes any graph that a client sends it, with the rights of its user and without a password.
TensorFlow always listens on every network interface; a worker for this machine alone is therefore bound to the loopback
device afterwards. The client of TensorFlow would retry an address without end, so it is probed first.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from myxtts.config.values import check_address
from myxtts.errors import BusyError, DataError, HardwareError, UsageError

OPEN_FLAG = "--allow-remote-code-execution"
"""Must be given with the address of a network; the name says what it allows."""
DEFAULT_PORT = 5050
"""Port of the dispatcher unless --port is given."""
CONNECT_LIMIT_S = 10.0
"""Time in which a service must answer at the start, and after which one that does not counts as gone."""
_RETRY_EVERY_S = 0.2
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The start of a gRPC connection: the preface of HTTP/2 and an empty SETTINGS frame."""
_FRAME_HEADING_BYTES, _SETTINGS_FRAME = 9, 4
"""Length of an HTTP/2 frame header, and the type of a SETTINGS frame in it (RFC 9113), which a server sends first."""
_LOOPBACK = "127.0.0.1"
_OPEN_FILES = Path("/proc/self/fd")
"""Linux: the open file descriptors of this process."""
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
NOT_A_SERVICE = "what listens there is no tf.data service"


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[host]:port`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def find_obstacle(address: str, time_limit_s: float) -> str:
    """Probes an address; returns the reason why no tf.data service answers, or an empty string if one does.

    Opens an HTTP/2 connection by hand and expects a SETTINGS frame, as every gRPC server sends.
    """
    deadline = time.monotonic() + time_limit_s
    try:
        with socket.create_connection(split_address(address), time_limit_s) as connection:
            connection.settimeout(max(0.01, deadline - time.monotonic()))
            connection.sendall(_PREFACE)
            heading = connection.recv(_FRAME_HEADING_BYTES, socket.MSG_WAITALL)
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    is_settings = len(heading) == _FRAME_HEADING_BYTES and heading[3] == _SETTINGS_FRAME
    return "" if is_settings else NOT_A_SERVICE


def await_service(address: str, time_limit_s: float = CONNECT_LIMIT_S) -> None:
    """Waits until a service answers; raises DataError with the reason after the time limit."""
    skip_proxies()
    deadline = time.monotonic() + time_limit_s
    while obstacle := find_obstacle(address, max(_RETRY_EVERY_S, deadline - time.monotonic())):
        if time.monotonic() >= deadline or obstacle == NOT_A_SERVICE:
            raise DataError(
                f"No tf.data service answers at {address}: {obstacle} (tried for {time_limit_s:g} s).",
                next_step="Start one there with myxtts data-worker, or correct the address in data.data_service.",
            )
        time.sleep(_RETRY_EVERY_S)


def skip_proxies() -> None:
    """Disables HTTP proxies for gRPC, unless the user has set `grpc_proxy`: services are on the local network."""
    os.environ.setdefault("grpc_proxy", "")


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Host name that clients use, port to listen on (0: any free one), and the dispatcher to join, if any."""

    host: str
    port: int
    joined: str | None
    is_private: bool
    """Whether only this machine may connect."""
    worker_port: int = 0
    """Port of the worker beside a dispatcher: the next one, so that a firewall or a tunnel can name it."""


def check_listen_address(
    host: str | None, port: int | None, joined: str | None, *, is_open_allowed: bool = False
) -> ListenAddress:
    """Checks the options of `myxtts data-worker`, and waits for the dispatcher to join."""
    if joined is not None:
        _check_joined(joined, host)
    is_private = host is None or _is_loopback(_check_host(host))
    if not is_private and not is_open_allowed:
        raise UsageError(
            f"--host {host} opens the data worker to the network, and anyone who reaches its port can run code as this "
            "user: it executes what clients send, and asks for no password.",
            next_step=f"Connect by an SSH tunnel instead, without --host; or add {OPEN_FLAG} in a private network "
            "behind a firewall.",
        )
    listen = ListenAddress(
        host=host or _LOOPBACK,
        port=port if port is not None else (0 if joined else DEFAULT_PORT),
        joined=joined,
        is_private=is_private,
    )
    _check_port_is_free(listen.port)
    if listen.port and not joined:
        listen = replace(listen, worker_port=_find_worker_port(listen.port))
    if joined is not None:
        await_service(joined)
    return listen


def _find_worker_port(port: int) -> int:
    """The port behind that of the dispatcher; 0, for any free one, where it is taken."""
    try:
        _check_port_is_free(port + 1)
    except (BusyError, OverflowError):
        return 0
    return port + 1


def _check_joined(joined: str, host: str | None) -> None:
    """Raises UsageError for --join without a valid address, or on another machine without --host."""
    example = "Write e.g. --join 10.0.0.5:5050."
    if not _ADDRESS.fullmatch(joined):
        raise UsageError(f"--join {joined!r} is not an address of the form HOST:PORT.", next_step=example)
    try:
        check_address(joined)
    except ValueError as problem:
        raise UsageError(f"--join {joined!r} is not an address: {problem}.", next_step=example) from problem
    if host is None and not _is_loopback(split_address(joined)[0]):
        raise UsageError(
            f"The dispatcher at {joined} is on another machine, from which this one cannot be reached as {_LOOPBACK}.",
            next_step="Give --host with the address or name under which it reaches this machine.",
        )


def _check_host(host: str) -> str:
    """Raises UsageError for a --host that does not resolve, or that is the wildcard address."""
    addresses = _resolve(host)
    if not addresses:
        raise UsageError(
            f"--host {host!r} is neither an address nor a name that is known here.",
            next_step="Give the address of this machine, such as 10.0.0.5, without a port; that goes to --port.",
        )
    if any(address.is_unspecified for address in addresses):
        raise UsageError(
            f"--host {host} is no address that others can connect to.",
            next_step="Give the one under which they reach this machine; it listens on all of them.",
        )
    return host


def _resolve(host: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """IP addresses of a host; empty if it cannot be resolved."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]


def _is_loopback(host: str) -> bool:
    addresses = _resolve(host)
    return bool(addresses) and all(address.is_loopback for address in addresses)


def _check_port_is_free(port: int) -> None:
    """Raises BusyError or UsageError; TensorFlow would silently share the port (SO_REUSEPORT) with another service."""
    try:
        with socket.socket() as listener:
            # Without it, connections in TIME_WAIT of a service that has just ended would block the port.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("", port))
    except PermissionError as error:
        raise UsageError(
            f"Port {port} is reserved for the system.", next_step="Give one above 1023 with --port."
        ) from error
    except OSError as error:
        raise BusyError(
            f"Port {port} is taken by another process.",
            next_step=f"Give another one with --port; if it is a data worker, add to it with --join "
            f"{join_address(_LOOPBACK, port)}.",
        ) from error


def keep_to_loopback(ports: Iterable[int]) -> None:
    """Binds the listening sockets of these ports to the loopback device (SO_BINDTODEVICE).

    Raises HardwareError where the system does not allow it: the worker would be open to the network.
    """
    wanted = set(ports)
    try:
        for listener in _list_listeners():
            with closing(listener):
                if listener.getsockname()[1] in wanted:
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
                    wanted.discard(listener.getsockname()[1])
    except (OSError, AttributeError) as error:
        raise _explain_exposure(str(error)) from error
    if wanted:
        raise _explain_exposure("its sockets were not found")


def _explain_exposure(detail: str) -> HardwareError:
    return HardwareError(
        f"This system cannot keep the data worker to this machine: {detail}.",
        next_step=f"Give --host ADDRESS and {OPEN_FLAG} if other machines may reach it, behind a firewall that says "
        "which.",
    )


def _list_listeners() -> Iterator[socket.socket]:
    """Yields duplicates of the listening TCP sockets of this process; the caller closes them."""
    for entry in _OPEN_FILES.iterdir():
        number = int(entry.name)
        try:
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            listener = socket.socket(fileno=os.dup(number))
        except OSError:
            # Closed by its owner since the list was made.
            continue
        is_network = listener.family in (socket.AF_INET, socket.AF_INET6)
        if is_network and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            yield listener
        else:
            listener.close()
