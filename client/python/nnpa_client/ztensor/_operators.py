# SPDX-License-Identifier: Apache-2.0
"""The operators of ztensors, minimum and maximum: on equal shapes; nothing is broadcast."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NoReturn

from nnpa.zdnn.v1 import tensor_pb2
from nnpa.zdnn.v1.operation_pb2 import (
    MATMUL_OP_ADDITION,
    Add,
    Div,
    MatmulOp,
    Max,
    Min,
    Mul,
    Operation,
    Sub,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_DLFLOAT16,
    ZDNN_FORMAT_4DFEATURE,
    ZDNN_NHWC,
    TensorDesc,
    TensorRef,
)

from nnpa_client._guest.verb import AnyOperand, Verb
from nnpa_client._values.user_arrays import dims, layout_shape

__tracebackhide__ = True  # pytest shows the line that called, not these

_STICK_CELLS = 64
_PAGE_BYTES = 4096

Refs = Mapping[str, TensorRef]
_ELEMENTWISE: Mapping[str, tuple[str, Callable[[Refs], Operation]]] = MappingProxyType(
    {
        "add": ("+", lambda refs: Operation(add=Add(**refs))),
        "sub": ("-", lambda refs: Operation(sub=Sub(**refs))),
        "mul": ("*", lambda refs: Operation(mul=Mul(**refs))),
        "div": ("/", lambda refs: Operation(div=Div(**refs))),
        "min": ("minimum", lambda refs: Operation(min=Min(**refs))),
        "max": ("maximum", lambda refs: Operation(max=Max(**refs))),
    }
)


def elementwise(function: str, a: AnyOperand, b: AnyOperand) -> AnyOperand:
    """Return `a` op `b` by a function of zDNN.

    Raises TypeError for an operand that is no ztensor, ValueError for shapes that differ. The
    machine checks shapes that are not known yet in a pipeline.
    """
    sign, make = _ELEMENTWISE[function]
    _require_ztensor(sign, a, b)
    if a.held is not None and b.held is not None:
        ours, theirs = _shape(a.held), _shape(b.held)
        if ours != theirs:
            raise ValueError(
                f"{sign}: shapes {ours} and {theirs}, expected equal ones: zDNN broadcasts "
                "nothing. np.broadcast_to does, before session.ztensor"
            )
    verb = Verb(function, {"output": None}, input_a=a, input_b=b)
    return verb.result(make(verb.refs))


def matmul(a: AnyOperand, b: AnyOperand) -> AnyOperand:
    """Return the product of two matrices, or of two stacks in layout ZDNN_3DS.

    It is matmul_op with a bias of zeros. Raises TypeError for an operand that is no ztensor,
    ValueError for shapes that do not fit. A pipeline runs its queue if a shape is not known yet.
    """
    _require_ztensor("@", a, b)
    left, right = a.structure.transformed_desc, b.structure.transformed_desc
    (stack, dim3, _rows, inner), (stacks, dim3_of_b, outer, columns) = dims(left), dims(right)
    if (stack, dim3, inner) != (stacks, dim3_of_b, outer) or dim3 != 1:
        shapes = f"{_shape(a.structure)} and {_shape(b.structure)}"
        raise ValueError(
            f"@: shapes {shapes}, expected (m, n) and (n, p), or stacks of them in layout "
            "ZDNN_3DS: session.ztensor(array, '3DS')"
        )
    verb = Verb("matmul_op", {"output": None}, input_a=a, input_b=b)
    bias = TensorRef(inline_ztensor=_zeros(stack, columns))
    refs = verb.refs
    product = MatmulOp(op_type=MATMUL_OP_ADDITION, input_c=bias, output=refs["output"])
    product.input_a.CopyFrom(refs["input_a"])
    product.input_b.CopyFrom(refs["input_b"])
    return verb.result(Operation(matmul_op=product))


def refuse(sign: str, a: object, b: object) -> NoReturn:
    """Raise TypeError for an operator between a ztensor and something else."""
    _require_ztensor(sign, a, b)
    raise TypeError(f"{sign}: ztensors of different kinds")


def _require_ztensor(sign: str, a: object, b: object) -> None:
    for value in (a, b):
        if hasattr(value, "guest"):
            continue
        kind = type(value).__name__
        advice = "session.ztensor(array) makes one"
        if isinstance(value, int | float):
            advice = f"session.ztensor(np.full(z.shape, {value}, np.float32)) makes one"
        raise TypeError(f"{sign}: {kind}, expected a ztensor of the same shape; {advice}")


def _shape(structure: tensor_pb2.Ztensor) -> tuple[int, ...]:
    pre = structure.pre_transformed_desc
    return layout_shape(pre) or dims(structure.transformed_desc)


def _zeros(stack: int, columns: int) -> tensor_pb2.Ztensor:
    """Return a bias of zeros that travels with its operation."""
    size = stack * -(-columns // _STICK_CELLS) * _PAGE_BYTES
    desc = TensorDesc(layout=ZDNN_NHWC, format=ZDNN_FORMAT_4DFEATURE, type=ZDNN_DLFLOAT16)
    desc.dim4, desc.dim3, desc.dim2, desc.dim1 = stack, 1, 1, columns
    return tensor_pb2.Ztensor(transformed_desc=desc, is_transformed=True, sticks=bytes(size))
