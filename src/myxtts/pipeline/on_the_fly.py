"""Which loader makes features on the fly, decided once and said in words."""

from __future__ import annotations

import numpy as np

from myxtts.config.schema import DataConfig
from myxtts.corpus.listen import AudioLimits
from myxtts.pipeline.loader import Loader
from myxtts.pipeline.python import PythonLoader
from myxtts.pipeline.race import race_loaders
from myxtts.pipeline.source import RecordingSource
from myxtts.pipeline.wav_layout import Survey, survey_recordings


def choose_on_the_fly_loader(
    source: RecordingSource,
    data: DataConfig,
    *,
    num_reference_frames: int,
    seed: int,
    ram_budget_bytes: int = 0,
    num_race_threads: int = 0,
    known_winner: str = "",
) -> tuple[Loader, list[str]]:
    """The native loader where it is wanted and there is a recording it can decode, else the one in Python.

    With `num_race_threads` both are tried where both can load everything, and the faster one is taken; `known_winner`
    is the name of the loader that an earlier part of the same run has taken. The messages say which, and why.
    TensorFlow is imported only if it is used.
    """
    limits = AudioLimits.from_config(data)
    python = PythonLoader(source, limits, num_reference_frames, seed, ram_budget_bytes)
    if not data.use_tf_native_loading:
        return python, ["Recordings are loaded through Python: data.use_tf_native_loading is false."]
    survey = survey_recordings(source)
    if survey.num_native == 0:
        return python, [f"Recordings are loaded through Python: none is a 16-bit WAV file ({_list_obstacles(survey)})."]
    if known_winner == PythonLoader.name:
        return python, ["Recordings are loaded through Python, as in the part of the run before this."]
    from myxtts.pipeline.native import TFNativeDataLoader

    native = TFNativeDataLoader(source, limits, num_reference_frames, seed, ram_budget_bytes, survey)
    messages = [_describe(survey, len(source))]
    if num_race_threads == 0 or known_winner:
        return native, messages
    rows = np.flatnonzero(survey.is_native)
    result = race_loaders(native.load_rows, python.load_rows, rows, num_race_threads)
    messages.append(result.describe())
    return (python if result.winner == python.name else native), messages


def _describe(survey: Survey, num_recordings: int) -> str:
    num_python = num_recordings - survey.num_native
    if num_python == 0:
        return f"TF-native loading serves all {num_recordings:,} recordings."
    verb = "go" if num_python > 1 else "goes"
    served = f"TF-native loading serves {survey.num_native:,} of {num_recordings:,} recordings"
    return f"{served}; {num_python:,} {verb} through Python: {_list_obstacles(survey)}."


def _list_obstacles(survey: Survey) -> str:
    counts = survey.obstacles.most_common()
    return ", ".join(name if len(counts) == 1 else f"{count:,} {name}" for name, count in counts)
