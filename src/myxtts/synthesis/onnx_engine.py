"""Inference with an exported model: the interface of `SpeechEngine` on onnxruntime, without TensorFlow.

The same seed gives the same noise as with TensorFlow, so both engines speak alike. Griffin-Lim runs on the host, where
it is faster than as a graph.
Shape legend: N tokens, S states, T frames, R frames of a reference, M mel bands.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DataError, MissingExtraError, refuse
from myxtts.features.griffin_lim import GriffinLim
from myxtts.synthesis.exported import VOCODER_GRAPHS, GraphName, read_graph
from myxtts.synthesis.loaded_bundle import LoadedBundle
from myxtts.synthesis.noise import draw_normal
from myxtts.synthesis.options import SpeechOptions
from myxtts.synthesis.timing import TimedText, check_length
from myxtts.synthesis.voices import SpeakerEmbedding, average_embeddings, count_crop_frames, cut_crops
from myxtts.types import DEFAULT_NOISE_SCALE, NO_GUIDANCE, Floats

_STACKED_FRAMES = 2
"""The decoder takes pairs of frames."""
_STATES = ("means", "hidden", "pitch")


class OnnxEngine:
    """Graphs of an exported model; each is loaded when it is needed first. Not thread-safe, as `SpeechEngine`."""

    def __init__(self, loaded: LoadedBundle, *, vocoder: Literal["griffin_lim", "neural"]) -> None:
        assert loaded.exported is not None, f"{loaded.folder} is not an export"
        self._loaded, self._vocoder = loaded, vocoder
        self._runtime = _import_runtime()
        self._sessions: dict[GraphName, Any] = {}
        # Loaded now, so that a damaged graph is reported before anything is said.
        for name in ("predict", "decode"):
            self._open(name)

    @property
    def num_graphs(self) -> int:
        """Graphs loaded so far."""
        return len(self._sessions)

    def encode_reference(self, mel_RM: Floats) -> SpeakerEmbedding:
        """Returns the speaker embedding of a recording, averaged over its crops."""
        embeddings = []
        for crop_RM in cut_crops(mel_RM, count_crop_frames(self._loaded.mel)):
            vector_BD, latents_BKD = self._run("encode_reference", {"mel": crop_RM[None]})
            embeddings.append(SpeakerEmbedding(vector_BD[0], latents_BKD[0]))
        return average_embeddings(embeddings)

    def encode_mel(self, mel_TM: Floats) -> SpeakerEmbedding:
        """Returns the speaker embedding of the beginning of a log-mel spectrogram."""
        return self.encode_reference(mel_TM[: count_crop_frames(self._loaded.mel)])

    def time_text(
        self, ids: NDArray[np.int32], language: str, voice: SpeakerEmbedding, speed: float = 1.0
    ) -> TimedText:
        """First phase: encodes token ids and predicts how many frames each of their states lasts."""
        ids_N = np.asarray(ids, np.int32)
        number = self._loaded.spec.languages.index(language)
        inputs = {
            "tokens": ids_N[None],
            "language": np.array([number], np.int32),
            **_name_voice(voice),
            "speed": np.array(speed, np.float32),
        }
        *states, durations_BS = self._run("predict", inputs)
        return TimedText(tuple(states), durations_BS[0], durations_BS.shape[1] // len(ids_N), len(ids_N))

    def make_mel(
        self, ids: NDArray[np.int32], language: str, voice: SpeakerEmbedding, options: SpeechOptions
    ) -> Floats:
        """Both phases: the log-mel spectrogram [T, M] of token ids."""
        return self.decode(self.time_text(ids, language, voice, options.speed), voice, options)

    def decode(self, timed: TimedText, voice: SpeakerEmbedding, options: SpeechOptions) -> Floats:
        """Second phase: decodes the log-mel spectrogram [T, M] of a timed text.

        Raises DataError where T is too long or a value is not finite.
        """
        check_length(timed, self._loaded.mel)
        num_padded = -(-timed.num_frames // _STACKED_FRAMES) * _STACKED_FRAMES
        noise_TBM = draw_normal((options.seed, 0), (num_padded, 1, self._loaded.mel.n_mels))
        scale = DEFAULT_NOISE_SCALE if options.noise_scale is None else options.noise_scale
        inputs = {
            **dict(zip(_STATES, timed.states, strict=True)),
            "durations": timed.state_frames[None],
            **_name_voice(voice),
            "noise": noise_TBM.transpose(1, 0, 2) * np.float32(scale),
            "num_steps": np.array(options.num_steps, np.int64),
            "guidance": np.array(NO_GUIDANCE if options.guidance is None else options.guidance, np.float32),
        }
        mel_TM: Floats = self._run("decode", inputs)[0][0]
        if not np.isfinite(mel_TM).all():
            raise DataError(
                "The model gives values that are not finite.",
                next_step="Export a checkpoint from before it went wrong.",
            )
        return mel_TM

    def make_sound(self, mel_TM: Floats, seed: int) -> Floats:
        """Vocodes a log-mel spectrogram; returns samples [T * hop_length]. `seed` is for Griffin-Lim only."""
        if self._vocoder == "griffin_lim":
            return self._griffin_lim(mel_TM, seed=seed)
        samples: Floats = self._run(VOCODER_GRAPHS["neural"], {"mel": mel_TM[None]})[0]
        return samples

    @cached_property
    def _griffin_lim(self) -> GriffinLim:
        return GriffinLim(self._loaded.mel)

    def _run(self, name: GraphName, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        try:
            outputs: list[NDArray[Any]] = self._open(name).run(None, dict(inputs))
        except self._errors as error:
            raise self._explain(name, error) from error
        return outputs

    def _open(self, name: GraphName) -> Any:
        """The session of a graph, loaded at the first call."""
        if name not in self._sessions:
            assert self._loaded.exported is not None
            content = read_graph(self._loaded.folder, self._loaded.exported, name)
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
        return refuse(
            f"The exported model {self._loaded.folder}", f"{name}.onnx does not run ({said})", "Export it again."
        )


def _name_voice(voice: SpeakerEmbedding) -> dict[str, NDArray[Any]]:
    return {"vector": voice.vector[None], "latents": voice.latents[None]}


def _import_runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError(
            "Exported models are spoken with onnxruntime, which is not installed.",
            next_step="Run: pip install 'myxtts[speak]'",
        ) from error
    return onnxruntime
