"""Models of a run as they were at its checkpoints, for `synth --checkpoint` and `compare --checkpoints`.

A checkpoint holds the weights; front end, spectrogram and vocoder are those of the run's bundle. The speakers of the
corpus are encoded again by the checkpoint's own encoder, from the same clips as when a bundle is written: embeddings of
another state of the encoder would make a checkpoint sound worse than it was.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from myxtts.config.load import RESOLVED_FILE_NAME
from myxtts.errors import DataError, MyXTTSError, UsageError
from myxtts.models.bundle import check_weights
from myxtts.pipeline.splits import count_reference_frames
from myxtts.store.precompute import choose_store_folder
from myxtts.store.reader import FeatureStore
from myxtts.synthesis.loaded_bundle import LoadedBundle, load_bundle
from myxtts.synthesis.voices import VoiceSource
from myxtts.training.run.checkpoint import CHECKPOINTS_FOLDER_NAME, CheckpointFolder
from myxtts.training.run.resume import load_run_settings
from myxtts.training.run.state import START, select_group, select_synthesis_weights
from myxtts.types import Floats, Say


def list_checkpoints(run: Path) -> list[int]:
    """Steps whose checkpoints a run has kept, oldest first."""
    return CheckpointFolder(run / CHECKPOINTS_FOLDER_NAME).list_steps()


def load_checkpoint(run: Path, step: int, warn: Say) -> LoadedBundle:
    """The model of a run with the weights of one of its checkpoints; raises UsageError for a step that was not kept."""
    steps = list_checkpoints(run)
    if step not in steps:
        kept = ", ".join(map(str, steps)) or "none"
        raise UsageError(
            f"{run} has no checkpoint of step {step}.",
            next_step=f"Kept are: {kept}. --set training.keep_checkpoints=N keeps more of a training.",
        )
    loaded = load_bundle(run)
    if loaded.exported is not None:
        raise UsageError(f"{run} is an exported model, which has no checkpoints.", next_step="Name the run itself.")
    checkpoint = CheckpointFolder(run / CHECKPOINTS_FOLDER_NAME).load(step)
    # A run that keeps its starting weights says in its settings how much of them is mixed in.
    keeps_start = bool(select_group(checkpoint.arrays, START))
    start_mix = load_run_settings(run).training.start_mix if keeps_start else 0.0
    found = select_synthesis_weights(checkpoint.arrays, start_mix)
    shapes = {name: tuple(array.shape) for name, array in loaded.bundle.weights.items()}
    weights = {name: found[name] for name in shapes if name in found}
    check_weights(weights, shapes, f"the checkpoint of step {step} in {run}")
    notes = {**loaded.bundle.notes, "step": step}
    bundle = replace(loaded.bundle, weights=weights, notes=notes)
    return replace(loaded, bundle=bundle, noted_voices=_find_speakers(run, loaded, warn))


def _find_speakers(run: Path, loaded: LoadedBundle, warn: Say) -> dict[str, VoiceSource]:
    """The corpus speakers by log-mels of their clips, which the model encodes when they are first used.

    Without the features of the run they keep the embeddings of its bundle, with a warning.
    """
    try:
        clips = _read_clips(run, loaded)
    except MyXTTSError as error:
        warn(f"Speakers sound as the newest encoder has them, not as the checkpoint's: {error.problem}")
        return dict(loaded.noted_voices)
    return {
        name: replace(source, embedding=None, references=clips[name]) if name in clips else source
        for name, source in loaded.noted_voices.items()
    }


def _read_clips(run: Path, loaded: LoadedBundle) -> dict[str, tuple[Floats, ...]]:
    """Log-mels of a few clips of each speaker; raises DataError where the features of the run are gone."""
    # Imports TensorFlow, which loading a checkpoint's synthesis needs anyway.
    from myxtts.training.voice.speaker_voices import choose_voice_rows, cut_middle

    if not (run / RESOLVED_FILE_NAME).is_file():
        raise DataError(f"{run} has no settings.", next_step="Name a run, not a bundle.")
    config = load_run_settings(run)
    if config.data.train_data is None and config.data.cache_dir is None:
        raise DataError(f"{run} does not say what it was trained on.", next_step="Name a run with its settings.")
    store = FeatureStore.open(choose_store_folder(config.data, Path(config.data.train_data or "")))
    num_frames = count_reference_frames(config.data)
    rows = choose_voice_rows(store, num_frames, max(1, len(loaded.noted_voices)))
    return {
        speaker: tuple(np.asarray(cut_middle(store.read_mel(row), num_frames), np.float32) for row in chosen)
        for speaker, chosen in rows.items()
    }
