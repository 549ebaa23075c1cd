# SPDX-License-Identifier: Apache-2.0
"""Quantise floats to an ``mli_tensor``, and back.

Source: embARC MLI documentation, "Data Formats": value = x / 2^frac_bits, and
value = (x - zero_point) * scale / 2^scale_frac_bits.
"""

import math
from dataclasses import asdict
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from nnpa.mli.v1.mli_pb2 import MLI_EL_FX_8, MLI_EL_FX_16, MLI_EL_SA_8, MLI_EL_SA_32, ElType

from nnpa_client._values.fields import enum_name
from nnpa_client.mli.tensor import DTYPES, FxParams, SaParams, Tensor, tensor

__tracebackhide__ = True  # pytest shows the line that called, not these

Floats: TypeAlias = npt.NDArray[np.float64]
_FX, _SA = (MLI_EL_FX_8, MLI_EL_FX_16), (MLI_EL_SA_8, MLI_EL_SA_32)
_SCALE_BITS = 14  # a scale of 2^14 to 2^15 uses all of its int16


def quantise(
    values: npt.ArrayLike, el_type: int, params: FxParams | SaParams | None = None, dim: int = -1
) -> Tensor:
    """Return floats as a tensor of an integer type: nearest (ties to even), saturated.

    Without `params`, `fit_fx` or `fit_sa` chooses them: from the largest magnitude, or from the
    range of all values, or of each slice of `dim`.
    """
    floats = np.asarray(values, np.float64)
    if not np.isfinite(floats).all():
        raise ValueError("values: contain infinities or NaN, must be finite")
    if el_type not in _FX + _SA:
        names = ", ".join(map(ElType.Name, _FX + _SA))
        chosen = enum_name(ElType.DESCRIPTOR, el_type)
        raise ValueError(f"el_type: {chosen}, expected one of {names}")
    dtype, fixed = DTYPES[el_type], el_type in _FX
    limits = np.iinfo(dtype.name)
    if params is None:
        params = fit_fx(floats, limits.bits) if fixed else fit_sa(floats, limits.bits, dim)
    if fixed != isinstance(params, FxParams):
        raise ValueError(f"params: {params}, must be of the element type's kind")
    zero, unit = _spread(params, floats.ndim)
    integers = np.clip(np.rint(floats / unit) + zero, limits.min, limits.max)
    return tensor(integers.astype(dtype), **asdict(params))


def dequantise(source: Tensor) -> Floats:
    """Return the values that the elements of a tensor stand for."""
    elements = source.array.astype(np.float64)
    if source.el_params is None:
        return elements
    zero, unit = _spread(source.el_params, elements.ndim)
    return (elements - zero) * unit


def _spread(params: FxParams | SaParams, rank: int) -> tuple[Floats, Floats]:
    """Return zero point and the value of one step, in shapes that broadcast."""
    if isinstance(params, FxParams):
        return np.zeros(()), np.asarray(2.0**-params.frac_bits)
    shape = tuple(-1 if d == params.dim else 1 for d in range(rank))
    scale = np.asarray(params.scale, np.float64)
    unit = scale / np.exp2(np.asarray(params.scale_frac_bits, np.float64))
    return np.asarray(params.zero_point, np.float64).reshape(shape), unit.reshape(shape)


def fit_fx(values: npt.ArrayLike, bits: int) -> FxParams:
    """Return the most fractional bits, 0 to 15, with which no value saturates; else 0."""
    largest = float(np.max(np.abs(np.asarray(values, np.float64)), initial=0.0))
    high = (1 << (bits - 1)) - 1
    for frac_bits in range(bits - 1, 0, -1):
        if round(largest * 2.0**frac_bits) <= high:
            return FxParams(frac_bits)
    return FxParams(0)


def fit_sa(values: npt.ArrayLike, bits: int, dim: int = -1) -> SaParams:
    """Return scales and zero points for the range of the values and 0."""
    floats = np.asarray(values, np.float64)
    slices = [floats] if dim < 0 else list(np.moveaxis(floats, dim, 0))
    zero_point, scale, scale_frac_bits = zip(
        *(_fit_range(part, bits) for part in slices), strict=True
    )
    return SaParams(zero_point, scale, scale_frac_bits, dim)


def _fit_range(values: Floats, bits: int) -> tuple[int, int, int]:
    """Return zero point, scale and its fractional bits; zero points are int16 in any type."""
    low, high = float(np.min(values, initial=0.0)), float(np.max(values, initial=0.0))
    codes = (1 << bits) - 1
    if bits > 16:  # a zero point has 16 bits: centre the range on 0
        high = max(high, -low)
        low = -high
    step = (high - low) / codes or 2.0**-_SCALE_BITS
    shift = min(_SCALE_BITS - math.floor(math.log2(step)), 127)
    scale = min(max(round(step * 2.0**shift), 1), (1 << 15) - 1)
    zero = 0 if bits > 16 else round(-(1 << (bits - 1)) - low / (scale / 2.0**shift))
    return zero, scale, shift
