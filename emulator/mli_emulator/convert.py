# SPDX-License-Identifier: Apache-2.0
"""Data conversion group of MLI 2.0: ``mli_hlp_convert_tensor`` and its fixed-point form.

Source: embARC MLI documentation 2.0, "Utility Functions", Data Conversion Group; library
behaviour (2.0 early access) for the order of the checks.
"""

import numpy as np
import numpy.typing as npt

from mli_emulator.checks import (
    is_inner_dense,
    require_apart,
    require_data,
    require_el_params,
    require_layout,
    require_memory,
    required,
    valid,
)
from mli_emulator.fixedpoint import IntArray, Rounding
from mli_emulator.pipeline import DEFAULT, Options, Remarks, variants
from mli_emulator.requantise import Conversion, Quantisation, from_float, requantise, to_float
from mli_emulator.status import MliStatus, require
from mli_emulator.tensor import (
    FX_TYPES,
    MLI_MAX_RANK,
    SA_TYPES,
    ElType,
    FxParams,
    SaParams,
    Tensor,
    dims,
    element_size,
    raw_strides,
    same_start,
    view,
)

_WHERE = "convert_tensor"
_BAD = MliStatus.MLI_STATUS_BAD_TENSOR
_INCOMPATEBLE = MliStatus.MLI_STATUS_INCOMPATEBLE_TENSORS


def _given(src: Tensor | None, dst: Tensor | None) -> tuple[Tensor, Tensor]:
    """Constraints 1 to 4: dst is judged in the shape it is to receive."""
    x = valid(src, "src")
    y = required(dst, "dst", f"{_WHERE}_c2")
    require_layout(y, "dst", dims(x))
    require_data(y, "dst", f"{_WHERE}_c4")
    return x, y


def _claims_inner_dense(dst: Tensor, rank: int) -> bool:
    """Tell whether dst describes an innermost stride of 1, also where src's rank says nothing.

    Its own rank counts if it claims more dimensions, or gives no stride for src's innermost one.
    """
    if not is_inner_dense(dst, rank):
        return False
    own_decides = dst.rank > rank or raw_strides(dst, rank)[-1:] == (0,)
    return not own_decides or dst.rank > MLI_MAX_RANK or is_inner_dense(dst, dst.rank)


def _check_strides(src: Tensor, dst: Tensor) -> None:
    """Constraints 5 to 7."""
    rank = src.rank
    x_strides, y_strides = raw_strides(src, rank), raw_strides(dst, rank)
    x_ok, y_ok = is_inner_dense(src, rank), _claims_inner_dense(dst, rank)
    require(x_ok, f"{_WHERE}_c5", _INCOMPATEBLE, "src.mem_stride", x_strides, "1 or 0 inside")
    require(y_ok, f"{_WHERE}_c6", _INCOMPATEBLE, "dst.mem_stride", dst.mem_stride, "1 or 0 inside")
    if not same_start(src, dst):
        return
    for field, x_value, y_value in (
        ("element size", element_size(src.el_type), element_size(dst.el_type)),
        ("rank", src.rank, dst.rank),
        ("mem_stride", x_strides[:-1], y_strides[:-1]),
    ):
        limit = f"{x_value} (src, in place)"
        require(x_value == y_value, f"{_WHERE}_c7", _INCOMPATEBLE, f"dst.{field}", y_value, limit)


def _axis(tensor: Tensor) -> int:
    """Return the quantised dimension, or -1."""
    return tensor.el_params.dim if isinstance(tensor.el_params, SaParams) else -1


def _check_types(src: Tensor, dst: Tensor, supported: frozenset[ElType]) -> None:
    """Constraints 8 to 11."""
    axes = _axis(src), _axis(dst)
    one_axis = axes[0] == axes[1] or min(axes) < 0
    size_mismatch = MliStatus.MLI_STATUS_SIZE_MISMATCH
    require(one_axis, f"{_WHERE}_c8", size_mismatch, "dst.dim", axes[1], f"{axes[0]} (src)")
    for name, tensor in (("src", src), ("dst", dst)):
        require(
            tensor.el_type in supported,
            f"{_WHERE}_c9",
            MliStatus.MLI_STATUS_TYPE_MISMATCH,
            f"{name}.el_type",
            f"{tensor.el_type:#x}",
            "one of " + ", ".join(sorted(t.name for t in supported)),
        )
    for name, tensor in (("src", src), ("dst", dst)):
        require_el_params(tensor, name, dims(src), f"{_WHERE}_c10")
    if dst.el_type in SA_TYPES and isinstance(dst.el_params, SaParams):
        require(0 not in dst.el_params.scale, f"{_WHERE}_c11", _BAD, "dst.scale", 0, "not 0")


def _check_memory(src: Tensor, dst: Tensor) -> None:
    """Constraints 12 and 13."""
    shape = dims(src)
    x_bytes = require_memory(src, "src", shape, raw_strides(src, src.rank), f"{_WHERE}_c12")
    y_bytes = require_memory(dst, "dst", shape, raw_strides(dst, src.rank), f"{_WHERE}_c12")
    if not same_start(src, dst):
        require_apart(
            {"dst": (dst, y_bytes)}, {"src": (src, x_bytes)}, frozenset(), f"{_WHERE}_c13"
        )


def _quantisation(tensor: Tensor, shape: tuple[int, ...]) -> Quantisation:
    """Shape the element parameters so that they broadcast over ``shape``."""
    params, bits = tensor.el_params, 8 * element_size(tensor.el_type)
    if isinstance(params, FxParams):
        zero, scale = np.array(0, np.int64), np.array(1, np.int64)
        return Quantisation(zero, scale, np.array(params.frac_bits, np.int64), bits)
    assert isinstance(params, SaParams)
    per_axis = 0 <= params.dim < len(shape)
    slices = shape[params.dim] if per_axis else 1
    spread = tuple(slices if per_axis and d == params.dim else 1 for d in range(len(shape)))

    def column(values: tuple[int, ...]) -> IntArray:
        return np.array(values[:slices], np.int64).reshape(spread)

    return Quantisation(
        column(params.zero_point), column(params.scale), column(params.scale_frac_bits), bits
    )


def _converted(src: Tensor, dst: Tensor, options: Options) -> npt.NDArray[np.generic]:
    """Compute the values of dst, in src's shape."""
    shape = dims(src)
    x = view(src, shape, raw_strides(src, src.rank))
    if src.el_type == ElType.MLI_EL_FP_32:
        floats = x.astype(np.float32)
        if dst.el_type == ElType.MLI_EL_FP_32:
            return x.copy()
        return from_float(floats, _quantisation(dst, shape))
    wide: IntArray = x.astype(np.int64)
    source = _quantisation(src, shape)
    if dst.el_type == ElType.MLI_EL_FP_32:
        return to_float(wide, source)
    target = _quantisation(dst, shape)
    return requantise(wide, source, target, options.conversion, options.rounding)


@variants
def _convert_tensor(
    supported: frozenset[ElType],
    src: Tensor | None,
    dst: Tensor | None,
    *,
    options: Options = DEFAULT,
) -> Remarks:
    """Convert each element: ``mli_hlp_convert_tensor``, ``mli_hlp_convert_tensor_safx``.

    Element type, element parameters, capacity and mem_stride of ``dst`` are inputs; shape and
    rank are filled from ``src``. The safx form knows no FP_32. FP_32 to FP_32 copies.

    (convert_tensor_c1) src is a valid tensor: tensor_c1 to tensor_c8
    (convert_tensor_c2) dst is not NULL: BAD_TENSOR
    (convert_tensor_c3) dst holds src's shape with its own strides: tensor_c3 to tensor_c6
    (convert_tensor_c4) dst has a data pointer: BAD_TENSOR
    (convert_tensor_c5) the innermost stride of src is 1: INCOMPATEBLE_TENSORS
    (convert_tensor_c6) the innermost stride of dst is 1: INCOMPATEBLE_TENSORS
    (convert_tensor_c7) in place: equal element size, rank, strides: INCOMPATEBLE_TENSORS
    (convert_tensor_c8) two per-axis tensors have one axis: SIZE_MISMATCH
    (convert_tensor_c9) both element types are supported: TYPE_MISMATCH
    (convert_tensor_c10) element parameters fit type and axis: BAD_TENSOR
    (convert_tensor_c11) no scale of dst is 0: BAD_TENSOR
    (convert_tensor_c12) the memory of src and dst reaches the last element: NOT_ENGH_MEM
    (convert_tensor_c13) src and dst overlap only at the same start: INCOMPATEBLE_TENSORS
    (convert_tensor_c14) conversion by the 2.0 EA library rounds convergently: NOT_SUPPORTED
    """
    x, y = _given(src, dst)
    _check_strides(x, y)
    _check_types(x, y, supported)
    _check_memory(x, y)
    _check_early_access(options)
    values = _converted(x, y, options)
    y.shape, y.rank = dims(x), x.rank
    view(y, y.shape, raw_strides(y, y.rank))[...] = values
    return Remarks()


def _check_early_access(options: Options) -> None:
    """Constraint 14: in mode up that library has a rounding constant nobody has described."""
    early = options.conversion is Conversion.LIBRARY_2_0_EA
    require(
        not early or options.rounding is Rounding.CONVERGENT,
        f"{_WHERE}_c14",
        MliStatus.MLI_STATUS_NOT_SUPPORTED,
        "rounding",
        options.rounding.value,
        Rounding.CONVERGENT.value,
    )


hlp_convert_tensor_safx = _convert_tensor("hlp_convert_tensor_safx", FX_TYPES | SA_TYPES)
hlp_convert_tensor = _convert_tensor(
    "hlp_convert_tensor", FX_TYPES | SA_TYPES | {ElType.MLI_EL_FP_32}
)
