"""Speaker embeddings: saved by name beside a model, read from a bundle, and the reference recordings behind them.

A saved voice is one safetensors file. Its embedding is valid for the reference encoder that made it, which a checksum
of that encoder's weights shows; the log-mels of its recordings are kept beside it, so that it can be made again when
training has gone on. It is read as strictly as a bundle, since it may come from anywhere.
Shape legend: D width of an embedding, K latents, R frames, M mel bands.
"""

from __future__ import annotations

import json
import math
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from myxtts.corpus.audio import AudioLimits, inspect_audio
from myxtts.corpus.rejections import AudioProblem
from myxtts.errors import DataError, UsageError, refuse
from myxtts.features.audio import load_recording
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.features.mel import HostMel
from myxtts.models.bundle import BUNDLE_FILE_NAME, refresh_card
from myxtts.storage.atomic import write_atomically
from myxtts.storage.json_file import FileModel, JsonRefusedError, check_fields
from myxtts.storage.regular_file import FileRefusedError, open_regular
from myxtts.storage.tensor_file import (
    Array,
    find_non_finite,
    fingerprint_arrays,
    read_heading,
    read_tensors,
    write_tensors,
)
from myxtts.types import Floats, Say

_SUFFIX = ".safetensors"
_FORMAT = "myxtts-voice"
_NOTES = {"mel", "language", "consent"}
_KEYS = {"1": set[str](), "2": {"mel"}, "3": _NOTES, "4": _NOTES, "5": _NOTES}
"""Fields that the metadata of each version has beside format, version and model. Version 4 may have an equalizer, and
version 5 a change of F0 too."""
_VERSION = "5"
_TENSORS = ("latents", "vector")
_EQUALIZER, _F0_CHANGE = "equalizer", "f0_change"
_REFERENCE_TENSOR = "reference."
"""Opening of the names of log-mels in a voice file; their number follows."""
_MAX_KEPT_S = 120.0
"""Seconds of recordings whose log-mels are kept with a voice, about 3 MB; of more than that, the first ones are."""
_MAX_FILE_BYTES = 40_000_000
_NAME = re.compile(r"[^\W_][\w .\u200c-]{0,62}(?<![ .])")
"""Names become file names: letters of any script, the Persian half-space, no separators, no dot at either end."""
_REFERENCE_PREFIX = "reference_encoder."
"""Of the names of the encoder's weights in a bundle."""
MIN_REFERENCE_S, ADVISED_REFERENCE_S, MAX_CROP_S, MAX_REFERENCE_S = 1.0, 3.0, 8.0, 30.0
"""Seconds. Shorter references than advised give a warning; longer ones than a crop are cut and averaged, since the
longest reference in training has the length of a crop."""
_LIMITS = AudioLimits(
    min_duration_s=MIN_REFERENCE_S,
    max_duration_s=MAX_REFERENCE_S,
    max_source_rate_hz=192_000,
    max_channels=8,
    silence_db=-60.0,
    max_clipped_share=0.05,
)
_ADVICE = (
    f"Give {ADVISED_REFERENCE_S:g} to {MAX_CROP_S:g} s of clear speech by one person, as WAV, FLAC, OGG or MP3; "
    f"{MIN_REFERENCE_S:g} to {MAX_REFERENCE_S:g} s are accepted."
)
_MAX_NOTE_LENGTH = 500
_NUM_VOICES_LISTED = 20
"""Characters of a language or a consent in a voice file."""
_Number = Annotated[float, Field(gt=-1e6, lt=1e6)]
_Note = Annotated[str, Field(max_length=_MAX_NOTE_LENGTH)]


SAME_F0: Floats = np.array([1.0, 0.0], np.float32)
"""The `f0_change` that changes nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class SpeakerEmbedding:
    """Output of a model's reference encoder for one speaker: `vector` float32 [D] and `latents` float32 [K, D].

    `equalizer` float32 [M], if there is one, is added to log-mels that are synthesised with it. `f0_change` float32
    [2], if there is one, is a factor and an offset of predicted F0, in the unit of `Pitch`.
    """

    vector: Floats
    latents: Floats
    equalizer: Floats | None = None
    f0_change: Floats | None = None

    def compare(self, other: SpeakerEmbedding) -> float:
        """Cosine similarity of the vectors, from -1 to 1."""
        lengths = float(np.linalg.norm(self.vector) * np.linalg.norm(other.vector))
        return float(self.vector @ other.vector) / lengths if lengths else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class VoiceSource:
    """A voice to speak with: its embedding, or None, and the log-mels [R, M] of the recordings it is made from.

    `name` is that of a saved voice whose embedding is out of date. `mixed` are the voices that this one is a mixture
    of, with their weights. `language` is the speaker's own, `consent` says who agreed to the use of the voice; both are
    '' where it is not known.
    """

    embedding: SpeakerEmbedding | None
    references: tuple[Floats, ...] = ()
    name: str = ""
    mixed: tuple[tuple[VoiceSource, float], ...] = ()
    language: str = ""
    consent: str = ""


class _NotedVoice(FileModel):
    """A speaker embedding as JSON, in the notes of a bundle."""

    vector: list[_Number]
    latents: list[list[_Number]]
    language: _Note = ""


def average_embeddings(voices: Sequence[SpeakerEmbedding], weights: Sequence[float] | None = None) -> SpeakerEmbedding:
    """Returns the mean of the embeddings of several recordings or crops of one speaker, or a mixture of several."""
    assert voices, "there is no voice to average"
    shares = np.full(len(voices), 1 / len(voices)) if weights is None else np.asarray(weights) / np.sum(weights)

    def average(arrays: Sequence[Floats]) -> Floats:
        return np.average(arrays, axis=0, weights=shares).astype(np.float32)

    def average_known(arrays: Sequence[Floats | None], neutral: float | Floats) -> Floats | None:
        known = [array for array in arrays if array is not None]
        if not known:
            return None
        nothing = np.broadcast_to(np.float32(neutral), known[0].shape)
        return average([nothing if array is None else array for array in arrays])

    return SpeakerEmbedding(
        average([voice.vector for voice in voices]),
        average([voice.latents for voice in voices]),
        average_known([voice.equalizer for voice in voices], 0.0),
        average_known([voice.f0_change for voice in voices], SAME_F0),
    )


def fingerprint_encoder(weights: Mapping[str, Array]) -> str:
    """Returns a checksum of the reference encoder's weights; an embedding is valid for the encoder that made it."""
    return fingerprint_arrays({name: array for name, array in weights.items() if name.startswith(_REFERENCE_PREFIX)})


def check_voice_name(name: str) -> str:
    """Returns the name in NFC; raises UsageError where it could not be a plain file name on every system."""
    composed = unicodedata.normalize("NFC", name)
    if not _NAME.fullmatch(composed) or len(composed.encode("utf-8", "replace")) > 200:
        raise UsageError(
            f"A voice cannot be called {name[:80]!a}.",
            next_step="Use up to 64 letters, figures, spaces, hyphens, full stops and underscores.",
        )
    return composed


class VoiceFolder:
    """Folder of the voices that were saved for a model.

    `fingerprint` identifies its reference encoder; `num_latents` and `width` are K and D of its embeddings, `mel`
    defines its spectrograms. `copy` is a second folder that voices are written to, so that they go with the bundle.
    """

    def __init__(
        self,
        path: Path,
        fingerprint: str,
        num_latents: int,
        width: int,
        mel: MelDefinition,
        *,
        copy: Path | None = None,
    ) -> None:
        self.path = path
        self._folders = (path,) if copy is None else (path, copy)
        self._fingerprint = fingerprint
        self._shapes = {
            "latents": (num_latents, width),
            "vector": (width,),
            _EQUALIZER: (mel.n_mels,),
            _F0_CHANGE: SAME_F0.shape,
        }
        self._mel = mel

    def list_names(self) -> list[str]:
        """Lists the names of saved voices, whether or not they fit the model."""
        files = (file for folder in self._folders for file in folder.glob(f"*{_SUFFIX}"))
        return sorted({name for file in files if _NAME.fullmatch(name := file.name.removesuffix(_SUFFIX))})

    def has(self, name: str) -> bool:
        return bool(_NAME.fullmatch(name)) and self._find(name).is_file()

    def save(
        self,
        name: str,
        voice: SpeakerEmbedding,
        references: Sequence[Floats] = (),
        *,
        language: str = "",
        consent: str = "",
    ) -> Path:
        """Saves a voice under a name and returns its file; an older one of that name is replaced.

        `language` and `consent` are kept with it, as in `VoiceSource`.
        """
        path = self.path / f"{check_voice_name(name)}{_SUFFIX}"
        arrays: dict[str, Array] = {"latents": voice.latents, "vector": voice.vector}
        optional = {_EQUALIZER: voice.equalizer, _F0_CHANGE: voice.f0_change}
        arrays |= {tensor: array for tensor, array in optional.items() if array is not None}
        ends = np.cumsum([len(mel_RM) for mel_RM in references]) * self._mel.hop_length / self._mel.sample_rate
        for number, (mel_RM, end_s) in enumerate(zip(references, ends, strict=True)):
            if number == 0 or end_s <= _MAX_KEPT_S:
                arrays[f"{_REFERENCE_TENSOR}{number}"] = mel_RM
        self._check(path, arrays)
        metadata = {
            "format": _FORMAT,
            "version": _VERSION,
            "model": self._fingerprint,
            "mel": self._describe_mel(),
            "language": language[:_MAX_NOTE_LENGTH],
            "consent": consent[:_MAX_NOTE_LENGTH],
        }
        for folder in self._folders:
            # A bundle that is being replaced at this moment must not be made again by its voices.
            if folder.parent.is_dir() or folder == self.path:
                with write_atomically(folder / path.name) as file:
                    write_tensors(file, arrays, metadata, seal=True)
        bundle = self._folders[-1].parent
        if (bundle / BUNDLE_FILE_NAME).is_file():
            refresh_card(bundle)
        return path

    def load(self, name: str) -> VoiceSource:
        """Reads a saved voice. One of another state of the model comes without its embedding, to be made again.

        Raises DataError where it is missing or damaged, or where its recordings were not kept.
        """
        path = self._find(check_voice_name(name))
        try:
            metadata, arrays = _read_file(path)
        except FileNotFoundError as error:
            raise refuse_unknown_voice(name, self.list_names()) from error
        except OSError as error:
            raise _refuse(path, f"it cannot be read ({error.strerror or error})") from error
        except FileRefusedError as error:
            raise _refuse(path, str(error)) from error
        version = metadata.get("version", "")
        keys = {"format", "version", "model"} | _KEYS.get(version, set())
        if version not in _KEYS or set(metadata) != keys or metadata["format"] != _FORMAT:
            raise _refuse(path, f"it is not a file of the format {_FORMAT}, version {' or '.join(_KEYS)}")
        language, consent = (metadata.get(field, "")[:_MAX_NOTE_LENGTH] for field in ("language", "consent"))
        is_of_this_mel = metadata.get("mel") == self._describe_mel()
        kept = {tensor: array for tensor, array in arrays.items() if tensor.startswith(_REFERENCE_TENSOR)}
        references = tuple(kept.values()) if is_of_this_mel else ()
        if metadata["model"] == self._fingerprint:
            self._check(path, arrays)
            optional = arrays.get(_EQUALIZER), arrays.get(_F0_CHANGE)
            embedding = SpeakerEmbedding(arrays["vector"], arrays["latents"], *optional)
            return VoiceSource(embedding, references, language=language, consent=consent)
        if not references:
            raise DataError(
                f"The voice {name!r} was saved with another checkpoint, and its recording was not kept.",
                next_step=f"Save it again from its recording: --voice RECORDING --save-voice {name!r}.",
            )
        self._check(path, kept)
        return VoiceSource(None, references, name, language=language, consent=consent)

    def _find(self, name: str) -> Path:
        """Returns the file of a voice: the first that exists, or where it would be."""
        files = [folder / f"{name}{_SUFFIX}" for folder in self._folders]
        return next((file for file in files if file.exists()), files[0])

    def _describe_mel(self) -> str:
        return json.dumps(self._mel.to_json(), sort_keys=True)

    def _check(self, path: Path, arrays: Mapping[str, Array]) -> None:
        """Raises DataError unless the arrays have the shapes of this model and finite values."""
        for name, array in arrays.items():
            shape = self._shapes.get(name, (*array.shape[:1], self._mel.n_mels))
            if array.dtype != np.float32 or array.shape != shape or not array.size:
                found = f"{array.dtype} {list(array.shape)}"
                raise _refuse(path, f"its {name} is {found}, the model needs float32 {list(shape)}")
        if find_non_finite(arrays):
            raise _refuse(path, f"its {find_non_finite(arrays)[0]} is NaN or infinite")


def read_noted_voices(notes: Mapping[str, Any], num_latents: int, width: int) -> dict[str, VoiceSource]:
    """Parses the voices of corpus speakers in a bundle's notes: `voices: {name: {vector, latents, language}}`."""
    try:
        noted = check_fields(notes.get("voices", {}), dict[str, _NotedVoice])
    except JsonRefusedError as error:
        raise refuse("The voices in the bundle's notes", str(error)) from error
    voices: dict[str, VoiceSource] = {}
    for name, voice in noted.items():
        if len(voice.vector) != width or [len(row) for row in voice.latents] != [width] * num_latents:
            problem = f"{name[:80]!r} is not {1 + num_latents} times {width} numbers"
            raise refuse("The voices in the bundle's notes", problem)
        embedding = SpeakerEmbedding(np.array(voice.vector, np.float32), np.array(voice.latents, np.float32))
        voices[name] = VoiceSource(embedding, language=voice.language)
    return voices


def read_default_voices(notes: Mapping[str, Any], known: Iterable[str]) -> dict[str, str]:
    """Parses the default voices in a bundle's notes: `default_voices: {language: name}`; raises DataError."""
    try:
        defaults = check_fields(notes.get("default_voices", {}), dict[str, _Note])
    except JsonRefusedError as error:
        raise refuse("The default voices in the bundle's notes", str(error)) from error
    unknown = sorted(set(defaults.values()) - set(known))
    if unknown:
        raise refuse("The default voices in the bundle's notes", f"there is no voice {unknown[0][:80]!r}")
    return defaults


def refuse_unknown_voice(name: str, known: Iterable[str]) -> DataError:
    """Makes the error for a voice that is neither a file nor a known name."""
    names = list(known)
    listed = ", ".join(names[:_NUM_VOICES_LISTED])
    more = len(names) - _NUM_VOICES_LISTED
    rest = f" and {more} more, which myxtts voices lists" if more > 0 else ""
    return DataError(
        f"There is no file and no voice named {name[:200]!r}.",
        next_step=f"Name a recording, or one of: {listed}{rest}."
        if names
        else "Name a recording of 3 to 8 s of speech.",
    )


def _read_file(path: Path) -> tuple[dict[str, str], dict[str, Array]]:
    """Reads the metadata and arrays of a voice file; raises FileRefusedError where its checksum or names are wrong."""
    with open_regular(path, _MAX_FILE_BYTES, follow_links=False) as file:
        heading = read_heading(file)
        names = {entry.name for entry in heading.entries if entry.dtype == "F32"} - {_EQUALIZER, _F0_CHANGE}
        expected = {*_TENSORS, *(f"{_REFERENCE_TENSOR}{number}" for number in range(len(names) - len(_TENSORS)))}
        if names != expected:
            raise FileRefusedError(
                f"it does not hold exactly {' and '.join(_TENSORS)}, log-mels, an equalizer and a change of F0"
            )
        arrays, _ = read_tensors(file, heading, sealed=True)
    return heading.metadata, arrays


def _refuse(path: Path, problem: str) -> DataError:
    next_step = "Save it again from its recording: --voice RECORDING --save-voice NAME."
    return refuse(f"The voice {path}", problem, next_step)


def read_reference(path: Path, audio: AudioDefinition, mel: MelDefinition, warn: Say = lambda _: None) -> Floats:
    """Decodes a reference recording and computes its log-mel [R, M], processed as the recordings of the corpus.

    It is checked first, header before samples (`inspect_audio`); raises DataError where it cannot be used.
    """
    try:
        real_path = os.path.realpath(path)
        inspect_audio(real_path, _LIMITS)
        wave = load_recording(real_path, audio, _LIMITS).wave
    except AudioProblem as error:
        raise refuse(f"The voice {path}", error.detail, _ADVICE) from error
    except ValueError as error:
        raise DataError(f"The voice {str(path)!a} is no path of a file.", next_step=_ADVICE) from error
    if wave.duration_s < MIN_REFERENCE_S or len(wave.samples) < mel.min_samples:
        problem = f"{wave.duration_s:.2f} s are left without the silence at its ends"
        raise refuse(f"The voice {path}", problem, _ADVICE)
    if wave.duration_s < ADVISED_REFERENCE_S:
        warn(f"The voice {path} has {wave.duration_s:.1f} s of speech; it will sound more like it with 3 to 8 s.")
    return HostMel(mel)(wave.samples)


def count_crop_frames(mel: MelDefinition) -> int:
    """Returns the most frames of a crop, rounded up to a multiple of 8, so that stacks of frames are whole."""
    return math.ceil(MAX_CROP_S * mel.sample_rate / mel.hop_length / 8) * 8


def cut_crops(mel_RM: Floats, max_frames: int) -> list[Floats]:
    """Cuts a spectrogram into crops of nearly equal length, so that the last is not much shorter."""
    return np.array_split(mel_RM, math.ceil(len(mel_RM) / max_frames))
