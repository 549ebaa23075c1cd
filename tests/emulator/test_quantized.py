# SPDX-License-Identifier: Apache-2.0
"""The quantized matrix product: worked example, every variant against the oracle, NINF, stacks."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from nnpa_emulator import Guest, Outcome, Status, Ztensor, run, stick
from nnpa_emulator.engines import quantized as engine
from nnpa_emulator.ops import quantized
from nnpa_emulator.ztensor import DataFormats, DataLayouts, DataTypes, TensorDesc, getsize_ztensor

from tests.emulator.operands import NINF, Codes, blank, cells, guest, tensor
from tests.oracle import quantized as oracle
from tests.oracle.quantized import Call, Quantized
from tests.oracle.rounding import decoded, distance, rounded

F = np.float32
INT8 = DataTypes.ZDNN_BINARY_INT8
FEATURE, WEIGHTS = DataFormats.ZDNN_FORMAT_4DFEATURE, DataFormats.ZDNN_FORMAT_4DWEIGHTS
SHAPES = [
    (1, 1, 1),
    (2, 4, 3),
    (3, 7, 65),
    (33, 65, 63),
    (31, 128, 129),
    (5, 129, 64),
    (2, 2500, 5),
]


def scaled(scale: float, offset: float) -> Quantized:
    """Return the reciprocal scale and the offset that a ztensor keeps."""
    return Quantized(F(1) / F(scale), F(offset))


def packed(values: npt.NDArray[np.generic], fmt: int = FEATURE) -> Ztensor:
    """Return INT8 sticks of bytes, whose padding is -1, or the usual ztensor of codes."""
    if values.dtype == np.uint16:
        return tensor(values.astype(np.uint16))
    d4, d3, d2, d1 = values.shape
    desc = TensorDesc(DataLayouts.ZDNN_NHWC, fmt, INT8, d4, d3, d2, d1)
    size = getsize_ztensor(desc)
    buffer = np.zeros(size, np.uint8)
    stick.write_cells(values, desc, buffer)
    buffer[stick.padding(desc)] = 0xFF
    pre = TensorDesc(DataLayouts.ZDNN_NHWC, 0, DataTypes.INT8, d4, d3, d2, d1)
    return Ztensor(pre, desc, size, buffer, True)


def keep(ztensor: Ztensor, quantization: Quantized) -> Ztensor:
    """Give a ztensor its reciprocal scale and offset."""
    ztensor.rec_scale, ztensor.offset = float(quantization.rec_scale), float(quantization.offset)
    return ztensor


def perform(
    call: Call, stacks: tuple[int, int] = (1, 1), program: Guest | None = None
) -> tuple[Outcome, Ztensor]:
    """Run a call, its matrices repeated where there are stacks of them."""
    a = np.broadcast_to(call.a, (stacks[0], 1, *call.a.shape))
    b = np.broadcast_to(call.b, (stacks[1], 1, *call.b.shape))
    c = np.broadcast_to(call.c, (stacks[1], 1, 1, *call.c.shape))
    output = blank((max(stacks), 1, call.a.shape[0], call.b.shape[1]))
    arguments: dict[str, Any] = {
        "input_a": keep(packed(a), call.of_a),
        "input_b": keep(packed(b, WEIGHTS), call.of_b),
        "input_c": keep(packed(c), call.of_c),
        "op_type": call.op,
        "clip_min": call.clips[0],
        "clip_max": call.clips[1],
        "disable_clipping": call.disable_clipping,
        "dequantize": call.dequantize,
        "pre_computed": call.pre_computed,
        "output": keep(output, call.of_y),
    }
    return run(program or guest(precheck=True), "quantized_matmul_op", arguments), output


def result(call: Call, stacks: tuple[int, int] = (1, 1)) -> Codes:
    """Return the codes of a call that is right."""
    outcome, output = perform(call, stacks)
    assert outcome.status == Status.ZDNN_OK, outcome.refusal
    assert output.is_transformed
    return cells(output)[:, 0]


def random_call(shape: tuple[int, int, int], zb: float, on_the_fly: bool, op: int = 0) -> Call:
    """Return a call of random bytes whose results are spread over the bytes."""
    m, n, p = shape
    random = np.random.default_rng((*shape, int(zb), on_the_fly, op))
    a = random.integers(-128, 128, (m, n), np.int8)
    b, c = random.integers(-128, 128, (n, p), np.int8), random.integers(-128, 128, p, np.int8)
    of_a = scaled(0.0173, 5)
    codes = rounded((a.astype(np.float64) - 5) * 0.0173 * 1.01) if on_the_fly else a
    scale = 0.0173 * 0.0094 * 128 * 128 * n**0.5 / 60
    return Call(codes, b, c, of_a, scaled(0.0094, zb), scaled(scale, 3), scaled(scale, -4), op)


EXAMPLE_A = np.array([[12, 55, 26, 11], [-20, 37, -16, 100]], np.int8)
EXAMPLE_B = np.array([[118, -30, 74], [7, 17, 108], [-110, -106, -123], [84, 70, 94]], np.int8)
EXAMPLE_B0 = np.array([[57, -54, 24], [-26, -19, 50], [-114, -111, -124], [32, 21, 39]], np.int8)
EXAMPLE = Call(
    EXAMPLE_A, EXAMPLE_B, np.array([122, 76, -10], np.int8), scaled(0.70588235, 14),
    scaled(0.11764706, 42), scaled(3.92156863, 0), scaled(23.5294118, 0),
)  # fmt: skip
SYMMETRIC = replace(EXAMPLE, b=EXAMPLE_B0, of_b=scaled(0.15686275, 0))


def test_worked_example() -> None:
    """The numbers of the zDNN library's own test source: both offsets of the weights."""
    want = [[8, 3, 0], [37, 43, 33]]
    assert decoded(result(EXAMPLE))[0].tolist() == want
    assert decoded(result(SYMMETRIC))[0].tolist() == want
    raw = replace(SYMMETRIC, disable_clipping=True)
    stored = [[7.8828125, 2.9453125, 0.201171875], [37.4375, 43.4375, 33.1875]]
    assert decoded(result(raw))[0].tolist() == stored
    assert oracle.bias(EXAMPLE).tolist() == rounded([28.625, 20.96875, 6.6328125]).tolist()
    assert oracle.bias(SYMMETRIC).tolist() == rounded([23.6875, 23.40625, -0.94238281]).tolist()


@pytest.mark.parametrize("flags", list(product((False, True), (False, True))))
@pytest.mark.parametrize("on_the_fly", [False, True], ids=["normal", "fly"])
@pytest.mark.parametrize("zb", [0, 7])
@pytest.mark.parametrize("shape", SHAPES)
def test_additions(
    shape: tuple[int, int, int], zb: float, on_the_fly: bool, flags: tuple[bool, bool]
) -> None:
    """Additions have the oracle's bits, clipped and dequantized or not, at all edges."""
    call = random_call(shape, zb, on_the_fly)
    call = replace(call, disable_clipping=flags[0], dequantize=flags[1], clips=(-100, 90))
    assert distance(result(call)[0], oracle.product(call)) == 0


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("on_the_fly", [False, True], ids=["normal", "fly"])
@pytest.mark.parametrize("op", range(1, 7))
def test_comparisons(op: int, on_the_fly: bool, negative: bool) -> None:
    """Comparisons have the oracle's bits; the weights' offset and all flags change nothing."""
    call = random_call((33, 65, 66), 0, on_the_fly, op)
    if negative:
        call = replace(call, of_c=Quantized(F(-call.of_c.rec_scale), call.of_c.offset))
    got = result(call)[0]
    assert got.tolist() == oracle.product(call).tolist()
    if op not in (3, 4):
        assert set(got.reshape(-1).tolist()) == {0, 0x3E00}
    for changes in ({"of_b": scaled(0.0094, 9)}, {"disable_clipping": True, "dequantize": True}):
        assert result(replace(call, **changes))[0].tolist() == got.tolist()


def test_comparison_with_an_equal_operand() -> None:
    """EQUAL holds exactly where the sum of bytes is c~."""
    ztensor = scaled(1.0, 0)
    a, b = np.array([[1, 2], [3, 4]], np.int8), np.array([[1, 0], [0, 1]], np.int8)
    call = Call(a, b, np.array([1, 4], np.int8), ztensor, ztensor, ztensor, ztensor, 3)
    assert result(call)[0].tolist() == [[0x3E00, 0], [0, 0x3E00]]


@pytest.mark.parametrize("op", [0, 1, 5])
@pytest.mark.parametrize("on_the_fly", [False, True], ids=["normal", "fly"])
def test_pre_computed(on_the_fly: bool, op: int) -> None:
    """A call that passes c~ has the same result as one whose c~ the library computes."""
    call = random_call((33, 65, 66), 0, on_the_fly, op)
    ready = replace(call, c=oracle.bias(call), pre_computed=True)
    assert result(ready)[0].tolist() == result(call)[0].tolist()


def test_pre_computed_formula() -> None:
    """The corrected formula of the API reference gives c~: plus (sc/sy)*qc, minus M*Za*sums."""
    call = SYMMETRIC
    sa, sb, sc, sy = (1 / float(x.rec_scale) for x in (call.of_a, call.of_b, call.of_c, call.of_y))
    sums = call.b.astype(np.int64).sum(0)
    values = sc / sy * call.c.astype(float) - sa * sb / sy * float(call.of_a.offset) * sums
    ready = replace(call, c=rounded(values), pre_computed=True)
    assert decoded(result(ready))[0].tolist() == decoded(result(call))[0].tolist()


@pytest.mark.parametrize("stacks", [(1, 1), (3, 3), (3, 1), (1, 3)])
@pytest.mark.parametrize("on_the_fly", [False, True], ids=["normal", "fly"])
@pytest.mark.parametrize("zb", [0, 7])
def test_stacks_of_one_serve_all(zb: float, on_the_fly: bool, stacks: tuple[int, int]) -> None:
    """Stacks of equal matrices have equal results, whichever operand is broadcast."""
    call = random_call((33, 65, 66), zb, on_the_fly)
    for item in result(call, stacks):
        assert distance(item, oracle.product(call)) == 0


def test_stacks_are_not_mixed_up() -> None:
    """Different matrices of a stack keep to themselves."""
    calls = [
        replace(EXAMPLE, a=np.roll(EXAMPLE_A, k, 1), b=np.roll(EXAMPLE_B, k, 0)) for k in (0, 1)
    ]
    singles = [result(replace(item, c=EXAMPLE.c))[0].tolist() for item in calls]
    a, b = np.stack([item.a for item in calls]), np.stack([item.b for item in calls])
    output = keep(blank((2, 1, 2, 3)), EXAMPLE.of_y)
    c = np.broadcast_to(EXAMPLE.c, (2, 1, 1, 3))
    arguments: dict[str, Any] = {
        "input_a": keep(packed(a[:, None]), EXAMPLE.of_a),
        "input_b": keep(packed(b[:, None], WEIGHTS), EXAMPLE.of_b),
        "input_c": keep(packed(c), EXAMPLE.of_c),
        "op_type": 0, "clip_min": -128, "clip_max": 127, "disable_clipping": False,
        "dequantize": False, "pre_computed": False, "output": output,
    }  # fmt: skip
    assert run(guest(), "quantized_matmul_op", arguments).status == Status.ZDNN_OK
    assert cells(output)[:, 0].tolist() == singles


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product cut in all directions has the bits of the uncut one."""
    calls = [random_call((70, 300, 200), 7, on_the_fly) for on_the_fly in (False, True)]
    whole = [result(call).tolist() for call in calls]
    monkeypatch.setattr(quantized, "ROWS", 32)
    monkeypatch.setattr(quantized, "COLUMNS", 64)
    monkeypatch.setattr(engine, "INNER", 128)
    assert [result(call).tolist() for call in calls] == whole


def test_ninf_of_the_input_skips_the_pass_over_results() -> None:
    """A NINF spoils its row; the others are what the machine stored, not rounded or clipped."""
    call = random_call((33, 65, 66), 7, True)
    clean = oracle.machine(call)
    spoiled = call.a.astype(np.uint16)
    spoiled[4, 64] = NINF
    outcome, output = perform(replace(call, a=spoiled))
    assert outcome.status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    assert output.is_transformed
    got = cells(output)[0, 0]
    assert set(got[4].tolist()) == {NINF}
    assert np.delete(got, 4, 0).tolist() == np.delete(clean, 4, 0).tolist()


def test_ninf_of_a_ready_bias_spoils_its_column() -> None:
    """A NINF in c~ makes its column NINF."""
    call = random_call((3, 7, 65), 0, False)
    codes = oracle.bias(call)
    codes[64] = 0xFFFF
    outcome, output = perform(replace(call, c=codes, pre_computed=True))
    assert outcome.status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    got = cells(output)[0, 0]
    assert np.flatnonzero((got & 0x7FFF == NINF).any(0)).tolist() == [64]


def test_storage_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A work area that cannot be allocated is ZDNN_ALLOCATION_FAILURE; pre_computed needs none."""

    def exhausted(_size: int) -> None:
        return None

    monkeypatch.setattr(quantized, "page_memory", exhausted)
    assert perform(EXAMPLE)[0].status == Status.ZDNN_ALLOCATION_FAILURE
    ready = replace(SYMMETRIC, c=oracle.bias(SYMMETRIC), pre_computed=True)
    assert perform(ready)[0].status == Status.ZDNN_OK
