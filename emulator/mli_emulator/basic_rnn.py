# SPDX-License-Identifier: Apache-2.0
"""Basic RNN cell of MLI 1.x.

Source: embARC MLI documentation 1.x, "Common Group", Basic RNN Cell; library behaviour for the
order of the checks and for what the intermediate tensor holds after the call.
"""

import numpy as np

from mli_emulator.activation import evaluate
from mli_emulator.checks import (
    frac_bits,
    require_accumulator,
    require_apart,
    require_bias_precision,
    require_capacity,
    require_contiguous,
    require_contiguous_output,
    require_data,
    require_frac_bits,
    required,
    used_bytes,
    valid,
)
from mli_emulator.dense import FX8, FX8W16D, FX16, Variant, fill
from mli_emulator.fixedpoint import IntArray
from mli_emulator.pipeline import DEFAULT, Options, Remarks, variants
from mli_emulator.recurrent import (
    TABLES,
    Call,
    RnnCellCfg,
    RnnMode,
    RnnOutActivation,
    Step,
    ignored_out_frac_bits,
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
from mli_emulator.tensor import Tensor, count, dims, element_size

_WHERE = "basic_rnn_cell"
_SHAPE = MliStatus.MLI_STATUS_SHAPE_MISMATCH
_BAD_CFG = MliStatus.MLI_STATUS_BAD_FUNC_CFG


def _given(
    in_: Tensor | None,
    prev_out: Tensor | None,
    weights: Tensor | None,
    bias: Tensor | None,
    cfg: RnnCellCfg | None,
    out: Tensor | None,
) -> Call:
    """Constraints 1 to 8."""
    x, h = valid(in_, "in"), valid(prev_out, "prev_out")
    w, b = valid(weights, "weights"), valid(bias, "bias")
    y = required(out, "out", f"{_WHERE}_c2")
    require_data(y, "out", f"{_WHERE}_c2")
    for name, tensor in (("in", x), ("prev_out", h), ("weights", w), ("bias", b)):
        require_contiguous(tensor, name, f"{_WHERE}_c3")
    batch = cfg is not None and cfg.mode == RnnMode.RNN_BATCH_TO_BATCH
    require_contiguous_output(y, "out", 2 if batch else b.rank, f"{_WHERE}_c4")
    config = require_cfg(cfg, f"{_WHERE}_c5")
    require_known_cfg(config, f"{_WHERE}_c6")
    if config.mode == RnnMode.RNN_BATCH_TO_LAST:
        ir = required(config.ir_tsr, "cfg.ir_tsr", f"{_WHERE}_c7", _BAD_CFG)
        require_data(ir, "cfg.ir_tsr", f"{_WHERE}_c7", _BAD_CFG)
    require_sequence(config, x, f"{_WHERE}_c8")
    return Call(x, h, w, b, y, config)


def _check_shapes(call: Call) -> None:
    """Constraints 9 to 14."""
    prev_out, weights, bias = call.prev_out, call.weights, call.bias

    def equal(number: int, field: str, value: object, limit: object) -> None:
        require(value == limit, f"{_WHERE}_c{number}", _SHAPE, field, value, limit)

    stacked = call.cfg.mode == RnnMode.RNN_ONE_TO_ONE and weights.rank == 3
    equal(9, "weights.rank", weights.rank, 3 if stacked else 2)
    equal(10, "bias.rank", bias.rank, 2 if stacked else 1)
    equal(11, "weights.shape", dims(weights)[:-1], dims(bias))
    equal(12, "bias.shape[-1]", dims(bias)[-1], count(prev_out))
    equal(13, "weights.shape[-1]", dims(weights)[-1], call.frames[1] + count(prev_out))
    equal(14, "prev_out.rank", prev_out.rank, 1)


def _check_memory(call: Call, variant: Variant) -> None:
    """Constraints 18 to 23: the library tests out.capacity early in one mode, never in others."""
    size = count(call.bias) * element_size(call.x.el_type)
    out_bytes = size * call.outputs
    written = {"out": (call.out, out_bytes)}
    read = {name: (tensor, used_bytes(tensor)) for name, tensor in call.inputs.items()}
    allowed: frozenset[frozenset[str]] = frozenset()
    if call.cfg.mode == RnnMode.RNN_BATCH_TO_LAST and call.cfg.ir_tsr is not None:
        require_capacity(call.out, "out", out_bytes, f"{_WHERE}_c18")
        require_capacity(call.cfg.ir_tsr, "cfg.ir_tsr", size, f"{_WHERE}_c19")
        written["cfg.ir_tsr"] = (call.cfg.ir_tsr, size)
        allowed = frozenset({frozenset({"out", "prev_out"})})
    require_variant(call, variant, f"{_WHERE}_c20")
    require_capacity(call.out, "out", out_bytes, f"{_WHERE}_c21")
    if call.cfg.act == RnnOutActivation.RNN_ACT_NONE:
        require_frac_bits(call.out, "out", f"{_WHERE}_c22")
    require_apart(written, read, allowed, f"{_WHERE}_c23")


@variants
def _basic_rnn_cell(
    variant: Variant,
    in_: Tensor | None,
    prev_out: Tensor | None,
    weights: Tensor | None,
    bias: Tensor | None,
    cfg: RnnCellCfg | None,
    out: Tensor | None,
    *,
    options: Options = DEFAULT,
) -> Remarks:
    """Recurrent cell without memory: ``mli_krn_basic_rnn_cell_{fx8,fx16,fx8w16d}``.

    weights [M, N+M] and bias [M], or stacked, in RNN_ONE_TO_ONE only, [L, M, N+M] and [L, M];
    prev_out [M]. Fills out: el_type, rank, shape (the shape of bias, or [frames, M] in
    RNN_BATCH_TO_BATCH), frac_bits (7 or 15 with an activation; an input without). In
    RNN_BATCH_TO_LAST the data of cfg.ir_tsr change: dense results of the last frame with an
    activation, output of the last frame but one without; out and prev_out may share memory.

    (basic_rnn_cell_c1) in, prev_out, weights, bias are valid: tensor_c1 to tensor_c8
    (basic_rnn_cell_c2) out is not NULL and has a data pointer: BAD_TENSOR
    (basic_rnn_cell_c3) in, prev_out, weights, bias are contiguous: INCOMPATEBLE_TENSORS
    (basic_rnn_cell_c4) out is contiguous: INCOMPATEBLE_TENSORS
    (basic_rnn_cell_c5) cfg is not NULL: BAD_FUNC_CFG
    (basic_rnn_cell_c6) cfg.mode and cfg.act are known: BAD_FUNC_CFG
    (basic_rnn_cell_c7) RNN_BATCH_TO_LAST: cfg.ir_tsr has a data pointer: BAD_FUNC_CFG
    (basic_rnn_cell_c8) in has rank 2 or more in a batch mode: BAD_FUNC_CFG
    (basic_rnn_cell_c9) weights have rank 2, or 3 in RNN_ONE_TO_ONE: SHAPE_MISMATCH
    (basic_rnn_cell_c10) bias has the rank of weights less 1: SHAPE_MISMATCH
    (basic_rnn_cell_c11) weights.shape without its last entry = bias.shape: SHAPE_MISMATCH
    (basic_rnn_cell_c12) bias.shape[-1] = M, the elements of prev_out: SHAPE_MISMATCH
    (basic_rnn_cell_c13) weights.shape[-1] = N + M: SHAPE_MISMATCH
    (basic_rnn_cell_c14) prev_out has rank 1: SHAPE_MISMATCH
    (basic_rnn_cell_c15) weights and bias have one element type: TYPE_MISMATCH
    (basic_rnn_cell_c16) in and prev_out have one element type: TYPE_MISMATCH
    (basic_rnn_cell_c17) frac_bits of bias <= in + weights: INCOMPATEBLE_TENSORS
    (basic_rnn_cell_c18) RNN_BATCH_TO_LAST: out.capacity holds M elements: NOT_ENGH_MEM
    (basic_rnn_cell_c19) RNN_BATCH_TO_LAST: cfg.ir_tsr.capacity likewise: NOT_ENGH_MEM
    (basic_rnn_cell_c20) in, prev_out, weights, bias have the variant's types: TYPE_MISMATCH,
    and 0..255 fractional bits: tensor_c9, BAD_TENSOR
    (basic_rnn_cell_c21) other modes: out.capacity holds all outputs: NOT_ENGH_MEM
    (basic_rnn_cell_c22) without activation, out has 0..255 fractional bits: BAD_TENSOR
    (basic_rnn_cell_c23) no two tensors overlap, but out and prev_out in RNN_BATCH_TO_LAST:
    INCOMPATEBLE_TENSORS
    (basic_rnn_cell_c24) without activation, frac_bits of out = prev_out: OK, a message from
    DEBUG on
    (basic_rnn_cell_c25) debug level FULL: no partial sum overflows: NOT_SUPPORTED
    """
    call = _given(in_, prev_out, weights, bias, cfg, out)
    _check_shapes(call)
    require_one_type(("weights", call.weights), ("bias", call.bias), f"{_WHERE}_c15")
    require_one_type(("in", call.x), ("prev_out", call.prev_out), f"{_WHERE}_c16")
    require_bias_precision(call.x, call.weights, call.bias, f"{_WHERE}_c17", options)
    _check_memory(call, variant)
    messages = ignored_out_frac_bits(call, f"{_WHERE}_c24")
    step = prepare(call, variant, options)
    _run(step, call)
    return Remarks(step.overflow, messages)


def _run(step: Step, call: Call) -> None:
    """Compute all frames, then write out and, in RNN_BATCH_TO_LAST, the intermediate data."""
    variant, act, frames = step.variant, call.cfg.act, call.frames[0]
    table = TABLES.get(act)
    out_bits = frac_bits(call.out) if table is None else variant.gate_bits
    assert out_bits is not None
    state = state_of(call.prev_out)
    raw = np.empty((frames, count(call.bias)), np.int64)
    outputs = np.empty_like(raw)
    for frame in range(frames):
        raw[frame] = step.run(frame, state, out_bits)
        outputs[frame] = state = raw[frame]
        if table is not None:
            rounding = step.options.rounding
            state = evaluate(table, state, out_bits, variant.io_bits, rounding)
            outputs[frame] = state
    require_accumulator(step.overflow, f"{_WHERE}_c25", variant.accumulator_bits, step.options)
    batch = call.cfg.mode == RnnMode.RNN_BATCH_TO_BATCH
    result = outputs if batch else outputs[-1].reshape(dims(call.bias))
    fill(call.out, result.shape, variant, None if table is None else variant.io_bits - 1)
    store(call.out, result, variant)
    if call.cfg.mode == RnnMode.RNN_BATCH_TO_LAST and call.cfg.ir_tsr is not None:
        kept: IntArray = raw[-1:] if table is not None else outputs[-2:-1]
        store(call.cfg.ir_tsr, kept, variant)


krn_basic_rnn_cell_fx8 = _basic_rnn_cell("krn_basic_rnn_cell_fx8", FX8)
krn_basic_rnn_cell_fx16 = _basic_rnn_cell("krn_basic_rnn_cell_fx16", FX16)
krn_basic_rnn_cell_fx8w16d = _basic_rnn_cell("krn_basic_rnn_cell_fx8w16d", FX8W16D)
