"""Which loader makes features on the fly, decided once and said in words."""

from __future__ import annotations

from myxtts.config.schema import DataConfig
from myxtts.corpus.listen import AudioLimits
from myxtts.pipeline.feed import Loader
from myxtts.pipeline.python import PythonLoader
from myxtts.pipeline.source import RecordingSource
from myxtts.pipeline.wav_layout import Survey, survey_recordings


def choose_on_the_fly_loader(
    source: RecordingSource, data: DataConfig, *, num_reference_frames: int, seed: int, ram_budget_bytes: int = 0
) -> tuple[Loader, list[str]]:
    """The native loader where it is wanted and there is a recording it can decode, else the one in Python.

    The messages say which, and why. TensorFlow is imported only if it is used.
    """
    limits = AudioLimits.from_config(data)
    if not data.use_tf_native_loading:
        loader = PythonLoader(source, limits, num_reference_frames, seed, ram_budget_bytes)
        return loader, ["Recordings are loaded through Python: data.use_tf_native_loading is false."]
    survey = survey_recordings(source)
    if survey.num_native == 0:
        loader = PythonLoader(source, limits, num_reference_frames, seed, ram_budget_bytes)
        return loader, [f"Recordings are loaded through Python: none is a 16-bit WAV file ({_list_obstacles(survey)})."]
    from myxtts.pipeline.native import TFNativeDataLoader

    native = TFNativeDataLoader(source, limits, num_reference_frames, seed, ram_budget_bytes, survey)
    return native, [_describe(survey, len(source))]


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
