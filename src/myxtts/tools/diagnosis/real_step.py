"""The training step of a configuration, on its devices but without a run, to be measured."""

from __future__ import annotations

from typing import Any

from myxtts.config.schema import XTTSConfig
from myxtts.runtime.hardware import Hardware
from myxtts.runtime.plan import Plan
from myxtts.runtime.strategy import make_strategy
from myxtts.training.execution import choose_execution
from myxtts.training.learner import Learner
from myxtts.training.micro_batches import MicroBatches
from myxtts.training.preparation import detect_device
from myxtts.training.schedule import LearningRate
from myxtts.training.training_data import measure_spec, open_training_data
from myxtts.types import Batch, Say


class RealStep:
    """Called with batch after batch; trains whenever there are as many as make a step, and waits for the result."""

    def __init__(self, config: XTTSConfig, hardware: Hardware, plan: Plan, num_batches: int, say: Say) -> None:
        # First of all: TensorFlow must not have started its devices when a strategy is made.
        strategy = make_strategy(plan)
        data = open_training_data(config, plan)
        training = config.training
        shapes = list(dict.fromkeys(data.shapes))
        # Of a run as short as this one, so that nobody waits for minutes of compiling on a CPU.
        execution = choose_execution(training, detect_device(plan), total_steps=num_batches, num_shapes=len(shapes))
        say(execution.reasons[0])
        most = max(shape.num_utterances for shape in shapes)
        micro_batches = MicroBatches(max(1, most // len(plan.model_devices)), training.gradient_accumulation_steps)
        rate = LearningRate(training.learning_rate, training.warmup_steps, None)
        self._learner = Learner(config, measure_spec(config, plan, data), strategy, execution, rate, micro_batches)
        self.is_graph = execution.is_graph
        self.num_parameters = self._learner.num_parameters
        if execution.is_graph:
            say(f"Tracing {len(shapes)} batch shapes …")
            self._learner.trace(shapes, data.num_reference_frames)
        self._waiting: list[Batch] = []
        self._num_steps = 0

    def __call__(self, batch: Any) -> None:
        self._waiting.append(batch)
        if len(self._waiting) < self._learner.num_batches_per_step:
            return
        result = self._learner.train(self._waiting, self._num_steps)
        self._waiting = []
        self._num_steps += 1
        float(result.loss)
