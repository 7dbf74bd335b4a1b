"""The serving side of `data.data_service`: a tf.data worker, and a dispatcher unless another one is joined."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import tensorflow as tf

from myxtts.errors import DataError
from myxtts.pipeline.service_place import ServicePlace, keep_to_loopback
from myxtts.pipeline.service_probe import find_obstacle, join_address, skip_proxies, split_address

_HEARTBEAT_MS = 1000
_NUM_CHUNKS_KEPT = 32
_PROBE_LIMIT_S = 1.0


class DataHost:
    """Serves from when it is made until `stop`; use it as a context."""

    def __init__(self, place: ServicePlace) -> None:
        skip_proxies()
        self._place = place
        service = tf.data.experimental.service
        self._dispatcher: Any = None
        self._folder: TemporaryDirectory[str] | None = None
        if place.joined is None:
            # Kept on disk, since a dispatcher never forgets what it was asked to have made.
            self._folder = TemporaryDirectory(prefix="myxtts-data-worker-")
            config = service.DispatcherConfig(port=place.port, work_dir=self._folder.name)
            self._dispatcher = _start(service.DispatchServer, config, f"a dispatcher at port {place.port}")
        self.address = place.joined or join_address(place.host, split_address(self._dispatcher.target)[1])
        config = service.WorkerConfig(
            dispatcher_address=self.address,
            worker_address=f"{join_address(place.host, 0).removesuffix('0')}%port%",
            port=place.port if place.joined else 0,
            heartbeat_interval_ms=_HEARTBEAT_MS,
        )
        self._worker = _start(service.WorkerServer, config, f"a worker for {self.address}")
        self.worker_address = join_address(place.host, split_address(self._worker._address)[1])
        if place.is_private:
            own = (self.worker_address,) if place.joined else (self.address, self.worker_address)
            keep_to_loopback(split_address(address)[1] for address in own)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._worker.stop()
        if self._dispatcher is not None:
            self._dispatcher.stop()
        if self._folder is not None:
            self._folder.cleanup()

    def describe(self) -> str:
        """What it does now, in one line."""
        num_tasks = self._worker._num_tasks()
        work = f"working on {num_tasks} chunk{'s' if num_tasks > 1 else ''} of batches" if num_tasks else "idle"
        if self._dispatcher is None:
            obstacle = find_obstacle(self.address, _PROBE_LIMIT_S)
            return f"the dispatcher at {self.address} does not answer ({obstacle})" if obstacle else work
        num_workers = self._dispatcher._num_workers()
        return f"{work}; {num_workers} worker{'s' if num_workers > 1 else ''} registered"

    def drop_old_chunks(self) -> None:
        """Forgets descriptions of batches that have long been made; only a worker that joins late would miss one."""
        if self._folder is None:
            return
        chunks = Path(self._folder.name) / "datasets"
        chunks.mkdir(parents=True, exist_ok=True)
        by_age = sorted(chunks.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in by_age[:-_NUM_CHUNKS_KEPT]:
            path.unlink()


def _start(server: Any, config: Any, what: str) -> Any:
    try:
        return server(config)
    except (RuntimeError, tf.errors.OpError) as error:
        raise DataError(
            f"TensorFlow cannot start {what}: {' '.join(str(error).split())}",
            next_step=f"Give the address that myxtts data-worker printed there, with TensorFlow {tf.__version__} on "
            "both sides.",
        ) from error
