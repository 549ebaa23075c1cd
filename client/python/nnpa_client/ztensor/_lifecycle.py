# SPDX-License-Identifier: Apache-2.0
"""The life of a ztensor: init, allocate, free.

A ztensor without a buffer exists in the client only, and travels inline with the few operations
that take one. Allocation creates it in the session.
"""

import numpy as np
from nnpa.zdnn.v1 import tensor_pb2
from nnpa.zdnn.v1.operation_pb2 import (
    AllochelperZtensor,
    FreeZtensorBuffer,
    InitQuantizedZtensor,
    InitZtensor,
    Operation,
    OperationResult,
)
from nnpa.zdnn.v1.status_pb2 import Refusal
from nnpa.zdnn.v1.tensor_pb2 import TensorDesc, TensorRef

from nnpa_client._guest.call import Call
from nnpa_client._guest.guest import Guest
from nnpa_client._values.arrays import ArrayLike, as_array
from nnpa_client.descriptors import generate_transformed_desc
from nnpa_client.errors import ZdnnError
from nnpa_client.status import Status
from nnpa_client.ztensor import _transfer
from nnpa_client.ztensor._ztensor import Ztensor

__tracebackhide__ = True  # pytest shows the line that called, not these


def init_ztensor(
    guest: Guest,
    pre_tfrmd_desc: TensorDesc,
    tfrmd_desc: TensorDesc,
    quantization: tuple[float, float] | None = None,
) -> Ztensor:
    """Return a ztensor without a buffer; `quantization` is scale and offset."""
    structure = tensor_pb2.Ztensor(
        pre_transformed_desc=pre_tfrmd_desc,
        transformed_desc=tfrmd_desc,
        buffer_size=0,
        null_buffer=True,
    )
    ztensor = Ztensor(guest, structure)
    if quantization is not None:
        scale, offset = np.float32(quantization[0]), np.float32(quantization[1])
        with np.errstate(all="ignore"):
            structure.rec_scale = float(np.float32(1) / scale if scale != 0 else scale)
        structure.offset = float(offset)
        ztensor.quantization = float(scale), float(offset)
    return ztensor


def from_array(guest: Guest, array: ArrayLike, layout: int | str | None) -> Ztensor:
    """Return a transformed ztensor with the data of an array; see `Session.ztensor`."""
    values = as_array(array)
    pre = _transfer.describe(values, layout)
    if not values.size:
        text = f"array is of shape {values.shape}, must have 1 element or more in each dim"
        status = Status.ZDNN_INVALID_SHAPE
        refusal = Refusal(
            field="array", value=str(values.shape), limit="1 element or more in each dim",
            constraint="allochelper_ztensor_c1", text=f"{status.name}: {text}",
        )  # fmt: skip
        raise ZdnnError(status, "allochelper_ztensor", refusal=refusal)
    ztensor = init_ztensor(guest, pre, generate_transformed_desc(pre))
    _transfer.transform_ztensor(ztensor, [values], allocation(ztensor))
    return ztensor


def allocate(ztensor: Ztensor) -> Ztensor:
    """Allocate zero-filled sticks for a ztensor, and return it."""
    ztensor.guest.submit(*allocation(ztensor))
    return ztensor


def allocation(ztensor: Ztensor) -> tuple[Call, ...]:
    """Return the calls that allocate zero-filled sticks, and give a new ztensor its id."""
    name = "allochelper_ztensor"
    if ztensor.id:
        return (Call(name, _allochelper(ztensor.ref()), {"ztensor": ztensor}),)
    created = _creation(ztensor, ztensor.guest.new_id())
    ztensor.id = created.init_ztensor.ztensor or created.init_quantized_ztensor.ztensor
    return (
        Call("init_ztensor", created),
        Call(name, _allochelper(ztensor.ref()), {"ztensor": ztensor}, (ztensor,)),
    )


def _allochelper(ref: TensorRef) -> Operation:
    return Operation(allochelper_ztensor=AllochelperZtensor(ztensor=ref))


def _creation(ztensor: Ztensor, number: int) -> Operation:
    pre, tfrmd = ztensor.pre_transformed_desc, ztensor.transformed_desc
    if ztensor.quantization is None:
        plain = InitZtensor(ztensor=number, pre_transformed_desc=pre, transformed_desc=tfrmd)
        return Operation(init_ztensor=plain, housekeeping=True)
    scale, offset = ztensor.quantization
    quantized = InitQuantizedZtensor(
        ztensor=number,
        pre_transformed_desc=pre,
        transformed_desc=tfrmd,
        scale=scale,
        offset=offset,
    )
    return Operation(init_quantized_ztensor=quantized, housekeeping=True)


def free_ztensor_buffer(ztensor: Ztensor) -> None:
    """Free the sticks and the session's tensor; the client keeps the structure."""

    def forget(result: OperationResult) -> None:
        if result.zdnn_status == Status.ZDNN_OK and ztensor.id:
            ztensor.guest.forget(ztensor)

    operation = Operation(free_ztensor_buffer=FreeZtensorBuffer(ztensor=ztensor.ref()))
    tensors = {"ztensor": ztensor}
    ztensor.guest.submit(Call("free_ztensor_buffer", operation, tensors, (), forget))
