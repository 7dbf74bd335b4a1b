"""What a GPU would run: thunks, loops, waits and model time, read from optimized HLO; and the HLO of the real steps."""

from __future__ import annotations

import pytest

from benchmarks.card.cards import CARDS, HOST_WAIT_US, LAUNCH_US
from benchmarks.card.figures import describe_record, is_compiled
from benchmarks.card.hlo import Module
from benchmarks.card.records import Record, Request, make_record
from benchmarks.card.roofline import Costs

HLO = """HloModule step, is_scheduled=true

%fused_cut (param_0: f32[1000], param_1: f32[10]) -> f32[10] {
  %param_0 = f32[1000]{0} parameter(0)
  %negated = f32[1000]{0} negate(%param_0)
  %cut = f32[10]{0} slice(%negated), slice={[0:10]}
  %param_1 = f32[10]{0} parameter(1)
  ROOT %sum = f32[10]{0} add(%cut, %param_1)
}

%fused_product (param_0: bf16[64,32], param_1: bf16[32,16]) -> bf16[64,16] {
  %param_0 = bf16[64,32]{1,0} parameter(0)
  %param_1 = bf16[32,16]{1,0} parameter(1)
  ROOT %dot = bf16[64,16]{1,0} dot(%param_0, %param_1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%body (state: (s32[], f32[10])) -> (s32[], f32[10]) {
  %state = (s32[], f32[10]{0}) parameter(0)
  %value = f32[10]{0} get-tuple-element(%state), index=1
  %count = s32[] get-tuple-element(%state), index=0
  %first = f32[10]{0} copy(%value)
  %second = f32[10]{0} copy(%first)
  ROOT %next = (s32[], f32[10]{0}) tuple(%count, %second)
}

%cond (state: (s32[], f32[10])) -> pred[] {
  %state = (s32[], f32[10]{0}) parameter(0)
  %count = s32[] get-tuple-element(%state), index=0
  %limit = s32[] constant(7)
  ROOT %less = pred[] compare(%count, %limit), direction=LT
}

ENTRY %main (a: f32[1000], b: f32[10], c: bf16[64,32], d: bf16[32,16]) -> (f32[10], bf16[64,16]) {
  %a = f32[1000]{0} parameter(0)
  %b = f32[10]{0} parameter(1)
  %c = bf16[64,32]{1,0} parameter(2)
  %d = bf16[32,16]{1,0} parameter(3)
  %zero = s32[] constant(0)
  %fusion = f32[10]{0} fusion(%a, %b), kind=kLoop, calls=%fused_cut
  %gemm_fusion = bf16[64,16]{1,0} fusion(%c, %d), kind=kCustom, calls=%fused_product
  %start = (s32[], f32[10]{0}) tuple(%zero, %fusion)
  %loop = (s32[], f32[10]{0}) while(%start), body=%body, condition=%cond, backend_config={"known_trip_count":{"n":"7"}}
  %end = f32[10]{0} get-tuple-element(%loop), index=1
  ROOT %results = (f32[10]{0}, bf16[64,16]{1,0}) tuple(%end, %gemm_fusion)
}
"""
UNKNOWN = HLO.replace(', backend_config={"known_trip_count":{"n":"7"}}', "")
CALLING = HLO.replace(
    "%end = f32[10]{0} get-tuple-element(%loop), index=1",
    '%end = f32[10]{0} custom-call(%fusion), custom_call_target="xla_ffi_python_cpu_callback"',
)
BUFFERS = """BufferAssignment:
allocation 0: size 4000, parameter 0, shape |f32[1000]| at ShapeIndex {}:
 value: <1 a @0> (size=4000,offset=0): f32[1000]{0}
allocation 1: size 40, parameter 1, shape |f32[10]| at ShapeIndex {}, maybe-live-out:
allocation 2: size 640, maybe-live-out:
allocation 3: size 9000, preallocated-temp:
"""
SETTINGS = {
    "block": "transformer",
    "text_width": 8,
    "text_layers": 1,
    "decoder_width": 8,
    "decoder_layers": 1,
    "attention_heads": 2,
    "reference_width": 8,
    "reference_layers": 1,
    "num_latents": 2,
    "reference_s": 0.2,
    "crop_frames": 32,
}


def test_thunks_of_a_loop_count_as_often_as_it_runs() -> None:
    module = Module.parse(HLO)
    assert Costs(module).num_thunks == 2 + 7 * 2
    assert module.count_unknown_loops() == 0
    assert module.count_host_waits() == 0
    assert module.find_host_operations() == []


def test_a_loop_whose_end_is_not_known_makes_the_host_wait() -> None:
    module = Module.parse(UNKNOWN)
    assert module.count_unknown_loops() == 1
    assert module.count_host_waits() == 1


def test_a_call_of_the_host_is_found() -> None:
    assert Module.parse(CALLING).find_host_operations() == ["xla_ffi_python_cpu_callback"]


def test_bytes_are_those_that_a_kernel_touches_and_flops_those_of_its_products() -> None:
    costs = Costs(Module.parse(HLO))
    cut = 10 * 4 + 10 * 4 + 10 * 4
    product = 2 * (64 * 32 + 32 * 16 + 64 * 16)
    copies = 7 * 2 * (40 + 40)
    assert costs.num_bytes == cut + product + copies
    assert costs.flops == 2 * 64 * 32 * 16


def test_model_time_is_the_longer_of_work_and_launch_and_waits_come_on_top() -> None:
    card = CARDS["rtx4090"]
    time = Costs(Module.parse(HLO)).estimate(card)
    # Everything here is far shorter than a launch.
    assert time.total_ms == pytest.approx(16 * LAUNCH_US / 1e3)
    assert time.useful_share == pytest.approx(time.roofline_ms / time.total_ms)
    waiting = Costs(Module.parse(UNKNOWN)).estimate(card)
    assert waiting.waits_ms == pytest.approx(HOST_WAIT_US / 1e3)


@pytest.mark.parametrize("card", [*CARDS, "cpu"])
def test_a_record_becomes_measurements_that_name_their_graph(card: str) -> None:
    record = make_record(Request("step, searching", "small", 32), card, HLO, BUFFERS)
    measurements = describe_record(record)
    assert all(is_compiled(item.name) and "small, step, searching, batch 32" in item.name for item in measurements)
    assert [item.value for item in measurements if "loops without known trip count" in item.name] == [0]
    if card in CARDS:
        assert record.memory == {"arguments": 4040, "results": 640, "temporaries": 9000}
        (share,) = (item.value for item in measurements if "useful share" in item.name)
        assert share == record.time_on(card).useful_share


def lower(part: str) -> Record:
    """The HLO of a very small model: more layers would only repeat it."""
    from benchmarks.card.graphs import make_graph

    settings = tuple(SETTINGS.items())
    request = Request(part, "small", 2, "float32", num_frames=24, num_tokens=4, settings=settings)
    return make_record(request, "cpu", make_graph(request).lower("optimized_hlo"))


@pytest.mark.parametrize(("part", "num_loops"), [("step, searching", 2), ("synthesis, decoder", 1)])
def test_the_voice_never_asks_the_host(part: str, num_loops: int) -> None:
    record = lower(part)
    assert len(record.trip_counts) >= num_loops
    assert record.num_unknown_loops == 0
    assert record.num_host_waits == 0
    assert record.host_operations == []
    assert record.num_operations > 100


def test_the_vocoder_never_asks_the_host() -> None:
    from benchmarks.card.graphs import make_vocoder_learner, show_vocoder_step
    from myxtts.training.vocoder.discriminators import DiscriminatorConfig

    narrow = DiscriminatorConfig(channels=2, max_channels=2, periods=(2,), resolutions=(512,))
    request = Request("vocoder", "tiny", 1, "float32")
    learner = make_vocoder_learner(request, width=8, discriminators=narrow)
    record = make_record(request, "cpu", show_vocoder_step(learner, 1, "_train_vocoder").lower("optimized_hlo"))
    assert record.num_unknown_loops == 0
    assert record.num_host_waits == 0
    assert record.host_operations == []
