# SPDX-License-Identifier: Apache-2.0
"""Lists of operations that attackers send: one that takes long, one that computes nothing."""

from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import operation_pb2 as wire
from nnpa.zdnn.v1 import tensor_pb2 as tensors

A, B, BIAS, PRODUCT = 1, 2, 3, 4


def _init(number: int, rows: int, columns: int) -> list[wire.Operation]:
    """Return what makes a tensor with a buffer of zeros."""
    described = tensors.TensorDesc(
        layout=tensors.ZDNN_NHWC, type=tensors.FP32, dim4=1, dim3=1, dim2=rows, dim1=columns
    )
    sticks = tensors.TensorDesc()
    sticks.CopyFrom(described)
    sticks.type, sticks.format = tensors.ZDNN_DLFLOAT16, tensors.ZDNN_FORMAT_4DFEATURE
    init = wire.InitZtensor(ztensor=number, pre_transformed_desc=described, transformed_desc=sticks)
    alloc = wire.AllochelperZtensor(ztensor=tensors.TensorRef(id=number))
    return [wire.Operation(init_ztensor=init), wire.Operation(allochelper_ztensor=alloc)]


def large_product(session: str, size: int = 5120, times: int = 1) -> pb.ExecuteRequest:
    """Return a list whose product takes seconds; its tensors take most of a session."""
    product = wire.MatmulOp(
        input_a=tensors.TensorRef(id=A),
        input_b=tensors.TensorRef(id=B),
        input_c=tensors.TensorRef(id=BIAS),
        output=tensors.TensorRef(id=PRODUCT),
        op_type=wire.MATMUL_OP_ADDITION,
    )
    return pb.ExecuteRequest(
        session=session,
        operations=[
            *_init(A, size, size),
            *_init(B, size, size),
            *_init(BIAS, 1, size),
            *_init(PRODUCT, size, size),
            *[wire.Operation(matmul_op=product)] * times,
        ],
    )


def transformed(session: str, size: int) -> pb.ExecuteRequest:
    """Return a list that fills a tensor of `size` by `size` FP32 elements."""
    transform = wire.TransformZtensor(
        ztensor=tensors.TensorRef(id=A), data=[bytes(4 * size * size)]
    )
    operations = [*_init(A, size, size), wire.Operation(transform_ztensor=transform)]
    return pb.ExecuteRequest(session=session, operations=operations)


def read_back(session: str) -> pb.ExecuteRequest:
    """Return a list of a few bytes that answers the contents of that tensor."""
    read = wire.TransformOrigtensor(ztensor=tensors.TensorRef(id=A))
    return pb.ExecuteRequest(
        session=session, operations=[wire.Operation(transform_origtensor=read)]
    )


def smallest(session: str) -> pb.ExecuteRequest:
    """Return a list of one operation that computes nothing."""
    return pb.ExecuteRequest(session=session, operations=[wire.Operation(init=wire.Init())])
