# SPDX-License-Identifier: Apache-2.0
"""The effects of faults on the outputs of a function."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from random import Random
from typing import Any

import numpy as np
from nnpa.zdnn.v1 import fault_pb2 as pb
from nnpa_emulator import Outcome, Refusal, Status, Ztensor, widened
from nnpa_emulator.arith import explain_violation
from nnpa_emulator.diagnostics import diagnose
from nnpa_emulator.machine import Guest
from nnpa_emulator.pipeline import FUNCTIONS
from nnpa_emulator.stick import offset
from nnpa_emulator.ztensor import DataTypes, TensorDesc

from nnpa_server.faults.rules import WRITING

_NINF = (0xFF, 0x7F)  # bytes of 0x7FFF, little-endian
_MAX_PLACES = 4  # places that a detail tells


def outputs(operation: str) -> tuple[str, ...]:
    """Return the tensors whose sticks a function writes, in C order."""
    return WRITING.get(operation, FUNCTIONS[operation].outputs)


def refused(status: int, rule: int, call: int) -> Refusal:
    """Return the refusal of a valid call by a fault rule."""
    place = f"session.fault_rules[{rule}]"
    return Refusal(status, place, f"injected at call {call}", "absent", "fault")


def with_diagnostics(
    guest: Guest, operation: str, tensors: Mapping[str, Ztensor], outcome: Outcome
) -> Outcome:
    """Return an outcome with the library's diagnostics of its status; an instruction has none."""
    if operation not in FUNCTIONS:
        return outcome
    entry = FUNCTIONS[operation]
    diagnostics = diagnose(guest, operation, entry.module, outcome.status, outcome.refusal, tensors)
    return replace(outcome, diagnostics=tuple(diagnostics))


def _index(desc: TensorDesc, element: int) -> list[int]:
    """Return the dim4, dim3, dim2, dim1 of an element by its number in row-major order."""
    return [int(axis) for axis in np.unravel_index(element, desc.dims)]


def _bits(desc: TensorDesc) -> int:
    """Return the bits of one element."""
    return {DataTypes.ZDNN_BINARY_INT8: 8, DataTypes.ZDNN_BINARY_INT32: 32}.get(
        DataTypes(desc.type), 16
    )


def _spread(count: int, limit: int, random: Random) -> Sequence[int]:
    """Choose `count` different numbers below `limit`, or all of them."""
    return sorted(random.sample(range(limit), min(count, limit)))


def flip(
    operation: str, tensors: Mapping[str, Ztensor], outcome: Outcome, count: int, random: Random
) -> tuple[Outcome, str]:
    """Flip bits of elements that a function wrote; return its outcome and their places."""
    if operation == "transform_origtensor":
        return _flip_array(outcome, count, random)
    written = [(name, tensors[name]) for name in outputs(operation) if name in tensors]
    descs = [tensor.transformed_desc for _, tensor in written]
    sizes = [prod(desc.dims) * _bits(desc) for desc in descs]
    places: list[str] = []
    for chosen in _spread(count, sum(sizes), random):
        place = chosen
        for (name, tensor), size in zip(written, sizes, strict=True):
            if place < size:
                places.append(f"{name}{_flip_one(tensor, place)}")
                break
            place -= size
    for _, tensor in written:
        widened.written(tensor.buffer)
    return outcome, _join_places(places)


def _flip_one(tensor: Ztensor, place: int) -> str:
    desc = tensor.transformed_desc
    element, bit = divmod(place, _bits(desc))
    index = _index(desc, element)
    tensor.sticks[offset(desc, *index) + bit // 8] ^= 1 << bit % 8
    return f"{index} bit {bit}"


def _flip_array(outcome: Outcome, count: int, random: Random) -> tuple[Outcome, str]:
    array: Any = np.array(outcome.value, order="C")
    raw = array.reshape(-1).view(np.uint8)
    places = _spread(count, raw.size * 8, random)
    for place in places:
        raw[place // 8] ^= 1 << place % 8
    details = [f"byte {place // 8} bit {place % 8}" for place in places]
    return replace(outcome, value=array), _join_places(details)


def _join_places(places: Sequence[str]) -> str:
    more = f" and {len(places) - _MAX_PLACES} more" if len(places) > _MAX_PLACES else ""
    return "; ".join(places[:_MAX_PLACES]) + more


def violate(
    operation: str, tensors: Mapping[str, Ztensor], count: int, random: Random
) -> tuple[Outcome, str]:
    """Set elements of the first output to NINF; return the warning and their places."""
    status = int(Status.ZDNN_ELEMENT_RANGE_VIOLATION)
    entry = FUNCTIONS[operation]
    name = outputs(operation)[0]
    tensor, desc = tensors[name], tensors[name].transformed_desc
    if desc.type != DataTypes.ZDNN_DLFLOAT16:
        return Outcome(status), "no element"
    places: list[str] = []
    for element in _spread(count, prod(desc.dims), random):
        index = _index(desc, element)
        start = offset(desc, *index)
        tensor.sticks.view(np.uint8)[start : start + 2] = _NINF
        places.append(f"{name}{index}")
    widened.written(tensor.buffer)
    operands = {operand: tensors[operand] for operand in entry.tensors}
    inputs = tuple(operand for operand in entry.tensors if operand not in entry.outputs)
    code = None if entry.operation is None else entry.operation.code
    violation = explain_violation(code, operands, inputs)
    return Outcome(status, violation=violation), _join_places(places)


def draw_delay(delay: pb.FaultDelay, random: Random, most: float) -> float:
    """Return the seconds of one delay, 0 to `most`."""
    mean, spread = delay.seconds, delay.spread
    draw: Mapping[str, Callable[[], float]] = {
        "uniform": lambda: random.uniform(mean - spread, mean + spread),
        "normal": lambda: random.gauss(mean, spread),
        "exponential": lambda: random.expovariate(1 / mean) if mean else 0.0,
    }
    seconds = draw[delay.distribution]() if delay.distribution in draw else mean
    return min(max(seconds, 0.0), most)
