# SPDX-License-Identifier: Apache-2.0
"""The kernels of the common group: one function per name of the embARC MLI documentation.

A tensor argument of None is C's NULL. Outputs left out are allocated and returned; inside a batch
they are filled when the batch is sent.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, ParamSpec

from nnpa.mli.v1.mli_pb2 import MLI_EL_FX_8, MLI_EL_FX_16, MLI_EL_UNSPECIFIED, RNN_BATCH_TO_BATCH

from nnpa_client.mli.calls import Call, Options, Value
from nnpa_client.mli.connection import submit
from nnpa_client.mli.tensor import Tensor, empty

__tracebackhide__ = True  # pytest shows the line that called, not these

Arguments = ParamSpec("Arguments")


@dataclass(frozen=True, slots=True)
class RnnCellCfg:
    """``mli_rnn_cell_cfg``: mode RNN_ONE_TO_ONE etc., act RNN_ACT_TANH etc., intermediate tensor.

    An LSTM cell needs `ir_tsr` with room for 4 * M elements of the data's type, for example
    `mli.empty((4, M), mli.MLI_EL_FX_8)`; a basic RNN cell needs M in RNN_BATCH_TO_LAST.
    """

    mode: int
    act: int
    ir_tsr: Tensor | None = None


LstmCellCfg = RnnCellCfg  # the name in the prototype of the LSTM cell


def _first(tensor: Tensor | None, ahead: int = 1) -> int:
    """Return the product of the first `ahead` dimensions, 0 for NULL or a lower rank."""
    if tensor is None or len(tensor.shape) < ahead:
        return 0
    return math.prod(tensor.shape[:ahead])


def _configured(cfg: RnnCellCfg | None, tensors: dict[str, Tensor | None]) -> dict[str, Value]:
    """Return the configuration's numbers; add its tensor to `tensors`."""
    if cfg is None:
        return {"cfg": None}
    tensors["cfg.ir_tsr"] = cfg.ir_tsr
    return {"cfg": {"mode": cfg.mode, "act": cfg.act}}


def _frames(in_: Tensor | None, cfg: RnnCellCfg | None) -> int:
    """Return the number of outputs: one for each frame of a batch, else one."""
    per_frame = cfg is not None and cfg.mode == RNN_BATCH_TO_BATCH
    return _first(in_) if per_frame else 1


def _bits(prev_out: Tensor | None) -> int | None:
    """Return the fractional bits of prev_out, the default for an output left out."""
    return getattr(getattr(prev_out, "el_params", None), "frac_bits", None)


def _fully_connected(
    name: str,
    el_type: int,
    in_: Tensor | None,
    weights: Tensor | None,
    bias: Tensor | None,
    out: Tensor | None = None,
    *,
    frac_bits: int | None = None,
    options: Options | None = None,
) -> Tensor:
    """Return out = weights * in_ + bias; `frac_bits` applies to an output left out."""
    if out is None:
        if frac_bits is None:
            raise ValueError("frac_bits: None, must be given when out is left out")
        out = empty(_first(weights), el_type, frac_bits=frac_bits)
    tensors = {"in": in_, "weights": weights, "bias": bias, "out": out}
    submit(Call(name, tensors, {}), options)
    return out


def _lstm_cell(
    name: str,
    el_type: int,
    in_: Tensor | None,
    prev_out: Tensor | None,
    weights: Tensor | None,
    bias: Tensor | None,
    cfg: RnnCellCfg | None,
    cell: Tensor | None,
    out: Tensor | None = None,
    *,
    options: Options | None = None,
) -> Tensor:
    """Return the outputs; `cell` and `cfg.ir_tsr` are written too."""
    if out is None:
        bits = _bits(prev_out)
        out = empty(_first(cell) * _frames(in_, cfg), el_type, frac_bits=bits)
    tensors = {"in": in_, "prev_out": prev_out, "weights": weights, "bias": bias}
    tensors |= {"cell": cell, "out": out}
    values = _configured(cfg, tensors)
    submit(Call(name, tensors, values), options)
    return out


def _basic_rnn_cell(
    name: str,
    el_type: int,
    in_: Tensor | None,
    prev_out: Tensor | None,
    weights: Tensor | None,
    bias: Tensor | None,
    cfg: RnnCellCfg | None,
    out: Tensor | None = None,
    *,
    frac_bits: int | None = None,
    options: Options | None = None,
) -> Tensor:
    """Return the outputs; `cfg.ir_tsr` is written too."""
    if out is None:
        bits = _bits(prev_out) if frac_bits is None else frac_bits
        count = _first(bias, len(bias.shape) if bias is not None else 1)
        out = empty(count * _frames(in_, cfg), el_type, frac_bits=bits)
    tensors = {"in": in_, "prev_out": prev_out, "weights": weights, "bias": bias, "out": out}
    values = _configured(cfg, tensors)
    submit(Call(name, tensors, values), options)
    return out


def _activation(
    name: str,
    el_type: int,
    in_: Tensor | None,
    out: Tensor | None = None,
    *,
    options: Options | None = None,
) -> Tensor:
    """Return the function of each element; `out` may be `in_`, in place."""
    if out is None:
        memory = getattr(in_, "memory", None)
        size = 0 if in_ is None or memory is None else memory.nbytes - in_.offset
        out = empty(size, MLI_EL_UNSPECIFIED)
        out.el_type = el_type
    submit(Call(name, {"in": in_, "out": out}, {}), options)
    return out


def _kernel(
    function: Callable[Concatenate[str, int, Arguments], Tensor], name: str, el_type: int
) -> Callable[Arguments, Tensor]:
    """Return the function of a kernel: `function` with its name and element type."""

    def kernel(*args: Arguments.args, **options: Arguments.kwargs) -> Tensor:
        return function(name, el_type, *args, **options)

    signature = inspect.signature(function)
    _name, _el_type, *parameters = signature.parameters.values()
    kernel.__name__, kernel.__doc__ = name, function.__doc__
    vars(kernel)["__signature__"] = signature.replace(parameters=parameters)
    return kernel


krn_fully_connected_fx8 = _kernel(_fully_connected, "krn_fully_connected_fx8", MLI_EL_FX_8)
krn_fully_connected_fx16 = _kernel(_fully_connected, "krn_fully_connected_fx16", MLI_EL_FX_16)
krn_fully_connected_fx8w16d = _kernel(_fully_connected, "krn_fully_connected_fx8w16d", MLI_EL_FX_16)
krn_lstm_cell_fx8 = _kernel(_lstm_cell, "krn_lstm_cell_fx8", MLI_EL_FX_8)
krn_lstm_cell_fx16 = _kernel(_lstm_cell, "krn_lstm_cell_fx16", MLI_EL_FX_16)
krn_lstm_cell_fx8w16d = _kernel(_lstm_cell, "krn_lstm_cell_fx8w16d", MLI_EL_FX_16)
krn_basic_rnn_cell_fx8 = _kernel(_basic_rnn_cell, "krn_basic_rnn_cell_fx8", MLI_EL_FX_8)
krn_basic_rnn_cell_fx16 = _kernel(_basic_rnn_cell, "krn_basic_rnn_cell_fx16", MLI_EL_FX_16)
krn_basic_rnn_cell_fx8w16d = _kernel(_basic_rnn_cell, "krn_basic_rnn_cell_fx8w16d", MLI_EL_FX_16)
krn_tanh_fx8 = _kernel(_activation, "krn_tanh_fx8", MLI_EL_FX_8)
krn_tanh_fx16 = _kernel(_activation, "krn_tanh_fx16", MLI_EL_FX_16)
krn_sigm_fx8 = _kernel(_activation, "krn_sigm_fx8", MLI_EL_FX_8)
krn_sigm_fx16 = _kernel(_activation, "krn_sigm_fx16", MLI_EL_FX_16)
