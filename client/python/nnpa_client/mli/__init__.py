# SPDX-License-Identifier: Apache-2.0
"""embARC MLI's fixed-point kernels and utility functions, bit for bit, with MLI's names.

import numpy as np
from nnpa_client import connect, mli

with connect():
    x = mli.quantise(np.linspace(-4, 4, 9), mli.MLI_EL_FX_8)
    y = mli.krn_tanh_fx8(x)
    print(y.array, y.frac_bits, mli.dequantise(y))

Names are the embARC MLI documentation's without the prefix ``mli_``; `find` also accepts the prefix
and the library's names. Outside of a session, use `with mli.connect():`.
"""

from collections.abc import Callable

from nnpa.mli.v1.mli_pb2 import (
    MLI_EL_FP_16,
    MLI_EL_FP_32,
    MLI_EL_FX_4,
    MLI_EL_FX_8,
    MLI_EL_FX_16,
    MLI_EL_SA_8,
    MLI_EL_SA_32,
    MLI_STATUS_ARGUMENT_ERROR,
    MLI_STATUS_BAD_FUNC_CFG,
    MLI_STATUS_BAD_TENSOR,
    MLI_STATUS_INCOMPATEBLE_TENSORS,
    MLI_STATUS_NOT_ENGH_MEM,
    MLI_STATUS_NOT_SUPPORTED,
    MLI_STATUS_OK,
    MLI_STATUS_SHAPE_MISMATCH,
    MLI_STATUS_SIZE_MISMATCH,
    MLI_STATUS_TYPE_MISMATCH,
    RNN_ACT_NONE,
    RNN_ACT_SIGM,
    RNN_ACT_TANH,
    RNN_BATCH_TO_BATCH,
    RNN_BATCH_TO_LAST,
    RNN_ONE_TO_ONE,
    KernelInfo,
    MliStatus,
)

from nnpa_client.mli.calls import Batch, Case, Options, record
from nnpa_client.mli.cases import export_case
from nnpa_client.mli.connection import Connection, batch, connect, list_kernels
from nnpa_client.mli.errors import MliError, MliWarning
from nnpa_client.mli.hlp import (
    SubTensorCfg,
    SubtensorCfg,
    hlp_convert_tensor,
    hlp_convert_tensor_safx,
    hlp_count_elem_num,
    hlp_create_subtensor,
    hlp_subtensor,
    hlp_tensor_element_size,
    hlp_tensor_scale,
    hlp_tensor_scale_shift,
    hlp_tensor_zero_offset,
)
from nnpa_client.mli.kernels import (
    LstmCellCfg,
    RnnCellCfg,
    krn_basic_rnn_cell_fx8,
    krn_basic_rnn_cell_fx8w16d,
    krn_basic_rnn_cell_fx16,
    krn_fully_connected_fx8,
    krn_fully_connected_fx8w16d,
    krn_fully_connected_fx16,
    krn_lstm_cell_fx8,
    krn_lstm_cell_fx8w16d,
    krn_lstm_cell_fx16,
    krn_sigm_fx8,
    krn_sigm_fx16,
    krn_tanh_fx8,
    krn_tanh_fx16,
)
from nnpa_client.mli.quantisation import dequantise, fit_fx, fit_sa, quantise
from nnpa_client.mli.tensor import FxParams, SaParams, Tensor, empty, shared, tensor

__all__ = [
    "MLI_EL_FP_16",
    "MLI_EL_FP_32",
    "MLI_EL_FX_4",
    "MLI_EL_FX_8",
    "MLI_EL_FX_16",
    "MLI_EL_SA_8",
    "MLI_EL_SA_32",
    "MLI_STATUS_ARGUMENT_ERROR",
    "MLI_STATUS_BAD_FUNC_CFG",
    "MLI_STATUS_BAD_TENSOR",
    "MLI_STATUS_INCOMPATEBLE_TENSORS",
    "MLI_STATUS_NOT_ENGH_MEM",
    "MLI_STATUS_NOT_SUPPORTED",
    "MLI_STATUS_OK",
    "MLI_STATUS_SHAPE_MISMATCH",
    "MLI_STATUS_SIZE_MISMATCH",
    "MLI_STATUS_TYPE_MISMATCH",
    "RNN_ACT_NONE",
    "RNN_ACT_SIGM",
    "RNN_ACT_TANH",
    "RNN_BATCH_TO_BATCH",
    "RNN_BATCH_TO_LAST",
    "RNN_ONE_TO_ONE",
    "Batch",
    "Case",
    "Connection",
    "FxParams",
    "KernelInfo",
    "LstmCellCfg",
    "MliError",
    "MliStatus",
    "MliWarning",
    "Options",
    "RnnCellCfg",
    "SaParams",
    "SubTensorCfg",
    "SubtensorCfg",
    "Tensor",
    "batch",
    "connect",
    "dequantise",
    "empty",
    "export_case",
    "find",
    "fit_fx",
    "fit_sa",
    "hlp_convert_tensor",
    "hlp_convert_tensor_safx",
    "hlp_count_elem_num",
    "hlp_create_subtensor",
    "hlp_subtensor",
    "hlp_tensor_element_size",
    "hlp_tensor_scale",
    "hlp_tensor_scale_shift",
    "hlp_tensor_zero_offset",
    "krn_basic_rnn_cell_fx8",
    "krn_basic_rnn_cell_fx8w16d",
    "krn_basic_rnn_cell_fx16",
    "krn_fully_connected_fx8",
    "krn_fully_connected_fx8w16d",
    "krn_fully_connected_fx16",
    "krn_lstm_cell_fx8",
    "krn_lstm_cell_fx8w16d",
    "krn_lstm_cell_fx16",
    "krn_sigm_fx8",
    "krn_sigm_fx16",
    "krn_tanh_fx8",
    "krn_tanh_fx16",
    "list_kernels",
    "quantise",
    "record",
    "shared",
    "tensor",
]


def find(name: str) -> Callable[..., object]:
    """Return a function by its name in documentation or library, with or without ``mli_``."""
    key = name.removeprefix("mli_")
    if not key.startswith(("krn_", "hlp_")) or key not in __all__:
        functions = ", ".join(entry for entry in __all__ if entry.startswith(("krn_", "hlp_")))
        raise KeyError(f"name: {name}, must be one of {functions}")
    function: Callable[..., object] = globals()[key]
    return function
