"""Learner of the voice model: builds an XTTS with its optimizer and trains it on the batches of the feed.

AdamW without decay on biases, norms and embedding tables; loss from `voice.losses`; the rest is in `BaseLearner`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import keras

from myxtts.config.schema import XTTSConfig
from myxtts.models.layers import sum_kernel_gradients_by_row, use_dtype_policy
from myxtts.models.spec import ModelSpec
from myxtts.models.xtts import XTTS
from myxtts.pipeline.batch import BatchLayout
from myxtts.pipeline.order import Shape
from myxtts.pipeline.packed import Packed, pack_views
from myxtts.runtime.plan import Plan
from myxtts.training.execution import Execution, MicroBatches
from myxtts.training.learner import BaseLearner, select_trained
from myxtts.training.micro_batches import list_replica_devices
from myxtts.training.optimizer import AdamW
from myxtts.training.run.state import START
from myxtts.training.step import TrainStep
from myxtts.training.voice.adapt import DIAGONAL_STEPS_OF, list_frozen
from myxtts.training.voice.data import TrainingData
from myxtts.training.voice.losses import DIAGONAL_STEPS, VoiceLoss, average_terms

BETAS = (0.9, 0.98)
"""AdamW betas: squared gradients are averaged over about 50 steps, as is usual for transformers (Vaswani et al.,
2017)."""
_TABLES = ("text_encoder.embeddings.", "text_encoder.languages", "speaker_classifier.", "reference_encoder.queries")
"""Weights whose rows each belong to one symbol, language, speaker or query: decay would make the model forget rare
ones."""
_NOT_IN_GRAPH = ("run_name", "run_dir", "steps", "epochs", "minutes")
"""Settings of training that two starts with the same graph may differ in: the last step is a variable."""


def build_learner(
    config: XTTSConfig,
    plan: Plan,
    spec: ModelSpec,
    data: TrainingData,
    execution: Execution,
    strategy: Any,
    *,
    total_steps: int | None = None,
) -> Learner:
    """Builds a learner whose batches are not cut, on the devices of the strategy."""
    return Learner(config, spec, strategy, execution, total_steps, ask_micro_batches(config, plan, data))


def ask_micro_batches(config: XTTSConfig, plan: Plan, data: TrainingData) -> MicroBatches:
    """Micro-batches that are whole batches, with as many rows as the largest gives to one device."""
    most = max(shape.num_utterances for shape in data.shapes)
    return MicroBatches(max(1, most // len(plan.model_devices)), config.training.gradient_accumulation_steps)


class Learner(BaseLearner):
    """Trains an XTTS in `total_steps` (None: endless), each made of `micro_batches`."""

    def __init__(
        self,
        config: XTTSConfig,
        spec: ModelSpec,
        strategy: Any,
        execution: Execution,
        total_steps: int | None,
        micro_batches: MicroBatches,
    ) -> None:
        training = config.training
        # Initial weights are drawn from Keras' generators, whose seeds come from Python's.
        keras.utils.set_random_seed(training.seed)
        by_row = sum_kernel_gradients_by_row(execution.sums_by_row)
        with strategy.scope(), use_dtype_policy(execution.policy), by_row:
            model = XTTS(config.model, spec)
        model.is_search_chunked = execution.is_search_chunked
        for name in list_frozen(training.adapt):
            # Their gradients are not computed, and they have neither moments nor an average.
            getattr(model, name).trainable = False
        weights = model.named_weights()
        trained = select_trained(model, weights)
        with strategy.scope():
            optimizer = AdamW(trained, training.weight_decay, betas=BETAS, undecayed=_TABLES, pull=training.start_pull)
        start = {START: optimizer.start_variables}
        super().__init__(
            config, strategy, execution, total_steps, model, weights, optimizer, start, freezable=model.text_side
        )
        self.has_durations = training.durations == "stored"
        """Whether batches bring durations, so that alignments are not searched."""
        self._loss = self._make_loss()
        self.set_micro_batches(micro_batches)

    def use_durations(self) -> None:
        """From the next step on batches bring durations; the graphs of the step are made again."""
        self.has_durations = True
        self._loss = self._make_loss()
        self.set_micro_batches(self.micro_batches)

    def _make_loss(self) -> VoiceLoss:
        training = self._config.training
        return VoiceLoss(
            training.seed,
            crop_frames=training.crop_frames,
            diagonal_steps=DIAGONAL_STEPS_OF.get(training.adapt, DIAGONAL_STEPS),
            use_stored_durations=self.has_durations,
            voice_augmentation=training.voice_augmentation,
        )

    def trace(self, shapes: Iterable[Shape], num_reference_frames: int) -> None:
        """Traces the graph of every batch shape by a step on empty batches, which updates nothing."""
        devices = list_replica_devices(self.strategy)
        empty = (self._make_empty(shape.share(len(devices)), num_reference_frames) for shape in shapes)
        self._trace(([part.to_device(device) for device in devices] for part in empty), step=0)

    def make_graphs(self, shape: Shape, num_reference_frames: int) -> None:
        """Traces the graph of a batch shape without running it. Another thread may train meanwhile."""
        devices = list_replica_devices(self.strategy)
        empty = self._make_empty(shape.share(len(devices)), num_reference_frames)
        self._make_graphs([empty.to_device(device) for device in devices])

    def _make_step(self, accumulation: int) -> None:
        options = self._choose_options(accumulation)
        options |= {"num_lanes": self._execution.num_lanes, "ema": self.ema, "average": average_terms}
        options |= {"graph_key": self._describe_graph()}
        self.train_step = TrainStep(self.model, self.optimizer, self._loss, self.strategy, **options)

    def _describe_graph(self) -> str:
        """Everything that the graph of a step depends on, besides batch shape and code."""
        training = self._config.training.model_dump(exclude=set(_NOT_IN_GRAPH))
        execution, devices = replace(self._execution, reasons=()), list_replica_devices(self.strategy)
        spec, model = self.model.spec.to_json(), self._config.model.model_dump()
        return repr((training, model, spec, execution, devices, self.has_durations))

    def _make_empty(self, shape: Shape, num_reference_frames: int) -> Packed:
        """Batch of this shape without a real utterance, on the host."""
        layout = BatchLayout.of_features(
            [shape], self.model.spec.n_mels, num_reference_frames, has_durations=self.has_durations
        )
        return pack_views(layout.view(shape))
