# SPDX-License-Identifier: Apache-2.0
"""A ztensor among Python's objects: NumPy, DLPack, operators, `repr` and HTML."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from nnpa.zdnn.v1.accelerator_pb2 import Session as SessionMessage
from nnpa_client import Session, ZdnnError, ZdnnWarning, Ztensor, zdnn
from nnpa_client._values.user_arrays import Array

MATRIX: Any = np.arange(6, dtype=np.float32).reshape(2, 3)


class Shared:
    """An array that shares its memory by DLPack and has nothing else of NumPy's."""

    def __init__(self, values: Array) -> None:
        self._values = values

    def __dlpack__(self, **_wishes: object) -> object:
        """Return a capsule."""
        return self._values.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return that it is on the CPU."""
        return self._values.__dlpack_device__()


class Column:
    """An object that NumPy makes an array of."""

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Array:
        """Return the values."""
        values: Array = MATRIX
        return values


def not_numbers(session: Session) -> Ztensor:
    """Return a ztensor whose first value is no number."""
    with pytest.warns(ZdnnWarning):
        return zdnn.log(session.ztensor([-1.0, 1.0]))


def test_shape_and_type_are_the_users(session: Session) -> None:
    """`shape`, `ndim`, `dtype` and `len` equal the array's."""
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        a = session.ztensor(MATRIX.astype(dtype))
        assert (a.shape, a.ndim, a.dtype, len(a)) == ((2, 3), 2, np.dtype(dtype), 2)
        assert a


@pytest.mark.parametrize(
    "array", [MATRIX.tolist(), tuple(MATRIX.tolist()), Column(), Shared(MATRIX)]
)
def test_whatever_is_an_array_becomes_a_ztensor(session: Session, array: Any) -> None:
    """Lists, `__array__` and `__dlpack__` become ztensors of their values."""
    a = session.ztensor(array)
    assert a.dtype == np.float32
    np.testing.assert_array_equal(a.numpy(), MATRIX)


@pytest.mark.parametrize(
    ("argument", "says"), [("text", "str"), ({1: 2}, "dict"), (None, "NoneType")]
)
def test_what_is_no_array_is_refused(session: Session, argument: Any, says: str) -> None:
    """An argument that is no array is a TypeError that names its type."""
    with pytest.raises(TypeError, match=f"array: {says}, expected an array, a list"):
        session.ztensor(argument)


def test_numpy_gets_a_copy(session: Session) -> None:
    """`np.asarray` returns a copy of any type, and refuses a view."""
    a = session.ztensor(MATRIX)
    np.testing.assert_array_equal(np.asarray(a), MATRIX)
    assert np.asarray(a, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy: False, but the data are on the server"):
        a.__array__(copy=False)


def test_no_function_of_numpy_leaves_the_accelerator_in_silence(session: Session) -> None:
    """NumPy's functions refuse a ztensor, and its operators leave the refusal to ztensors."""
    a = session.ztensor(MATRIX)
    for function in (np.exp, np.negative):
        with pytest.raises(TypeError, match="__array_ufunc__"):
            function(a)
    with pytest.raises(TypeError, match=r"numpy\.mean would leave the accelerator"):
        np.mean(a)
    with pytest.raises(TypeError, match=r"\+: ndarray, expected a ztensor of the same shape"):
        _ = MATRIX + a


def test_dlpack_gets_a_float32_copy(session: Session) -> None:
    """DLPack hands out float32 on the CPU; a view or another device is a BufferError."""
    half = session.ztensor(MATRIX.astype(np.float16))
    shared = np.from_dlpack(half)
    assert shared.dtype == np.float32
    np.testing.assert_array_equal(shared, MATRIX)
    assert half.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="copy: False"):
        half.__dlpack__(copy=False)
    with pytest.raises(BufferError, match="dl_device"):
        half.__dlpack__(dl_device=(2, 0))


def test_operators_are_functions_of_zdnn(session: Session) -> None:
    """`+ - * /` are add, sub, mul and div, bit for bit, also on outputs that a pipeline queues."""
    a, b = session.ztensor(MATRIX + 1), session.ztensor(MATRIX + 3)
    pairs = (
        (a + b, zdnn.add(a, b)), (a - b, zdnn.sub(a, b)),
        (a * b, zdnn.mul(a, b)), (a / b, zdnn.div(a, b)),
    )  # fmt: skip
    for ours, theirs in pairs:
        np.testing.assert_array_equal(ours.buffer, theirs.buffer)
    with session.pipeline() as pipeline:
        last = (a + b) * (a - b)
        assert pipeline.results == ()
    np.testing.assert_array_equal(last.numpy(), (2 * MATRIX + 4) * -2)


def test_matrices_multiply(session: Session) -> None:
    """`@` is matmul_op with a bias of zeros, of matrices and of stacks in layout 3DS."""
    a, b = session.ztensor(MATRIX), session.ztensor(MATRIX.T.copy())
    bias = session.ztensor(np.zeros(2, np.float32))
    expected = zdnn.matmul_op(a, b, bias)
    np.testing.assert_array_equal((a @ b).buffer, expected.buffer)
    np.testing.assert_array_equal((a @ b).numpy(), MATRIX @ MATRIX.T)
    left, right = np.stack([MATRIX, -MATRIX]), np.stack([MATRIX.T, MATRIX.T])
    stacks = session.ztensor(left, "3DS") @ session.ztensor(right, "3DS")
    np.testing.assert_array_equal(stacks.numpy(), left @ right)


def test_what_zdnn_lacks_is_refused_with_advice(session: Session) -> None:
    """Scalars and broadcasting are refused with advice, before anything is sent."""
    a: Any = session.ztensor(MATRIX)
    row = session.ztensor(MATRIX[0])
    scalars: tuple[Callable[[], object], ...] = (
        lambda: a + 1, lambda: 1 + a, lambda: a * 2.5, lambda: 2.5 / a,
    )  # fmt: skip
    for make in scalars:
        with pytest.raises(TypeError, match=r"expected a ztensor of the same shape; .*np\.full"):
            make()
    with pytest.raises(ValueError, match=r"\+: shapes \(2, 3\) and \(3,\), .*broadcasts nothing"):
        _ = a + row
    with pytest.raises(ValueError, match=r"@: shapes \(2, 3\) and \(2, 3\)"):
        _ = a @ a


def test_equality_is_identity(session: Session) -> None:
    """`==` asks no server and is identity, so ztensors are keys; there is no order."""
    a: Any = session.ztensor(MATRIX)
    b = session.ztensor(MATRIX)
    assert a == a
    assert a != b
    assert len({a, b, a}) == 2
    with pytest.raises(TypeError, match="not supported between instances"):
        _ = a < b


def test_values_that_are_no_numbers_are_nan_where_asked(session: Session) -> None:
    """`numpy(strict=False)` gives NaN and warns; the error of `numpy()` names that option."""
    a = not_numbers(session)
    with pytest.raises(ZdnnError, match=r"numpy\(strict=False\) gives NaN for them"):
        a.numpy()
    with pytest.warns(ZdnnWarning, match="ZDNN_CONVERT_FAILURE") as caught:
        values = a.numpy(strict=False)
    assert caught[0].filename == __file__
    assert np.isnan(values[0])
    assert values[1] == 0


def test_a_repr_is_one_line_and_values_come_on_demand(session: Session) -> None:
    """`repr` is one line without values, which `preview` fetches."""
    a = session.ztensor(MATRIX)
    text = "<Ztensor ZDNN_2D 2x3 FP32 as ZDNN_NHWC 1x1x2x3 ZDNN_DLFLOAT16, 4096 bytes, transformed>"
    assert repr(a) == text
    assert a.preview(2) == f"{text}\n[0., 1.] ... 6 values"
    assert a.preview(6) == f"{text}\n[0., 1., 2., 3., 4., 5.]"


def test_a_notebook_sees_layout_padding_and_sticks(session: Session) -> None:
    """The HTML of a ztensor shows layouts, the share of padding, and a picture of its sticks."""
    small: Any = session.ztensor(MATRIX)
    shown = small._repr_html_()
    assert "ZDNN_2D 2x3 FP32" in shown
    assert "99.7% of the cells padding" in shown
    assert "src='data:image/png;base64,iVBORw0KGgo" in shown
    large: Any = session.ztensor(np.ones((512, 1024), np.float32))
    large_shown = large._repr_html_()
    assert "0.0% of the cells padding" in large_shown
    assert "<img" not in large_shown


def test_dir_is_clean(session: Session) -> None:
    """`dir` of a ztensor has the public attributes, and none of the package's own fields."""
    names = {name for name in dir(session.ztensor(MATRIX)) if not name.startswith("_")}
    assert names == {
        "buffer", "buffer_size", "dtype", "flags", "id", "is_transformed", "ndim", "numpy",
        "offset", "pre_transformed_desc", "preview", "read_sticks", "rec_scale", "ref", "shape",
        "structure", "transformed_desc", "write_sticks",
    }  # fmt: skip


def test_machines_and_descriptors_are_one_line(session: Session) -> None:
    """Machines and descriptors have a repr of one line, and a table in a notebook."""
    desc = zdnn.init_pre_transformed_desc("NHWC", "FP16", 1, 2, 3, 4)
    assert repr(desc) == "<TensorDesc ZDNN_NHWC 1x2x3x4 FP16>"
    assert repr(session.machine) == "<Machine telum2, z17: IBM z17, Telum II, 30 functions>"
    shown: tuple[tuple[Any, str], ...] = (
        (desc, "1, 2, 3, 4"),
        (session.machine, "IBM z17, Telum II"),
    )
    message: Any
    for message, fact in shown:
        table = message._repr_html_()
        assert table.startswith("<table>")
        assert fact in table


def test_a_session_never_shows_its_name(session: Session) -> None:
    """No text of a session, or of its status, has its name, which gives access to it."""
    status: Any = session.status()
    assert status.DESCRIPTOR is SessionMessage.DESCRIPTOR
    assert repr(status) == "<Session of telum2, zDNN 1.2.0: 0 tensors, 0 bytes>"
    shown: Any = session
    html = (shown._repr_html_(), status._repr_html_())
    texts = (repr(session), repr(status), str(status), *html)
    assert [text for text in texts if session.name in text] == []
    assert "library_version" in str(status)
