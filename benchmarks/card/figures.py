"""Measurements of `card.json` from the records of compiled graphs, each with its arithmetic in the note."""

from __future__ import annotations

import json
from collections.abc import Iterable

from benchmarks.card.cards import CARDS, HOST_WAIT_US, LAUNCH_US
from benchmarks.card.records import Record
from benchmarks.harness import RESULTS, Measurement

MOST_THUNKS = {
    "step, stored durations": {"tiny": 1500, "small": 1500, "normal": 2500, "big": 3500},
    "step, searching": {"tiny": 3500, "small": 3500, "normal": 4500, "big": 5500},
}
"""Limits of a step; of other graphs `_MOST_ELSEWHERE`."""
_MOST_ELSEWHERE = 2500
_LEAST_SHARE = {"tiny": 0.1, "small": 0.5, "normal": 0.7, "big": 0.7}
"""Least useful share of a step with stored durations; `tiny` is meant for CPUs."""
_GIB = 2**30
_MARKS = (*(card.title for card in CARDS.values()), "CPU's HLO")
"""One of them is in the name of every measurement that comes from a record."""


def describe_record(record: Record) -> list[Measurement]:
    """The measurements of one graph on one card, or of the CPU's HLO."""
    return _describe_cpu(record) if record.card not in CARDS else _describe_card(record)


def is_compiled(name: str) -> bool:
    """Whether a measurement of this name comes from a compiled graph, not from a run on this machine."""
    return any(mark in name for mark in _MARKS)


def read_kept(renewed: Iterable[str] = (), *, compiled: bool) -> list[Measurement]:
    """Measurements of `card.json` that come from compiled graphs, or the others; without those that are renewed."""
    path, left_out = RESULTS / "card.json", set(renewed)
    if not path.is_file():
        return []
    rows = json.loads(path.read_text(encoding="utf-8"))["measurements"]
    found = [Measurement(**{key: value for key, value in row.items() if key != "holds"}) for row in rows]
    return [item for item in found if is_compiled(item.name) == compiled and item.name not in left_out]


def _name(record: Record, what: str) -> str:
    request = record.request
    place = CARDS[record.card].title if record.card in CARDS else "CPU's HLO"
    return f"{what}: {request['size']}, {request['part']}, batch {request['batch']}, {place}"


def _describe_card(record: Record) -> list[Measurement]:
    card, part, size = CARDS[record.card], record.request["part"], record.request["size"]
    time, memory = record.time_on(record.card), record.memory
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in record.kinds.items())
    most = MOST_THUNKS.get(part, {}).get(size, _MOST_ELSEWHERE)
    share = _LEAST_SHARE[size] if part == "step, stored durations" else 0.0
    model = (
        f"roofline {time.roofline_ms:.3f} ms ({record.num_bytes / 1e9:.2f} GB, {record.flops / 1e9:.0f} GFLOP at "
        f"{card.bandwidth / 1e9:.0f} GB/s and {card.bf16_flops / 1e12:.0f} TFLOP/s) of {time.total_ms:.3f} ms "
        f"({record.num_thunks:,} thunks of at least {LAUNCH_US:g} us, {record.num_host_waits:,} host waits of "
        f"{HOST_WAIT_US:g} us); a model, not measured"
    )
    total = sum(memory.values()) / _GIB
    by_kind = ", ".join(f"{name} {size / _GIB:.3f}" for name, size in memory.items())
    per_row = memory.get("temporaries", 0) / record.request["batch"] / 2**20
    loops = f"loops of {record.trip_counts} iterations" if record.trip_counts else "no loops"
    return [
        Measurement(_name(record, "thunks per step"), record.num_thunks, "", "at most", most, kinds),
        Measurement(_name(record, "host waits per step"), record.num_host_waits, "", "at most", 0, loops),
        Measurement(_name(record, "loops without known trip count"), record.num_unknown_loops, "", "at most", 0, loops),
        Measurement(_name(record, "useful share"), time.useful_share, "", "at least", share, model),
        Measurement(
            _name(record, "model time of a step"),
            time.total_ms,
            "ms",
            "at most",
            time.roofline_ms / (share or 0.01),
            model,
        ),
        Measurement(
            _name(record, "memory of a step"),
            total,
            "GiB",
            "at most",
            card.memory_bytes / _GIB,
            f"{by_kind}; {per_row:.1f} MiB of temporaries a row",
        ),
    ]


def _describe_cpu(record: Record) -> list[Measurement]:
    loops = f"loops of {record.trip_counts} iterations" if record.trip_counts else "no loops"
    hosts = len(record.host_operations)
    estimates = ", ".join(f"{CARDS[name].title} {record.time_on(name).roofline_ms:.2f} ms" for name in CARDS)
    work = (
        f"{record.num_bytes / 1e9:.2f} GB and {record.flops / 2e9:.0f} GFLOP of products in float32; "
        f"by roofline {estimates}"
    )
    return [
        Measurement(_name(record, "loops without known trip count"), record.num_unknown_loops, "", "at most", 0, loops),
        Measurement(
            _name(record, "callbacks and feeds of the host"), hosts, "", "at most", 0, " ".join(record.host_operations)
        ),
        Measurement(_name(record, "operations per step"), record.num_operations, "", "at most", 500_000, work),
    ]
