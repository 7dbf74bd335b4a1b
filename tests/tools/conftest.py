"""Fixtures that tests of several tools share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.device_process import DeviceProcess


@pytest.fixture(scope="session")
def devices() -> Iterator[DeviceProcess]:
    """A process with logical devices, for all tests of tools: starting one takes seconds."""
    with DeviceProcess() as process:
        yield process
