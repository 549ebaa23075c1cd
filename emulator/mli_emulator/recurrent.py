# SPDX-License-Identifier: Apache-2.0
"""The recurrent step and its frames, shared by the LSTM cell and the basic RNN cell of MLI 1.x.

Source: embARC MLI documentation 1.x, "Common Group"; library behaviour for the alignment of the
input part to the state part (32-bit accumulators round, 40-bit ones truncate).
"""

from dataclasses import dataclass
from enum import IntEnum
from math import prod

import numpy as np
import numpy.typing as npt

from mli_emulator.activation import SIGM, TANH, Table
from mli_emulator.checks import frac_bits, require_frac_bits, require_fx_type
from mli_emulator.dense import Variant, align, aligned_bias
from mli_emulator.fixedpoint import IntArray, Matrix, accumulate, matrix, scale_rounded
from mli_emulator.pipeline import Options
from mli_emulator.status import MliStatus, require
from mli_emulator.tensor import FxParams, Tensor, count, dims, integers

_BAD_CFG = MliStatus.MLI_STATUS_BAD_FUNC_CFG


class RnnMode(IntEnum):
    """``mli_rnn_mode``."""

    RNN_ONE_TO_ONE = 0
    RNN_BATCH_TO_BATCH = 1
    RNN_BATCH_TO_LAST = 2


class RnnOutActivation(IntEnum):
    """``mli_rnn_out_activation``."""

    RNN_ACT_NONE = 0
    RNN_ACT_TANH = 1
    RNN_ACT_SIGM = 2


TABLES: dict[int, Table] = {
    RnnOutActivation.RNN_ACT_TANH: TANH,
    RnnOutActivation.RNN_ACT_SIGM: SIGM,
}


@dataclass(frozen=True, slots=True)
class RnnCellCfg:
    """``mli_rnn_cell_cfg``: mode, output activation, tensor for intermediate results (or NULL)."""

    mode: int
    act: int
    ir_tsr: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """The tensors that both recurrent cells take, none of them NULL, and the configuration."""

    x: Tensor
    prev_out: Tensor
    weights: Tensor
    bias: Tensor
    out: Tensor
    cfg: RnnCellCfg

    @property
    def frames(self) -> tuple[int, int]:
        """(frames, elements of one frame)."""
        if self.cfg.mode == RnnMode.RNN_ONE_TO_ONE:
            return 1, count(self.x)
        shape = dims(self.x)
        return shape[0], prod(shape[1:])

    @property
    def outputs(self) -> int:
        """Frames that reach the output tensor."""
        return self.frames[0] if self.cfg.mode == RnnMode.RNN_BATCH_TO_BATCH else 1

    @property
    def inputs(self) -> dict[str, Tensor]:
        """The tensors that are only read, by name."""
        names = ("in", "prev_out", "weights", "bias")
        return dict(zip(names, (self.x, self.prev_out, self.weights, self.bias), strict=True))


def require_cfg(cfg: RnnCellCfg | None, constraint: str) -> RnnCellCfg:
    """Return the configuration, unless it is NULL: BAD_FUNC_CFG."""
    require(cfg is not None, constraint, _BAD_CFG, "cfg", "NULL", "a configuration")
    assert cfg is not None
    return cfg


def require_known_cfg(cfg: RnnCellCfg, constraint: str) -> None:
    """Mode and activation are values of their enumerations: BAD_FUNC_CFG."""
    modes, acts = [int(m) for m in RnnMode], [int(a) for a in RnnOutActivation]
    require(cfg.mode in modes, constraint, _BAD_CFG, "cfg.mode", cfg.mode, f"one of {modes}")
    require(cfg.act in acts, constraint, _BAD_CFG, "cfg.act", cfg.act, f"one of {acts}")


def require_sequence(cfg: RnnCellCfg, x: Tensor, constraint: str) -> None:
    """Require two dimensions in the batch modes, the first being the frames: BAD_FUNC_CFG."""
    single = cfg.mode == RnnMode.RNN_ONE_TO_ONE
    holds = single or x.rank >= 2
    require(holds, constraint, _BAD_CFG, "in.rank", x.rank, "2 or more in a batch mode")


def require_one_type(
    first: tuple[str, Tensor], second: tuple[str, Tensor], constraint: str
) -> None:
    """Two tensors, each with its name, have one element type: TYPE_MISMATCH."""
    (name, tensor), (second_name, reference) = first, second
    same, status = tensor.el_type == reference.el_type, MliStatus.MLI_STATUS_TYPE_MISMATCH
    value, limit = f"{tensor.el_type:#x}", f"{reference.el_type:#x} ({second_name})"
    require(same, constraint, status, f"{name}.el_type", value, limit)


def require_variant(call: Call, variant: Variant, constraint: str) -> None:
    """Element types of the variant: TYPE_MISMATCH; 0..255 fractional bits: tensor_c9."""
    for name, tensor in call.inputs.items():
        io = tensor is call.x or tensor is call.prev_out
        require_fx_type(tensor, name, variant.io if io else variant.weights, constraint)
    for name, tensor in call.inputs.items():
        require_frac_bits(tensor, name, "tensor_c9")


def ignored_out_frac_bits(call: Call, constraint: str) -> tuple[str, ...]:
    """Make the remark of the condition on out.frac_bits without activation.

    The manual wants prev_out and out alike; the library computes on, so the status stays OK.
    """
    out_bits, prev_bits = frac_bits(call.out), frac_bits(call.prev_out)
    if call.cfg.act != RnnOutActivation.RNN_ACT_NONE or out_bits == prev_bits:
        return ()
    field = "out.el_params.fx.frac_bits"
    return (f"MLI_STATUS_OK ({constraint}): {field} is {out_bits}, must be {prev_bits} (prev_out)",)


@dataclass(slots=True)
class Step:
    """The dense part of a recurrent cell: state, prepared weights, overflow seen so far.

    ``inputs`` [F, R] is the input part of every frame, bias included, aligned to the state part;
    ``rows`` are the state columns of the weights.
    """

    inputs: IntArray
    rows: Matrix
    state_bits: int
    weight_bits: int
    variant: Variant
    options: Options
    overflow: bool

    def run(self, frame: int, state: IntArray, out_bits: int) -> IntArray:
        """All R results of one frame, with ``out_bits`` fractional bits, in the io container."""
        variant, options = self.variant, self.options
        total, overflow = accumulate(
            self.inputs[frame : frame + 1],
            state[None, :],
            self.rows,
            variant.accumulator_bits,
            options.accumulator,
        )
        self.overflow |= overflow
        shift = self.state_bits + self.weight_bits - out_bits
        return scale_rounded(total[0], shift, variant.io_bits, options.rounding)


def prepare(call: Call, variant: Variant, options: Options) -> Step:
    """Compute the input part of all frames at once."""
    x_bits, weight_bits = params(call.x).frac_bits, params(call.weights).frac_bits
    state_bits = params(call.prev_out).frac_bits
    frames, n = call.frames
    rows = integers(call.weights, (count(call.bias), dims(call.weights)[-1]))
    start = aligned_bias(call.x, call.weights, call.bias, variant, options.rounding)
    total, overflow = accumulate(
        np.broadcast_to(start, (frames, len(start))),
        integers(call.x, (frames, n)),
        matrix(rows[:, :n]),
        variant.accumulator_bits,
        options.accumulator,
    )
    inputs = align(total, x_bits - state_bits, variant, options.rounding)
    return Step(inputs, matrix(rows[:, n:]), state_bits, weight_bits, variant, options, overflow)


def params(tensor: Tensor) -> FxParams:
    """Return the FX parameters of a tensor whose type has been checked."""
    assert isinstance(tensor.el_params, FxParams)
    return tensor.el_params


def state_of(prev_out: Tensor) -> IntArray:
    """Read the previous output [M]; the state has its fractional bits in every frame."""
    return integers(prev_out, (count(prev_out),)).astype(np.int64)


def store(tensor: Tensor, values: npt.NDArray[np.int64], variant: Variant) -> None:
    """Write dense values into the memory of an io tensor, whatever its fields say."""
    target = Tensor(tensor.data, tensor.capacity, values.shape, values.ndim, variant.io, None)
    integers(target, values.shape)[...] = values
