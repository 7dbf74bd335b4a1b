"""Inference: acoustic model and vocoder as traced graphs of a few fixed shapes.

Token ids and spectrograms are padded up to the next shape; padding is masked, so it does not change the sound. Each
step of `base_engine` is a `tf.function` per shape and setting, optionally with XLA.
Shape legend: B = 1 utterance, N tokens, S states, T frames, R frames of a reference, M mel bands, D width of a speaker
embedding, K latents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.errors import ConfigError
from myxtts.models.bundle import check_weights
from myxtts.models.layers import iterate_weights, use_dtype_policy
from myxtts.models.pitch import Pitch
from myxtts.models.reference_encoder import Voice
from myxtts.models.text_encoder import STATES_PER_TOKEN, TextStates
from myxtts.models.vocoder import Vocoder, VocoderConfig
from myxtts.models.xtts import XTTS, SpokenText
from myxtts.synthesis.base_engine import Engine
from myxtts.synthesis.loaded_bundle import KnownVocoder, LoadedBundle
from myxtts.synthesis.options import SpeechOptions
from myxtts.synthesis.sentences import MAX_PIECE_TOKENS
from myxtts.synthesis.timing import MAX_FRAMES, TimedText
from myxtts.synthesis.voices import SpeakerEmbedding, count_crop_frames
from myxtts.types import Floats, Tensor

TOKEN_SHAPES = (64, MAX_PIECE_TOKENS)
FRAME_SHAPES = (256, 512, 1024, 2048, 4096, MAX_FRAMES)
"""Padded sizes. Tracing takes about 1 s; a shape twice as long as needed costs a twentieth of the duration of the
speech. The largest is also the longest piece that can be synthesised."""


class SpeechEngine(Engine):
    """The model of a bundle in TensorFlow, traced once per padded input shape. Weights and computation are float32."""

    def __init__(self, loaded: LoadedBundle, *, vocoder: KnownVocoder, use_xla: bool = False) -> None:
        super().__init__(loaded, vocoder)
        self._model = build_model(loaded)
        self._vocoder = build_vocoder(loaded) if vocoder == "neural" else None
        self._use_xla = use_xla
        self._graphs: dict[tuple[object, ...], Any] = {}

    @property
    def num_graphs(self) -> int:
        return len(self._graphs)

    def _encode_crop(self, crop_RM: Floats) -> SpeakerEmbedding:
        padded_RM = _pad_rows(crop_RM, count_crop_frames(self._loaded.mel))
        inputs = tf.constant(padded_RM[None]), tf.constant([len(crop_RM)], tf.int32)
        voice = self._run(("encode",), self._model.encode_voice, *inputs)
        return SpeakerEmbedding(voice.vector_BD.numpy()[0], voice.latents_BKD.numpy()[0])

    def _time_ids(self, ids_N: NDArray[np.int32], language: int, voice: SpeakerEmbedding, speed: float) -> TimedText:
        num_slots = choose_shape(len(ids_N), TOKEN_SHAPES)
        *states, durations_BS = self._run(
            ("predict", num_slots),
            self._predict_states,
            tf.constant(_pad_rows(ids_N, num_slots)[None]),
            tf.constant([len(ids_N)], tf.int32),
            tf.constant([language], tf.int32),
            tf.constant(voice.vector[None]),
            tf.constant(voice.latents[None]),
            tf.constant(speed, tf.float32),
        )
        return TimedText(tuple(states), durations_BS.numpy()[0], STATES_PER_TOKEN, len(ids_N))

    def _decode_timed(
        self, timed: TimedText, voice: SpeakerEmbedding, options: SpeechOptions, guidance: float, noise_scale: float
    ) -> Floats:
        settings: dict[str, Any] = {
            "num_frames": choose_shape(timed.num_frames, FRAME_SHAPES),
            "num_steps": options.num_steps,
            "guidance": guidance,
        }
        mel_BTM = self._run(
            ("decode", *settings.values()),
            partial(self._decode_states, **settings),
            *timed.states,
            tf.constant(timed.state_frames[None], tf.int32),
            tf.constant(voice.vector[None]),
            tf.constant(voice.latents[None]),
            tf.constant(noise_scale, tf.float32),
            tf.constant(options.seed, tf.int32),
        )
        mel_TM: Floats = mel_BTM[0, : timed.num_frames].numpy()
        return mel_TM

    def _vocode(self, mel_TM: Floats) -> Floats:
        assert self._vocoder is not None
        num_frames = choose_shape(len(mel_TM), FRAME_SHAPES)
        # The longest piece has no room for all of its margin.
        padded_TM = _pad_rows(self._loaded.mel.bound(mel_TM[:num_frames]), num_frames, self._silence)
        samples: Floats = self._run(("vocode", num_frames), self._vocoder, tf.constant(padded_TM[None])).numpy()[0]
        return samples

    def _run(self, key: tuple[object, ...], function: Callable[..., Any], *tensors: Tensor) -> Any:
        """Calls a function as a graph, traced at the first call with `key`, which must name all shapes and settings."""
        if key not in self._graphs:
            graph = tf.function(function, jit_compile=self._use_xla)
            self._graphs[key] = graph.get_concrete_function(*tensors)
        return self._graphs[key](*tensors)

    def _predict_states(
        self, tokens_BN: Tensor, lengths_B: Tensor, language_B: Tensor, vector: Tensor, latents: Tensor, speed: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Predicts means, hidden channels, F0 and voicing, and durations of states.

        All are padded to the states of MAX_PIECE_TOKENS, so that the decoder's shapes depend on the frames alone.
        """
        spoken = self._model.predict_durations(tokens_BN, lengths_B, language_B, Voice(vector, latents), speed=speed)
        num_more = STATES_PER_TOKEN * (MAX_PIECE_TOKENS - tokens_BN.shape[1])
        parts = (*spoken.states[1:3], tf.stack(spoken.pitch_BS, axis=-1))
        means, hidden, pitch = (tf.pad(part, [[0, 0], [0, num_more], [0, 0]]) for part in parts)
        return means, hidden, pitch, tf.pad(spoken.durations_BS, [[0, 0], [0, num_more]])

    def _decode_states(
        self,
        means_BSM: Tensor,
        hidden_BSH: Tensor,
        pitch_BS2: Tensor,
        durations_BS: Tensor,
        vector: Tensor,
        latents: Tensor,
        noise_scale: Tensor,
        seed: Tensor,
        *,
        num_frames: int,
        num_steps: int,
        guidance: float,
    ) -> Tensor:
        """Runs the flow-matching decoder from states to a spectrogram of `num_frames`; traced once per setting."""
        states = TextStates(None, means_BSM, hidden_BSH, durations_BS > 0)
        pitch = Pitch(*tf.unstack(pitch_BS2, axis=-1))
        spoken = SpokenText(states, durations_BS, None, tf.reduce_sum(durations_BS, axis=1), pitch)
        return self._model.decode(
            spoken,
            Voice(vector, latents),
            num_frames=num_frames,
            num_steps=num_steps,
            noise_scale=noise_scale,
            guidance=guidance,
            seed=seed,
        )


def choose_shape(size: int, shapes: tuple[int, ...]) -> int:
    """Returns the smallest shape of at least `size`, or the largest there is."""
    return next((shape for shape in shapes if shape >= size), shapes[-1])


def _pad_rows(rows: NDArray[Any], num_rows: int, value: float = 0.0) -> NDArray[Any]:
    padded = np.full((num_rows, *rows.shape[1:]), value, rows.dtype)
    padded[: len(rows)] = rows
    return padded


def _assign_weights(variables: Mapping[str, Any], weights: Mapping[str, NDArray[Any]], place: str) -> None:
    """Copies weights into variables after a check of names and shapes; `place` names their origin in errors."""
    check_weights(weights, {name: tuple(variable.shape) for name, variable in variables.items()}, place)
    for name, variable in variables.items():
        variable.assign(weights[name])


def build_model(loaded: LoadedBundle) -> XTTS:
    """Builds the acoustic model of a bundle in float32."""
    # A training in the same process may have set another policy.
    with use_dtype_policy("float32"):
        model = XTTS(loaded.bundle.model_config, loaded.spec)
    _assign_weights(model.named_weights(), loaded.bundle.weights, str(loaded.folder))
    return model


def build_vocoder(loaded: LoadedBundle) -> Vocoder:
    """Builds the neural vocoder of a bundle; raises ConfigError where it was made for other spectrograms."""
    bundle = loaded.bundle
    loaded.require_neural_vocoder()
    config = VocoderConfig.from_json(bundle.vocoder.get("config"))
    config.refuse_more_than(sum(array.size for array in bundle.vocoder_weights.values()))
    different = [
        name for name in ("n_mels", "n_fft", "hop_length", "win_length") if getattr(config, name) != bundle.mel[name]
    ]
    if different:
        raise ConfigError(
            f"The vocoder was made for spectrograms with another {', '.join(different)} than the model's.",
            next_step="Train it on the feature cache of this model, or use griffin_lim.",
        )
    with use_dtype_policy("float32"):
        vocoder = Vocoder(config, loaded.mel.filterbank)
    _assign_weights(dict(iterate_weights(vocoder)), bundle.vocoder_weights, f"{loaded.folder} (vocoder)")
    return vocoder
