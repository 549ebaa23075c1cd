# SPDX-License-Identifier: Apache-2.0
"""A chain gives the bits of its calls one by one, or says that one of them meets a NINF."""

from typing import Any

import numpy as np
import pytest
from nnpa_emulator import Status, run
from nnpa_emulator.chains import Link, prepare_chain
from nnpa_emulator.kernels import elementwise
from nnpa_emulator.kernels.chains import chain
from nnpa_emulator.reference.chains import LOAD, RELU, SCALE, STORE
from nnpa_emulator.ztensor import Ztensor

from tests.emulator.operands import NINF, blank, cells, guest, tensor, values
from tests.emulator.test_reference import EDGE_CODES, EVERY_CODE

pytestmark = pytest.mark.shortcut
BINARY = ("add", "sub", "mul", "div", "min", "max")
SHAPES = [(1, 1, 1, 1), (2, 3, 40, 8), (1, 2, 33, 64), (1, 1, 65, 100), (1, 24, 96, 8),
          (2, 1, 70, 200), (2, 3, 150, 64), (1, 2, 130, 128)]  # fmt: skip
ONE = 0x3E00
REGION = (1, 1, 1, 1024, 64)


def one_by_one(links: list[Link], tensors: dict[int, Ztensor]) -> list[int]:
    """Make the calls of a chain, and return their statuses."""
    statuses = list[int]()
    for link in links:
        names = {"relu": ("input",)}.get(link.verb, ("input_a", "input_b"))
        arguments: dict[str, Any] = dict(
            zip(names, (tensors[n] for n in link.inputs), strict=False)
        )
        if link.verb == "batchnorm":
            arguments |= {"input_b": link.factors, "input_c": link.added}
        if link.verb == "relu":
            arguments["clipping_value"] = None if np.isinf(link.limit) else link.limit
        tensors[link.output] = arguments["output"] = blank(tensors[0].transformed_desc.dims)
        statuses.append(run(guest(), link.verb, arguments).status)
    return statuses


def drawn(random: np.random.Generator, dims: tuple[int, int, int, int]) -> list[Link]:
    """Draw the links of a chain over tensors 0, 1 and 2; results are 3 and up."""
    links = list[Link]()
    for output in range(3, int(random.integers(4, 9))):
        verb = str(random.choice([*BINARY, "relu", "batchnorm"]))
        inputs = tuple(int(number) for number in random.integers(0, output, 2))
        if verb in BINARY:
            links.append(Link(verb, inputs, output))
        elif verb == "relu":
            limit = float(random.choice([np.inf, 1.5]))
            links.append(Link(verb, inputs[:1], output, limit))
        else:
            lanes = (values(random.normal(size=(1, 1, 1, dims[3]))) for _ in range(2))
            links.append(Link(verb, inputs[:1], output, np.inf, *lanes))
    return links


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("seed", range(30))
def test_a_chain_equals_its_calls(dims: tuple[int, int, int, int], seed: int) -> None:
    """Bits are equal where no call meets a NINF, and only there the chain runs; padding stays 0."""
    random = np.random.default_rng((seed, *dims))
    links = drawn(random, dims)
    tensors = {number: values(random.normal(size=dims)) for number in range(2)}
    tensors[2] = values(np.full(dims, 3.0))
    statuses = one_by_one(links, tensors)
    outputs = [links[-1].output, int(random.integers(3, links[-1].output + 1))]
    outputs = list(dict.fromkeys(outputs))
    repeated = {number: tensors[number] for number in range(3)}
    repeated |= {number: blank(dims) for number in outputs}
    for number in outputs:
        repeated[number].sticks[:] = 0
    ran = prepare_chain(links, repeated, outputs, {2})()
    assert ran == all(status == Status.ZDNN_OK for status in statuses)
    if ran:
        for number in outputs:
            assert np.array_equal(cells(repeated[number]), cells(tensors[number]))


def test_some_chains_meet_a_ninf_and_some_do_not() -> None:
    """The law above is of both kinds of chains."""
    met = set[bool]()
    for seed in range(30):
        random = np.random.default_rng((seed, *SHAPES[1]))
        links = drawn(random, SHAPES[1])
        tensors = {number: values(random.normal(size=SHAPES[1])) for number in range(2)}
        tensors[2] = values(np.full(SHAPES[1], 3.0))
        met.add(all(status == Status.ZDNN_OK for status in one_by_one(links, tensors)))
    assert met == {True, False}


def _linked(operation: int, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> tuple[bool, Any]:
    """Run one operation over two lines of 65,536 codes; of SCALE `b` is the factor and added."""
    second = {RELU: 0, SCALE: 0}.get(operation, 1)
    links = [(LOAD, 0, 0, 0), (LOAD, 1, 1, 0), (operation, 2, 0, second), (STORE, 0, 2, 0)]
    out = np.zeros(1 << 16, np.uint16)
    sources = (a, b, a, a, a, a)
    rows, limits = np.array(links, np.int64), np.array([6.0], np.float32)
    lanes = np.ones((2, 64), np.float32)
    return bool(chain(rows, sources, out, out, limits, lanes, REGION)), out


@pytest.mark.parametrize("operation", range(6))
def test_arithmetic_of_every_code(operation: int) -> None:
    """Every code with every boundary code gives what the operation gives; a NINF is seen."""
    for second in EDGE_CODES:
        edges = np.full(65536, second, np.uint16)
        for a, b in ((EVERY_CODE, edges), (edges, EVERY_CODE)):
            expected = np.zeros(65536, np.uint16)
            elementwise.binary(operation, a, b, expected, REGION, True)
            bad = expected & 0x7FFF == NINF
            quiet = [np.where(bad, ONE, line).astype(np.uint16) for line in (a, b)]
            ran, out = _linked(operation, *quiet)
            assert ran
            assert np.array_equal(out[~bad], expected[~bad])
            for index in np.flatnonzero(bad)[:: max(1, bad.sum() // 3)]:
                single = [line.copy() for line in quiet]
                single[0][index], single[1][index] = a[index], b[index]
                assert not _linked(operation, *single)[0]


@pytest.mark.parametrize("operation", [RELU, SCALE])
def test_unary_links_of_every_code(operation: int) -> None:
    """Every code goes through a link of one operand as through the operation; a NINF is seen."""
    numeric = np.where(EVERY_CODE & 0x7FFF == NINF, ONE, EVERY_CODE).astype(np.uint16)
    source = tensor(numeric.reshape(1, 1, 1024, 64))
    output, lanes = blank((1, 1, 1024, 64)), values(np.ones((1, 1, 1, 64)))
    arguments: dict[str, Any] = {"input": source, "clipping_value": 6.0, "output": output}
    if operation == SCALE:
        arguments = {"input_a": source, "input_b": lanes, "input_c": lanes, "output": output}
    outcome = run(guest(), "relu" if operation == RELU else "batchnorm", arguments)
    expected = cells(output).reshape(-1)
    bad = expected & 0x7FFF == NINF
    assert (outcome.status == Status.ZDNN_OK) == (not bad.any())
    ran, out = _linked(operation, np.where(bad, ONE, numeric).astype(np.uint16), numeric)
    assert ran
    assert np.array_equal(out[~bad], expected[~bad])
    for place in (0, 40_000, 65_535):
        single = numeric.copy()
        single[place] = NINF
        assert not _linked(operation, single, np.full(65536, ONE, np.uint16))[0]
