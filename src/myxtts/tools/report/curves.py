"""The charts of a run, declared once: which numbers stand in which chart, with units, for the report and the live page.

A chart takes its numbers from the lines of metrics.jsonl (training or validation) or of system.jsonl. Several runs in
one picture get a chart for each number, with a curve for each run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from myxtts.storage.json_file import is_number
from myxtts.tools.line_charts import Curve, draw_curves
from myxtts.tools.page import Html, make_panel
from myxtts.tools.run_files import RunFiles
from myxtts.tools.words import Translator, mark
from myxtts.training.terms import VOCODER, VOICE, Measures
from myxtts.training.vocoder.data import VOCODER_SPEC_FILE_NAME

Source = Literal["training", "validation", "system"]
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunChart:
    """One chart: its numbers by name, with their labels. `heading`, `unit` and labels are English, translated later.

    `scale` turns what is recorded into the unit of the chart, such as seconds into milliseconds.
    """

    name: str
    heading: str
    source: Source
    curves: Mapping[str, str]
    unit: str = ""
    scale: float = 1.0
    is_noisy: bool = True

    @property
    def x(self) -> str:
        return mark("minutes") if self.source == "system" else mark("step")

    def name_curve(self, key: str) -> str:
        """Name of a curve among all charts of a page."""
        return f"{self.name}/{key}"


def find_measures(run_path: Path) -> Measures:
    """The measures of what a run trains: one with a vocoder specification trains a vocoder."""
    return VOCODER if (run_path / VOCODER_SPEC_FILE_NAME).is_file() else VOICE


def list_learning_charts(measures: Measures) -> list[RunChart]:
    measured = {term.name: term.label for term in measures.terms if not term.weight}
    rate = mark({"learning_rate": "Learning rate"})
    return [
        RunChart("loss", mark("Loss"), "training", mark({"loss": "Loss"})),
        RunChart("terms", mark("Loss terms"), "training", measures.term_labels),
        _in_per_cent(RunChart("measured", mark("Other measures"), "training", measured), measures),
        RunChart("rate", mark("Learning rate"), "training", rate, is_noisy=False),
        RunChart("norm", mark("Gradient norm"), "training", mark({"gradient_norm": "Gradient norm"})),
    ]


def list_validation_charts(measures: Measures) -> list[RunChart]:
    of_charts = [
        _in_per_cent(RunChart(f"validation-{number}", heading, "validation", labels, is_noisy=False), measures)
        for number, (heading, labels) in enumerate(measures.charts.items())
    ]
    terms = RunChart("validation-terms", mark("Loss terms"), "validation", measures.term_labels, is_noisy=False)
    return [*of_charts, terms]


def _in_per_cent(chart: RunChart, measures: Measures) -> RunChart:
    """A chart of shares in per cent, as the training log and `evaluate` write them; any other as it is."""
    shares = chart.curves.keys() & measures.shares
    assert len(shares) in (0, len(chart.curves)), f"{chart.heading} mixes shares with other numbers"
    return replace(chart, unit=mark("%"), scale=100.0) if shares else chart


def write_measure(name: str, value: float, measures: Measures, tr: Translator) -> str:
    """Writes a metric for a table: shares in per cent, as in the charts."""
    return tr.share(value) if name in measures.shares and math.isfinite(value) else tr.number(value)


def list_speed_charts() -> list[RunChart]:
    shares = mark({"au": "AU", "wall_share": "share of the wall clock in steps"})
    times = mark(
        {"seconds": "step, training only", "wall_seconds": "step, including validation", "data_wait_s": "wait for data"}
    )
    throughput = mark({"utterances_per_s": "training only", "wall_utterances_per_s": "including validation"})
    return [
        RunChart("au", mark("AU and share of the wall clock"), "training", shares, mark("%"), 100.0),
        RunChart("time", mark("Time per step"), "training", times, mark("milliseconds"), 1000.0),
        RunChart("throughput", mark("Throughput"), "training", throughput, mark("utterances per second")),
    ]


def list_system_charts(num_gpus: int) -> list[RunChart]:
    """Charts of all GPUs, which share each picture, and of the process."""
    of_gpus = (
        ("gpu_use", mark("GPU utilisation"), "utilization_percent", mark("%")),
        ("gpu_memory", mark("GPU memory"), "memory_used_bytes", mark("GB")),
        ("gpu_power", mark("GPU power"), "power_w", mark("W")),
        ("gpu_heat", mark("GPU temperature"), "temperature_c", mark("°C")),
    )
    charts = [
        RunChart(name, heading, "system", {f"gpu{gpu}_{column}": f"GPU {gpu}" for gpu in range(num_gpus)}, unit)
        for name, heading, column, unit in of_gpus
        if num_gpus
    ]
    memory, cores = mark({"memory_bytes": "memory"}), mark({"cores": "cores in use"})
    return [
        *charts,
        RunChart("memory", mark("Memory of the training process"), "system", memory, mark("GB"), is_noisy=False),
        RunChart("cores", mark("Processor of the training process"), "system", cores, mark("cores in use")),
    ]


def select_points(chart: RunChart, rows: Sequence[Row], key: str) -> tuple[list[float], list[float]]:
    """Returns places and values of one number, in the unit of the chart, without rows that lack it."""
    place = "minutes" if chart.source == "system" else "step"
    found = [
        (row[place], chart.scale * row[key]) for row in rows if is_number(row.get(key)) and is_number(row.get(place))
    ]
    return [x for x, _ in found], [y for _, y in found]


def list_rows(run: RunFiles, source: Source) -> Sequence[Row]:
    if source == "validation":
        return [{"step": step, **numbers} for step, numbers in run.validations]
    return run.records if source == "training" else run.system


def draw_chart(run: RunFiles, chart: RunChart, tr: Translator) -> Html:
    """Draws a chart of one run in its panel; empty where the run has none of the numbers."""
    rows = list_rows(run, chart.source)
    curves = [Curve(tr(label), *select_points(chart, rows, key), chart.is_noisy) for key, label in chart.curves.items()]
    return make_panel(tr(chart.heading), draw_curves(curves, tr, x=tr(chart.x), unit=tr(chart.unit)))


def draw_side_by_side(runs: Mapping[str, RunFiles], charts: Sequence[RunChart], tr: Translator) -> Iterator[Html]:
    """Draws a chart for each number, with a curve for each run, by its name."""
    for chart in charts:
        rows = {name: list_rows(run, chart.source) for name, run in runs.items()}
        for key, label in chart.curves.items():
            curves = [Curve(name, *select_points(chart, rows[name], key), chart.is_noisy) for name in runs]
            heading = tr(chart.heading) if len(chart.curves) == 1 else f"{tr(chart.heading)}: {tr(label)}"
            yield make_panel(heading, draw_curves(curves, tr, x=tr(chart.x), unit=tr(chart.unit)))
