"""The emulated accelerator counts as it says, on a clock that only moves when it is told to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from myxtts.errors import UsageError
from myxtts.tools.emulate import BatchSize, ProcessMeter, StepTime, emulate, measure_batch, repeat_batches
from myxtts.types import Batch

STEP_S = 0.02
SECONDS = st.floats(0.0, 1.0, allow_nan=False)


class FakeMeter(ProcessMeter):
    """Time passes by sleeping, by `pass_s`, and a little with every look at the clock if `look_s` is set."""

    def __init__(self, *, overshoot_s: float = 0.0, look_s: float = 0.0) -> None:
        self.now_s, self.overshoot_s, self.look_s = 100.0, overshoot_s, look_s
        self.sleeps: list[float] = []
        self.cpu_s = 0.0
        self.rss_bytes = 1000

    def clock(self) -> float:
        self.now_s += self.look_s
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now_s += seconds + self.overshoot_s

    def read_cpu_s(self) -> float:
        return self.cpu_s

    def read_rss_bytes(self) -> int:
        return self.rss_bytes


def make_batch(lengths: list[int], num_frames: int = 10) -> Batch:
    shape = (len(lengths), num_frames)
    return Batch(
        position=0,
        ids=("",) * len(lengths),
        num_real=int(np.count_nonzero(lengths)),
        tokens=np.zeros((len(lengths), 1), np.int32),
        token_lengths=np.ones(len(lengths), np.int32),
        mel=np.zeros((*shape, 4), np.float32),
        mel_lengths=np.array(lengths, np.int32),
        speaker=np.zeros(len(lengths), np.int32),
        language=np.zeros(len(lengths), np.int32),
        reference=np.zeros((*shape, 4), np.float32),
        reference_lengths=np.ones(len(lengths), np.int32),
    )


def deliver(meter: FakeMeter, waits_s: list[float], batch: Batch | None = None) -> Iterator[Batch]:
    for wait_s in waits_s:
        meter.now_s += wait_s
        yield batch or make_batch([5, 10])


def test_batches_that_are_there_at_once_keep_the_accelerator_busy() -> None:
    meter = FakeMeter()
    seen = emulate(repeat_batches([make_batch([10])], 5), STEP_S, meter=meter)
    assert seen.au == pytest.approx(1.0)
    assert seen.step_variation == pytest.approx(0.0, abs=1e-9)
    assert seen.num_steps == 4
    assert seen.wall_s == pytest.approx(4 * STEP_S)


def test_first_step_does_not_count() -> None:
    meter = FakeMeter()
    seen = emulate(deliver(meter, [5.0, 0.0, 0.0]), STEP_S, meter=meter)
    assert seen.au == pytest.approx(1.0)
    assert seen.num_utterances == 4


def test_nominal_time_counts_and_not_the_measured_sleep() -> None:
    meter = FakeMeter(overshoot_s=0.005)
    seen = emulate(deliver(meter, [0.0] * 4), STEP_S, meter=meter)
    assert seen.au == pytest.approx(0.8)
    assert seen.waits_s == pytest.approx(np.zeros(3))


@given(st.lists(SECONDS, min_size=2, max_size=20))
def test_every_wait_lowers_utilisation_and_none_is_made_up_for(waits_s: list[float]) -> None:
    meter = FakeMeter()
    seen = emulate(deliver(meter, waits_s), STEP_S, meter=meter)
    nominal_s = STEP_S * (len(waits_s) - 1)
    assert seen.au == pytest.approx(nominal_s / (nominal_s + sum(waits_s[1:])))
    assert seen.waits_s == pytest.approx(np.array(waits_s[1:]), abs=1e-9)
    assert seen.intervals_s == pytest.approx(np.array(waits_s[1:]) + STEP_S)


def test_part_of_the_steps_has_a_utilisation_of_its_own() -> None:
    meter = FakeMeter()
    seen = emulate(deliver(meter, [0.0, STEP_S, STEP_S, 0.0, 0.0]), STEP_S, meter=meter)
    assert seen.measure_au(0, 2) == pytest.approx(0.5)
    assert seen.measure_au(2, 4) == pytest.approx(1.0)


def test_variation_is_deviation_by_mean() -> None:
    meter = FakeMeter()
    seen = emulate(deliver(meter, [0.0, 0.0, 2 * STEP_S, 0.0, 2 * STEP_S]), STEP_S, meter=meter)
    assert seen.step_variation == pytest.approx(0.5)


def test_padding_is_taken_off_effective_utilisation() -> None:
    meter = FakeMeter()
    seen = emulate(deliver(meter, [0.0] * 3, make_batch([10, 5, 0], num_frames=10)), STEP_S, meter=meter)
    assert seen.padding == pytest.approx(0.5)
    assert seen.effective_au == pytest.approx(0.5)
    assert seen.num_utterances == 4


def test_step_grows_with_frames_padding_included() -> None:
    meter = FakeMeter()
    batches = [make_batch([1], 5), make_batch([1, 1], 10), make_batch([1], 30)]
    seen = emulate(batches, StepTime(0.001, 0.0001), meter=meter)
    assert seen.nominal_s == pytest.approx([0.003, 0.004])
    assert seen.intervals_s == pytest.approx([0.003, 0.004])


def test_work_of_the_host_goes_on_during_the_step() -> None:
    meter = FakeMeter(look_s=0.001)
    seen = emulate(deliver(meter, [0.0] * 5), STEP_S, host_load_s=0.01, meter=meter)
    assert max(meter.sleeps) < STEP_S - 0.01
    # What is left is the looks at the clock between two steps.
    assert seen.intervals_s == pytest.approx(np.full(4, STEP_S), abs=0.003)


def test_host_load_longer_than_the_step_slows_it_down() -> None:
    meter = FakeMeter(look_s=0.001)
    seen = emulate(deliver(meter, [0.0] * 5), STEP_S, host_load_s=2 * STEP_S, meter=meter)
    assert meter.sleeps == []
    assert seen.au == pytest.approx(0.5, abs=0.05)


def test_stops_after_the_steps_asked_for_without_taking_another_batch() -> None:
    meter = FakeMeter()
    batches = deliver(meter, [0.0] * 5)
    assert emulate(batches, STEP_S, 3, meter=meter).num_steps == 2
    assert len(list(batches)) == 2


def test_rate_and_processor_time_are_those_of_the_steps_that_count() -> None:
    meter = FakeMeter()

    def batches() -> Iterator[Batch]:
        for _ in range(5):
            meter.cpu_s += 0.5
            meter.rss_bytes += 100
            yield make_batch([10, 10])

    seen = emulate(batches(), 0.1, meter=meter)
    assert seen.utterances_per_s == pytest.approx(20.0)
    assert seen.cpu_s_per_utterance == pytest.approx(0.25)
    assert seen.peak_rss_bytes == 1500


def test_memory_is_read_every_fifty_steps_and_at_the_end() -> None:
    meter = FakeMeter()
    seen = emulate(repeat_batches([make_batch([10])], 120), STEP_S, meter=meter)
    assert len(seen.rss_bytes) == 4


def test_mapping_of_a_dataset_is_measured_like_a_batch() -> None:
    batch = make_batch([7, 0], num_frames=9)
    assert measure_batch({"mel": batch.mel, "mel_lengths": batch.mel_lengths}) == measure_batch(batch)
    assert measure_batch(batch) == BatchSize(1, 7, 18)


def test_batch_of_unknown_kind_is_refused_and_can_be_measured_by_the_caller() -> None:
    with pytest.raises(UsageError, match="tuple without mel"):
        emulate([(1, 2)] * 3, STEP_S, meter=FakeMeter())
    seen = emulate([(1, 2)] * 3, STEP_S, measure=lambda batch: BatchSize(len(batch), 1, 1), meter=FakeMeter())
    assert seen.num_utterances == 4


@pytest.mark.parametrize("num_batches", [0, 1])
def test_too_few_batches_are_refused(num_batches: int) -> None:
    with pytest.raises(UsageError, match=f"There were {num_batches} batches"):
        emulate([make_batch([1])] * num_batches, STEP_S, meter=FakeMeter())


def test_real_meter_reads_this_machine() -> None:
    seen = emulate(repeat_batches([make_batch([10])], 3), 0.001)
    assert 0 < seen.au <= 1
    assert seen.cpu_s >= 0
    assert seen.peak_rss_bytes > 1 << 20
