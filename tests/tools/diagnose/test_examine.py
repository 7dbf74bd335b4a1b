"""From evidence to causes, gains and words: what follows from which numbers, without measuring anything."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import fields, replace
from io import StringIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.tools.made_up_evidence import (
    DATA_S,
    STEP_S,
    make_bursts,
    make_evidence,
    make_loop,
    make_slow_python,
)

from myxtts.config.load import read_preset
from myxtts.config.schema import XTTSConfig
from myxtts.pipeline.order import Shape
from myxtts.runtime.hardware import Gpu, Hardware, MigInstance
from myxtts.tools.charts import draw_timeline
from myxtts.tools.diagnose.advice import advise_machine, compare_two_ways, find_card
from myxtts.tools.diagnose.causes import find_overlap, simulate_interval
from myxtts.tools.diagnose.evidence import Evidence, Machine, StageTime, StepFacts, Trials
from myxtts.tools.diagnose.examine import conclude
from myxtts.tools.diagnose.findings import Cause
from myxtts.tools.diagnose.from_dataset import find_lengths, measure_padding, trim_batch
from myxtts.tools.diagnose.terminal import show_diagnosis, to_json
from myxtts.tools.diagnose.timing import Comparison
from myxtts.tools.rhythm import find_oscillation, rate_loading
from myxtts.tools.step_graph import StepGraph
from myxtts.tools.watch_loop import LoopFacts
from myxtts.tools.words import Translator

SECONDS = st.floats(0.0, 1.0)
RATE = make_evidence(alone_s=np.full(40, 0.100), loop=make_loop(wait_s=0.080))
SLOW_DISK = replace(
    RATE, stages=(StageTime("read", 0.090, 0.05), StageTime("features", 0.010)), machine=Machine(8, 0.05, 0.1, 7.0)
)
EPOCHS = make_evidence(loop=make_loop(every=20, burst_s=0.200, is_epoch_start=np.arange(60) % 20 == 0), epoch_length=20)
NEW_SHAPES = make_evidence(loop=make_loop(step_s=0.2, is_new_shape=np.ones(60, bool)))


@pytest.mark.parametrize(
    ("evidence", "cause"),
    [
        (make_evidence(), Cause.HEALTHY),
        (make_evidence(alone_s=np.full(40, 0.001)), Cause.COMPUTE_BOUND),
        (RATE, Cause.RATE_DEFICIT),
        (make_slow_python(), Cause.PYTHON_FUNCTIONS),
        (SLOW_DISK, Cause.SLOW_READS),
        (make_bursts(), Cause.BURSTS),
        (make_evidence(loop=make_loop(wait_s=DATA_S), buffer_depth=0), Cause.NO_OVERLAP),
        (make_evidence(loop=make_loop(transfer_s=0.010)), Cause.TRANSFER),
        (EPOCHS, Cause.EPOCH_END),
        (NEW_SHAPES, Cause.RETRACING),
        (make_evidence(num_eager_ops=900, trials=Trials(graph_step_s=0.006)), Cause.EAGER),
        (make_evidence(padding=0.7, trials=Trials(trimmed_step_s=0.008), is_step_emulated=False), Cause.PADDING),
        (make_evidence(padding=0.7), Cause.PADDING),
        (replace(RATE, num_threads=64, trials=Trials(fewer_threads_s=0.03)), Cause.TOO_MANY_THREADS),
        (replace(RATE, num_threads=64, machine=Machine(2, 2.0, 40.0)), Cause.TOO_MANY_THREADS),
    ],
)
def test_cause_follows_from_numbers(evidence: Evidence, cause: Cause) -> None:
    diagnosis = conclude(evidence)
    assert diagnosis.first.cause is cause
    assert diagnosis.is_healthy == cause.is_harmless
    assert bool(diagnosis.first.advice) != cause.is_harmless


@pytest.mark.parametrize(
    ("evidence", "factor"),
    [
        (make_slow_python(), 5.0),
        (make_evidence(loop=make_loop(wait_s=DATA_S), buffer_depth=0), 1.4),
        (make_evidence(loop=make_loop(transfer_s=0.010)), 1.5),
        (make_evidence(num_eager_ops=900, trials=Trials(graph_step_s=0.010)), 2.0),
        (NEW_SHAPES, 10.0),
        (EPOCHS, 1.5),
        (make_bursts(), 1.4),
        (replace(RATE, num_threads=64, trials=Trials(fewer_threads_s=0.050)), 2.0),
    ],
)
def test_predicted_gain_is_what_arithmetic_says(evidence: Evidence, factor: float) -> None:
    gain = conclude(evidence).first.advice[0].gain
    assert gain.factor == pytest.approx(factor, rel=0.07)
    assert gain.low < gain.factor < gain.high


def test_what_waits_in_line_for_a_core_is_not_a_slow_disk() -> None:
    evidence = replace(SLOW_DISK, machine=Machine(2, 0.4, 3.0))
    assert conclude(evidence).first.cause is Cause.RATE_DEFICIT


def test_what_reading_ahead_cured_was_not_the_rate() -> None:
    bursts = make_bursts()
    slower = replace(bursts, alone_s=bursts.alone_s * 1.5, loop=make_loop(every=10, burst_s=0.150))
    cured = replace(slower, trials=Trials(ahead_s=0.024))
    assert [one.cause for one in conclude(slower).findings] == [Cause.BURSTS, Cause.RATE_DEFICIT]
    assert [one.cause for one in conclude(cured).findings] == [Cause.BURSTS]
    assert conclude(cured).first.advice[0].gain.basis == "tried"
    assert conclude(cured).first.gain == pytest.approx(slower.loop.interval_s / 0.024)


def test_more_threads_are_only_advised_where_cores_are_free() -> None:
    free = conclude(RATE).first.advice
    busy = conclude(replace(RATE, machine=Machine(8, 7.5, 7.5, 0.0))).first.advice
    assert free[0].gain.factor > 3
    assert busy[0].reason == "cache"


def test_own_settings_are_advised_for_a_configuration() -> None:
    own = replace(
        RATE,
        subject="configuration",
        trials=Trials(cached_s=0.001),
        settings={"data.preprocessing_mode": "on_the_fly", "data.batch_size": 16},
    )
    diagnosis = conclude(own)
    assert diagnosis.list_changes()["data.preprocessing_mode"] == "precompute"
    assert XTTSConfig().model_copy(update=diagnosis.list_changes()).data.preprocessing_mode == "precompute"
    for evidence in (make_bursts(), make_evidence(loop=make_loop(transfer_s=0.010))):
        changes = conclude(replace(evidence, subject="configuration")).list_changes()
        assert changes
        XTTSConfig().model_copy(update=changes)


@given(st.lists(SECONDS, min_size=1, max_size=30), SECONDS, st.integers(1, 40))
def test_a_buffer_never_beats_the_slower_side_nor_loses_to_none(times: list[float], work_s: float, depth: int) -> None:
    interval_s = simulate_interval(times, work_s, depth)
    assert interval_s >= work_s - 1e-9
    assert interval_s <= simulate_interval(times, work_s, 0) + max(times) * 0.2 + 1e-9
    assert simulate_interval(times, work_s, depth + 5) <= interval_s + max(times) * 0.2 + 1e-9


def test_overlap_is_told_from_waits() -> None:
    assert find_overlap(make_evidence()) == 1.0
    assert find_overlap(make_evidence(loop=make_loop(wait_s=DATA_S))) == 0.0
    assert find_overlap(make_evidence(loop=make_loop(wait_s=DATA_S / 2))) == pytest.approx(0.5)


@pytest.mark.parametrize("period", [3, 7, 10, 16])
def test_period_of_a_swing_is_found(period: int) -> None:
    intervals_s = 0.02 + np.random.default_rng(0).normal(0, 0.0005, 80)
    intervals_s[::period] += 0.05
    found = find_oscillation(intervals_s)
    assert found.period_steps == period
    assert found.period_s == pytest.approx(period * intervals_s.mean())
    assert not found.is_stable


def test_two_shapes_do_not_swing() -> None:
    shape = np.arange(60) % 2
    steps_s = np.where(shape == 1, 0.06, 0.02) + np.random.default_rng(0).normal(0, 0.0005, 60)
    assert make_loop(steps_s=steps_s, shape=shape).oscillation.is_stable
    assert not make_loop(steps_s=steps_s).oscillation.is_stable
    waiting = make_loop(steps_s=steps_s, shape=shape, every=8, burst_s=0.2).oscillation
    assert waiting.period_steps == 8


def test_noise_does_not_swing() -> None:
    steady = find_oscillation(0.02 + np.random.default_rng(1).normal(0, 0.001, 80))
    assert steady.is_stable
    assert steady.period_steps is None
    uneven = find_oscillation(np.random.default_rng(2).exponential(0.02, 80))
    assert uneven.period_steps is None
    assert not uneven.is_stable
    assert find_oscillation(np.array([0.02, 0.02])).period_steps is None


def test_timeline_shows_where_steps_were_slow() -> None:
    intervals_s = np.full(30, 0.01)
    intervals_s[7] = 0.08
    line = draw_timeline(intervals_s)
    assert len(line) == 30
    assert line[7] == "█"
    assert set(line[:7] + line[8:]) == {line[0]}
    assert draw_timeline(np.array([])) == ""
    assert len(draw_timeline(np.full(1000, 0.01))) == 60


@pytest.mark.parametrize(("ms", "rating"), [(1, "good"), (16, "good"), (17, "moderate"), (21, "slow")])
def test_loading_is_rated_by_the_step_that_waits_for_it(ms: float, rating: str) -> None:
    assert rate_loading(ms / 1e3, STEP_S) == rating


def test_a_rating_never_contradicts_the_causes() -> None:
    # 60 ms would be quick for a step of 200 ms, but this one takes 20 ms and waits.
    late = conclude(make_evidence(alone_s=np.full(40, 0.060), loop=make_loop(wait_s=0.040)))
    assert (late.first.cause, late.loading) == (Cause.RATE_DEFICIT, "slow")
    # Alone it was a little slower than the step, as machines vary; together nothing waited.
    even = conclude(make_evidence(alone_s=np.full(40, 1.01 * STEP_S)))
    assert (even.is_healthy, even.loading) == (True, "moderate")
    assert conclude(make_evidence()).loading == "good"


def test_no_change_is_advised_that_gains_nothing() -> None:
    # Features are stored and all cores are busy: no setting loads faster.
    evidence = replace(RATE, subject="configuration", machine=Machine(8, 7.5, 7.5, 0.0))
    diagnosis = conclude(evidence)
    assert diagnosis.first.cause is Cause.RATE_DEFICIT
    assert diagnosis.list_changes() == {}
    for one in (RATE, SLOW_DISK, EPOCHS, NEW_SHAPES, make_bursts(), make_slow_python(), evidence):
        assert all(advice.gain.factor > 1 for finding in conclude(one).findings for advice in finding.advice)


def test_a_setting_is_advised_once() -> None:
    bursts = make_bursts()
    both = replace(bursts, alone_s=bursts.alone_s * 1.5, loop=make_loop(every=10, burst_s=0.150, wait_s=0.02))
    advised = [advice.setting for finding in conclude(both).findings for advice in finding.advice]
    assert len(advised) == len(set(advised))


WATCHED = LoopFacts(num_steps=14, num_steps_ahead=2.0, num_copies=1.0)
COMPILED = StepGraph(Counter(MatMul=900), Counter(Cast=10), num_loops=2, num_half_products=200)


def make_step_evidence(graph: StepGraph = COMPILED, trials: Trials | None = None, **changes: Any) -> Evidence:
    """A step that does all as it should, except for the changes; keys of `LoopFacts` or of `StepFacts`."""
    names = {one.name for one in fields(LoopFacts)}
    loop = replace(WATCHED, graph=graph, **{key: value for key, value in changes.items() if key in names})
    others = {key: value for key, value in changes.items() if key not in names}
    facts = StepFacts(loop, **{"is_gpu": True, "has_bfloat16": True, "num_frames": 800, **others})
    settings = {"training.checkpoint_steps": 100, "training.sample_steps": 0}
    own = {"subject": "configuration", "is_step_emulated": False, "settings": settings}
    return make_evidence(step_facts=facts, trials=trials or Trials(), **own)


STEP_FAULTS: list[tuple[Evidence, Cause]] = [
    (make_step_evidence(elsewhere=("float32[32, 800, 80] on GPU:0",)), Cause.WRONG_DEVICE),
    (make_step_evidence(num_new_graphs=12), Cause.COMPILE_STORM),
    (make_step_evidence(num_host_reads=11.0), Cause.HOST_SYNC),
    (make_step_evidence(num_steps_ahead=0.0), Cause.HOST_SYNC),
    (make_step_evidence(replace(COMPILED, unknown_loops=["while"])), Cause.UNKNOWN_LOOP),
    (make_step_evidence(replace(COMPILED, outside=Counter(Mul=500, AssignVariableOp=250))), Cause.OUTSIDE),
    (make_step_evidence(replace(COMPILED, outside=COMPILED.compiled, compiled=Counter())), Cause.NO_XLA),
    (make_step_evidence(num_eager_ops=120.0, eager_kinds=("Mul", "AddV2")), Cause.EAGER_OPS),
    (make_step_evidence(num_copies=9.0), Cause.MANY_COPIES),
    (make_step_evidence(replace(COMPILED, num_half_products=0, num_float32_products=200)), Cause.FLOAT32),
    (make_step_evidence(has_durations=True), Cause.SEARCH),
    (make_step_evidence(trials=Trials(double_ratio=1.1)), Cause.SMALL_BATCH),
    (make_step_evidence(wall_share=0.6), Cause.PAUSES),
]


@pytest.mark.parametrize(("evidence", "cause"), STEP_FAULTS, ids=[cause.value for _, cause in STEP_FAULTS])
@pytest.mark.parametrize("is_gpu", [True, False])
def test_faults_of_the_step_follow_from_what_it_does(evidence: Evidence, cause: Cause, is_gpu: bool) -> None:
    assert evidence.step_facts is not None
    facts = replace(evidence.step_facts, is_gpu=is_gpu)
    evidence = replace(evidence, step_facts=facts)
    if cause is Cause.NO_XLA and not is_gpu:
        assert conclude(evidence).is_healthy
        return
    diagnosis = conclude(evidence)
    assert [one.cause for one in diagnosis.findings] == [cause]
    assert diagnosis.first.gain > 1.05
    XTTSConfig().model_copy(update=diagnosis.list_changes())
    for lang in ("en", "fa"):
        result = json.loads(json.dumps(to_json(diagnosis, Translator(lang)), ensure_ascii=False))
        assert result["step_facts"]["loop"]["graph"]["compiled"] == facts.loop.graph.compiled
        told = json.dumps(result["findings"], ensure_ascii=False)
        assert "{" not in told.replace('{"', "").replace("[{", "").replace("{}", "")


def test_a_step_without_faults_is_healthy() -> None:
    assert conclude(make_step_evidence()).is_healthy


def test_waiting_for_data_comes_before_a_fault_that_costs_less() -> None:
    evidence = make_step_evidence(num_copies=9.0)
    late = replace(evidence, alone_s=np.full(40, 0.100), loop=make_loop(wait_s=0.080))
    assert [one.cause for one in conclude(late).findings] == [Cause.RATE_DEFICIT, Cause.MANY_COPIES]


def test_pauses_gain_what_rarer_checkpoints_save() -> None:
    diagnosis = conclude(make_step_evidence(wall_share=0.5))
    assert diagnosis.list_changes() == {"training.checkpoint_steps": 1000}
    assert diagnosis.first.gain == pytest.approx(1.9)


def test_utilisation_says_what_it_is() -> None:
    real = make_step_evidence()
    assert real.step_facts is not None
    measured = replace(real, step_facts=replace(real.step_facts, device_busy=0.3))
    assert [conclude(one).au_basis for one in (make_evidence(), real, measured)] == ["emulated", "step", "device"]
    assert conclude(measured).au == 0.3


def test_padding_is_seen_without_being_told() -> None:
    batch = np.random.default_rng(0).normal(size=(4, 40, 3))
    assert measure_padding([batch]) == 0.0
    batch[:, 10:] = 0.0
    assert measure_padding([(batch, np.arange(4))]) == pytest.approx(0.75)
    assert measure_padding([{"mel": batch, "mel_lengths": np.full(4, 20)}]) == pytest.approx(0.5)
    assert measure_padding([np.zeros((4, 40))]) is None
    lengths, width = find_lengths(batch)
    assert (lengths.tolist(), width) == ([10] * 4, 40)
    trimmed = trim_batch({"mel": batch, "mel_lengths": np.full(4, 20)}, 40, 12)
    assert trimmed["mel"].shape == (4, 12, 3)
    assert trimmed["mel_lengths"].tolist() == [12] * 4


def make_hardware(*names: str) -> Hardware:
    gpus = tuple(
        Gpu(index, name, 24 << 30, 22 << 30, f"uuid{index}", (8, 9), index) for index, name in enumerate(names)
    )
    return Hardware(16, 64 << 30, 32 << 30, gpus)


def test_settings_for_the_machine_know_cards_and_memory() -> None:
    config, shape = XTTSConfig(), Shape(32, 800, 120)
    known = advise_machine(config, make_hardware("NVIDIA GeForce RTX 3090"), 10 << 20, shape)
    assert {one.setting: one.value for one in known} == read_preset("gpu_card", "rtx3090")
    other = {one.setting: one.value for one in advise_machine(config, make_hardware("NVIDIA L4"), 10 << 20, shape)}
    assert other["data.num_workers"] == 15
    assert other["data.buffer_size"] == 50
    assert 1 <= other["data.batch_size"] <= 256
    assert "data.batch_size" not in {one.setting for one in advise_machine(config, make_hardware(), 10 << 20, shape)}


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3060 Ti", None),
        ("NVIDIA RTX A1000", None),
    ],
)
def test_a_preset_is_for_its_card_and_not_for_those_of_a_similar_name(name: str, card: str | None) -> None:
    assert find_card(make_hardware(name)) == card


def test_a_part_of_a_divided_card_has_no_preset() -> None:
    gpu = replace(make_hardware("NVIDIA A100").gpus[0], instances=(MigInstance("MIG-1", 10 << 30, 9 << 30),))
    assert find_card(replace(make_hardware(), gpus=(gpu,))) is None


def test_data_parallel_wins_where_features_are_cheap_and_the_split_where_they_are_not() -> None:
    cheap = compare_two_ways(make_evidence(stages=(StageTime("features", 0.001),)), 2)
    dear = compare_two_ways(make_evidence(stages=(StageTime("features", STEP_S),)), 2)
    assert cheap is not None
    assert dear is not None
    assert (cheap.winner, dear.winner) == ("data-parallel", "split")


def make_full_diagnosis() -> Any:
    compared = Comparison(np.array([0.10, 0.11]), np.array([0.021, 0.022]))
    machine = advise_machine(XTTSConfig(), make_hardware("NVIDIA GeForce RTX 3090"), 1 << 20)
    evidence = replace(make_slow_python(), loop=make_loop(wait_s=0.080, every=9, burst_s=0.1))
    split = compare_two_ways(evidence, 2)
    return replace(conclude(evidence), verified=compared, machine_settings=machine, split=split)


@pytest.mark.parametrize("lang", ["en", "fa"])
def test_every_cause_can_be_told(lang: str) -> None:
    tr = Translator(lang)
    for evidence in (make_evidence(), RATE, SLOW_DISK, EPOCHS, NEW_SHAPES, make_bursts(), make_slow_python()):
        result = json.loads(json.dumps(to_json(conclude(evidence), tr)))
        assert result["findings"][0]["explanation"]
        assert "{" not in result["findings"][0]["explanation"]


def test_json_holds_what_programs_need() -> None:
    result = json.loads(json.dumps(to_json(make_full_diagnosis(), Translator("en"))))
    assert result["cause"] == "python_functions"
    assert result["loading"] == "slow"
    assert result["au_basis"] == "emulated"
    advice = result["findings"][0]["recommendations"][0]
    assert {"setting", "value", "reason", "predicted_gain"} <= advice.keys()
    assert advice["predicted_gain"]["low"] < advice["predicted_gain"]["factor"] < advice["predicted_gain"]["high"]
    assert result["python_functions"][0]["line"] == 12
    assert result["verified"]["factor"] == pytest.approx(0.10 / 0.021)
    assert result["oscillation"]["period_steps"] == 9


def test_a_busy_machine_is_named_where_steps_are_slow_without_waiting() -> None:
    assert conclude(make_evidence()).au_basis == "emulated"
    assert conclude(make_evidence(loop=make_loop(step_s=1.5 * STEP_S))).au_basis == "disturbed"


def test_screen_names_cause_place_setting_and_gain() -> None:
    console = Console(file=StringIO(), width=120, color_system=None)
    show_diagnosis(make_full_diagnosis(), console, Translator("en"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for text in (
        "Python functions in the data graph",
        "load_wave (old_pipeline.py:12)",
        "the step waits for it",
        "emulated: nominal step time",
        "myxtts precompute",
        "measured 4.76×",
        "period of 9 steps",
        "preset for NVIDIA GeForce RTX 3090",
        "capacity, batches/s",
    ):
        assert text in shown
