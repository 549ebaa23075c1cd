# SPDX-License-Identifier: Apache-2.0
"""`put_ztensor` puts ztensors into a session without checks."""

import numpy as np
import pytest
from nnpa.zdnn.v1.tensor_pb2 import FP32, ZDNN_BINARY_INT8, ZDNN_NHWC, TensorDesc, Ztensor
from nnpa_client import ZdnnError, zdnn

from tests.client.conftest import Open


def test_a_ztensor_moves_to_another_session(open_session: Open) -> None:
    """A ztensor of one session moves bit for bit into a session on another machine."""
    data = np.linspace(-3, 3, 90, dtype=np.float32).reshape(2, 45)
    first, second = open_session("telum2"), open_session("telum1")
    original = first.ztensor(data)
    moved = second.put_ztensor(original.structure, original.read_sticks())
    assert (moved.read_sticks() == original.read_sticks()).all()
    assert (moved.numpy() == original.numpy()).all()
    assert moved.is_transformed
    assert moved.guest is not original.guest


def test_fields_are_not_checked(open_session: Open) -> None:
    """Descriptors that allochelper refuses, a claimed size and a scale stay as they are."""
    desc = TensorDesc(layout=ZDNN_NHWC, type=ZDNN_BINARY_INT8, format=31, dim1=3)  # type: ignore[arg-type]
    structure = Ztensor(
        pre_transformed_desc=TensorDesc(layout=ZDNN_NHWC, type=FP32),
        transformed_desc=desc,
        buffer_size=17,
        rec_scale=0.25,
        offset=-3.0,
    )
    session = open_session()
    held = session.put_ztensor(structure)
    assert (held.buffer_size, held.rec_scale, held.offset) == (17, 0.25, -3.0)
    assert held.transformed_desc == desc
    served = {info.id: info.ztensor for info in session.list_tensors()}[held.id]
    assert (served.buffer_size, served.null_buffer, served.rec_scale) == (17, True, 0.25)


def test_without_sticks_there_is_no_buffer(open_session: Open) -> None:
    """None for sticks is C's NULL: functions that need the buffer are refused."""
    session = open_session()
    described = session.ztensor(np.ones(5, np.float32)).structure
    held = session.put_ztensor(described)
    with pytest.raises(ZdnnError) as raised:
        zdnn.transform_origtensor(held)
    assert raised.value.name == "ZDNN_INVALID_BUFFER"


def test_a_dropped_ztensor_is_freed(open_session: Open) -> None:
    """The next call of the session frees a dropped ztensor."""
    session = open_session()
    original = session.ztensor(np.ones(5, np.float32))
    held = session.put_ztensor(original.structure, original.read_sticks())
    number = held.id
    del held
    zdnn.add(original, original)
    assert number not in {info.id for info in session.list_tensors()}


def test_a_dropped_ztensor_without_a_buffer_stops_nothing(open_session: Open) -> None:
    """After a ztensor without a buffer was dropped, all calls of the next list run."""
    session = open_session()
    original = session.ztensor(np.ones(5, np.float32))
    held = session.put_ztensor(original.structure)
    del held
    with session.pipeline() as pipeline:
        total = zdnn.add(original, original)
    assert len(pipeline.results) == 1
    assert (total.numpy() == 2).all()
