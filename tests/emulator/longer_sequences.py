# SPDX-License-Identifier: Apache-2.0
"""zDNN functions that issue several instructions, or software beside them: layers, bytes, data.

Sources: behaviour of the zDNN 1.2.0 library; zDNN API Reference 1.2.0.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from nnpa_emulator.engines.quantized import finish, scales_of
from nnpa_emulator.machine import FunctionCode
from nnpa_emulator.ops import quantized
from nnpa_emulator.status import Status
from nnpa_emulator.ztensor import TensorDesc, Ztensor, padded, stick_bytes

from tests.emulator.library_sequences import Arguments, Issuer, Memory, Operand, operand

_OK, _VIOLATED = Status.ZDNN_OK, Status.ZDNN_ELEMENT_RANGE_VIOLATION
_MAX_WORK = 1 << 30
_LSTM_TENSORS = ("h0", "c0", "weights", "biases", "hidden_weights", "hidden_biases")


def _desc(*dims: int) -> TensorDesc:
    return TensorDesc(8, 0, 0, *dims)


def _work(*dims: int) -> Operand:
    """Return a work area; one that no instruction can take has no memory."""
    desc = _desc(*dims)
    size = stick_bytes(desc)
    return Operand(desc, np.zeros(size, np.uint8) if size < _MAX_WORK else None)


def _half(tensor: Ztensor, half: int) -> Operand:
    """Return one of two slices along dim4."""
    desc = replace(tensor.transformed_desc, dim4=1)
    size = stick_bytes(desc)
    return Operand(desc, None if tensor.buffer is None else tensor.buffer[half * size :])


def layer(issuer: Issuer, name: str, a: Arguments) -> int:
    """Run lstm or gru: one product for all timesteps, then a product and an activation for each."""
    cells = name == "lstm"
    timesteps, direction = a["input"].transformed_desc.dim4, a["direction"]
    if not issuer.guest.cached.has_parmblk_format(0):
        return Status.ZDNN_UNAVAILABLE_FUNCTION
    if timesteps == 0:
        return Status.ZDNN_INVALID_SHAPE
    if direction not in (0, 1, 2):
        return Status.ZDNN_INVALID_DIRECTION
    sliced = [key for key in _LSTM_TENSORS if key in a]
    if direction == 2 and any(a[key].transformed_desc.dim4 < 2 for key in sliced):
        return Status.ZDNN_INVALID_SHAPE
    for half in (0, 1) if direction == 2 else (0,):
        whole = {key: _half(a[key], half) if direction == 2 else operand(a[key]) for key in sliced}
        status = _direction(issuer, a, whole, half, backward=direction == 1 or half == 1)
        if status != _OK:
            return status
    for key in ("hn_output", "cf_output") if cells else ("hn_output",):
        a[key].is_transformed = True
    return _OK


def _direction(
    issuer: Issuer, a: Arguments, t: Mapping[str, Operand], half: int, *, backward: bool
) -> int:
    cells = "c0" in t
    gates = 4 if cells else 3
    source = a["input"].transformed_desc
    timesteps, batch = source.dim4, source.dim2
    hidden = a["h0"].transformed_desc.dim1
    width = padded(hidden)
    slab = stick_bytes(_desc(1, 1, batch, hidden))
    fused = _work(timesteps, 1, batch, gates * width)
    added = _work(1, 1, batch, gates * width)
    status = issuer.issue(114, 0, [operand(a["input"]), t["weights"], t["biases"]], [fused], {1: 0})
    every_step = a["hn_output"].transformed_desc.dim4 == timesteps
    sides = 2 if a["direction"] == 2 else 1
    state, cell = t["h0"], t.get("c0")
    single = _desc(1, 1, batch, hidden)
    spare = [(_work(1, 1, batch, hidden), _work(1, 1, batch, hidden)) for _ in range(2)]
    for number in range(timesteps):
        if status == _OK:
            status = issuer.issue(
                113, 0, [state, t["hidden_weights"], t["hidden_biases"]], [added], {1: 0}
            )
        if status != _OK:
            return status
        step = timesteps - 1 - number if backward else number
        last = number == timesteps - 1
        if every_step or last or cells:
            first = ((step if every_step else 0) * sides + half) * slab
            state_to = Operand(single, _from(a["hn_output"], first, slab))
        else:
            state_to = spare[number % 2][0]
        gate_desc = _desc(gates, 1, batch, hidden)
        piece = stick_bytes(_desc(1, 1, batch, gates * width))
        assert fused.memory is not None
        inputs = [
            Operand(gate_desc, fused.memory[step * piece : (step + 1) * piece]),
            Operand(gate_desc, added.memory),
        ]
        if cell is not None:
            cell_to = spare[number % 2][1]
            if last:
                cell_to = Operand(single, _from(a["cf_output"], half * slab, slab))
            status = issuer.issue(96, 0, [*inputs, cell], [state_to, cell_to])
            cell = cell_to
        else:
            status = issuer.issue(97, 0, [*inputs, state], [state_to])
        state = state_to
    return status


def _from(tensor: Ztensor, first: int, size: int) -> Memory | None:
    return None if tensor.buffer is None else tensor.buffer[first : first + size]


def product_of_bytes(issuer: Issuer, a: Arguments) -> int:
    """Run quantized_matmul_op: c~ in software, an instruction, corrections in software."""
    x, y, c, out = (a[key] for key in ("input_a", "input_b", "input_c", "output"))
    if a["pre_computed"] and y.offset != 0:
        return Status.ZDNN_INVALID_OFFSET
    if not issuer.guest.cached.has_parmblk_format(1):
        return Status.ZDNN_UNAVAILABLE_FUNCTION
    stacks = x.transformed_desc.dim4, y.transformed_desc.dim4
    code = 113 if (stacks[0] == 1) == (stacks[1] == 1) else 114 if stacks[1] == 1 else 115
    adding, on_the_fly = a["op_type"] == 0, x.transformed_desc.type != 8
    op_type, bias = int(a["op_type"]), c
    with np.errstate(all="ignore"):
        if not a["pre_computed"]:
            if c.transformed_desc.type != 8:
                return Status.ZDNN_INVALID_TYPE
            bias = quantized.make_bias(FunctionCode(code), x, y, c, out, adding)
        scales = scales_of(x, y, c, out)
        if not adding and np.float32(np.float32(scales.sa * scales.sb) / scales.sc) < 0:
            op_type = {1: 6, 2: 5, 5: 2, 6: 1}.get(op_type, op_type)
        words = quantized.parameters_of(issuer.guest, scales, adding, on_the_fly)
        status = issuer.issue(
            code, 1, [operand(x), operand(y), operand(bias)], [operand(out)],
            {
                1: op_type & 255, 3: words["a_scale"], 4: words["a_offset"],
                5: words["b_scale"], 7: words["output_scale"],
                9: (a["clip_min"] if on_the_fly else 0) & 255,
                10: (a["clip_max"] if on_the_fly else 0) & 255,
            },
        )  # fmt: skip
        if status in (_OK, _VIOLATED):
            out.is_transformed = True
        correcting = scales.zb != 0 and not a["pre_computed"]
        if (
            status == _OK
            and adding
            and (correcting or a["dequantize"] or not a["disable_clipping"])
        ):
            rec = np.float32(np.float32(1) / scales.sy)
            how = (
                not a["disable_clipping"], bool(a["dequantize"]),
                np.float32(a["clip_min"]), np.float32(a["clip_max"]), scales.zy, rec,
            )  # fmt: skip
            finish(x, y, out, scales, correcting, how)
    return status


def dense(values: Memory, dims: tuple[int, ...]) -> Operand:
    """Return FP32 data as NNPA-TRANSFORM gets it."""
    return Operand(TensorDesc(8, 31, 6, *dims), values)


def stick_data(issuer: Issuer, tensor: Ztensor, data: bytes, *, saturate: bool) -> int:
    """Transform FP32 by the instruction."""
    desc = tensor.transformed_desc
    status = issuer.issue(
        240, 1, [dense(np.frombuffer(data, np.uint8).copy(), desc.dims)], [operand(tensor)],
        {1: int(saturate) << 31 | 2},
    )  # fmt: skip
    tensor.is_transformed = status in (_OK, _VIOLATED)
    return status


def unstick_data(issuer: Issuer, tensor: Ztensor) -> tuple[int, Any]:
    """Transform back to FP32 by the instruction."""
    dims = tensor.transformed_desc.dims
    values = np.zeros(4 * math.prod(dims), np.uint8)
    status = issuer.issue(240, 1, [operand(tensor)], [dense(values, dims)], {1: 129})
    return status, values.view(np.float32)
