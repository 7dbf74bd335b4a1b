"""Terminal lines of GPU readings for the monitor: five lines per GPU, or a table with one line per GPU.

Layout only: numbers come from `gpus`, sparklines from the history. A missing number is shown as "denied" or "n/a", and
`explain_gaps` adds a legend for these marks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from myxtts.tools.charts import draw_sparkline, format_gib, pad_line
from myxtts.tools.monitor.alerts import FULL_SHARE
from myxtts.tools.monitor.gpus import DENIED, LOST, SILENT, THROTTLE_TEXTS, UNSUPPORTED, GpuReading
from myxtts.tools.monitor.sample import History

_HOT_C = 85
"""Temperature in °C from which a GPU is shown in red."""
_MIN_SPARKLINE = 4
"""Characters below which a sparkline is left out."""
_NAME_WIDTH = 16
"""Widest column of GPU names in the table, in characters."""
GAP = Text("   ")
# Meanings of the marks for missing numbers.
_GAPS = {DENIED: "this user may not read it", UNSUPPORTED: "not reported by this GPU", SILENT: "no answer"}


def draw_gpu_lines(gpu: GpuReading, history: History, width: int, is_ascii: bool) -> Iterator[Text]:
    """Draws one GPU: heading, utilisation and memory, power and clocks, PCIe and throttling, processes.

    A GPU with a problem, such as a lost one, has only its heading.
    """
    heading = Text(f"GPU {gpu.index} {gpu.name}", "bold")
    if gpu.problem:
        yield Text.assemble(heading, "  ", (_explain_problem(gpu.problem), "bold red"))
        return
    link = _describe_link(gpu)
    yield Text.assemble(pad_line(heading, width - len(link)), (link, "dim"))
    column = (width - 4) // 2
    use = _draw_use(gpu, history, column, is_ascii)
    yield Text.assemble("  ", pad_line(use, column + 2), _draw_memory(gpu, history, column, is_ascii))
    yield Text.assemble("  ", GAP.join([_describe_power(gpu), _describe_heat(gpu), _describe_clocks(gpu)]))
    yield Text.assemble("  ", GAP.join([_describe_pcie(gpu), _describe_throttling(gpu)]))
    yield Text.assemble("  ", _describe_processes(gpu))


def draw_gpu_table(gpus: Sequence[GpuReading], history: History, width: int, is_ascii: bool) -> Iterator[Text]:
    """Draws all GPUs as a table with one line each; names and sparklines get the width that is left."""
    # 68 characters are the columns with numbers, with their gaps.
    spare = width - 68
    name_width = min(_NAME_WIDTH, spare // 2) if spare >= 14 else 0
    spark_width = max(0, min(30, spare - name_width - bool(name_width)))
    name_head = f"{'name':<{name_width}} " if name_width else ""
    columns = f"{'memory':>13} {'power':>6} {'heat':>6} {'clock':>8} {'PCIe in/out':>12} {'procs':>6}"
    yield Text(f"GPU {name_head}{'util':>6} {'':<{spark_width}} {columns}", "dim")
    for gpu in gpus:
        start = Text(f"{gpu.index:>3} ", "bold")
        name = f"{_shorten(gpu.name)[:name_width]:<{name_width}} " if name_width else ""
        if gpu.problem:
            yield Text.assemble(start, name, (_explain_problem(gpu.problem), "bold red"))
            continue
        recent = history.get_recent(f"gpu{gpu.index}_utilization_percent", spark_width)
        yield Text.assemble(
            start,
            name,
            f"{_write(gpu, 'utilization', gpu.utilization_percent, ' %'):>6} ",
            (f"{draw_sparkline(recent, 100, is_ascii):<{spark_width}} ", "cyan"),
            (f"{_write_memory(gpu, '/'):>13} ", _warn(gpu.memory_share, FULL_SHARE)),
            f"{_write(gpu, 'power', gpu.power_w, ' W'):>6} ",
            (f"{_write(gpu, 'temperature', gpu.temperature_c, ' °C'):>6} ", _warn(gpu.temperature_c, _HOT_C)),
            (f"{_write(gpu, 'clocks', gpu.sm_clock_mhz, ' MHz'):>8} ", "yellow" if gpu.throttle_reasons else ""),
            f"{_write_pcie_pair(gpu):>12} ",
            f"{_write(gpu, 'processes', None if gpu.processes is None else len(gpu.processes), ''):>6}",
        )


def explain_gaps(gpus: Sequence[GpuReading]) -> list[Text]:
    """Returns a line that explains the marks for missing numbers, or no line where none is missing."""
    gaps = {gap for gpu in gpus for gap in gpu.unavailable.values()}
    meanings = {_mark(gap): _GAPS[gap] for gap in sorted(gaps)}
    text = "; ".join(f"{mark}: {meaning}" for mark, meaning in meanings.items())
    return [Text(text, "dim")] if text else []


def _mark(gap: str) -> str:
    return "denied" if gap == DENIED else "n/a"


def _write(gpu: GpuReading, name: str, value: float | None, unit: str) -> str:
    """Formats a number, or the mark of its gap; `name` is its key in `unavailable`."""
    return _mark(gpu.unavailable.get(name, "")) if value is None else f"{value:.0f}{unit}"


def _write_memory(gpu: GpuReading, between: str) -> str:
    if gpu.memory_used_bytes is None or gpu.memory_bytes is None:
        return _mark(gpu.unavailable.get("memory", ""))
    return f"{format_gib(gpu.memory_used_bytes)}{between}{format_gib(gpu.memory_bytes)} GiB"


def _write_pcie_pair(gpu: GpuReading) -> str:
    if gpu.pcie_rx_bytes_per_s is None or gpu.pcie_tx_bytes_per_s is None:
        return _mark(gpu.unavailable.get("pcie", ""))
    return f"{gpu.pcie_rx_bytes_per_s / 1e9:.1f}/{gpu.pcie_tx_bytes_per_s / 1e9:.1f} GB/s"


def _draw_use(gpu: GpuReading, history: History, width: int, is_ascii: bool) -> Text:
    busy = _write(gpu, "utilization", gpu.utilization_percent, " %")
    line = Text.assemble(("util ", "dim"), (f"{busy:>6} ", "bold"))
    return _add_sparkline(line, history, f"gpu{gpu.index}_utilization_percent", 100, width, is_ascii)


def _draw_memory(gpu: GpuReading, history: History, width: int, is_ascii: bool) -> Text:
    style = _warn(gpu.memory_share, FULL_SHARE) or "bold"
    line = Text.assemble(("memory ", "dim"), (f"{_write_memory(gpu, ' of ')} ", style))
    return _add_sparkline(line, history, f"gpu{gpu.index}_memory_used_bytes", gpu.memory_bytes, width, is_ascii)


def _add_sparkline(line: Text, history: History, column: str, top: float | None, width: int, is_ascii: bool) -> Text:
    """Fills the rest of `width` with the newest values of a history column, one character each."""
    room = width - len(line)
    if room >= _MIN_SPARKLINE:
        line.append(draw_sparkline(history.get_recent(column, room), top, is_ascii), "cyan")
    return line


def _describe_power(gpu: GpuReading) -> Text:
    limit = f" of {gpu.power_limit_w:.0f} W" if gpu.power_w is not None and gpu.power_limit_w is not None else ""
    return Text.assemble(("power ", "dim"), _write(gpu, "power", gpu.power_w, "" if limit else " W") + limit)


def _describe_heat(gpu: GpuReading) -> Text:
    heat = _write(gpu, "temperature", gpu.temperature_c, " °C")
    return Text.assemble(("heat ", "dim"), (heat, _warn(gpu.temperature_c, _HOT_C)))


def _describe_clocks(gpu: GpuReading) -> Text:
    clock = _write(gpu, "clocks", gpu.sm_clock_mhz, "")
    if gpu.sm_clock_mhz is not None:
        clock += f" of {gpu.max_sm_clock_mhz} MHz" if gpu.max_sm_clock_mhz is not None else " MHz"
    memory_clock = _write(gpu, "memory_clock", gpu.memory_clock_mhz, " MHz")
    return Text.assemble(("clock ", "dim"), clock, (", memory ", "dim"), memory_clock)


def _describe_link(gpu: GpuReading) -> str:
    """The current PCIe generation and width; idle GPUs lower the generation to save power."""
    if gpu.pcie_generation is None or gpu.pcie_width is None:
        return f"PCIe {_mark(gpu.unavailable.get('pcie_link', ''))}"
    return f"PCIe gen {gpu.pcie_generation} x{gpu.pcie_width}"


def _describe_pcie(gpu: GpuReading) -> Text:
    """PCIe throughput into and out of the GPU, in GB/s of 10^9 bytes."""
    if gpu.pcie_rx_bytes_per_s is None or gpu.pcie_tx_bytes_per_s is None:
        return Text.assemble(("PCIe in and out ", "dim"), _mark(gpu.unavailable.get("pcie", "")))
    received, sent = f"{gpu.pcie_rx_bytes_per_s / 1e9:.2f}", f"{gpu.pcie_tx_bytes_per_s / 1e9:.2f} GB/s"
    return Text.assemble(("PCIe in ", "dim"), received, (" out ", "dim"), sent)


def _describe_throttling(gpu: GpuReading) -> Text:
    """All reasons that NVML reports, also a power cap that is too mild for an alert."""
    if gpu.throttle_reasons is None:
        return Text.assemble(("throttling ", "dim"), _mark(gpu.unavailable.get("throttling", "")))
    if not gpu.throttle_reasons:
        return Text("not throttled", "dim")
    return Text("throttled: " + ", ".join(THROTTLE_TEXTS[reason] for reason in gpu.throttle_reasons), "yellow")


def _describe_processes(gpu: GpuReading) -> Text:
    if gpu.processes is None:
        return Text.assemble(("processes ", "dim"), _mark(gpu.unavailable.get("processes", "")))
    if not gpu.processes:
        return Text("no processes", "dim")
    texts = [
        f"{process.pid} {process.name or '?'}"
        + (f" {format_gib(process.used_bytes)} GiB" if process.used_bytes is not None else "")
        for process in gpu.processes
    ]
    return Text.assemble(("processes ", "dim"), " · ".join(texts))


def _warn(value: float | None, limit: float) -> str:
    """Returns the style of a number: red from `limit` on."""
    return "bold red" if value is not None and value >= limit else ""


def _explain_problem(problem: str) -> str:
    return "lost: it no longer answers" if problem == LOST else _GAPS[problem]


def _shorten(name: str) -> str:
    """Drops the brand: "NVIDIA GeForce RTX 4090" becomes "RTX 4090"."""
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")
