"""Whether a tf.data service answers at an address, found out without TensorFlow: its own client would ask for ever."""

from __future__ import annotations

import os
import socket
import time

from myxtts.errors import DataError

CONNECT_LIMIT_S = 10.0
_RETRY_EVERY_S = 0.2
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""What a gRPC client says first: the greeting of HTTP/2 and settings that change nothing."""
_FRAME_HEADING_BYTES, _SETTINGS_FRAME = 9, 4
NOT_A_SERVICE = "what listens there is no tf.data service"


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[host]:port`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def find_obstacle(address: str, time_limit_s: float) -> str:
    """Why nothing of use answers at the address, in a few words; '' if a service does."""
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
    """Returns as soon as a service answers; after the time limit, an error that says why none does."""
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
    """Lets gRPC connect straight to a service beside us, unless the user has set a proxy for gRPC itself."""
    os.environ.setdefault("grpc_proxy", "")
