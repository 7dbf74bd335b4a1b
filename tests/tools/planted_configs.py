"""Configurations with one known fault each, on a corpus of noise, and what they are when it is mended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import soundfile
from tests.conftest import RATE_HZ, synthesize_clip

from myxtts.config.schema import XTTSConfig
from myxtts.corpus import audio as listen
from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.store.precompute import precompute
from myxtts.tools.diagnose.examine import Diagnosis, diagnose_config, verify_config
from myxtts.tools.diagnose.findings import Cause
from myxtts.tools.diagnose.timing import Comparison
from myxtts.tools.emulate import StepTime

_NUM_CLIPS = 48


def make_corpus(folder: Path) -> XTTSConfig:
    """Clips of 1 to 4 seconds, prepared and precomputed."""
    recordings = folder / "recordings"
    (recordings / "wavs").mkdir(parents=True)
    rows = ["id|audio|text|speaker|language\n"]
    for number in range(_NUM_CLIPS):
        seconds = 1.0 + 3.0 * number / _NUM_CLIPS
        soundfile.write(recordings / "wavs" / f"c{number:02}.wav", synthesize_clip(seconds, seed=number), RATE_HZ)
        rows.append(f"c{number:02}|wavs/c{number:02}.wav|Words {number} of a clip.|anna|en\n")
    (recordings / "metadata.csv").write_text("".join(rows), encoding="utf-8")
    config = XTTSConfig(
        text_frontend="characters",
        val_share=0.0,
        batch_size=8,
        num_shapes=4,
        reference_s=1.0,
        train_data=folder / "corpus",
        cache_dir=folder / "store",
        # So little that no spectrogram stays in memory from one epoch to the next.
        ram_budget_gb=0.00001,
    )
    prepare_corpus([Recordings(recordings, "manifest")], folder / "corpus", config.data)
    precompute(open_corpus(folder / "corpus"), folder / "store", config.data, num_threads=1)
    return config


@dataclass(frozen=True)
class PlantedConfig:
    """`read_delay_s` is what every opening of a recording takes longer."""

    cause: Cause
    config: XTTSConfig
    step_s: float | StepTime
    read_delay_s: float = 0.0

    def diagnose(self, num_batches: int = 30, time_limit_s: float = 20.0) -> Diagnosis:
        with slow_recordings(self.read_delay_s):
            return diagnose_config(self.config, step_s=self.step_s, num_batches=num_batches, time_limit_s=time_limit_s)

    def measure_gain(self, diagnosis: Diagnosis, num_rounds: int = 3) -> Comparison:
        """The configuration that --apply would write, in turn with this one."""
        changed = self.config.model_copy(update=diagnosis.list_changes())
        rounds = patch("myxtts.tools.diagnose.examine._NUM_ROUNDS", num_rounds)
        with rounds, slow_recordings(self.read_delay_s):
            verified = verify_config(diagnosis, self.config, changed, step_s=self.step_s, num_batches=50).verified
        assert verified is not None
        return verified


@contextmanager
def slow_recordings(delay_s: float) -> Iterator[None]:
    """A disk that takes its time to open a recording; whatever comes from the store is not slowed down."""
    open_quickly = listen.open_recording

    @contextmanager
    def open_slowly(path: str) -> Iterator[Any]:
        time.sleep(delay_s)
        with open_quickly(path) as descriptor:
            yield descriptor

    places = ("myxtts.features.audio.open_recording", "myxtts.tools.diagnose.feed_probe.open_recording")
    with patch(places[0], open_slowly), patch(places[1], open_slowly):
        yield


def recordings_on_slow_disk(config: XTTSConfig) -> PlantedConfig:
    on_the_fly = config.model_copy(update={"preprocessing_mode": "on_the_fly", "use_tf_native_loading": False})
    return PlantedConfig(Cause.SLOW_READS, on_the_fly, 0.02, read_delay_s=0.012)


def padded_to_the_longest(config: XTTSConfig) -> PlantedConfig:
    one_shape = config.model_copy(update={"num_shapes": 1})
    return PlantedConfig(Cause.PADDING, one_shape, StepTime(0.002, 0.02 / (8 * 345)))


def stored_and_quick(config: XTTSConfig) -> PlantedConfig:
    return PlantedConfig(Cause.COMPUTE_BOUND, config, 0.02)
