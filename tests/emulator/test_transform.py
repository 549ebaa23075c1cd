# SPDX-License-Identifier: Apache-2.0
"""Transforms: every layout and type there and back, engines, states, flags, explanations.

Places in sticks come from `tests/oracle/stick.py`, codes from `tests/oracle/dlfloat.py`. What the
two engines answer is the zDNN library's behaviour.
"""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from nnpa_emulator import MACHINES, Guest, Malformed, Outcome, Status, TensorDesc, Ztensor, run
from nnpa_emulator import ztensor as structs
from nnpa_emulator.machine import FunctionCode
from nnpa_emulator.ztensor import DataFormats, DataLayouts, DataTypes, getsize_ztensor

from tests.oracle import dlfloat as oracle
from tests.oracle import stick as places

L = DataLayouts
FP32, FP16, BFLOAT, INT8 = DataTypes.FP32, DataTypes.FP16, DataTypes.BFLOAT, DataTypes.INT8
Array = npt.NDArray[Any]
DTYPES = {FP32: np.float32, FP16: np.float16, BFLOAT: ml_dtypes.bfloat16, INT8: np.int8}
OK, WARNED = Status.ZDNN_OK, Status.ZDNN_ELEMENT_RANGE_VIOLATION
FAILED = Status.ZDNN_CONVERT_FAILURE
LAYOUTS = {
    L.ZDNN_1D: (70,),
    L.ZDNN_2D: (33, 65),
    L.ZDNN_2DS: (3, 65),
    L.ZDNN_3D: (2, 33, 3),
    L.ZDNN_3DS: (2, 33, 65),
    L.ZDNN_4D: (2, 3, 33, 65),
    L.ZDNN_4DS: (2, 1, 33, 65),
    L.ZDNN_NHWC: (2, 3, 33, 2),
    L.ZDNN_NCHW: (2, 65, 3, 33),
    L.ZDNN_HWCK: (2, 3, 33, 65),
}


def guest(machine: str = "telum2", library: str = "1.2.0") -> Guest:
    """Return a program on a machine."""
    return Guest(MACHINES[machine], library)


def fresh(user: TensorDesc, desc: TensorDesc) -> Ztensor:
    """Return a ztensor whose buffer is full of garbage."""
    size = getsize_ztensor(desc)
    return Ztensor(user, desc, size, np.full(size, 0x5A, np.uint8))


def described(layout: int, kind: int, *dims: int) -> Ztensor:
    """Return a ztensor with the descriptors that the library generates."""
    user = structs.init_pre_transformed_desc(layout, kind, *dims)
    return fresh(user, structs.generate_transformed_desc(user))


def transform(
    mine: Guest, one: Ztensor, *arrays: Array, name: str = "transform_ztensor"
) -> Outcome:
    """Transform arrays into a ztensor."""
    return run(mine, name, {"ztensor": one, "data": arrays})


def back(mine: Guest, one: Ztensor) -> Outcome:
    """Transform a ztensor back."""
    return run(mine, "transform_origtensor", {"ztensor": one})


def sample(shape: tuple[int, ...], kind: int, seed: int = 1) -> Array:
    """Return random values that have some 2^8 different exponents and both signs."""
    random = np.random.default_rng(seed)
    exponents = random.integers(-10, 10, shape)
    return (random.standard_normal(shape) * np.exp2(exponents)).astype(DTYPES[DataTypes(kind)])


def code_of(value: float) -> int:
    """Round a finite value by exact arithmetic."""
    return oracle.rounded(Fraction(value), math.copysign(1, value) < 0)


@pytest.mark.parametrize("machine", ["telum1", "telum2", "telum1 1.0.0"])
@pytest.mark.parametrize("kind", [FP32, FP16, BFLOAT])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_cells_of_every_layout(layout: int, kind: int, machine: str) -> None:
    """Each element lies where the walk through memory finds it, rounded once; padding is zero."""
    dims = LAYOUTS[L(layout)]
    one = described(layout, kind, *dims)
    array = sample(dims, kind)
    name, _, library = machine.partition(" ")
    assert transform(guest(name, library or "1.2.0"), one, array).status == OK
    desc = one.transformed_desc
    ordered = array.transpose(0, 2, 3, 1) if layout == L.ZDNN_NCHW else array
    offsets, size = places.offsets(desc.format, 2, desc.dims)
    wanted = np.zeros(size // 2, np.uint16)
    wanted[offsets.ravel() // 2] = [code_of(float(value)) for value in ordered.ravel()]
    assert np.array_equal(one.sticks.view(np.uint16), wanted)
    assert one.is_transformed


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
@pytest.mark.parametrize("kind", [FP32, FP16, BFLOAT])
@pytest.mark.parametrize("layout", [one for one in LAYOUTS if one != L.ZDNN_HWCK])
def test_there_and_back(layout: int, kind: int, machine: str) -> None:
    """A round trip returns the user's shape and type, each element within its one rounding."""
    dims = LAYOUTS[L(layout)]
    one, array, mine = described(layout, kind, *dims), sample(dims, kind), guest(machine)
    assert transform(mine, one, array).status == OK
    outcome = back(mine, one)
    assert (outcome.status, outcome.violation) == (OK, None)
    result = outcome.value
    assert isinstance(result, np.ndarray)
    assert (result.size, result.dtype) == (array.size, array.dtype)
    wide = result.reshape(dims).astype(np.float64)
    assert np.all(
        np.abs(wide - array.astype(np.float64)) <= np.abs(array.astype(np.float64)) / 1024
    )
    assert back(mine, one).status == OK, "may be repeated"


def test_kernels_do_not_come_back() -> None:
    """A 4DKERNEL tensor is transformed but never transformed back."""
    one = described(L.ZDNN_HWCK, FP32, 1, 1, 2, 3)
    assert transform(guest(), one, np.ones(6, np.float32)).status == OK
    assert back(guest(), one).status == Status.ZDNN_INVALID_FORMAT


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
    one = fresh(user, structs.generate_transformed_desc_concatenated(user, rnn | previous | usage))
    gates = 4 if rnn == structs.RNN_TYPE_LSTM else 3
    arrays = [sample(dims, kind, gate) for gate in range(gates)]
    assert transform(guest(), one, *arrays).status == OK
    halves = previous == structs.PREV_LAYER_BIDIR and usage == structs.USAGE_WEIGHTS
    offsets = places.gate_offsets(slices, gates, rows, columns, 2 if halves else 1)
    wanted = np.zeros(getsize_ztensor(one.transformed_desc) // 2, np.uint16)
    for gate, array in enumerate(arrays):
        codes = [code_of(float(value)) for value in array.ravel()]
        wanted[offsets[:, gate].ravel() // 2] = codes
    assert np.array_equal(one.sticks.view(np.uint16), wanted)
    outcome = back(guest(), one)
    assert outcome.status == Status.ZDNN_INVALID_LAYOUT, "concatenated tensors do not come back"


@pytest.mark.parametrize("rows", [9, 11, 32])
def test_rows_of_concatenated_weights_are_the_users(rows: int) -> None:
    """Sticks are those of the pre-transformed rows, whatever dim2 the transformed ones have."""
    user = structs.init_pre_transformed_desc(L.ZDNN_3DS, FP32, 2, rows, 65)
    right = fresh(user, structs.generate_transformed_desc_concatenated(user, structs.USAGE_WEIGHTS))
    desc = right.transformed_desc
    other = fresh(user, desc.with_dims((desc.dim4, desc.dim3, 10, desc.dim1)))
    arrays = [sample((2, rows, 65), FP32, gate) for gate in range(4)]
    assert transform(guest(), right, *arrays).status == OK
    assert transform(guest(), other, *arrays).status == OK
    assert np.array_equal(other.sticks, right.sticks)


@pytest.mark.parametrize("dims", [(2, 33, 65), (2, 10, 129), (2, 0, 65), (2, 10, 0)])
def test_weights_beyond_their_sticks_are_malformed(dims: tuple[int, int, int]) -> None:
    """Users' rows and columns that need more sticks than there are, or none, are refused."""
    user = structs.init_pre_transformed_desc(L.ZDNN_3DS, FP32, 2, 10, 65)
    desc = structs.generate_transformed_desc_concatenated(user, structs.USAGE_WEIGHTS)
    one = fresh(structs.init_pre_transformed_desc(L.ZDNN_3DS, FP32, *dims), desc)
    arrays = [np.ones(dims, np.float32) for _ in range(4)]
    with pytest.raises(Malformed, match=r"transformed_desc\.dims"):
        transform(guest(), one, *arrays)


def _gates(machine: str, columns: int, bad: dict[int, float]) -> tuple[Outcome, Ztensor]:
    user = structs.init_pre_transformed_desc(L.ZDNN_2DS, FP32, 2, columns)
    one = fresh(user, structs.generate_transformed_desc_concatenated(user, structs.USAGE_BIASES))
    arrays = [np.ones((2, columns), np.float32) for _ in range(4)]
    for gate, value in bad.items():
        arrays[gate][0, 1] = value
    return transform(guest(machine), one, *arrays), one


def test_gate_that_fails_in_software() -> None:
    """An error ends the transform: earlier gates are written, later ones zero, state unchanged."""
    outcome, one = _gates("telum1", 3, {1: math.nan})
    assert (outcome.status, one.is_transformed) == (FAILED, False)
    codes = one.sticks.view(np.uint16).reshape(-1, 64 * 32)[:, :3]
    assert codes.tolist() == [[0x3E00] * 3, [0x3E00, 0x7FFF, 0x3E00]] + [[0] * 3] * 6
    assert outcome.violation
    assert [operand.operand for operand in outcome.violation.operands] == ["data[1]"]


@pytest.mark.parametrize("gate", range(4))
def test_gate_that_warns_in_hardware(gate: int) -> None:
    """A range violation of any gate is the answer, and all slices are converted."""
    outcome, one = _gates("telum2", 2049, {gate: math.inf})
    assert (outcome.status, one.is_transformed) == (WARNED, True)
    assert outcome.violation
    assert outcome.violation.function == FunctionCode.NNPA_TRANSFORM
    codes = one.sticks.view(np.uint16)
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
    one = described(L.ZDNN_4DS, FP32, *dims)
    array = sample(dims, FP32).astype(ml_dtypes.bfloat16).astype(np.float32)
    offsets, size = places.offsets(0, 2, (2 * timesteps, 1, batch, hidden))
    assert getsize_ztensor(one.transformed_desc) == size
    codes = one.sticks.view(np.uint16)
    codes[offsets.ravel() // 2] = [code_of(float(value)) for value in array.ravel()]
    if bad is not None:
        codes[offsets.ravel()[bad] // 2] = 0x7FFF
        array.reshape(-1)[bad] = math.nan
    one.is_transformed = True
    outcome = back(guest(machine), one)
    hardware = machine == "telum2" and batch * hidden > 2048
    assert outcome.status == (OK if bad is None else WARNED if hardware else FAILED)
    assert isinstance(outcome.value, np.ndarray)
    assert np.array_equal(outcome.value.reshape(dims), array, equal_nan=True)


def test_two_directions_go_in_as_they_lie() -> None:
    """4DS data goes in dense in the transformed dims, so two directions must come padded."""
    one = described(L.ZDNN_4DS, FP32, 1, 2, 1, 3)
    assert transform(guest(), one, np.arange(128, dtype=np.float32)).status == OK
    one.is_transformed = False
    with pytest.raises(Malformed, match=r"data\[0\] is 24 bytes, must be 512 bytes"):
        transform(guest(), one, np.ones(6, np.float32))


# What becomes of values: software, and hardware where FP32 is larger than 2048 elements.
FATES = [
    # value, saturating; software status and state, hardware status and state
    (math.inf, False, (FAILED, False), (WARNED, True)),
    (math.nan, False, (FAILED, False), (WARNED, True)),
    (math.inf, True, (WARNED, True), (WARNED, True)),
    (-math.inf, True, (WARNED, True), (WARNED, True)),
    (math.nan, True, (WARNED, True), (WARNED, True)),
    (1e-30, False, (OK, True), (OK, True)),
    (1e20, False, (OK, True), (WARNED, True)),
    (-1e20, True, (OK, True), (OK, True)),
]
ENGINES = [
    # machine, library, pre type, layout, dims, hardware?
    ("telum1", "1.2.0", FP32, L.ZDNN_2D, (33, 63), False),
    ("telum2", "1.2.0", FP32, L.ZDNN_2D, (33, 63), True),
    ("telum2", "1.2.0", FP32, L.ZDNN_2D, (32, 64), False),
    ("telum2", "1.2.0", FP32, L.ZDNN_3DS, (70, 1, 64), False),
    ("telum2", "1.2.0", FP32, L.ZDNN_3D, (33, 1, 63), True),
    ("telum2", "1.2.0", FP32, L.ZDNN_4D, (2, 3, 11, 63), True),
    ("telum2", "1.2.0", FP32, L.ZDNN_4DS, (1, 1, 33, 63), True),
    ("telum2", "1.2.0", FP32, L.ZDNN_NCHW, (1, 3, 40, 40), False),
    ("telum2", "1.2.0", FP32, L.ZDNN_HWCK, (3, 3, 16, 16), False),
    ("telum2", "1.2.0", BFLOAT, L.ZDNN_2D, (33, 63), False),
    ("telum2-nonnpa", "1.2.0", FP32, L.ZDNN_2D, (33, 63), None),
]


@pytest.mark.parametrize(("machine", "library", "kind", "layout", "dims", "hardware"), ENGINES)
@pytest.mark.parametrize(("value", "saturating", "software", "accelerated"), FATES)
def test_engines(
    value: float,
    saturating: bool,
    software: tuple[int, bool],
    accelerated: tuple[int, bool],
    machine: str,
    library: str,
    kind: DataTypes,
    layout: int,
    dims: tuple[int, ...],
    hardware: bool | None,
) -> None:
    """Which engine converts shows in status, state and flags, as the library's rule has it."""
    one = described(layout, kind, *dims)
    array = np.ones(dims, DTYPES[kind])
    array.reshape(-1)[7] = value
    name = "transform_ztensor_with_saturation" if saturating else "transform_ztensor"
    outcome = transform(guest(machine, library), one, array, name=name)
    if hardware is None:
        assert outcome.status == Status.ZDNN_UNSUPPORTED_AIU_EXCEPTION
        return
    wanted = accelerated if hardware else software
    assert (outcome.status, one.is_transformed) == wanted
    flag = 0 if hardware else {math.inf: 2, -math.inf: 2, 1e-30: 4}.get(value, 0)
    assert outcome.fp_flags == (1 if math.isnan(value) and not hardware else flag)
    told = outcome.violation is not None
    is_beyond = value == 1e20 and not saturating  # which software passes over, with ZDNN_OK
    assert told is (outcome.status != OK or is_beyond)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_fp16_is_never_clamped(value: float) -> None:
    """FP16 infinities and NaNs fail also in the saturating transform."""
    one = described(L.ZDNN_1D, FP16, 3)
    array = np.array([1, value, 2], np.float16)
    outcome = transform(guest(), one, array, name="transform_ztensor_with_saturation")
    assert (outcome.status, one.is_transformed) == (FAILED, False)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_narrow_tensors(columns: int) -> None:
    """One or two columns have a software routine of their own, but not when saturating."""
    rows = 3000
    for name, hardware in (
        ("transform_ztensor", columns > 2),
        ("transform_ztensor_with_saturation", True),
    ):
        one = described(L.ZDNN_2D, FP32, rows, columns)
        array = np.ones((rows, columns), np.float32)
        array[5, 0] = math.nan
        outcome = transform(guest(), one, array, name=name)
        assert outcome.violation
        engine = outcome.violation.function
        assert engine == (FunctionCode.NNPA_TRANSFORM if hardware else None)
    one = described(L.ZDNN_2D, FP32, rows, columns)
    assert transform(guest(), one, np.ones((rows, columns), np.float32)).status == OK
    one.sticks.view(np.uint16)[0] = 0xFFFF
    assert back(guest(), one).status == (WARNED if columns > 2 else FAILED)


def test_hardware_needs_the_function() -> None:
    """A guest moved to a machine without NNPA-TRANSFORM is refused once it wants the hardware."""
    moved = guest("telum2")
    moved.machine = MACHINES["telum1"]
    one = described(L.ZDNN_2D, FP32, 33, 63)
    outcome = transform(moved, one, np.ones((33, 63), np.float32))
    assert outcome.status == Status.ZDNN_UNAVAILABLE_FUNCTION
    assert not one.is_transformed
    small = described(L.ZDNN_2D, FP32, 3, 3)
    assert transform(moved, small, np.ones((3, 3), np.float32)).status == OK


def test_explanation_of_a_transform() -> None:
    """A violation names the operand, counts the elements, and shows the first eight with values."""
    one = described(L.ZDNN_NCHW, FP32, 1, 3, 2, 5)
    array = np.ones((1, 3, 2, 5), np.float32)
    array[0, 1] = math.inf
    array[0, 2, 1, 4] = -math.inf
    outcome = transform(guest(), one, array)
    assert outcome.violation
    assert outcome.violation.function is None
    (operand,) = outcome.violation.operands
    assert (operand.operand, operand.count, len(operand.elements)) == ("data", 11, 8)
    first = operand.elements[0]
    assert (first.index, first.code, first.padding) == ((0, 0, 0, 1), 0x7FFF, False)
    assert first.operand_values == (math.inf,)
    assert [element.index for element in operand.elements] == sorted(
        element.index for element in operand.elements
    )
    assert str(outcome.violation) == "data: 11 non-numeric, first at (0, 0, 0, 1)"


def test_explanation_of_the_way_back() -> None:
    """Transforming back names NINF elements, and for FP16 also what overflows."""
    one = described(L.ZDNN_2D, FP16, 33, 65)
    assert transform(guest(), one, np.ones((33, 65), np.float16)).status == OK
    offsets, _ = places.offsets(0, 2, (1, 1, 33, 65))
    codes = one.sticks.view(np.uint16)
    codes[offsets[0, 0, 32, 64] // 2] = 0x5E00
    outcome = back(guest(), one)
    assert (outcome.status, outcome.fp_flags) == (FAILED, 2)
    assert outcome.violation
    (operand,) = outcome.violation.operands
    assert operand.elements[0].index == (0, 0, 32, 64)
    assert operand.elements[0].code == 0x5E00
    assert operand.elements[0].operand_values == (65536.0,)
    codes[-1] = 0x7FFF
    assert back(guest(), one).violation == outcome.violation, "padding is not looked at"


def test_is_transformed_survives_a_failure_on_the_way_back() -> None:
    """Transforming back never changes the state, and writes all elements."""
    one = described(L.ZDNN_1D, FP32, 3)
    assert transform(guest(), one, np.array([1, 2, 3], np.float32)).status == OK
    one.sticks.view(np.uint16)[1] = 0x7FFF
    outcome = back(guest(), one)
    assert (outcome.status, outcome.fp_flags, one.is_transformed) == (FAILED, 1, True)
    assert isinstance(outcome.value, np.ndarray)
    assert np.array_equal(outcome.value.ravel(), [1, math.nan, 3], equal_nan=True)


@pytest.mark.parametrize("kind", [FP32, FP16, BFLOAT])
@pytest.mark.parametrize("wrong", [-1, 1])
def test_wrong_sizes(kind: DataTypes, wrong: int) -> None:
    """User data of a wrong size is refused with its size, after the checks that precede reading."""
    one = described(L.ZDNN_2D, kind, 3, 4)
    array = np.ones(12 + wrong, DTYPES[kind])
    with pytest.raises(Malformed, match=rf"data\[0\] is {array.nbytes} bytes, must be"):
        transform(guest(), one, array)
    with pytest.raises(Malformed, match="data is 2 arrays, must be 1 arrays"):
        transform(guest(), one, np.ones(12, DTYPES[kind]), array)
    one.is_transformed = True
    assert transform(guest(), one, array).status == Status.ZDNN_INVALID_STATE


F, W, K = (
    DataFormats.ZDNN_FORMAT_4DFEATURE,
    DataFormats.ZDNN_FORMAT_4DWEIGHTS,
    DataFormats.ZDNN_FORMAT_4DKERNEL,
)
D, I8, I32 = DataTypes.ZDNN_DLFLOAT16, DataTypes.ZDNN_BINARY_INT8, DataTypes.ZDNN_BINARY_INT32
HARDWARE, SOFTWARE = "hardware", "software"
PRE_TYPES = (FP32, FP16, BFLOAT, INT8, DataTypes.INT32, D)
TRANSFORMED_TYPES = (D, I8, I32, DataTypes.ZDNN_BINARY_FP32)
COMBINATIONS: dict[tuple[int, int, int], str] = {
    (F, D, FP32): HARDWARE, (F, D, FP16): SOFTWARE, (F, D, BFLOAT): SOFTWARE,
    (F, I8, FP32): HARDWARE, (F, I8, FP16): HARDWARE, (F, I8, BFLOAT): HARDWARE,
    (F, I8, INT8): SOFTWARE, (W, I8, INT8): SOFTWARE,
}  # fmt: skip


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
@pytest.mark.parametrize(
    ("fmt", "kind", "user"), list(product((F, W, K), TRANSFORMED_TYPES, PRE_TYPES))
)
def test_quantized_combinations(fmt: int, kind: int, user: DataTypes, machine: str) -> None:
    """Format, type and pre-transformed type have one answer each, by machine where it matters."""
    desc = TensorDesc(L.ZDNN_NHWC, fmt, kind, 1, 1, 2, 3)
    one = fresh(TensorDesc(L.ZDNN_2D, 0, user, 0, 0, 2, 3), desc)
    one.rec_scale = 1.0
    scalars = {"saturation_control": False, "clip_min": -128, "clip_max": 127}
    data = (np.ones(6, DTYPES.get(user, np.int32)),)
    arguments = {"ztensor": one, **scalars, "data": data}
    status = run(guest(machine), "transform_quantized_ztensor", arguments).status
    engine = COMBINATIONS.get((fmt, kind, user))
    if engine is None:
        wrong = Status.ZDNN_INVALID_FORMAT if fmt == K else Status.ZDNN_INVALID_TYPE
        assert status == wrong
    elif engine == HARDWARE and machine == "telum1":
        assert status == Status.ZDNN_UNAVAILABLE_FUNCTION
    else:
        assert status == OK
    assert one.is_transformed is (status == OK)


def _quantized(
    array: Array, user: DataTypes, scale: float, offset: float, low: int, high: int
) -> tuple[Outcome, list[int]]:
    pre = TensorDesc(L.ZDNN_1D, 0, user, 0, 0, 0, array.size)
    desc = structs.generate_quantized_transformed_desc(pre, 1)
    one = structs.init_quantized_ztensor(pre, desc, scale, offset)
    one.buffer, one.buffer_size = np.zeros(4096, np.uint8), 4096
    arguments = {"ztensor": one, "saturation_control": False, "clip_min": low, "clip_max": high}
    outcome = run(guest(), "transform_quantized_ztensor", {**arguments, "data": (array,)})
    return outcome, one.sticks.view(np.int8)[: array.size].tolist()


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.1, 3.0, 1 / 3])
@pytest.mark.parametrize("offset", [0.0, 3.0, -7.25])
def test_quantized_numbers(scale: float, offset: float) -> None:
    """An INT8 element is clip(round_half_even(x * rs + of)) in FP32, rs and of in DLFLOAT16."""
    array = np.random.default_rng(3).normal(0, 40 * scale, 100).astype(np.float32)
    outcome, got = _quantized(array, FP32, scale, offset, -100, 90)
    assert outcome.status == OK
    rs = oracle.value(code_of(float(np.float32(1) / np.float32(scale))))
    of = oracle.value(code_of(offset))
    assert rs is not None
    assert of is not None
    total = (array * np.float32(float(rs))) + np.float32(float(of))
    assert got == [min(max(round(float(one)), -100), 90) for one in total]


def test_quantized_halves_go_to_even() -> None:
    """Ties round to even: 0.5, 1.5, 2.5 and their negatives."""
    array = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5], np.float32)
    assert _quantized(array, FP32, 1, 0, -128, 127)[1] == [0, 2, 2, 0, -2, -2]


def test_quantizing_bfloat_converts_all_elements() -> None:
    """Counts that are no multiple of four convert like all others."""
    for count in range(1, 9):
        array = np.arange(1, count + 1).astype(ml_dtypes.bfloat16)
        assert _quantized(array, BFLOAT, 1, 0, -128, 127)[1] == list(range(1, count + 1))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_quantizing_what_is_no_number(value: float) -> None:
    """Infinity and NaN are a range violation that names the element."""
    outcome, _ = _quantized(np.array([1, value], np.float32), FP32, 1, 0, -128, 127)
    assert outcome.status == WARNED
    assert outcome.violation
    assert outcome.violation.operands[0].elements[0].index == (0, 0, 0, 1)


def test_plain_ztensor_cannot_be_quantized() -> None:
    """Without a scale the reciprocal is 0, which the machine answers with F001."""
    outcome, _ = _quantized(np.ones(1, np.float32), FP32, 0, 0, -128, 127)
    assert outcome.status == Status.ZDNN_FUNC_RC_F001


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
def test_range_excludes_padding(machine: str) -> None:
    """Least and greatest come from elements only, starting at -0 and +0."""
    one = described(L.ZDNN_2D, FP32, 33, 65)
    array = np.linspace(0.5, 1, 33 * 65, dtype=np.float32)
    mine = guest(machine)
    assert transform(mine, one, array).status == OK
    offsets, size = places.offsets(0, 2, (1, 1, 33, 65))
    padding = np.ones(size // 2, bool)
    padding[offsets.ravel() // 2] = False
    one.sticks.view(np.uint16)[padding] = 0xFFFF
    value = run(mine, "getrange_ztensor", {"ztensor": one}).value
    assert value == (0.0, 1.0)
    assert isinstance(value, tuple)
    assert math.copysign(1, value[0]) == -1


@pytest.mark.parametrize(
    ("codes", "least", "greatest"),
    [
        ([0x3E00, 0xC000], -2.0, 1.0),
        ([0x7FFE, 0xFFFE], -8573157376.0, 8573157376.0),
        ([0x7FFF, 0xBE00], -1.0, math.nan),
        ([0xFFFF, 0xBE00], math.nan, 0.0),
        ([0x7FFF, 0xFFFF], math.nan, math.nan),
    ],
)
def test_range_of_codes(codes: list[int], least: float, greatest: float) -> None:
    """NINF makes the end of its sign NaN; the status stays ZDNN_OK."""
    one = described(L.ZDNN_1D, FP32, 2)
    one.sticks.view(np.uint16)[:2] = codes
    one.is_transformed = True
    outcome = run(guest(), "getrange_ztensor", {"ztensor": one})
    assert outcome.status == OK
    assert np.array_equal(np.array(outcome.value), [least, greatest], equal_nan=True)


def test_int32_comes_back() -> None:
    """INT32 tensors, the index outputs of reduce, give cell 0 of each row."""
    user = TensorDesc(L.ZDNN_3D, 0, DataTypes.INT32, 0, 2, 33, 1)
    one = fresh(user, structs.generate_transformed_desc(user))
    offsets, _ = places.offsets(0, 4, (1, 2, 33, 1))
    one.sticks.view(np.int32)[offsets.ravel() // 4] = np.arange(-10, 56)
    one.is_transformed = True
    outcome = back(guest("telum1"), one)
    assert outcome.status == OK
    assert isinstance(outcome.value, np.ndarray)
    assert outcome.value.ravel().tolist() == list(range(-10, 56))


@pytest.mark.parametrize("name", ["transform_ztensor", "transform_ztensor_with_saturation"])
def test_int32_does_not_go_in(name: str) -> None:
    """INT32 and INT8 tensors cannot be transformed by the float transforms."""
    user = TensorDesc(L.ZDNN_1D, 0, DataTypes.INT32, 0, 0, 0, 3)
    one = fresh(user, structs.generate_transformed_desc(user))
    outcome = transform(guest(), one, np.ones(3, np.int32), name=name)
    assert outcome.status == Status.ZDNN_INVALID_TYPE
    one.transformed_desc = replace(one.transformed_desc, type=I8)
    assert transform(guest(), one, np.ones(3, np.int32), name=name).status == outcome.status
