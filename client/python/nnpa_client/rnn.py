# SPDX-License-Identifier: Apache-2.0
"""Helpers for LSTM and GRU that the C library lacks: gates by name, sizes of work areas.

zDNN wants the gates of a layer in one concatenated ztensor, in the order forget, input, cell,
output for LSTM and update, reset, hidden for GRU; these functions take them by name.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nnpa_client._values import constants as c
from nnpa_client.descriptors import (
    TensorDesc,
    generate_transformed_desc_concatenated,
    getsize_ztensor,
    init_pre_transformed_desc,
)
from nnpa_client.session import Session
from nnpa_client.ztensor import Ztensor, _transfer

__all__ = [
    "gru_gates",
    "gru_work_area_size",
    "lstm_gates",
    "lstm_work_area_size",
    "quantized_matmul_work_area_size",
]

Array = npt.NDArray[np.generic]

_BIASES = (c.USAGE_BIASES, c.USAGE_HIDDEN_BIASES)


def lstm_gates(
    session: Session,
    usage: int,
    *,
    forget: Array,
    input: Array,  # noqa: A002 - the gate's name
    cell: Array,
    output: Array,
    prev_layer: int = c.PREV_LAYER_NONE,
) -> Ztensor:
    """Return weights or biases of an LSTM layer as a transformed, concatenated ztensor.

    `usage` is USAGE_WEIGHTS (gates (d, features, hidden)), USAGE_HIDDEN_WEIGHTS (gates (d, hidden,
    hidden)), USAGE_BIASES or USAGE_HIDDEN_BIASES (gates (d, hidden)); d, the number of directions,
    may be left out when it is 1. `prev_layer` is PREV_LAYER_BIDIR when the layer's input is the
    output of a bidirectional one. Gates are float32, float16 or bfloat16 of one shape.
    Raises ValueError for shapes, TypeError for types, ZdnnError as `transform_ztensor`.
    """
    return _gates(session, c.RNN_TYPE_LSTM | usage | prev_layer, [forget, input, cell, output])


def gru_gates(
    session: Session,
    usage: int,
    *,
    update: Array,
    reset: Array,
    hidden: Array,
    prev_layer: int = c.PREV_LAYER_NONE,
) -> Ztensor:
    """Return weights or biases of a GRU layer as a transformed, concatenated ztensor.

    The gates are zDNN's Z, R and H; parameters and errors as `lstm_gates`.
    """
    return _gates(session, c.RNN_TYPE_GRU | usage | prev_layer, [update, reset, hidden])


def _gates(session: Session, info: int, gates: Sequence[Array]) -> Ztensor:
    rank = 2 if c.CONCAT_USAGE(info) in _BIASES else 3
    shapes = sorted({gate.shape for gate in gates})
    if len(shapes) != 1 or len(shapes[0]) not in (rank - 1, rank):
        raise ValueError(f"gates: shapes {shapes}, expected one of {rank - 1} or {rank} dims")
    shape = (1, *shapes[0])[-rank:]
    layout = c.ZDNN_2DS if rank == 2 else c.ZDNN_3DS
    pre = init_pre_transformed_desc(layout, _transfer.dtype_code(gates[0]), *shape)
    tfrmd = generate_transformed_desc_concatenated(pre, info)
    ztensor = session.init_ztensor_with_malloc(pre, tfrmd)
    _transfer.transform_ztensor(ztensor, gates)
    return ztensor


def lstm_work_area_size(
    num_timesteps: int, num_batches: int, num_hidden: int, *, bidirectional: bool = False
) -> int:
    """Return the bytes that `work_area` of zdnn_lstm takes in C; Python callers pass None.

    Source: zDNN API Reference 1.2.0, zdnn_lstm, the sample below work_area; twice as much for two
    directions.
    """
    slabs = 4 * num_timesteps + 6
    return _slabs_size(slabs, num_batches, num_hidden) * (2 if bidirectional else 1)


def gru_work_area_size(
    num_timesteps: int, num_batches: int, num_hidden: int, *, bidirectional: bool = False
) -> int:
    """Return the bytes that `work_area` of zdnn_gru takes in C; Python callers pass None.

    Source: zDNN API Reference 1.2.0, zdnn_gru, the sample below work_area; twice as much for two
    directions.
    """
    slabs = 3 * num_timesteps + 5
    return _slabs_size(slabs, num_batches, num_hidden) * (2 if bidirectional else 1)


def _slabs_size(slabs: int, num_batches: int, num_hidden: int) -> int:
    return getsize_ztensor(TensorDesc(dim4=slabs, dim3=1, dim2=num_batches, dim1=num_hidden))


def quantized_matmul_work_area_size(input_c: TensorDesc) -> int:
    """Return the bytes that `work_area` of zdnn_quantized_matmul_op takes in C.

    `input_c` is the transformed descriptor of the third operand. The documented amount, its
    buffer_size, is too small from 65 columns on: the library keeps a DLFLOAT16 tensor of the same
    dimensions there. Source: zDNN library behaviour.
    """
    dims = {name: getattr(input_c, name) for name in ("dim4", "dim3", "dim2", "dim1")}
    return getsize_ztensor(TensorDesc(type=c.ZDNN_DLFLOAT16, **dims))
