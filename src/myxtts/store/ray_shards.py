"""Makes the shards of a store on the hosts of a Ray cluster (`myxtts precompute --ray`), for corpora of any size.

    driver: plan shard ─> Ray task ─> worker: features into a folder of its own ─> driver: commit by renames, in order

A task is one shard, its arguments and its result are JSON. A worker writes nothing but a folder with a random name
inside the generation, so a task that is killed and repeated, or that outlives its driver, harms nothing: only the
driver, which holds the lock of the store, moves the files of a finished shard to their places, once. All hosts must see
corpus and store under the same paths; each task checks that.

Trust: Ray runs whatever code a client sends and knows no password. Whoever reaches the port of a cluster can run
programs as its user, unless the cluster was started with a token (RAY_AUTH_MODE=token). Ray's servers listen at all
addresses of a machine, so the cluster that `local` starts always has a token, which no other process is told.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import signal
import socket
import uuid
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import lru_cache
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Self

from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.corpus_file import Corpus, is_prepared, open_corpus
from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.errors import HardwareError, MissingExtraError, MyXTTSError, UsageError
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.storage.atomic import TEMPORARY_SUFFIX, explain_storage_errors
from myxtts.store.index import PartEntry
from myxtts.store.layout import StoreSettings
from myxtts.store.segment import SegmentWriter, adopt_segment
from myxtts.store.shard import Made, Outcome, ShardMaker, Task
from myxtts.types import Say, Utterance

LOCAL = "local"
_VERSION = version("myxtts")
_TOKEN_FILE_NAME = "token"  # noqa: S105 -- a random name, by which hosts recognise a folder
_NUM_RETRIES = 5
"""How often Ray repeats a task whose worker or host was lost."""
_SHARDS_PER_CPU = 2
"""Shards given to the cluster ahead of the one that is committed next."""
_PROBE_LIMIT_S = 5.0
_REASONS = {str(reason): reason for reason in Reason}
_KINDS = {error.kind: error for error in MyXTTSError.__subclasses__()}


class RayCluster:
    """Context that is connected to a Ray cluster: `local` starts one on this machine, HOST:PORT names one that runs."""

    def __init__(self, address: str, num_cpus: int, say: Say) -> None:
        self._address, self._num_cpus, self._say = address, num_cpus, say
        self._ray: Any = None

    def __enter__(self) -> Self:
        # All of these are read when Ray is imported. It would report its use to its makers.
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        is_local = self._address == LOCAL
        if is_local:
            os.environ["RAY_AUTH_MODE"] = "token"
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError(
                f"--ray needs the package ray, which cannot be imported ({error}).",
                next_step="Install it: pip install 'myxtts[ray]'",
            ) from error
        self._ray = ray
        options = {"num_cpus": self._num_cpus, "include_dashboard": False} if is_local else {}
        handler = signal.getsignal(signal.SIGTERM)
        if not is_local:
            _probe(self._address)
        try:
            ray.init(self._address, log_to_driver=False, logging_level=logging.ERROR, **options)
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise HardwareError(
                f"There is no Ray cluster at {self._address} that this machine belongs to: {error}",
                next_step="Start one with ray start, on this machine too, and name its HOST:PORT; or use --ray local. "
                "A cluster with a token needs RAY_AUTH_MODE and RAY_AUTH_TOKEN here as well.",
            ) from error
        # Ray replaces the handler, and would end the process without the clean-up that ours leaves time for.
        signal.signal(signal.SIGTERM, handler)
        if self.num_cpus < 1:
            raise HardwareError(
                f"The Ray cluster at {self._address} offers no CPUs.", next_step="Start its hosts with --num-cpus."
            )
        hosts = {node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
        self._say(f"Ray: {self.num_cpus} CPUs on {len(hosts)} host{'s' if len(hosts) > 1 else ''}.")
        return self

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()

    @property
    def num_cpus(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))

    def make_shards(self, settings: StoreSettings, limits: AudioLimits, corpus: Corpus) -> RayShards:
        return RayShards(self._ray, _SHARDS_PER_CPU * self.num_cpus, settings, limits, corpus)


def _probe(address: str) -> None:
    """Raises UsageError or HardwareError where nothing listens at an address: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--ray {address} is no address.", next_step="Give HOST:PORT of a Ray cluster, or local.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PROBE_LIMIT_S).close()
    except (OSError, OverflowError) as error:
        raise HardwareError(
            f"Nothing answers at {address}, where a Ray cluster should be: {error}",
            next_step="Start it with ray start --head, or use --ray local.",
        ) from error


class RayShards:
    """Makes shards on a cluster, up to `num_ahead` at a time; see `store.shard.Shards`."""

    def __init__(self, ray: Any, num_ahead: int, settings: StoreSettings, limits: AudioLimits, corpus: Corpus) -> None:
        self._ray, self._num_ahead = ray, num_ahead
        self._common = {
            "version": _VERSION,
            "settings": asdict(settings),
            "limits": asdict(limits),
            "corpus": str(corpus.file.absolute()),
        }
        self._run_task = ray.remote(num_cpus=1, max_retries=_NUM_RETRIES)(make_shard)
        self.segments: list[int] = []

    def run(self, shards: Iterable[Sequence[Task]], folder: Path, first: int) -> Generator[tuple[Task, Outcome]]:
        token = uuid.uuid4().hex
        folder = folder.absolute()
        staging = folder / f".shards-{token}{TEMPORARY_SUFFIX}"
        with explain_storage_errors(folder, "write in"):
            staging.mkdir()
            (staging / _TOKEN_FILE_NAME).write_text(token, encoding="ascii")
        job = json.dumps({**self._common, "staging": str(staging), "token": token})
        waiting: deque[tuple[int, Sequence[Task], Any]] = deque()
        numbered = enumerate(shards, first)
        try:
            while True:
                for number, tasks in islice(numbered, self._num_ahead - len(waiting)):
                    lines = json.dumps([asdict(task) for task in tasks])
                    waiting.append((number, tasks, self._run_task.remote(job, number, lines)))
                if not waiting:
                    return
                number, tasks, reference = waiting[0]
                made_in, outcomes = self._take(reference, tasks)
                if made_in:
                    adopt_segment(staging / made_in, folder, number)
                    self.segments.append(number)
                waiting.popleft()
                yield from zip(tasks, outcomes, strict=True)
        finally:
            # Tasks that still run end with the connection to Ray; they find no folder to write in any more.
            shutil.rmtree(staging, ignore_errors=True)

    def _take(self, reference: Any, tasks: Sequence[Task]) -> tuple[str, list[Outcome]]:
        """Waits for a shard; returns its folder in the staging area ('' if nothing was written), and its outcomes.

        Raises MyXTTSError for what its worker found wrong, or where it cannot be made at all.
        """
        try:
            answer = json.loads(self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            raise _explain(error) from error
        if "error" in answer:
            kind, problem, next_step = answer["error"]
            raise _KINDS[kind](problem, next_step=next_step)
        outcomes = [_read_outcome(one) for one in answer["outcomes"]]
        for task, outcome in zip(tasks, outcomes, strict=True):
            path = task.utterance.audio
            if isinstance(outcome, AudioProblem) and outcome.reason is Reason.MISSING_FILE and Path(path).exists():
                raise HardwareError(
                    f"The host {answer['host']} does not see the recording {path}, which is there on this one.",
                    next_step=f"Mount the folder {Path(path).parent} on all hosts of the cluster, under the same path.",
                )
        return answer["folder"], outcomes


def _explain(error: Exception) -> HardwareError:
    """Translates an error of Ray itself: code that a worker cannot load, or a shard that was lost too often."""
    text = str(error).strip()
    last = text.splitlines()[-1] if text else type(error).__name__
    if "No module named" in text:
        return HardwareError(
            f"A host of the Ray cluster cannot run this program: {last}",
            next_step=f"Install myxtts[ray] {_VERSION} on every host, where ray start runs.",
        )
    return HardwareError(
        f"A shard could not be made on the Ray cluster ({type(error).__name__}): {last}",
        next_step="Look at the logs of Ray (/tmp/ray/session_latest/logs), and run the same command again: what is "
        "finished is kept.",
    )


# What follows runs on the workers.


def make_shard(job: str, number: int, tasks: str) -> str:
    """The Ray task: makes one shard in a folder of its own, and returns JSON with the outcome of every utterance."""
    host = socket.gethostname()
    try:
        common = json.loads(job)
        _check_host(common, host)
        folder = Path(common["staging"]) / uuid.uuid4().hex
        with explain_storage_errors(folder, "write in"):
            folder.mkdir()
        with ThreadPoolExecutor(1) as pool, SegmentWriter(folder, number) as segment:
            outcomes = list(_open_maker(job).write([_read_task(one) for one in json.loads(tasks)], segment, pool))
            if len(segment):
                segment.commit()
    except MyXTTSError as error:
        return json.dumps({"error": [error.kind, f"On the host {host}: {error.problem}", error.next_step]})
    written = [
        [one.reason.value, one.detail] if isinstance(one, AudioProblem) else [one.has_spectrogram, one.has_tokens]
        for one in outcomes
    ]
    return json.dumps({"host": host, "folder": folder.name if len(segment) else "", "outcomes": written})


def _check_host(job: dict[str, Any], host: str) -> None:
    """Raises HardwareError where this host has another version, or does not see the same folders as the driver."""
    if job["version"] != _VERSION:
        raise HardwareError(
            f"myxtts is of version {_VERSION} there, and of version {job['version']} where precompute was started.",
            next_step="Install the same version on all hosts.",
        )
    staging, corpus = Path(job["staging"]), Path(job["corpus"])
    token_file = staging / _TOKEN_FILE_NAME
    seen = token_file.read_text(encoding="ascii") if token_file.is_file() else ""
    for folder, is_there in ((staging.parent, seen == job["token"]), (corpus.parent, is_prepared(corpus))):
        if not is_there:
            raise HardwareError(
                f"the folder {folder} does not exist, or is another one than on the machine where precompute was "
                "started.",
                next_step=f"Mount it on {host} under the same path, from a file system that all hosts share.",
            )


@lru_cache(maxsize=1)
def _open_maker(job: str) -> ShardMaker:
    """What computes the features of a job; kept for the next shards of this process."""
    fields = json.loads(job)
    stored = fields["settings"]
    mel, audio = MelDefinition(**stored.pop("mel")), AudioDefinition(**stored.pop("audio"))
    settings = StoreSettings(mel=mel, audio=audio, **stored)
    frontend = open_corpus(fields["corpus"]).load_frontend()
    if frontend.fingerprint() != settings.frontend:
        raise HardwareError(
            "texts would be encoded in another way than where precompute was started, as with another version of "
            "espeak-ng.",
            next_step="Install the same versions on all hosts.",
        )
    return ShardMaker(settings, AudioLimits(**fields["limits"]), frontend)


def _read_task(fields: dict[str, Any]) -> Task:
    kept = {part: PartEntry(**entry) for part, entry in fields["kept"].items()}
    return Task(**{**fields, "utterance": Utterance(**fields["utterance"]), "kept": kept})


def _read_outcome(fields: list[Any]) -> Outcome:
    first, second = fields
    return AudioProblem(_REASONS[first], second) if isinstance(first, str) else Made(first, second)
