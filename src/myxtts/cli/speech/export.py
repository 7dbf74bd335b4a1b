"""`myxtts export`: writes a model in a form that other programs load, and proves that it speaks as the original."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from myxtts.cli.help import ADVANCED, WHAT, WHERE, VocoderName, option
from myxtts.cli.screen import Screen, print_note
from myxtts.errors import UsageError
from myxtts.runtime.load_tensorflow import load_tensorflow
from myxtts.storage.atomic import refuse_filled_folder, write_new_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from myxtts.synthesis.loaded_bundle import KnownVocoder, LoadedBundle

_FLAGS = {
    "onnx": {"--dtype"},
    "piper": {"--voice", "--language", "--name"},
    "web": {"--voice", "--language", "--words", "--runtime"},
}
"""Flags that act in each format, besides those that act in all."""
_RUNTIME = Path("node_modules") / "onnxruntime-web"
"""Where npm install puts it."""


def run_export(
    model: Annotated[
        Path | None,
        option("Folder of a run. \\[default: base, the model of the package]", "MODEL", WHAT, show_default=False),
    ] = None,
    *,
    out: Annotated[Path, option("Folder for the exported model; it must be new or empty.", "DIR", WHERE)],
    format: Annotated[
        Literal["onnx", "piper", "web"],
        option(
            "onnx: graphs for myxtts synth and serve. piper: for piper-tts, wyoming-piper and sherpa-onnx. "
            "web: a page that speaks in a browser.",
            panel=WHAT,
        ),
    ] = "onnx",
    dtype: Annotated[
        Literal["float32", "float16", "int8"],
        option("float32, float16 or int8. Smaller types are refused if they change the speech.", panel=ADVANCED),
    ] = "float32",
    vocoder: VocoderName = "auto",
    voice: Annotated[
        list[str] | None, option("Voice for piper and web; can be repeated. \\[default: all]", panel=WHAT)
    ] = None,
    language: Annotated[
        str | None, option("Language that piper and web speak, such as en or fa.", "CODE", WHAT)
    ] = None,
    name: Annotated[
        str | None, option("Name of the Piper voice. \\[default: name of the run]", "NAME", ADVANCED)
    ] = None,
    words: Annotated[
        Path | None,
        option("Text with the words that the page can say. \\[default: corpus of the run]", "FILE", ADVANCED),
    ] = None,
    runtime: Annotated[
        Path | None,
        option("Folder of the npm package onnxruntime-web. \\[default: node_modules/onnxruntime-web]", "DIR", ADVANCED),
    ] = None,
    as_json: Annotated[bool, option("Print what was measured as one JSON object.", flag="--json")] = False,
) -> None:
    """Export a model to ONNX, Piper or a web page, to use it without TensorFlow.

    The export is compared with the original first: durations must be equal, and spectrograms within 0.001. Otherwise
    nothing is written.

    [bold]Examples[/bold]

    myxtts export --model runs/anna --out anna-onnx

    myxtts export --model runs/anna --format piper --language en --out anna-piper

    myxtts synth "Good morning." --model anna-onnx --voice anna
    """
    from myxtts.synthesis.loaded_bundle import choose_vocoder, load_bundle

    screen = Screen(as_json=as_json)
    given = {
        "--dtype": dtype != "float32",
        "--voice": bool(voice),
        "--language": language is not None,
        "--name": name is not None,
        "--words": words is not None,
        "--runtime": runtime is not None,
    }
    _refuse_useless(format, [flag for flag, is_given in given.items() if is_given])
    loaded, kind = choose_vocoder(load_bundle(model, print_note), vocoder)
    if loaded.exported is not None:
        raise UsageError(f"{loaded.folder} is an exported model.", next_step="Name the run that it was exported from.")
    refuse_filled_folder(out)
    load_tensorflow()
    if format != "onnx":
        result = (
            _export_for_piper(loaded, kind, out, voice or (), language, name, screen)
            if format == "piper"
            else _export_for_web(loaded, kind, out, voice or (), language, runtime, words, screen)
        )
        screen.finish({"out": str(out), "format": format, **result})
        return
    from myxtts.export.folder import export_onnx

    proof = export_onnx(loaded, kind, out, dtype, lambda line: screen.notices.print(line, markup=False))
    num_bytes = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    screen.console.print(f"{out}: {num_bytes / 1e6:.1f} MB. {proof.describe()}", markup=False)
    screen.finish({"out": str(out), "format": format, "dtype": dtype, "num_bytes": num_bytes, **proof.model_dump()})


def _refuse_useless(format: str, given: list[str]) -> None:
    """Raises UsageError for flags that the format has no use for."""
    useless = [flag for flag in given if flag not in _FLAGS[format]]
    if useless:
        raise UsageError(
            f"{', '.join(useless)} {'does' if len(useless) == 1 else 'do'} nothing with --format {format}.",
            next_step=f"Leave {'it' if len(useless) == 1 else 'them'} out, or choose another --format.",
        )


def _export_for_piper(
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


def _export_for_web(
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
