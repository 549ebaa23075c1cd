# SPDX-License-Identifier: Apache-2.0
"""Numbers of the elementwise family against exact arithmetic: `tests/oracle/elementwise.py`."""

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from nnpa_emulator import Status, run
from nnpa_emulator.machine import FunctionCode

from tests.emulator.operands import blank, cells, guest, tensor
from tests.oracle import elementwise as oracle
from tests.strategies import EDGES

Codes = npt.NDArray[np.uint16]
EVERY_CODE = np.arange(65536, dtype=np.uint16)
OK, VIOLATION = Status.ZDNN_OK, Status.ZDNN_ELEMENT_RANGE_VIOLATION
EPSILONS = {0.0: 0x0000, 1.0: 0x3E00, 1.0009765625: 0x3E01, -0.25: 0xBA00, 1e-20: 0x0000}


def unary(name: str, codes: Codes, epsilon: float = 0.0) -> tuple[int, Codes]:
    """Compute a unary function over a row of codes."""
    output = blank((1, 1, 1, codes.size))
    arguments = {"input": tensor(codes.reshape(1, 1, 1, -1)), "output": output}
    if name == "invsqrt":
        arguments["epsilon"] = epsilon  # type: ignore[assignment]
    return run(guest(), name, arguments).status, cells(output).ravel()


def binary(name: str, a: Codes, b: Codes) -> tuple[int, Codes]:
    """Compute a binary function over two rows of codes."""
    output = blank((1, 1, 1, a.size))
    inputs = {"input_a": tensor(a.reshape(1, 1, 1, -1)), "input_b": tensor(b.reshape(1, 1, 1, -1))}
    return run(guest(), name, {**inputs, "output": output}).status, cells(output).ravel()


@pytest.mark.parametrize("name", oracle.UNARY)
def test_every_code(name: str) -> None:
    """Each of the 65 536 codes has the function's value, rounded once."""
    expected = [oracle.UNARY[name](int(code)) for code in EVERY_CODE]
    status, got = unary(name, EVERY_CODE)
    assert status == VIOLATION
    assert np.array_equal(got, np.array(expected, np.uint16))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_every_code_of_invsqrt(epsilon: float) -> None:
    """1 / sqrt(x + epsilon) of each code, epsilon reduced to DLFLOAT16, rounded once."""
    expected = [oracle.invsqrt(int(code), EPSILONS[epsilon]) for code in EVERY_CODE]
    assert np.array_equal(unary("invsqrt", EVERY_CODE, epsilon)[1], np.array(expected, np.uint16))


def _structured() -> tuple[Codes, Codes]:
    """Return all pairs of edges, pairs of near exponents that make ties, and random pairs."""
    edges = list(product(EDGES, EDGES))
    random = np.random.default_rng(20250401)
    base = random.integers(0x0400, 0x7C00, 6000)
    shift = random.integers(-12 * 512, 12 * 512, 6000)
    near = np.clip(base + shift, 1, 0x7FFE)
    signs = random.integers(0, 2, (2, 6000)) << 15
    anything = random.integers(0, 65536, (2, 6000))
    a = np.concatenate([[array for array, _ in edges], base | signs[0], anything[0]])
    b = np.concatenate([[second for _, second in edges], near | signs[1], anything[1]])
    return a.astype(np.uint16), b.astype(np.uint16)


@pytest.mark.parametrize("name", oracle.BINARY)
def test_pairs_are_rounded_once(name: str) -> None:
    """Edges, ties and random pairs have the exact result, rounded once, ties away from zero."""
    a, b = _structured()
    expected = [oracle.BINARY[name](int(x), int(y)) for x, y in zip(a, b, strict=True)]
    status, got = binary(name, a, b)
    assert status == VIOLATION
    assert np.array_equal(got, np.array(expected, np.uint16))


# Function, operands, result, status: the boundary rules, each by name.
RULES = {
    "add overflows to NINF": ("add", 0x7FFE, 0x7E00, 0x7FFF, VIOLATION),
    "add overflow keeps the sign": ("add", 0xFFFE, 0xFE00, 0xFFFF, VIOLATION),
    "sub overflows": ("sub", 0xFFFE, 0x7E00, 0xFFFF, VIOLATION),
    "mul overflow has the product's sign": ("mul", 0xFFFE, 0x4000, 0xFFFF, VIOLATION),
    "half a unit above the largest is overflow": ("add", 0x7FFE, 0x6A00, 0x7FFF, VIOLATION),
    "less than half a unit is not": ("add", 0x7FFE, 0x69FF, 0x7FFE, OK),
    "mul underflows to zero": ("mul", 0x0001, 0x0001, 0x0000, OK),
    "mul underflow keeps the sign": ("mul", 0x8001, 0x0001, 0x8000, OK),
    "div underflows": ("div", 0x8001, 0x7FFE, 0x8000, OK),
    "2^-31 is no number": ("mul", 0x2000, 0x1E00, 0x0000, OK),
    "x / 0 is positive NINF": ("div", 0xBE00, 0x0000, 0x7FFF, VIOLATION),
    "0 / 0 is NINF": ("div", 0x0000, 0x0000, 0x7FFF, VIOLATION),
    "0 / -0 is positive NINF": ("div", 0x0000, 0x8000, 0x7FFF, VIOLATION),
    "NINF / anything": ("div", 0xFFFF, 0x3E00, 0x7FFF, VIOLATION),
    "anything / NINF": ("div", 0x3E00, 0xFFFF, 0x7FFF, VIOLATION),
    "0 * NINF": ("mul", 0x0000, 0xFFFF, 0x7FFF, VIOLATION),
    "NINF - NINF": ("sub", 0x7FFF, 0x7FFF, 0x7FFF, VIOLATION),
    "min with NINF": ("min", 0x3E00, 0x7FFF, 0x7FFF, VIOLATION),
    "min with -NINF": ("min", 0xFFFF, 0x3E00, 0x7FFF, VIOLATION),
    "max with -NINF": ("max", 0xFFFF, 0x3E00, 0x7FFF, VIOLATION),
    "-0 is less than +0": ("min", 0x0000, 0x8000, 0x8000, OK),
    "+0 is more than -0": ("max", 0x8000, 0x0000, 0x0000, OK),
    "x - x is +0": ("sub", 0xC123, 0xC123, 0x0000, OK),
    "-0 + -0 is -0": ("add", 0x8000, 0x8000, 0x8000, OK),
    "ties go away from zero": ("add", 0x3E00, 0x2A00, 0x3E01, OK),
    "also negative ones": ("add", 0xBE00, 0xAA00, 0xBE01, OK),
}


@pytest.mark.parametrize("rule", RULES)
def test_boundary_rule(rule: str) -> None:
    """A boundary rule holds, bits and status."""
    name, a, b, expected, status = RULES[rule]
    got = binary(name, np.array([a], np.uint16), np.array([b], np.uint16))
    assert (got[0], got[1][0]) == (status, expected)


UNARY_RULES = {
    "log(1) is 0": ("log", 0x3E00, 0x0000, OK),
    "log(0) is negative NINF": ("log", 0x0000, 0xFFFF, VIOLATION),
    "log(-0) is negative NINF": ("log", 0x8000, 0xFFFF, VIOLATION),
    "log of a negative number": ("log", 0xBE00, 0xFFFF, VIOLATION),
    "log(-NINF) is positive NINF": ("log", 0xFFFF, 0x7FFF, VIOLATION),
    "exp(-0) is 1": ("exp", 0x8000, 0x3E00, OK),
    "exp overflows": ("exp", 0x46E0, 0x7FFF, VIOLATION),
    "exp underflows": ("exp", 0xC700, 0x0000, OK),
    "sqrt(0) is 0": ("sqrt", 0x0000, 0x0000, OK),
    "sqrt of a negative number": ("sqrt", 0x8001, 0x7FFF, VIOLATION),
    "invsqrt(0)": ("invsqrt", 0x0000, 0x7FFF, VIOLATION),
    "invsqrt of a negative number": ("invsqrt", 0xBE00, 0x7FFF, VIOLATION),
}


@pytest.mark.parametrize("rule", UNARY_RULES)
def test_unary_boundary_rule(rule: str) -> None:
    """A boundary rule of a unary function holds, bits and status."""
    name, code, expected, status = UNARY_RULES[rule]
    got = unary(name, np.array([code], np.uint16))
    assert (got[0], got[1][0]) == (status, expected)


def test_invsqrt_at_the_largest_sum() -> None:
    """The sum x + epsilon may round to the largest number, only what rounds beyond it overflows."""
    largest = np.array([0x7FFE], np.uint16)
    status, got = unary("invsqrt", largest, 1.0)
    assert (status, got[0]) == (OK, oracle.invsqrt(0x7FFE, 0x3E00))
    assert unary("invsqrt", largest, 4194304.0)[0] == VIOLATION


@pytest.mark.parametrize("name", [*oracle.BINARY, *oracle.UNARY])
@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (2, 3, 33, 65), (1, 1, 32, 64), (3, 1, 31, 129)])
def test_padding_is_neither_read_nor_left(name: str, dims: tuple[int, int, int, int]) -> None:
    """NINF in padding does not matter, and padding of the result is zero over any garbage."""
    units = np.full(dims, 0x4200, np.uint16)
    output = blank(dims)
    if name in oracle.BINARY:
        arguments = {"input_a": tensor(units), "input_b": tensor(units), "output": output}
        expected = oracle.BINARY[name](0x4200, 0x4200)
    else:
        arguments = {"input": tensor(units), "output": output}
        expected = oracle.UNARY[name](0x4200)
        if name == "invsqrt":
            arguments["epsilon"] = 0.0  # type: ignore[assignment]
    assert run(guest(), name, arguments).status == OK
    assert np.all(cells(output) == expected)


def test_explanation_of_an_operation() -> None:
    """A violation tells function, operands in C order, counts, indices and operand values."""
    a = np.full((1, 2, 33, 65), 0x3E00, np.uint16)
    b = a.copy()
    b[0, 1, 32, 60:] = 0
    a[0, 0, 0, :4] = 0x7FFF
    arguments = {"input_a": tensor(a), "input_b": tensor(b), "output": blank(a.shape)}
    violation = run(guest(), "div", arguments).violation
    assert violation
    assert violation.function == FunctionCode.NNPA_DIV
    first, result = violation.operands
    assert (first.operand, first.count, len(first.elements)) == ("input_a", 4, 4)
    assert (result.operand, result.count, len(result.elements)) == ("output", 9, 8)
    assert [element.index for element in result.elements[:5]] == [
        *((0, 0, 0, column) for column in range(4)), (0, 1, 32, 60),
    ]  # fmt: skip
    divided = result.elements[4]
    assert (divided.code, divided.padding, divided.operand_values) == (0x7FFF, False, (1.0, 0.0))


def test_output_may_hold_anything_before() -> None:
    """An output that is transformed already is overwritten."""
    output = tensor(np.full((1, 1, 2, 3), 0x7FFF, np.uint16))
    units = tensor(np.full((1, 1, 2, 3), 0x3E00, np.uint16))
    arguments = {"input_a": units, "input_b": units, "output": output}
    assert run(guest(), "add", arguments).status == OK
    assert np.all(cells(output) == 0x4000)
