# SPDX-License-Identifier: Apache-2.0
"""LSTM cell of MLI 1.x.

Source: embARC MLI documentation 1.x, "Common Group", Long Short Term Memory (LSTM) Cell; library
behaviour for the order of the checks and for the two roundings of the cell update.
"""

import numpy as np

from mli_emulator.activation import SIGM, TANH, evaluate
from mli_emulator.checks import (
    require_accumulator,
    require_apart,
    require_bias_precision,
    require_capacity,
    require_contiguous,
    require_contiguous_output,
    require_data,
    require_frac_bits,
    require_fx_type,
    required,
    used_bytes,
    valid,
)
from mli_emulator.dense import FX8, FX8W16D, FX16, Variant, fill
from mli_emulator.fixedpoint import Accumulator, IntArray, saturate, scale_rounded, wrap
from mli_emulator.pipeline import DEFAULT, Options, Remarks, variants
from mli_emulator.recurrent import (
    TABLES,
    Call,
    RnnCellCfg,
    RnnMode,
    RnnOutActivation,
    Step,
    ignored_out_frac_bits,
    params,
    prepare,
    require_cfg,
    require_known_cfg,
    require_one_type,
    require_sequence,
    require_variant,
    state_of,
    store,
)
from mli_emulator.status import MliStatus, require
from mli_emulator.tensor import Tensor, count, dims, element_size, integers

_WHERE = "lstm_cell"
_SHAPE = MliStatus.MLI_STATUS_SHAPE_MISMATCH
_BAD_CFG = MliStatus.MLI_STATUS_BAD_FUNC_CFG


def _given(
    in_: Tensor | None,
    prev_out: Tensor | None,
    weights: Tensor | None,
    bias: Tensor | None,
    cfg: RnnCellCfg | None,
    cell: Tensor | None,
    out: Tensor | None,
) -> tuple[Call, Tensor, Tensor]:
    """Constraints 1 to 6; returns the call, the cell, the intermediate tensor."""
    x, h = valid(in_, "in"), valid(prev_out, "prev_out")
    w, b, c = valid(weights, "weights"), valid(bias, "bias"), valid(cell, "cell")
    y = required(out, "out", f"{_WHERE}_c2")
    require_data(y, "out", f"{_WHERE}_c2")
    config = require_cfg(cfg, f"{_WHERE}_c3")
    ir = required(config.ir_tsr, "cfg.ir_tsr", f"{_WHERE}_c4", _BAD_CFG)
    require_data(ir, "cfg.ir_tsr", f"{_WHERE}_c4", _BAD_CFG)
    require_known_cfg(config, f"{_WHERE}_c5")
    require_sequence(config, x, f"{_WHERE}_c6")
    return Call(x, h, w, b, y, config), c, ir


def _check_shapes(call: Call, cell: Tensor) -> None:
    """Constraints 7 to 15."""

    def equal(number: int, field: str, value: int, limit: int) -> None:
        require(value == limit, f"{_WHERE}_c{number}", _SHAPE, field, value, limit)

    prev_out, weights, bias = call.prev_out, call.weights, call.bias
    equal(7, "weights.rank", weights.rank, 3)
    equal(8, "bias.rank", bias.rank, 2)
    (gates, rows, columns), (bias_gates, m) = dims(weights), dims(bias)
    equal(9, "weights.shape[0]", gates, 4)
    equal(9, "bias.shape[0]", bias_gates, 4)
    equal(10, "weights.shape[1]", rows, m)
    equal(11, "bias.shape[1]", m, count(prev_out))
    equal(12, "weights.shape[2]", columns, call.frames[1] + count(prev_out))
    equal(13, "cell.rank", cell.rank, 1)
    equal(14, "prev_out.rank", prev_out.rank, 1)
    equal(15, "prev_out.shape[0]", dims(prev_out)[0], dims(cell)[0])


def _check_layout(call: Call) -> None:
    """Constraints 16 and 17."""
    for name, tensor in call.inputs.items():
        require_contiguous(tensor, name, f"{_WHERE}_c16")
    rank = 2 if call.cfg.mode == RnnMode.RNN_BATCH_TO_BATCH else 1
    require_contiguous_output(call.out, "out", rank, f"{_WHERE}_c17")


def _check_memory(call: Call, cell: Tensor, ir: Tensor, variant: Variant) -> None:
    """Constraints 22 to 25."""
    size = count(call.prev_out) * element_size(call.x.el_type)
    out_bytes = size * call.outputs
    require_capacity(ir, "cfg.ir_tsr", 4 * size, f"{_WHERE}_c22")
    require_capacity(call.out, "out", out_bytes, f"{_WHERE}_c23")
    require_variant(call, variant, f"{_WHERE}_c24")
    require_fx_type(cell, "cell", variant.io, f"{_WHERE}_c24")
    require_frac_bits(cell, "cell", "tensor_c9")
    written = {"out": (call.out, out_bytes), "cell": (cell, size), "cfg.ir_tsr": (ir, 4 * size)}
    read = {name: (tensor, used_bytes(tensor)) for name, tensor in call.inputs.items()}
    allowed = frozenset({frozenset({"out", "prev_out"})})
    require_apart(written, read, allowed, f"{_WHERE}_c25")


def _update(gates: IntArray, cell: IntArray, cell_bits: int, step: Step) -> IntArray:
    """Compute the new cell: round i * g to the scale of f * cell, round and saturate the sum."""
    variant, rounding = step.variant, step.options.rounding
    full = variant.io_bits - 1
    i, g, f, _ = gates
    total = scale_rounded(i * g, full - cell_bits, 32, rounding) + f * cell
    fits = saturate(total, 32)
    step.overflow |= bool((fits != total).any())
    if step.options.accumulator is Accumulator.HARDWARE:
        total = wrap(total, 32)
    return scale_rounded(total, full, variant.io_bits, rounding)


def _frame(
    step: Step, frame: int, state: IntArray, cell: IntArray, cell_bits: int, act: int
) -> tuple[IntArray, IntArray, IntArray]:
    """One frame: (gates [4, M], cell [M], output [M])."""
    variant, rounding = step.variant, step.options.rounding
    io_bits, full = variant.io_bits, variant.io_bits - 1
    raw = step.run(frame, state, variant.gate_bits).reshape(4, -1)
    gates = evaluate(SIGM, raw, variant.gate_bits, io_bits, rounding)
    gates[1] = evaluate(TANH, raw[1], variant.gate_bits, io_bits, rounding)
    cell = _update(gates, cell, cell_bits, step)
    if act == RnnOutActivation.RNN_ACT_NONE:
        shift = cell_bits + full - step.state_bits
        return gates, cell, scale_rounded(cell * gates[3], shift, io_bits, rounding)
    activated = evaluate(TABLES[act], cell, cell_bits, io_bits, rounding)
    return gates, cell, scale_rounded(activated * gates[3], full, io_bits, rounding)


@variants
def _lstm_cell(
    variant: Variant,
    in_: Tensor | None,
    prev_out: Tensor | None,
    weights: Tensor | None,
    bias: Tensor | None,
    cfg: RnnCellCfg | None,
    cell: Tensor | None,
    out: Tensor | None,
    *,
    options: Options = DEFAULT,
) -> Remarks:
    """LSTM cell without peepholes: ``mli_krn_lstm_cell_{fx8,fx16,fx8w16d}``.

    weights [4, M, N+M] and bias [4, M] in gate order i, g, f, o; cell [M]; prev_out [M].
    Fills out: el_type, rank, shape ([M], or [frames, M] in RNN_BATCH_TO_BATCH), frac_bits
    (7 or 15 with an activation, prev_out's without). Fills cfg.ir_tsr with the
    activated gates of the last frame, shape [4, M]. Updates the data of cell. out and
    prev_out may share memory.

    (lstm_cell_c1) in, prev_out, weights, bias, cell are valid: tensor_c1 to tensor_c8
    (lstm_cell_c2) out is not NULL and has a data pointer: BAD_TENSOR
    (lstm_cell_c3) cfg is not NULL: BAD_FUNC_CFG
    (lstm_cell_c4) cfg.ir_tsr is not NULL and has a data pointer: BAD_FUNC_CFG
    (lstm_cell_c5) cfg.mode and cfg.act are known: BAD_FUNC_CFG
    (lstm_cell_c6) in has rank 2 or more in a batch mode: BAD_FUNC_CFG
    (lstm_cell_c7) weights have rank 3: SHAPE_MISMATCH
    (lstm_cell_c8) bias has rank 2: SHAPE_MISMATCH
    (lstm_cell_c9) weights and bias have 4 gates: SHAPE_MISMATCH
    (lstm_cell_c10) weights.shape[1] = bias.shape[1]: SHAPE_MISMATCH
    (lstm_cell_c11) bias.shape[1] = M, the elements of prev_out: SHAPE_MISMATCH
    (lstm_cell_c12) weights.shape[2] = N + M: SHAPE_MISMATCH
    (lstm_cell_c13) cell has rank 1: SHAPE_MISMATCH
    (lstm_cell_c14) prev_out has rank 1: SHAPE_MISMATCH
    (lstm_cell_c15) prev_out and cell have one length: SHAPE_MISMATCH
    (lstm_cell_c16) in, prev_out, weights, bias are contiguous: INCOMPATEBLE_TENSORS
    (lstm_cell_c17) out is contiguous: INCOMPATEBLE_TENSORS
    (lstm_cell_c18) weights and bias have one element type: TYPE_MISMATCH
    (lstm_cell_c19) in and prev_out have one element type: TYPE_MISMATCH
    (lstm_cell_c20) in and cell have one element type: TYPE_MISMATCH
    (lstm_cell_c21) frac_bits of bias <= in + weights: INCOMPATEBLE_TENSORS
    (lstm_cell_c22) cfg.ir_tsr.capacity holds 4*M elements: NOT_ENGH_MEM
    (lstm_cell_c23) out.capacity holds M elements per output: NOT_ENGH_MEM
    (lstm_cell_c24) in, prev_out, cell, weights, bias have the variant's types: TYPE_MISMATCH,
    and 0..255 fractional bits: tensor_c9, BAD_TENSOR
    (lstm_cell_c25) only out and prev_out overlap: INCOMPATEBLE_TENSORS
    (lstm_cell_c26) without activation, frac_bits of out = prev_out: OK, a message from DEBUG on
    (lstm_cell_c27) debug level FULL: no partial sum overflows: NOT_SUPPORTED
    """
    call, c, ir = _given(in_, prev_out, weights, bias, cfg, cell, out)
    _check_shapes(call, c)
    _check_layout(call)
    require_one_type(("weights", call.weights), ("bias", call.bias), f"{_WHERE}_c18")
    require_one_type(("in", call.x), ("prev_out", call.prev_out), f"{_WHERE}_c19")
    require_one_type(("in", call.x), ("cell", c), f"{_WHERE}_c20")
    require_bias_precision(call.x, call.weights, call.bias, f"{_WHERE}_c21", options)
    _check_memory(call, c, ir, variant)
    messages = ignored_out_frac_bits(call, f"{_WHERE}_c26")
    step = prepare(call, variant, options)
    _run(step, call, c, ir)
    return Remarks(step.overflow, messages)


def _run(step: Step, call: Call, cell: Tensor, ir: Tensor) -> None:
    """Compute all frames, then write out, cell and ir."""
    variant, act = step.variant, call.cfg.act
    frames, m = call.frames[0], count(call.prev_out)
    state, cell_bits = state_of(call.prev_out), params(cell).frac_bits
    cells = integers(cell, (m,)).astype(np.int64)
    outputs = np.empty((frames, m), np.int64)
    gates = np.empty((4, m), np.int64)
    for frame in range(frames):
        gates, cells, state = _frame(step, frame, state, cells, cell_bits, act)
        outputs[frame] = state
    require_accumulator(step.overflow, f"{_WHERE}_c27", variant.accumulator_bits, step.options)
    result = outputs if call.cfg.mode == RnnMode.RNN_BATCH_TO_BATCH else outputs[-1]
    activated = act != RnnOutActivation.RNN_ACT_NONE
    fill(call.out, result.shape, variant, variant.io_bits - 1 if activated else step.state_bits)
    fill(ir, (4, m), variant, variant.gate_bits)
    ir.mem_stride = ()
    for tensor, values in ((call.out, result), (cell, cells), (ir, gates)):
        store(tensor, values, variant)


krn_lstm_cell_fx8 = _lstm_cell("krn_lstm_cell_fx8", FX8)
krn_lstm_cell_fx16 = _lstm_cell("krn_lstm_cell_fx16", FX16)
krn_lstm_cell_fx8w16d = _lstm_cell("krn_lstm_cell_fx8w16d", FX8W16D)
