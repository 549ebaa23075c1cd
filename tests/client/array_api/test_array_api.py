# SPDX-License-Identifier: Apache-2.0
"""The functions of the array API that zDNN has, against array-api-strict."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from nnpa_client import Session, ZdnnWarning, array_api, dlfloat16
from nnpa_server.sessions.store import Store

from tests import strategies
from tests.client.array_api.array_api_strictly import (
    LAST_AXIS,
    TWO_OPERANDS,
    differences,
    entered_session,
    strict,
    values_of,
    xp,
)

Singles = npt.NDArray[np.float32]
Shape = tuple[int, ...]
SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=5)

ROWS = {row.function: row for row in array_api.conformance()}

ONE_OPERAND = ("exp", "log", "sqrt", "square", "tanh")

few = settings(max_examples=12)


@pytest.fixture(scope="module", autouse=True)
def session(store: Store) -> Iterator[Session]:
    """A session of Telum II, entered."""
    with entered_session(store, "telum2") as opened:
        yield opened


def ztensor_values(shape: Shape) -> st.SearchStrategy[Singles]:
    """Draw values of DLFLOAT16, also at the edges of its range."""
    codes = strategies.codes((1, 1, 1, int(np.prod(shape))), finite=True)
    return codes.map(lambda drawn: dlfloat16.decode(drawn).reshape(shape))


def small_integers(*shape: int) -> st.SearchStrategy[Singles]:
    """Draw integers whose sums of products are exact in FP32."""
    seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)
    return seeds.map(lambda random: random.integers(-64, 65, shape).astype(np.float32))


ANY_VALUES = SHAPES.flatmap(ztensor_values)
PAIRS = SHAPES.flatmap(lambda shape: st.tuples(ztensor_values(shape), ztensor_values(shape)))


def ours(name: str, *operands: Singles, **options: Any) -> npt.NDArray[Any]:
    """Call a function of the namespace on ztensors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZdnnWarning)
        return values_of(getattr(xp, name)(*map(xp.asarray, operands), **options))


def in_float32(name: str, *operands: Singles) -> npt.NDArray[Any]:
    """Call a function of array-api-strict on float32: the standard's results."""
    with np.errstate(all="ignore"):
        return values_of(getattr(strict, name)(*map(strict.asarray, operands)))


def theirs(name: str, *operands: Singles, **options: Any) -> npt.NDArray[Any]:
    """Call a function of array-api-strict on float64, and round what it returns to DLFLOAT16."""
    with np.errstate(all="ignore"):
        wide = [strict.asarray(a.astype(np.float64)) for a in operands]
        return dlfloat16.round(values_of(getattr(strict, name)(*wide, **options)))


@pytest.mark.parametrize("name", ONE_OPERAND)
@few
@given(ANY_VALUES)
def test_functions_of_one_ztensor(name: str, x: Singles) -> None:
    """It is what the standard says, rounded, also at edges; the table has each difference."""
    values = ours(name, x)
    np.testing.assert_array_equal(values, theirs(name, x))
    assert differences(values, in_float32(name, x)) <= {*ROWS[name].differences}


@pytest.mark.parametrize("name", TWO_OPERANDS)
@few
@given(PAIRS)
def test_functions_of_two_ztensors(name: str, pair: tuple[Singles, Singles]) -> None:
    """It is what the standard says, rounded, also at edges; the table has each difference."""
    values = ours(name, *pair)
    np.testing.assert_array_equal(values, theirs(name, *pair))
    assert differences(values, in_float32(name, *pair)) <= {*ROWS[name].differences}


@few
@given(ANY_VALUES, strategies.finite_code.map(lambda code: abs(float(dlfloat16.decode(code)))))
def test_elements_are_clipped(x: Singles, greatest: float) -> None:
    """`clip` from 0 to any value of DLFLOAT16, or without an upper bound, is the standard's."""
    for bound in (None, greatest or 1.0):
        options = {"min": 0.0, "max": bound}
        np.testing.assert_array_equal(ours("clip", x, **options), theirs("clip", x, **options))


MATRICES = [
    ((), ()), ((3,), (3,)), ((3,), ()), ((), (3,)), ((1,), ()), ((2, 3), (2, 3)), ((2, 3), ()),
    ((), (2, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("stack1", "stack2"), MATRICES)
@settings(max_examples=5)
@given(st.data())
def test_products_of_matrices(stack1: Shape, stack2: Shape, data: st.DataObject) -> None:
    """Products of matrices and stacks equal the standard's where FP32 holds their sums."""
    m, n, p = data.draw(st.tuples(*[st.integers(1, 5)] * 3))
    a = data.draw(small_integers(*stack1, m, n))
    b = data.draw(small_integers(*stack2, n, p))
    np.testing.assert_array_equal(ours("matmul", a, b), theirs("matmul", a, b))


@few
@given(st.data(), st.integers(1, 5), st.integers(1, 5), st.sampled_from([(), (2,), (2, 3)]))
def test_products_of_vectors(data: st.DataObject, n: int, p: int, stack: Shape) -> None:
    """A vector is a row or a column whose dim is not in the product."""
    vector = data.draw(small_integers(n))
    after, before = data.draw(small_integers(*stack, n, p)), data.draw(small_integers(*stack, p, n))
    np.testing.assert_array_equal(ours("matmul", vector, after), theirs("matmul", vector, after))
    np.testing.assert_array_equal(ours("matmul", before, vector), theirs("matmul", before, vector))
    rows = data.draw(small_integers(*stack, p, n))
    np.testing.assert_array_equal(ours("vecdot", before, rows), theirs("vecdot", before, rows))


@pytest.mark.parametrize("axes", [0, 1, 2])
@few
@given(st.data(), st.lists(st.integers(1, 4), min_size=4, max_size=4))
def test_products_over_several_axes(axes: int, data: st.DataObject, sizes: list[int]) -> None:
    """`tensordot` over a number of axes is the standard's, also over none."""
    inner = sizes[:axes]
    a, b = data.draw(small_integers(sizes[2], *inner)), data.draw(small_integers(*inner, sizes[3]))
    options = {"axes": axes}
    product = ours("tensordot", a, b, **options)
    np.testing.assert_array_equal(product, theirs("tensordot", a, b, **options))


@pytest.mark.parametrize("name", LAST_AXIS)
@few
@given(ANY_VALUES)
def test_reductions_of_the_last_axis(name: str, x: Singles) -> None:
    """The greatest and least of the last axis, and their first places, are the standard's."""
    kept = {"axis": -1, "keepdims": True}
    expected = values_of(getattr(strict, name)(strict.asarray(x), **kept))
    reduced = ours(name, x, **kept)
    np.testing.assert_array_equal(reduced, expected)
    assert reduced.dtype == (np.int32 if name.startswith("arg") else np.float32)
    if x.ndim > 1 and not name.startswith("arg"):
        np.testing.assert_array_equal(ours(name, x, axis=-1), expected[..., 0])


REDUCED: list[tuple[Shape, Any]] = [
    ((4,), None), ((4,), 0), ((4, 8), None), ((4, 8), (0, 1)), ((3, 4, 8), (1, 2)),
    ((3, 2, 4, 8), (-1, -2, 1)), ((1, 4), 1), ((1, 2, 4), None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "axis"),
    [*REDUCED, ((4, 8), 0), ((4, 8), -2), ((3, 4, 8), 1), ((3, 2, 4, 8), (1, 2))],
)
@settings(max_examples=5)
@given(st.data())
def test_means(shape: Shape, axis: Any, data: st.DataObject) -> None:
    """Means over the axes that zDNN reduces are the standard's, rounded, where FP32 holds sums."""
    x = data.draw(small_integers(*shape))
    kept = {"axis": axis, "keepdims": True}
    np.testing.assert_array_equal(ours("mean", x, **kept), theirs("mean", x, **kept))
    left = theirs("mean", x, axis=axis)
    if left.ndim:
        np.testing.assert_array_equal(ours("mean", x, axis=axis), left)


@pytest.mark.parametrize(("shape", "axis"), REDUCED)
@settings(max_examples=5)
@given(st.data())
def test_variances(shape: Shape, axis: Any, data: st.DataObject) -> None:
    """Variances are within a unit in the last place of the standard's, of either correction."""
    x = data.draw(small_integers(*shape))
    for correction in (0, 1):
        options = {"axis": axis, "correction": correction, "keepdims": True}
        expected = theirs("var", x, **options)
        variance = ours("var", x, **options)
        assert variance.shape == expected.shape
        assert (np.abs(variance - expected) <= dlfloat16.ulp(expected)).all()


@few
@given(ANY_VALUES, st.data())
def test_reshaped_elements_stay(x: Singles, data: st.DataObject) -> None:
    """A reshaped ztensor has the same elements in the same order, also where a size is -1."""
    shape = data.draw(st.sampled_from([(-1,), (1, -1), (x.size, 1), (1, 1, x.size, -1)]))
    np.testing.assert_array_equal(ours("reshape", x, shape=shape), x.reshape(shape))


@pytest.mark.parametrize("axis", range(-4, 4))
def test_dims_of_size_one_come_and_go(axis: int) -> None:
    """`expand_dims` and `squeeze` do what the standard says, and undo each other."""
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    longer = ours("expand_dims", x, axis=axis)
    np.testing.assert_array_equal(longer, np.expand_dims(x, axis))
    np.testing.assert_array_equal(ours("squeeze", longer, axis=axis), x)
    np.testing.assert_array_equal(ours("squeeze", x.reshape(1, 24, 1), axis=(0, -1)), x.ravel())


def test_new_ztensors() -> None:
    """Ztensors are made of lists, arrays, objects that share their memory, and shapes."""
    x = xp.asarray([[1.0, 2.0]])
    assert xp.asarray(x) is x
    copied = xp.asarray(x, copy=True)
    assert copied is not x
    assert copied.numpy().tolist() == x.numpy().tolist() == [[1, 2]]
    assert xp.asarray(np.ones(2), dtype=xp.float32).numpy().tolist() == [1, 1]
    assert xp.from_dlpack(np.ones(2, np.float32)).numpy().tolist() == [1, 1]
    assert xp.from_dlpack(x) is x
    filled = ((xp.zeros(3), 0), (xp.ones((3,)), 1), (xp.full(3, 2.5), 2.5))
    assert all(ztensor.numpy().tolist() == [value] * 3 for ztensor, value in filled)
    stack = xp.ones((2, 3, 4))
    alike = (xp.zeros_like(stack), xp.ones_like(stack), xp.full_like(stack, xp.pi))
    values = [float(z.numpy()[0, 0, 0]) for z in alike]
    assert values == [0, 1, dlfloat16.round(np.float32(np.pi))]
    assert all(z.transformed_desc == stack.transformed_desc for z in alike)
    assert xp.finfo(xp.float32) is xp.finfo(x) is dlfloat16.finfo


def test_ztensors_of_other_layouts_are_reshaped(session: Session) -> None:
    """Functions take ztensors of layouts that keep the order of elements, and refuse NCHW."""
    x: Singles = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    volume = session.ztensor(x, "3D")
    np.testing.assert_array_equal((xp.add(volume, xp.ones((2, 2, 3)))).numpy(), x + 1)
    np.testing.assert_array_equal(xp.mean(volume, axis=1).numpy(), x.mean(1))
    np.testing.assert_array_equal(xp.max(session.ztensor(x[0], "2DS"), axis=1).numpy(), [2, 5])
    with pytest.raises(TypeError, match="exp: x: layout ZDNN_NCHW, expected that of asarray"):
        xp.exp(session.ztensor(x[None], "NCHW"))


def test_functions_queue_in_a_pipeline(session: Session) -> None:
    """Elementwise functions wait in a pipeline; a function that needs a shape runs the queue."""
    x = xp.asarray([[1.0, 4.0], [9.0, 16.0]])
    with session.pipeline() as pipeline:
        roots = xp.sqrt(xp.add(x, xp.zeros_like(x)))
        assert pipeline.results == ()
        assert repr(roots) == "<Ztensor pending>"
        greatest = xp.max(xp.square(roots), axis=-1)
        assert len(pipeline.results) > 0
    assert greatest.numpy().tolist() == [4, 16]


def test_dropped_ztensors_are_freed(session: Session) -> None:
    """Functions leave no ztensors behind but those that they return."""
    x = xp.ones((2, 2, 3))
    session.init()
    before = session.list_tensors()
    variance = x
    for _ in range(3):
        variance = xp.var(xp.matmul(x, xp.reshape(xp.ones(6), (3, 2))), axis=(1, 2))
    assert variance.numpy().tolist() == [0, 0]
    assert len(session.list_tensors()) == len(before) + 1
    del variance
    session.init()
    assert session.list_tensors() == before


def test_a_ztensor_names_its_namespace() -> None:
    """`__array_namespace__` is the module, for no version or its own; another is refused."""
    x = xp.asarray([1.0])
    assert x.__array_namespace__() is array_api
    assert x.__array_namespace__(api_version=xp.__array_api_version__) is array_api
    with pytest.raises(ValueError, match=r"api_version: '2021\.12', expected '2024\.12'"):
        x.__array_namespace__(api_version="2021.12")


def test_numpy_still_refuses() -> None:
    """With a namespace, a ztensor is as foreign to NumPy's functions as before."""
    x = xp.asarray([1.0, 2.0])
    for function, operands in ((np.exp, (x,)), (np.add, (x, x)), (np.mean, (x,))):
        with pytest.raises(TypeError, match=r"__array_ufunc__|numpy\.mean would leave"):
            function(*operands)
    with pytest.raises(TypeError, match=r"\+: ndarray, expected a ztensor"):
        _ = np.ones(2) + x
    copied = np.asarray(x)
    copied[0] = 5
    assert x.numpy().tolist() == [1, 2]


def test_a_fresh_process_finds_the_namespace() -> None:
    """A ztensor finds its namespace in a process that has not imported it."""
    code = (
        "import sys\nfrom nnpa_client import connect\n"
        "with connect() as session:\n"
        "    x = session.ztensor([1.0])\n"
        "    assert 'nnpa_client.array_api' not in sys.modules\n"
        "    print(x.__array_namespace__().__name__)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "nnpa_client.array_api\n"
