"""Sizes of the feed: buffers within memory budgets, and tuning of threads and depth in the first steps.

With `auto_tune_performance` waits are measured, one setting is changed at a time and kept only if waits fell, and
tuning stops for good when nothing helps: a run is never left with worse settings than it started with.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

_SHARE_OF_RAM = 0.25
"""Of the available memory for buffers, and as much again for features kept in memory; the rest is left to others."""
_SHARE_OF_VRAM = 0.10
"""Of a GPU's free memory for batches that wait there; the model needs the rest."""

_STEPS_PER_TRIAL = 20
_MAX_TRIALS = 8
_ENOUGH_WAIT_SHARE = 0.01
"""A consumer that waits for less than this share of the time is fed well enough."""
_BURST_RATIO = 8.0
"""Longest wait by mean wait from which waits count as bursts."""
_EMPTY_SHARE = 0.25
"""A buffer that is less filled than this is emptied by a slow producer, not by bursts."""
_KEPT_IF_BELOW = 0.9
"""A change is kept if it brings waits below this share of those before; smaller gains are noise."""


@dataclass(frozen=True, slots=True)
class BufferSizes:
    """Batches in memory, batches that wait on the device and copies to it at a time; messages tell what was reduced."""

    in_memory: int
    on_device: int
    num_copies: int
    messages: tuple[str, ...]


def fit_buffers(
    asked_in_memory: int,
    asked_on_device: int,
    batch_bytes: int,
    ram_bytes: int,
    free_vram_bytes: int | None,
    asked_copies: int = 1,
) -> BufferSizes:
    """The numbers asked for, or as many as the budgets hold; at least two in memory, one on a device and one copy.

    A batch that is being copied has its memory on both sides: so copies count in both budgets.
    """
    messages = []
    held = fit_on_device(asked_on_device + asked_copies, batch_bytes, free_vram_bytes) if asked_on_device else 1
    on_device = min(asked_on_device, max(1, held - 1))
    num_copies = max(1, held - on_device)
    in_memory = min(asked_in_memory, max(2, ram_bytes // batch_bytes - num_copies))
    if in_memory < asked_in_memory:
        messages.append(
            f"buffer_size is {asked_in_memory}, but as many batches of {_show(batch_bytes)} exceed the memory budget "
            f"of {_show(ram_bytes)}: {in_memory} are held. Set data.ram_budget_gb to allow more."
        )
    if on_device < asked_on_device:
        messages.append(
            f"prefetch_buffer_size is {asked_on_device}, but a tenth of the GPU's free memory holds {held}, with those "
            f"that are being copied: {on_device} {'waits' if on_device == 1 else 'wait'} there."
        )
    return BufferSizes(in_memory, on_device, num_copies, tuple(messages))


def fit_on_device(asked: int, batch_bytes: int, free_vram_bytes: int | None, num_beside: int = 0) -> int:
    """As many batches as asked for, or as a tenth of a GPU's free memory holds; at least one if any was asked for.

    `num_beside` other batches have their memory there too.
    """
    if free_vram_bytes is None:
        return asked
    return min(asked, max(1, int(free_vram_bytes * _SHARE_OF_VRAM) // batch_bytes - num_beside))


def measure_ram_budget(available_ram_bytes: int, ram_budget_gb: float | None) -> int:
    """Bytes for buffers, and again for features kept in memory."""
    return int(available_ram_bytes * _SHARE_OF_RAM) if ram_budget_gb is None else int(ram_budget_gb * 2**30)


def _show(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:.1f} MB"


@dataclass(frozen=True, slots=True)
class FeedSettings:
    """Settings that may change while a feed runs: loader threads and batches in memory."""

    num_workers: int
    buffer_size: int


class Tuner:
    """Observes waits and intervals of steps, and proposes new settings, up to the most that the machine allows."""

    def __init__(self, settings: FeedSettings, most: FeedSettings) -> None:
        self.settings, self.most = settings, most
        self.is_held = False
        self.history: list[tuple[FeedSettings, float]] = []
        self._waits: list[float] = []
        self._intervals: list[float] = []
        self._depths: list[int] = []
        self._before: tuple[FeedSettings, float] | None = None

    def observe(self, wait_s: float, interval_s: float, depth: int) -> FeedSettings | None:
        """New settings, if this step ends a trial that calls for them; `depth` batches waited in memory."""
        if self.is_held:
            return None
        self._waits.append(wait_s)
        self._intervals.append(interval_s)
        self._depths.append(depth)
        if len(self._waits) < _STEPS_PER_TRIAL:
            return None
        # A consumer that computes next to nothing waits all the time, however fast it is fed: seconds are compared,
        # not shares.
        mean_wait_s, share = fmean(self._waits), sum(self._waits) / max(sum(self._intervals), 1e-12)
        is_filled = fmean(self._depths) > _EMPTY_SHARE * self.settings.buffer_size
        is_bursty = is_filled and max(self._waits) > _BURST_RATIO * max(fmean(self._waits), 1e-9)
        self._waits, self._intervals, self._depths = [], [], []
        self.history.append((self.settings, mean_wait_s))
        return self._decide(mean_wait_s, share, is_bursty=is_bursty)

    def _decide(self, mean_wait_s: float, share: float, *, is_bursty: bool) -> FeedSettings | None:
        if self._before is not None and mean_wait_s > self._before[1] * _KEPT_IF_BELOW:
            # The last change did not help: back to what was before, and no more trials.
            return self._hold(self._before[0])
        if share <= _ENOUGH_WAIT_SHARE or len(self.history) >= _MAX_TRIALS:
            return self._hold(self.settings)
        change = self._propose(is_bursty=is_bursty)
        if change == self.settings:
            return self._hold(self.settings)
        self._before = (self.settings, mean_wait_s)
        self.settings = change
        return change

    def _propose(self, *, is_bursty: bool) -> FeedSettings:
        """A deeper buffer against bursts that empty a filled one; another thread where loading is slow on average."""
        workers = min(self.settings.num_workers + 1, self.most.num_workers)
        depth = min(self.settings.buffer_size * 2, self.most.buffer_size)
        deeper = FeedSettings(self.settings.num_workers, depth)
        wider = FeedSettings(workers, self.settings.buffer_size)
        first, second = (deeper, wider) if is_bursty else (wider, deeper)
        return first if first != self.settings else second

    def _hold(self, settings: FeedSettings) -> FeedSettings | None:
        self.is_held = True
        changed = settings != self.settings
        self.settings = settings
        return settings if changed else None

    def describe(self) -> str:
        """One sentence for the log."""
        first, last = self.history[0] if self.history else (self.settings, 0.0), self.settings
        if first[0] == last:
            threads = "1 loader thread" if last.num_workers == 1 else f"{last.num_workers} loader threads"
            return f"Tuning: {threads} and {last.buffer_size} batches in memory are kept."
        return (
            f"Tuning: loader threads {first[0].num_workers} → {last.num_workers}, "
            f"batches in memory {first[0].buffer_size} → {last.buffer_size}; held from here on."
        )
