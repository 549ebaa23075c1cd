# SPDX-License-Identifier: Apache-2.0
"""Gates by name, and sizes of scratch areas, against the formulas of the manual."""

import numpy as np
import numpy.typing as npt
import pytest
from nnpa_client import Session, zdnn
from nnpa_client.rnn import gru_gates, lstm_gates, quantized_matmul_work_area_size

# Largest difference that IBM's own tests of the library allow with FP32 data.
TOLERANCE = 40960 * 2.0**-24
TIMESTEPS, BATCHES, FEATURES, HIDDEN = 4, 3, 7, 6

# What each gate has, in the order of _layer: W, R, Wb, Rb of the manual's formulas.
USAGES = (
    zdnn.USAGE_WEIGHTS,
    zdnn.USAGE_HIDDEN_WEIGHTS,
    zdnn.USAGE_BIASES,
    zdnn.USAGE_HIDDEN_BIASES,
)

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Layer = dict[str, tuple[Floats, Floats, Floats, Floats]]


def _random(*shape: int, seed: int) -> Floats:
    numbers = np.random.default_rng(seed).uniform(-1, 1, shape)
    return numbers.astype(np.float16).astype(np.float32)


def _sigmoid(x: Doubles) -> Doubles:
    return 1 / (1 + np.exp(-x))


def _layer(gates: str) -> Layer:
    """Return W, R, Wb, Rb of each gate as the manual's formulas have them."""
    return {
        gate: (
            _random(HIDDEN, FEATURES, seed=4 * place),
            _random(HIDDEN, HIDDEN, seed=4 * place + 1),
            _random(HIDDEN, seed=4 * place + 2),
            _random(HIDDEN, seed=4 * place + 3),
        )
        for place, gate in enumerate(gates)
    }


def _lstm(layer: Layer, x: Floats, h: Doubles, c: Doubles) -> tuple[list[Doubles], Doubles]:
    """Return the hidden states of all timesteps, and the last cell state, by the formula."""
    states: list[Doubles] = []
    for step in x:
        sums = {
            gate: step @ w.T.astype(np.float64) + h @ r.T.astype(np.float64) + wb + rb
            for gate, (w, r, wb, rb) in layer.items()
        }
        c = _sigmoid(sums["f"]) * c + _sigmoid(sums["i"]) * np.tanh(sums["c"])
        h = _sigmoid(sums["o"]) * np.tanh(c)
        states.append(h)
    return states, c


def _gru(layer: Layer, x: Floats, h: Doubles) -> list[Doubles]:
    """Return the hidden states of all timesteps by the formula."""
    states: list[Doubles] = []
    for step in x:
        at = {
            gate: (step @ w.T.astype(np.float64) + wb, h @ r.T.astype(np.float64) + rb)
            for gate, (w, r, wb, rb) in layer.items()
        }
        z, r = (_sigmoid(at[gate][0] + at[gate][1]) for gate in "zr")
        h = (1 - z) * np.tanh(at["h"][0] + r * at["h"][1]) + z * h
        states.append(h)
    return states


def test_lstm_formula(session: Session) -> None:
    """An LSTM with gates given by name follows the formula of its description, step by step."""
    layer = _layer("fico")
    x = _random(TIMESTEPS, BATCHES, FEATURES, seed=91)
    h0, c0 = _random(BATCHES, HIDDEN, seed=92), _random(BATCHES, HIDDEN, seed=93)
    f, i, c, o = ([part.T for part in layer[gate]] for gate in "fico")
    weights, hidden_weights, biases, hidden_biases = (
        lstm_gates(session, usage, output=o[part], cell=c[part], input=i[part], forget=f[part])
        for part, usage in enumerate(USAGES)
    )
    hn_output, cf_output = zdnn.lstm(
        session.ztensor(x, zdnn.ZDNN_3DS),
        session.ztensor(h0[None], zdnn.ZDNN_3DS),
        session.ztensor(c0[None], zdnn.ZDNN_3DS),
        weights,
        biases,
        hidden_weights,
        hidden_biases,
        zdnn.FWD,
        all_timesteps=True,
    )
    states, cells = _lstm(layer, x, h0.astype(np.float64), c0.astype(np.float64))
    np.testing.assert_allclose(hn_output.numpy()[:, 0], states, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(cf_output.numpy()[0, 0], cells, rtol=0, atol=TOLERANCE)


def test_gru_formula(session: Session) -> None:
    """A GRU with gates given by name follows the formula of its description, step by step."""
    layer = _layer("zrh")
    x = _random(TIMESTEPS, BATCHES, FEATURES, seed=91)
    h0 = _random(BATCHES, HIDDEN, seed=92)
    z, r, h = ([part.T for part in layer[gate]] for gate in "zrh")
    weights, hidden_weights, biases, hidden_biases = (
        gru_gates(session, usage, hidden=h[part], reset=r[part], update=z[part])
        for part, usage in enumerate(USAGES)
    )
    hn_output = zdnn.gru(
        session.ztensor(x, zdnn.ZDNN_3DS),
        session.ztensor(h0[None], zdnn.ZDNN_3DS),
        weights,
        biases,
        hidden_weights,
        hidden_biases,
        zdnn.FWD,
        all_timesteps=True,
    )
    states = _gru(layer, x, h0.astype(np.float64))
    np.testing.assert_allclose(hn_output.numpy()[:, 0], states, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("usage", [zdnn.USAGE_WEIGHTS, zdnn.USAGE_HIDDEN_WEIGHTS])
@pytest.mark.parametrize("prev_layer", [zdnn.PREV_LAYER_NONE, zdnn.PREV_LAYER_BIDIR])
def test_same_sticks_as_line_by_line(session: Session, usage: int, prev_layer: int) -> None:
    """Named gates make the ztensor that the C calls make with the gates in order F, I, C, O."""
    f, i, c, o = (_random(2, 8, HIDDEN, seed=seed) for seed in range(4))
    named = lstm_gates(session, usage, cell=c, forget=f, output=o, input=i, prev_layer=prev_layer)
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_3DS, zdnn.FP32, 2, 8, HIDDEN)
    info = zdnn.RNN_TYPE_LSTM | usage | prev_layer
    tfrmd = zdnn.generate_transformed_desc_concatenated(pre, info)
    plain = session.init_ztensor_with_malloc(pre, tfrmd)
    zdnn.transform_ztensor(plain, f, i, c, o)
    assert named.transformed_desc == plain.transformed_desc
    np.testing.assert_array_equal(named.buffer, plain.buffer)


def test_shapes_of_gates(session: Session) -> None:
    """Gates of different shapes, or of too many dims, are refused with the shapes named."""
    weights = np.zeros((3, 4), np.float32)
    with pytest.raises(ValueError, match=r"gates: shapes \[\(3, 4\), \(4, 4\)\]"):
        gru_gates(
            session,
            zdnn.USAGE_WEIGHTS,
            update=weights,
            reset=weights,
            hidden=np.zeros((4, 4), np.float32),
        )
    with pytest.raises(ValueError, match=r"expected one of 1 or 2 dims"):
        gru_gates(
            session,
            zdnn.USAGE_BIASES,
            update=weights[None],
            reset=weights[None],
            hidden=weights[None],
        )


@pytest.mark.parametrize(("columns", "pages"), [(1, 1), (64, 1), (65, 2), (128, 2), (129, 3)])
def test_quantized_work_area(columns: int, pages: int) -> None:
    """The quantized product keeps one DLFLOAT16 row per stack: a page for 64 columns."""
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_2DS, zdnn.INT8, 3, columns)
    c = zdnn.generate_quantized_transformed_desc(pre, zdnn.QUANTIZED_INT8)
    assert quantized_matmul_work_area_size(c) == 3 * pages * 4096
