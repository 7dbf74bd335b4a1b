"""Multi-GPU mode on logical CPU devices: CPU:1 makes features, CPU:2 and CPU:3 train. Run by a DeviceProcess.

Shape legend: B utterances, T frames, N tokens, M mel bands.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tests.pipeline.executed import watch
from tests.pipeline.recordings import DATA, NUM_REFERENCE_FRAMES, SEED, list_plans, make_arrays, order_rows
from tests.training.toy_step import Sgd

from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.corpus_file import open_corpus
from myxtts.errors import DataError, HardwareError
from myxtts.pipeline.batch import BatchLayout, Loaded, make_device_transfer
from myxtts.pipeline.choose_loader import choose_for_data_device
from myxtts.pipeline.data_device import DataDeviceFeatures, cross_to
from myxtts.pipeline.feed import Feed
from myxtts.pipeline.loaders.python import PythonLoader
from myxtts.pipeline.order import BatchOrder, BatchPlan
from myxtts.pipeline.recordings import RecordingSource
from myxtts.pipeline.splits import BatchRange
from myxtts.pipeline.stages import Stage
from myxtts.pipeline.telemetry import Telemetry
from myxtts.runtime.strategy import setup_gpu_strategy
from myxtts.training.micro_batches import MicroBatch, distribute_parts, select_tensors
from myxtts.training.step import TrainStep
from myxtts.types import BATCH, Batch

Tensor = Any

DATA_DEVICE = "/CPU:1"
NUM_EPOCHS = 2
WIDTH = 5


class Scene:
    """A prepared corpus, and what the host does with it for the data device: "graph" and "python" decode it."""

    def __init__(self, folder: str, kind: str, **settings: Any) -> None:
        self.folder = Path(folder)
        self.data = DATA.model_copy(update={"use_tf_native_loading": kind == "graph", **settings})
        self.source = RecordingSource.open(open_corpus(self.folder / "corpus"), self.data)
        self.order = order_rows(self.source, multiple_of=2)
        self.side = choose_for_data_device(
            self.source, self.data, self.order.shapes, NUM_REFERENCE_FRAMES, SEED, DATA_DEVICE
        )

    def make_features(self, device: str = DATA_DEVICE, num_shares: int = 1) -> DataDeviceFeatures:
        definition, dtype = self.source.mel_definition, self.data.mel_dtype
        return DataDeviceFeatures(device, definition, dtype, NUM_REFERENCE_FRAMES, num_shares)

    def load(self, plan: BatchPlan) -> Loaded:
        arrays = self.side.layout.view(plan.shape, _make_memory(self.side.layout.num_bytes))
        return Loaded(plan, self.side.loader.name_utterances(plan), self.side.loader.fill(plan, arrays), 0.0)

    def load_on_host(self, plan: BatchPlan) -> Any:
        """The batch as the loader for recordings gives it."""
        loader = PythonLoader(self.source, AudioLimits.from_config(self.data), NUM_REFERENCE_FRAMES, SEED)
        return loader.fill(plan, make_arrays(plan, self.source.n_mels))


def _make_memory(num_bytes: int) -> NDArray[np.uint8]:
    """Memory that is not zero: whatever is not filled shall be seen."""
    memory = np.full(num_bytes + 64, 0x7F, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + num_bytes]


def compare_with_host(folder: str, kind: str, **settings: Any) -> dict[str, Any]:
    """How far batches of the data device are from those of the host, over all batches of some epochs."""
    scene = Scene(folder, kind, **settings)
    features = scene.make_features()
    features.warm(scene.order.shapes, scene.side.layout)
    traces_ahead = features.num_traces
    errors: dict[str, float] = {array.name: 0.0 for array in BATCH}
    means, devices, halves = [], set(), []
    plans = list_plans(scene.order, NUM_EPOCHS)
    for plan in plans:
        batch, expected = features(scene.load(plan)), scene.load_on_host(plan)
        assert batch.ids == scene.side.loader.name_utterances(plan)
        assert (batch.position, batch.num_real) == (plan.position, plan.num_real)
        for name, values in batch.arrays().items():
            wanted = expected[name]
            assert values.shape == wanted.shape, name
            assert values.dtype == wanted.dtype, name
            errors[name] = max(errors[name], float(np.abs(values.numpy() - wanted).max()))
            devices.add(values.device.rpartition("/device:")[2])
        means.append(float(np.abs(batch.mel.numpy() - expected["mel"]).mean()))
        halves.append(bool((batch.mel.numpy() == batch.mel.numpy().astype(np.float16)).all()))
    return {
        "errors": errors,
        "mean_error": max(means),
        "devices": sorted(devices),
        "are_halves": all(halves),
        "num_shapes": len({plan.shape for plan in plans}),
        "num_partial": sum(plan.num_real < plan.shape.num_utterances for plan in plans),
        "traces_ahead": traces_ahead,
        "traces": features.num_traces,
        "messages": scene.side.messages,
    }


def watch_stages(folder: str, kind: str, data_device: str, model_devices: list[str]) -> dict[str, Any]:
    """What is executed where by each stage on the way of a batch, and by a step of a model behind them."""
    scene = Scene(folder, kind)
    trace = scene.folder / f"trace-{data_device[1:]}-{len(model_devices)}"
    features, cross = scene.make_features(data_device, len(model_devices)), cross_to(model_devices)
    trainer = Trainer(model_devices)
    loaded = scene.load(scene.order.batch(0))
    batches: list[Any] = []
    making = watch(lambda: batches.append(features(loaded)), trace / "features")
    crossing = watch(lambda: batches.append(cross(batches[0])), trace / "cross")
    training = watch(lambda: trainer.train(batches[1]), trace / "training")
    shares = batches[1].shares or (batches[1],)
    return {
        "features": making.to_json(),
        "cross": crossing.to_json(),
        "training": training.to_json(),
        "rows": [list(share.ids) for share in shares],
        "whole": list(batches[1].ids),
        "num_real": [share.num_real for share in shares],
    }


def cross_shares(folder: str, devices: list[str]) -> dict[str, Any]:
    """The rows of a batch that is not full, shared out over devices, against the whole."""
    scene = Scene(folder, "python")
    plans = list_plans(scene.order)
    plan = next(plan for plan in plans if plan.num_real < plan.shape.num_utterances)
    whole = scene.make_features(num_shares=len(devices))(scene.load(plan))
    batch = cross_to(devices)(whole)
    arrays = whole.arrays()
    joined = {name: np.concatenate([getattr(share, name) for share in batch.shares]) for name in arrays}
    return {
        "are_equal": all(np.array_equal(joined[name], arrays[name]) for name in arrays),
        "devices": [share.mel.backing_device.rpartition("/device:")[2] for share in batch.shares],
        "num_real": [share.num_real for share in batch.shares],
        "ids": [list(share.ids) for share in batch.shares],
        "whole": [*batch.ids],
        "whole_device": batch.mel.backing_device.rpartition("/device:")[2],
        "whole_num_real": batch.num_real,
    }


class Trainer:
    """A little model that sees every tensor of a batch, trained on the devices it is given."""

    def __init__(self, devices: list[str] | None) -> None:
        self._strategy = tf.distribute.get_strategy()
        if devices is not None:
            numbers = ",".join(device.rpartition(":")[2] for device in devices)
            self._strategy = setup_gpu_strategy(len(devices) > 1, numbers, device_type="CPU")
        with self._strategy.scope():
            self.model, optimizer = _make_model(), Sgd()
        self._step = TrainStep(
            self.model, optimizer, _compute_loss, self._strategy, rate=lambda _step: tf.constant(0.02)
        )
        self._num_steps = 0

    def train(self, batch: Batch) -> None:
        parts = [select_tensors(share) for share in batch.shares or (batch,)]
        assert bool(self._step([distribute_parts(self._strategy, parts)], self._num_steps).read().is_finite)
        self._num_steps += 1


def _make_model() -> Any:
    """From a mean frame, tokens and numbers of speaker and language to the mean frame of the voice."""
    frame_BM, token_BN = keras.Input((DATA.n_mels,)), keras.Input((None,), dtype="int32")
    speaker_B, language_B = (keras.Input((), dtype="int32") for _ in range(2))
    text = keras.ops.mean(keras.layers.Embedding(500, WIDTH)(token_BN), axis=1)
    who = keras.layers.Embedding(4, WIDTH)(speaker_B) + keras.layers.Embedding(4, WIDTH)(language_B)
    hidden = keras.layers.Dense(WIDTH, activation="tanh")(frame_BM) + text + who
    model = keras.Model([frame_BM, token_BN, speaker_B, language_B], keras.layers.Dense(DATA.n_mels)(hidden))
    generator = np.random.default_rng(5)
    model.set_weights([generator.normal(0, 0.1, weight.shape) for weight in model.get_weights()])
    return model


def _compute_loss(model: Any, part: MicroBatch, _training: bool, _step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    frame_BM = _average(part["mel"], part["mel_lengths"])
    predicted_BM = model([frame_BM, part["tokens"], part["speaker"], part["language"]])
    error_B = tf.reduce_mean((predicted_BM - _average(part["reference"], part["reference_lengths"])) ** 2, axis=1)
    num_tokens_B = tf.cast(part["token_lengths"], tf.float32)
    return tf.reduce_sum(tf.where(part["mel_lengths"] > 0, error_B * (1 + 0.01 * num_tokens_B), 0.0)), {}


def _average(mel_BTM: Tensor, lengths_B: Tensor) -> Tensor:
    is_real = tf.sequence_mask(lengths_B, tf.shape(mel_BTM)[1], tf.float32)[:, :, None]
    return tf.reduce_sum(mel_BTM * is_real, axis=1) / tf.cast(tf.maximum(lengths_B, 1), tf.float32)[:, None]


def train_through_stages(folder: str, kind: str, model_devices: list[str]) -> dict[str, Any]:
    """Loader threads, features in one thread, copies in another, and a model behind them."""
    scene = Scene(folder, kind)
    features = scene.make_features(num_shares=len(model_devices))
    features.warm(scene.order.shapes, scene.side.layout)
    stages = (Stage("features", features, 2), Stage("cross", cross_to(model_devices), 1, num_threads=2))
    return _train(scene.order, scene.side.loader, stages, scene.side.layout, model_devices)


def train_on_host(folder: str) -> dict[str, Any]:
    """The same training without any other device."""
    scene = Scene(folder, "python")
    layout = BatchLayout.of_features(scene.order.shapes, scene.source.n_mels, NUM_REFERENCE_FRAMES)
    loader = PythonLoader(scene.source, AudioLimits.from_config(scene.data), NUM_REFERENCE_FRAMES, SEED)
    stages = (Stage("transfer", make_device_transfer(["/CPU:0"], layout.num_bytes), 1),)
    return _train(scene.order, loader, stages, layout, None)


def _train(
    order: BatchOrder, loader: Any, stages: tuple[Stage, ...], layout: BatchLayout, devices: list[str] | None
) -> dict[str, Any]:
    trainer, ids = Trainer(devices), []
    num_batches = NUM_EPOCHS * order.num_batches_per_epoch
    with Feed(
        BatchRange(order, 0, num_batches, (0, 1)),
        loader,
        layout,
        stages,
        num_workers=3,
        buffer_size=4,
        telemetry=Telemetry(),
    ) as feed:
        for batch in feed:
            ids.append(list(batch.ids))
            trainer.train(batch)
    return {"ids": ids, "weights": [float(value) for weight in trainer.model.get_weights() for value in weight.ravel()]}


def explain_loss(folder: str, kind: str, audio: str) -> dict[str, str]:
    """What is said of a recording that has gone."""
    scene = Scene(folder, kind)
    Path(audio).unlink()
    plan = order_rows(scene.source, batch_size=len(scene.source), num_shapes=1).batch(0)
    side = choose_for_data_device(scene.source, scene.data, [plan.shape], NUM_REFERENCE_FRAMES, SEED, DATA_DEVICE)
    return _catch(lambda: side.loader.fill(plan, side.layout.view(plan.shape)))


def refuse_devices(folder: str) -> list[dict[str, str]]:
    scene = Scene(folder, "python")
    return [_catch(lambda: scene.make_features("/GPU:0")), _catch(lambda: cross_to(["/CPU:2", "/CPU:9"]))]


def _catch(run: Callable[[], Any]) -> dict[str, str]:
    try:
        run()
    except (DataError, HardwareError) as error:
        return {"problem": error.problem, "next_step": error.next_step, "kind": error.kind}
    raise AssertionError("nothing was refused")
