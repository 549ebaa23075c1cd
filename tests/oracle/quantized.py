# SPDX-License-Identifier: Apache-2.0
"""The quantized matrix product element by element: FP32 where the library works, exact elsewhere.

Source: zDNN API Reference 1.2.0, zdnn_quantized_matmul_op; formulas are the zDNN library's.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.oracle.matmul import RELATIONS
from tests.oracle.rounding import Codes, Precise, decoded, rounded

F = np.float32
Bytes = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Quantized:
    """The quantization of a tensor: reciprocal scale and offset, FP32."""

    rec_scale: np.float32
    offset: np.float32


@dataclass(frozen=True, slots=True)
class Call:
    """One product: a (m,n) of bytes or of codes, b (n,p), c (p,), scales, and options."""

    a: npt.NDArray[np.generic]
    b: Bytes
    c: npt.NDArray[np.generic]
    of_a: Quantized
    of_b: Quantized
    of_c: Quantized
    of_y: Quantized
    op: int = 0
    clips: tuple[int, int] = (-128, 127)
    disable_clipping: bool = False
    dequantize: bool = False
    pre_computed: bool = False

    @property
    def on_the_fly(self) -> bool:
        """Whether input_a holds real values."""
        return self.a.dtype == np.uint16


def _reduced(value: np.float32) -> np.float32:
    return F(decoded(rounded(value)))


def _fused(x: float, y: np.float32, z: np.float32) -> np.float32:
    """Return x * y + z in one rounding."""
    return F(np.longdouble(x) * np.longdouble(y) + np.longdouble(z))


def bias(call: Call) -> Codes:
    """Return c~."""
    if call.pre_computed:
        return call.c.astype(np.uint16)
    sa, sb, sc, sy = (operand.rec_scale for operand in (call.of_a, call.of_b, call.of_c, call.of_y))
    za, zb, zc, zy = (operand.offset for operand in (call.of_a, call.of_b, call.of_c, call.of_y))
    sums = [F(int(call.b[:, j].astype(np.int64).sum())) for j in range(call.b.shape[1])]
    factor = F(sy / F(sa * sb))
    values: list[np.float32] = []
    for j, q in enumerate(call.c.astype(np.int64)):
        if call.op:
            scale = F(F(sa * sb) / sc)
            values.append(F(_fused(int(q), scale, F(-F(scale * zc))) + F(sums[j] * za)))
            continue
        scale = F(sy / sc)
        offset = F(zy - F(scale * zc))
        if zb != 0 and not call.on_the_fly:
            offset = F(offset + F(F(F(factor * F(call.b.shape[0])) * za) * zb))
        value = _fused(int(q), scale, offset)
        if zb == 0:
            value = F(value - F(sums[j] * F(factor * za)))
        values.append(value)
    return rounded(np.array(values, np.float32))


def quantized_a(call: Call) -> npt.NDArray[np.int64]:
    """Return the bytes of input_a as the machine multiplies them."""
    if not call.on_the_fly:
        return call.a.astype(np.int64)
    scale, offset = _reduced(call.of_a.rec_scale), _reduced(call.of_a.offset)
    real = decoded(call.a.astype(np.uint16)).astype(np.float32)
    low, high = call.clips
    whole: npt.NDArray[np.int64] = np.clip(np.rint(real * scale + offset), low, high).astype(
        np.int64
    )
    return whole


def machine(call: Call) -> Codes:
    """Return the codes that the instruction stores."""
    sums = (quantized_a(call) @ call.b.astype(np.int64)).astype(np.longdouble)
    added: Precise = decoded(bias(call))[None, :]
    if call.op:
        sa, sb, sc = (operand.rec_scale for operand in (call.of_a, call.of_b, call.of_c))
        mirrored = {1: 6, 2: 5, 5: 2, 6: 1} if F(F(sa * sb) / sc) < 0 else {}
        holds = RELATIONS[mirrored.get(call.op, call.op)](sums, np.broadcast_to(added, sums.shape))
        return np.where(holds, 0x3E00, 0).astype(np.uint16)
    scales = [
        np.longdouble(_reduced(operand.rec_scale)) for operand in (call.of_y, call.of_a, call.of_b)
    ]
    return rounded(scales[0] / (scales[1] * scales[2]) * sums + added)


def _row_term(call: Call, row: int) -> np.float32:
    sa, sb, sy = (operand.rec_scale for operand in (call.of_a, call.of_b, call.of_y))
    factor = F(F(sy / F(sa * sb)) * call.of_b.offset)
    if not call.on_the_fly:
        return F(F(int(call.a[row].astype(np.int64).sum())) * factor)
    lanes = [F(0)] * 8
    for i, value in enumerate(decoded(call.a[row].astype(np.uint16))):
        lanes[i % 8] = F(lanes[i % 8] + F(value))
    four = [F(lanes[k] + lanes[k + 4]) for k in range(4)]
    total = F(F(F(four[0] + four[1]) + four[2]) + four[3])
    return F(total * F(factor * sa))


def product(call: Call) -> Codes:
    """Return the codes of the output."""
    stored = machine(call)
    correcting = call.of_b.offset != 0 and not call.pre_computed
    if call.op or not (correcting or call.dequantize or not call.disable_clipping):
        return stored
    sa, sb, sy = (operand.rec_scale for operand in (call.of_a, call.of_b, call.of_y))
    factor = F(F(sy / F(sa * sb)) * call.of_a.offset)
    result = np.empty(stored.shape, np.float32)
    for i in range(stored.shape[0]):
        for j in range(stored.shape[1]):
            value = F(decoded(stored[i, j]))
            if correcting:
                column = F(F(int(call.b[:, j].astype(np.int64).sum())) * factor)
                value = F(value - F(column + _row_term(call, i)))
            if not call.disable_clipping:
                value = min(max(F(np.rint(value)), F(call.clips[0])), F(call.clips[1]))
            if call.dequantize:
                value = F(F(value - call.of_y.offset) * F(F(1) / sy))
            result[i, j] = value
    return rounded(result)
