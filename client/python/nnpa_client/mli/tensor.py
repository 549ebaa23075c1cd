# SPDX-License-Identifier: Apache-2.0
"""``mli_tensor`` in Python: typed elements in memory.

Source: embARC MLI documentation, "mli_tensor Structure" and "Element Parameters".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from nnpa.mli.v1.mli_pb2 import (
    MLI_EL_FP_32,
    MLI_EL_FX_8,
    MLI_EL_FX_16,
    MLI_EL_SA_8,
    MLI_EL_SA_32,
    MLI_EL_UNSPECIFIED,
    ElType,
)

from nnpa_client._values.fields import enum_name
from nnpa_client._values.user_arrays import Array

__tracebackhide__ = True  # pytest shows the line that called, not these

Bytes: TypeAlias = npt.NDArray[np.uint8]
Shape: TypeAlias = int | Sequence[int]

# numpy's types for MLI's element types, little-endian as on an ARC.
DTYPES: Mapping[int, np.dtype[np.generic]] = MappingProxyType(
    {
        MLI_EL_FX_8: np.dtype("i1"),
        MLI_EL_FX_16: np.dtype("<i2"),
        MLI_EL_SA_8: np.dtype("i1"),
        MLI_EL_SA_32: np.dtype("<i4"),
        MLI_EL_FP_32: np.dtype("<f4"),
    }
)
_FX = {"i1": MLI_EL_FX_8, "i2": MLI_EL_FX_16}
_SA = {"i1": MLI_EL_SA_8, "i4": MLI_EL_SA_32}


@dataclass(frozen=True, slots=True)
class FxParams:
    """Fixed point: value = x / 2^frac_bits."""

    frac_bits: int


@dataclass(frozen=True, slots=True)
class SaParams:
    """Signed asymmetric: value = (x - zero_point) * scale / 2^scale_frac_bits.

    One entry each for the whole tensor (`dim` -1), or one per slice of dimension `dim`.
    zero_point and scale are int16, scale_frac_bits is int8.
    """

    zero_point: tuple[int, ...]
    scale: tuple[int, ...]
    scale_frac_bits: tuple[int, ...]
    dim: int = -1


ElParams: TypeAlias = FxParams | SaParams | None


@dataclass(slots=True, eq=False)
class Tensor:
    """An ``mli_tensor``; kernels fill the fields of their outputs, and write their memory.

    `memory` is the bytes, None for a NULL pointer; tensors share memory by sharing this array.
    `offset` is the first element's, in bytes, `capacity` the bytes from there on that the program
    claims. `shape` is in elements, outermost first; so is `mem_stride`, where 0 or no entry means
    the stride that follows from the shape. `el_type` is MLI_EL_FX_8 etc.
    """

    memory: Bytes | None
    offset: int
    capacity: int
    shape: tuple[int, ...]
    rank: int
    el_type: int
    el_params: ElParams = None
    mem_stride: tuple[int, ...] = ()

    @property
    def array(self) -> Array:
        """A copy of the elements in the tensor's shape, strides applied."""
        dtype, shape = self.dtype, (self.shape + (0,) * self.rank)[: self.rank]
        if self.memory is None:
            raise ValueError("memory: None, the tensor has no elements")
        steps: list[int] = []
        step = dtype.itemsize
        strides = (self.mem_stride + (0,) * self.rank)[: self.rank]
        for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
            steps.insert(0, stride * dtype.itemsize or step)
            step = steps[0] * extent
        return np.ndarray(shape, dtype, self.memory, self.offset, tuple(steps)).copy()

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The numpy type of the elements; ValueError for a type that no kernel supports."""
        if self.el_type not in DTYPES:
            names = ", ".join(enum_name(ElType.DESCRIPTOR, el_type) for el_type in DTYPES)
            chosen = enum_name(ElType.DESCRIPTOR, self.el_type)
            raise ValueError(f"el_type: {chosen}, expected one of {names}")
        return DTYPES[self.el_type]

    @property
    def frac_bits(self) -> int:
        """Fractional bits; ValueError unless the type is fixed point."""
        if not isinstance(self.el_params, FxParams):
            raise ValueError(f"el_params: {self.el_params}, has no frac_bits")
        return self.el_params.frac_bits

    @property
    def contents(self) -> bytes:
        """The first `capacity` bytes, fewer if the memory is shorter."""
        if self.memory is None:
            return b""
        return self.memory[self.offset : self.offset + self.capacity].tobytes()

    def __repr__(self) -> str:
        kind = DTYPES.get(self.el_type, hex(self.el_type))
        return f"<mli.Tensor {self.shape[: self.rank]} {kind}, {self.el_params}>"


def _el_params(
    frac_bits: int | None,
    zero_point: Shape | None,
    scale: Shape | None,
    scale_frac_bits: Shape | None,
    dim: int,
) -> ElParams:
    if frac_bits is not None and scale is None:
        return FxParams(frac_bits)
    if scale is None:
        return None
    if frac_bits is not None:
        raise ValueError("frac_bits: given together with scale, must be one of them")
    first = _several(scale)
    default = (0,) * len(first)
    columns = [
        default if column is None else _several(column) for column in (zero_point, scale_frac_bits)
    ]
    return SaParams(columns[0], first, columns[1], dim)


def _several(values: Shape) -> tuple[int, ...]:
    return (values,) if isinstance(values, int) else tuple(map(int, values))


def tensor(
    array: npt.ArrayLike,
    *,
    frac_bits: int | None = None,
    zero_point: Shape | None = None,
    scale: Shape | None = None,
    scale_frac_bits: Shape | None = None,
    dim: int = -1,
    mem_stride: Sequence[int] = (),
) -> Tensor:
    """Return a tensor with a copy of an array; dtype and parameters determine the element type.

        mli.tensor(np.int8([1, 2]), frac_bits=4)                         # MLI_EL_FX_8
        mli.tensor(np.int16([1, 2]), frac_bits=12)                       # MLI_EL_FX_16
        mli.tensor(np.int8([1, 2]), scale=3, scale_frac_bits=5)          # MLI_EL_SA_8
        mli.tensor(np.float32([1, 2]))                                   # MLI_EL_FP_32

    `mem_stride`, in elements, spreads the elements over memory with zeros between them.
    """
    source = np.asarray(array)
    params = _el_params(frac_bits, zero_point, scale, scale_frac_bits, dim)
    code = source.dtype.str[1:]
    if isinstance(params, FxParams):
        el_type = _FX.get(code, MLI_EL_UNSPECIFIED)
    elif isinstance(params, SaParams):
        el_type = _SA.get(code, MLI_EL_UNSPECIFIED)
    else:
        el_type = MLI_EL_FP_32 if code == "f4" else MLI_EL_UNSPECIFIED
    if el_type == MLI_EL_UNSPECIFIED:
        raise ValueError(
            f"array: {source.dtype} with {type(params).__name__}, must be int8 or int16 with "
            "frac_bits, int8 or int32 with scale, or float32"
        )
    dense = np.ascontiguousarray(source, DTYPES[el_type])
    memory = _spread(dense, tuple(mem_stride)) if mem_stride else dense
    data = memory.reshape(-1).view(np.uint8).copy()
    shape = source.shape
    return Tensor(data, 0, data.nbytes, shape, len(shape), el_type, params, tuple(mem_stride))


def _spread(dense: Array, mem_stride: tuple[int, ...]) -> Array:
    if len(mem_stride) != dense.ndim or min(mem_stride) < 1 or 0 in dense.shape:
        raise ValueError(f"mem_stride: {mem_stride}, must be one per dimension, 1 or more")
    reach = 1 + sum((n - 1) * s for n, s in zip(dense.shape, mem_stride, strict=True))
    memory = np.zeros(reach, dense.dtype)
    steps = tuple(stride * dense.itemsize for stride in mem_stride)
    np.ndarray(dense.shape, dense.dtype, memory, 0, steps)[...] = dense
    return memory


def empty(
    shape: Shape,
    el_type: int,
    *,
    frac_bits: int | None = None,
    zero_point: Shape | None = None,
    scale: Shape | None = None,
    scale_frac_bits: Shape | None = None,
    dim: int = -1,
) -> Tensor:
    """Return an output for a kernel to fill: zeroed memory for a shape, its own shape unset."""
    params = _el_params(frac_bits, zero_point, scale, scale_frac_bits, dim)
    size = DTYPES[el_type].itemsize if el_type in DTYPES else 1
    count = int(np.prod(_several(shape), dtype=np.int64))
    return Tensor(np.zeros(count * size, np.uint8), 0, count * size, (), 0, el_type, params)


def shared(
    other: Tensor, el_type: int | None = None, *, offset: int = 0, frac_bits: int | None = None
) -> Tensor:
    """Return a tensor in the memory of `other`, `offset` bytes after its first element.

    Its capacity reaches to the end of the memory; all other fields are copied from `other`.
    Kernels that work in place take such a tensor as output; other kernels refuse the overlap.
    """
    if other.memory is None:
        raise ValueError("other: has no memory to share")
    start = other.offset + offset
    if not 0 <= start <= other.memory.nbytes:
        raise ValueError(f"offset: {offset} bytes, must stay in the memory of {other!r}")
    room = other.memory.nbytes - start
    return replace(
        other,
        offset=start,
        capacity=room,
        el_type=other.el_type if el_type is None else el_type,
        el_params=other.el_params if frac_bits is None else FxParams(frac_bits),
    )
