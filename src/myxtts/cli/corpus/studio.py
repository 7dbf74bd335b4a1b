"""`myxtts studio`: a local page to hear, correct and record the clips of a corpus."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from myxtts.cli.help import WHAT, WHERE, Host, PageKeyFile, option
from myxtts.cli.screen import Screen, format_length, mute_decoders, show_progress
from myxtts.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from myxtts.studio.editor import Studio

_MODULES = ("starlette", "uvicorn")


def run_studio(
    corpus: Annotated[
        Path, typer.Argument(help="Corpus in any layout that `prepare` reads, or a new folder.", metavar="CORPUS")
    ],
    language: Annotated[str, option("Language of clips that name none, and of --prompts.", "CODE", WHAT)] = "en",
    prompts: Annotated[
        Path | None, option("Sentences to record, one per line. \\[default: those of MyXTTS]", "FILE", WHAT)
    ] = None,
    doubts: Annotated[
        Path | None,
        option("Doubtful clips found by another tool: JSON lines with id, doubt (0 to 1) and reasons.", "FILE", WHAT),
    ] = None,
    audio_root: Annotated[Path | None, option("Folder of the recordings, as for `prepare`.", "DIR", WHERE)] = None,
    lang: Annotated[str | None, option("Language of the page: en or fa. \\[default: that of the browser]")] = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, option("Port of the page; 0 finds a free one.", panel=WHERE, min=0, max=65535)] = 8040,
    api_key_file: PageKeyFile = None,
    as_json: Annotated[bool, option("Print address and corpus as one JSON object.", flag="--json")] = False,
) -> None:
    """Hear, correct, split, merge, drop and record the clips of a corpus, on a web page on your own machine.

    Your recordings and transcripts are never changed: edits are saved in CORPUS/studio, and myxtts prepare CORPUS
    applies them.

    [bold]Examples[/bold]

    myxtts studio corpus

    myxtts studio my-voice --language fa --lang fa

    myxtts studio corpus --doubts doubts.jsonl --port 0
    """
    missing = [name for name in _MODULES if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"The studio needs {', '.join(missing)}, which is not installed.",
            next_step="Run: pip install 'myxtts[serve]'",
        )
    from myxtts.serve.http_server import make_server, name_address, open_socket, read_api_keys
    from myxtts.studio.app import StudioApp, StudioSettings
    from myxtts.studio.doubts import read_doubts
    from myxtts.studio.editor import Studio
    from myxtts.studio.recording import list_prompts
    from myxtts.tools.words import Translator

    screen = Screen(as_json=as_json)
    if lang is not None:
        Translator(lang)
    if audio_root is not None and not audio_root.is_dir():
        raise UsageError(f"There is no folder {audio_root} (--audio-root).", next_step="Name the recordings' folder.")
    keys = read_api_keys(api_key_file, host)
    given = read_doubts(doubts) if doubts is not None else {}
    sentences = list_prompts(prompts, language)
    # A port that is taken is reported before a large corpus is read.
    with (
        open_socket(host, port) as listening,
        Studio(corpus, language=language, audio_root=audio_root, say=screen.warn) as studio,
    ):
        with mute_decoders(), show_progress("Reading lengths", len(studio.library), "clips") as view:
            unknown = studio.measure(given, view.update)
        if unknown:
            screen.warn(f"{len(unknown):,} doubts are of clips that the corpus has not, such as {unknown[0]}.")
        app = StudioApp(studio, StudioSettings(host, keys, lang or "", sentences)).build()
        address = name_address(listening)
        _show(studio, address, screen)
        screen.finish({"address": address, "corpus": str(corpus), "format": studio.format, **studio.library.count()})
        # A program that started the studio reads the address now, not when it ends.
        sys.stdout.flush()
        # uvicorn raises the signal again when it has stopped; ending by it is what a server is meant to do.
        with suppress(KeyboardInterrupt, SystemExit):
            make_server(app, host, port).run(sockets=[listening])
    out = (corpus if corpus.is_dir() else corpus.parent) / "prepared"
    screen.console.print(f"Stopped. Next: myxtts prepare {corpus} --out {out}", markup=False, soft_wrap=True)


def _show(studio: Studio, address: str, screen: Screen) -> None:
    counts = studio.library.count()
    length = f"{counts['used']:,} clips used, {format_length(counts['seconds'])}"
    lines = [
        f"{studio.path}: {studio.format}",
        f"{length}; {counts['doubtful']:,} doubtful, {counts['dropped']:,} dropped",
    ]
    lines.append(f"Open {address} (Ctrl-C stops; every change is kept at once).")
    for line in lines:
        screen.console.print(line, markup=False, soft_wrap=True)
