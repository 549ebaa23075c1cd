# SPDX-License-Identifier: Apache-2.0
"""Helper functions group of MLI 2.0 (``mli_hlp_*``): facts about a tensor, and slices of it.

Source: embARC MLI documentation 2.0, "Utility Functions", Helper Functions Group; library
behaviour where the text is silent.
"""

from dataclasses import dataclass
from math import prod

from mli_emulator.checks import require_capacity, require_el_params, required, valid
from mli_emulator.pipeline import DEFAULT, Options, Remarks, kernel, listed
from mli_emulator.status import Asserted, DebugLevel, MliStatus, Refusal, require
from mli_emulator.tensor import (
    FX_TYPES,
    MLI_MAX_RANK,
    SA_TYPES,
    ElParams,
    ElType,
    FxParams,
    SaParams,
    Tensor,
    derived_strides,
    dims,
    element_size,
    raw_strides,
)

_WHERE = "subtensor"
_BAD_CFG = MliStatus.MLI_STATUS_BAD_FUNC_CFG


@dataclass(frozen=True, slots=True)
class SubTensorCfg:
    """``mli_sub_tensor_cfg``: start coordinate and size per dimension of the input, result rank."""

    offset: tuple[int, ...]
    size: tuple[int, ...]
    sub_tensor_rank: int


def _assert_answerable(
    holds: bool, constraint: str, field: str, value: object, limit: str, options: Options
) -> None:
    """Abort from debug level ASSERT on; below, the functions answer a bad question with 0."""
    if not holds and options.debug >= DebugLevel.ASSERT:
        status = MliStatus.MLI_STATUS_ARGUMENT_ERROR
        raise Asserted(Refusal(status, constraint, field, str(value), limit))


@listed("hlp_tensor_element_size")
def hlp_tensor_element_size(in_: Tensor | None, *, options: Options = DEFAULT) -> int:
    """Bytes of one element: ``mli_hlp_tensor_element_size``.

    (tensor_element_size_c1) in has a supported element type: else 0, an abort from ASSERT on
    """
    size = 0 if in_ is None else element_size(in_.el_type)
    value = "NULL" if in_ is None else hex(in_.el_type)
    constraint = "tensor_element_size_c1"
    _assert_answerable(size > 0, constraint, "in.el_type", value, "a supported type", options)
    return size


@listed("hlp_count_elem_num")
def hlp_count_elem_num(in_: Tensor | None, start_dim: int, *, options: Options = DEFAULT) -> int:
    """Elements from dimension ``start_dim`` on, modulo 2^32: ``mli_hlp_count_elem_num``.

    ``start_dim`` = rank counts the empty product, 1.

    (count_elem_num_c1) in is a tensor of rank MLI_MAX_RANK at most: else 0, an abort from ASSERT on
    (count_elem_num_c2) start_dim is at most the rank: else 0, an abort from ASSERT on
    """
    rank = MLI_MAX_RANK + 1 if in_ is None else in_.rank
    rank_ok = 0 <= rank <= MLI_MAX_RANK
    limit = f"in 0..{MLI_MAX_RANK}"
    _assert_answerable(rank_ok, "count_elem_num_c1", "in.rank", rank, limit, options)
    start_ok = 0 <= start_dim <= rank
    limit = f"in 0..{rank}"
    _assert_answerable(start_ok, "count_elem_num_c2", "start_dim", start_dim, limit, options)
    if in_ is None or not rank_ok or not start_ok:
        return 0
    return prod(dims(in_)[start_dim:]) % (1 << 32)


def _sa_value(params: SaParams, values: tuple[int, ...], idx: int) -> int:
    """Return a per-tensor parameter, whatever idx; the idx-th of a per-axis one."""
    if params.dim < 0:
        return values[0]
    if not 0 <= idx < len(values):
        raise IndexError(f"idx: {idx}, must be in 0..{len(values) - 1}")
    return values[idx]


def _format(in_: Tensor | None, constraint: str, options: Options) -> ElParams | ElType:
    """FxParams, SaParams, FP_32, or None for what has no valid data format."""
    el_params: ElParams | ElType = None
    if in_ is not None and in_.el_type == ElType.MLI_EL_FP_32:
        el_params = ElType.MLI_EL_FP_32
    elif in_ is not None:
        fits = (in_.el_type in FX_TYPES and isinstance(in_.el_params, FxParams)) or (
            in_.el_type in SA_TYPES and isinstance(in_.el_params, SaParams)
        )
        el_params = in_.el_params if fits else None
    value = "NULL" if in_ is None else hex(in_.el_type)
    limit = "a type with parameters of its kind"
    _assert_answerable(el_params is not None, constraint, "in.el_type", value, limit, options)
    return el_params


@listed("hlp_tensor_scale")
def hlp_tensor_scale(in_: Tensor | None, idx: int = 0, *, options: Options = DEFAULT) -> int:
    """Scale, of slice ``idx`` if per axis; 1 for FX and FP_32: ``mli_hlp_tensor_scale``.

    IndexError for a slice that a per-axis tensor does not have.

    (tensor_scale_c1) in has a valid data format: else 0, an abort from ASSERT on
    """
    format_ = _format(in_, "tensor_scale_c1", options)
    if isinstance(format_, SaParams):
        return _sa_value(format_, format_.scale, idx)
    return 0 if format_ is None else 1


@listed("hlp_tensor_scale_shift")
def hlp_tensor_scale_shift(in_: Tensor | None, idx: int = 0, *, options: Options = DEFAULT) -> int:
    """Fractional bits of FX, or of the scale of SA; 0 for FP_32: ``mli_hlp_tensor_scale_shift``.

    IndexError for a slice that a per-axis tensor does not have.

    (tensor_scale_shift_c1) in has a valid data format: else 0, an abort from ASSERT on
    """
    format_ = _format(in_, "tensor_scale_shift_c1", options)
    if isinstance(format_, SaParams):
        return _sa_value(format_, format_.scale_frac_bits, idx)
    return format_.frac_bits if isinstance(format_, FxParams) else 0


@listed("hlp_tensor_zero_offset")
def hlp_tensor_zero_offset(in_: Tensor | None, idx: int = 0, *, options: Options = DEFAULT) -> int:
    """Zero point, of slice ``idx`` if per axis; 0 for FX, FP_32: ``mli_hlp_tensor_zero_offset``.

    IndexError for a slice that a per-axis tensor does not have.

    (tensor_zero_offset_c1) in has a valid data format: else 0, an abort from ASSERT on
    """
    format_ = _format(in_, "tensor_zero_offset_c1", options)
    return _sa_value(format_, format_.zero_point, idx) if isinstance(format_, SaParams) else 0


def _check_slice(
    shape: tuple[int, ...], cfg: SubTensorCfg
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Constraints 4 to 8; returns offset and size, one entry per dimension."""
    rank, sub_rank = len(shape), cfg.sub_tensor_rank
    rank_ok = 0 <= sub_rank <= rank
    require(rank_ok, f"{_WHERE}_c4", _BAD_CFG, "cfg.sub_tensor_rank", sub_rank, f"in 0..{rank}")
    offset = (cfg.offset + (0,) * rank)[:rank]
    size = (cfg.size + (0,) * rank)[:rank]
    for d, (start, length, extent) in enumerate(zip(offset, size, shape, strict=True)):
        start_ok = 0 <= start < extent
        require(start_ok, f"{_WHERE}_c5", _BAD_CFG, f"cfg.offset[{d}]", start, f"below {extent}")
        end = start + length
        field, limit = f"cfg.offset[{d}] + cfg.size[{d}]", f"at most {extent}"
        require(end <= extent, f"{_WHERE}_c6", _BAD_CFG, field, end, limit)
    require(all(n > 0 for n in size), f"{_WHERE}_c7", _BAD_CFG, "cfg.size", size, "1 or more")
    n_unit_dims, drop = size.count(1), rank - sub_rank
    limit = f"at least {drop} to reach sub_tensor_rank {sub_rank}"
    require(
        n_unit_dims >= drop, f"{_WHERE}_c8", _BAD_CFG, "dimensions of size 1", n_unit_dims, limit
    )
    return offset, size


def _kept(size: tuple[int, ...], rank: int) -> list[int]:
    """List the dimensions left after the first ones of size 1 are dropped."""
    drop = len(size) - rank
    kept: list[int] = []
    for d, length in enumerate(size):
        if drop and length == 1:
            drop -= 1
        else:
            kept.append(d)
    return kept


def _sliced_params(
    params: ElParams, kept: list[int], offset: tuple[int, ...], size: tuple[int, ...]
) -> ElParams:
    """Per-axis values of the slice; a dropped axis leaves the values at its offset."""
    if not isinstance(params, SaParams) or not 0 <= params.dim < len(size):
        return params
    start, length = offset[params.dim], size[params.dim]
    part = slice(start, start + length)
    columns = (params.zero_point[part], params.scale[part], params.scale_frac_bits[part])
    return SaParams(*columns, kept.index(params.dim) if params.dim in kept else -1)


@kernel("hlp_subtensor", "hlp_create_subtensor")
def hlp_subtensor(
    in_: Tensor | None,
    cfg: SubTensorCfg | None,
    out: Tensor | None,
    *,
    options: Options = DEFAULT,  # noqa: ARG001 (read by the pipeline)
) -> Remarks:
    """Point ``out`` at a slice of ``in_`` without copying: ``mli_hlp_subtensor``.

    Fills every field of ``out``: data and capacity move by the offset, strides are the derived
    ones of ``in_``, and the first dimensions of size 1 are dropped until sub_tensor_rank is left.

    (subtensor_c1) in is a valid tensor: tensor_c1 to tensor_c8
    (subtensor_c2) out is not NULL: BAD_TENSOR
    (subtensor_c3) cfg is not NULL: BAD_FUNC_CFG
    (subtensor_c4) sub_tensor_rank is at most the rank of in: BAD_FUNC_CFG
    (subtensor_c5) offset is below the shape of in: BAD_FUNC_CFG
    (subtensor_c6) offset + size is at most the shape of in: BAD_FUNC_CFG
    (subtensor_c7) no size is 0: BAD_FUNC_CFG
    (subtensor_c8) enough dimensions have size 1 to reach sub_tensor_rank: BAD_FUNC_CFG
    (subtensor_c9) the element type is supported: NOT_SUPPORTED
    (subtensor_c10) element parameters fit type and axis: BAD_TENSOR
    (subtensor_c11) the slice begins inside the memory of in: NOT_ENGH_MEM
    """
    x = valid(in_, "in")
    y = required(out, "out", f"{_WHERE}_c2")
    require(cfg is not None, f"{_WHERE}_c3", _BAD_CFG, "cfg", "NULL", "a configuration")
    assert cfg is not None
    shape = dims(x)
    offset, size = _check_slice(shape, cfg)
    width = element_size(x.el_type)
    unsupported = MliStatus.MLI_STATUS_NOT_SUPPORTED
    limit = "a supported type"
    require(width > 0, f"{_WHERE}_c9", unsupported, "in.el_type", hex(x.el_type), limit)
    require_el_params(x, "in", shape, f"{_WHERE}_c10")
    strides = derived_strides(shape, raw_strides(x, x.rank))
    moved = width * sum(o * s for o, s in zip(offset, strides, strict=True))
    require_capacity(x, "in", moved, f"{_WHERE}_c11")
    assert x.data is not None
    y.data, y.capacity = x.data[moved:], x.capacity - moved
    kept = _kept(size, cfg.sub_tensor_rank)
    y.shape, y.mem_stride = tuple(size[d] for d in kept), tuple(strides[d] for d in kept)
    y.rank, y.el_type = cfg.sub_tensor_rank, x.el_type
    y.el_params = _sliced_params(x.el_params, kept, offset, size)
    return Remarks()
