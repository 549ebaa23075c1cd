# SPDX-License-Identifier: Apache-2.0
"""``mli_tensor``: a description of typed elements in a piece of memory.

Sources: embARC MLI documentation, "mli_tensor Structure" and "Element Parameters". Element type
numbers follow MLI 2.0; the 1.x library has the same names with other numbers.
"""

from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

MLI_MAX_RANK = 4

Bytes = npt.NDArray[np.uint8]
Array: TypeAlias = npt.NDArray[Any]
"""Elements of a type that is known at run time only."""


class ElType(IntEnum):
    """``mli_element_type`` (MLI 2.0); other numbers are legal values and are refused by name."""

    MLI_EL_FX_4 = 0x004
    MLI_EL_FX_8 = 0x008
    MLI_EL_FX_16 = 0x010
    MLI_EL_SA_8 = 0x108
    MLI_EL_SA_32 = 0x120
    MLI_EL_FP_16 = 0x210
    MLI_EL_FP_32 = 0x220


FX_TYPES = frozenset({ElType.MLI_EL_FX_8, ElType.MLI_EL_FX_16})
SA_TYPES = frozenset({ElType.MLI_EL_SA_8, ElType.MLI_EL_SA_32})

_DTYPES: dict[int, np.dtype[np.generic]] = {
    ElType.MLI_EL_FX_8: np.dtype("<i1"),
    ElType.MLI_EL_FX_16: np.dtype("<i2"),
    ElType.MLI_EL_SA_8: np.dtype("<i1"),
    ElType.MLI_EL_SA_32: np.dtype("<i4"),
    ElType.MLI_EL_FP_32: np.dtype("<f4"),
}


@dataclass(frozen=True, slots=True)
class FxParams:
    """Fixed point: value = x / 2^frac_bits. uint8 in MLI 1.x, int8 in 2.0; both accepted."""

    frac_bits: int

    def __post_init__(self) -> None:
        if not -128 <= self.frac_bits <= 255:
            raise ValueError(f"frac_bits: {self.frac_bits}, must be in -128..255")


@dataclass(frozen=True, slots=True)
class SaParams:
    """Signed asymmetric: value = (x - zero_point) * scale / 2^scale_frac_bits.

    ``dim`` < 0: one value each, for the whole tensor. ``dim`` >= 0: one value per slice of that
    dimension. zero_point and scale are int16, scale_frac_bits is int8.
    """

    zero_point: tuple[int, ...]
    scale: tuple[int, ...]
    scale_frac_bits: tuple[int, ...]
    dim: int = -1

    def __post_init__(self) -> None:
        _require_range("zero_point", self.zero_point, 15)
        _require_range("scale", self.scale, 15)
        _require_range("scale_frac_bits", self.scale_frac_bits, 7)
        lengths = {len(self.zero_point), len(self.scale), len(self.scale_frac_bits)}
        if len(lengths) != 1 or 0 in lengths or (self.dim < 0 and lengths != {1}):
            raise ValueError(
                f"zero_point, scale, scale_frac_bits: lengths {sorted(lengths)} with dim "
                f"{self.dim}, must be one length, and 1 for dim < 0"
            )


def _require_range(field: str, values: tuple[int, ...], bits: int) -> None:
    for value in values:
        if not -(1 << bits) <= value < 1 << bits:
            raise ValueError(f"{field}: {value}, must be in {-(1 << bits)}..{(1 << bits) - 1}")


ElParams = FxParams | SaParams | None


@dataclass(slots=True, eq=False)
class Tensor:
    """``mli_tensor``; kernels fill the fields of their outputs.

    data: the memory from the first element on, 1-D contiguous little-endian bytes, or None for
    NULL. capacity: bytes, at most the memory's. shape: elements, outermost dimension first;
    entries beyond ``rank`` are ignored. mem_stride: elements, 0 or absent = derived from the shape.
    """

    data: Bytes | None
    capacity: int
    shape: tuple[int, ...]
    rank: int
    el_type: int
    el_params: ElParams
    mem_stride: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.data is not None and self.data.nbytes < self.capacity:
            raise ValueError(
                f"capacity: {self.capacity} bytes, must be at most the memory's {self.data.nbytes}"
            )


def from_array(array: npt.ArrayLike, el_type: ElType, el_params: ElParams) -> Tensor:
    """Make a dense tensor that owns a copy of the array, in the element type's container.

    A value outside the container raises ValueError; floats are accepted for FP_32 only.
    """
    source, dtype = np.asarray(array), _DTYPES[el_type]
    if dtype.kind == "i" and source.size:
        if source.dtype.kind not in "iu":
            raise ValueError(f"array: {source.dtype} elements, must be integers for {el_type.name}")
        high = (1 << (8 * dtype.itemsize - 1)) - 1
        low, smallest, largest = -high - 1, int(source.min()), int(source.max())
        if smallest < low or largest > high:
            raise ValueError(f"array: {smallest}..{largest}, must be in {low}..{high}")
    data = np.ascontiguousarray(source, dtype).reshape(-1).view(np.uint8).copy()
    return Tensor(data, data.nbytes, source.shape, source.ndim, el_type, el_params)


def empty(capacity: int, el_type: int, el_params: ElParams = None) -> Tensor:
    """Make an output tensor: ``capacity`` zero bytes, rank 0 until a kernel fills the fields."""
    return Tensor(np.zeros(capacity, np.uint8), capacity, (), 0, el_type, el_params)


def element_size(el_type: int) -> int:
    """Bytes of one element; 0 for a type without support (FX_4, FP_16, unknown numbers)."""
    dtype = _DTYPES.get(el_type)
    return 0 if dtype is None else dtype.itemsize


def dims(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape's first ``rank`` entries; absent ones are 0."""
    return (tensor.shape + (0,) * tensor.rank)[: tensor.rank]


def raw_strides(tensor: Tensor, rank: int) -> tuple[int, ...]:
    """Return the first ``rank`` strides as given; absent ones are 0."""
    return (tensor.mem_stride + (0,) * rank)[:rank]


def derived_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides with every 0 replaced: innermost 1, else the next stride times the next extent."""
    derived: list[int] = []
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        derived.insert(0, stride or step)
        step = derived[0] * extent
    return tuple(derived)


def count(tensor: Tensor) -> int:
    """Elements of a tensor as the 1.x kernels count them: 0 for rank 0."""
    return prod(dims(tensor)) if tensor.rank else 0


def extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to one past the last that the strides reach."""
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def view(tensor: Tensor, shape: tuple[int, ...], strides: tuple[int, ...] = ()) -> Array:
    """View the elements in the tensor's own memory; absent or zero strides are derived."""
    dtype = _DTYPES[tensor.el_type]
    elements = derived_strides(shape, (strides + (0,) * len(shape))[: len(shape)])
    steps = tuple(stride * dtype.itemsize for stride in elements)
    return np.ndarray(shape, dtype, buffer=tensor.data, strides=steps)


def integers(
    tensor: Tensor, shape: tuple[int, ...], strides: tuple[int, ...] = ()
) -> npt.NDArray[np.integer]:
    """View the elements of an integer tensor."""
    return view(tensor, shape, strides)


def to_array(tensor: Tensor) -> Array:
    """Copy the elements in the tensor's shape, strides applied."""
    return view(tensor, dims(tensor), raw_strides(tensor, tensor.rank)).copy()


def is_shared(a: Tensor, a_bytes: int, b: Tensor, b_bytes: int) -> bool:
    """Tell whether the first ``a_bytes`` of a and the first ``b_bytes`` of b overlap."""
    if a.data is None or b.data is None:
        return False
    return np.may_share_memory(a.data[:a_bytes], b.data[:b_bytes])


def same_start(a: Tensor, b: Tensor) -> bool:
    """Tell whether both tensors begin at the same address."""
    if a.data is None or b.data is None:
        return False
    return a.data.ctypes.data == b.data.ctypes.data
