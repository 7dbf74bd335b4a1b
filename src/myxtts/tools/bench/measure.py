"""Benchmark of input pipelines that feed an emulated accelerator: interleaved rounds, ceilings, medians, comparisons.

Each round runs a block of steps of every candidate, every other round in reverse order, so that a machine that slows
down does not favour one of them. After each block its ceiling is measured: the same loop over batches in memory. A
figure is the median over the rounds; candidates are compared round by round.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from itertools import count, islice
from statistics import median
from typing import Any

import numpy as np

from myxtts.runtime.timing import run_in_turns
from myxtts.tools.bench.candidates import Candidate, LeftOut
from myxtts.tools.emulate import BatchSize, Emulation, StepTime, emulate, measure_batch, repeat_batches

_NUM_WARM_UP = 3
"""Batches that are taken before the clock starts: graphs are traced and threads have started by then."""
_NUM_IN_MEMORY = 8
"""Batch shapes of a block that its ceiling cycles through."""
_TOLERANCE = 1.02
"""AU may exceed its ceiling by this factor before the machine counts as disturbed."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Steps of a block, number of rounds, and the emulated accelerator: its step time and the load on the host."""

    num_steps: int = 60
    num_rounds: int = 3
    step: StepTime = field(default_factory=lambda: StepTime(0.020))
    host_load_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    """Measurements of one block, or medians of several. Shares go from 0 to 1.

    `au` is the accelerator utilisation, `ceiling_au` that of batches in memory, `effective_au` counts padding as waste.
    `cpu_ms_per_utterance` is the CPU time of this process and its children without the emulated host load;
    `step_variation` is standard deviation / mean; `peak_rss_mb` is the whole process, in MiB.
    """

    au: float
    ceiling_au: float
    effective_au: float
    utterances_per_s: float
    cpu_ms_per_utterance: float
    step_variation: float
    mean_wait_ms: float
    padding: float
    peak_rss_mb: float

    @property
    def share_of_ceiling(self) -> float:
        return self.au / self.ceiling_au if self.ceiling_au else 0.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Results of one candidate over all rounds; `intervals_ms` are the step times of its last block."""

    name: str
    settings: Mapping[str, Any]
    rounds: tuple[Figures, ...]
    intervals_ms: tuple[float, ...]

    @property
    def figures(self) -> Figures:
        """The median of each measurement over the rounds, independently of the others."""
        columns = {item.name: [getattr(one, item.name) for one in self.rounds] for item in fields(Figures)}
        return Figures(**{name: float(median(values)) for name, values in columns.items()})


@dataclass(frozen=True, slots=True)
class Comparison:
    """Throughput of the candidate `name` divided by that of `other` in the same round: median and extremes.

    `effective_au_ratio` is the median of the same ratio for effective AU, in which padded frames count as waste.
    """

    name: str
    other: str
    ratio: float
    lowest: float
    highest: float
    effective_au_ratio: float


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Results of all candidates in the given order; the first is compared with each of the others."""

    rules: Rules
    standings: tuple[Standing, ...]
    left_out: tuple[LeftOut, ...] = ()

    def compare(self) -> list[Comparison]:
        """Compares the first candidate with each other one, round by round."""
        return [_compare(self.standings[0], other) for other in self.standings[1:]]

    def find_best(self) -> Standing:
        """Returns the candidate with the most utterances per second."""
        return max(self.standings, key=lambda one: one.figures.utterances_per_s)

    @property
    def is_disturbed(self) -> bool:
        """Whether an AU is above its ceiling: only other work on the machine can slow the ceiling down so much."""
        return any(one.figures.au > _TOLERANCE * one.figures.ceiling_au for one in self.standings)

    def to_json(self) -> dict[str, Any]:
        return {
            "emulated": True,
            "is_disturbed": self.is_disturbed,
            "rules": {
                "num_steps": self.rules.num_steps,
                "num_rounds": self.rules.num_rounds,
                "step_ms": 1000 * self.rules.step.fixed_s,
                "frame_us": 1e6 * self.rules.step.per_frame_s,
                "host_load_ms": 1000 * self.rules.host_load_s,
            },
            "contenders": [
                {
                    "name": one.name,
                    "settings": dict(one.settings),
                    **asdict(one.figures),
                    "share_of_ceiling": one.figures.share_of_ceiling,
                    "rounds": [asdict(figures) for figures in one.rounds],
                }
                for one in self.standings
            ],
            "comparisons": [asdict(comparison) for comparison in self.compare()],
            "left_out": [asdict(one) for one in self.left_out],
        }


def run_bench(
    candidates: Sequence[Candidate],
    rules: Rules,
    left_out: Sequence[LeftOut] = (),
    progress: Callable[[int, str], None] = lambda _done, _name: None,
) -> BenchResult:
    """Runs all rounds; `progress` gets the number of finished blocks and the name of the next candidate."""
    assert candidates, "a benchmark needs at least one candidate"
    assert len({one.name for one in candidates}) == len(candidates), "candidates are told apart by their names"
    num_done = count()

    def measure(candidate: Candidate) -> tuple[Figures, tuple[float, ...]]:
        progress(next(num_done), candidate.name)
        # Garbage of the candidate before must not be collected during the block of this one.
        gc.collect()
        return _run_block(candidate, rules)

    blocks = run_in_turns({one.name: partial(measure, one) for one in candidates}, rules.num_rounds)
    standings = []
    for candidate in candidates:
        figures, intervals_ms = zip(*blocks[candidate.name], strict=True)
        standings.append(Standing(candidate.name, candidate.settings, figures, intervals_ms[-1]))
    return BenchResult(rules, tuple(standings), tuple(left_out))


def _run_block(candidate: Candidate, rules: Rules) -> tuple[Figures, tuple[float, ...]]:
    """Emulates a block after a warm-up, then the ceiling with half as many steps; also returns the step times in ms."""
    held: list[dict[str, Any]] = []

    def measure(batch: Any) -> BatchSize:
        if len(held) < _NUM_IN_MEMORY:
            held.append(_take_outline(batch))
        return measure_batch(batch)

    # One step more: the first only starts the clock.
    num_steps = rules.num_steps + 1
    with candidate.open() as opened:
        batches = iter(opened)
        for _ in islice(batches, _NUM_WARM_UP):
            pass
        fed = emulate(batches, rules.step, num_steps, host_load_s=rules.host_load_s, measure=measure)
        del batches
    in_memory = repeat_batches(held, max(2, num_steps // 2))
    ceiling = emulate(in_memory, rules.step, host_load_s=rules.host_load_s)
    return _summarize(fed, ceiling, rules), tuple((1000 * fed.intervals_s).tolist())


def _take_outline(batch: Any) -> dict[str, Any]:
    """Returns a batch of the same shape that needs no memory (a broadcast zero): an emulated step reads only sizes."""
    fields_of = batch if isinstance(batch, Mapping) else {"mel": batch.mel, "mel_lengths": batch.mel_lengths}
    shape = tuple(int(size) for size in fields_of["mel"].shape)
    return {"mel": np.broadcast_to(np.float32(0), shape), "mel_lengths": np.array(fields_of["mel_lengths"])}


def _summarize(fed: Emulation, ceiling: Emulation, rules: Rules) -> Figures:
    # The busy loop of the emulated host is not the work of the loader.
    own_cpu_s = max(0.0, fed.cpu_s - rules.host_load_s * fed.num_steps)
    return Figures(
        au=fed.au,
        ceiling_au=ceiling.au,
        effective_au=fed.effective_au,
        utterances_per_s=fed.utterances_per_s,
        cpu_ms_per_utterance=1000 * own_cpu_s / max(1, fed.num_utterances),
        step_variation=fed.step_variation,
        mean_wait_ms=1000 * float(fed.waits_s.mean()),
        padding=fed.padding,
        peak_rss_mb=fed.peak_rss_bytes / 2**20,
    )


def _compare(first: Standing, other: Standing) -> Comparison:
    """Divides figures of the same round, which were measured soon after each other, and takes medians."""
    pairs = list(zip(first.rounds, other.rounds, strict=True))
    ratios = [mine.utterances_per_s / theirs.utterances_per_s for mine, theirs in pairs]
    # With a step time of 0 every AU is 0 and has no ratio.
    busy = [mine.effective_au / theirs.effective_au for mine, theirs in pairs if theirs.effective_au > 0]
    return Comparison(
        first.name, other.name, float(median(ratios)), min(ratios), max(ratios), float(median(busy)) if busy else 1.0
    )
