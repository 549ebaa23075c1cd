# SPDX-License-Identifier: Apache-2.0
"""The utility functions: one function per name of the embARC MLI documentation.

A tensor argument of None is C's NULL. Functions that return a number first send the calls that a
batch has queued.
"""

from dataclasses import dataclass

from nnpa_client.mli.calls import Call, Options, Setting
from nnpa_client.mli.connection import ask, submit
from nnpa_client.mli.tensor import Tensor

__tracebackhide__ = True  # pytest shows the line that called, not these


@dataclass(frozen=True, slots=True)
class SubTensorCfg:
    """``mli_sub_tensor_cfg``: start coordinate and size per dimension of the input, result rank."""

    offset: tuple[int, ...]
    size: tuple[int, ...]
    sub_tensor_rank: int


SubtensorCfg = SubTensorCfg  # the name in the function's prototype


def _convert(
    name: str, src: Tensor | None, dst: Tensor | None, options: Options | None
) -> Tensor | None:
    submit(Call(name, {"src": src, "dst": dst}, {}), options)
    return dst


def hlp_convert_tensor(
    src: Tensor | None, dst: Tensor | None, *, options: Options | None = None
) -> Tensor | None:
    """Convert each element to the type and parameters of `dst`, and return it."""
    return _convert("hlp_convert_tensor", src, dst, options)


def hlp_convert_tensor_safx(
    src: Tensor | None, dst: Tensor | None, *, options: Options | None = None
) -> Tensor | None:
    """Convert as `hlp_convert_tensor` does, without MLI_EL_FP_32."""
    return _convert("hlp_convert_tensor_safx", src, dst, options)


def hlp_subtensor(
    in_: Tensor | None,
    cfg: SubTensorCfg | None,
    out: Tensor | None = None,
    *,
    options: Options | None = None,
) -> Tensor:
    """Return a slice of a tensor, in its memory."""
    out = Tensor(None, 0, 0, (), 0, 0) if out is None else out
    fields: dict[str, Setting] | None = None
    if cfg is not None:
        fields = {
            "offset": cfg.offset,
            "size": cfg.size,
            "sub_tensor_rank": cfg.sub_tensor_rank,
        }
    call = Call("hlp_subtensor", {"in": in_, "out": out}, {"cfg": fields})
    submit(call, options)
    return out


hlp_create_subtensor = hlp_subtensor  # the name in the library


def hlp_tensor_element_size(in_: Tensor | None, *, options: Options | None = None) -> int:
    """Return the bytes of one element; 0 for a type without support."""
    return ask(Call("hlp_tensor_element_size", {"in": in_}, {}), options)


def hlp_count_elem_num(
    in_: Tensor | None, start_dim: int = 0, *, options: Options | None = None
) -> int:
    """Return the number of elements from dimension `start_dim` on, modulo 2^32."""
    return ask(Call("hlp_count_elem_num", {"in": in_}, {"start_dim": start_dim}), options)


def hlp_tensor_scale(in_: Tensor | None, idx: int = 0, *, options: Options | None = None) -> int:
    """Return the scale, of slice `idx` of a per-axis tensor; 1 for FX and FP_32."""
    return ask(Call("hlp_tensor_scale", {"in": in_}, {"idx": idx}), options)


def hlp_tensor_scale_shift(
    in_: Tensor | None, idx: int = 0, *, options: Options | None = None
) -> int:
    """Return the fractional bits of FX, or of the scale of SA; 0 for FP_32."""
    return ask(Call("hlp_tensor_scale_shift", {"in": in_}, {"idx": idx}), options)


def hlp_tensor_zero_offset(
    in_: Tensor | None, idx: int = 0, *, options: Options | None = None
) -> int:
    """Return the zero point, of slice `idx` of a per-axis tensor; 0 for FX and FP_32."""
    return ask(Call("hlp_tensor_zero_offset", {"in": in_}, {"idx": idx}), options)
