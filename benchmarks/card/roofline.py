"""Model time of a compiled graph on a card: for each thunk the roofline, and the least that starting it costs.

    roofline of a thunk   max(bytes read and written / bandwidth, flops of its products / rate of products)
    time of a thunk       max(roofline, LAUNCH_US): launches are asynchronous, so a long kernel hides the next launch
    time of a step        sum over all thunks + host waits * HOST_WAIT_US
    useful share          sum of rooflines / time of a step

No figure is measured on a GPU. Products of bfloat16 run at the rate of the card, those of float32 at half of it (TF32);
other arithmetic is far below the bandwidth and is not counted. Bytes count once for each operand and result of a thunk,
as if nothing stayed in the cache between two kernels and everything inside one; of an operand that a fusion only cuts
a slice from, or updates in place, the part that is touched counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.card.cards import HOST_WAIT_US, LAUNCH_US, Card
from benchmarks.card.hlo import WITHOUT_WORK, Instruction, Module, Thunk

_CUTTING = frozenset("slice dynamic-slice gather".split())
_READING_ALL = frozenset("dot convolution reduce-window sort scatter fft custom-call".split())
_HALF_RATE = frozenset("f32 f64 c64 c128".split())


@dataclass(frozen=True)
class Work:
    """What one start of a thunk moves and computes."""

    num_bytes: int
    flops: int
    """Of products, in units of bfloat16: those of float32 count twice."""


@dataclass(frozen=True)
class StepTime:
    """Model time of a step on a card, in milliseconds."""

    roofline_ms: float
    thunks_ms: float
    waits_ms: float
    bytes_ms: float
    products_ms: float

    @property
    def total_ms(self) -> float:
        return self.thunks_ms + self.waits_ms

    @property
    def useful_share(self) -> float:
        return self.roofline_ms / self.total_ms if self.total_ms else 0.0


class Costs:
    """Bytes and flops of the thunks of a module, whatever the card."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._num_host_waits = module.count_host_waits()
        self._work = [(thunk.count, self._measure(thunk)) for thunk in module.list_thunks()]

    @property
    def num_bytes(self) -> int:
        return sum(count * work.num_bytes for count, work in self._work)

    @property
    def flops(self) -> int:
        return sum(count * work.flops for count, work in self._work)

    @property
    def num_thunks(self) -> int:
        return sum(count for count, _ in self._work)

    def estimate(self, card: Card) -> StepTime:
        """Model time of a run on a card; see the top of this file."""
        roofline_us = thunks_us = 0.0
        for count, work in self._work:
            longest_us = 1e6 * max(work.num_bytes / card.bandwidth, work.flops / card.bf16_flops)
            roofline_us += count * longest_us
            thunks_us += count * max(longest_us, LAUNCH_US)
        return StepTime(
            roofline_ms=roofline_us / 1e3,
            thunks_ms=thunks_us / 1e3,
            waits_ms=self._num_host_waits * HOST_WAIT_US / 1e3,
            bytes_ms=1e3 * self.num_bytes / card.bandwidth,
            products_ms=1e3 * self.flops / card.bf16_flops,
        )

    def _measure(self, thunk: Thunk) -> Work:
        item, computation = thunk.instruction, self._module.computations[thunk.computation]
        operands = [computation[name] for name in item.operands if name in computation]
        inside = self._module.computations.get(item.find("calls") or "")
        if item.operation != "fusion" or inside is None:
            return Work(_measure_plain(item, operands), _count_flops(item, computation))
        flops = sum(_count_flops(other, inside) for other in inside.values())
        return Work(_measure_fusion(operands, inside), flops)


def _measure_plain(item: Instruction, operands: list[Instruction]) -> int:
    """Bytes of an instruction outside a fusion."""
    if item.operation in _CUTTING:
        return 2 * item.num_bytes
    if item.operation == "dynamic-update-slice":
        return 2 * operands[1].num_bytes
    return item.num_bytes + sum(operand.num_bytes for operand in operands)


def _measure_fusion(operands: list[Instruction], inside: dict[str, Instruction]) -> int:
    """Bytes of operands and results, as far as the fused instructions touch them."""
    results = _find_results(inside)
    total = sum(_measure_result(result, inside) for result in results)
    needed = _find_needed(inside, results)
    for other in inside.values():
        if other.operation == "parameter":
            number = int(other.rest.partition(")")[0])
            whole = operands[number].num_bytes if number < len(operands) else other.num_bytes
            total += math.ceil(whole * needed.get(other.name, 0.0))
    return total


def _find_needed(inside: dict[str, Instruction], results: list[Instruction]) -> dict[str, float]:
    """Share of each value that is read on the way to the results: cuts need a part of what they cut."""
    needed = {result.name: 1.0 for result in results}
    for user in reversed(inside.values()):
        share = needed.get(user.name, 0.0)
        if not share or user.operation == "parameter":
            continue
        for position, name in enumerate(user.operands):
            if name in inside:
                more = _find_share(user, position, inside[name], share)
                needed[name] = min(1.0, needed.get(name, 0.0) + more)
    return needed


def _find_share(user: Instruction, position: int, operand: Instruction, share: float) -> float:
    """Share of an operand that is read where `share` of the user's result is needed."""
    size, made = max(1, operand.num_elements), max(1, user.num_elements)
    if user.operation in _CUTTING or user.operation == "broadcast":
        return min(1.0, share * made / size) if position == 0 else 1.0
    if user.operation == "dynamic-update-slice":
        return 0.0 if position == 0 else 1.0
    return 1.0 if user.operation in _READING_ALL else share


def _find_results(inside: dict[str, Instruction]) -> list[Instruction]:
    root = next(other for other in inside.values() if other.is_root)
    if root.operation == "tuple":
        return [inside[name] for name in root.operands if name in inside]
    return [root]


def _measure_result(result: Instruction, inside: dict[str, Instruction]) -> int:
    """Bytes written for a result: of one that is updated in place, the updated part."""
    while result.operation == "bitcast" and result.operands and result.operands[0] in inside:
        result = inside[result.operands[0]]
    if result.operation == "dynamic-update-slice":
        return inside[result.operands[1]].num_bytes
    return 0 if result.operation == "parameter" else result.num_bytes


def _count_flops(item: Instruction, computation: dict[str, Instruction]) -> int:
    """Twice the multiplications of a product or convolution; float32 counts twice that."""
    if item.operation == "dot":
        left = computation[item.operands[0]]
        contracted = _read_axes(item, "lhs_contracting_dims")
        depth = math.prod(left.sizes[axis] for axis in contracted)
        return _weigh(2 * math.prod(item.sizes) * depth, left)
    if item.operation == "convolution" or "__cudnn$conv" in item.rest or "__cublas" in item.rest:
        return _count_library_flops(item, [computation[name] for name in item.operands if name in computation])
    return 0


def _count_library_flops(item: Instruction, operands: list[Instruction]) -> int:
    """Of a matrix product by cuBLAS, or a convolution forward or backward by cuDNN."""
    first, second = operands[0], operands[1]
    result = _SHAPE_OF_FIRST.match(item.shape)
    sizes = tuple(int(size) for size in result.group(1).split(",") if size) if result else item.sizes
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", item.rest)
    if labels is None:
        found = re.search(r'"lhs_contracting_dimensions":\["(\d+)"', item.rest)
        return _weigh(2 * math.prod(sizes) * (first.sizes[int(found.group(1))] if found else 1), first)
    # The three ways of a convolution exchange the roles of operands and result.
    if "BackwardFilter" in item.rest:
        kernel, made = sizes, second.sizes
    elif "BackwardInput" in item.rest:
        kernel, made = second.sizes, first.sizes
    else:
        kernel, made = second.sizes, sizes
    places = labels.group(3)
    # Each output value of the forward direction is a sum over kernel positions and input channels.
    out_channels = made[places.index("f")]
    return _weigh(2 * math.prod(made) * math.prod(kernel) // max(1, out_channels), first)


_SHAPE_OF_FIRST = re.compile(r"\(?\w+\[([\d,]*)\]")


def _read_axes(item: Instruction, name: str) -> list[int]:
    found = re.search(rf"{name}=\{{([\d,]*)\}}", item.rest)
    return [int(axis) for axis in found.group(1).split(",") if axis] if found else []


def _weigh(flops: int, operand: Instruction) -> int:
    return flops * (2 if operand.element_type in _HALF_RATE else 1)


def count_operations(module: Module, thunks: Iterable[Thunk]) -> int:
    """Operations executed, counted inside of fusions too: the figure that does not depend on how XLA fuses."""
    total = 0
    for thunk in thunks:
        inside = module.computations.get(thunk.instruction.find("calls") or "")
        worked = [other for other in (inside or {}).values() if other.operation not in WITHOUT_WORK]
        total += thunk.count * (len(worked) if inside is not None else 1)
    return total
