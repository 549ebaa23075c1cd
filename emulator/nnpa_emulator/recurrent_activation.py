# SPDX-License-Identifier: Apache-2.0
"""NNPA-LSTMACT and NNPA-GRUACT by themselves, functions 96 and 97: one step of a layer.

Shapes: gates of the input `fused` and of the state `added` (4 or 3,1,b,s), in the order F, I, C, O
or Z, R, H; `state` (1,1,b,s), c of LSTM and h of GRU; `h` and `c` (1,1,b,s).
Fidelity: as `recurrent`. Source: zDNN API Reference 1.2.0, zdnn_lstm and zdnn_gru.
"""

from nnpa_emulator import stick
from nnpa_emulator.checks import Operands, require_dim, require_fields
from nnpa_emulator.engines.recurrent import States
from nnpa_emulator.instruction import Operation
from nnpa_emulator.machine import FORMAT_0, FunctionCode
from nnpa_emulator.pipeline import define
from nnpa_emulator.reference.layout import Singles
from nnpa_emulator.ztensor import Ztensor

LSTM, GRU = 4, 3
"""Gates of each."""


def _verify(
    fused: Ztensor,
    added: Ztensor,
    state: Ztensor,
    h: Ztensor,
    c: Ztensor | None = None,
) -> None:
    """Check the operands of LSTMACT or GRUACT as the library and the machine do."""
    desc = fused.transformed_desc
    outputs: Operands = {"h": h, "c": c} if c is not None else {"h": h}
    require_dim(4, 1, "", {"state": state, "h": h}, "c1")
    require_dim(4, desc.dim4, "gates", {"added": added}, "c1")
    for dimension in (3, 2, 1):
        size = desc.dims[4 - dimension]
        require_dim(dimension, size, "gates", {"added": added, "state": state, **outputs}, "c1")
    operands = {"added": added, "state": state, **outputs}
    require_fields(desc.type, desc.format, operands, "c2", "c3")


def _lstmact(fused: Ztensor, added: Ztensor, state: Ztensor, h: Ztensor, c: Ztensor) -> bool:
    states, rows, violated = _step(fused, added, state)
    states.take_cell(state)
    places = states.place(h, 0, 0), states.place(c, 0, 0)
    return states.lstm(*rows, h, places[0], c, places[1]) or violated


def _gruact(fused: Ztensor, added: Ztensor, state: Ztensor, h: Ztensor) -> bool:
    states, rows, violated = _step(fused, added, state)
    return states.gru(*rows, h, states.place(h, 0, 0)) or violated


def _step(
    fused: Ztensor, added: Ztensor, state: Ztensor
) -> tuple[States, tuple[Singles, Singles], bool]:
    """Return the state, the gates of each row side by side, and whether a NINF is among them."""
    size, batch = state.transformed_desc.dim1, state.transformed_desc.dim2
    states = States(state, (0, batch), (size, size))
    rows, violated = list[Singles](), states.any_ninf
    for gates in (fused, added):
        values, any_ninf = stick.read_fp32(gates.sticks, gates.transformed_desc)
        rows.append(values[:, 0].transpose(1, 0, 2).reshape(-1))
        violated |= any_ninf
    return states, (rows[0], rows[1]), violated


ACTIVATIONS: dict[int, Operation] = {
    LSTM: define(
        _lstmact, FunctionCode.NNPA_LSTMACT, FORMAT_0, verify=_verify, outputs=("h", "c"),
    ),
    GRU: define(
        _gruact, FunctionCode.NNPA_GRUACT, FORMAT_0, verify=_verify, outputs=("h",),
    ),
}  # fmt: skip
"""The operations by the number of gates."""
