# SPDX-License-Identifier: Apache-2.0
"""The next operation multiplies the raw sticks that replaced weights in use."""

import numpy as np
from nnpa.zdnn.v1 import accelerator_pb2 as pb

from tests.server.wire import Client, chunks, init, load, op

ONE = np.eye(2, dtype=np.float32).reshape(1, 1, 2, 2)


def test_weights_written_as_sticks_are_multiplied(client: Client) -> None:
    """After several products, sticks of other weights written in place change the result."""
    client.run(*load(1, ONE), *load(2, 2 * ONE), *load(3, ONE[:, :, :1] * 0))
    client.run(*load(4, 5 * ONE), *init(5, 1, 1, 2, 2))
    multiply = op("matmul_op", input_a=1, input_b=2, input_c=3, op_type=0, output=5)
    client.run(multiply, multiply, multiply)
    assert np.array_equal(client.array(5), 2 * ONE.ravel())
    header, sticks = client.read(sticks=pb.ReadSticks(id=4))
    client.write([client.sticks_header(id=2, total_bytes=header.total_bytes), *chunks(sticks)])
    for _ in range(3):
        client.run(multiply)
        assert np.array_equal(client.array(5), 5 * ONE.ravel())
