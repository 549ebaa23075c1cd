# SPDX-License-Identifier: Apache-2.0
"""Arrays that wait in a pipeline are sent as they were at the call, whatever changes them later."""

import numpy as np
from nnpa_client import Session, zdnn
from nnpa_server.config import Limits
from nnpa_server.sessions.store import Store

from tests.client.in_process import InProcessTransport

KIB = 1024


def test_arrays_that_change_after_the_call_were_sent_as_they_were() -> None:
    """Lists that are sent in several messages carry the values of the moment of each call."""
    array, limits = np.zeros(128 * KIB, np.float32), Limits(max_message=2 << 20)
    with Session(InProcessTransport(Store(limits))) as session:
        with session.pipeline():
            tensors = []
            for value in range(6):  # 512 KiB each: every second one starts a message
                array[:] = value
                tensors.append(session.ztensor(array))
                array[:] = -1
            doubled = [zdnn.add(tensor, tensor) for tensor in tensors]
        for value, tensor in enumerate(doubled):
            assert (tensor.numpy() == 2 * value).all()
