# SPDX-License-Identifier: Apache-2.0
"""The kernels of the common group: one function per name of the embARC MLI documentation.

A tensor argument of None is C's NULL. Outputs left out are allocated and returned; inside a batch
they are filled when the batch is sent.
"""

from dataclasses import dataclass
from typing import Protocol

from nnpa.mli.v1.mli_pb2 import (
    MLI_EL_FX_8,
    MLI_EL_FX_16,
    RNN_BATCH_TO_BATCH,
)

from nnpa_client.mli.calls import Call, Options, Value, submit
from nnpa_client.mli.connection import current_transport
from nnpa_client.mli.tensor import Tensor, empty

__tracebackhide__ = True  # pytest shows the line that called, not these


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


class FullyConnected(Protocol):
    """``mli_krn_fully_connected_*``."""

    def __call__(
        self,
        in_: Tensor | None,
        weights: Tensor | None,
        bias: Tensor | None,
        out: Tensor | None = None,
        *,
        frac_bits: int | None = None,
        options: Options | None = None,
    ) -> Tensor:
        """Return out = weights * in_ + bias; `frac_bits` applies to an output left out."""
        ...


class LstmCell(Protocol):
    """``mli_krn_lstm_cell_*``."""

    def __call__(
        self,
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
        ...


class BasicRnnCell(Protocol):
    """``mli_krn_basic_rnn_cell_*``."""

    def __call__(
        self,
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
        ...


class Activation(Protocol):
    """``mli_krn_tanh_*`` and ``mli_krn_sigm_*``."""

    def __call__(
        self,
        in_: Tensor | None,
        out: Tensor | None = None,
        *,
        options: Options | None = None,
    ) -> Tensor:
        """Return the function of each element; `out` may be `in_`, in place."""
        ...


def _first(tensor: Tensor | None, ahead: int = 1) -> int:
    """Return the product of the first `ahead` dimensions, 0 for NULL or a lower rank."""
    if tensor is None or len(tensor.shape) < ahead:
        return 0
    product = 1
    for extent in tensor.shape[:ahead]:
        product *= extent
    return product


def _fully_connected(name: str, el_type: int) -> FullyConnected:
    def krn_fully_connected(
        in_: Tensor | None,
        weights: Tensor | None,
        bias: Tensor | None,
        out: Tensor | None = None,
        *,
        frac_bits: int | None = None,
        options: Options | None = None,
    ) -> Tensor:
        if out is None:
            if frac_bits is None:
                raise ValueError("frac_bits: None, must be given when out is left out")
            out = empty(_first(weights), el_type, frac_bits=frac_bits)
        tensors = {"in": in_, "weights": weights, "bias": bias, "out": out}
        submit(Call(name, tensors, {}), current_transport(), options)
        return out

    return krn_fully_connected


def _configured(cfg: RnnCellCfg | None, tensors: dict[str, Tensor | None]) -> dict[str, Value]:
    """Return the configuration's numbers; add its tensor to `tensors`."""
    if cfg is None:
        return {"cfg": None}
    tensors["cfg.ir_tsr"] = cfg.ir_tsr
    return {"cfg": {"mode": cfg.mode, "act": cfg.act}}


def _frames(in_: Tensor | None, cfg: RnnCellCfg | None) -> int:
    per_frame = cfg is not None and cfg.mode == RNN_BATCH_TO_BATCH
    return _first(in_) if per_frame else 1


def _lstm_cell(name: str, el_type: int) -> LstmCell:
    def krn_lstm_cell(
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
        if out is None:
            bits = _bits(prev_out)
            out = empty(_first(cell) * _frames(in_, cfg), el_type, frac_bits=bits)
        tensors = {"in": in_, "prev_out": prev_out, "weights": weights, "bias": bias}
        tensors |= {"cell": cell, "out": out}
        values = _configured(cfg, tensors)
        submit(Call(name, tensors, values), current_transport(), options)
        return out

    return krn_lstm_cell


def _bits(prev_out: Tensor | None) -> int | None:
    """Return the fractional bits of prev_out, the default for an output left out."""
    return getattr(getattr(prev_out, "el_params", None), "frac_bits", None)


def _basic_rnn_cell(name: str, el_type: int) -> BasicRnnCell:
    def krn_basic_rnn_cell(
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
        if out is None:
            bits = _bits(prev_out) if frac_bits is None else frac_bits
            count = _first(bias, len(bias.shape) if bias is not None else 1)
            out = empty(count * _frames(in_, cfg), el_type, frac_bits=bits)
        tensors = {"in": in_, "prev_out": prev_out, "weights": weights, "bias": bias, "out": out}
        values = _configured(cfg, tensors)
        submit(Call(name, tensors, values), current_transport(), options)
        return out

    return krn_basic_rnn_cell


def _activation(name: str, el_type: int) -> Activation:
    def krn_activation(
        in_: Tensor | None, out: Tensor | None = None, *, options: Options | None = None
    ) -> Tensor:
        if out is None:
            out = empty(0, el_type)
            if isinstance(in_, Tensor) and in_.memory is not None:
                out = empty(in_.memory.nbytes - in_.offset, 0)
                out.el_type = el_type
        submit(Call(name, {"in": in_, "out": out}, {}), current_transport(), options)
        return out

    return krn_activation


krn_fully_connected_fx8 = _fully_connected("krn_fully_connected_fx8", MLI_EL_FX_8)
krn_fully_connected_fx16 = _fully_connected("krn_fully_connected_fx16", MLI_EL_FX_16)
krn_fully_connected_fx8w16d = _fully_connected("krn_fully_connected_fx8w16d", MLI_EL_FX_16)
krn_lstm_cell_fx8 = _lstm_cell("krn_lstm_cell_fx8", MLI_EL_FX_8)
krn_lstm_cell_fx16 = _lstm_cell("krn_lstm_cell_fx16", MLI_EL_FX_16)
krn_lstm_cell_fx8w16d = _lstm_cell("krn_lstm_cell_fx8w16d", MLI_EL_FX_16)
krn_basic_rnn_cell_fx8 = _basic_rnn_cell("krn_basic_rnn_cell_fx8", MLI_EL_FX_8)
krn_basic_rnn_cell_fx16 = _basic_rnn_cell("krn_basic_rnn_cell_fx16", MLI_EL_FX_16)
krn_basic_rnn_cell_fx8w16d = _basic_rnn_cell("krn_basic_rnn_cell_fx8w16d", MLI_EL_FX_16)
krn_tanh_fx8 = _activation("krn_tanh_fx8", MLI_EL_FX_8)
krn_tanh_fx16 = _activation("krn_tanh_fx16", MLI_EL_FX_16)
krn_sigm_fx8 = _activation("krn_sigm_fx8", MLI_EL_FX_8)
krn_sigm_fx16 = _activation("krn_sigm_fx16", MLI_EL_FX_16)
