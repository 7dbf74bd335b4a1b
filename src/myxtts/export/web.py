"""Exports a model as a folder with one page that speaks in a browser: no server, no foreign address, no installation.

    index.html   the page                             voice.js     voices, ids of signs, lexicon
    model.js     the graph of `single_file`, base64   runtime.js   onnxruntime-web, base64
    CARD.md      what is known about the model        LICENSE-onnxruntime-web.txt

A browser lets a page that is opened as a file load scripts, but fetch nothing: so everything is a script. The runtime
comes from the npm package onnxruntime-web (MIT licence), which the user installs; 14 MB of it are WebAssembly.
A model of characters says any text. A model of phonemes says words of the lexicon that is exported with it, because
espeak-ng is not part of the page; others can be written in IPA.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from myxtts.errors import DataError, UsageError
from myxtts.export.single_file import SingleFileProof, list_ids, make_single_file
from myxtts.export.speech_graph import FixedSpeaker
from myxtts.models.bundle import refresh_card
from myxtts.storage.atomic import write_file
from myxtts.storage.regular_file import FileRefusedError, read_regular
from myxtts.synthesis.loaded_bundle import KnownVocoder, LoadedBundle
from myxtts.types import DEFAULT_NOISE_SCALE

RUNTIME_PACKAGE = "onnxruntime-web@1.30.0"
_RUNTIME_FILES = {"source": "dist/ort.wasm.bundle.min.mjs", "wasm": "dist/ort-wasm-simd-threaded.wasm"}
_LICENCE = "LICENSE-onnxruntime-web.txt"
_MAX_RUNTIME_BYTES = 100_000_000
_MAX_TEXT_BYTES = 100_000_000
_MAX_WORDS = 100_000
"""In the lexicon of the page, about 3 MB."""
_WORD = re.compile(r"[^\W\d_](?:[\w\u200c'’-]*[^\W_])?")
_BATCH = 2000


def choose_speakers(
    loaded: LoadedBundle, names: Iterable[str] = (), language: str | None = None
) -> dict[str, FixedSpeaker]:
    """Returns the voices of the page by name, each with its language, or with `language` if that is given.

    Raises UsageError where there is none, or one has no embedding of this model.
    """
    speakers = {}
    for name in list(names) or loaded.list_voices():
        source = loaded.find_voice(name)
        if source.embedding is None:
            raise UsageError(
                f"The voice {name!r} has no embedding of this model.",
                next_step="Save it again with myxtts synth --save-voice, and export that.",
            )
        speakers[name] = FixedSpeaker(source.embedding, loaded.find_language(language, source))
    if not speakers:
        raise UsageError("The model has no voice to export.", next_step="Save one: myxtts synth --save-voice NAME.")
    return speakers


def export_web(
    loaded: LoadedBundle,
    speakers: Mapping[str, FixedSpeaker],
    vocoder: KnownVocoder,
    out: Path,
    *,
    runtime: Path,
    texts: Mapping[str, Iterable[str]],
) -> SingleFileProof:
    """Writes the folder of the page; `texts` by language are those whose words go into its lexicon.

    `runtime` is the folder of the npm package onnxruntime-web. Raises DataError where the proof fails.
    """
    scripts, assets = read_runtime(runtime), files("myxtts.export")
    languages = {speaker.language for speaker in speakers.values()}
    lexicon = {
        language: make_lexicon(loaded, language, texts.get(language, ())) if loaded.frontend.kind == "phonemes" else {}
        for language in sorted(languages)
    }
    model, proof = make_single_file(loaded, list(speakers.values()), vocoder)
    voice = {
        "kind": loaded.frontend.kind,
        "sample_rate": loaded.mel.sample_rate,
        "noise_scale": DEFAULT_NOISE_SCALE,
        "mark": loaded.describe_mark(),
        "voices": [{"name": name, "language": speaker.language} for name, speaker in speakers.items()],
        "ids": list_ids(loaded.frontend.tokenizer),
        "lexicon": lexicon,
    }
    out.mkdir(parents=True, exist_ok=True)
    head, body = files("myxtts.synthesis") / "page_head.html", assets / "web_page.html"
    contents = {
        "index.html": head.read_bytes() + body.read_bytes(),
        "voice.js": _assign("MYXTTS_VOICE", voice),
        "model.js": _assign("MYXTTS_MODEL", _encode(model.SerializeToString())),
        "runtime.js": _assign("MYXTTS_RUNTIME", scripts),
        _LICENCE: (assets / _LICENCE).read_bytes(),
    }
    for name, content in contents.items():
        write_file(out / name, content)
    refresh_card(loaded.folder, out=out)
    return proof


def read_runtime(package: Path) -> dict[str, str]:
    """Returns the scripts of an installed npm package onnxruntime-web."""
    try:
        source = read_regular(package / _RUNTIME_FILES["source"], _MAX_RUNTIME_BYTES).decode("utf-8")
        wasm = read_regular(package / _RUNTIME_FILES["wasm"], _MAX_RUNTIME_BYTES)
    except (OSError, FileRefusedError, UnicodeDecodeError) as error:
        raise UsageError(
            f"onnxruntime-web was not found in {package}: {error}.",
            next_step=f"Run npm install {RUNTIME_PACKAGE}, and give --runtime node_modules/onnxruntime-web.",
        ) from error
    return {"source": source, "wasm": _encode(wasm)}


def make_lexicon(loaded: LoadedBundle, language: str, texts: Iterable[str]) -> dict[str, str]:
    """IPA of every word of some texts, and of the words of the model's own lexicon, in small letters."""
    frontend = loaded.frontend
    words = list(frontend.lexicon.entries) if frontend.lexicon else []
    for text in texts:
        words += [word.lower() for word in _WORD.findall(frontend.normalize(text, language))]
    chosen = list(dict.fromkeys(words))
    if len(chosen) > _MAX_WORDS:
        raise DataError(
            f"{len(chosen):,} words are too many for a page; it takes {_MAX_WORDS:,}.",
            next_step="Give a shorter text with --words.",
        )
    lexicon: dict[str, str] = {}
    for start in range(0, len(chosen), _BATCH):
        batch = chosen[start : start + _BATCH]
        encodings = frontend.encode_normalized(batch, [language] * len(batch))
        spelt = (frontend.tokenizer.decode(encoding.ids).strip() for encoding in encodings)
        lexicon |= {word: ipa for word, ipa in zip(batch, spelt, strict=True) if ipa}
    return lexicon


def read_words(path: Path) -> list[str]:
    """Reads a text whose words go into the lexicon; raises UsageError where it cannot be read."""
    try:
        return read_regular(path, _MAX_TEXT_BYTES).decode("utf-8-sig").splitlines()
    except (OSError, FileRefusedError, UnicodeDecodeError) as error:
        raise UsageError(f"The words in {path} cannot be read: {error}.", next_step="Name a text file.") from error


def _assign(name: str, value: Any) -> bytes:
    """A script that sets a global name; `</script>` cannot end it, because it is a file of its own."""
    return f"const {name} = {json.dumps(value, ensure_ascii=True)};\n".encode()


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
