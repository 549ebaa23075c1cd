# SPDX-License-Identifier: Apache-2.0
"""Gates and directions of recurrent layers, concatenated into sticks and taken apart."""

import math

import ml_dtypes
import numpy as np
import pytest
from nnpa_emulator import Malformed, Outcome, Status, Ztensor
from nnpa_emulator import ztensor as structs
from nnpa_emulator.machine import FunctionCode
from nnpa_emulator.ztensor import getsize_ztensor

from tests.emulator.transforms import (
    BFLOAT,
    FAILED,
    FP16,
    FP32,
    OK,
    WARNED,
    L,
    back,
    code_of,
    described,
    fresh,
    guest,
    sample,
    transform,
)
from tests.oracle import stick as places

# RNN_TYPE x PREV_LAYER x USAGE: what the library generates for hidden size 5, input size 34.
CONCATENATED = [
    (rnn, previous, usage)
    for rnn in (structs.RNN_TYPE_LSTM, structs.RNN_TYPE_GRU)
    for previous in (structs.PREV_LAYER_UNI, structs.PREV_LAYER_BIDIR)
    for usage in (
        structs.USAGE_WEIGHTS,
        structs.USAGE_HIDDEN_WEIGHTS,
        structs.USAGE_BIASES,
        structs.USAGE_HIDDEN_BIASES,
    )
]


@pytest.mark.parametrize("kind", [FP32, FP16, BFLOAT])
@pytest.mark.parametrize(("rnn", "previous", "usage"), CONCATENATED)
def test_every_concatenation(rnn: int, previous: int, usage: int, kind: int) -> None:
    """Gates lie slice by slice in blocks of their own, halves apart where the usage says so."""
    weights = usage in (structs.USAGE_WEIGHTS, structs.USAGE_HIDDEN_WEIGHTS)
    slices, rows, columns = 2, 34 if weights else 1, 65
    dims = (slices, rows, columns) if weights else (slices, columns)
    layout = L.ZDNN_3DS if weights else L.ZDNN_2DS
    user = structs.init_pre_transformed_desc(layout, kind, *dims)
    ztensor = fresh(
        user, structs.generate_transformed_desc_concatenated(user, rnn | previous | usage)
    )
    gates = 4 if rnn == structs.RNN_TYPE_LSTM else 3
    arrays = [sample(dims, kind, gate) for gate in range(gates)]
    assert transform(guest(), ztensor, *arrays).status == OK
    halves = previous == structs.PREV_LAYER_BIDIR and usage == structs.USAGE_WEIGHTS
    offsets = places.gate_offsets(slices, gates, rows, columns, 2 if halves else 1)
    expected = np.zeros(getsize_ztensor(ztensor.transformed_desc) // 2, np.uint16)
    for gate, array in enumerate(arrays):
        codes = [code_of(float(value)) for value in array.ravel()]
        expected[offsets[:, gate].ravel() // 2] = codes
    assert np.array_equal(ztensor.sticks.view(np.uint16), expected)
    outcome = back(guest(), ztensor)
    assert outcome.status == Status.ZDNN_INVALID_LAYOUT, "concatenated tensors do not come back"


@pytest.mark.parametrize("rows", [9, 11, 32])
def test_rows_of_concatenated_weights_are_the_users(rows: int) -> None:
    """The pre-transformed rows decide the sticks; dim2 of the transformed descriptor does not."""
    user = structs.init_pre_transformed_desc(L.ZDNN_3DS, FP32, 2, rows, 65)
    right = fresh(user, structs.generate_transformed_desc_concatenated(user, structs.USAGE_WEIGHTS))
    desc = right.transformed_desc
    resized = fresh(user, desc.with_dims((desc.dim4, desc.dim3, 10, desc.dim1)))
    arrays = [sample((2, rows, 65), FP32, gate) for gate in range(4)]
    assert transform(guest(), right, *arrays).status == OK
    assert transform(guest(), resized, *arrays).status == OK
    assert np.array_equal(resized.sticks, right.sticks)


@pytest.mark.parametrize("dims", [(2, 33, 65), (2, 10, 129), (2, 0, 65), (2, 10, 0)])
def test_weights_beyond_their_sticks_are_malformed(dims: tuple[int, int, int]) -> None:
    """Users' rows and columns that need more sticks than there are, or none, are refused."""
    user = structs.init_pre_transformed_desc(L.ZDNN_3DS, FP32, 2, 10, 65)
    desc = structs.generate_transformed_desc_concatenated(user, structs.USAGE_WEIGHTS)
    ztensor = fresh(structs.init_pre_transformed_desc(L.ZDNN_3DS, FP32, *dims), desc)
    arrays = [np.ones(dims, np.float32) for _ in range(4)]
    with pytest.raises(Malformed, match=r"transformed_desc\.dims"):
        transform(guest(), ztensor, *arrays)


def _gates(machine: str, columns: int, bad: dict[int, float]) -> tuple[Outcome, Ztensor]:
    user = structs.init_pre_transformed_desc(L.ZDNN_2DS, FP32, 2, columns)
    ztensor = fresh(
        user, structs.generate_transformed_desc_concatenated(user, structs.USAGE_BIASES)
    )
    arrays = [np.ones((2, columns), np.float32) for _ in range(4)]
    for gate, value in bad.items():
        arrays[gate][0, 1] = value
    return transform(guest(machine), ztensor, *arrays), ztensor


def test_gate_that_fails_in_software() -> None:
    """An error ends the transform: earlier gates are written, later ones zero, state unchanged."""
    outcome, ztensor = _gates("telum1", 3, {1: math.nan})
    assert (outcome.status, ztensor.is_transformed) == (FAILED, False)
    codes = ztensor.sticks.view(np.uint16).reshape(-1, 64 * 32)[:, :3]
    assert codes.tolist() == [[0x3E00] * 3, [0x3E00, 0x7FFF, 0x3E00]] + [[0] * 3] * 6
    assert outcome.violation
    assert [operand.operand for operand in outcome.violation.operands] == ["data[1]"]


@pytest.mark.parametrize("gate", range(4))
def test_gate_that_warns_in_hardware(gate: int) -> None:
    """A range violation of any gate is the answer, and all slices are converted."""
    outcome, ztensor = _gates("telum2", 2049, {gate: math.inf})
    assert (outcome.status, ztensor.is_transformed) == (WARNED, True)
    assert outcome.violation
    assert outcome.violation.function == FunctionCode.NNPA_TRANSFORM
    codes = ztensor.sticks.view(np.uint16)
    assert np.count_nonzero(codes == 0x3E00) == 2 * 4 * 2049 - 1
    assert np.count_nonzero(codes == 0x7FFF) == 1


@pytest.mark.parametrize(("dims", "bad"), [
    ((1, 2, 3, 70), None), ((3, 2, 1, 64), None), ((1, 2, 33, 65), None), ((5, 2, 2, 1), None),
    ((2, 2, 2, 600), 1199), ((2, 2, 4, 600), 1199),
])  # fmt: skip
@pytest.mark.parametrize("machine", ["telum1", "telum2"])
def test_both_directions_come_back(
    machine: str, dims: tuple[int, int, int, int], bad: int | None
) -> None:
    """The output of a bidirectional layer is read as (timesteps, 2, batch, hidden), dense.

    The engine is chosen by the size of one direction, batch times hidden.
    """
    timesteps, _, batch, hidden = dims
    ztensor = described(L.ZDNN_4DS, FP32, *dims)
    array = sample(dims, FP32).astype(ml_dtypes.bfloat16).astype(np.float32)
    offsets, size = places.offsets(0, 2, (2 * timesteps, 1, batch, hidden))
    assert getsize_ztensor(ztensor.transformed_desc) == size
    codes = ztensor.sticks.view(np.uint16)
    codes[offsets.ravel() // 2] = [code_of(float(value)) for value in array.ravel()]
    if bad is not None:
        codes[offsets.ravel()[bad] // 2] = 0x7FFF
        array.reshape(-1)[bad] = math.nan
    ztensor.is_transformed = True
    outcome = back(guest(machine), ztensor)
    hardware = machine == "telum2" and batch * hidden > 2048
    assert outcome.status == (OK if bad is None else WARNED if hardware else FAILED)
    assert isinstance(outcome.value, np.ndarray)
    assert np.array_equal(outcome.value.reshape(dims), array, equal_nan=True)


def test_two_directions_go_in_as_they_lie() -> None:
    """4DS data goes in dense in the transformed dims, so two directions must come padded."""
    ztensor = described(L.ZDNN_4DS, FP32, 1, 2, 1, 3)
    assert transform(guest(), ztensor, np.arange(128, dtype=np.float32)).status == OK
    ztensor.is_transformed = False
    with pytest.raises(Malformed, match=r"data\[0\] is 24 bytes, must be 512 bytes"):
        transform(guest(), ztensor, np.ones(6, np.float32))
