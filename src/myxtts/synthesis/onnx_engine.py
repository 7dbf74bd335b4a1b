"""Inference with an exported model, or a bundle with graphs, on onnxruntime, without TensorFlow.

The same seed gives the same noise as with TensorFlow, so both engines speak alike. Griffin-Lim runs on the host, where
it is faster than as a graph.
Shape legend: N tokens, S states, T frames, R frames of a reference, M mel bands.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DAMAGED_FILE, DataError, MissingExtraError, refuse
from myxtts.synthesis.base_engine import Engine
from myxtts.synthesis.exported import VOCODER_GRAPHS, GraphName
from myxtts.synthesis.loaded_bundle import KnownVocoder, LoadedBundle
from myxtts.synthesis.noise import draw_normal
from myxtts.synthesis.options import SpeechOptions
from myxtts.synthesis.timing import TimedText
from myxtts.synthesis.voices import SpeakerEmbedding
from myxtts.types import Floats

_STACKED_FRAMES = 2
"""The decoder takes pairs of frames."""
_STATES = ("means", "hidden", "pitch")


class OnnxEngine(Engine):
    """Graphs of a model; that of the reference encoder is loaded when it is needed first."""

    def __init__(self, loaded: LoadedBundle, *, vocoder: KnownVocoder) -> None:
        super().__init__(loaded, vocoder)
        self._runtime = _import_runtime()
        self._sessions: dict[GraphName, Any] = {}
        names: list[GraphName] = ["predict", "decode", *([VOCODER_GRAPHS["neural"]] if vocoder == "neural" else [])]
        # Now, so that a damaged graph is reported before anything is said; side by side, which halves the time.
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(self._open, names))

    @property
    def num_graphs(self) -> int:
        return len(self._sessions)

    def _encode_crop(self, crop_RM: Floats) -> SpeakerEmbedding:
        vector_BD, latents_BKD = self._run("encode_reference", {"mel": crop_RM[None]})
        return SpeakerEmbedding(vector_BD[0], latents_BKD[0])

    def _time_ids(self, ids_N: NDArray[np.int32], language: int, voice: SpeakerEmbedding, speed: float) -> TimedText:
        inputs = {
            "tokens": ids_N[None],
            "language": np.array([language], np.int32),
            **_name_voice(voice),
            "speed": np.array(speed, np.float32),
        }
        *states, durations_BS = self._run("predict", inputs)
        return TimedText(tuple(states), durations_BS[0], durations_BS.shape[1] // len(ids_N), len(ids_N))

    def _decode_timed(
        self, timed: TimedText, voice: SpeakerEmbedding, options: SpeechOptions, guidance: float, noise_scale: float
    ) -> Floats:
        num_padded = -(-timed.num_frames // _STACKED_FRAMES) * _STACKED_FRAMES
        noise_TBM = draw_normal((options.seed, 0), (num_padded, 1, self._loaded.mel.n_mels))
        inputs = {
            **dict(zip(_STATES, timed.states, strict=True)),
            "durations": timed.state_frames[None],
            **_name_voice(voice),
            "noise": noise_TBM.transpose(1, 0, 2) * np.float32(noise_scale),
            "num_steps": np.array(options.num_steps, np.int64),
            "guidance": np.array(guidance, np.float32),
        }
        mel_TM: Floats = self._run("decode", inputs)[0][0]
        return mel_TM

    def _vocode(self, mel_TM: Floats) -> Floats:
        samples: Floats = self._run(VOCODER_GRAPHS["neural"], {"mel": mel_TM[None]})[0]
        return samples

    def _run(self, name: GraphName, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        try:
            outputs: list[NDArray[Any]] = self._open(name).run(None, dict(inputs))
        except self._errors as error:
            raise self._explain(name, error) from error
        return outputs

    def _open(self, name: GraphName) -> Any:
        """The session of a graph, loaded at the first call."""
        if name not in self._sessions:
            content = self._loaded.read_graph(name)
            options = self._runtime.SessionOptions()
            options.log_severity_level = 3
            # Waiting threads sleep: the time that they would save is taken from whatever else the machine does.
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            try:
                session = self._runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
            except self._errors as error:
                raise self._explain(name, error) from error
            self._sessions[name] = session
        return self._sessions[name]

    @cached_property
    def _errors(self) -> tuple[type[Exception], ...]:
        """The exceptions of onnxruntime, which have no common class of their own."""
        state = self._runtime.capi.onnxruntime_pybind11_state
        names = ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoSuchFile", "NotImplemented")
        found = [getattr(state, name) for name in (*names, "RuntimeException") if hasattr(state, name)]
        return (*found, ValueError)

    def _explain(self, name: GraphName, error: Exception) -> DataError:
        said = str(error).strip().splitlines()[0][:300]
        what, advice = (
            ("bundle", DAMAGED_FILE) if self._loaded.exported is None else ("exported model", "Export it again.")
        )
        return refuse(f"The {what} {self._loaded.folder}", f"{name}.onnx does not run ({said})", advice)


def _name_voice(voice: SpeakerEmbedding) -> dict[str, NDArray[Any]]:
    return {"vector": voice.vector[None], "latents": voice.latents[None]}


def _import_runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError(
            "Speaking without TensorFlow needs onnxruntime, which is not installed.",
            next_step="Run: pip install 'myxtts[speak]'",
        ) from error
    return onnxruntime
