"""How fast recordings become spectrograms, measured against librosa on the same clips in the same run."""

from __future__ import annotations

import functools
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.alone import QuietMoments, run_alone
from benchmarks.clips import write_clips
from benchmarks.harness import Measurement
from benchmarks.librosa_and_tfrecord import make_librosa
from myxtts.config.schema import DataConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.features.audio import load_recording
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.features.mel import HostMel
from myxtts.runtime.timing import time_in_turns

_NUM_CLIPS = 60
_CLIP_SECONDS = (6.0, 6.0001)
_PLAIN = DataConfig(trim_silence=False, loudness="none")
_PROCESSED = DataConfig()
_NUM_ROUNDS = 9
_NUM_SCALING_ROUNDS = 20
_PATIENCE_S = 60.0

Computation = Callable[[Path], object]


def measure_features() -> list[Measurement]:
    with tempfile.TemporaryDirectory() as name:
        write_clips(Path(name) / "clips", _NUM_CLIPS, _CLIP_SECONDS)
        folder = str(Path(name) / "clips")
        host, graph = run_alone(compare_host, folder), run_alone(compare_graph, folder)
        scaling = run_alone(compare_threads, folder)
    return [
        _compare("host features, WAV to log-mel, CPU time of librosa", host, "plain", 1 / 3),
        _compare("the same with trimming and loudness, CPU time of librosa", host, "processed", 0.4),
        _describe_scaling(scaling),
        _compare("graph features on the host, WAV to log-mel, CPU time of librosa", graph, "graph", 1 / 2),
    ]


def compare_host(folder: str) -> dict[str, float]:
    actions = {
        "librosa": make_librosa(MelDefinition.from_config(_PLAIN)),
        "plain": make_host(_PLAIN),
        "processed": make_host(_PROCESSED),
    }
    return _time_clips(folder, actions)


def compare_graph(folder: str) -> dict[str, float]:
    actions = {
        "librosa": make_librosa(MelDefinition.from_config(_PLAIN)),
        "graph": make_graph(uses_own_decoder=True),
        "tensorflow's decoder": make_graph(uses_own_decoder=False),
    }
    return _time_clips(folder, actions)


def compare_threads(folder: str) -> dict[str, float]:
    """Wall time of all clips by one thread, by two threads and by two processes, which share no interpreter.

    Two threads need two free processors, so each round waits for them.
    """
    compute, paths = make_host(_PLAIN), sorted(Path(folder).iterdir()) * 2
    with _Helper(compute, paths[1::2]) as helper:
        actions = {
            "one": lambda: _compute_all(compute, paths),
            "threads": lambda: _compute_in_two_threads(compute, paths),
            "processes": lambda: helper.share(lambda: _compute_all(compute, paths[::2])),
        }
        seconds = time_in_turns(actions, _NUM_SCALING_ROUNDS, before_round=QuietMoments(_PATIENCE_S).wait)
    return {name: min(values) for name, values in seconds.items()}


def make_host(data: DataConfig) -> Computation:
    compute = HostMel(MelDefinition.from_config(data))
    audio, limits = AudioDefinition.from_config(data), AudioLimits.from_config(data)
    return lambda path: compute(load_recording(str(path), audio, limits).wave.samples)


def make_graph(*, uses_own_decoder: bool) -> Computation:
    import tensorflow as tf

    from myxtts.features.mel_graph import GraphMel, decode_wav

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    mel = GraphMel(MelDefinition.from_config(_PLAIN))

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)])  # type: ignore[untyped-decorator]
    def compute(path: object) -> object:
        content = tf.io.read_file(path)
        if uses_own_decoder:
            return mel.single(decode_wav(content)[0])
        return mel.single(tf.reshape(tf.audio.decode_wav(content, desired_channels=1)[0], [-1]))

    concrete, make_name = compute.get_concrete_function(), functools.cache(lambda path: tf.constant(str(path)))
    return lambda path: concrete(make_name(path))


def _time_clips(folder: str, computations: dict[str, Computation]) -> dict[str, float]:
    """Milliseconds of CPU time a clip."""
    paths = sorted(Path(folder).iterdir())
    actions = {name: _repeat(compute, paths) for name, compute in computations.items()}
    seconds = time_in_turns(actions, _NUM_ROUNDS, time.process_time)
    return {name: 1000 * min(values) / len(paths) for name, values in seconds.items()}


def _repeat(compute: Computation, paths: Sequence[Path]) -> Callable[[], None]:
    return lambda: _compute_all(compute, paths)


def _compute_all(compute: Computation, paths: Sequence[Path]) -> None:
    for path in paths:
        compute(path)


def _compute_in_two_threads(compute: Computation, paths: Sequence[Path]) -> None:
    threads = [threading.Thread(target=_compute_all, args=(compute, paths[start::2])) for start in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class _Helper:
    """A second process that computes its share whenever it is asked to."""

    def __init__(self, compute: Computation, paths: Sequence[Path]) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=self._serve, args=(other, compute, paths), daemon=True)

    def __enter__(self) -> _Helper:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.send(False)
        self._process.join()

    def share(self, action: Callable[[], None]) -> None:
        self._pipe.send(True)
        action()
        self._pipe.recv()

    @staticmethod
    def _serve(pipe: multiprocessing.connection.Connection, compute: Computation, paths: Sequence[Path]) -> None:
        while pipe.recv():
            _compute_all(compute, paths)
            pipe.send(True)


def _compare(name: str, milliseconds: dict[str, float], what: str, limit: float) -> Measurement:
    note = ", ".join(f"{key} {value:.2f} ms" for key, value in milliseconds.items())
    return Measurement(name, milliseconds[what] / milliseconds["librosa"], "x", "at most", round(limit, 4), note)


def _describe_scaling(seconds: dict[str, float]) -> Measurement:
    by_threads, by_processes = seconds["one"] / seconds["threads"], seconds["one"] / seconds["processes"]
    note = f"two processes reach {by_processes:.2f} x"
    return Measurement("host features, two threads against one", by_threads, "x", "at least", 1.7, note)
