"""The vocoder as a part that can be trained: opened and checked without TensorFlow, then prepared with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from myxtts.config.schema import XTTSConfig
from myxtts.models.bundle import refuse_foreign_vocoder
from myxtts.models.vocoder_bundle import VocoderBundle, find_vocoder
from myxtts.runtime.hardware import Hardware
from myxtts.runtime.plan import Mode, Plan
from myxtts.training.prepared import Prepared
from myxtts.training.run import RunFolder
from myxtts.training.vocoder_data import VocoderData, open_vocoder_data
from myxtts.types import Say


@dataclass(frozen=True)
class VocoderPart:
    """`origin` is the vocoder that training begins from, where it does."""

    config: XTTSConfig
    plan: Plan
    hardware: Hardware
    data: VocoderData
    origin: VocoderBundle | None
    num_warm_steps: int | None

    @classmethod
    def open(
        cls,
        config: XTTSConfig,
        plan: Plan,
        hardware: Hardware,
        init_from: Path | None,
        say: Say,
        num_warm_steps: int | None = None,
    ) -> VocoderPart:
        """Critics join after `num_warm_steps`; None is for the usual number, or that of the run.

        Settings must have been resolved for a vocoder.
        """
        if plan.mode is Mode.MULTI_GPU:
            say("Segments are read on the host: data_gpu has nothing to do for a vocoder.")
        data = open_vocoder_data(config, plan, hardware)
        origin = None if init_from is None else find_vocoder(init_from)
        if origin is not None:
            refuse_foreign_vocoder(dict(data.mel.to_json()), origin.describe())
        return cls(config, plan, hardware, data, origin, num_warm_steps)

    def fingerprint(self) -> dict[str, str]:
        return self.data.fingerprint()

    def prepare(self, run: RunFolder, say: Say) -> Prepared:
        from myxtts.training.vocoder_preparation import prepare_vocoder

        return prepare_vocoder(
            self.config, self.plan, self.hardware, self.data, run, self.origin, self.num_warm_steps, say
        )
