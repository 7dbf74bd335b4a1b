"""`myxtts data-worker`: runs a tf.data service dispatcher or worker that computes features for trainings elsewhere."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from myxtts.cli.help import ADVANCED, WHAT, WHERE, option
from myxtts.cli.screen import Screen
from myxtts.errors import UsageError
from myxtts.runtime.load_tensorflow import load_tensorflow

if TYPE_CHECKING:
    from myxtts.pipeline.service.address import ListenAddress
    from myxtts.pipeline.service.host import DataHost

_LOOK_EVERY_S = 1.0
"""Interval of the status line and of dropping old chunks."""


def run_data_worker(
    host: Annotated[
        str | None, option("Address that other machines connect to. \\[default: this machine only]", panel=WHERE)
    ] = None,
    port: Annotated[
        int | None,
        option("Port; the next one is used, too. 0 takes free ones. \\[default: 5050]", panel=WHERE, min=0, max=65535),
    ] = None,
    join: Annotated[str | None, option("Join the data worker at this address.", "HOST:PORT", WHERE)] = None,
    recordings: Annotated[
        list[Path] | None,
        option(
            "Folder of recordings; can be repeated. The worker can then read nothing else, if the system can "
            "enforce it.",
            "DIR",
            WHAT,
        ),
    ] = None,
    is_open_allowed: Annotated[
        bool,
        option(
            "Needed with --host: anyone who reaches the port can run code as this user. Use it only in a private "
            "network behind a firewall.",
            panel=ADVANCED,
            flag="--allow-remote-code-execution",
        ),
    ] = False,
    is_root_allowed: Annotated[
        bool, option("Allow to run as root, for example in a container.", panel=ADVANCED, flag="--allow-root")
    ] = False,
    as_json: Annotated[bool, option("Print the addresses as one JSON object.", flag="--json")] = False,
) -> None:
    """Compute features on the fly on another machine, for training with data.data_service.

    The recordings must have the same paths on all machines. Runs until Ctrl-C.

    Warning: the service has no authentication. Anyone who can connect can run code as your user. By default only
    this machine can connect; for other machines use an SSH tunnel.

    [bold]Examples[/bold]

    myxtts data-worker --recordings /shared/corpus

    myxtts data-worker --host 10.0.0.5 --allow-remote-code-execution

    myxtts data-worker --join 127.0.0.1:5050
    """
    from myxtts.pipeline.service.address import check_listen_address

    if os.geteuid() == 0 and not is_root_allowed:
        raise UsageError(
            "A data worker executes what clients send, and must not do that as root.",
            next_step="Run it as an ordinary user; or add --allow-root in a container.",
        )
    for folder in recordings or []:
        if not folder.is_dir():
            raise UsageError(f"--recordings {folder}: there is no such folder.", next_step="Correct its path.")
    screen = Screen(as_json=as_json)
    listen = check_listen_address(host, port, join, is_open_allowed=is_open_allowed)
    from myxtts.pipeline.service.confine import confine_process, make_work_folder

    work_folder = make_work_folder()
    may_do = confine_process(work_folder, [folder.resolve() for folder in recordings or []])
    # Features are computed on the CPU; GPU memory is left to training.
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    load_tensorflow()
    from myxtts.pipeline.service.host import DataHost

    with DataHost(listen, work_folder) as data_host:
        setting = f"data.data_service={data_host.address}"
        _show(data_host, listen, setting, may_do, screen)
        screen.finish({"address": data_host.address, "worker": data_host.worker_address, "setting": setting})
        sys.stdout.flush()
        _serve(data_host, screen)


def _show(data_host: DataHost, listen: ListenAddress, setting: str, may_do: str, screen: Screen) -> None:
    """Prints the address and the setting that training needs, and what clients can do through it."""
    console = screen.console
    role = f"Worker for {listen.joined}" if listen.joined else f"Dispatcher at {data_host.address} with a worker"
    console.print(f"{role}, listening at {data_host.worker_address}.", markup=False)
    console.print(f"Training uses it with  --preprocessing-mode on_the_fly --set {setting}", markup=False)
    console.print(may_do, markup=False)
    if listen.is_private:
        console.print("Only this machine can connect.")
    else:
        screen.warn(
            "It listens on every network of this machine. Any program that can connect can run code as your user: "
            "allow only trusted machines in your firewall."
        )


def _serve(data_host: DataHost, screen: Screen) -> None:
    """Shows the status until interrupted: one changing line on a terminal, one line per change in a log."""
    shown = ""
    with screen.notices.status("starting") as view:
        while True:
            now = data_host.describe()
            view.update(now)
            if now != shown and not screen.notices.is_terminal:
                screen.notices.print(now, markup=False)
            shown = now
            data_host.drop_old_chunks()
            time.sleep(_LOOK_EVERY_S)
