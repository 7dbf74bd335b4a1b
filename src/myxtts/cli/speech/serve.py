"""`myxtts serve`: speech for other programs, over HTTP as OpenAI's clients ask for it, WebSocket and Wyoming."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from myxtts.cli.help import SPEED, WHAT, WHERE, Host, VocoderName, option
from myxtts.cli.screen import Screen, print_note
from myxtts.errors import MissingExtraError, UsageError
from myxtts.runtime.load_tensorflow import load_tensorflow

_MODULES = ("starlette", "uvicorn", "websockets", "wyoming")


def run_serve(
    model: Annotated[
        Path | None,
        option(
            "Folder of a run or exported model. \\[default: base, the model of the package]",
            "MODEL",
            WHAT,
            show_default=False,
        ),
    ] = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, option("Port of HTTP and WebSocket.", panel=WHERE, min=0, max=65535)] = 8020,
    api_key_file: Annotated[
        Path | None, option("File with one key per line; clients must send one of them.", "FILE", WHERE)
    ] = None,
    voice: Annotated[str | None, option("Voice of requests that name none, as in myxtts voices.", panel=WHAT)] = None,
    max_requests: Annotated[
        int, option("Requests at the same time; others get HTTP 429.", "N", SPEED, min=1, max=1000)
    ] = 32,
    allow_uploads: Annotated[
        bool, option("Clients may send recordings as new voices.", panel=WHAT, flag="--allow-uploads")
    ] = False,
    wyoming: Annotated[str | None, option("Serve the Wyoming protocol at tcp://HOST:PORT.", "ADDRESS", WHERE)] = None,
    wyoming_open: Annotated[
        bool, option("Let other machines use the Wyoming port, which has no keys.", panel=WHERE, flag="--wyoming-open")
    ] = False,
    vocoder: VocoderName = "auto",
) -> None:
    """Start a speech server with an OpenAI-compatible API and a web page to try it.

    The API is POST /v1/audio/speech. WebSocket and the Wyoming protocol (Home Assistant) work, too.

    [bold]Examples[/bold]

    myxtts serve

    myxtts serve --model runs/anna

    myxtts serve --model runs/anna --wyoming tcp://127.0.0.1:10200

    myxtts serve --model runs/anna --host 0.0.0.0 --api-key-file keys.txt
    """
    missing = [name for name in _MODULES if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"The server needs {', '.join(missing)}, which is not installed.",
            next_step="Run: pip install 'myxtts[serve]'",
        )
    from myxtts.serve.http_server import read_api_keys
    from myxtts.serve.wyoming_server import read_address
    from myxtts.synthesis.loaded_bundle import choose_vocoder, load_bundle
    from myxtts.synthesis.synthesizer import Synthesizer

    screen = Screen()
    keys = read_api_keys(api_key_file, host)
    address = read_address(wyoming, allows_others=wyoming_open) if wyoming is not None else None
    loaded, kind = choose_vocoder(load_bundle(model, print_note), vocoder)
    if voice is not None:
        # One that does not exist is reported now, not at the first request.
        loaded.find_voice(voice)
    if loaded.needs_tensorflow:
        load_tensorflow()
    synthesizer = Synthesizer(loaded, vocoder=kind, warn=screen.warn)
    from myxtts.serve.app import ServerSettings

    settings = ServerSettings(host, keys, voice, allow_uploads)
    import asyncio  # Here, because it takes a tenth of the time of --help.

    asyncio.run(_serve(synthesizer, settings, port, address, max_requests, screen))


async def _serve(
    synthesizer: Any, settings: Any, port: int, wyoming: tuple[str, int] | None, max_requests: int, screen: Screen
) -> None:
    """Serves until SIGINT or SIGTERM."""
    from myxtts.serve.app import make_app
    from myxtts.serve.http_server import make_server, name_address, open_socket
    from myxtts.serve.metrics import Metrics
    from myxtts.serve.speech_queue import SpeechQueue
    from myxtts.serve.wyoming_server import start_wyoming

    metrics = Metrics()
    queue = SpeechQueue(synthesizer, metrics, max_requests)
    server = make_server(make_app(queue, metrics, settings), settings.host, port)
    listening = open_socket(settings.host, port)
    try:
        others = await start_wyoming(queue, settings.default_voice, *wyoming) if wyoming is not None else None
    except OSError as error:
        listening.close()
        raise UsageError(f"Cannot listen on {wyoming}: {error.strerror}.", next_step="Choose another port.") from error
    screen.console.print(f"Serving on {name_address(listening)} (Ctrl-C stops).", markup=False)
    if others is not None:
        at, at_port, *_ = others.sockets[0].getsockname()
        screen.console.print(f"Wyoming on tcp://{at}:{at_port}.", markup=False)
    try:
        await server.serve(sockets=[listening])
    except (KeyboardInterrupt, SystemExit):
        # uvicorn raises the signal again when it has stopped; ending by it is what a server is meant to do.
        pass
    finally:
        if others is not None:
            others.close()
        queue.close()
    screen.console.print("Stopped.", markup=False)
