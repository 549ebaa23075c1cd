# SPDX-License-Identifier: Apache-2.0
"""The emulator in process as a target of the vector runner: messages in, messages out."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from google.protobuf.message import Message
from nnpa.zdnn.v1 import accelerator_pb2 as accelerator
from nnpa.zdnn.v1 import operation_pb2 as wire
from nnpa.zdnn.v1 import status_pb2 as statuses
from nnpa.zdnn.v1 import tensor_pb2 as tensors
from nnpa_emulator import (
    FUNCTIONS,
    MACHINES,
    Alignment,
    Guest,
    Machine,
    Malformed,
    NotInLibrary,
    Outcome,
    ProgramCheck,
    TensorDesc,
    Ztensor,
    get_status_message,
    run,
)
from nnpa_emulator.custom_machine import Overrides, customise
from nnpa_emulator.ztensor import UNSET, getsize_ztensor

from tests.vector_runner import MODEL_NAMES, CallFailedError

_OVERRIDES = ("max_dim_idx_size", "max_tensor_size", "data_types_mask", "layout_formats_mask")
# Operands of functions other than operations that are written.
_WRITTEN = {
    "transform_ztensor": "ztensor",
    "transform_ztensor_with_saturation": "ztensor",
    "transform_quantized_ztensor": "ztensor",
    "reshape_ztensor": "dest",
}


def machine_of(spec: accelerator.MachineSpec) -> Machine:
    """Build the machine that a message describes."""
    arguments: dict[str, Any] = {
        name.removesuffix("_mask"): getattr(spec, name)
        for name in _OVERRIDES
        if spec.HasField(name)  # type: ignore[arg-type]
    }
    dims = tuple(
        getattr(spec, f"max_dim{n}") if spec.HasField(f"max_dim{n}") else None  # type: ignore[arg-type]
        for n in (4, 3, 2, 1)
    )
    if spec.HasField("parmblk_formats_mask"):
        arguments["parmblk_formats"] = spec.parmblk_formats_mask << 96
    overrides = Overrides(
        max_dims=(dims[0], dims[1], dims[2], dims[3]),
        removed_functions=frozenset(spec.removed_functions),
        added_functions=frozenset(spec.added_functions),
        **arguments,
    )
    return customise(MACHINES[MODEL_NAMES[spec.model]], overrides)


@contextmanager
def emulator(setting: accelerator.Session) -> Generator["InProcess"]:
    """Open a guest in this process."""
    machine = machine_of(setting.machine_spec)
    yield InProcess(Guest(machine, setting.library_version, setting.precheck))


class InProcess:
    """A guest and the tensors that operations created in it."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.tensors: dict[int, Ztensor] = {}

    def move(self, spec: accelerator.MachineSpec) -> None:
        """Put the guest on another machine; what its library remembers stays."""
        self.guest.machine = machine_of(spec)

    def execute(self, operation: wire.Operation) -> wire.OperationResult:
        """Call the emulator with an arm's fields as arguments."""
        name = operation.WhichOneof("operation")
        if name is None:
            raise CallFailedError("OPERATION_UNKNOWN")
        arm: Message = getattr(operation, name)
        arguments = self._arguments(name, arm)
        alignment = Alignment(
            operation.buffer_misaligned,
            operation.save_area_misaligned,
            operation.work_area_misaligned,
        )
        try:
            outcome = self.call(name, arguments, alignment)
        except ProgramCheck as check:
            raise CallFailedError("PROGRAM_CHECK") from check
        except NotInLibrary as missing:
            raise CallFailedError("FUNCTION_NOT_IN_LIBRARY") from missing
        except Malformed as malformed:
            raise CallFailedError("DATA_SIZE_MISMATCH") from malformed
        return _result(name, outcome, arguments)

    def call(self, name: str, arguments: dict[str, Any], alignment: Alignment) -> Outcome:
        """Make a call."""
        return run(self.guest, name, arguments, alignment)

    def _arguments(self, name: str, arm: Message) -> dict[str, Any]:
        entry = FUNCTIONS[name]
        present = {field.name for field, _ in arm.ListFields()}
        arguments: dict[str, Any] = {}
        created: dict[str, int] = {}
        for field in arm.DESCRIPTOR.fields:
            value = getattr(arm, field.name)
            if isinstance(value, tensors.TensorRef):
                if value.WhichOneof("tensor") == "new_id":
                    created[field.name] = value.new_id
                else:
                    written = (*entry.outputs, _WRITTEN.get(name))
                    arguments[field.name] = self._operand(value, field.name in written)
            elif isinstance(value, tensors.TensorDesc):
                arguments[field.name] = descriptor(value)
            elif field.name in entry.tensors:
                arguments[field.name] = self.tensors[value] = Ztensor(UNSET, UNSET)
            elif field.is_repeated:
                arguments[field.name] = list(value)
            elif field.name in present or not field.has_presence:
                arguments[field.name] = value
        if created:
            self._create(name, arguments, created)
        return {key: item for key, item in arguments.items() if key in entry.parameters}

    def _operand(self, reference: tensors.TensorRef, output: bool) -> Ztensor:
        if reference.WhichOneof("tensor") == "id":
            return self.tensors[reference.id]
        return ztensor(reference.inline_ztensor, output)

    def _create(self, name: str, arguments: dict[str, Any], created: Mapping[str, int]) -> None:
        entry = FUNCTIONS[name]
        assert entry.infer, name
        described = zip(entry.outputs, entry.infer(**arguments), strict=True)
        for output, (pre, transformed) in described:
            size = getsize_ztensor(transformed)
            operand = Ztensor(pre, transformed, size, self.guest.allocate(size))
            arguments[output] = self.tensors[created[output]] = operand


def descriptor(message: tensors.TensorDesc) -> TensorDesc:
    """Return the emulator's descriptor of a message."""
    dims = (message.dim4, message.dim3, message.dim2, message.dim1)
    return TensorDesc(int(message.layout), int(message.format), int(message.type), *dims)


def ztensor(message: tensors.Ztensor, output: bool = False) -> Ztensor:
    """Return the emulator's ztensor of a message; an output without sticks gets zero ones."""
    desc = descriptor(message.transformed_desc)
    size = getsize_ztensor(desc)
    buffer = None
    if message.WhichOneof("contents"):
        buffer = np.frombuffer(message.sticks, np.uint8).copy()
    elif not message.null_buffer and output and size < 1 << 28:
        buffer = np.zeros(size, np.uint8)
    return Ztensor(
        descriptor(message.pre_transformed_desc),
        desc,
        message.buffer_size if message.HasField("buffer_size") else size,
        buffer,
        message.is_transformed,
        message.rec_scale,
        message.offset,
    )


def _result(name: str, outcome: Outcome, arguments: Mapping[str, Any]) -> wire.OperationResult:
    status = int(outcome.status)
    result = wire.OperationResult(
        zdnn_status=status,
        status_message=get_status_message(status),
        fp_flags=outcome.fp_flags or 0,
    )
    if outcome.refusal:
        result.refusal.CopyFrom(
            statuses.Refusal(constraint=outcome.refusal.constraint, text=str(outcome.refusal))
        )
    if outcome.violation:
        _explain(result.range_violation, outcome)
    match outcome.value:
        case None:
            pass
        case bool():
            result.boolean = outcome.value
        case int():
            result.number = outcome.value
        case np.ndarray():  # before the pair: since NumPy 2.5 an array matches sequence patterns
            result.data = outcome.value.tobytes()
        case (float() as least, float() as greatest):
            result.range.min, result.range.max = least, greatest
        case _:
            raise AssertionError(f"{name} answers {outcome.value!r}")
    for operand in FUNCTIONS[name].tensors:
        info = result.outputs.add(operand=operand)
        info.ztensor.CopyFrom(_message(arguments[operand]))
    return result


def _explain(violation: wire.RangeViolation, outcome: Outcome) -> None:
    assert outcome.violation
    for operand in outcome.violation.operands:
        reported = violation.operands.add(operand=operand.operand, count=operand.count)
        for element in operand.elements:
            reported.elements.add(
                index=element.index,
                code=element.code,
                padding=element.padding,
                operand_values=element.operand_values,
            )


def _message(tensor: Ztensor) -> tensors.Ztensor:
    desc = tensor.transformed_desc
    message = tensors.Ztensor(
        transformed_desc=tensors.TensorDesc(
            layout=desc.layout,  # type: ignore[arg-type]
            format=desc.format,  # type: ignore[arg-type]
            type=desc.type,  # type: ignore[arg-type]
            dim4=desc.dim4,
            dim3=desc.dim3,
            dim2=desc.dim2,
            dim1=desc.dim1,
        ),
        buffer_size=tensor.buffer_size,
        null_buffer=tensor.buffer is None,
        is_transformed=tensor.is_transformed,
        rec_scale=tensor.rec_scale,
        offset=tensor.offset,
    )
    if tensor.buffer is not None:
        message.sticks = tensor.buffer.tobytes()
    return message
