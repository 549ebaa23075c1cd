# SPDX-License-Identifier: Apache-2.0
"""Conditions that more than one kernel places on a tensor.

Sources: embARC MLI documentation, "mli_tensor Structure" and "Conditions for Applying the
Kernel"; library behaviour (``mli_check.c``) for the order and for the statuses.
"""

from math import prod

from mli_emulator.pipeline import Options
from mli_emulator.status import DebugLevel, MliStatus, require
from mli_emulator.tensor import (
    FX_TYPES,
    MLI_MAX_RANK,
    SA_TYPES,
    ElType,
    FxParams,
    SaParams,
    Tensor,
    derived_strides,
    dims,
    element_size,
    extent,
    is_shared,
    raw_strides,
)

Named = tuple[str, Tensor]


def required(
    tensor: Tensor | None,
    name: str,
    constraint: str,
    status: MliStatus = MliStatus.MLI_STATUS_BAD_TENSOR,
) -> Tensor:
    """Return the tensor, unless it is NULL."""
    require(tensor is not None, constraint, status, name, "NULL", "a tensor")
    assert tensor is not None
    return tensor


def require_data(
    tensor: Tensor,
    name: str,
    constraint: str,
    status: MliStatus = MliStatus.MLI_STATUS_BAD_TENSOR,
) -> None:
    """Require that the data pointer is not NULL."""
    require(tensor.data is not None, constraint, status, f"{name}.data", "NULL", "a pointer")


def valid(tensor: Tensor | None, name: str) -> Tensor:
    """Require a valid input tensor.

    (tensor_c1) it is not NULL: BAD_TENSOR
    (tensor_c2) rank is at most MLI_MAX_RANK: BAD_TENSOR
    (tensor_c3) no mem_stride is negative: BAD_TENSOR
    (tensor_c4) no shape entry is 0: BAD_TENSOR
    (tensor_c5) if all strides are given, each covers the dimension inside it: BAD_TENSOR
    (tensor_c6) capacity holds every element: NOT_ENGH_MEM
    (tensor_c7) SA scales are positive: BAD_TENSOR
    (tensor_c8) the data pointer is not NULL: BAD_TENSOR
    (tensor_c9) in the 1.x kernels, fractional bits are in 0..255: BAD_TENSOR
    """
    tensor = required(tensor, name, "tensor_c1")
    bad = MliStatus.MLI_STATUS_BAD_TENSOR
    rank_ok = 0 <= tensor.rank <= MLI_MAX_RANK
    require(rank_ok, "tensor_c2", bad, f"{name}.rank", tensor.rank, f"in 0..{MLI_MAX_RANK}")
    require_layout(tensor, name, dims(tensor))
    params = tensor.el_params
    if tensor.el_type in SA_TYPES and isinstance(params, SaParams):
        smallest = min(params.scale)
        require(smallest > 0, "tensor_c7", bad, f"{name}.scale", smallest, "greater than 0")
    require_data(tensor, name, "tensor_c8")
    return tensor


def require_layout(tensor: Tensor, name: str, shape: tuple[int, ...]) -> None:
    """tensor_c3 to tensor_c6 for a tensor that holds, or is to hold, ``shape``."""
    bad = MliStatus.MLI_STATUS_BAD_TENSOR
    strides = raw_strides(tensor, len(shape))
    stride_ok = all(stride >= 0 for stride in strides)
    require(stride_ok, "tensor_c3", bad, f"{name}.mem_stride", strides, "0 or more")
    require(all(n > 0 for n in shape), "tensor_c4", bad, f"{name}.shape", shape, "1 or more")
    if all(strides):
        inner = (*(n * s for n, s in zip(shape[1:], strides[1:], strict=True)), 1)
        nested = all(s >= i for s, i in zip(strides, inner, strict=False))
        require(nested, "tensor_c5", bad, f"{name}.mem_stride", strides, f"at least {inner}")
    reach = extent(shape, strides) if all(strides) else prod(shape)
    require_capacity(tensor, name, reach * element_size(tensor.el_type), "tensor_c6")


def require_capacity(tensor: Tensor, name: str, needed: int, constraint: str) -> None:
    """``capacity`` is at least ``needed`` bytes: NOT_ENGH_MEM."""
    require(
        tensor.capacity >= needed,
        constraint,
        MliStatus.MLI_STATUS_NOT_ENGH_MEM,
        f"{name}.capacity",
        f"{tensor.capacity} bytes",
        f"at least {needed}",
    )


def require_memory(
    tensor: Tensor, name: str, shape: tuple[int, ...], strides: tuple[int, ...], constraint: str
) -> int:
    """Require that the memory behind ``data`` holds all that the strides reach: NOT_ENGH_MEM.

    The library trusts capacity, which says nothing about half-given strides, and would read past
    the end. Returns the bytes reached.
    """
    reach = extent(shape, derived_strides(shape, strides)) * element_size(tensor.el_type)
    size = 0 if tensor.data is None else tensor.data.nbytes
    require(
        size >= reach,
        constraint,
        MliStatus.MLI_STATUS_NOT_ENGH_MEM,
        f"{name}.data",
        f"{size} bytes",
        f"at least {reach}",
    )
    return reach


def require_el_params(tensor: Tensor, name: str, shape: tuple[int, ...], constraint: str) -> None:
    """Element parameters are of the element type's kind, and cover the quantised axis: BAD_TENSOR.

    An axis at or beyond the rank has one slice.
    """
    bad = MliStatus.MLI_STATUS_BAD_TENSOR
    params = tensor.el_params
    kind_ok = (tensor.el_type not in FX_TYPES or isinstance(params, FxParams)) and (
        tensor.el_type not in SA_TYPES or isinstance(params, SaParams)
    )
    kind = type(params).__name__
    require(kind_ok, constraint, bad, f"{name}.el_params", kind, "of the element type's kind")
    if isinstance(params, SaParams) and params.dim >= 0:
        slices = shape[params.dim] if params.dim < len(shape) else 1
        length = len(params.scale)
        require(length >= slices, constraint, bad, f"{name}.scale", f"{length} long", slices)


def is_inner_dense(tensor: Tensor, rank: int) -> bool:
    """Tell whether the innermost of ``rank`` strides is 1 or derived."""
    return rank <= 0 or raw_strides(tensor, rank)[-1] in (0, 1)


def require_contiguous(tensor: Tensor, name: str, constraint: str) -> None:
    """Some stride is derived, or all are the dense ones: INCOMPATEBLE_TENSORS."""
    strides = raw_strides(tensor, tensor.rank)
    dense = derived_strides(dims(tensor), (0,) * tensor.rank)
    holds = not all(strides) or strides == dense
    field, limit = f"{name}.mem_stride", "0 or the dense strides"
    require(holds, constraint, MliStatus.MLI_STATUS_INCOMPATEBLE_TENSORS, field, strides, limit)


def require_contiguous_output(tensor: Tensor, name: str, rank: int, constraint: str) -> None:
    """Some of the first ``rank`` strides is derived, or rank and stride are 1.

    Else INCOMPATEBLE_TENSORS.
    """
    strides = raw_strides(tensor, rank)
    holds = not all(strides) or strides == (1,)
    field, limit = f"{name}.mem_stride", "0, or 1 for rank 1"
    require(holds, constraint, MliStatus.MLI_STATUS_INCOMPATEBLE_TENSORS, field, strides, limit)


def frac_bits(tensor: Tensor) -> int | None:
    """Fractional bits of an FX tensor; None where the parameters are not FX."""
    return tensor.el_params.frac_bits if isinstance(tensor.el_params, FxParams) else None


def require_frac_bits(tensor: Tensor, name: str, constraint: str) -> int:
    """Fractional bits as the 1.x kernels hold them, an unsigned byte: BAD_TENSOR."""
    bits = frac_bits(tensor)
    holds = bits is not None and 0 <= bits <= 255
    bad = MliStatus.MLI_STATUS_BAD_TENSOR
    require(holds, constraint, bad, f"{name}.el_params.fx.frac_bits", bits, "in 0..255")
    assert bits is not None
    return bits


def require_bias_precision(
    x: Tensor, weights: Tensor, bias: Tensor, constraint: str, options: Options
) -> None:
    """Bias has at most the fractional bits of the products: INCOMPATEBLE_TENSORS.

    A RELEASE build computes all the same, rounding the bias. Tensors without FX parameters
    are left to the type check.
    """
    x_bits, weight_bits, bias_bits = frac_bits(x), frac_bits(weights), frac_bits(bias)
    if x_bits is None or weight_bits is None or bias_bits is None:
        return
    require(
        bias_bits <= x_bits + weight_bits or options.debug is DebugLevel.RELEASE,
        constraint,
        MliStatus.MLI_STATUS_INCOMPATEBLE_TENSORS,
        "bias.el_params.fx.frac_bits",
        bias_bits,
        f"at most {x_bits + weight_bits} (in + weights)",
    )


def require_fx_type(tensor: Tensor, name: str, el_type: ElType, constraint: str) -> None:
    """Element type and parameters are the FX ones of the kernel's variant: TYPE_MISMATCH."""
    require(
        tensor.el_type == el_type and isinstance(tensor.el_params, FxParams),
        constraint,
        MliStatus.MLI_STATUS_TYPE_MISMATCH,
        f"{name}.el_type",
        f"{tensor.el_type:#x} with {type(tensor.el_params).__name__}",
        f"{el_type.name} with FxParams",
    )


def require_apart(
    written: dict[str, tuple[Tensor, int]],
    read: dict[str, tuple[Tensor, int]],
    allowed: frozenset[frozenset[str]],
    constraint: str,
) -> None:
    """No written tensor overlaps another one, pairs in ``allowed`` excepted.

    Tensors come with the bytes they use. The manual calls an overlap undefined behaviour; here it
    is INCOMPATEBLE_TENSORS.
    """
    everything = read | written
    for name, (tensor, size) in written.items():
        for second_name, (second, second_size) in everything.items():
            if second_name == name or frozenset({name, second_name}) in allowed:
                continue
            require(
                not is_shared(tensor, size, second, second_size),
                constraint,
                MliStatus.MLI_STATUS_INCOMPATEBLE_TENSORS,
                name,
                f"in the memory of {second_name}",
                "apart from it",
            )


def used_bytes(tensor: Tensor) -> int:
    """Bytes that a dense tensor of its own shape occupies."""
    return prod(dims(tensor)) * element_size(tensor.el_type)


def require_accumulator(overflow: bool, constraint: str, bits: int, options: Options) -> None:
    """Debug level FULL also asserts inside the loops: every partial sum fits the accumulator."""
    require(
        not (overflow and options.debug is DebugLevel.FULL),
        constraint,
        MliStatus.MLI_STATUS_NOT_SUPPORTED,
        "partial sum",
        f"beyond {bits} bits",
        f"within {bits} bits",
    )
