"""A training's batches made by `myxtts data-worker` processes on the loopback, which are killed and ended meanwhile."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc  # type: ignore[import-untyped]
import numpy as np
import psutil
import pytest
from numpy.typing import NDArray
from tests.device_process import DeviceProcess
from tests.pipeline.recordings import (
    DATA,
    NUM_REFERENCE_FRAMES,
    PLAIN_CLIPS,
    SEED,
    copy_arrays,
    make_arrays,
    make_corpus,
    order_rows,
)

from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.corpus_file import open_corpus
from myxtts.errors import DataError
from myxtts.pipeline.batch import Loader
from myxtts.pipeline.loaders.native import TFNativeDataLoader
from myxtts.pipeline.order import BatchOrder
from myxtts.pipeline.recordings import RecordingSource
from myxtts.pipeline.service.loader import ServiceLoader, open_service_loader
from myxtts.pipeline.splits import BatchRange

NUM_BATCHES, KILLED_AT = 100, 30
QUICK: dict[str, Any] = {"_OVERTAKEN_LIMIT_S": 1.0, "_GONE_LIMIT_S": 2.0, "_MUTE_LIMIT_S": 90.0}
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "GRPC_VERBOSITY": "NONE", "COLUMNS": "200"}
Worker = subprocess.Popen[str]
Arrays = dict[str, NDArray[Any]]


def command(*arguments: str) -> list[str]:
    root = ["--allow-root"] if os.geteuid() == 0 else []
    return [sys.executable, "-m", "myxtts", "data-worker", *root, *arguments]


@contextmanager
def run_worker(log: Path, *arguments: str) -> Iterator[tuple[Worker, dict[str, str]]]:
    """A data worker and what it prints when it is ready; it does not outlive the block."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            command(*arguments, "--json"),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **QUIET, "TMPDIR": str(log.parent)},
        )
    assert process.stdout is not None
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line == "}\n":
                break
        assert lines, log.read_text()
        yield process, json.loads("".join(lines))
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(autouse=True)
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUICK.items():
        monkeypatch.setattr(f"myxtts.pipeline.service.loader.{name}", value)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> RecordingSource:
    return RecordingSource.open(make_corpus(tmp_path_factory.mktemp("service"), PLAIN_CLIPS), DATA)


def open_loader(source: RecordingSource, order: BatchOrder, address: str, said: list[str]) -> ServiceLoader:
    loader, messages = open_service_loader(
        source,
        DATA.model_copy(update={"data_service": address}),
        BatchRange(order, 0, NUM_BATCHES, (0, 1)),
        NUM_REFERENCE_FRAMES,
        SEED,
        0,
        said.append,
    )
    assert messages == [f"Features are made by the data service at {address}."]
    return loader


def fill(loader: Loader, order: BatchOrder, position: int) -> Arrays:
    plan = order.batch(position)
    return copy_arrays(loader.fill(plan, make_arrays(plan)))


def check_equal(batches: Sequence[Arrays], loader: Loader, order: BatchOrder) -> None:
    for position, batch in enumerate(batches):
        for name, values in fill(loader, order, position).items():
            np.testing.assert_allclose(batch[name], values, rtol=0, atol=1e-4, err_msg=f"{name} of {position}")


def test_killed_worker_costs_no_batch(source: RecordingSource, tmp_path: Path) -> None:
    order, said = order_rows(source), list[str]()
    native = TFNativeDataLoader(source, AudioLimits.from_config(DATA), NUM_REFERENCE_FRAMES, SEED)
    with (
        run_worker(tmp_path / "first", "--port", "0") as (first, ready),
        run_worker(tmp_path / "second", "--join", ready["address"]) as (second, joined),
    ):
        assert joined["address"] == ready["address"]
        assert len({ready["address"], ready["worker"], joined["worker"]}) == 3
        loader = open_loader(source, order, ready["address"], said)

        def fill_or_kill(position: int) -> Arrays:
            if position == KILLED_AT:
                second.kill()
            return fill(loader, order, position)

        with ThreadPoolExecutor(3) as pool:
            batches = list(pool.map(fill_or_kill, range(NUM_BATCHES)))
        loader.close()
        assert first.poll() is None
    check_equal(batches, native, order)
    assert loader.num_received + loader.num_lost <= NUM_BATCHES
    assert loader.num_received > NUM_BATCHES / 2
    assert len(said) == min(1, loader.num_lost)
    assert "2 workers registered" in (tmp_path / "first").read_text()


def lose_recording_and_dispatcher(folder: str, address: str, pid: int) -> dict[str, str]:
    """What is said when a recording is missing everywhere, at the worker only, and when the dispatcher has ended.

    Runs in a process of its own: TensorFlow goes on calling a dispatcher that has died, and logs each failure.
    """
    source = RecordingSource.open(open_corpus(Path(folder) / "corpus"), DATA)
    order = order_rows(source)
    victim = source.audio_path(int(order.batch(0).rows[0]))
    # Nothing counts as lost before the dispatcher counts as gone.
    with patch.multiple("myxtts.pipeline.service.loader", **{**QUICK, "_OVERTAKEN_LIMIT_S": 60.0}):
        missing, unreachable, silent = (open_loader(source, order, address, []) for _ in range(3))
        Path(victim).rename(f"{victim}.away")
        said = {"missing": catch(lambda: fill(missing, order, 0))}
        # As if it were there for this process and not for the worker.
        with patch("myxtts.pipeline.service.host.os.access", lambda *_: True):
            said["unreachable"] = catch(lambda: fill(unreachable, order, 0))
        Path(f"{victim}.away").rename(victim)
        fill(silent, order, 0)
        os.kill(pid, signal.SIGTERM)
        wait_for_end(pid)
        with ThreadPoolExecutor(3) as pool:
            said["silent"] = catch(
                lambda: list(pool.map(lambda position: fill(silent, order, position), range(1, NUM_BATCHES)))
            )
        for loader in (missing, unreachable, silent):
            loader.close()
    return {**said, "victim": victim}


def wait_for_end(pid: int) -> None:
    """Until a process has ended; one whose parent has not asked for its exit status yet stays as a zombie."""
    with suppress(psutil.NoSuchProcess):
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.05)


def catch(run: Callable[[], object]) -> str:
    with pytest.raises(DataError) as raised:
        run()
    return raised.value.problem


def test_dispatcher_that_ends_is_an_error_and_so_is_a_missing_recording(tmp_path: Path) -> None:
    make_corpus(tmp_path, PLAIN_CLIPS)
    with run_worker(tmp_path / "log", "--port", "0") as (worker, ready), DeviceProcess(1) as process:
        said = process.run(
            "tests.integration.test_data_service:lose_recording_and_dispatcher",
            folder=str(tmp_path),
            address=ready["address"],
            pid=worker.pid,
        )
        assert worker.wait(120) == 143
    victim = said["victim"]
    assert re.search(rf"{Path(victim).stem} .*missing-file", said["missing"])
    assert re.search(rf"worker .* {ready['address']} cannot open {victim}", said["unreachable"])
    assert re.search(rf"{ready['address']} .*does not answer any more", said["silent"])


def find_own_address() -> str:
    """An address of this machine that is not the loopback's; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def can_connect(host: str, address: str) -> bool:
    with socket.socket() as probe:
        probe.settimeout(20.0)
        return probe.connect_ex((host, int(address.rpartition(":")[2]))) == 0


def test_worker_is_for_this_machine_alone_keeps_its_port_and_ends_on_ctrl_c(tmp_path: Path) -> None:
    with run_worker(tmp_path / "log", "--port", "0") as (process, ready):
        assert ready["setting"] == f"data.data_service={ready['address']}"
        for address in (ready["address"], ready["worker"]):
            assert can_connect("127.0.0.1", address)
            assert not can_connect(find_own_address(), address) or find_own_address() == "127.0.0.1"
        port = ready["address"].rpartition(":")[2]
        again = subprocess.run(command("--port", port), capture_output=True, text=True, timeout=200)
        assert again.returncode == 8
        assert f"Port {port} is taken" in again.stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
    shown = (tmp_path / "log").read_text()
    for words in (f"--set data.data_service={ready['address']}", "Only this machine can connect", "1 worker"):
        assert words in shown
    assert "Traceback" not in shown
    assert "oneDNN" not in shown


def has_landlock() -> bool:
    return bool(ctypes.CDLL(None).syscall(444, None, 0, 1) >= 1)


def run_graph(address: str, make: Callable[[Any], Any]) -> Any:
    """What a worker gives for a graph that anybody may send."""
    import tensorflow as tf

    service = tf.data.experimental.service
    distribute = service.distribute(service.ShardingPolicy.OFF, f"grpc://{address}", compression=None)
    return next(iter(tf.data.Dataset.range(1).map(make).apply(distribute))).numpy()


def send_hostile_graphs(address: str, folder: str) -> dict[str, str]:
    """What becomes of graphs that write and read files as the worker; in a process of its own, as clients are."""
    import tensorflow as tf

    def write(number: Any) -> Any:
        with tf.control_dependencies([tf.io.write_file(f"{folder}/victim", "harm")]):
            return tf.identity(number)

    graphs = {
        "write": write,
        "secret": lambda _number: tf.io.read_file(f"{folder}/secret"),
        "recording": lambda _number: tf.strings.length(tf.io.read_file(f"{folder}/recordings/a.wav")),
        "environment": lambda _number: tf.io.read_file(f"/proc/{os.getpid()}/environ"),
    }
    said = {}
    for name, graph in graphs.items():
        try:
            said[name] = str(run_graph(address, graph))
        except tf.errors.OpError as error:
            said[name] = f"{type(error).__name__}: {error.message}"
    return said


@pytest.mark.skipif(not has_landlock(), reason="this kernel has no Landlock")
def test_graph_of_a_client_writes_no_file_and_reads_only_what_it_may(tmp_path: Path) -> None:
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / "a.wav").write_bytes(bytes(100))
    (tmp_path / "secret").write_text("key")
    recordings = ("--recordings", str(tmp_path / "recordings"))
    log = tmp_path / "log"
    with (
        run_worker(log, "--port", "0", *recordings) as (_, ready),
        run_worker(tmp_path / "log2", "--port", "0") as (_, wide),
        DeviceProcess(1) as process,
    ):
        program = "tests.integration.test_data_service:send_hostile_graphs"
        said = process.run(program, address=ready["address"], folder=str(tmp_path))
        said_wide = process.run(program, address=wide["address"], folder=str(tmp_path))
    assert said["recording"] == said_wide["recording"] == "100"
    assert not (tmp_path / "victim").exists()
    for answers in (said, said_wide):
        assert "PermissionDenied" in answers["write"], answers
    assert "PermissionDenied" in said["secret"], said
    assert "PermissionDenied" in said["environment"], said
    assert "key" in said_wide["secret"]
    assert f"It may read {tmp_path / 'recordings'}" in log.read_text()
    assert "read all that you may" in (tmp_path / "log2").read_text()


def test_program_that_leaves_a_feed_of_the_service_open_ends(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, PLAIN_CLIPS)
    with run_worker(tmp_path / "log", "--port", "0") as (_, ready):
        program = f"""
import time
from myxtts import XTTSConfig, open_batches
config = XTTSConfig(
    train_data={str(corpus.file.parent)!r}, preprocessing_mode="on_the_fly", batch_size=4, text_frontend="characters",
    data_service={ready["address"]!r},
)
batches = iter(open_batches(config))
next(batches)
print("leaving at", time.time(), flush=True)
raise SystemExit(9)
"""
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=250, env={**os.environ, **QUIET}
        )
        assert done.returncode == 9, done.stderr
        # Without an end of its own it would hang until the time limit above.
        assert time.time() - float(done.stdout.split()[-1]) < 60.0


class _OtherVersion(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A dispatcher that says it is of version 1 and knows nothing else."""

    def service(self, details: Any) -> Any:
        if not details.method.endswith("/GetVersion"):
            return None
        return grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"\x08\x01")


def test_service_of_another_version_is_an_error(source: RecordingSource) -> None:
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, handlers=[_OtherVersion()])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        order = order_rows(source)
        loader = open_loader(source, order, f"127.0.0.1:{port}", [])
        with pytest.raises(DataError, match=rf"127.0.0.1:{port} does not take batches.*version") as raised:
            fill(loader, order, 0)
        assert "TensorFlow" in raised.value.next_step
        loader.close()
        server.stop(None).wait()
