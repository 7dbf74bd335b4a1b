"""Terminal view of the monitor: GPUs, host, run and warnings, fitted to the size of the terminal.

`show_live` draws views on the full screen, `show_plain` prints a line every ten seconds for logs and pipes. Lines are
plain text instead of rich tables, because drawing must cost next to nothing beside the training.
"""

from __future__ import annotations

import math
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.text import Text

from myxtts.tools.charts import draw_sparkline, format_gib, pad_line
from myxtts.tools.monitor.alerts import ALERT_KINDS, FULL_SHARE, STARVED_AU, Alert, describe_alert
from myxtts.tools.monitor.gpu_lines import GAP, draw_gpu_lines, draw_gpu_table, explain_gaps
from myxtts.tools.monitor.run import RunReading
from myxtts.tools.monitor.sample import History, HostReading, Sample
from myxtts.tools.words import Translator

_STATES = {
    "absent": ("not started yet", "dim"),
    "starting": ("starting", "cyan"),
    "running": ("running", "green"),
    "stalled": ("no steps", "bold yellow"),
    "ended": ("ended", "dim"),
}
"""Label and rich style of each state of a run."""
_MIN_SPARKLINE = 6
"""Characters below which a sparkline is left out."""
_MIN_ALERT_LINES = 3
"""Lines that warnings always get, even if the GPUs then do not fit the screen."""
_MIN_PATH = 12
_PLAIN_EVERY_S = 10.0
"""Time between two lines where the output is no terminal."""


@dataclass(frozen=True, slots=True)
class View:
    """One sample with its alerts and the history behind it, ready to be shown."""

    sample: Sample
    alerts: Sequence[Alert]
    history: History
    interval_s: float
    no_gpu_reason: str = ""
    own_cpu_percent: float | None = None
    """Share of one core that the monitor itself takes."""
    log_state: str = ""
    tr: Translator = field(default_factory=Translator)
    """Translates the warnings; all other words on the screen are English."""


def draw_view(view: View, width: int, height: int, *, is_live: bool = True, is_ascii: bool = False) -> Text:
    """Draws the view for a terminal of this size.

    Heading, host and run always have their lines. Of the rest, warnings come first: GPUs get five lines each if all
    fit, else one line each, and warnings are shortened only if even that is too much.
    """
    width = max(40, width)
    heading = [_draw_heading(view, width, is_live)]
    below = [
        _draw_host(view.sample.host, view, width, is_ascii),
        *_draw_run(view.sample.run, view.history, width, is_ascii),
    ]
    alerts = draw_alerts(view, width, height)
    room = height - len(heading) - len(below)
    gpus = _draw_gpus(view, width, room - len(alerts), is_ascii)
    if len(gpus) + len(alerts) > room:
        alerts = draw_alerts(view, width, max(_MIN_ALERT_LINES, room - len(gpus)))
    lines = [*heading, *gpus, *below, *alerts]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n", no_wrap=True, end="").join(lines)


def describe_in_a_line(view: View) -> str:
    """Describes the view in one line of plain text, for a log or pipe."""
    sample = view.sample
    parts = [f"CPU {sample.host.cpu_percent:.0f} %"]
    for gpu in sample.gpus:
        use = gpu.problem or (f"{gpu.utilization_percent:.0f} %" if gpu.utilization_percent is not None else "–")
        memory = f", {format_gib(gpu.memory_used_bytes)} GiB" if gpu.memory_used_bytes is not None else ""
        parts.append(f"GPU {gpu.index} {use}{memory}")
    run = sample.run
    if run is not None:
        parts.append(f"run {run.path} {_STATES[run.state][0]}")
        if run.au is not None and run.wait_s is not None and run.depth is not None and run.state == "running":
            rate = f"{run.utterances_per_s or 0:.1f} utterances/s"
            au = f"AU {100 * _find_au(run):.0f} % ({_name_au_basis(run)})"
            parts.append(f"{au}, wait {1000 * run.wait_s:.1f} ms, buffer {run.depth:.1f}, {rate}")
    kinds = sorted({alert.kind for alert in view.alerts})
    if kinds:
        parts.append("warnings: " + ", ".join(ALERT_KINDS[kind] for kind in kinds))
    return "; ".join(parts)


def _draw_heading(view: View, width: int, is_live: bool) -> Text:
    """Time since the start; a live view adds the interval, the log file and how to end it."""
    seconds = int(view.sample.elapsed_s)
    clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    left = Text.assemble(("myxtts monitor", "bold"), f"  {clock}")
    if not is_live:
        return left
    left.append(f", every {view.interval_s:g} s" + (f", {view.log_state}" if view.log_state else ""))
    right = "Ctrl-C ends"
    room = width - len(left) - len(right)
    return left.append(" " * room + right, "dim") if room >= 2 else left


def _draw_gpus(view: View, width: int, room: int, is_ascii: bool) -> list[Text]:
    """Draws five lines per GPU where `room` lines are enough, else the table, and the legend of missing numbers."""
    gpus = view.sample.gpus
    if not gpus:
        return [Text(f"No NVIDIA GPU: {view.no_gpu_reason}.", "yellow")]
    whole = [line for gpu in gpus for line in draw_gpu_lines(gpu, view.history, width, is_ascii)]
    gaps = explain_gaps(gpus)
    if len(whole) + len(gaps) <= room:
        return whole + gaps
    return [*draw_gpu_table(gpus, view.history, width, is_ascii), *gaps]


def _draw_host(host: HostReading, view: View, width: int, is_ascii: bool) -> Text:
    """Draws CPU load with a sparkline, memory, and the CPU cost of the monitor itself."""
    style = "bold red" if host.ram_share >= FULL_SHARE else ""
    memory = f"{format_gib(host.ram_used_bytes)} of {format_gib(host.ram_bytes)} GiB"
    parts = [
        Text.assemble(("CPU ", "bold"), f"{host.cpu_percent:3.0f} % of {host.num_cpus}"),
        Text.assemble("memory ", (memory, style)),
    ]
    if view.own_cpu_percent is not None:
        parts.append(Text(f"monitor itself {view.own_cpu_percent:.1f} %", "dim"))
    room = width - len(GAP.join(parts)) - 1
    if room >= _MIN_SPARKLINE:
        recent = view.history.get_recent("cpu_percent", min(room, 30))
        parts[0].append(" " + draw_sparkline(recent, 100, is_ascii), "cyan")
    return GAP.join(parts)


def _draw_run(run: RunReading | None, history: History, width: int, is_ascii: bool) -> Iterator[Text]:
    """Draws path, state and progress of the run, and AU, rate, wait and buffer with sparklines once it has steps."""
    if run is None:
        yield Text.assemble(("Run ", "bold"), ("none under runs/ yet; --run FOLDER names another place", "dim"))
        return
    about = [f"step {run.step:,}" if run.step is not None else ""]
    about += [f"epoch {run.epoch:.2f}" if run.epoch is not None else ""]
    about += [f"loss {run.loss:.3f}" if run.loss is not None else ""]
    detail = "".join(f", {text}" for text in about if text)
    if run.state in ("stalled", "ended") and run.idle_s is not None:
        detail += f", last step {Translator().time(run.idle_s)} ago"
    state, style = _STATES[run.state]
    path = _shorten_path(run.path, width - len(f"Run   {state}{detail}"))
    yield Text.assemble(("Run ", "bold"), f"{path}  ", (state, style), detail)
    if run.au is None or run.wait_s is None or run.step_s is None or run.depth is None:
        return
    column = (width - 6) // 2
    au_style = "" if run.au >= STARVED_AU else "bold yellow"

    def draw(label: str, value: str, name: str, top: float | None, style: str = "") -> Text:
        line = Text.assemble((f"{label:<7}", "dim"), (f"{value}  ", style))
        recent = history.get_recent(name, max(0, column - len(line)))
        return pad_line(line.append(draw_sparkline(recent, top, is_ascii), "cyan"), column)

    rate, depth = f"{run.utterances_per_s or 0:7.1f} utt/s", f"{run.depth:7.1f} batches"
    # The full scale of the wait is the whole step, so that a short wait looks short.
    wait = draw("wait", f"{1000 * run.wait_s:6.1f} ms", "wait_s", run.wait_s + run.step_s)
    column_of_au = "au" if run.device_busy is None else "device_busy"
    au = draw("AU", f"{100 * _find_au(run):6.1f} % ", column_of_au, 1.0, au_style)
    yield Text.assemble("  ", au, "  ", draw("rate", rate, "utterances_per_s", None))
    yield Text.assemble("  ", wait, "  ", draw("buffer", depth, "depth", None))
    rest = [f"AU: {_name_au_basis(run)}", f"step {1000 * run.step_s:.1f} ms"]
    rest += [f"{100 * run.wall_share:.0f} % of wall clock"] if run.wall_share is not None else []
    rest += [f"varies {100 * run.variation:.0f} %"] if run.variation is not None else []
    rest += [f"padding {100 * run.padding:.0f} %"] if run.padding is not None else []
    yield Text("  " + ", ".join(rest), "dim")


def _find_au(run: RunReading) -> float:
    """Accelerator utilisation: the busy time of the GPU where the run measured it, else the time without data wait."""
    return run.device_busy if run.device_busy is not None else run.au or 0.0


def _name_au_basis(run: RunReading) -> str:
    return "GPU busy" if run.device_busy is not None else "no data wait"


def _shorten_path(path: str, width: int) -> str:
    """Cuts a path at its beginning, because its end names the run."""
    width = max(_MIN_PATH, width)
    return path if len(path) <= width else f"…{path[1 - width :]}"


def draw_alerts(view: View, width: int, num_lines: int) -> list[Text]:
    """Draws up to `num_lines` of warnings, most severe first; the same one on several GPUs is drawn once."""
    drawn = [list(_draw_alert(same, width, view.tr)) for same in _group_alerts(view.alerts)]
    lines: list[Text] = []
    for number, block in enumerate(drawn):
        num_left = len(drawn) - number
        if len(lines) + len(block) + (num_left > 1) > num_lines:
            return [*lines, Text(f"! {num_left} more {'warnings' if num_left > 1 else 'warning'}", "bold yellow")]
        lines += block
    return lines


def _group_alerts(alerts: Sequence[Alert]) -> list[list[Alert]]:
    """Groups alerts with the same sentence and reasons, in the order of `ALERT_KINDS`."""
    groups: dict[tuple[str, tuple[str, ...]], list[Alert]] = {}
    for alert in sorted(alerts, key=lambda one: list(ALERT_KINDS).index(one.kind)):
        groups.setdefault((alert.key, alert.reasons), []).append(alert)
    return list(groups.values())


def _draw_alert(same: Sequence[Alert], width: int, tr: Translator) -> Iterator[Text]:
    """Wraps the sentence of the first alert and names the GPUs of the others; lost GPUs and memory are red."""
    first, *others = same
    label = f"! {tr(ALERT_KINDS[first.kind])}: "
    style = "bold red" if first.kind in ("lost", "memory") else "bold yellow"
    gpus = tr.join(tr.count(alert.gpu or 0) for alert in others)
    also = " " + tr("The same holds for GPU {gpus}.", gpus=gpus) if others else ""
    for number, text in enumerate(textwrap.wrap(describe_alert(first, tr) + also, max(20, width - len(label)))):
        yield Text.assemble((label if number == 0 else " " * len(label), style), text)


Show = Callable[[View], None]


@contextmanager
def show_live(console: Console) -> Iterator[Show]:
    """Shows views on the alternate screen of the terminal, which is redrawn only when a sample arrives."""
    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False) as live:

        def show(view: View) -> None:
            width, height = console.size
            live.update(draw_view(view, width, height, is_ascii=console.options.ascii_only), refresh=True)

        yield show


def show_plain(console: Console) -> Show:
    """Returns a function that prints a line every ten seconds, for output that is no terminal."""
    next_s = -math.inf

    def show(view: View) -> None:
        nonlocal next_s
        if time.monotonic() >= next_s:
            next_s = time.monotonic() + _PLAIN_EVERY_S
            console.print(describe_in_a_line(view), markup=False, soft_wrap=True)

    return show


def print_view(console: Console, view: View) -> None:
    """Prints a view in full length; it stays in the terminal after a live view is closed."""
    text = draw_view(view, console.width, sys.maxsize, is_live=False, is_ascii=console.options.ascii_only)
    console.print(text, soft_wrap=True)
