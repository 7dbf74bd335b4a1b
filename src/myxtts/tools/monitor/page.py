"""The page of a watch: what GPUs, machine and run did over time, and what there was to warn of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from myxtts.tools.charts import Curve, draw_curves
from myxtts.tools.monitor.alerts import AlertRecord
from myxtts.tools.monitor.gpus import LOST, GpuReading
from myxtts.tools.monitor.sample import History, Sample
from myxtts.tools.monitor.watch import Monitor
from myxtts.tools.monitor_words import describe_alert, make_monitor_words, write_percent
from myxtts.tools.page import Card, Html, Page, make_grid, make_panel, make_paragraph, make_section, make_table
from myxtts.tools.report_words import Words

_GIB, _GIGA = 2**30, 1e9
_PERCENT = (0.0, 102.0)
_LEFT_TO_RIGHT, _END_OF_DIRECTION = "\u2066", "\u2069"
"""Marks without which a date would be turned around in a line that is read from right to left."""


def write_monitor_report(monitor: Monitor, path: Path, *, lang: Literal["en", "fa"] = "en") -> Path:
    """Raises StorageError where the page cannot be written. There must be a sample."""
    return make_monitor_page(monitor, make_monitor_words(lang)).write(path)


def make_monitor_page(monitor: Monitor, words: Words) -> Page:
    sample = monitor.last
    assert sample is not None, "a page needs a sample"
    assert monitor.first is not None
    history = monitor.history
    lead = words.say(
        "monitor_lead",
        samples=words.count(history.num_rows),
        time=words.time(sample.elapsed_s),
        started=f"{_LEFT_TO_RIGHT}{monitor.first.time[:19].replace('T', ' ')}{_END_OF_DIRECTION}",
    )
    reason = monitor.sampler.gpus.no_gpu_reason
    return Page(
        title=words.say("monitor_title"),
        lead=lead,
        cards=list(_make_cards(sample, history, words)),
        sections=[
            _show_alerts(monitor.book.records, history.num_rows, words),
            _show_run(sample, history, words),
            *(_show_gpu(gpu, history, words) for gpu in sample.gpus),
            _show_host(sample, history, words, reason),
        ],
        footer=words.say("monitor_footer"),
        lang=words.lang,
    )


def _make_cards(sample: Sample, history: History, words: Words) -> Iterator[Card]:
    if sample.run is not None:
        au, rate = history.get_stats("au"), history.get_stats("utterances_per_s")
        unknown = words.say("unknown")
        yield Card(words.say("au"), words.share(au.mean) if au else unknown, words.say("au_remark"))
        remark = _write_range(rate.lowest, rate.highest, words, words.number) if rate else ""
        yield Card(words.say("rate"), words.number(rate.mean) if rate else unknown, remark)
    for gpu in sample.gpus:
        label, stats = words.say("gpu_card", gpu=words.count(gpu.index)), _find_use(history, gpu)
        if gpu.problem == LOST:
            yield Card(label, words.say("lost"), gpu.name)
        elif stats is None:
            yield Card(label, words.say("unknown"), gpu.name)
        else:
            yield Card(
                label,
                write_percent(stats[0], words),
                _write_range(stats[1], stats[2], words, lambda value: write_percent(value, words)),
            )
    cpu, ram = history.get_stats("cpu_percent"), history.get_stats("ram_used_bytes")
    if cpu is not None and ram is not None:
        cpus = words.say("cpus", count=words.count(sample.host.num_cpus))
        yield Card(words.say("cpu"), write_percent(cpu.mean, words), cpus)
        total = words.say("of", total=_write_gib(sample.host.ram_bytes, words))
        yield Card(words.say("ram"), _write_gib(ram.mean, words), total)


def _show_alerts(records: list[AlertRecord], num_samples: int, words: Words) -> Html:
    if not records:
        return make_section(words.say("alerts"), make_paragraph(words.say("no_alerts"), "lead"))
    heading = [words.say(name) for name in ("kind", "message", "when", "share_of_samples")]
    rows = [
        [
            words.say(record.alert.kind),
            describe_alert(record.alert, words),
            _write_range(record.first_s, record.last_s, words, words.time),
            write_percent(100 * record.num_samples / max(1, num_samples), words),
        ]
        for record in records
    ]
    return make_section(words.say("alerts"), make_panel(words.say("events"), make_table(heading, rows)))


def _show_run(sample: Sample, history: History, words: Words) -> Html:
    run = sample.run
    if run is None:
        return make_section(words.say("run_section"), make_paragraph(words.say("no_run"), "lead"))
    wait = [("waiting_line", "wait_s", 1e3), ("computing_line", "step_s", 1e3)]
    panels = [
        _draw(history, words, "au_percent", [("au", "au", 100.0)], value_range=_PERCENT),
        _draw(history, words, "rate", [("rate", "utterances_per_s", 1.0)]),
        _draw(history, words, "wait_ms", wait),
        _draw(history, words, "depth", [("depth", "depth", 1.0)]),
    ]
    lead = words.say("run_lead", path=run.path, state=words.say(run.state))
    return make_section(words.say("run_section"), make_paragraph(lead, "lead"), make_grid(panels))


def _show_gpu(gpu: GpuReading, history: History, words: Words) -> Html:
    prefix = f"gpu{gpu.index}_"
    clocks = [("sm_clock", f"{prefix}sm_clock_mhz", 1.0), ("memory_clock", f"{prefix}memory_clock_mhz", 1.0)]
    pcie = [("pcie_in", f"{prefix}pcie_rx_bytes_per_s", 1 / _GIGA)]
    pcie += [("pcie_out", f"{prefix}pcie_tx_bytes_per_s", 1 / _GIGA)]
    panels = [
        _draw(
            history, words, "utilization", [("utilization", f"{prefix}utilization_percent", 1.0)], value_range=_PERCENT
        ),
        _draw(history, words, "gpu_memory", [("gpu_memory", f"{prefix}memory_used_bytes", 1 / _GIB)]),
        _draw(history, words, "power", [("power", f"{prefix}power_w", 1.0)]),
        _draw(history, words, "temperature", [("temperature", f"{prefix}temperature_c", 1.0)]),
        _draw(history, words, "clocks", clocks),
        _draw(history, words, "pcie", pcie),
        make_panel(
            words.say("last_reading"),
            make_table([], _list_facts(gpu, words)),
            make_table([], _list_processes(gpu, words), code_columns=(1,)),
        ),
    ]
    heading = words.say("gpu_section", gpu=words.count(gpu.index), name=gpu.name)
    return make_section(heading, make_grid(panels), lead=words.say("gpu_lead"))


def _list_facts(gpu: GpuReading, words: Words) -> Iterator[list[str]]:
    if gpu.problem:
        yield [words.say("problem"), words.say(gpu.problem)]
        return
    if gpu.memory_used_bytes is not None and gpu.memory_bytes is not None:
        total = words.say("of", total=_write_gib(gpu.memory_bytes, words))
        yield [words.say("memory"), f"{_write_gib(gpu.memory_used_bytes, words)} {total}"]
    if gpu.pcie_generation is not None and gpu.pcie_width is not None:
        yield [words.say("link"), f"{words.count(gpu.pcie_generation)} ×{words.count(gpu.pcie_width)}"]
    if gpu.throttle_reasons:
        yield [words.say("throttling"), "; ".join(words.say(reason) for reason in gpu.throttle_reasons)]
    for gap in sorted(set(gpu.unavailable.values())):
        missing = [words.name(name) for name, reason in gpu.unavailable.items() if reason == gap]
        yield [words.say("missing"), f"{'; '.join(missing)} ({words.say(gap)})"]


def _list_processes(gpu: GpuReading, words: Words) -> Iterator[list[str]]:
    if gpu.processes == ():
        yield [words.say("processes"), words.say("no_processes")]
    for process in gpu.processes or ():
        memory = f" {process.used_bytes / _GIB:.2f} GiB" if process.used_bytes is not None else ""
        yield [words.say("processes"), f"{process.pid} {process.name or '?'}{memory}"]


def _show_host(sample: Sample, history: History, words: Words, no_gpu_reason: str) -> Html:
    line = words.say("no_gpu_line", reason=no_gpu_reason) if no_gpu_reason else ""
    panels = [
        _draw(history, words, "cpu", [("cpu", "cpu_percent", 1.0)], "%", _PERCENT),
        _draw(history, words, "ram", [("ram", "ram_used_bytes", 1 / _GIB)], "GiB"),
    ]
    return make_section(words.say("host_section"), make_paragraph(line, "lead"), make_grid(panels))


def _draw(
    history: History,
    words: Words,
    heading: str,
    lines: list[tuple[str, str, float]],
    unit: str = "",
    value_range: tuple[float, float] | None = None,
) -> Html:
    """Curves over an axis that starts at zero, so that what hardly changes looks as it is."""
    curves = []
    for label, column, factor in lines:
        seconds, values = history.get_curve(column)
        curves.append(Curve(words.say(label), seconds, [value * factor for value in values], is_noisy=False))
    highest = max((value for curve in curves for value in curve.values if math.isfinite(value)), default=0.0)
    title = words.say(heading) + (f" ({unit})" if unit else "")
    return make_panel(title, draw_curves(curves, words.tick, value_range or (0.0, 1.06 * highest or 1.0)))


def _find_use(history: History, gpu: GpuReading) -> tuple[float, float, float] | None:
    stats = history.get_stats(f"gpu{gpu.index}_utilization_percent")
    return (stats.mean, stats.lowest, stats.highest) if stats is not None else None


def _write_range(low: float, high: float, words: Words, write: Callable[[float], str]) -> str:
    texts = (write(low), write(high))
    return words.say("range", low=texts[0], high=texts[1]) if texts[0] != texts[1] else texts[0]


def _write_gib(num_bytes: float, words: Words) -> str:
    return f"{words.number(num_bytes / _GIB)} GiB"
