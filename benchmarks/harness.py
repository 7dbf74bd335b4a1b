"""How a benchmark states its result: a figure, the limit it must keep, and the machine it ran on."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Measurement:
    """`value` must be at most or at least `limit`, as `kind` says."""

    name: str
    value: float
    unit: str
    kind: str
    limit: float
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.value <= self.limit if self.kind == "at most" else self.value >= self.limit

    def describe(self) -> str:
        verdict = "ok    " if self.holds else "MISSED"
        return (
            f"{verdict} {self.name}: {self.value:,.3g} {self.unit} ({self.kind} {self.limit:,g}) {self.note}".rstrip()
        )


def describe_machine() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "num_cpus": len(os.sched_getaffinity(0)),
        "ram_gb": round(psutil.virtual_memory().total / 2**30, 1),
    }


def write_results(suite: str, measurements: list[Measurement], command: str = "") -> Path:
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{suite}.json"
    content = {
        "suite": suite,
        "command": command or f"make bench (python -m benchmarks {suite})",
        "machine": describe_machine(),
        "measurements": [{**asdict(item), "holds": item.holds} for item in measurements],
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path
