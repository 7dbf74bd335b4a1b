"""MyXTTS: train voice-cloning text-to-speech models on your own recordings, with a busy accelerator.

The public names load on first use, so that `import myxtts` stays light and never loads TensorFlow.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version as _installed_version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from myxtts.config.schema import DataConfig, ModelConfig, TrainingConfig, XTTSConfig
    from myxtts.corpus.corpus_file import open_corpus
    from myxtts.errors import MyXTTSError
    from myxtts.models.xtts import XTTS
    from myxtts.pipeline.loaders.native import TFNativeDataLoader
    from myxtts.pipeline.open import open_batches
    from myxtts.runtime.hardware import detect_hardware
    from myxtts.runtime.plan import choose_plan
    from myxtts.runtime.strategy import setup_gpu_strategy
    from myxtts.store.reader import FeatureStore
    from myxtts.synthesis.synthesizer import Synthesizer
    from myxtts.text.frontend import FrontEnd
    from myxtts.training.trainer import Trainer
    from myxtts.types import Batch, Utterance, Waveform

_HOMES = {
    "Batch": "myxtts.types",
    "DataConfig": "myxtts.config.schema",
    "FeatureStore": "myxtts.store.reader",
    "FrontEnd": "myxtts.text.frontend",
    "ModelConfig": "myxtts.config.schema",
    "MyXTTSError": "myxtts.errors",
    "Synthesizer": "myxtts.synthesis.synthesizer",
    "TFNativeDataLoader": "myxtts.pipeline.loaders.native",
    "Trainer": "myxtts.training.trainer",
    "TrainingConfig": "myxtts.config.schema",
    "Utterance": "myxtts.types",
    "Waveform": "myxtts.types",
    "XTTS": "myxtts.models.xtts",
    "XTTSConfig": "myxtts.config.schema",
    "choose_plan": "myxtts.runtime.plan",
    "detect_hardware": "myxtts.runtime.hardware",
    "open_batches": "myxtts.pipeline.open",
    "open_corpus": "myxtts.corpus.corpus_file",
    "setup_gpu_strategy": "myxtts.runtime.strategy",
}

__all__ = [
    "XTTS",
    "Batch",
    "DataConfig",
    "FeatureStore",
    "FrontEnd",
    "ModelConfig",
    "MyXTTSError",
    "Synthesizer",
    "TFNativeDataLoader",
    "Trainer",
    "TrainingConfig",
    "Utterance",
    "Waveform",
    "XTTSConfig",
    "__version__",
    "choose_plan",
    "detect_hardware",
    "open_batches",
    "open_corpus",
    "setup_gpu_strategy",
]

__version__ = _installed_version("myxtts")


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'myxtts' has no attribute {name!r}; it offers {', '.join(sorted(__all__))}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
