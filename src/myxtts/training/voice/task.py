"""Training task of the voice model: opens data and checks settings without TensorFlow, then builds the learner.

`Trainer` calls `open`, then loads TensorFlow, then calls `prepare` and `make_callbacks`: errors of the user are
reported before the seconds that loading takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from myxtts.config.schema import XTTSConfig
from myxtts.models.bundle import Bundle
from myxtts.runtime.hardware import Hardware
from myxtts.runtime.plan import Plan
from myxtts.training.callbacks import Callback
from myxtts.training.run.folder import RunFolder
from myxtts.training.voice.batch_size import resolve_batch_size
from myxtts.training.voice.data import TrainingData, open_training_data
from myxtts.types import Say

if TYPE_CHECKING:
    from myxtts.training.voice.setup import PreparedVoice


@dataclass(frozen=True)
class VoiceTask:
    """Opened data and plan of a voice training. `origin` is the bundle whose weights it begins with (--init-from)."""

    config: XTTSConfig
    plan: Plan
    hardware: Hardware
    data: TrainingData
    origin: Bundle | None

    @classmethod
    def open(cls, config: XTTSConfig, plan: Plan, hardware: Hardware, origin: Bundle | None, say: Say) -> VoiceTask:
        """Resolves `batch_size: auto` and opens the training data."""
        config = resolve_batch_size(config, plan, hardware, say)
        return cls(config, plan, hardware, open_training_data(config, plan), origin)

    def fingerprint(self) -> dict[str, str]:
        return self.data.fingerprint()

    def make_callbacks(self) -> list[Callback]:
        """Validation, early stopping, text freezing, samples and TensorBoard. Needs TensorFlow."""
        from myxtts.training.voice.validation import ValidationCallback

        return [ValidationCallback.from_config(self.config)]

    def prepare(self, run: RunFolder, say: Say) -> PreparedVoice:
        """Builds the learner, and reports how. Needs TensorFlow."""
        from myxtts.training.voice.setup import prepare_voice

        return prepare_voice(self, run, say)
