# SPDX-License-Identifier: Apache-2.0
"""Ztensors put into a session as they stand."""

import numpy as np
import pytest
from nnpa.zdnn.v1.tensor_pb2 import FP32, ZDNN_BINARY_INT8, ZDNN_NHWC, TensorDesc, Ztensor
from nnpa_client import ZdnnError, zdnn

from tests.client.conftest import Open


def test_it_moves_to_another_session(open_session: Open) -> None:
    """What one session has computed, another one holds bit for bit, on another machine."""
    data = np.linspace(-3, 3, 90, dtype=np.float32).reshape(2, 45)
    first, second = open_session("telum2"), open_session("telum1")
    here = first.ztensor(data)
    there = second.put_ztensor(here.structure, here.read_sticks())
    assert (there.read_sticks() == here.read_sticks()).all()
    assert (there.numpy() == here.numpy()).all()
    assert there.is_transformed
    assert there.guest is not here.guest


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
    told = {info.id: info.ztensor for info in session.list_tensors()}[held.id]
    assert (told.buffer_size, told.null_buffer, told.rec_scale) == (17, True, 0.25)


def test_without_sticks_there_is_no_buffer(open_session: Open) -> None:
    """None for sticks is C's NULL: what needs the buffer is refused."""
    session = open_session()
    described = session.ztensor(np.ones(5, np.float32)).structure
    held = session.put_ztensor(described)
    with pytest.raises(ZdnnError) as raised:
        zdnn.transform_origtensor(held)
    assert raised.value.name == "ZDNN_INVALID_BUFFER"


def test_a_dropped_one_is_freed(open_session: Open) -> None:
    """The session forgets it with the next call, as every ztensor."""
    session = open_session()
    one = session.ztensor(np.ones(5, np.float32))
    held = session.put_ztensor(one.structure, one.read_sticks())
    number = held.id
    del held
    zdnn.add(one, one)
    assert number not in {info.id for info in session.list_tensors()}


def test_a_dropped_one_without_a_buffer_stops_nothing(open_session: Open) -> None:
    """There is nothing to free: the calls of the next list all run."""
    session = open_session()
    one = session.ztensor(np.ones(5, np.float32))
    held = session.put_ztensor(one.structure)
    del held
    with session.pipeline() as pipeline:
        total = zdnn.add(one, one)
    assert len(pipeline.results) == 1
    assert (total.numpy() == 2).all()
