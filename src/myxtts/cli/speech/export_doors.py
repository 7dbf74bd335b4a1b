"""The formats of `myxtts export` that other programs speak: a voice for Piper, a page for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from myxtts.storage.atomic import write_new_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from myxtts.cli.screen import Screen
    from myxtts.synthesis.loaded_bundle import KnownVocoder, LoadedBundle

_RUNTIME = Path("node_modules") / "onnxruntime-web"
"""Where npm install puts it."""


def export_for_piper(
    loaded: LoadedBundle,
    vocoder: KnownVocoder,
    out: Path,
    voices: Sequence[str],
    language: str | None,
    name: str | None,
    screen: Screen,
) -> dict[str, Any]:
    """Writes NAME.onnx and NAME.onnx.json; returns what was measured."""
    from myxtts.export.piper import choose_piper_voice, export_piper

    voice = choose_piper_voice(loaded, voices, language, name)
    with write_new_folder(out) as folder:
        proof = export_piper(loaded, voice, vocoder, folder)
    model = out / f"{voice.name}.onnx"
    speakers = ", ".join(voice.speakers)
    screen.console.print(f"{model}: {speakers}, language {voice.language}. {proof.describe()}", markup=False)
    return {"model": str(model), "language": voice.language, "speakers": list(voice.speakers), **proof.to_json()}


def export_for_web(
    loaded: LoadedBundle,
    vocoder: KnownVocoder,
    out: Path,
    voices: Sequence[str],
    language: str | None,
    runtime: Path | None,
    words: Path | None,
    screen: Screen,
) -> dict[str, Any]:
    """Writes the page with its scripts; returns what was measured."""
    from myxtts.export.web import choose_speakers, export_web

    speakers = choose_speakers(loaded, voices, language)
    texts = _collect_texts(loaded, {speaker.language for speaker in speakers.values()}, words, screen)
    with write_new_folder(out) as folder:
        proof = export_web(loaded, speakers, vocoder, folder, runtime=runtime or _RUNTIME, texts=texts)
    num_bytes = sum(file.stat().st_size for file in out.iterdir())
    screen.console.print(f"{out / 'index.html'}: {num_bytes / 1e6:.0f} MB. {proof.describe()}", markup=False)
    return {"page": str(out / "index.html"), "num_bytes": num_bytes, "speakers": list(speakers), **proof.to_json()}


def _collect_texts(
    loaded: LoadedBundle, languages: set[str], words: Path | None, screen: Screen
) -> Mapping[str, Sequence[str]]:
    """The texts whose words the page shall know: those of --words, else of the corpus of the run."""
    from myxtts.export.web import read_words

    if loaded.frontend.kind == "characters":
        return {}
    if words is not None:
        lines = read_words(words)
        return dict.fromkeys(languages, lines)
    texts = _read_corpus(loaded)
    if not texts:
        screen.warn("The page knows no words, because the corpus of the run was not found: give a text with --words.")
    return texts


def _read_corpus(loaded: LoadedBundle) -> dict[str, list[str]]:
    """The texts of the run's prepared corpus by language; none where it is gone."""
    from myxtts.config.load import RESOLVED_FILE_NAME
    from myxtts.corpus.corpus_file import is_prepared, open_corpus
    from myxtts.training.run.resume import load_run_settings

    run = loaded.folder.absolute().parent
    if not (run / RESOLVED_FILE_NAME).is_file():
        return {}
    source = load_run_settings(run).data.train_data
    if source is None or not is_prepared(Path(source)):
        return {}
    texts: dict[str, list[str]] = {}
    for utterance in open_corpus(source).utterances():
        texts.setdefault(loaded.find_language(utterance.language), []).append(utterance.text)
    return texts
