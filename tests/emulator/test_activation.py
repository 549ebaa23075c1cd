# SPDX-License-Identifier: Apache-2.0
"""Activations against the oracle: every code of the unary ones, softmax over its shapes."""

import numpy as np
import pytest
from nnpa_emulator import Status, Ztensor, run

from tests.emulator.operands import NINF, Codes, blank, cells, guest, tensor, values
from tests.oracle import activation as oracle
from tests.oracle import dlfloat
from tests.oracle.rounding import decoded, distance, rounded

EVERY_CODE = np.arange(65536, dtype=np.uint16)
# Codes from 2**-12 to 64, where the functions bend, and fewer elsewhere.
_BENT = (EVERY_CODE & 0x7FFF >= 19 * 512) & (EVERY_CODE & 0x7FFF < 37 * 512)
_EDGES = (EVERY_CODE & 0x7FFF >= 0x7FFE) | (EVERY_CODE & 0x7FFF < 2)
CHOSEN = EVERY_CODE[(_BENT & (EVERY_CODE % 5 == 0)) | (EVERY_CODE % 61 == 0) | _EDGES]
SHAPES = [
    (1, 1, 1), (1, 1, 2), (2, 31, 63), (1, 32, 64), (2, 33, 65), (1, 63, 127), (1, 64, 128),
    (1, 65, 129), (3, 1, 1000), (1, 2, 4099),
]  # fmt: skip
BERT_BASE = [(12, 384, 384), (1, 384, 2)]


def apply(name: str, codes: Codes, **scalars: float | None) -> tuple[Codes, int]:
    """Run an element-wise activation over a line of codes; return the codes and the status."""
    source = tensor(codes.reshape(1, 1, 1, -1))
    output = blank(source.transformed_desc.dims)
    outcome = run(guest(), name, {"input": source, **scalars, "output": output})
    assert output.is_transformed
    return cells(output).reshape(-1), outcome.status


def wrong_unary(name: str, codes: Codes) -> list[tuple[str, ...]]:
    """Return the code, result and expectation wherever a function over codes is wrong."""
    got, status = apply(name, codes)
    want = np.array([oracle.unary(name, int(code)) for code in codes], np.uint16)
    assert status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    wrong = np.flatnonzero(got != want)
    return [(hex(codes[i]), hex(got[i]), hex(want[i])) for i in wrong]


@pytest.mark.parametrize("name", oracle.UNARY)
def test_unary_is_correctly_rounded(name: str) -> None:
    """Tanh, sigmoid and gelu are the formula's value, rounded once, and NINF for NINF."""
    assert not wrong_unary(name, CHOSEN)


@pytest.mark.heavy
@pytest.mark.parametrize("name", oracle.UNARY)
def test_unary_is_correctly_rounded_everywhere(name: str) -> None:
    """The same holds for all 65536 codes."""
    assert not wrong_unary(name, EVERY_CODE)


@pytest.mark.parametrize("clipping", [None, 0.0, 1e-12, 6.0, 0.3333, 8573157376.0])
def test_relu_selects_exactly(clipping: float | None) -> None:
    """Relu keeps positive codes up to the clipping value, and gives +0 for all others but NINF."""
    got, status = apply("relu", CHOSEN, clipping_value=clipping)
    limit = int(rounded(clipping or 0.0))
    want = [oracle.rectified(code, limit, 0) for code in CHOSEN.tolist()]
    assert got.tolist() == want
    assert status == Status.ZDNN_ELEMENT_RANGE_VIOLATION


def test_relu_clipping_may_be_left_out() -> None:
    """A call without the optional clipping value is a call with NULL."""
    assert (
        apply("relu", CHOSEN)[0].tolist() == apply("relu", CHOSEN, clipping_value=None)[0].tolist()
    )


@pytest.mark.parametrize(
    ("clipping", "factor"), [(None, 0.0), (2.0, 0.1), (None, 1.0005), (0.0, -0.0)]
)
def test_leaky_relu_is_correctly_rounded(clipping: float | None, factor: float) -> None:
    """Negative codes are multiplied by the rounded factor, with one rounding; factor 0 is relu."""
    got, _ = apply("leaky_relu", CHOSEN, clipping_value=clipping, adjustment_factor=factor)
    limit = int(rounded(clipping or 0.0))
    slope = int(rounded(factor)) if factor else 0
    want = [oracle.rectified(code, limit, slope) for code in CHOSEN.tolist()]
    assert got.tolist() == want


def test_numbers_alone_are_ok() -> None:
    """Without a NINF operand no activation violates the range."""
    numbers = EVERY_CODE[EVERY_CODE & 0x7FFF != NINF]
    for name in oracle.UNARY:
        got, status = apply(name, numbers)
        assert status == Status.ZDNN_OK, name
        assert not np.any(got & 0x7FFF == NINF), name


def soften(
    source: Ztensor, act: int, mask: int | None = None, machine: str = "telum2"
) -> tuple[Codes, int]:
    """Run softmax, or softmax_mask where a mask is given; return the codes and the status."""
    output = blank(source.transformed_desc.dims)
    arguments: dict[str, object] = {"input": source, "act_func": act, "output": output}
    if mask is not None:
        arguments["softmax_mask"] = mask
    name = "softmax" if mask is None else "softmax_mask"
    status = run(guest(machine), name, arguments).status
    return cells(output), status


def compare_softmax(shape: tuple[int, int, int], act: int) -> int:
    """Return the distance from the oracle over random data of a shape (dim4, dim2, dim1)."""
    random = np.random.default_rng(sum(shape))
    source = rounded(random.normal(0, 3, (shape[0], 1, *shape[1:])))
    got, status = soften(tensor(source), act)
    assert status == Status.ZDNN_OK
    return distance(got, rounded(oracle.softmax(decoded(source), shape[2], act == 1)))


@pytest.mark.parametrize("act", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_softmax_is_correctly_rounded(shape: tuple[int, int, int], act: int) -> None:
    """Softmax and its logarithm are exactly rounded at stick and page edges."""
    assert compare_softmax(shape, act) == 0


@pytest.mark.heavy
@pytest.mark.parametrize("act", [0, 1])
@pytest.mark.parametrize("shape", BERT_BASE)
def test_softmax_of_bert_base(shape: tuple[int, int, int], act: int) -> None:
    """Attention scores and answers of BERT-base are within one unit of the last place."""
    worst = compare_softmax(shape, act)
    print(f"softmax {shape} act {act}: {worst} ulp")
    assert worst <= 1


@pytest.mark.parametrize("act", [0, 1])
@pytest.mark.parametrize("mask", [1, 63, 64, 65, 99, 100, 0])
def test_softmax_mask_looks_at_the_first_elements(mask: int, act: int) -> None:
    """Elements behind the mask are not used, even NINF, and their results are +0; 0 is all."""
    random = np.random.default_rng(mask)
    source = rounded(random.normal(0, 3, (2, 1, 33, 100)))
    count = mask or 100
    source[..., count:] = NINF
    got, status = soften(tensor(source), act, mask)
    precise = np.where(source == NINF, 0, decoded(source))
    assert got.tolist() == rounded(oracle.softmax(precise, count, act == 1)).tolist()
    assert status == Status.ZDNN_OK


@pytest.mark.parametrize("act", [0, 1])
@pytest.mark.parametrize("ninf", [0x7FFF, 0xFFFF])
def test_softmax_of_ninf(ninf: int, act: int) -> None:
    """A NINF makes its own vector NINF, no other, and violates the range."""
    source = rounded(np.ones((2, 1, 3, 70)))
    source[1, 0, 1, 69] = ninf
    got, status = soften(tensor(source), act)
    assert status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    assert np.all(got[1, 0, 1] & 0x7FFF == NINF)
    got[1, 0, 1] = got[0, 0, 0]
    assert np.all(got == got[0, 0, 0])


@pytest.mark.parametrize(
    ("codes", "act", "want"),
    [
        ([0x7FFE, 0xFFFE], 0, [0x3E00, 0x0000]),
        ([0x7FFE, 0xFFFE], 1, [0x0000, 0xFFFF]),
        ([0xFFFE] * 4, 0, [0x3A00] * 4),
        ([0x0000, 0x8000], 0, [0x3C00, 0x3C00]),
        ([0x0001], 1, [0x0000]),
    ],
)
def test_softmax_at_the_edges(codes: list[int], act: int, want: list[int]) -> None:
    """A difference beyond the range counts as exponential 0; its logarithm overflows to NINF."""
    got, status = soften(tensor(np.array(codes, np.uint16).reshape(1, 1, 1, -1)), act)
    assert got.reshape(-1).tolist() == want
    violated = any(code & 0x7FFF == NINF for code in want)
    assert status == (Status.ZDNN_ELEMENT_RANGE_VIOLATION if violated else Status.ZDNN_OK)


def test_softmax_on_telum_1() -> None:
    """Telum I computes the same bits."""
    source = values(np.linspace(-3, 3, 130).reshape(1, 1, 2, 65))
    assert soften(source, 0, machine="telum1")[0].tolist() == soften(source, 0)[0].tolist()


def test_act_func_is_cut_to_four_bits() -> None:
    """act_func 16 is SOFTMAX_ACT_NONE and 17 SOFTMAX_ACT_LOG, as in the parameter block."""
    source = values(np.linspace(-3, 3, 65).reshape(1, 1, 1, 65))
    for act in (0, 1):
        assert soften(source, act + 16)[0].tolist() == soften(source, act)[0].tolist()


def test_oracle_of_relu_rounds_products() -> None:
    """The oracle's product of a code and a factor is the exact one, rounded."""
    assert oracle.rectified(0xBE01, 0, 0x3C01) == dlfloat.rounded(
        -dlfloat.value(0x3E01) * dlfloat.value(0x3C01),  # type: ignore[operator]
        True,
    )


@pytest.mark.parametrize("mask", [None, 70])
def test_softmax_in_place(mask: int | None) -> None:
    """The output may be the input itself: a vector is read before it is written."""
    source = rounded(np.random.default_rng(5).normal(0, 3, (2, 1, 33, 130)))
    want, _ = soften(tensor(source), 0, mask)
    ztensor = tensor(source)
    arguments: dict[str, object] = {"input": ztensor, "act_func": 0, "output": ztensor}
    name = "softmax" if mask is None else "softmax_mask"
    run(guest(), name, arguments if mask is None else {**arguments, "softmax_mask": mask})
    assert cells(ztensor).tolist() == want.tolist()


def test_bytes_behind_the_sticks_stay() -> None:
    """A buffer that is larger than its tensor keeps what lies behind it."""
    source = tensor(rounded(np.ones((1, 1, 3, 5))))
    output = blank((1, 1, 3, 5))
    output.buffer = np.full(2 * 4096, 0x5A, np.uint8)
    run(guest(), "softmax", {"input": source, "act_func": 0, "output": output})
    assert np.all(output.sticks[4096:] == 0x5A)
    assert not np.any(output.sticks[:4096] == 0x5A)
