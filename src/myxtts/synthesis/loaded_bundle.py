"""Loads and checks a model bundle for synthesis, without TensorFlow.

Mistakes of the user (folder, language, text, voice, vocoder) are found here, within milliseconds. `SpeechEngine` builds
the model from the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from myxtts import __version__
from myxtts.config.data import DataConfig
from myxtts.errors import ConfigError, DataError, UsageError, name_place, refuse
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.models.base_model import (
    BASE_FOLDER,
    BASE_NAME,
    find_base_voices,
    find_model,
    has_base_model,
    has_base_vocoder,
    is_base_model,
)
from myxtts.models.bundle import (
    BUNDLE_FOLDER_NAME,
    FRONTEND_FILE_NAME,
    VOICES_FOLDER_NAME,
    Bundle,
    find_bundle,
    keep_evaluation,
    read_bundle,
)
from myxtts.models.spec import ModelSpec
from myxtts.models.vocoder_bundle import find_vocoder, put_into
from myxtts.runtime.load_tensorflow import has_module, has_tensorflow
from myxtts.storage.json_file import JsonRefusedError, check_fields
from myxtts.synthesis.bundled_graphs import BundledGraphs, find_graphs, read_bundled_graph
from myxtts.synthesis.exported import (
    EXPORT_FOLDER_NAME,
    GraphName,
    KnownVocoder,
    Manifest,
    find_export,
    read_export,
    read_graph,
)
from myxtts.synthesis.sentences import Piece, check_text, plan_pieces
from myxtts.synthesis.voices import (
    SpeakerEmbedding,
    VoiceFolder,
    VoiceSource,
    check_voice_name,
    fingerprint_encoder,
    read_default_voices,
    read_noted_voices,
    read_reference,
    refuse_unknown_voice,
)
from myxtts.text.directions import remove_directions
from myxtts.text.frontend import FrontEnd
from myxtts.text.languages import find_code
from myxtts.text.script import guess_language, wrong_script
from myxtts.types import Say

__all__ = [
    "ChosenVoice",
    "KnownVocoder",
    "LoadedBundle",
    "VocoderChoice",
    "VoiceLike",
    "VoiceName",
    "choose_vocoder",
    "has_base_model",
    "load_bundle",
]

VoiceName = str | Path
VoiceLike = VoiceName | SpeakerEmbedding | Sequence[VoiceName] | Mapping[VoiceName, float] | None
"""A voice as callers give it: a name, one or several recordings, an embedding, voices with their weights in a mixture,
or None for the only voice, or the model's default voice for the language."""

VocoderChoice = str | Path
"""auto, griffin_lim, neural, or the folder of a run or bundle that has a vocoder."""

_DEFAULT_LANGUAGE = "en"


class ChosenVoice(NamedTuple):
    """Voice and language of a text; `default` is the name of the voice where it is the model's default one, else ''."""

    source: VoiceSource
    language: str
    default: str = ""


@dataclass(frozen=True)
class LoadedBundle:
    """A bundle with its files parsed and checked against each other.

    `voices` are embeddings that the user saved, `noted_voices` those of corpus speakers in the bundle's notes.
    `default_voices` are the names of the voices that speak each language where none is asked for; few bundles name
    them. An exported model has its manifest, and no weights; a bundle with `graphs` speaks with onnxruntime, too.
    """

    folder: Path
    bundle: Bundle
    spec: ModelSpec
    mel: MelDefinition
    audio: AudioDefinition
    frontend: FrontEnd
    voices: VoiceFolder
    noted_voices: Mapping[str, VoiceSource]
    default_voices: Mapping[str, str] = field(default_factory=dict)
    exported: Manifest | None = None
    graphs: BundledGraphs | None = None

    @property
    def needs_tensorflow(self) -> bool:
        """Whether TensorFlow speaks it. Where there are graphs, onnxruntime does, because it starts much faster.

        Where neither is installed, a bundle with graphs asks for onnxruntime, which is the smaller one.
        """
        if self.exported is not None:
            return False
        return self.graphs is None or (has_tensorflow() and not has_module("onnxruntime"))

    def without_graphs(self) -> LoadedBundle:
        """The bundle as TensorFlow speaks it."""
        return replace(self, graphs=None)

    def read_graph(self, name: GraphName) -> bytes:
        """An ONNX graph of an exported model, or of a bundle that has graphs, with its weights."""
        if self.exported is not None:
            return read_graph(self.folder, self.exported, name)
        assert self.graphs is not None, f"{self.folder} has no graphs"
        return read_bundled_graph(self.folder, self.graphs, name, self.bundle, self.mel)

    @property
    def has_neural_vocoder(self) -> bool:
        return bool(self.bundle.vocoder_weights) if self.exported is None else self.exported.vocoder == "neural"

    @property
    def name(self) -> str:
        """That of the run, or of the folder of a bundle alone."""
        if self.exported is not None:
            return self.exported.name
        if is_base_model(self.folder):
            return BASE_NAME
        folder = self.folder.absolute()
        return folder.parent.name if folder.name == BUNDLE_FOLDER_NAME else folder.name

    def describe_mark(self) -> str:
        """Returns the sentence that files of synthetic speech carry."""
        step = self.bundle.notes.get("step")
        made_by = f"the model {self.name}{f', step {step}' if isinstance(step, int) else ''}"
        return f"Synthetic speech, made by MyXTTS {__version__} with {made_by}."

    def keep_evaluation(self, split: str, scores: Mapping[str, Any]) -> None:
        """Keeps scores in the bundle and its card; neither an exported model nor the packaged one is changed."""
        if self.exported is None and not is_base_model(self.folder):
            keep_evaluation(self.folder, split, scores)

    def require_neural_vocoder(self) -> None:
        if not self.has_neural_vocoder:
            raise ConfigError(
                f"The model {self.folder} has no neural vocoder.",
                next_step="Use griffin_lim, or train one: myxtts train --part vocoder.",
            )

    def choose_voice(
        self, voice: VoiceLike | VoiceSource, language: str | None, text: str, warn: Say = lambda _: None
    ) -> ChosenVoice:
        """Returns the voice and the language of a text.

        Without a voice it is the model's default one for the language, if the bundle names it, and a language that is
        not given either is the one that the script of the text shows, else English. Otherwise `find_voice` and
        `find_language` decide.
        """
        if voice is not None or not self.default_voices:
            source = voice if isinstance(voice, VoiceSource) else self.find_voice(voice, warn)
            return ChosenVoice(source, self.find_language(language, source))
        shown = guess_language(remove_directions(text), self.spec.languages) if language is None else language
        spoken = self.find_language(shown)
        name = self.default_voices.get(spoken)
        if name is None:
            raise UsageError(
                f"No voice is given, and the model has no default voice for the language {spoken!r}.",
                next_step=f"Add --voice: one of {', '.join(self.list_voices()[:20])}, or a recording.",
            )
        return ChosenVoice(self._find_named_voice(name), spoken, name)

    def find_language(self, asked: str | None, voice: VoiceSource | None = None) -> str:
        """Returns the model's name of a language in any spelling, or of the same language in another region.

        Without `asked` it is that of the voice, or the model's only language, else English; raises UsageError where
        there is no match.
        """
        languages = self.spec.languages
        if asked is None:
            own = languages[0] if len(languages) == 1 else voice.language if voice is not None else ""
            if own in languages:
                return own
            asked = _DEFAULT_LANGUAGE
        if asked in languages:
            return asked
        code = find_code(asked)
        # Bundles of earlier versions name languages as their corpus did: en-us, EN.
        codes = {name: find_code(name) for name in languages}
        found = [name for name in languages if code and codes[name] == code]
        found += [name for name in languages if code and codes[name].partition("-")[0] == code.partition("-")[0]]
        if not found:
            raise UsageError(
                f"The model does not speak the language {asked[:40]!r}.",
                next_step=f"It speaks: {', '.join(languages[:40])}.",
            )
        return found[0]

    def plan(self, text: str, language: str, lexicon: Mapping[str, str] | None = None) -> Iterator[Piece]:
        """Yields the pieces of a text. The text is checked in this call; pieces are encoded as they are consumed.

        `lexicon` gives the IPA of words, before that of the model.
        """
        text = check_text(text)
        if problem := wrong_script(remove_directions(text), language):
            others = [name for name in self.spec.languages if wrong_script(remove_directions(text), name) is None]
            advice = f"Give --language {others[0]}" if others else "Give a text in a language that the model speaks"
            raise DataError(
                f"The text {text.strip()[:40]!r} cannot be said in the language {language!r}: {problem.problem}.",
                next_step=f"{advice}; it speaks {', '.join(self.spec.languages[:40])}.",
            )
        return plan_pieces(text, language, self.frontend.with_entries(lexicon or {}))

    def find_voice(self, voice: VoiceLike, warn: Say = lambda _: None) -> VoiceSource:
        """Resolves an embedding, a name, or one or several recordings, whose log-mels are computed here.

        A single name that is an existing file is a recording; otherwise saved voices come before corpus speakers.
        """
        if isinstance(voice, SpeakerEmbedding):
            return VoiceSource(voice)
        if voice is None:
            return self._find_only_voice(warn)
        if isinstance(voice, Mapping):
            return VoiceSource(None, mixed=self._find_mixed(voice, warn))
        names = [voice] if isinstance(voice, str | Path) else list(voice)
        if not names:
            raise UsageError("The list of voices is empty.", next_step="Name a recording, or a saved voice.")
        if len(names) == 1 and not _is_file(names[0]):
            return self._find_named_voice(str(names[0]))
        return VoiceSource(None, tuple(read_reference(Path(name), self.audio, self.mel, warn) for name in names))

    def _find_mixed(self, weights: Mapping[VoiceName, float], warn: Say) -> tuple[tuple[VoiceSource, float], ...]:
        """Resolves the voices of a mixture; raises UsageError for weights that are none."""
        wrong = [f"{name}={weight:g}" for name, weight in weights.items() if not 0 < weight < float("inf")]
        if wrong or not weights:
            raise UsageError(
                f"The weights of mixed voices must be above 0: {', '.join(wrong) or 'there are none'}.",
                next_step="Give each voice a share, such as --voice anna=0.7 --voice reza=0.3.",
            )
        return tuple((self.find_voice(name, warn), weight) for name, weight in weights.items())

    def list_voices(self) -> list[str]:
        return sorted({*self.voices.list_names(), *self.noted_voices})

    def check_new_name(self, name: str) -> str:
        """Returns the name for a voice that is saved; raises UsageError for one that would hide a corpus speaker."""
        name = check_voice_name(name)
        if name in self.noted_voices or name in self.spec.speakers:
            raise UsageError(
                f"The model already has a speaker named {name!r}.",
                next_step=f"Choose another name, such as --save-voice {name}-2.",
            )
        return name

    def _find_named_voice(self, name: str) -> VoiceSource:
        """Returns the saved voice, or else the corpus speaker, of this name; raises DataError where there is none."""
        if self.voices.has(name):
            return self.voices.load(name)
        if name in self.noted_voices:
            return self.noted_voices[name]
        raise refuse_unknown_voice(name, self.list_voices())

    def _find_only_voice(self, warn: Say) -> VoiceSource:
        """Returns the voice of a model with one speaker; raises UsageError where several are possible.

        A bundle without the embedding of its only speaker gives zeros, with a warning.
        """
        known = list(self.noted_voices) or self.list_voices()
        if len(known) == 1 and not self.spec.has_many_speakers:
            return self._find_named_voice(known[0])
        if known or self.spec.has_many_speakers:
            names = self.list_voices()
            advice = f"one of {', '.join(names[:20])}, or a recording" if names else "a recording of 3 to 8 s"
            raise UsageError(
                "No voice is given, and the model was trained on several speakers.", next_step=f"Add --voice: {advice}."
            )
        warn("The model does not contain its speaker's voice. Give a recording of it with --voice for a better sound.")
        config = self.bundle.model_config
        zeros = np.zeros((config.num_latents + 1, config.reference_width), np.float32)
        return VoiceSource(SpeakerEmbedding(zeros[0], zeros[1:]))


def load_bundle(path: Path | str | None = None, say: Say = lambda _: None) -> LoadedBundle:
    """Reads and checks the bundle or export in `path`, or those of the run in `path`.

    None and "base" are the packaged model (`find_model`). Without TensorFlow the export inside a run is taken,
    `RUN/export`. Raises DataError where front end, spectrogram and model do not fit together.
    """
    path = find_model(path, say)
    folder = find_export(path)
    if folder is None and not has_tensorflow():
        folder = find_export(path / EXPORT_FOLDER_NAME)
    if folder is not None:
        with name_place(folder):
            manifest, bundle = read_export(folder)
            return replace(_check_parts(folder, bundle, manifest.encoder_fingerprint), exported=manifest)
    folder = find_bundle(path)
    with name_place(folder):
        bundle = read_bundle(folder)
        loaded = _check_parts(folder, bundle, fingerprint_encoder(bundle.weights))
        return replace(loaded, graphs=find_graphs(folder, has_vocoder=loaded.has_neural_vocoder))


def _check_parts(folder: Path, bundle: Bundle, fingerprint: str) -> LoadedBundle:
    """Parses the parts of a bundle; `fingerprint` is that of its reference encoder."""
    spec = ModelSpec.from_json(bundle.model_spec)
    mel, audio = _read_definitions(bundle, folder)
    frontend = FrontEnd.load(folder / FRONTEND_FILE_NAME)
    if frontend.factor_sizes != spec.factor_sizes or mel.n_mels != spec.n_mels:
        raise refuse(
            f"The bundle {folder}",
            f"its model takes tokens of {spec.factor_sizes} and makes {spec.n_mels} mel bands, but front end and "
            f"spectrogram have {frontend.factor_sizes} and {mel.n_mels}",
        )
    config = bundle.model_config
    path, copy = _choose_voices_folders(folder)
    voices = VoiceFolder(path, fingerprint, config.num_latents, config.reference_width, mel, copy=copy)
    noted = read_noted_voices(bundle.notes, config.num_latents, config.reference_width)
    defaults = read_default_voices(bundle.notes, {*noted, *voices.list_names()})
    return LoadedBundle(folder, bundle, spec, mel, audio, frontend, voices, noted, defaults)


def choose_vocoder(loaded: LoadedBundle, asked: VocoderChoice) -> tuple[LoadedBundle, KnownVocoder]:
    """Returns the bundle with the vocoder that was asked for, and its kind.

    auto takes the bundle's own neural one, else that of the base model, else Griffin-Lim. A bundle with graphs that
    gets a vocoder from elsewhere needs TensorFlow. Raises ConfigError where a vocoder that was asked for was trained
    for other spectrograms.
    """
    has_no_graphs = loaded.exported is None and loaded.graphs is None
    if asked == "auto" and not loaded.has_neural_vocoder and has_no_graphs:
        loaded = _borrow_vocoder(loaded)
    if asked == "griffin_lim" or (asked == "auto" and not loaded.has_neural_vocoder):
        return loaded, "griffin_lim"
    if asked in ("auto", "neural"):
        loaded.require_neural_vocoder()
        return loaded, "neural"
    folder = Path(asked)
    if loaded.exported is not None:
        raise ConfigError(
            "An exported model cannot take another vocoder.",
            next_step="Export the model with it: myxtts export --vocoder.",
        )
    if not folder.is_dir():
        raise ConfigError(
            f"There is no vocoder {str(asked)[:200]!r}.",
            next_step="Choose auto, griffin_lim or neural, or name the folder of a run that trained one.",
        )
    return replace(loaded.without_graphs(), bundle=put_into(loaded.bundle, find_vocoder(folder))), "neural"


def _borrow_vocoder(loaded: LoadedBundle) -> LoadedBundle:
    """The bundle with the vocoder of the base model, which many voices have trained, if their spectrograms agree."""
    if not has_base_vocoder():
        return loaded
    vocoder = find_vocoder(BASE_FOLDER)
    return replace(loaded, bundle=put_into(loaded.bundle, vocoder)) if vocoder.mel == loaded.bundle.mel else loaded


def _choose_voices_folders(folder: Path) -> tuple[Path, Path | None]:
    """Returns the folder of saved voices, and one for copies.

    The bundle of a run is replaced as a whole at every checkpoint, so the voices of a run are beside it, with copies
    inside for those who copy the bundle. Those of the packaged model are among the data of the user. In any other
    bundle they are inside.
    """
    if is_base_model(folder):
        return find_base_voices(), None
    parent, inside = folder.absolute().parent, folder / VOICES_FOLDER_NAME
    if folder.absolute().name != BUNDLE_FOLDER_NAME:
        return inside, None
    # Here, because it brings a parser of YAML, which an exported model does not need.
    from myxtts.config.load import RESOLVED_FILE_NAME

    is_of_run = (parent / RESOLVED_FILE_NAME).is_file()
    return (parent / VOICES_FOLDER_NAME, inside) if is_of_run else (inside, None)


def _read_definitions(bundle: Bundle, folder: Path) -> tuple[MelDefinition, AudioDefinition]:
    """Parses the definitions of mel and audio, with the same limits as in a configuration; raises DataError."""
    try:
        check_fields(bundle.mel, MelDefinition)
        check_fields(bundle.audio, AudioDefinition)
    except JsonRefusedError as error:
        raise refuse(f"The bundle {folder}", str(error)) from error
    if bundle.mel["sample_rate"] != bundle.audio["sample_rate"]:
        raise refuse(f"The bundle {folder}", "its spectrogram and its recordings have different sample rates")
    values: dict[str, Any] = {**bundle.audio, **bundle.mel}
    try:
        data = DataConfig(**values)
    except ConfigError as error:
        raise refuse(f"The bundle {folder}", error.problem.rstrip(".")) from error
    return MelDefinition.from_config(data), AudioDefinition.from_config(data)


def _is_file(name: VoiceName) -> bool:
    """Whether a file of this name exists; a string that cannot be a path is none."""
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False
