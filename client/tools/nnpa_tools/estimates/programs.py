# SPDX-License-Identifier: Apache-2.0
"""The calls of a compiled network as an ONNX compiler for the machine makes them, and their times.

The compiler stickifies by its own code instead of zDNN's transforms.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from nnpa.network.v1.program_pb2 import Program
from nnpa.zdnn.v1 import operation_pb2
from nnpa.zdnn.v1.tensor_pb2 import TensorRef, Ztensor

from nnpa_tools.estimates.coefficients import machines, model_of
from nnpa_tools.estimates.estimator import time_of
from nnpa_tools.estimates.intervals import Interval
from nnpa_tools.estimates.work import Call, call_of


class ProgramCalls(NamedTuple):
    """The calls of a program with the index of the node that each serves, -1 for none.

    `host_nodes` counts the nodes that run on the host, whose time is not the accelerator's.
    """

    calls: tuple[Call, ...]
    nodes: tuple[int, ...]
    host_nodes: int


@dataclass(frozen=True, slots=True)
class NetworkTimes:
    """The time of a network on the accelerator: in total, and by the index of the node."""

    total: Interval
    by_node: Mapping[int, Interval]


def calls_of(program: Program) -> ProgramCalls:
    """Return the calls of a program, in order; its constants need no contents."""
    structures = dict(program.tensors)
    for number, constant in program.constants.items():
        if constant.HasField("ztensor"):
            structures[number] = constant.ztensor
    steps = [step for step in program.steps if step.HasField("operation")]
    return ProgramCalls(
        tuple(
            call_of(step.operation, dict(_operands(step.operation, structures)), compiled=True)
            for step in steps
        ),
        tuple(step.node for step in steps),
        sum(node.device == "host" for node in program.nodes),
    )


def network_times(program: Program) -> NetworkTimes | None:
    """Return the times of a program; None if no time of the accelerator is estimated."""
    machine = model_of(program.machine)
    if machine not in machines():
        return None
    by_node: dict[int, Interval] = {}
    counted = calls_of(program)
    for call, node in zip(counted.calls, counted.nodes, strict=True):
        if (interval := time_of(call, machine)) is not None:
            by_node[node] = by_node.get(node, Interval()) + interval
    return NetworkTimes(sum(by_node.values(), Interval()), by_node) if by_node else None


def _operands(
    message: operation_pb2.Operation, structures: Mapping[int, Ztensor]
) -> Iterator[tuple[str, Ztensor]]:
    """Yield the ztensors that an operation names, by C parameter name."""
    name = message.WhichOneof("operation")
    if name is None:
        return
    for descriptor, reference in getattr(message, name).ListFields():
        if isinstance(reference, TensorRef):
            number = reference.id or reference.new_id
            if number in structures:
                yield descriptor.name, structures[number]
