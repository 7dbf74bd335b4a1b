"""What the compilers made of one graph, as a file: counted once, so that `make card` can be stopped and goes on."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.card.cards import CARDS
from benchmarks.card.compiler import FLAGS
from benchmarks.card.hlo import Module
from benchmarks.card.roofline import Costs, StepTime, count_operations

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "card"
_KINDS = (
    ("products", "gemm_fusion|cublas|dot"),
    ("convolutions", "conv"),
    ("copies", "^copy"),
    ("casts of weights", "^wrapped_convert"),
    ("random numbers", "_or_|_xor_|rng"),
    ("reductions", "reduce"),
)
"""Kinds of thunks, by the names that XLA gives them; the first that fits counts."""


@dataclass(frozen=True)
class Request:
    """One graph: a part of `graphs.PARTS`, a model size, a batch size, and settings that differ from the preset."""

    part: str
    size: str
    batch: int
    policy: str = "mixed_bfloat16"
    num_frames: int = 800
    num_tokens: int = 128
    settings: tuple[tuple[str, Any], ...] = ()

    def name_file(self) -> str:
        """Name of its HLO file: another one whenever a source file of the product changes."""
        text = json.dumps([asdict(self), _hash_sources()])
        words = re.sub(r"\W+", "-", f"{self.size} {self.part} {self.batch}")
        return f"{words}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Record:
    """Counts of one compiled graph. `card` is a key of CARDS, or `cpu`."""

    request: dict[str, Any]
    card: str
    num_thunks: int
    num_operations: int
    num_host_waits: int
    num_unknown_loops: int
    trip_counts: list[int | None]
    host_operations: list[str]
    num_bytes: int
    flops: int
    kinds: dict[str, int]
    memory: dict[str, int]
    """Bytes of arguments, temporaries and results that are no arguments; empty for a CPU."""
    times: dict[str, dict[str, float]]
    """Model time by card."""

    def time_on(self, card: str) -> StepTime:
        return StepTime(**self.times[card])


def find_record(request: Request, card: str) -> Path:
    """Where the record of a graph on a card is kept."""
    described = CARDS[card].describe() if card in CARDS else card
    key = hashlib.sha256(f"{described} {FLAGS}".encode()).hexdigest()[:8]
    return BUILD / "records" / f"{request.name_file()}-{card}-{key}.json"


def read_record(path: Path) -> Record | None:
    if not path.is_file():
        return None
    values: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Record(**values)


def make_record(request: Request, card: str, hlo: str, buffers: str = "") -> Record:
    """Counts optimized HLO and the buffer assignment of a compiler, both as text."""
    module = Module.parse(hlo)
    costs, thunks = Costs(module), module.list_thunks()
    kinds = Counter[str]()
    for thunk in thunks:
        kinds[_name_kind(thunk.instruction.name)] += thunk.count
    cards = [card] if card in CARDS else list(CARDS)
    return Record(
        request=asdict(request),
        card=card,
        num_thunks=costs.num_thunks,
        num_operations=count_operations(module, thunks),
        num_host_waits=module.count_host_waits(),
        num_unknown_loops=module.count_unknown_loops(),
        trip_counts=[loop.trip_count for loop in module.find_loops()],
        host_operations=module.find_host_operations(),
        num_bytes=costs.num_bytes,
        flops=costs.flops,
        kinds=dict(kinds.most_common()),
        memory=_measure_memory(buffers),
        times={name: asdict(costs.estimate(CARDS[name])) for name in cards},
    )


def write_record(path: Path, record: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")


def _name_kind(name: str) -> str:
    return next((kind for kind, pattern in _KINDS if re.search(pattern, name)), "element by element")


def _measure_memory(buffers: str) -> dict[str, int]:
    """Bytes by kind of allocation, from the text of a buffer assignment."""
    sums = Counter[str]()
    for size, what in re.findall(r"^allocation \d+: size (\d+), (.*)", buffers, re.MULTILINE):
        if what.startswith("parameter"):
            sums["arguments"] += int(size)
        elif "preallocated-temp" in what:
            sums["temporaries"] += int(size)
        elif "maybe-live-out" in what:
            sums["results"] += int(size)
        elif what.startswith("constant"):
            sums["constants"] += int(size)
    return dict(sums)


@cache
def _hash_sources() -> str:
    """Hash of the sources that a graph can depend on."""
    digest = hashlib.sha256((Path(__file__).parent / "graphs.py").read_bytes())
    for folder in ("config", "features", "models", "pipeline", "training"):
        for path in sorted((ROOT / "src" / "myxtts" / folder).rglob("*")):
            if path.suffix in (".py", ".yaml"):
                digest.update(path.read_bytes())
    return digest.hexdigest()
