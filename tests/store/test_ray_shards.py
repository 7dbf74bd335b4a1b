"""Features made on a Ray cluster of two nodes' processes, one of them killed: the store is that of one machine.

The cluster is real, and so are its workers; what only hosts with other disks or versions could show is asked of the
task itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from tests.store.corpora import CHUNK, DATA, SmallCorpus, make_small_corpus, small_segments, take_snapshot

from myxtts import __version__
from myxtts.config.schema import XTTSConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.corpus_file import open_corpus
from myxtts.errors import HardwareError, StorageError, UsageError
from myxtts.store.layout import StoreSettings, read_state
from myxtts.store.provide import Report, make_features
from myxtts.store.ray_shards import RayShards, make_shard
from myxtts.store.shard import Task

ROOT = Path(__file__).parents[2]
NUM_UTTERANCES = 26
TASK_TITLE = "ray::make_shard"
"""Ray calls a worker process so while it runs a task."""


ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "0123456789abcdef" * 4,
    "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
}


def start_node(*arguments: str) -> None:
    environment = {**os.environ, **ENVIRONMENT}
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus=1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster of two nodes, each with its own processes."""
    if find_spec("ray") is None:
        pytest.skip("the extra ray is not installed")
    before = {process.pid for process in psutil.process_iter()}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    try:
        start_node("--head", f"--port={port}", "--include-dashboard=false")
        address = f"127.0.0.1:{port}"
        start_node(f"--address={address}")
        with pytest.MonkeyPatch.context() as patch:
            for name, value in ENVIRONMENT.items():
                patch.setenv(name, value)
            yield address
    finally:
        for process in psutil.process_iter(["pid", "cmdline"]):
            if process.pid not in before and any(str(port) in part for part in process.info["cmdline"] or ()):
                process.kill()


class KillOneWorker(threading.Thread):
    """Kills the first worker that is seen at a task."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.victim: int | None = None
        self.is_over = threading.Event()

    def run(self) -> None:
        while self.victim is None and not self.is_over.is_set():
            for process in psutil.process_iter(["pid", "cmdline"]):
                if (process.info["cmdline"] or [""])[0].startswith(TASK_TITLE):
                    os.kill(process.pid, signal.SIGKILL)
                    self.victim = process.pid
                    return
            time.sleep(0.01)


def make_corpus(folder: Path) -> SmallCorpus:
    corpus = make_small_corpus(folder, NUM_UTTERANCES)
    # One that cannot be used, so that rejections are compared too: it is there when the corpus is prepared.
    corpus.audio("clip07").write_bytes(corpus.audio("clip07").read_bytes()[:1000])
    return corpus


def run(corpus: SmallCorpus, store: Path, address: str | None) -> dict[str, Any]:
    data = {**DATA.model_dump(), "train_data": str(corpus.folder / "corpus"), "cache_dir": str(store)}
    with small_segments(CHUNK):
        return make_features(XTTSConfig(data=data), Report(), ray_address=address)


def read_files(store: Path) -> dict[str, bytes]:
    """All segments of a store, to the byte."""
    files = sorted((store / "generation-0001").iterdir())
    return {path.name: path.read_bytes() for path in files if path.stem.isdecimal()}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> SmallCorpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def alone(corpus: SmallCorpus) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Files and summary of the store that one machine makes."""
    store = corpus.folder / "alone"
    summary = run(corpus, store, None)
    return read_files(store), summary


def test_a_worker_that_is_killed_leaves_the_store_of_one_machine(
    cluster: str, corpus: SmallCorpus, alone: tuple[dict[str, bytes], dict[str, Any]]
) -> None:
    store = corpus.folder / "together"
    killer = KillOneWorker()
    killer.start()
    try:
        summary = run(corpus, store, cluster)
    finally:
        killer.is_over.set()
        killer.join()
    assert killer.victim is not None
    files, expected = alone
    assert len([name for name in files if name.endswith(".mel")]) == -(-NUM_UTTERANCES // CHUNK)
    assert read_files(store) == files
    assert not list((store / "generation-0001").glob(".*"))
    assert (store / "rejections.csv").read_bytes() == (corpus.folder / "alone" / "rejections.csv").read_bytes()
    for name in ("num_made", "num_added", "num_rejected", "num_utterances", "seconds", "reasons"):
        assert summary[name] == expected[name], name


DRIVER = """
import sys
from pathlib import Path
from tests.store.corpora import SmallCorpus
from tests.store.test_ray_shards import run
run(SmallCorpus(Path(sys.argv[1])), Path(sys.argv[2]), sys.argv[3])
"""


@pytest.mark.usefixtures("alone")
def test_a_driver_that_is_killed_goes_on_where_it_was(cluster: str, corpus: SmallCorpus) -> None:
    store = corpus.folder / "resumed"
    environment = {**os.environ, "MYXTTS_FAULT": "segment_adopt:3:kill"}
    command = [sys.executable, "-c", DRIVER, str(corpus.folder), str(store), cluster]
    assert subprocess.run(command, env=environment, timeout=120).returncode == -signal.SIGKILL
    assert read_state(store) is None
    summary = run(corpus, store, cluster)
    assert summary["num_kept"] == 2 * CHUNK - 1
    # What was rejected is tried again and leaves a number unused: the content is the same, names of files are not.
    assert take_snapshot(store) == take_snapshot(corpus.folder / "alone")
    assert not list((store / "generation-0001").glob(".*"))


@pytest.fixture
def job(corpus: SmallCorpus, tmp_path: Path) -> dict[str, Any]:
    """What a worker is told of a store."""
    (tmp_path / "token").write_text("abc")
    opened = open_corpus(corpus.folder / "corpus")
    return {
        "version": __version__,
        "settings": asdict(StoreSettings.of(DATA, opened.load_frontend().fingerprint())),
        "limits": asdict(AudioLimits.from_config(DATA)),
        "corpus": str(opened.file),
        "staging": str(tmp_path),
        "token": "abc",
    }


def ask_worker(job: dict[str, Any]) -> list[str]:
    """Kind, problem and next step of what a worker answers to a shard without utterances; [] if nothing is wrong."""
    error: list[str] = json.loads(make_shard(json.dumps(job), 0, "[]")).get("error", [])
    return error


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"version": "0.0.1"}, "hardware", f"version {__version__} there, and of version 0.0.1"),
        ({"token": "of another folder"}, "hardware", "the folder {parent} does not exist, or is another one"),
        ({"staging": "/gone/generation-0001/staging"}, "hardware", "the folder /gone/generation-0001 does not exist"),
        ({"corpus": "/gone/corpus/corpus.jsonl"}, "hardware", "the folder /gone/corpus does not exist"),
    ],
)
def test_a_host_that_cannot_make_the_same_store_is_named(
    job: dict[str, Any], changes: dict[str, str], kind: str, words: str
) -> None:
    assert ask_worker(job) == []
    found, problem, next_step = ask_worker(job | changes)
    assert found == kind
    assert problem.startswith(f"On the host {socket.gethostname()}: ")
    assert words.format(parent=Path(job["staging"]).parent) in problem
    assert next_step


def test_a_front_end_that_encodes_otherwise_is_refused(job: dict[str, Any]) -> None:
    job["settings"]["frontend"] = "other"
    assert "encoded in another way" in ask_worker(job)[1]


class FakeRay:
    """Runs tasks where they are submitted; `answer` changes what a worker returns."""

    exceptions = SimpleNamespace(RayError=ConnectionResetError)

    def __init__(self, answer: Any = lambda text: text) -> None:
        self._answer = answer

    def remote(self, **_: Any) -> Any:
        return lambda function: SimpleNamespace(remote=function)

    def get(self, reference: str) -> Any:
        return self._answer(reference)


@pytest.mark.parametrize(
    ("address", "error", "words"),
    [("127.0.0.1:1", HardwareError, "Nothing answers at 127.0.0.1:1"), ("auto", UsageError, "auto is no address")],
)
def test_an_address_without_a_cluster_is_refused_at_once(
    corpus: SmallCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, error: Any, words: str
) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    with pytest.raises(error, match=words) as caught:
        run(corpus, tmp_path / "store", address)
    assert "local" in caught.value.next_step


def make_with(ray: FakeRay, corpus: SmallCorpus, folder: Path) -> list[Any]:
    opened = open_corpus(corpus.folder / "corpus")
    settings = StoreSettings.of(DATA, opened.load_frontend().fingerprint())
    shards = RayShards(ray, 2, settings, AudioLimits.from_config(DATA), opened)
    tasks = [Task(one, line, 1, 1, {}, None) for line, one in enumerate(opened.utterances())]
    return list(shards.run([tasks[:3], tasks[3:6]], folder, 0))


def test_a_recording_that_only_another_host_misses_ends_the_run_instead_of_being_left_out(
    corpus: SmallCorpus, tmp_path: Path
) -> None:
    def miss(text: str) -> str:
        answer = json.loads(text)
        answer["outcomes"][1] = ["missing-file", "there is no such file"]
        return json.dumps({**answer, "host": "node-7"})

    assert len(make_with(FakeRay(), corpus, tmp_path)) == 6
    with pytest.raises(HardwareError, match=r"host node-7 does not see the recording .*clip01\.wav") as caught:
        make_with(FakeRay(miss), corpus, tmp_path)
    assert "Mount the folder" in caught.value.next_step
    assert not list(tmp_path.glob(".shards-*"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("System error\nModuleNotFoundError: No module named 'myxtts'", "cannot run this program"),
        ("The worker died unexpectedly", "could not be made on the Ray cluster"),
    ],
)
def test_what_ray_itself_reports_is_explained(corpus: SmallCorpus, tmp_path: Path, text: str, words: str) -> None:
    def fail(_: str) -> str:
        raise ConnectionResetError(text)

    with pytest.raises(HardwareError, match=words) as caught:
        make_with(FakeRay(fail), corpus, tmp_path)
    assert caught.value.next_step


def test_an_error_of_a_worker_keeps_its_kind(corpus: SmallCorpus, tmp_path: Path) -> None:
    full = json.dumps({"error": ["storage", "On the host node-7: the disk is full.", "Free some space."]})
    with pytest.raises(StorageError, match="node-7"):
        make_with(FakeRay(lambda _: full), corpus, tmp_path)
