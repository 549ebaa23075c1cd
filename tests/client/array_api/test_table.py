# SPDX-License-Identifier: Apache-2.0
"""The namespace's description of itself: its table, its names, and its refusals."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from nnpa_client import Session, ZdnnError, Ztensor, array_api
from nnpa_client.array_api import Difference
from nnpa_server.sessions.store import Store

from tests.client.array_api.array_api_strictly import (
    LAST_AXIS,
    TWO_OPERANDS,
    differences,
    entered_session,
    strict,
    values_of,
    xp,
)

ROWS = {row.function: row for row in array_api.conformance()}


@pytest.fixture(scope="module", autouse=True)
def session(store: Store) -> Iterator[Session]:
    """A session of Telum II, entered."""
    with entered_session(store, "telum2") as opened:
        yield opened


def test_what_is_missing_is_named() -> None:
    """A missing name of the standard raises AttributeError, which lists the names that exist."""
    missing = {*strict.__all__} - {*xp.__all__}
    assert {"sin", "concat", "where", "sum", "inf"} <= missing
    for name in sorted(missing):
        assert not hasattr(array_api, name)
        with pytest.raises(AttributeError, match=f"has no {name}: no operation .* has add, argmax"):
            getattr(array_api, name)


def test_names_are_the_standards() -> None:
    """Only the table's own names are not in the standard; the table has every function."""
    of_the_table = {"Conformance", "Difference", "Row", "conformance"}
    assert {*xp.__all__} - {*strict.__all__} == of_the_table
    constants = {"__array_api_version__", "e", "pi", "float32", "int32"}
    functions = sorted({*xp.__all__} - of_the_table - constants)
    assert [row.function for row in xp.conformance()] == functions


def test_parameters_are_the_standards() -> None:
    """Every parameter of a function is one of the standard's, by the same name."""
    for name in ROWS:
        parameters, expected = (
            {*inspect.signature(getattr(ns, name)).parameters} for ns in (xp, strict)
        )
        assert parameters <= expected, name


def test_the_table_shows_itself() -> None:
    """The repr has a line for each function, and says what each difference means."""
    lines = repr(xp.conformance()).splitlines()
    words = [" ".join(line.split()) for line in lines]
    assert "maximum max differs: broadcasting" in words
    assert "zeros_like transform_ztensor conforms" in words
    assert len(lines) == len(xp.conformance()) + 1 + len(Difference)
    for difference in Difference:
        assert f"{difference} {difference.meaning}" in words


def array(ns: Any, values: Any) -> Any:
    """Return an array of float32 of a namespace."""
    return ns.asarray(values, dtype=ns.float32)


BIG, TINY = [8e9, 1.0], [5e-10, 0.0, 0.0, 0.0]
PRECISION, RANGE, INFINITIES = Difference.PRECISION, Difference.RANGE, Difference.INFINITIES
BROADCASTING, DIMS, AXES = Difference.BROADCASTING, Difference.DIMS, Difference.AXES
COPIES, ARGUMENTS = Difference.COPIES, Difference.ARGUMENTS
NEXT_TO_ONE = [1.001953125, 1.0]
Witness = Callable[[Any], Any]


def with_row(name: str) -> Witness:
    """Return a call that broadcasts."""
    return lambda ns: getattr(ns, name)(ns.ones((2, 3)), array(ns, [1, 2, 3]))


def on(name: str, *operands: Any, **options: Any) -> Witness:
    """Return a call of a function on arrays of values."""
    return lambda ns: getattr(ns, name)(*(array(ns, x) for x in operands), **options)


# For every difference of the table a call that shows it, in any namespace.
MATRIX, STACK = [[1.0, 2.0], [3.0, 5.0]], [[[1.0, 2.0], [3.0, 5.0]]]
COLUMN = [[1.001953125], [1.001953125]]
WITNESSES: dict[tuple[str, Difference], Witness] = {
    ("asarray", PRECISION): lambda ns: array(ns, [0.1]),
    ("asarray", RANGE): lambda ns: array(ns, [1e10]),
    ("asarray", INFINITIES): lambda ns: array(ns, [np.inf]),
    ("asarray", DIMS): lambda ns: array(ns, 1.0),
    ("asarray", COPIES): lambda ns: ns.asarray(np.ones(2, np.float32), copy=False),
    ("from_dlpack", PRECISION): lambda ns: ns.from_dlpack(np.array([0.1], np.float32)),
    ("from_dlpack", RANGE): lambda ns: ns.from_dlpack(np.array([1e10], np.float32)),
    ("from_dlpack", INFINITIES): lambda ns: ns.from_dlpack(np.array([np.inf], np.float32)),
    ("from_dlpack", DIMS): lambda ns: ns.from_dlpack(np.ones((1,) * 5, np.float32)),
    ("from_dlpack", COPIES): lambda ns: ns.from_dlpack(np.ones(2, np.float32), copy=False),
    ("full", PRECISION): lambda ns: ns.full(2, 0.1, dtype=ns.float32),
    ("full", RANGE): lambda ns: ns.full(2, 1e10, dtype=ns.float32),
    ("full", INFINITIES): lambda ns: ns.full(2, np.inf, dtype=ns.float32),
    ("full", DIMS): lambda ns: ns.full((), 1.0, dtype=ns.float32),
    ("full_like", PRECISION): on("full_like", [1.0], fill_value=0.1),
    ("full_like", RANGE): on("full_like", [1.0], fill_value=1e10),
    ("full_like", INFINITIES): on("full_like", [1.0], fill_value=np.inf),
    ("zeros", DIMS): lambda ns: ns.zeros(0),
    ("ones", DIMS): lambda ns: ns.ones(()),
    ("finfo", PRECISION): lambda ns: ns.finfo(ns.float32).eps,
    ("finfo", RANGE): lambda ns: ns.finfo(ns.float32).max,
    ("add", PRECISION): on("add", NEXT_TO_ONE, [0.0009765625, 1.0]),
    ("add", RANGE): on("add", BIG, BIG),
    ("subtract", PRECISION): on("subtract", NEXT_TO_ONE, [0.0009765625, 1.0]),
    ("subtract", RANGE): on("subtract", BIG, [-8e9, 1.0]),
    ("multiply", PRECISION): on("multiply", NEXT_TO_ONE, NEXT_TO_ONE),
    ("multiply", RANGE): on("multiply", BIG, BIG),
    ("divide", PRECISION): on("divide", [1.0, 1.0], [3.0, 1.0]),
    ("divide", RANGE): on("divide", BIG, [0.5, 1.0]),
    ("divide", INFINITIES): on("divide", BIG, [0.0, 1.0]),
    **{(name, BROADCASTING): with_row(name) for name in TWO_OPERANDS},
    ("square", PRECISION): on("square", NEXT_TO_ONE),
    ("square", RANGE): on("square", BIG),
    ("exp", PRECISION): on("exp", [1.0]),
    ("exp", RANGE): on("exp", [25.0]),
    ("exp", INFINITIES): on("exp", [100.0]),
    ("log", PRECISION): on("log", [2.0]),
    ("log", INFINITIES): on("log", [0.0]),
    ("sqrt", PRECISION): on("sqrt", [2.0]),
    ("tanh", PRECISION): on("tanh", [1.0]),
    ("clip", PRECISION): on("clip", [2.0], min=0.0, max=1.0001),
    ("clip", ARGUMENTS): on("clip", [2.0], min=1.0, max=3.0),
    ("matmul", PRECISION): on("matmul", [[1.0, 0.0009765625]], COLUMN),
    ("matmul", RANGE): on("matmul", [BIG], [[8e9], [0.0]]),
    ("matmul", BROADCASTING): on("matmul", STACK, [*STACK, *STACK]),
    ("matmul", DIMS): on("matmul", BIG, BIG),
    ("tensordot", PRECISION): on("tensordot", [[1.0, 0.0009765625]], COLUMN, axes=1),
    ("tensordot", RANGE): on("tensordot", [BIG], [[8e9], [0.0]], axes=1),
    ("tensordot", DIMS): on("tensordot", MATRIX, MATRIX),
    ("tensordot", ARGUMENTS): on("tensordot", MATRIX, MATRIX, axes=((0,), (0,))),
    ("vecdot", PRECISION): on("vecdot", [NEXT_TO_ONE], [[1.0, 0.0009765625]]),
    ("vecdot", RANGE): on("vecdot", [BIG], [BIG]),
    ("vecdot", BROADCASTING): on("vecdot", MATRIX, [1.0, 1.0]),
    ("vecdot", DIMS): on("vecdot", BIG, BIG),
    ("vecdot", AXES): on("vecdot", MATRIX, MATRIX, axis=-2),
    ("reshape", DIMS): on("reshape", [1.0], shape=()),
    ("reshape", COPIES): on("reshape", [1.0, 2.0], shape=(2, 1), copy=False),
    ("expand_dims", DIMS): on("expand_dims", [STACK], axis=0),
    ("squeeze", DIMS): on("squeeze", [1.0], axis=0),
    **{(name, AXES): on(name, MATRIX, axis=0, keepdims=True) for name in (*LAST_AXIS, "var")},
    **{(name, DIMS): on(name, [1.0, 2.0]) for name in (*LAST_AXIS, "mean", "var")},
    **{(name, ARGUMENTS): on(name, MATRIX, axis=-1) for name in ("argmax", "argmin")},
    ("mean", PRECISION): on("mean", [NEXT_TO_ONE], axis=-1),
    ("mean", RANGE): on("mean", TINY, axis=0, keepdims=True),
    ("mean", AXES): on("mean", MATRIX, axis=1),
    ("var", PRECISION): on("var", [[1.0, 2.0, 4.0]], axis=-1),
    ("var", RANGE): on("var", BIG, axis=0, keepdims=True),
    ("var", ARGUMENTS): on("var", [[1.0, 2.0, 4.0]], axis=-1, correction=2),
}
REFUSALS = (TypeError, ValueError, NotImplementedError, ZdnnError)


def test_every_difference_has_a_witness() -> None:
    """The table names the differences that the witnesses show, and no others."""
    named = {(row.function, d) for row in array_api.conformance() for d in row.differences}
    assert named == {*WITNESSES}


@pytest.mark.parametrize(("function", "difference"), WITNESSES, ids=str)
@pytest.mark.filterwarnings("ignore::nnpa_client.ZdnnWarning")
def test_differences_of_the_table_are_there(function: str, difference: Difference) -> None:
    """Beside array-api-strict a function refuses, or has other values, as the table says."""
    if function == "from_dlpack" and np.__version__ < "2":
        pytest.skip("with NumPy 1, array-api-strict has neither copies nor arrays to read")
    witness = WITNESSES[function, difference]
    with np.errstate(all="ignore"):
        expected = values_of(witness(strict))
    try:
        values = values_of(witness(xp))
    except REFUSALS:
        if difference in (PRECISION, RANGE):
            raise
        assert difference is not INFINITIES or np.isinf(expected).any()
    else:
        assert difference in differences(values, expected)


REFUSED: tuple[tuple[Callable[[Ztensor], object], type[Exception], str], ...] = (
    (lambda x: xp.add(x, 1), TypeError, r"add: x2: int, expected a ztensor; .*full_like"),
    (lambda _x: xp.exp(np.ones(2)), TypeError, "exp: x: ndarray, expected a ztensor"),
    (lambda x: xp.minimum(x, xp.ones(3)), ValueError, r"minimum: shapes \(2, 3\) and \(3,\)"),
    (lambda x: xp.matmul(x, x), ValueError, r"matmul: shapes \(2, 3\) and \(2, 3\)"),
    (lambda x: xp.vecdot(x, xp.ones(3)), ValueError, r"vecdot: shapes \(2, 3\) and \(3,\)"),
    (lambda x: xp.tensordot(x, x, axes=1), ValueError, r"tensordot: axes 1 of shapes \(2, 3\)"),
    (lambda x: xp.tensordot(x, x, axes=3), ValueError, "tensordot: axes 3 of shapes"),
    (lambda x: xp.tensordot(x, x, axes=-1), ValueError, "tensordot: axes -1 of shapes"),
    (lambda _x: xp.asarray(np.ones(2)), TypeError, "asarray: obj: dtype float64, expected float32"),
    (lambda _x: xp.ones_like(1.0), TypeError, "ones_like: x: float, expected a ztensor"),
    (lambda _x: xp.asarray("a"), TypeError, "asarray: obj: str, expected an array"),
    (lambda _x: xp.zeros(2, dtype=np.float64), TypeError, "zeros: dtype .*, expected float32"),
    (lambda _x: xp.zeros(()), NotImplementedError, r"zeros: shape \(\): 0 dims, expected 1 to 4"),
    (lambda _x: xp.zeros(0), ZdnnError, r"array is of shape \(0,\), must have 1"),
    (lambda _x: xp.asarray([np.inf]), ZdnnError, "ZDNN_CONVERT_FAILURE"),
    (lambda x: xp.clip(x, 0, 1e-12), NotImplementedError, "clip: max 1e-12, expected 4.66"),
    (lambda x: xp.clip(x, 0, np.nan), NotImplementedError, "clip: max nan, expected .* to 857"),
    (lambda x: xp.clip(x, max=1), NotImplementedError, "clip: min None, expected 0"),
    (lambda x: xp.max(x), NotImplementedError, r"max: keepdims False: shape \(\): 0 dims"),
    (lambda x: xp.max(x, axis=0), NotImplementedError, r"max: axes \[0\] .* reduces \[1\]"),
    (lambda x: xp.mean(x, axis=1), NotImplementedError, r"mean: axes \[1\] of shape \(2, 3\)"),
    (lambda x: xp.min(x, axis=2), ValueError, "min: axis 2, expected -2 to 1"),
    (lambda x: xp.argmax(x, axis=1), NotImplementedError, "argmax: keepdims False, expected True"),
    (lambda x: xp.var(x, correction=2), NotImplementedError, "var: correction 2, expected 0 or 1"),
    (lambda x: xp.reshape(x, (4,)), ValueError, r"reshape: shape \(4,\), expected .* \(2, 3\)"),
    (lambda x: xp.reshape(x, ()), NotImplementedError, r"reshape: shape \(\): 0 dims, expected 1"),
    (lambda x: xp.squeeze(x, 0), ValueError, "squeeze: axis 0 has size 2, expected 1"),
    (lambda x: xp.expand_dims(x, axis=3), IndexError, "expand_dims: axis 3, expected -3 to 2"),
)  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "says"), REFUSED, ids=[row[2] for row in REFUSED])
def test_what_zdnn_cannot_is_refused(
    call: Callable[[Ztensor], object], kind: type[Exception], says: str
) -> None:
    """Arguments that zDNN has no function for are refused by function, parameter and limit."""
    x = xp.ones((2, 3))
    with pytest.raises(kind, match=says):
        call(x)


def test_other_types_are_refused(session: Session) -> None:
    """Ztensors of float16 and int32 are a TypeError by name: the namespace has float32 alone."""
    half = session.ztensor(np.ones(2, np.float16))
    with pytest.raises(TypeError, match="add: x1: dtype float16, expected float32"):
        xp.add(half, half)
    places = xp.argmax(xp.ones((2, 3)), axis=-1, keepdims=True)
    with pytest.raises(TypeError, match="reshape: x: dtype int32, expected float32"):
        xp.reshape(places, (2,))


def test_what_the_machine_lacks_has_its_status(store: Store) -> None:
    """On Telum I functions of Telum II raise their status, and the others work."""
    with entered_session(store, "telum1"):
        x = xp.ones((2, 3))
        assert xp.mean(xp.exp(x), axis=0).shape == (3,)
        for function, options in ((xp.sqrt, {}), (xp.max, {"axis": 1}), (xp.var, {"keepdims": 1})):
            with pytest.raises(ZdnnError, match="ZDNN_UNAVAILABLE_FUNCTION"):
                function(x, **options)
