"""Loading inside the graph: what it can decode, how it agrees with the host, and as a dataset without Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray
from tests.pipeline.recordings import (
    DATA,
    FORMATS,
    MIXED_CLIPS,
    NUM_REFERENCE_FRAMES,
    PLAIN_CLIPS,
    SEED,
    Clip,
    copy_arrays,
    list_plans,
    make_arrays,
    make_corpus,
    order_rows,
    remove,
    replace_by_noise,
    truncate,
)

from myxtts.config.schema import DataConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.corpus_file import open_corpus
from myxtts.errors import DataError
from myxtts.pipeline.batch import Loader
from myxtts.pipeline.loaders.native import TFNativeDataLoader
from myxtts.pipeline.loaders.python import PythonLoader
from myxtts.pipeline.loaders.recording_graph import RecordingGraph
from myxtts.pipeline.order import BatchPlan
from myxtts.pipeline.recordings import RecordingSource

LIMITS = AudioLimits.from_config(DATA)
PLENTY_BYTES = 1 << 30
# Mean error in log-mel where a recording is resampled, in the graph by a filter of its own.
RESAMPLED_MEAN_ERROR = 1e-3
PYTHON_OPERATIONS = {"PyFunc", "PyFuncStateless", "EagerPyFunc", "GeneratorDataset"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> RecordingSource:
    return open_source(tmp_path_factory.mktemp("plain"), PLAIN_CLIPS)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> RecordingSource:
    return open_source(tmp_path_factory.mktemp("mixed"), MIXED_CLIPS)


def open_source(folder: Path, clips: Sequence[Clip], data: DataConfig = DATA, **options: Any) -> RecordingSource:
    return RecordingSource.open(make_corpus(folder, clips, data, **options), data)


def make_loader(source: RecordingSource, ram_budget_bytes: int = 0) -> TFNativeDataLoader:
    return TFNativeDataLoader(source, LIMITS, NUM_REFERENCE_FRAMES, SEED, ram_budget_bytes)


def fill(loader: Loader, source: RecordingSource, plan: BatchPlan) -> dict[str, NDArray[Any]]:
    return copy_arrays(loader.fill(plan, make_arrays(plan, source.n_mels)))


def plan_one_batch(source: RecordingSource) -> BatchPlan:
    return order_rows(source, batch_size=len(source), num_shapes=1).batch(0)


def compare_with_python(source: RecordingSource) -> NDArray[np.float64]:
    """The mean error of each row in log-mel; lengths must be equal."""
    plan = plan_one_batch(source)
    expected = fill(PythonLoader(source, LIMITS, NUM_REFERENCE_FRAMES, SEED), source, plan)
    batch = fill(make_loader(source), source, plan)
    np.testing.assert_array_equal(batch["mel_lengths"], expected["mel_lengths"])
    difference = np.abs(batch["mel"] - expected["mel"]).mean(axis=2)
    errors = np.zeros(len(source))
    errors[plan.rows] = difference.sum(axis=1) / expected["mel_lengths"]
    return errors


@pytest.mark.parametrize("trim_silence", [True, False])
@pytest.mark.parametrize("loudness", ["rms", "peak", "none"])
def test_features_agree_with_the_host_under_every_setting(tmp_path: Path, trim_silence: bool, loudness: str) -> None:
    data = DATA.model_copy(update={"trim_silence": trim_silence, "loudness": loudness})
    clips = [Clip(0.6, pause_s=0.2), Clip(0.8, num_channels=2), Clip(0.5)]
    assert compare_with_python(open_source(tmp_path, clips, data)).max() < 1e-5


@pytest.mark.parametrize("rate_hz", [16_000, 24_000, 44_100, 48_000])
def test_resampled_features_agree_with_the_host(tmp_path: Path, rate_hz: int) -> None:
    errors = compare_with_python(open_source(tmp_path, [Clip(0.9, rate_hz=rate_hz, pause_s=0.1)] * 2))
    assert errors.max() < RESAMPLED_MEAN_ERROR


def test_recordings_of_several_rates_share_a_batch(tmp_path: Path) -> None:
    clips = [Clip(0.7, rate_hz=rate_hz) for rate_hz in (22_050, 48_000, 16_000, 22_050, 44_100)]
    errors = compare_with_python(open_source(tmp_path, clips))
    assert errors.max() < RESAMPLED_MEAN_ERROR
    assert (errors < 1e-5).sum() >= 2


def test_rows_are_loaded_whichever_way_decodes_them(mixed: RecordingSource) -> None:
    loader, python = make_loader(mixed), PythonLoader(mixed, LIMITS, NUM_REFERENCE_FRAMES, SEED)
    rows = range(len(mixed))
    assert 0 < loader.survey.num_native < len(mixed)
    expected = python.load_rows(rows)
    for row, mel in loader.load_rows(rows).items():
        np.testing.assert_allclose(mel, expected.pop(row), rtol=0, atol=1e-4)
    assert not expected


def test_all_batches_share_one_trace(plain: RecordingSource, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = []
    load_all = RecordingGraph.load_all

    def count(self: RecordingGraph, *inputs: Any) -> Any:
        traces.append(inputs)
        return load_all(self, *inputs)

    monkeypatch.setattr(RecordingGraph, "load_all", count)
    loader = make_loader(plain)
    for batch_size in (1, 3, 4):
        for plan in list_plans(order_rows(plain, batch_size)):
            fill(loader, plain, plan)
    assert len(traces) == 1


def test_second_epoch_needs_no_file(tmp_path: Path) -> None:
    source = open_source(tmp_path, MIXED_CLIPS)
    loader, plan = make_loader(source, PLENTY_BYTES), plan_one_batch(source)
    first = fill(loader, source, plan)
    assert len(loader.memory) == len(source)
    for row in range(len(source)):
        Path(source.audio_path(row)).unlink()
    for name, values in fill(loader, source, plan).items():
        np.testing.assert_array_equal(values, first[name], err_msg=name)


def test_half_precision_is_that_of_a_store(tmp_path: Path) -> None:
    source = open_source(tmp_path, PLAIN_CLIPS[:3], DATA.model_copy(update={"mel_dtype": "float16"}))
    plan = plan_one_batch(source)
    mel = fill(make_loader(source), source, plan)["mel"][0, :20]
    assert (mel == mel.astype(np.float16)).all()
    from_dataset = next(iter(make_loader(source).dataset([plan])))["mel"][0, :20]
    np.testing.assert_allclose(from_dataset, mel, rtol=2e-3)
    assert (from_dataset.numpy() == from_dataset.numpy().astype(np.float16)).all()


def test_every_format_is_loaded_in_the_way_it_can_be(tmp_path: Path) -> None:
    source = open_source(tmp_path, [clip for clip, _ in FORMATS.values()])
    errors = dict(zip(FORMATS, compare_with_python(source), strict=True))
    assert errors.pop("another rate") < RESAMPLED_MEAN_ERROR
    assert {name: error for name, error in errors.items() if error > 1e-5} == {}


# Recordings that are not what they were.


def record_longer(path: Path) -> None:
    Clip(2.0).write(path, seed=1)


def record_at_another_rate(path: Path) -> None:
    Clip(0.3, rate_hz=44_100).write(path, seed=1)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (remove, "missing-file"),
        (truncate, "truncated"),
        (replace_by_noise, "unreadable"),
        (record_longer, "changed-since-checked"),
        (record_at_another_rate, "changed-since-checked"),
    ],
)
@pytest.mark.parametrize("when", ["before opening", "after opening"])
def test_recording_that_cannot_be_used_is_named(
    tmp_path: Path, harm: Callable[[Path], None], reason: str, when: str
) -> None:
    source = open_source(tmp_path, PLAIN_CLIPS[:4])
    victim = source.utterance(2)
    loader = make_loader(source) if when == "after opening" else None
    harm(Path(victim.audio))
    with pytest.raises(DataError) as raised:
        fill(loader or make_loader(source), source, plan_one_batch(source))
    for part in (victim.id, victim.audio, reason):
        assert part in raised.value.problem
    assert raised.value.next_step


def test_changed_recording_is_noticed_even_where_the_host_would_take_it(tmp_path: Path) -> None:
    source = open_source(tmp_path, PLAIN_CLIPS[:4], headers_only=True)
    loader = make_loader(source)
    Clip(0.4).write(Path(source.audio_path(2)), seed=1)
    with pytest.raises(DataError, match=r"clip02 .*clip02.wav.*changed since it was checked"):
        fill(loader, source, plan_one_batch(source))


def test_text_longer_than_what_trimming_leaves_is_refused(tmp_path: Path) -> None:
    make_corpus(tmp_path, [Clip(), Clip(), Clip(0.1, pause_s=1.0)])
    source = RecordingSource.open(open_corpus(tmp_path / "corpus"), DATA.model_copy(update={"hop_length": 1024}))
    loader, plan = make_loader(source), plan_one_batch(source)
    with pytest.raises(DataError, match=r"clip02 .*tokens for \d+ frames.*more-tokens-than-frames"):
        fill(loader, source, plan)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"More tokens than frames of sound(.|\n)*clip02"):
        list(loader.dataset([plan]))


def test_failure_of_tensorflow_itself_is_passed_on_with_the_utterances(
    plain: RecordingSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_graph: RecordingGraph, paths: Any, *rest: Any) -> Any:
        tf.debugging.Assert(tf.size(paths) < 0, ["out of order"])
        return paths, paths

    monkeypatch.setattr(RecordingGraph, "load_all", fail)
    with pytest.raises(DataError, match=r"clip00.*clip10.*out of order.*use_tf_native_loading"):
        fill(make_loader(plain), plain, plan_one_batch(plain))


# The dataset.


def test_dataset_gives_the_batches_of_the_plans_in_order(plain: RecordingSource) -> None:
    loader = make_loader(plain)
    plans = list_plans(order_rows(plain), num_epochs=2)
    batches = list(loader.dataset(plans).as_numpy_iterator())
    assert [batch["position"] for batch in batches] == [plan.position for plan in plans]
    for batch, plan in zip(batches, plans, strict=True):
        check_batch(batch, loader, plain, plan)


def check_batch(batch: dict[str, Any], loader: TFNativeDataLoader, source: RecordingSource, plan: BatchPlan) -> None:
    assert tuple(name.decode() for name in batch["ids"]) == loader.name_utterances(plan)
    assert batch["num_real"] == plan.num_real
    for name, values in fill(loader, source, plan).items():
        assert batch[name].dtype == values.dtype, name
        np.testing.assert_allclose(batch[name], values, rtol=0, atol=1e-5, err_msg=name)


def test_sizes_that_all_batches_share_are_static(plain: RecordingSource) -> None:
    loader = make_loader(plain)
    alike, varied = order_rows(plain, num_shapes=1), order_rows(plain, num_shapes=2, multiple_of=2)
    shape = alike.shapes[0]
    spec = loader.dataset(list_plans(alike)).element_spec
    assert spec["mel"].shape == [shape.num_utterances, shape.num_frames, DATA.n_mels]
    assert spec["tokens"].shape == [shape.num_utterances, shape.num_tokens]
    assert len({shape.num_frames for shape in varied.shapes}) == 2
    spec = loader.dataset(list_plans(varied)).element_spec
    assert spec["mel"].shape.as_list() == [shape.num_utterances, None, DATA.n_mels]
    assert spec["reference"].shape == [shape.num_utterances, NUM_REFERENCE_FRAMES, DATA.n_mels]


def list_operations(dataset: tf.data.Dataset) -> set[str]:
    """Every operation of a dataset, those of its functions included."""
    variant = tf.data.experimental.to_variant(dataset)
    graph = tf.compat.v1.GraphDef.FromString(tf.raw_ops.DatasetToGraphV2(input_dataset=variant).numpy())
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return {node.op for node in nodes}


def test_no_python_runs_in_the_dataset(plain: RecordingSource) -> None:
    operations = list_operations(make_loader(plain).dataset(list_plans(order_rows(plain))))
    assert {"ReadFile", "RFFT", "ParallelMapDatasetV2"} <= operations
    assert not operations & PYTHON_OPERATIONS
    in_python = tf.data.Dataset.range(3).map(lambda number: tf.numpy_function(np.sqrt, [number], tf.float64))
    assert list_operations(in_python) & PYTHON_OPERATIONS


def test_serialised_dataset_gives_the_same_batches(plain: RecordingSource) -> None:
    loader = make_loader(plain)
    plans = list_plans(order_rows(plain))
    dataset = loader.dataset(plans)
    graph = tf.raw_ops.DatasetToGraphV2(input_dataset=tf.data.experimental.to_variant(dataset))
    variant = tf.raw_ops.DatasetFromGraph(graph_def=graph)
    again = tf.data.experimental.from_variant(variant, dataset.element_spec)
    for batch, plan in zip(again.as_numpy_iterator(), plans, strict=True):
        check_batch(batch, loader, plain, plan)


@contextmanager
def run_service() -> Iterator[str]:
    """A tf.data service with one worker in this process; gives its address."""
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer(service.DispatcherConfig(port=0))
    address = dispatcher.target.removeprefix("grpc://")
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address, heartbeat_interval_ms=100))
    try:
        yield dispatcher.target
    finally:
        worker.stop()
        dispatcher.stop()


def test_a_service_gives_the_same_batches(plain: RecordingSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    loader = make_loader(plain)
    plans = list_plans(order_rows(plain))
    with run_service() as address:
        distribute = tf.data.experimental.service.distribute("parallel_epochs", address, max_outstanding_requests=1)
        batches = list(loader.dataset(plans).apply(distribute).as_numpy_iterator())
    assert sorted(int(batch["position"]) for batch in batches) == [plan.position for plan in plans]
    for batch in batches:
        check_batch(batch, loader, plain, plans[int(batch["position"])])


def test_dataset_refuses_what_needs_python(mixed: RecordingSource) -> None:
    with pytest.raises(DataError, match=r"\d of 10 recordings cannot be decoded by TensorFlow alone .*FLAC") as raised:
        make_loader(mixed).dataset([plan_one_batch(mixed)])
    assert "16-bit WAV" in raised.value.next_step


def test_dataset_stops_at_a_changed_recording(tmp_path: Path) -> None:
    source = open_source(tmp_path, PLAIN_CLIPS[:4])
    dataset = make_loader(source).dataset([plan_one_batch(source)])
    record_longer(Path(source.audio_path(2)))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"changed since it was checked(.|\n)*clip02"):
        list(dataset)
