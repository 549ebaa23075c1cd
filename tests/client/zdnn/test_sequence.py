# SPDX-License-Identifier: Apache-2.0
"""The zDNN call sequence and the short face, against plain arithmetic."""

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from nnpa.zdnn.v1.operation_pb2 import FP_FLAGS_UNDERFLOW
from nnpa_client import NnpaError, Session, ZdnnError, Ztensor, connect, zdnn

from tests.client.conftest import Open

# Small integers and halves are exact in DLFLOAT16, FP16 and BFLOAT, so results can be compared.
DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16)


def exact(*shape: int, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[np.float32]:
    """Return values that every float type of zDNN holds exactly."""
    count = int(np.prod(shape))
    return ((np.arange(count) % 64 - 32) / 2).astype(dtype).reshape(shape)


def test_call_sequence_line_by_line(session: Session) -> None:
    """A C program's calls, one by one, give the results of the same arithmetic."""
    data_a, data_b = exact(1, 32, 32, 3), exact(1, 32, 32, 3)[:, ::-1]
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_NHWC, zdnn.FP32, 1, 32, 32, 3)
    tfrmd = zdnn.generate_transformed_desc(pre)
    a = session.init_ztensor_with_malloc(pre, tfrmd)
    b = session.init_ztensor_with_malloc(pre, tfrmd)
    out = session.init_ztensor_with_malloc(pre, tfrmd)
    zdnn.transform_ztensor(a, data_a)
    zdnn.transform_ztensor(b, data_b)
    assert zdnn.add(a, b, out) is out
    result = np.empty_like(data_a)
    assert zdnn.transform_origtensor(out, result) is result
    for ztensor in (a, b, out):
        zdnn.free_ztensor_buffer(ztensor)
    np.testing.assert_array_equal(result, data_a + data_b)
    assert session.status().tensor_count == 0


def test_structure_follows_the_calls(session: Session) -> None:
    """After each call the fields of the structure have the values of C's structure."""
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_2D, zdnn.FP32, 33, 65)
    a = session.init_ztensor(pre, zdnn.generate_transformed_desc(pre))
    assert (a.buffer, a.buffer_size, a.is_transformed) == (None, 0, False)
    zdnn.allochelper_ztensor(a)
    assert (a.buffer_size, a.is_transformed) == (zdnn.getsize_ztensor(a.transformed_desc), False)
    zdnn.transform_ztensor(a, exact(33, 65))
    assert a.is_transformed
    assert a.pre_transformed_desc == pre
    zdnn.reset_ztensor(a)
    assert not a.is_transformed
    zdnn.free_ztensor_buffer(a)
    assert a.buffer is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5,), (3, 70), (2, 3, 4), (2, 3, 4, 5)])
def test_short_face_keeps_type_and_shape(
    session: Session, shape: tuple[int, ...], dtype: npt.DTypeLike
) -> None:
    """An array of 1 to 4 dims comes back with its own type and shape."""
    array = exact(*shape, dtype=dtype)
    result = zdnn.add(session.ztensor(array), session.ztensor(array)).numpy()
    assert (result.dtype, result.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(result, array + array)


@pytest.mark.parametrize(
    ("rank", "layout"),
    [(1, zdnn.ZDNN_1D), (2, zdnn.ZDNN_2D), (3, zdnn.ZDNN_3D), (4, zdnn.ZDNN_NHWC)],
)
def test_default_layouts(session: Session, rank: int, layout: int) -> None:
    """Without a layout, 1 to 4 dims are ZDNN_1D, ZDNN_2D, ZDNN_3D, ZDNN_NHWC."""
    assert session.ztensor(exact(*(2,) * rank)).pre_transformed_desc.layout == layout


def test_layout_can_be_chosen(session: Session) -> None:
    """The short face uses the caller's layout: 3DS puts the stack into dim4."""
    stack = session.ztensor(exact(5, 2, 3), layout=zdnn.ZDNN_3DS)
    assert stack.transformed_desc.dim4 == 5


def test_nchw_returns_in_its_own_order(session: Session) -> None:
    """NCHW data is permuted into sticks and comes back as it was."""
    array = exact(2, 3, 4, 5)
    ztensor = session.ztensor(array, layout=zdnn.ZDNN_NCHW)
    assert ztensor.transformed_desc.dim1 == 3
    np.testing.assert_array_equal(ztensor.numpy(), array)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int8, np.bool_])
def test_other_types_are_refused(session: Session, dtype: npt.DTypeLike) -> None:
    """The short face takes FP32, FP16 and BFLOAT, and its error names any other type."""
    with pytest.raises(TypeError, match=f"{np.dtype(dtype)}, expected float32"):
        session.ztensor(np.zeros(3, dtype))


def test_data_must_have_the_described_type(session: Session) -> None:
    """A transform refuses an array of another type than the descriptor says."""
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_1D, zdnn.FP16, 3)
    ztensor = session.init_ztensor_with_malloc(pre, zdnn.generate_transformed_desc(pre))
    with pytest.raises(TypeError, match="float32 array, the descriptor says FP16"):
        zdnn.transform_ztensor(ztensor, np.zeros(3, np.float32))


def test_five_dims_are_refused(session: Session) -> None:
    """The short face has layouts for 1 to 4 dims only."""
    with pytest.raises(ValueError, match="5 dims, expected 1 to 4"):
        session.ztensor(exact(1, 1, 1, 1, 2))


def test_strided_and_big_endian_arrays(session: Session) -> None:
    """Arrays need be neither contiguous nor of the host's byte order."""
    array = exact(6, 8)
    np.testing.assert_array_equal(session.ztensor(array[::2, ::-1]).numpy(), array[::2, ::-1])
    np.testing.assert_array_equal(session.ztensor(array.astype(">f4")).numpy(), array)


def test_bytes_are_taken_as_they_are(session: Session) -> None:
    """A transform takes bytes of the right number in place of an array."""
    array = exact(2, 3)
    ztensor = session.ztensor(np.zeros((2, 3), np.float32))
    zdnn.reset_ztensor(ztensor)
    zdnn.transform_ztensor(ztensor, array.tobytes())
    np.testing.assert_array_equal(ztensor.numpy(), array)


def test_large_data_streams(session: Session) -> None:
    """Data above one message goes up and down in chunks, unchanged."""
    array = exact(600, 1024)
    ztensor = session.ztensor(array)
    out = np.empty_like(array)
    zdnn.transform_origtensor(ztensor, out)
    np.testing.assert_array_equal(out, array)
    np.testing.assert_array_equal(ztensor.numpy(), array)


@pytest.mark.parametrize("rows", [2, 600])
def test_out_buf_of_another_size_is_refused(session: Session, rows: int) -> None:
    """An out_buf of a wrong size is named with both sizes and not written."""
    ztensor = session.ztensor(exact(rows, 1024))
    out = np.full((rows, 1023), 7, np.float32)
    with pytest.raises(ValueError, match=f"out_buf: {out.nbytes} bytes, expected {rows * 4096}"):
        zdnn.transform_origtensor(ztensor, out)
    assert (out == 7).all()


def test_sticks_down_and_up(session: Session) -> None:
    """Sticks read from one ztensor and written to another carry the data, in either byte order."""
    array = exact(33, 65)
    source = session.ztensor(array)
    little, big = source.read_sticks(), source.read_sticks("big")
    np.testing.assert_array_equal(little.view("<u2"), big.view(">u2"))
    np.testing.assert_array_equal(source.buffer, little)
    for sticks, order in ((little, "little"), (big, "big")):
        target = session.init_ztensor_with_malloc(
            source.pre_transformed_desc, source.transformed_desc
        )
        target.write_sticks(sticks, order)
        assert target.is_transformed
        np.testing.assert_array_equal(target.numpy(), array)


def test_unknown_byte_order_is_refused(session: Session) -> None:
    """A byte order is "little" or "big"."""
    with pytest.raises(ValueError, match="expected 'little' or 'big'"):
        session.ztensor(exact(3)).read_sticks("native")


def test_concatenated_weights(session: Session) -> None:
    """LSTM weights take four gates, in C order or by name, with the same sticks."""
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_3DS, zdnn.FP32, 1, 4, 5)
    info = zdnn.RNN_TYPE_LSTM | zdnn.PREV_LAYER_UNI | zdnn.USAGE_WEIGHTS
    tfrmd = zdnn.generate_transformed_desc_concatenated(pre, info)
    gates = [exact(1, 4, 5) + gate for gate in range(4)]
    first, second = (session.init_ztensor_with_malloc(pre, tfrmd) for _ in range(2))
    zdnn.transform_ztensor(first, *gates)
    zdnn.transform_ztensor(second, o=gates[3], c=gates[2], f=gates[0], i=gates[1])
    np.testing.assert_array_equal(first.read_sticks(), second.read_sticks())
    assert first.read_sticks().any()


@pytest.mark.parametrize("names", ["fic", "zri", "fz", "x"])
def test_gate_names_are_complete(session: Session, names: str) -> None:
    """Named gates are f, i, c, o or z, r, h, all of them."""
    gates = {name: exact(3) for name in names}
    with pytest.raises(TypeError, match="expected f, i, c, o or z, r, h"):
        zdnn.transform_ztensor(session.ztensor(exact(3)), **gates)


def test_quantized_ztensor(session: Session) -> None:
    """A quantized ztensor keeps 1/scale and the offset, here and at the server."""
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_2D, zdnn.FP32, 4, 70)
    tfrmd = zdnn.generate_quantized_transformed_desc(pre, zdnn.QUANTIZED_INT8)
    blank = session.init_quantized_ztensor(pre, tfrmd, 3.0, 7.0)
    assert (blank.rec_scale, blank.offset) == (float(np.float32(1) / np.float32(3)), 7.0)
    assert zdnn.is_quantized_ztensor(blank)
    ztensor = session.init_quantized_ztensor_with_malloc(pre, tfrmd, 3.0, 7.0)
    assert (ztensor.rec_scale, ztensor.offset) == (blank.rec_scale, blank.offset)
    zdnn.transform_quantized_ztensor(ztensor, False, -128, 127, exact(4, 70))
    assert ztensor.is_transformed


def test_reshape_and_range(session: Session) -> None:
    """Reshape keeps the elements; getrange finds their least and greatest."""
    array = exact(4, 6)
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_2D, zdnn.FP32, 3, 8)
    dest = session.init_ztensor_with_malloc(pre, zdnn.generate_transformed_desc(pre))
    zdnn.reshape_ztensor(session.ztensor(array), dest)
    np.testing.assert_array_equal(dest.numpy(), array.reshape(3, 8))
    assert zdnn.getrange_ztensor(dest) == (float(array.min()), 0.0)


def test_saturation_and_flags(open_session: Open) -> None:
    """Saturation clamps finite values, and `flags` has the flags of the last transform."""
    session = open_session("telum1")
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_1D, zdnn.FP32, 3)
    ztensor = session.init_ztensor_with_malloc(pre, zdnn.generate_transformed_desc(pre))
    zdnn.transform_ztensor_with_saturation(ztensor, np.array([1e30, -1e30, 1], np.float32))
    limit = float(zdnn.get_max_limit(zdnn.ZDNN_DLFLOAT16, zdnn.FP32))
    np.testing.assert_array_equal(ztensor.numpy(), np.array([limit, -limit, 1], np.float32))
    zdnn.reset_ztensor(ztensor)
    zdnn.transform_ztensor(ztensor, np.array([1e-30, 1, 1], np.float32))
    assert ztensor.flags == FP_FLAGS_UNDERFLOW


def test_freed_ztensor_has_no_buffer(session: Session) -> None:
    """A freed ztensor is one without a buffer: freeing it again is ZDNN_INVALID_BUFFER."""
    ztensor = session.ztensor(exact(3))
    zdnn.free_ztensor_buffer(ztensor)
    with pytest.raises(ZdnnError) as caught:
        zdnn.free_ztensor_buffer(ztensor)
    assert caught.value.status == zdnn.ZDNN_INVALID_BUFFER


def test_freed_ztensor_can_be_allocated_again(session: Session) -> None:
    """Allochelper after free gives new, empty sticks."""
    ztensor = session.ztensor(exact(3))
    zdnn.free_ztensor_buffer(ztensor)
    zdnn.allochelper_ztensor(ztensor)
    assert not ztensor.read_sticks().any()


def test_functions_use_the_innermost_session(open_session: Open) -> None:
    """`zdnn.*` without a ztensor speaks to the innermost `with session:`."""
    outer, inner = open_session("telum2"), open_session("z15")
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_1D, zdnn.FP32, 3)
    assert not zdnn.is_nnpa_installed()
    inner.__exit__()
    assert zdnn.is_nnpa_installed()
    ztensor = zdnn.init_ztensor_with_malloc(pre, zdnn.generate_transformed_desc(pre))
    assert isinstance(ztensor, Ztensor)
    assert outer.status().tensor_count == 1


def test_ztensors_of_two_sessions_do_not_mix(open_session: Open) -> None:
    """An operand of another session is refused by name."""
    ours, theirs = open_session().ztensor(exact(3)), open_session().ztensor(exact(3))
    with pytest.raises(ValueError, match="input_b: of another session"):
        zdnn.add(ours, theirs)


def test_without_a_session_functions_say_so() -> None:
    """The error of a function that needs a session explains how to open one."""
    with pytest.raises(NnpaError, match="with session:"):
        zdnn.is_nnpa_installed()
    assert (zdnn.get_library_version(), zdnn.get_library_version_str()) == (0x010200, "1.2.0")


def test_repr_tells_the_essentials(session: Session) -> None:
    """The repr of a ztensor has its descriptors, size and state; a session's its machine."""
    text = repr(session.ztensor(exact(3, 5)))
    assert text == (
        "<Ztensor ZDNN_2D 3x5 FP32 as ZDNN_NHWC 1x1x3x5 ZDNN_DLFLOAT16, 4096 bytes, transformed>"
    )
    assert "telum2, zDNN 1.2.0" in repr(session)


def test_a_session_entered_twice_is_left_once(server_target: str) -> None:
    """After both blocks have ended no function takes the closed session for the current one."""
    with connect(server_target) as session, session:
        assert zdnn.is_nnpa_installed()
    with pytest.raises(NnpaError, match="with session:"):
        zdnn.is_nnpa_installed()
