"""Where a data worker listens: the port it asks for or an error, and nobody but this machine unless it was told."""

from __future__ import annotations

import socket

import pytest
from tests.pipeline.fake_service import greet

from myxtts.errors import BusyError, HardwareError, UsageError
from myxtts.pipeline.service import address as service_place
from myxtts.pipeline.service.address import DEFAULT_PORT, OPEN_FLAG, check_listen_address, keep_to_loopback

DEVICE_NAME_BYTES = 16


def read_device(listener: socket.socket) -> bytes:
    return listener.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, DEVICE_NAME_BYTES).rstrip(b"\0")


def test_without_options_it_is_for_this_machine_at_the_usual_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_place, "_check_port_is_free", lambda _port: None)
    place = check_listen_address(None, None, None)
    assert (place.host, place.port, place.joined, place.is_private) == ("127.0.0.1", DEFAULT_PORT, None, True)


@pytest.mark.parametrize(("host", "is_private"), [("127.0.0.1", True), ("::1", True), ("192.0.2.5", False)])
def test_it_is_open_to_others_only_under_an_address_that_they_can_reach(host: str, is_private: bool) -> None:
    assert check_listen_address(host, 0, None, is_open_allowed=True).is_private == is_private


def test_address_that_others_can_reach_is_refused_unless_what_it_means_is_accepted() -> None:
    with pytest.raises(UsageError, match="can run code as this user") as raised:
        check_listen_address("192.0.2.5", 0, None)
    assert OPEN_FLAG in raised.value.next_step
    assert "SSH tunnel" in raised.value.next_step


def test_worker_beside_a_dispatcher_takes_the_next_port_if_it_is_free() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        assert service_place._find_worker_port(port - 1) == 0
    assert service_place._find_worker_port(port - 1) == port
    assert service_place._find_worker_port(65535) == 0


def test_worker_that_joins_takes_any_port() -> None:
    with greet() as address:
        place = check_listen_address(None, None, address)
    assert (place.port, place.joined, place.is_private) == (0, address, True)


def test_port_that_somebody_shares_is_taken_all_the_same() -> None:
    with socket.socket() as other:
        # As TensorFlow binds: a second service would get every other connection of the first.
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(BusyError, match=f"Port {port} is taken"):
            check_listen_address(None, port, None)


def test_only_the_named_ports_are_kept_to_the_loopback() -> None:
    with socket.create_server(("", 0)) as private, socket.create_server(("", 0)) as public:
        keep_to_loopback([private.getsockname()[1]])
        assert read_device(private) == b"lo"
        assert read_device(public) == b""


def test_port_that_cannot_be_protected_is_an_error() -> None:
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(HardwareError, match="cannot keep the data worker to this machine") as raised:
        keep_to_loopback([port])
    assert "--host" in raised.value.next_step
