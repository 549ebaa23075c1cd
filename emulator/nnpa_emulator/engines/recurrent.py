# SPDX-License-Identifier: Apache-2.0
"""Gates and states of recurrent layers: whole sequences, or dense values block by block.

Whole layers are those with FP32 sums, bounded size, and nothing large between the gates. All others
go step by step: gate sums are products on sticks, rounded to DLFLOAT16 with their bias and kept as
FP32; rows of the batch do not depend on each other, so large batches go through the sequence in
pieces. Scratch: `GATES` elements of gates and of input, `WEIGHTS` elements of weights for each of
the two products; gates of a sequence that need more are computed twice, once to know whether they
violate the range.
Source: zDNN API Reference 1.2.0, zdnn_lstm and zdnn_gru; rounding points are the zDNN library's.
"""

from collections.abc import Mapping

import numpy as np

from nnpa_emulator.dlfloat import NINF
from nnpa_emulator.engines import operands
from nnpa_emulator.engines.matmul import MAX_PANELS, Panel, Range, place_of, read_block, spans
from nnpa_emulator.interruption import go_on
from nnpa_emulator.kernels import matmul_blocks, recurrent
from nnpa_emulator.kernels import recurrent_layers as layers
from nnpa_emulator.machine import Guest
from nnpa_emulator.reference.layout import Singles
from nnpa_emulator.reference.recurrent import Corner
from nnpa_emulator.reference.recurrent_layers import UNITS
from nnpa_emulator.scratch import aligned, scratch
from nnpa_emulator.ztensor import Ztensor, padded

GATES = 1 << 24
"""Most elements of dense gates, and of dense input: 64 MiB each."""
WEIGHTS = 1 << 25
"""Most elements of dense weights: 128 MiB, twice that in float64."""


NO_CODES = np.empty(0, np.uint16)


class Whole:
    """A layer, or one direction of it, that goes through its sequence in one call of a kernel."""

    def __init__(self, tensors: Mapping[str, Ztensor], gates: int) -> None:
        self._tensors = tensors
        source = tensors["input"].transformed_desc
        hidden = tensors["h0"].transformed_desc.dim1
        self._shape = source.dim4, source.dim2, source.dim1, hidden, gates
        self._panels = -(-hidden // UNITS)
        self._width = self._panels * gates * UNITS
        self._fused = NO_CODES

    def fits(self) -> bool:
        """Return True if gates and weights fit the bounds of scratch and of the cache."""
        timesteps, batch, features, hidden, _ = self._shape
        gates, weights = timesteps * batch * self._width, max(features, hidden) * self._width
        return gates <= GATES and weights <= MAX_PANELS

    def _weights(self, name: str) -> Singles:
        """Return the panels of a matrix of weights, and the largest magnitude between its gates."""
        tensor, (_, _, _, hidden, gates) = self._tensors[name], self._shape
        rows = tensor.transformed_desc.dim2

        def widen(_lasting: bool) -> tuple[Singles, bool]:
            panels: Singles = aligned((rows * self._width + 1,))
            words = panels.view(np.uint32)
            panels[-1] = layers.gate_panels(tensor.sticks, words, 0, rows, hidden, gates)
            return panels, False

        return operands.dense(tensor.sticks, ("layer", rows, hidden, gates), widen)[0]

    def fuse(self) -> int:
        """Compute the input's contribution to the gates; return the kernel's end state."""
        panels = self._weights("weights")
        tensors, rows = self._tensors, self._shape[0] * self._shape[1]
        self._fused = scratch("fused", (rows * self._width,), np.uint16)
        work = scratch("layer", (layers.LEFT + layers.TILE + self._width,), np.float32)
        source, biases = tensors["input"].sticks, tensors["biases"].sticks
        return layers.fuse(source, panels, biases, self._fused, self._shape, work)

    def run(self, outputs: tuple[Ztensor, ...], half: int, backward: bool, probing: bool) -> int:
        """Take the states through the sequence; return the kernel's end state."""
        panels = self._weights("hidden_weights")
        tensors, (_, batch, _, hidden, gates) = self._tensors, self._shape
        width = self._panels * UNITS
        size = layers.TILE + self._width + 2 * batch * (width + 16)
        work = scratch("layer", (size,), np.float32)
        new = scratch("states", (2 * batch * width,), np.uint16)
        descs = outputs[0].transformed_desc, outputs[-1].transformed_desc
        wide, first = -(-descs[0].dim1 // 64), half * (padded(hidden) // 64)
        target = descs[0].dim4, descs[1].dim4, wide, first
        h0 = tensors["h0"].sticks
        c0 = tensors["c0"].sticks if gates == 4 and not probing else h0
        h_output, c_output = (h0, h0) if probing else (outputs[0].sticks, outputs[-1].sticks)
        return layers.run_layer(
            self._fused, panels, tensors["hidden_biases"].sticks, h0, c0, h_output, c_output,
            self._shape, target, backward, probing, work, new,
        )  # fmt: skip


def _real_columns(tensor: Ztensor, hidden: int, role: str) -> tuple[Singles, bool]:
    """Return a matrix of gates, and whether it has a NINF; without padding if that is all zero.

    Sums of padding that is zero are zero, and nothing reads them.
    """
    desc = tensor.transformed_desc
    rows, columns, gate = (0, desc.dim2), (0, desc.dim1), padded(hidden)

    def widen(lasting: bool) -> tuple[Singles, bool]:
        dense, any_ninf = read_block(tensor, (0, 1), rows, columns, role="" if lasting else role)
        gates = dense.reshape(desc.dim2, -1, gate)
        if gates[:, :, hidden:].any():
            return dense[0], any_ninf
        return gates[:, :, :hidden].reshape(desc.dim2, -1), any_ninf

    return operands.dense(tensor.sticks, ("gates", desc.dim2, desc.dim1, hidden), widen)


class Product:
    """Rounded sums of products with one matrix of weights and one row of biases.

    `gate` is the number of columns of a gate: the hidden size, or whole sticks of it.
    """

    def __init__(
        self, guest: Guest, weights: Ztensor, biases: Ztensor, hidden: int, role: str
    ) -> None:
        singles, doubles = np.dtype(np.float32), np.dtype(np.float64)
        dtype: np.dtype[np.floating] = doubles if guest.accumulate == "fp64" else singles
        desc = weights.transformed_desc
        self.inner, self.width, self.gate = desc.dim2, desc.dim1, padded(hidden)
        self._role = role
        self._panel = Panel(weights, dtype, f"{role} weights", constant=True)
        biases_panel = Panel(biases, np.dtype(np.float32), f"{role} biases", constant=True)
        bias, self.any_ninf = biases_panel.read((0, 1), (0, 1), (0, self.width))
        self._bias: Singles = bias.reshape(-1)
        most = max(WEIGHTS // self.inner // 64, 1) * 64
        self._across = list(spans(self.width, most))
        self._dense: tuple[Singles, bool] | None = None
        if hidden != self.gate and dtype == np.float32 and len(self._across) == 1:
            self._leave_padding_out(weights, biases, hidden)

    def _leave_padding_out(self, weights: Ztensor, biases: Ztensor, hidden: int) -> None:
        """Use matrices without the columns between gates, where these are zero in both."""
        matrix = _real_columns(weights, hidden, f"{self._role} weights")
        row, _ = _real_columns(biases, hidden, f"{self._role} biases")
        if matrix[0].shape[1] == row.shape[1] < self.width:
            self.width, self.gate = row.shape[1], hidden
            self._dense, self._bias = matrix, row.reshape(-1)

    def rounded(self, rows: Singles) -> tuple[Singles, bool]:
        """Return rows * weights + biases, rounded, and whether a NINF was read or made."""
        if self._dense is not None:
            return self._sums(rows, self._dense[0], self._bias, self._dense[1])
        if len(self._across) == 1:
            return self._piece(rows, (0, self.width))
        whole = np.empty((rows.shape[0], self.width), np.float32)
        violated = False
        for across in self._across:
            go_on()
            piece, met = self._piece(rows, across)
            whole[:, across[0] : across[0] + across[1]] = piece
            violated |= met
        return whole, violated

    def _piece(self, rows: Singles, across: Range) -> tuple[Singles, bool]:
        """Return the columns of a span."""
        block, any_ninf = self._panel.read((0, 1), (0, self.inner), across)
        bias = self._bias[across[0] : across[0] + across[1]]
        if block.dtype == np.float32:
            return self._sums(rows, block[0], bias, any_ninf)
        doubles = rows.astype(np.float64) @ block[0]
        sums = np.empty(doubles.shape, np.float32)
        met = recurrent.round_doubles(doubles.reshape(-1), bias, sums.reshape(-1))
        return sums, bool(met == NINF) or any_ninf or self.any_ninf

    def _sums(
        self, rows: Singles, matrix: Singles, bias: Singles, any_ninf: bool
    ) -> tuple[Singles, bool]:
        """Sum in FP32, in scratch."""
        shape = rows.shape[0], matrix.shape[1]
        sums = scratch(f"{self._role} sums", shape, np.float32)
        np.dot(rows, matrix, out=sums)
        met = recurrent.round_sums(sums.reshape(-1), bias)
        return sums, bool(met == NINF) or any_ninf or self.any_ninf


class FusedGates:
    """The input's contribution to the gates of all timesteps."""

    def __init__(
        self, guest: Guest, source: Ztensor, weights: Ztensor, biases: Ztensor, hidden: int
    ) -> None:
        self._source = source
        self._product = Product(guest, weights, biases, hidden, "fused")
        self.gate = self._product.gate
        desc = source.transformed_desc
        widest = max(self._product.width, self._product.inner)
        self.row_spans = list(spans(desc.dim2, max(GATES // widest, 1)))
        self._together = max(GATES // (widest * self.row_spans[0][1]), 1)
        self._timesteps = desc.dim4
        self._kept: tuple[Range, int] = ((0, 0), 0)
        self._gates: Singles = np.empty(0, np.float32)

    def violated(self) -> bool:
        """Compute all gates; return True if a NINF was read or computed."""
        return any(
            self._compute(rows, first)
            for rows in self.row_spans
            for first in range(0, self._timesteps, self._together)
        )

    def read(self, rows: Range, timestep: int) -> Singles:
        """Return the gates of some rows at one timestep, one after the other."""
        first = timestep // self._together * self._together
        if self._kept != (rows, first):
            self._compute(rows, first)
        gates: Singles = self._gates[timestep - first]
        return gates

    def _compute(self, rows: Range, first: int) -> bool:
        """Compute the gates of some timesteps and keep them."""
        go_on()
        stacks = first, min(self._together, self._timesteps - first)
        columns = 0, self._product.inner
        block, any_ninf = read_block(self._source, stacks, rows, columns, role="input")
        gates, violated = self._product.rounded(block.reshape(-1, self._product.inner))
        self._gates, self._kept = gates.reshape(stacks[1], -1), (rows, first)
        return violated or any_ninf


class States:
    """Hidden and cell state of some rows of the batch, and where they are stored."""

    def __init__(self, h0: Ztensor, rows: Range, gates: tuple[int, int]) -> None:
        """Read h0; `gates` are the columns of a gate in fused and in added rows."""
        self.hidden = h0.transformed_desc.dim1
        self._rows, self._stick_width = rows, padded(self.hidden)
        h, self.any_ninf = read_block(h0, (0, 1), rows, (0, self.hidden))
        self.h: Singles = h[0]
        self._c = np.empty((1, 0, 0), np.float32)
        self._sizes = rows[1], self.hidden, *gates

    def take_cell(self, c0: Ztensor) -> None:
        """Read the cell state, once the activation has been checked: before, c0 may be anything."""
        self._c, _ = read_block(c0, (0, 1), self._rows, (0, self.hidden))

    def place(self, output: Ztensor, half: int, timestep: int) -> Corner:
        """Return where the rows of a timestep lie in one half of an output."""
        first, stack, column, _ = place_of(output.transformed_desc, (0, 1))
        corner = first + timestep * stack + half * (self._stick_width // 64) * column
        return corner + self._rows[0] * 64, column

    def lstm(
        self, fused: Singles, added: Singles, h: Ztensor, h_place: Corner,
        c: Ztensor, c_place: Corner,
    ) -> bool:  # fmt: skip
        """Make a step of LSTMACT and store the states; tell whether one became NINF."""
        met = recurrent.lstm_step(
            fused, added.reshape(-1), self.h.reshape(-1), self._c.reshape(-1), self._sizes,
            h.sticks.view(np.uint16), h_place, c.sticks.view(np.uint16), c_place,
        )  # fmt: skip
        return bool(met == NINF)

    def gru(self, fused: Singles, added: Singles, h: Ztensor, h_place: Corner) -> bool:
        """Make a step of GRUACT and store the state; tell whether it became NINF."""
        cells = h.sticks.view(np.uint16)
        met = recurrent.gru_step(
            fused, added.reshape(-1), self.h.reshape(-1), self._sizes, cells, h_place
        )
        return bool(met == NINF)


NOWHERE: Corner = (-1, 0)
"""The place of a state that stays in the work area."""


def clear_padding(output: Ztensor, half: int, stick_width: int, rows: int, hidden: int) -> None:
    """Zero the cells behind the rows and the columns of one half of all timesteps."""
    desc = output.transformed_desc
    first, stack, column, stacks = place_of(desc, (0, desc.dim4))
    corner = first + half * (stick_width // 64) * column
    place = corner, stack, column, stacks
    matmul_blocks.clear_padding(output.sticks.view(np.uint16), place, rows, hidden)
