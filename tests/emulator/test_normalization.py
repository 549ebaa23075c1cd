# SPDX-License-Identifier: Apache-2.0
"""Normalisation and reduction against the oracle: shapes at edges, BERT-base, state, NINF."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from nnpa_emulator import FUNCTIONS, Guest, Status, Ztensor, run
from nnpa_emulator.ztensor import DataTypes

from tests.emulator.operands import INT32, NINF, Codes, Dims, blank, cells, guest, tensor
from tests.oracle import normalization as oracle
from tests.oracle import pooling
from tests.oracle.rounding import decoded, distance, rounded

SHAPES: list[Dims] = [
    (1, 1, 1, 2), (2, 1, 31, 63), (1, 3, 32, 64), (2, 2, 33, 65), (1, 1, 63, 127), (1, 2, 64, 128),
    (1, 1, 65, 129), (3, 2, 1, 1000),
]  # fmt: skip
# BERT-base: hidden states of one sequence, one dim4 per token, and a row of them.
BERT_BASE: list[Dims] = [(384, 1, 1, 768), (1, 1, 384, 768)]


def data(dims: Dims, seed: int = 0, mean: float = 1.0) -> Codes:
    """Return random codes of a shape."""
    return rounded(np.random.default_rng(sum(dims) + seed).normal(mean, 2, dims))


def call(
    name: str, arguments: dict[str, Any], program: Guest | None = None
) -> tuple[list[Ztensor], int]:
    """Run an operation with outputs described by the emulator; return them and the status."""
    entry = FUNCTIONS[name]
    assert entry.infer
    outputs = []
    for pre, desc in entry.infer(**arguments):
        output = blank(desc.dims, kind=desc.type)
        assert output.pre_transformed_desc.type == pre.type
        outputs.append(output)
    produced = dict(zip(entry.outputs, outputs, strict=True))
    status = run(program or guest(precheck=True), name, {**arguments, **produced}).status
    return outputs, status


def normalised(codes: Codes) -> tuple[Codes, Codes]:
    """Return the oracle's mean and variance of codes, rounded."""
    mean, variance = oracle.moments(decoded(codes), 0)
    return rounded(mean), rounded(variance)


@pytest.mark.parametrize("dims", SHAPES)
def test_batchnorm_is_exact(dims: Dims) -> None:
    """Scale and shift are exact and rounded once."""
    a, b, c = data(dims), data((1, 1, 1, dims[3]), 1), data((1, 1, 1, dims[3]), 2)
    (output,), status = call(
        "batchnorm", {"input_a": tensor(a), "input_b": tensor(b), "input_c": tensor(c)}
    )
    sums = decoded(a) * decoded(b) + decoded(c)
    assert cells(output).tolist() == rounded(sums).tolist()
    assert status == Status.ZDNN_OK
    assert output.is_transformed


def test_batchnorm_rounds_ties_exactly() -> None:
    """Products near a tie are decided by an addend of any size, and signs of zero are IEEE's."""
    random = np.random.default_rng(3)
    count = 4000
    a = random.integers(0, 65536, count).astype(np.uint16)
    b = random.integers(0, 65536, count).astype(np.uint16)
    c = random.integers(0, 65536, count).astype(np.uint16)
    b[::2] = 0x3E00 | (b[::2] & 0x81FF)
    a[::2] = 0x3E01 | (a[::2] & 0x8000)
    c[::4] = (0x0001 + random.integers(0, 0x2000, count // 4)).astype(np.uint16)
    c[1::4] = a[1::4] ^ 0x8000
    a[-4:], b[-4:], c[-4:] = (
        [0x8000, 0, 0x3E00, 0xBE00],
        [0x3E00] * 4,
        [0x8000, 0x8000, 0xBE00, 0x3E00],
    )
    shape = (1, 1, 1, count)
    operands = {"input_a": a, "input_b": b, "input_c": c}
    (output,), status = call(
        "batchnorm", {name: tensor(codes.reshape(shape)) for name, codes in operands.items()}
    )
    want = [oracle.scaled(*(int(i) for i in ztensor)) for ztensor in zip(a, b, c, strict=True)]
    assert cells(output).reshape(-1).tolist() == want
    assert status == Status.ZDNN_ELEMENT_RANGE_VIOLATION


@pytest.mark.parametrize("dims", [*SHAPES, (2, 7, 5, 66), (1, 300, 2, 3)])
def test_meanreduce2d_is_correctly_rounded(dims: Dims) -> None:
    """The mean over height and width is exactly rounded."""
    source = data(dims)
    (output,), status = call("meanreduce2d", {"input": tensor(source)})
    want = rounded(pooling.average(decoded(source), dims[1:3], (0, 0), False))
    assert cells(output).tolist() == want.tolist()
    assert status == Status.ZDNN_OK


def test_meanreduce2d_in_the_place_of_its_input() -> None:
    """A mean is stored where another image is still to be read."""
    source = data((3, 5, 4, 66))
    (expected,), _ = call("meanreduce2d", {"input": tensor(source)})
    both = tensor(source)
    output = replace(expected, buffer=both.sticks[: expected.sticks.nbytes])
    run(guest(), "meanreduce2d", {"input": both, "output": output})
    assert cells(output).tolist() == cells(expected).tolist()


@pytest.mark.parametrize("dims", [item for item in SHAPES if item[1] == 1])
def test_norm_is_correctly_rounded(dims: Dims) -> None:
    """The norm of the difference of two vectors is exactly rounded."""
    a, b = data(dims), data(dims, 1)
    (output,), status = call("norm", {"input_a": tensor(a), "input_b": tensor(b)})
    assert cells(output).tolist() == rounded(oracle.norm(decoded(a), decoded(b))).tolist()
    assert status == Status.ZDNN_OK


@pytest.mark.parametrize("bessel", [0, 1])
@pytest.mark.parametrize("dims", SHAPES)
def test_moments_are_correctly_rounded(dims: Dims, bessel: int) -> None:
    """Mean and variance are exactly rounded, with either divisor."""
    source = data(dims)
    outputs, status = call("moments", {"input": tensor(source), "bessel_correction_type": bessel})
    for output, want in zip(outputs, oracle.moments(decoded(source), bessel), strict=True):
        assert cells(output).tolist() == rounded(want).tolist()
    assert status == Status.ZDNN_OK


def test_moments_marks_the_mean_only() -> None:
    """The library leaves the variance unmarked, and a mark that is there it leaves alone."""
    arguments = {"input": tensor(data((2, 1, 3, 5))), "bessel_correction_type": 0}
    outputs, _ = call("moments", arguments)
    assert [ztensor.is_transformed for ztensor in outputs] == [True, False]
    outcome = run(guest(), "transform_origtensor", {"ztensor": outputs[1]})
    assert outcome.status == Status.ZDNN_INVALID_STATE
    outputs[1].is_transformed = True
    run(guest(), "moments", {**arguments, "output_a": outputs[0], "output_b": outputs[1]})
    assert outputs[1].is_transformed


@pytest.mark.parametrize("code", [0x3E01, 0x5DFF, 0x7FFE, 0x0001, 0xBE01])
def test_variance_of_a_constant_is_zero(code: int) -> None:
    """Equal elements have variance +0 and themselves as mean, however many and large they are."""
    source = np.full((1, 7, 33, 67), code, np.uint16)
    outputs, status = call("moments", {"input": tensor(source), "bessel_correction_type": 1})
    assert [int(cells(ztensor).item()) for ztensor in outputs] == [code, 0]
    assert status == Status.ZDNN_OK


@pytest.mark.parametrize("dims", SHAPES)
def test_layernorm_is_correctly_rounded(dims: Dims) -> None:
    """(a - mean) / sqrt(variance + epsilon) * gamma + beta is exactly rounded."""
    source = data(dims)
    mean, variance = normalised(source)
    (output,), status = call("layernorm", layernorm_arguments(source, mean, variance))
    scalars = [decoded(rounded(array)) for array in (0.25, 1.5, 0.001)]
    want = oracle.layernorm(decoded(source), decoded(mean), decoded(variance), *scalars)
    assert cells(output).tolist() == rounded(want).tolist()
    assert status == Status.ZDNN_OK


def layernorm_arguments(source: Codes, mean: Codes, variance: Codes) -> dict[str, Any]:
    """Return arguments with beta 0.25, gamma 1.5 and epsilon 0.001."""
    return {
        "input_a": tensor(source),
        "input_b": tensor(mean),
        "input_c": tensor(variance),
        "beta_value": 0.25,
        "gamma_value": 1.5,
        "epsilon_value": 0.001,
    }


@pytest.mark.heavy
@pytest.mark.parametrize("dims", BERT_BASE)
def test_normalisation_of_bert_base(dims: Dims) -> None:
    """Moments and layernorm of BERT-base's hidden states are within one unit of the last place."""
    source = data(dims)
    outputs, _ = call("moments", {"input": tensor(source), "bessel_correction_type": 0})
    exact = oracle.moments(decoded(source), 0)
    worst = [
        distance(cells(got), rounded(ztensor)) for got, ztensor in zip(outputs, exact, strict=True)
    ]
    mean, variance = (cells(ztensor) for ztensor in outputs)
    (output,), _ = call("layernorm", layernorm_arguments(source, mean, variance))
    scalars = [decoded(rounded(ztensor)) for ztensor in (0.25, 1.5, 0.001)]
    want = oracle.layernorm(decoded(source), decoded(mean), decoded(variance), *scalars)
    worst.append(distance(cells(output), rounded(want)))
    print(f"moments and layernorm {dims}: {worst} ulp")
    assert max(worst) <= 1


@pytest.mark.parametrize("variance", [0x0000, 0xBE00, 0xC000])
def test_layernorm_without_a_positive_root(variance: int) -> None:
    """Where variance plus epsilon is not positive the results are NINF."""
    source = data((2, 1, 3, 5))
    mean = rounded(np.ones((2, 1, 1, 1)))
    spread = np.array([0x3E00, variance], np.uint16).reshape(2, 1, 1, 1)
    arguments = layernorm_arguments(source, mean, spread) | {"epsilon_value": 0.0}
    (output,), status = call("layernorm", arguments)
    assert status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    got = cells(output)
    assert np.all(got[1] == NINF)
    assert not np.any(got[0] & 0x7FFF == NINF)


@pytest.mark.parametrize("op_type", [0, 1, 2, 3, 257])
@pytest.mark.parametrize("dims", [*SHAPES, (1, 1, 1, 1)])
def test_reduce_is_exact(dims: Dims, op_type: int) -> None:
    """Least and greatest elements and their first positions are selected exactly."""
    source = data(dims, mean=0)
    source.reshape(-1)[::5] = 0x8000
    source.reshape(-1)[1::5] = 0x0000
    (output,), status = call("reduce", {"input": tensor(source), "op_type": op_type})
    result, positions = oracle.reduced(source, greatest=op_type & 2 == 2)
    want = positions if op_type & 1 else result
    assert cells(output).tolist() == want.tolist()
    assert output.transformed_desc.type == (INT32 if op_type & 1 else DataTypes.ZDNN_DLFLOAT16)
    assert status == Status.ZDNN_OK


@pytest.mark.parametrize("op_type", [0, 2])
def test_reduce_finds_the_first_of_equals(op_type: int) -> None:
    """Of equal elements the first counts, across stick columns."""
    source = np.full((1, 1, 1, 200), 0x3E00, np.uint16)
    source[0, 0, 0, [70, 130, 199]] = 0x3C00 if op_type == 0 else 0x4000
    (output,), _ = call("reduce", {"input": tensor(source), "op_type": op_type + 1})
    assert cells(output).reshape(-1).tolist() == [70]


@pytest.mark.parametrize("ninf", [0x7FFF, 0xFFFF])
@pytest.mark.parametrize("op_type", [0, 1, 2, 3])
def test_reduce_of_ninf(op_type: int, ninf: int) -> None:
    """NINF of either sign wins and violates the range, also where the result is a position."""
    source = data((1, 1, 3, 70))
    source[0, 0, 1, [40, 66]] = ninf
    (output,), status = call("reduce", {"input": tensor(source), "op_type": op_type})
    assert cells(output)[0, 0, 1, 0] == (40 if op_type & 1 else NINF)
    assert status == Status.ZDNN_ELEMENT_RANGE_VIOLATION


@pytest.mark.parametrize("operand", ["input_a", "input_b", "input_c"])
@pytest.mark.parametrize("name", ["batchnorm", "layernorm", "norm"])
def test_ninf_poisons_what_depends_on_it(name: str, operand: str) -> None:
    """A NINF operand makes its dependents NINF, no others, and violates the range."""
    source = data((2, 1, 3, 70))
    small = (1, 1, 1, 70) if name == "batchnorm" else (2, 1, 1, 1)
    rest = {"input_b": np.abs(data(small)), "input_c": rounded(np.ones(small))}
    if name == "norm":
        rest = {"input_b": data((2, 1, 3, 70), 1)}
    operands = {"input_a": source, **rest}
    if operand not in operands:
        operand = "input_a"
    operands[operand] = operands[operand].copy()
    operands[operand][0, 0, 0, 0] = 0xFFFF
    arguments: dict[str, Any] = {key: tensor(codes) for key, codes in operands.items()}
    if name == "layernorm":
        arguments |= {"beta_value": 0.0, "gamma_value": 1.0, "epsilon_value": 0.5}
    (output,), status = call(name, arguments)
    got = cells(output)
    where: dict[str, Any] = {
        "batchnorm": (slice(None), 0, slice(None), 0),
        "layernorm": 0,
        "norm": (0, 0, 0, 0),
    }
    hit = np.zeros(got.shape, bool)
    hit[where[name] if operand != "input_a" else (0, 0, 0, 0)] = True
    assert np.array_equal(got & 0x7FFF == NINF, hit)
    assert status == Status.ZDNN_ELEMENT_RANGE_VIOLATION


@pytest.mark.parametrize("name", ["meanreduce2d", "moments"])
def test_ninf_in_an_average(name: str) -> None:
    """A NINF element poisons the mean that it belongs to."""
    source = data((2, 2, 3, 70))
    source[1, 0, 2, 69] = 0xFFFF
    arguments: dict[str, Any] = {"input": tensor(source)}
    if name == "moments":
        arguments["bessel_correction_type"] = 0
    outputs, status = call(name, arguments)
    assert status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    for output in outputs:
        got = cells(output)
        assert np.count_nonzero(got == NINF) == 1
        assert got[1].reshape(-1)[-1] == NINF


def test_telum_1() -> None:
    """Batchnorm and meanreduce2d give the same bits on Telum I."""
    a, b = data((2, 3, 33, 65)), data((1, 1, 1, 65), 1)
    for name, arguments in (
        ("batchnorm", {"input_a": tensor(a), "input_b": tensor(b), "input_c": tensor(b)}),
        ("meanreduce2d", {"input": tensor(a)}),
    ):
        (first,), status = call(name, arguments, guest("telum1"))
        (second,), _ = call(name, arguments)
        assert status == Status.ZDNN_OK
        assert cells(first).tolist() == cells(second).tolist()


def test_results_may_take_the_place_of_their_input() -> None:
    """Batchnorm and layernorm work in place, element by element."""
    source, vector = data((2, 1, 33, 65)), data((1, 1, 1, 65), 1)
    rest = {"input_b": tensor(vector), "input_c": tensor(vector)}
    mean, variance = normalised(source)
    for name, arguments in (
        ("batchnorm", rest),
        ("layernorm", layernorm_arguments(source, mean, variance)),
    ):
        (output,), _ = call(name, {**arguments, "input_a": tensor(source)})
        ztensor = tensor(source)
        run(guest(), name, {**arguments, "input_a": ztensor, "output": ztensor})
        assert cells(ztensor).tolist() == cells(output).tolist()
