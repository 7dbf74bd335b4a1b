"""A model as one ONNX graph from the ids of signs to sound, and the proof that it speaks as TensorFlow does.

Programs that run it (Piper, sherpa-onnx, a page in a browser) send signs, not tokens: code points of IPA for a model of
phonemes (`piper_tokens` turns them into tokens inside the graph), token ids for a model of characters.
Shape legend: B = 1 utterance, S states, T frames, M mel bands.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from myxtts.errors import DataError
from myxtts.export.conversion import convert
from myxtts.export.graphs import SynthesisGraphs
from myxtts.export.piper_tokens import PIPER_END, PIPER_PAD, PIPER_START, PhonemeReader, make_id_map
from myxtts.export.proof import is_rounded_otherwise
from myxtts.export.speech_graph import FixedSpeaker, make_speech_graph
from myxtts.synthesis.loaded_bundle import KnownVocoder, LoadedBundle
from myxtts.synthesis.options import SpeechOptions
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.text.tokenizer import CharacterTokenizer, PhonemeTokenizer, Tokenizer
from myxtts.types import DEFAULT_NOISE_SCALE

MAX_MEL_ERROR = 1e-3
"""Largest difference of any value of a log-mel from TensorFlow's."""
_PHONEME_PROOFS = (
    "ðə kwˈɪk bɹˈaʊn fˈɑːks dʒˈʌmps ˌoʊvɚ ðə lˈeɪzi dˈɑːɡ.",
    "ˈa.",
    "nˈoʊbɑːdi hɐd wˈɔːkt ðˈɛɹ, fɔːɹ mˈɛni jˈɪɹz: wˈʌz ɪt?",
)
"""Texts that graphs are compared with TensorFlow on; signs that a model does not know are left out."""
_NUM_PROOF_CHARACTERS = 40


@dataclass(frozen=True)
class SingleFileProof:
    """The largest difference from TensorFlow that was found, and the speed of the graph on this machine."""

    mel_error: float
    real_time_factor: float
    num_texts: int

    def describe(self) -> str:
        return (
            f"The graph says {self.num_texts} texts as TensorFlow does: same durations, log-mels within "
            f"{self.mel_error:.1e}. Real-time factor {self.real_time_factor:.2f}."
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def make_single_file(
    loaded: LoadedBundle, speakers: Sequence[FixedSpeaker], vocoder: KnownVocoder
) -> tuple[Any, SingleFileProof]:
    """Returns the model with the output `output`, proved; raises DataError where it differs from TensorFlow."""
    tokenizer = loaded.frontend.tokenizer
    map_ids = PhonemeReader(tokenizer.inventory) if isinstance(tokenizer, PhonemeTokenizer) else tf.identity
    graph = make_speech_graph(SynthesisGraphs(loaded, vocoder), speakers, map_ids=map_ids)
    # Log-mel and durations are outputs for the proof only.
    model = convert(replace(graph, outputs=(*graph.outputs, "mel", "durations")))
    proof = _prove(model, loaded, speakers, vocoder)
    del model.graph.output[1:]
    return model, proof


def list_ids(tokenizer: Tokenizer) -> dict[str, list[int]]:
    """The ids of the signs that a program may send, padding, start and end as Piper names them included."""
    if isinstance(tokenizer, PhonemeTokenizer):
        return make_id_map(tokenizer.inventory)
    assert isinstance(tokenizer, CharacterTokenizer), tokenizer.kind
    start, end = (int(number) for number in tokenizer.encode("").ids)
    known = {character: [int(tokenizer.encode(character).ids[1])] for character in tokenizer.characters}
    return {PIPER_PAD: [], PIPER_START: [start], PIPER_END: [end], " ": [int(end) + 1], **known}


def spell(text: str, id_map: Mapping[str, list[int]], *, is_ipa: bool) -> list[int]:
    """Ids of a text as programs send them: those of IPA in canonical decomposition, padding behind each sign."""
    pad = id_map[PIPER_PAD]
    ids = [*id_map[PIPER_START], *pad]
    for sign in unicodedata.normalize("NFD", text) if is_ipa else text:
        if sign in id_map:
            ids += [*id_map[sign], *pad]
    return [*ids, *id_map[PIPER_END]]


def make_inputs(ids: Sequence[int], speaker: int | None, *, noise_scale: float = DEFAULT_NOISE_SCALE) -> dict[str, Any]:
    """Inputs of the graph, as Piper makes them; `speaker` is None for a graph with one."""
    inputs: dict[str, Any] = {
        "input": np.asarray([ids], np.int64),
        "input_lengths": np.asarray([len(ids)], np.int64),
        "scales": np.asarray([noise_scale, 1.0, 0.0], np.float32),
    }
    return inputs if speaker is None else inputs | {"sid": np.asarray([speaker], np.int64)}


def _prove(
    model: Any, loaded: LoadedBundle, speakers: Sequence[FixedSpeaker], vocoder: KnownVocoder
) -> SingleFileProof:
    """Compares the graph with TensorFlow, without noise; raises DataError where they differ."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Warnings are about optimisations that onnxruntime leaves out.
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    engine, tokenizer = Synthesizer(loaded.without_graphs(), vocoder=vocoder).engine, loaded.frontend.tokenizer
    id_map, is_ipa = list_ids(tokenizer), isinstance(tokenizer, PhonemeTokenizer)
    mel_error, took_s, spoken_s, num_texts, num_moved = 0.0, 0.0, 0.0, 0, 0
    for num_texts, text in enumerate(_list_proofs(tokenizer), 1):
        row = num_texts % len(speakers)
        speaker = speakers[row]
        timed = engine.time_text(tokenizer.encode(text).ids, speaker.language, speaker.embedding)
        expected_TM = engine.decode(timed, speaker.embedding, SpeechOptions(noise_scale=0.0))
        ids = spell(text, id_map, is_ipa=is_ipa)
        inputs = make_inputs(ids, row if len(speakers) > 1 else None, noise_scale=0.0)
        started = time.perf_counter()
        samples, mel_BTM, durations_BS = session.run(None, inputs)
        took_s, spoken_s = took_s + time.perf_counter() - started, spoken_s + samples.size / loaded.mel.sample_rate
        durations_S = timed.state_frames[: durations_BS.shape[1]]
        if not num_moved and is_rounded_otherwise(durations_S, durations_BS[0]):
            # Half a frame was rounded otherwise, so that spectrograms cannot be compared; seldom, thus once at most.
            num_moved = 1
            continue
        if not np.array_equal(durations_BS[0], durations_S) or samples.size != timed.num_frames * loaded.mel.hop_length:
            raise _refuse(f"it gives other durations for {text!r}")
        mel_error = max(mel_error, float(np.abs(mel_BTM[0, : len(expected_TM)] - expected_TM).max()))
        if not mel_error <= MAX_MEL_ERROR:
            raise _refuse(f"its log-mels differ by {mel_error:.1e}, more than {MAX_MEL_ERROR:g}")
    return SingleFileProof(mel_error, took_s / spoken_s, num_texts - num_moved)


def _list_proofs(tokenizer: Tokenizer) -> Iterator[str]:
    """Texts in signs that the tokenizer knows."""
    if not isinstance(tokenizer, CharacterTokenizer):
        yield from _PHONEME_PROOFS
        return
    letters = [character for character in tokenizer.characters if character.isalpha()][:_NUM_PROOF_CHARACTERS]
    yield "".join(letters)
    yield tokenizer.canonicalize(" ".join(map("".join, zip(letters, letters[1:], letters[2:], strict=False))))


def _refuse(problem: str) -> DataError:
    return DataError(
        f"The exported graph does not speak as the model does: {problem}. Nothing was written.",
        next_step="Report it with the model's configuration; myxtts synth and serve speak the model meanwhile.",
    )
