# SPDX-License-Identifier: Apache-2.0
"""The ten example programs of the zDNN API Reference 1.2.0, against arithmetic in FP64."""

import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from nnpa_client import ZdnnError, connect, zdnn

EXAMPLES = Path(__file__).parents[3] / "client/python/examples"
# Largest difference that IBM's own tests of the library allow with FP32 data.
TOLERANCE = 40960 * 2.0**-24
QUANTIZED = (
    "quantized_matmul",
    "quantized_matmul_on_the_fly",
    "quantized_matmul_pre_computed",
    "quantized_matmul_pre_computed_on_the_fly",
)
NAMES = (
    "add",
    *QUANTIZED,
    "lstm_forward",
    "lstm_bidirectional",
    "lstm_multi_layer_bidirectional",
    "gru_forward",
    "quantized_ztensor",
)
TELUMS = ("telum1", "telum2")

Doubles = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """Yield the address of a server."""
    with connect() as session:
        yield session.target


def _run(name: str, target: str, machine: str) -> Any:
    with connect(target, machine):
        return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]()


def _integers(shape: tuple[int, ...], start: int) -> Doubles:
    count = np.arange(np.prod(shape), dtype=np.float64) + start
    return (np.mod(count * 5, 13) - 6).reshape(shape)


def _fractions(shape: tuple[int, ...], start: int) -> Doubles:
    count = np.arange(np.prod(shape), dtype=np.float64) + start
    return ((np.mod(count * 7, 23) - 11) / 32).reshape(shape)


def _sigmoid(x: Doubles) -> Doubles:
    return 1 / (1 + np.exp(-x))


class _Parameters:
    """The weights and biases of the recurrent examples, one array for each gate."""

    def __init__(self, gates: int, directions: int, features: int, hidden: int) -> None:
        self.weights = _gates((directions, features, hidden), 3, gates)
        self.biases = _gates((directions, hidden), 7, gates)
        self.hidden_weights = _gates((directions, hidden, hidden), 11, gates)
        self.hidden_biases = _gates((directions, hidden), 15, gates)

    def sums(self, direction: int, x: Doubles, h: Doubles) -> list[tuple[Doubles, Doubles]]:
        """Return for each gate the sum over the input and the sum over the hidden state."""
        parts = zip(self.weights, self.biases, self.hidden_weights, self.hidden_biases, strict=True)
        d = direction
        return [(x @ w[d] + b[d], h @ v[d] + c[d]) for w, b, v, c in parts]


def _gates(shape: tuple[int, ...], start: int, gates: int) -> list[Doubles]:
    return [_fractions(shape, start + gate) for gate in range(gates)]


def _lstm(
    x: Doubles, parameters: _Parameters, direction: int, h: Doubles, c: Doubles
) -> tuple[Doubles, Doubles]:
    """Return all hidden states, in the order of the input, and the last cell state."""
    steps = range(len(x)) if direction == 0 else reversed(range(len(x)))
    states = np.empty((len(x), *h.shape))
    for step in steps:
        forget, enter, cell, leave = (a + b for a, b in parameters.sums(direction, x[step], h))
        c = _sigmoid(forget) * c + _sigmoid(enter) * np.tanh(cell)
        states[step] = h = _sigmoid(leave) * np.tanh(c)
    return states, c


def _bidirectional(x: Doubles, hidden: int) -> tuple[Doubles, Doubles]:
    """Return (timesteps, 2, batches, hidden) states and (1, 2, batches, hidden) cells."""
    parameters = _Parameters(4, 2, x.shape[2], hidden)
    shape = (2, x.shape[1], hidden)
    h0, c0 = _fractions(shape, 1), _fractions(shape, 2)
    ways = [_lstm(x, parameters, way, h0[way], c0[way]) for way in range(2)]
    return np.stack([result[0] for result in ways], axis=1), np.stack(
        [result[1] for result in ways]
    )[None]


def test_the_ten_programs() -> None:
    """The examples are the ten programs of the manual, and each has a test below."""
    programs = {path.stem for path in EXAMPLES.glob("*.py") if not path.stem.startswith("mli_")}
    assert programs == set(NAMES)


@pytest.mark.parametrize("machine", TELUMS)
def test_add(target: str, machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The sum of two counts from 0 to 127 is exact, and every element is printed."""
    result = _run("add", target, machine)
    expected = 2 * np.mod(np.arange(1 * 32 * 32 * 3), 128)
    np.testing.assert_array_equal(result, expected)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"out element {i} {value}.000000" for i, value in enumerate(expected)]


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_matmul(target: str, name: str) -> None:
    """Integer products plus biases come out exact, and clipped to the range of INT8."""
    result = _run(name, target, "telum2")
    product = _integers((2, 3, 4), 0) @ _integers((2, 4, 5), 1) + _integers((2, 1, 5), 2)
    np.testing.assert_array_equal(result, np.clip(product, -128, 127))


@pytest.mark.parametrize("name", [*QUANTIZED])
def test_quantized_matmul_needs_telum2(target: str, name: str) -> None:
    """Telum I has none of the functions that the quantized examples need."""
    with pytest.raises(ZdnnError) as caught:
        _run(name, target, "telum1")
    assert caught.value.status == zdnn.ZDNN_UNAVAILABLE_FUNCTION


@pytest.mark.parametrize("machine", TELUMS)
def test_lstm_forward(target: str, machine: str) -> None:
    """The last hidden state and cell state of five timesteps follow the LSTM formula."""
    hn_output, cf_output = _run("lstm_forward", target, machine)
    parameters = _Parameters(4, 1, 32, 5)
    x, h0, c0 = _fractions((5, 3, 32), 0), _fractions((3, 5), 1), _fractions((3, 5), 2)
    states, cells = _lstm(x, parameters, 0, h0, c0)
    np.testing.assert_allclose(hn_output, states[None, None, -1], rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(cf_output, cells[None, None], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("machine", TELUMS)
def test_lstm_bidirectional(target: str, machine: str) -> None:
    """Both ways over the input: all hidden states in its order, the last cell of each way."""
    hn_output, cf_output = _run("lstm_bidirectional", target, machine)
    states, cells = _bidirectional(_fractions((5, 3, 32), 0), 5)
    np.testing.assert_allclose(hn_output, states, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(cf_output, cells, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("machine", TELUMS)
def test_lstm_multi_layer_bidirectional(target: str, machine: str) -> None:
    """The second layer reads both halves of the first one's sticks as they are."""
    first, second = _run("lstm_multi_layer_bidirectional", target, machine)
    states, _cells = _bidirectional(_fractions((5, 3, 32), 0), 5)
    np.testing.assert_allclose(first, states, rtol=0, atol=TOLERANCE)
    joined = states.transpose(0, 2, 1, 3).reshape(5, 3, 10)
    np.testing.assert_allclose(second, _bidirectional(joined, 4)[0], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("machine", TELUMS)
def test_gru_forward(target: str, machine: str) -> None:
    """The last hidden state of five timesteps follows the GRU formula, reset after linear."""
    hn_output = _run("gru_forward", target, machine)
    parameters = _Parameters(3, 1, 32, 5)
    h = _fractions((3, 5), 1)
    for x in _fractions((5, 3, 32), 0):
        update, reset, hidden = parameters.sums(0, x, h)
        z = _sigmoid(update[0] + update[1])
        r = _sigmoid(reset[0] + reset[1])
        h = (1 - z) * np.tanh(hidden[0] + r * hidden[1]) + z * h
    np.testing.assert_allclose(hn_output, h[None, None], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("machine", TELUMS)
def test_quantized_ztensor(target: str, machine: str) -> None:
    """The ztensor keeps the reciprocal of the scale and the offset, and no buffer in the end."""
    ztensor = _run("quantized_ztensor", target, machine)
    assert ztensor.rec_scale == np.float32(1) / np.float32(3)
    assert ztensor.offset == 2
    assert ztensor.is_transformed
    assert ztensor.buffer is None


def test_lstm_bidirectional_as_printed(target: str, tmp_path: Path) -> None:
    """The example changes one line of the manual: as printed, cf_output has four sizes of three."""
    source = (EXAMPLES / "lstm_bidirectional.py").read_text()
    ours = "ZDNN_4DS, type, 1, 2, num_batches, num_hidden"
    assert source.count(ours) == 1
    printed = tmp_path / "printed.py"
    printed.write_text(source.replace(ours, ours.replace("4DS", "3DS")))
    wrong = pytest.raises(TypeError, match="layout ZDNN_3DS has 3, not 4")
    with connect(target, precheck=True), wrong:
        runpy.run_path(str(printed))["main"]()


def test_as_a_program(target: str) -> None:
    """An example is a program of its own that takes the server's address."""
    program = [sys.executable, str(EXAMPLES / "add.py"), target]
    answer = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60)
    assert answer.stderr == ""
    assert answer.stdout.splitlines()[-1] == "out element 3071 254.000000"
