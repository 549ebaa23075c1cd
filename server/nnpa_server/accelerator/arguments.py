# SPDX-License-Identifier: Apache-2.0
"""Run operations with inline tensors, or with outputs that the server creates."""

from nnpa_emulator import Outcome, Ztensor
from nnpa_emulator.pipeline import allocate_sticks
from nnpa_emulator.status import Refused
from nnpa_emulator.ztensor import UNSET

from nnpa_server.accelerator.decode import Step
from nnpa_server.accelerator.operands import dense_bytes, read_operand
from nnpa_server.accelerator.seams import CallPath, Tensors
from nnpa_server.errors import unspecified
from nnpa_server.sessions.store import Session


def run_with_new(
    path: CallPath, session: Session, step: Step, tensors: dict[str, Ztensor]
) -> Outcome:
    """Run an operation with inline or new tensors, and add these to `tensors`."""
    spec, created = step.spec, step.new_ids
    for name, operand in step.inline.items():
        tensors[name] = read_operand(session, operand)
    try:
        tensors.update(_allocate_new(session, step, tensors))
    except Refused as refused:
        return Outcome(refused.refusal.status, refused.refusal)
    if step.creates:
        session.require_room()
        created = {"ztensor": step.creates}
        tensors["ztensor"] = Ztensor(UNSET, UNSET)
    if spec.name == "transform_origtensor" and tensors["ztensor"].buffer is not None:
        session.reserve(dense_bytes(tensors["ztensor"]))
    outcome = path.call_function(session, step, tensors)
    if outcome.valid:
        for name, number in created.items():
            session.tensors[number] = tensors[name]
            session.settle(number)
    return outcome


def _allocate_new(session: Session, step: Step, tensors: Tensors) -> dict[str, Ztensor]:
    """Allocate the new outputs of an operation in the shapes that its function infers."""
    if not step.new_ids:
        return {}
    function = step.spec.function
    if function.infer is None:
        raise unspecified(f"{step.path}.{next(iter(step.new_ids))}")
    inputs = {name: tensor for name, tensor in tensors.items() if name not in function.outputs}
    shapes = function.infer(**inputs, **step.values, **step.hints)
    new: dict[str, Ztensor] = {}
    for name, (pre, transformed) in zip(function.outputs, shapes, strict=True):
        if name in step.new_ids:
            session.require_room()
            new[name] = Ztensor(pre, transformed)
            allocate_sticks(session.guest, new[name], f"{step.spec.name}_output")
    return new
