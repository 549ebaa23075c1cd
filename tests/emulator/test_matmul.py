# SPDX-License-Identifier: Apache-2.0
"""Matrix products against the oracle: shapes, comparisons, broadcasts, transposes, NINF, blocks."""

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import pytest
from nnpa_emulator import FUNCTIONS, MACHINES, Guest, Status, TensorDesc, Ztensor, run
from nnpa_emulator.engines import matmul as engine
from nnpa_emulator.ztensor import Array, DataLayouts, DataTypes, generate_transformed_desc

from tests.emulator.operands import NINF, Codes, blank, cells, guest, tensor
from tests.oracle import matmul as oracle
from tests.oracle.rounding import decoded, distance, rounded

Sizes = tuple[int, int, int, int]
Turns = tuple[bool, bool]

EDGES = (1, 31, 33, 63, 64, 65, 127, 128, 129)
# Stacks, m, n, p: ones, odd sizes, and every edge of a stick or a page in every place.
SHAPES: list[Sizes] = [
    (1, 1, 1, 1), (3, 1, 1, 1), (2, 3, 5, 7), (1, 32, 32, 32), (4, 17, 1, 66), (1, 1, 300, 1),
    *((1, edge, 65, 33) for edge in EDGES),
    *((2, 3, edge, 65) for edge in EDGES),
    *((1, 33, 31, edge) for edge in EDGES),
]  # fmt: skip
BERT_BASE: list[Sizes] = [(1, 128, 768, 768), (1, 128, 768, 3072), (1, 128, 3072, 768)]
RESNET_50: list[Sizes] = [(1, 1, 2048, 1000), (1, 8, 2048, 1000)]


def stack(s: int, rows: int, columns: int, seed: int = 0) -> Codes:
    """Return codes of integers from -8 to 8: sums of their products are exact in any order."""
    random = np.random.default_rng((s, rows, columns, seed))
    return rounded(random.integers(-8, 9, (s, 1, rows, columns)))


def conditioned(s: int, rows: int, columns: int, signs: bool) -> Codes:
    """Return random codes whose products of one column of b have one sign: sums do not cancel."""
    random = np.random.default_rng((s, rows, columns, signs))
    values = random.uniform(0.1, 2, (s, 1, rows, columns))
    if signs:
        values *= random.choice((-1, 1), (s, 1, 1, columns))
    return rounded(values)


def multiply(
    name: str,
    a: Codes,
    b: Codes,
    c: Codes,
    op: int,
    program: Guest | None = None,
    turns: Turns | None = None,
) -> tuple[Codes, int]:
    """Run an operation; return the codes of its output and the status."""
    turn_a, turn_b = turns or (False, False)
    rows, columns = a.shape[3 if turn_a else 2], b.shape[2 if turn_b else 3]
    output = blank((max(a.shape[0], b.shape[0]), 1, rows, columns))
    arguments: dict[str, Any] = {"input_a": tensor(a), "input_b": tensor(b), "input_c": tensor(c)}
    arguments |= {"op_type": op, "output": output}
    if turns is not None:
        arguments |= {"transpose_a": turn_a, "transpose_b": turn_b}
    outcome = run(program or guest(), name, arguments)
    assert outcome.refusal is None
    assert output.is_transformed
    return cells(output), outcome.status


@pytest.mark.parametrize("accumulate", ["fp32", "fp64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_of_integers_are_exactly_rounded(shape: Sizes, accumulate: Any) -> None:
    """Where the sum is exact the result is its one rounding, ties away from zero, at all edges."""
    s, m, n, p = shape
    a, b, c = stack(s, m, n), stack(s, n, p, 1), stack(s, 1, p, 2)
    program = Guest(MACHINES["telum2"], accumulate=accumulate)
    got, status = multiply("matmul_op", a, b, c, 0, program)
    assert status == Status.ZDNN_OK
    assert got.tolist() == oracle.matmul(a, b, c, 0).tolist()


@pytest.mark.parametrize("accumulate", ["fp32", "fp64"])
@pytest.mark.parametrize("op", range(1, 7))
def test_comparisons_take_the_unrounded_sum(op: int, accumulate: Any) -> None:
    """Relations hold or not by the exact sum: 1001 is not equal to 1002, to which it rounds."""
    a, b = stack(2, 33, 65), stack(2, 65, 70, 1)
    sums = oracle.products(a, b)
    c = rounded(sums[:, :, 5:6])
    program = Guest(MACHINES["telum2"], accumulate=accumulate)
    got, status = multiply("matmul_op", a, b, c, op, program)
    assert status == Status.ZDNN_OK
    assert got.tolist() == oracle.matmul(a, b, c, op).tolist()
    a, b, c = rounded([[[[1.0, 1000.0]]]]), rounded([[[[1.0], [1.0]]]]), rounded([[[[1002.0]]]])
    got, _ = multiply("matmul_op", a, b, c, op, program)
    assert got.item() == (0x3E00 if op in (4, 5, 6) else 0)


@pytest.mark.parametrize("op", range(7))
def test_zeros_of_both_signs_are_equal(op: int) -> None:
    """A sum of +0 is equal to a -0 of input_c, and their sum is a zero."""
    zero, minus = rounded([[[[0.0]]]]), rounded([[[[-0.0]]]])
    got, status = multiply("matmul_op", zero, zero, minus, op)
    assert status == Status.ZDNN_OK
    assert got.item() == (0x3E00 if op in (2, 3, 5) else 0)


@pytest.mark.parametrize("stacks", [(1, 1), (3, 3), (3, 1), (1, 3)])
@pytest.mark.parametrize("op", [0, 1, 5])
@pytest.mark.parametrize("name", ["matmul_bcast_op", "matmul_transpose_op"])
def test_stacks_of_one_serve_all(name: str, op: int, stacks: tuple[int, int]) -> None:
    """A dim4 of 1 is used for every matrix of the other operand; input_c goes with input_b."""
    a, b, c = stack(stacks[0], 33, 65), stack(stacks[1], 65, 70), stack(stacks[1], 1, 70)
    turns = (False, False) if "transpose" in name else None
    got, status = multiply(name, a, b, c, op, turns=turns)
    assert status == Status.ZDNN_OK
    assert got.tolist() == oracle.matmul(a, b, c, op).tolist()


@pytest.mark.parametrize("turns", list(product((False, True), (False, True))))
@pytest.mark.parametrize("stacks", [(1, 1), (2, 2), (2, 1), (1, 2)])
def test_turned_operands(stacks: tuple[int, int], turns: tuple[bool, bool]) -> None:
    """transpose_a and transpose_b exchange the last two dims of what is stored."""
    a = stack(stacks[0], *((70, 33) if turns[0] else (33, 70)))
    b = stack(stacks[1], *((65, 70) if turns[1] else (70, 65)))
    c = stack(stacks[1], 1, 65)
    got, _ = multiply("matmul_transpose_op", a, b, c, 0, turns=turns)
    assert got.tolist() == oracle.matmul(a, b, c, 0, *turns).tolist()


@pytest.mark.parametrize("op", [0, 3])
@pytest.mark.parametrize("ninf", [NINF, 0xFFFF])
@pytest.mark.parametrize("accumulate", ["fp32", "fp64"])
def test_ninf_reaches_what_depends_on_it(ninf: int, op: int, accumulate: Any) -> None:
    """A NINF in a spoils its row, in b its column, in c its column, also where it meets zeros."""
    a, b, c = stack(2, 33, 66), stack(2, 66, 65, 1), stack(2, 1, 65, 2)
    a[0, 0, 32, 65], b[1, 0, 65, 64], c[0, 0, 0, 3] = ninf, ninf, ninf
    b[0, 0, 65, :] = 0
    program = Guest(MACHINES["telum2"], accumulate=accumulate)
    got, status = multiply("matmul_op", a, b, c, op, program)
    assert status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    spoiled = np.zeros(got.shape, bool)
    spoiled[0, 0, 32], spoiled[1, 0, :, 64], spoiled[0, 0, :, 3] = True, True, True
    assert (got & 0x7FFF == NINF).tolist() == spoiled.tolist()
    want = oracle.matmul(a, b, c, op)
    assert got[~spoiled].tolist() == want[~spoiled].tolist()


def test_ninf_does_not_rely_on_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same elements are NINF with a BLAS that takes NaN times zero for zero."""

    def skipping(a: Array, b: Array) -> Array:
        result: Array = np.nan_to_num(a) @ np.nan_to_num(b)
        return result

    monkeypatch.setattr(engine, "_product", skipping)
    a, b, c = stack(2, 33, 66), stack(2, 66, 65, 1), stack(2, 1, 65, 2)
    a[0, 0, 32, 65], b[1, 0, 65, 64] = NINF, 0xFFFF
    program = Guest(MACHINES["telum2"], accumulate="fp64")
    got, status = multiply("matmul_op", a, b, c, 0, program)
    assert status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    assert got.tolist() == oracle.matmul(a, b, c, 0).tolist()


@pytest.mark.parametrize("accumulate", ["fp32", "fp64"])
def test_overflow_and_underflow(accumulate: Any) -> None:
    """Sums beyond the largest number are NINF of their sign, tiny ones zero of their sign."""
    a = rounded([[[[1e9, 1e9], [-1e9, -1e9], [1e-5, 0.0], [-1e-5, 0.0]]]])
    b, c = rounded([[[[1e9], [1e9]]]]), rounded([[[[0.0]]]])
    program = Guest(MACHINES["telum2"], accumulate=accumulate)
    got, status = multiply("matmul_op", a, b, c, 0, program)
    assert status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    assert got.reshape(-1)[:2].tolist() == [0x7FFF, 0xFFFF]
    b = rounded([[[[1e-6], [0.0]]]])
    got, status = multiply("matmul_op", a[:, :, 2:], b, c, 0, program)
    assert status == Status.ZDNN_OK
    assert (got & 0x7FFF).any() == 0


@pytest.mark.parametrize("turns", [(False, False), (True, True)])
@pytest.mark.parametrize("accumulate", ["fp32", "fp64"])
def test_blocks_do_not_show(
    monkeypatch: pytest.MonkeyPatch, accumulate: Any, turns: tuple[bool, bool]
) -> None:
    """A product cut in all three directions has the bits of the uncut one, NINF included."""
    monkeypatch.setattr(engine, "BLOCK", 1 << 13)
    monkeypatch.setattr(engine, "INNER", 64)
    a = stack(2, *((200, 150) if turns[0] else (150, 200)))
    b, c = stack(2, *((300, 200) if turns[1] else (200, 300))), stack(2, 1, 300)
    a[1, 0, 100, 130] = NINF
    program = Guest(MACHINES["telum2"], accumulate=accumulate)
    got, status = multiply("matmul_transpose_op", a, b, c, 0, program, turns)
    assert status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    assert got.tolist() == oracle.matmul(a, b, c, 0, *turns).tolist()


@pytest.mark.parametrize("accumulate", ["fp32", "fp64"])
@pytest.mark.parametrize("shape", [(1, 33, 1000, 65), (2, 64, 300, 129)])
def test_conditioned_sums_are_within_one_unit(shape: Sizes, accumulate: Any) -> None:
    """Sums that do not cancel are within one unit of the last place of the exact rounding."""
    assert worst(shape, accumulate) <= 1


@pytest.mark.heavy
@pytest.mark.parametrize("accumulate", ["fp32", "fp64"])
@pytest.mark.parametrize("shape", [*BERT_BASE, *RESNET_50, (1, 4, 50000, 64)])
def test_real_layers_are_within_one_unit(shape: Sizes, accumulate: Any) -> None:
    """Dense layers of BERT-base and ResNet-50, and a long sum, are within one unit."""
    assert worst(shape, accumulate) <= 1


def worst(shape: Sizes, accumulate: Any) -> int:
    """Return, and print, the distance from the exactly rounded sums in units of the last place."""
    s, m, n, p = shape
    a, b, c = conditioned(s, m, n, False), conditioned(s, n, p, True), conditioned(s, 1, p, True)
    c = np.where(b[:, :, :1] & 0x8000, c | 0x8000, c & 0x7FFF)
    program = Guest(MACHINES["telum2"], accumulate=accumulate)
    got, _ = multiply("matmul_op", a, b, c, 0, program)
    result = distance(got, oracle.matmul(a, b, c, 0))
    print(f"matmul_op {shape} {accumulate}: {result} ulp")
    return result


def test_attention_of_bert_base() -> None:
    """Scores of twelve heads, the keys turned, are within one unit of the exact rounding."""
    a, b = conditioned(12, 128, 64, False), conditioned(12, 128, 64, False)
    c = rounded(np.zeros((12, 1, 1, 128)))
    got, _ = multiply("matmul_transpose_op", a, b, c, 0, turns=(False, True))
    assert distance(got, oracle.matmul(a, b, c, 0, False, True)) <= 1


@pytest.mark.parametrize("turns", list(product((False, True), (False, True))))
@pytest.mark.parametrize("op", [0, 5])
@pytest.mark.parametrize("sizes", [(2, 33, 700, 65), (1, 70, 5000, 33), (1, 1, 300, 130)])
def test_singles_are_summed_in_order(sizes: Sizes, op: int, turns: Turns) -> None:
    """FP32 sums add one product after the other, input_c last: every host gets the same bits."""
    s, m, n, p = sizes
    random = np.random.default_rng(n)
    shapes = (s, 1, m, n), (s, 1, n, p), (s, 1, 1, p)
    a, b, c = (rounded(random.normal(0, 1, shape)) for shape in shapes)
    left, right, operand = (decoded(first).astype(np.float32) for first in (a, b, c))
    sums = np.zeros((s, 1, m, p), np.float32)
    for k in range(n):
        sums += left[..., k : k + 1] * right[:, :, k : k + 1, :]
    met = rounded(sums + operand) if op == 0 else np.where(sums <= operand, 0x3E00, 0)
    arguments: dict[str, Any] = {"input_c": tensor(c), "op_type": op}
    for name, first, turn in zip("ab", (a, b), turns, strict=True):
        arguments["transpose_" + name] = turn
        arguments["input_" + name] = tensor(first.swapaxes(2, 3) if turn else first)
    for _ in range(3):
        output = blank((s, 1, m, p))
        assert run(guest(), "matmul_transpose_op", arguments | {"output": output}).status == 0
        assert cells(output).tolist() == met.tolist()


@pytest.mark.parametrize("turns", [(False, False), (True, True)])
@pytest.mark.parametrize("op", [0, 3])
def test_long_products_of_many_rows(op: int, turns: Turns) -> None:
    """A product too long and too tall for one pass is exact, and NINF stays."""
    a, b, c = stack(2, 75, 4200), stack(2, 4200, 70, 1), stack(2, 1, 70, 2)
    a[1, 0, 70, 4150], b[0, 0, 4199, 69] = NINF, 0xFFFF
    a, b = (item.swapaxes(2, 3) if turn else item for item, turn in zip((a, b), turns, strict=True))
    got, status = multiply("matmul_transpose_op", a, b, c, op, turns=turns)
    assert status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    assert got.tolist() == oracle.matmul(a, b, c, op, *turns).tolist()


@pytest.mark.parametrize("operand", ["input_a", "input_b", "input_c"])
def test_a_result_may_take_the_place_of_an_operand(operand: str) -> None:
    """An output in an operand's memory has the bits of one elsewhere, kept weights or not."""
    rows = 1 if operand == "input_c" else 150
    codes = {"input_a": stack(2, rows, 150), "input_b": stack(2, 150, 150, 1)}
    codes["input_c"] = stack(2, 1, 150, 2)
    want = oracle.matmul(codes["input_a"], codes["input_b"], codes["input_c"], 0).tolist()
    weights = tensor(codes["input_b"])
    for _ in range(3):
        arguments: dict[str, Any] = {name: tensor(ztensor) for name, ztensor in codes.items()}
        if operand != "input_b":
            arguments["input_b"] = weights
        output = blank((2, 1, rows, 150))
        output.buffer = arguments[operand].sticks[:]
        assert run(guest(), "matmul_op", arguments | {"op_type": 0, "output": output}).valid
        assert cells(output).tolist() == want


@pytest.mark.parametrize("accumulate", ["fp32", "fp64"])
@pytest.mark.parametrize("inner", [256, 3000, 5000])
def test_rows_keep_their_bits(inner: int, accumulate: Any) -> None:
    """A row of a has the same result alone and in any batch, in both precisions of sums."""
    random = np.random.default_rng(inner)
    a, b = (
        rounded(random.normal(0, 1, (1, 1, 67, inner))),
        rounded(random.normal(0, 1, (1, 1, inner, 130))),
    )
    c = rounded(random.normal(0, 1, (1, 1, 1, 130)))
    program = Guest(MACHINES["telum2"], accumulate=accumulate)
    whole, _ = multiply("matmul_op", a, b, c, 0, program)
    for first, count in ((0, 1), (5, 2), (13, 7), (30, 33), (66, 1)):
        part, _ = multiply("matmul_op", a[:, :, first : first + count], b, c, 0, program)
        assert part.tolist() == whole[:, :, first : first + count].tolist()


def test_same_call_same_bits_in_any_thread() -> None:
    """The same product computed eight times by four threads at once has the same bits."""
    random = np.random.default_rng(3)
    a, b = (rounded(random.normal(0, 1, shape)) for shape in ((1, 1, 50, 700), (1, 1, 700, 90)))
    c = rounded(random.normal(0, 1, (1, 1, 1, 90)))
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(multiply, "matmul_op", a, b, c, 0) for _ in range(8)]
        results = [call.result()[0].tobytes() for call in calls]
    assert len(set(results)) == 1


@pytest.mark.parametrize("shape", [(1, 128, 768, 768), (1, 8, 2048, 1000)])
def test_onnxruntime_agrees(shape: Sizes) -> None:
    """FP32 MatMul and Add of ONNX Runtime agree within the tolerance of DLFLOAT16."""
    helper = pytest.importorskip("onnx.helper", reason="the peer is in the extras test and bench")
    runtime = pytest.importorskip("onnxruntime", reason="the peer is in the extras test and bench")
    s, m, n, p = shape
    random = np.random.default_rng(1)
    a, b, c = (
        random.normal(0, scale, item).astype(np.float32)
        for scale, item in ((1, (m, n)), (n**-0.5, (n, p)), (1, (p,)))
    )
    described = [helper.make_tensor_value_info(x, 1, None) for x in "abcy"]
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["t"]),
        helper.make_node("Add", ["t", "c"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "dense", described[:3], described[3:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = runtime.InferenceSession(model.SerializeToString())
    (want,) = session.run(None, {"a": a, "b": b, "c": c})
    x, w, bias = (rounded(item.reshape(s, 1, -1, item.shape[-1])) for item in (a, b, c))
    got, _ = multiply("matmul_op", x, w, bias, 0)
    values = decoded(got).reshape(m, p).astype(np.float64)
    np.testing.assert_allclose(values, want, rtol=0.05, atol=0.01)


def described(name: str, a: TensorDesc, b: TensorDesc, **turns: bool) -> tuple[TensorDesc, ...]:
    """Return the descriptors that a result left to the emulator gets."""
    both = [Ztensor(ztensor, generate_transformed_desc(ztensor)) for ztensor in (a, b)]
    infer = FUNCTIONS[name].infer
    assert infer is not None
    return infer(input_a=both[0], input_b=both[1], **turns)[0]


def user(layout: int, *dims: int) -> TensorDesc:
    """Describe FP32 data, dims outermost first."""
    padded = (0,) * (4 - len(dims)) + dims
    return TensorDesc(layout, 0, DataTypes.FP32, *padded)


def test_results_are_described() -> None:
    """A result left out has the stacks of the operand that has them, m and p, and fits itself."""
    two, three = DataLayouts.ZDNN_2D, DataLayouts.ZDNN_3DS
    plain = {"transpose_a": False, "transpose_b": False}
    turned = {"transpose_a": True, "transpose_b": True}
    cases: list[tuple[str, TensorDesc, TensorDesc, dict[str, bool], TensorDesc]] = [
        ("matmul_op", user(two, 3, 5), user(two, 5, 7), {}, user(two, 3, 7)),
        ("matmul_bcast_op", user(three, 2, 3, 5), user(two, 5, 7), {}, user(three, 2, 3, 7)),
        ("matmul_bcast_op", user(two, 3, 5), user(three, 2, 5, 7), {}, user(three, 2, 3, 7)),
        ("matmul_transpose_op", user(two, 5, 3), user(two, 7, 5), turned, user(two, 3, 7)),
        ("matmul_transpose_op", user(two, 3, 5), user(two, 5, 7), plain, user(two, 3, 7)),
    ]
    for name, a, b, turns, want in cases:
        assert described(name, a, b, **turns) == (want, generate_transformed_desc(want)), name
    row = user(DataLayouts.ZDNN_1D, 5)
    pre, transformed = described("matmul_op", row, user(two, 5, 7))
    assert transformed.dims == (1, 1, 1, 7)
    assert generate_transformed_desc(pre) == transformed
