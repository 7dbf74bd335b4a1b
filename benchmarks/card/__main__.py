"""`make card`: what XLA's GPU compiler makes of this product's graphs on every preset card, without a GPU.

    python -m benchmarks.card [WORDS]

compiles the graphs whose names contain all the words, or all of them. Finished graphs are kept in build/card, so that a
run that was stopped goes on; another version of the sources begins anew. Every graph is added to
benchmarks/results/card.json when it is done.
"""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

from benchmarks.card.cards import CARDS
from benchmarks.card.compile_all import CPU, CompilerError, compile_graph, make_environment
from benchmarks.card.figures import describe_record, read_kept
from benchmarks.card.records import Record, Request
from benchmarks.harness import Measurement, write_results
from myxtts.config.choices import list_presets
from myxtts.config.schema import XTTSConfig

SIZES = ("small", "normal", "tiny", "big")
_STORED, _SEARCHING = "step, stored durations", "step, searching"
_VOCODER = ("vocoder, warm-up", "vocoder, generator", "vocoder, discriminators")
_SYNTHESIS = ("synthesis, text side", "synthesis, decoder")
_VOCODER_SEGMENTS = {"tiny": 8, "small": 16}
"""Both vocoders there are: that of `tiny`, and that of all other sizes."""
_WANTED_BATCH = 32
"""Batch of `small` that the limits of thunks are stated for."""


class Job(NamedTuple):
    """A graph to compile for a card, or for the CPU."""

    request: Request
    card: str

    @property
    def title(self) -> str:
        place = CARDS[self.card].title if self.card in CARDS else "the CPU's HLO"
        return f"{self.request.size}, {self.request.part}, batch {self.request.batch}, {place}"


def list_jobs() -> list[Job]:
    """All graphs, those that say most first."""
    small = [Job(Request(part, "small", _WANTED_BATCH), "rtx4090") for part in (_STORED, _SEARCHING)]
    steps = [
        Job(Request(part, size, find_batch(size, card)), card)
        for part in (_STORED, _SEARCHING)
        for size in SIZES
        for card in CARDS
    ]
    others = [
        Job(Request(part, "small", _WANTED_BATCH, "float32"), card)
        for part in ("alignment", "features")
        for card in CARDS
    ]
    vocoders = [
        Job(Request(part, size, number), card)
        for size, number in _VOCODER_SEGMENTS.items()
        for part in _VOCODER
        for card in CARDS
    ]
    synthesis = [
        Job(Request(part, size, 1, "float32"), card) for size in SIZES for part in _SYNTHESIS for card in CARDS
    ]
    # Twice where a preset has the batch that the limits are stated for.
    return list(dict.fromkeys([*small, *_list_cpu_jobs(), *steps, *others, *vocoders, *synthesis]))


def find_batch(size: str, card: str) -> int:
    """Batch size of the presets of a card and a model size."""
    chosen = {"gpu_card": card} if card in list_presets("gpu_card") else {}
    batch = XTTSConfig(model_size=size, **chosen).data.batch_size
    return batch if isinstance(batch, int) else _WANTED_BATCH


def _list_cpu_jobs() -> list[Job]:
    """Graphs whose optimized HLO of the CPU is read too: it needs nothing installed."""
    steps = [Request(part, size, 8, "float32") for size in SIZES for part in (_STORED, _SEARCHING)]
    vocoders = [
        Request(part, size, number, "float32") for size, number in _VOCODER_SEGMENTS.items() for part in _VOCODER
    ]
    return [Job(request, CPU) for request in (*steps, *vocoders)]


def main(words: list[str]) -> int:
    jobs = [job for job in list_jobs() if all(word in job.title for word in words)]
    python = make_environment(_say)
    if python is None:
        _say(
            "Only the HLO of the CPU is read: loops, callbacks, operations and the roofline, without thunks or memory."
        )
        jobs = [job for job in jobs if job.card == CPU]
    found: dict[str, Measurement] = {}
    num_failed = 0
    for number, job in enumerate(jobs, 1):
        started = time.monotonic()
        try:
            record = compile_graph(job.request, job.card, python)
        except CompilerError as error:
            num_failed += 1
            _say(f"[{number}/{len(jobs)}] {job.title}: {error}")
            continue
        _say(f"[{number}/{len(jobs)}] {job.title}: {_summarize(record)} ({time.monotonic() - started:.0f} s)")
        found |= {item.name: item for item in describe_record(record)}
        write_results("card", [*read_kept(compiled=False), *read_kept(found, compiled=True), *found.values()])
    if not words and not num_failed:
        # All graphs were compiled: what is there besides is of another version.
        write_results("card", [*read_kept(compiled=False), *found.values()])
    missed = [item for item in found.values() if not item.holds]
    for item in missed:
        _say(item.describe())
    return 1 if missed or num_failed else 0


def _summarize(record: Record) -> str:
    if record.card == CPU:
        return f"{record.num_operations:,} operations, {record.num_unknown_loops} loops without known trip count"
    share = record.time_on(record.card).useful_share
    return f"{record.num_thunks:,} thunks, {record.num_host_waits} host waits, useful share {share:.2f}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
