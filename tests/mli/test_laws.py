# SPDX-License-Identifier: Apache-2.0
"""Laws of the MLI emulator, over random tensors, against the big-integer model."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import mli_emulator as mli
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mli_emulator import (
    Accumulator,
    ElType,
    FxParams,
    MliStatus,
    Options,
    Outcome,
    RnnCellCfg,
    RnnMode,
    RnnOutActivation,
    Rounding,
    Tensor,
)
from mli_emulator.activation import SIGM, TANH
from mli_emulator.fixedpoint import accumulate, matrix, round_shift, scale_rounded

from tests.mli.golden_records import SIZES, TYPES, call
from tests.mli.strategies import LAW, ROUNDINGS, integers, values
from tests.oracle import mli as oracle

VARIANTS = st.sampled_from(sorted(TYPES))
ACTS = st.sampled_from(["none", "tanh", "sigm"])


@dataclass(frozen=True)
class Layer:
    """Operands of a recurrent or fully connected layer, as plain integers."""

    variant: str
    frames: list[list[int]]
    h: list[int]
    w: list[list[int]]
    b: list[int]
    cell: list[int]
    bits: tuple[int, int, int, int, int]

    def tensors(self, gates: int) -> dict[str, Tensor]:
        """The input tensors of a recurrent kernel; ``gates`` > 1 adds a leading dimension."""
        io, weight_type = TYPES[self.variant]
        fin, fh, fw, fb, _ = self.bits
        lead = (gates,) if gates > 1 else ()
        m = len(self.h)
        return {
            "in_": mli.from_array(self.frames, io, FxParams(fin)),
            "prev_out": mli.from_array(self.h, io, FxParams(fh)),
            "weights": mli.from_array(
                np.reshape(self.w, (*lead, m, -1)), weight_type, FxParams(fw)
            ),
            "bias": mli.from_array(np.reshape(self.b, (*lead, m)), weight_type, FxParams(fb)),
        }


@st.composite
def layers(draw: st.DrawFn, gates: int) -> Layer:
    """A layer of up to 3 frames, 5 inputs and 3 outputs, formats that shift both ways."""
    variant = draw(VARIANTS)
    io, weight_type = TYPES[variant]
    io_bits, w_bits = 8 * SIZES[io], 8 * SIZES[weight_type]
    n, m, frames = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    fin, fw = draw(st.integers(0, 18)), draw(st.integers(0, 18))
    fb = draw(st.integers(max(0, fin + fw - 20), fin + fw))
    fh, last = draw(st.integers(0, 18)), draw(st.integers(0, io_bits + 2))
    return Layer(
        variant,
        [draw(integers(io_bits, n)) for _ in range(frames)],
        draw(integers(io_bits, m)),
        [draw(integers(w_bits, n + m)) for _ in range(gates * m)],
        draw(integers(w_bits, gates * m)),
        draw(integers(io_bits, m)),
        (fin, fh, fw, fb, last),
    )


def run_rnn(
    layer: Layer, mode: RnnMode, act: str, options: Options
) -> tuple[Outcome, Tensor, Tensor]:
    """Basic RNN cell: outcome, output, intermediate tensor."""
    io = TYPES[layer.variant][0]
    size = len(layer.frames) * len(layer.h) * SIZES[io]
    out, ir = mli.empty(size, io, FxParams(layer.bits[4])), mli.empty(size, io)
    cfg = RnnCellCfg(mode, RnnOutActivation[f"RNN_ACT_{act.upper()}"], ir)
    name = f"krn_basic_rnn_cell_{layer.variant}"
    return call(name, **layer.tensors(1), cfg=cfg, out=out, options=options), out, ir


def run_lstm(
    layer: Layer, mode: RnnMode, act: str, options: Options
) -> tuple[Outcome, Tensor, Tensor]:
    """LSTM cell: outcome, output, cell."""
    io = TYPES[layer.variant][0]
    size = len(layer.frames) * len(layer.h) * SIZES[io]
    cell = mli.from_array(layer.cell, io, FxParams(layer.bits[4]))
    ir = mli.empty(4 * len(layer.h) * SIZES[io], io)
    cfg = RnnCellCfg(mode, RnnOutActivation[f"RNN_ACT_{act.upper()}"], ir)
    out = mli.empty(size, io)
    name = f"krn_lstm_cell_{layer.variant}"
    outcome = call(name, **layer.tensors(4), cfg=cfg, cell=cell, out=out, options=options)
    return outcome, out, cell


@LAW
@given(layers(1), ROUNDINGS, st.integers(0, 20))
def test_fully_connected_equals_the_integer_model(
    layer: Layer, rounding: Rounding, fout: int
) -> None:
    """Fully connected equals the sum over unbounded integers, rounded and saturated once."""
    io, weight_type = TYPES[layer.variant]
    fin, _, fw, fb, _ = layer.bits
    x = layer.frames[0] + layer.h
    out = mli.empty(len(layer.h) * SIZES[io], io, FxParams(fout))
    outcome = call(
        f"krn_fully_connected_{layer.variant}",
        in_=mli.from_array(x, io, FxParams(fin)),
        weights=mli.from_array(layer.w, weight_type, FxParams(fw)),
        bias=mli.from_array(layer.b, weight_type, FxParams(fb)),
        out=out,
        options=Options(rounding),
    )
    kind, up = oracle.KINDS[layer.variant], rounding is Rounding.UP
    bits = (fin, fw, fb, fout)
    assert outcome.status is MliStatus.MLI_STATUS_OK
    assert values(out) == oracle.fully_connected(kind, x, layer.w, layer.b, bits, up)


@LAW
@given(layers(1), ACTS, ROUNDINGS)
def test_basic_rnn_equals_the_integer_model(layer: Layer, act: str, rounding: Rounding) -> None:
    """Every frame of the basic RNN cell equals the model's."""
    outcome, out, _ = run_rnn(layer, RnnMode.RNN_BATCH_TO_BATCH, act, Options(rounding))
    kind, up = oracle.KINDS[layer.variant], rounding is Rounding.UP
    model = oracle.basic_rnn(kind, layer.frames, layer.h, layer.w, layer.b, layer.bits, act, up)
    assert outcome.status is MliStatus.MLI_STATUS_OK
    assert values(out) == [v for frame in model for v in frame]


@LAW
@given(layers(4), ACTS, ROUNDINGS)
def test_lstm_equals_the_integer_model(layer: Layer, act: str, rounding: Rounding) -> None:
    """Every frame of the LSTM cell, and the cell state after the last, equal the model's."""
    outcome, out, cell = run_lstm(layer, RnnMode.RNN_BATCH_TO_BATCH, act, Options(rounding))
    kind, up = oracle.KINDS[layer.variant], rounding is Rounding.UP
    model, cells = oracle.lstm(
        kind, layer.frames, layer.h, layer.w, layer.b, layer.cell, layer.bits, act, up
    )
    assert outcome.status is MliStatus.MLI_STATUS_OK
    assert values(out) == [v for frame in model for v in frame]
    assert values(cell) == cells


@LAW
@given(layers(4), ACTS, st.sampled_from([run_lstm, run_rnn]))
def test_batch_to_last_is_the_last_of_batch_to_batch(
    layer: Layer,
    act: str,
    run: Callable[[Layer, RnnMode, str, Options], tuple[Outcome, Tensor, Tensor]],
) -> None:
    """RNN_BATCH_TO_LAST gives the last output of RNN_BATCH_TO_BATCH, bit for bit."""
    m = len(layer.h)
    if run is run_rnn:
        w, b = layer.w[:m], layer.b[:m]
        cut = (layer.variant, layer.frames, layer.h, w, b, layer.cell, layer.bits)
        layer = Layer(*cut)
    _, batch, state = run(layer, RnnMode.RNN_BATCH_TO_BATCH, act, Options())
    _, last, last_state = run(layer, RnnMode.RNN_BATCH_TO_LAST, act, Options())
    assert last.shape == (m,)
    assert values(last) == values(batch)[-m:]
    if run is run_lstm:
        assert values(last_state) == values(state)


@LAW
@given(layers(1), ACTS)
def test_a_sequence_equals_its_frames_one_by_one(layer: Layer, act: str) -> None:
    """RNN_BATCH_TO_BATCH equals RNN_ONE_TO_ONE calls that hand the output on as the state."""
    _, batch, _ = run_rnn(layer, RnnMode.RNN_BATCH_TO_BATCH, act, Options())
    h, outputs = layer.h, list[int]()
    for frame in layer.frames:
        part = Layer(layer.variant, [frame], h, layer.w, layer.b, layer.cell, layer.bits)
        _, out, _ = run_rnn(part, RnnMode.RNN_ONE_TO_ONE, act, Options())
        h = values(out)
        outputs += h
    assert outputs == values(batch)


@LAW
@given(st.sampled_from(["tanh", "sigm"]), st.sampled_from([8, 16]), ROUNDINGS, st.data())
def test_activation_equals_the_integer_model(
    name: str, bits: int, rounding: Rounding, data: st.DataObject
) -> None:
    """Tanh and sigmoid equal the interpolation of a table computed to 40 digits."""
    x = data.draw(integers(bits, 20))
    fin = data.draw(st.integers(0, 40))
    el_type = ElType.MLI_EL_FX_8 if bits == 8 else ElType.MLI_EL_FX_16
    out = mli.empty(len(x) * bits // 8, el_type)
    source = mli.from_array(x, el_type, FxParams(fin))
    call(f"krn_{name}_fx{bits}", in_=source, out=out, options=Options(rounding))
    up = rounding is Rounding.UP
    assert values(out) == [oracle.activation(name, v, fin, bits, up) for v in x]


@LAW
@given(integers(16, 40), integers(16, 40), st.integers(-(1 << 39), (1 << 39) - 1))
def test_hardware_accumulators_equal_the_step_by_step_ones(
    x: list[int], w: list[int], start: int
) -> None:
    """40 bits saturate after every product, 32 bits wrap, as a loop over the products does."""
    rows, frames = matrix(np.array([w])), np.array([x])
    for bits in (32, 40):
        begin = oracle.saturate(start, bits)
        limit, total = 1 << (bits - 1), begin
        for p, q in zip(x, w, strict=True):
            total += p * q
            wrapped = (total + limit) % (2 * limit) - limit
            total = wrapped if bits == 32 else oracle.saturate(total, bits)
        result, _ = accumulate(np.array([[begin]]), frames, rows, bits, Accumulator.HARDWARE)
        assert result.tolist() == [[total]]
        exact, overflow = accumulate(np.array([[begin]]), frames, rows, bits, Accumulator.EXACT)
        sums = [begin + sum(p * q for p, q in zip(x[:k], w[:k], strict=True)) for k in range(41)]
        assert exact.tolist() == [[sums[-1]]]
        assert overflow == any(not -limit <= s < limit for s in sums)


@pytest.mark.parametrize("rounding", list(Rounding))
def test_rounding_shift_equals_the_fraction(rounding: Rounding) -> None:
    """A rounding shift equals nearest over fractions for small values, corners and any count."""
    x = [
        *range(-70, 71),
        *(s * (1 << k) + d for k in (7, 31, 47) for s in (-1, 1) for d in (-1, 0, 1)),
    ]
    nearest = partial(oracle.nearest, up=rounding is Rounding.UP)
    for n in (0, 1, 2, 3, 8, 33, 46, 61, 62, 63, 200):
        actual = round_shift(np.array(x), n, rounding).tolist()
        assert actual == [nearest(v / oracle.power(n)) for v in x]
    for n in (-200, -63, -32, -31, -9, -1, 0, 1, 40):
        for bits in (8, 16, 32):
            actual = scale_rounded(np.array(x), n, bits, rounding).tolist()
            assert actual == [oracle.saturate(nearest(v / oracle.power(n)), bits) for v in x]


def test_tables_hold_the_published_entries() -> None:
    """Both tables have the length, sum and weighted sum of the library's, and equal the model's."""
    for name, table, length, total, weighted in (
        ("tanh", TANH, 178, -32767, 249714011),
        ("sigm", SIGM, 180, 2932735, 394668262),
    ):
        entries = table.entries.tolist()
        assert (len(entries), sum(entries)) == (length, total)
        assert sum((i + 1) * v for i, v in enumerate(entries)) == weighted
        assert (entries, table.zero, table.frac_bits) == oracle.table(name)
