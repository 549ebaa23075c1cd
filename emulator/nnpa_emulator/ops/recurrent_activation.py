# SPDX-License-Identifier: Apache-2.0
"""NNPA-LSTMACT and NNPA-GRUACT by themselves, functions 96 and 97: one step of a layer.

Shapes: gates of the input `fused` and of the state `added` (4 or 3,1,b,s), in the order F, I, C, O
or Z, R, H; `state` (1,1,b,s), c of LSTM and h of GRU; `h` and `c` (1,1,b,s).
Fidelity: as `recurrent`. Source: zDNN API Reference 1.2.0, zdnn_lstm and zdnn_gru.
"""

from dataclasses import replace

from nnpa_emulator import stick
from nnpa_emulator.engines.recurrent import Singles, States
from nnpa_emulator.recurrent_layer import ACTIVATIONS, GRU, LSTM
from nnpa_emulator.ztensor import Ztensor


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


LSTMACT = replace(ACTIVATIONS[LSTM], compute=_lstmact)
GRUACT = replace(ACTIVATIONS[GRU], compute=_gruact)
