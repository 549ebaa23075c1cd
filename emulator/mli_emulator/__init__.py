# SPDX-License-Identifier: Apache-2.0
"""The embARC MLI emulator: MLI 1.x common group and MLI 2.0 utility functions, bit for bit.

Names are as in the library's documentation without the prefix ``mli_``; the parameter ``in``
is spelled ``in_``. Kernels take their tensors in C order or by keyword, and ``options``.
"""

from mli_emulator.activation import krn_sigm_fx8, krn_sigm_fx16, krn_tanh_fx8, krn_tanh_fx16
from mli_emulator.basic_rnn import (
    krn_basic_rnn_cell_fx8,
    krn_basic_rnn_cell_fx8w16d,
    krn_basic_rnn_cell_fx16,
)
from mli_emulator.convert import hlp_convert_tensor, hlp_convert_tensor_safx
from mli_emulator.dense import (
    krn_fully_connected_fx8,
    krn_fully_connected_fx8w16d,
    krn_fully_connected_fx16,
)
from mli_emulator.fixedpoint import Accumulator, Rounding
from mli_emulator.hlp import (
    SubTensorCfg,
    hlp_count_elem_num,
    hlp_subtensor,
    hlp_tensor_element_size,
    hlp_tensor_scale,
    hlp_tensor_scale_shift,
    hlp_tensor_zero_offset,
)
from mli_emulator.lstm import krn_lstm_cell_fx8, krn_lstm_cell_fx8w16d, krn_lstm_cell_fx16
from mli_emulator.pipeline import DEFAULT, KERNELS, Kernel, Options, find
from mli_emulator.recurrent import RnnCellCfg, RnnMode, RnnOutActivation
from mli_emulator.requantise import Conversion
from mli_emulator.status import Asserted, DebugLevel, MliStatus, Outcome, Refusal
from mli_emulator.tensor import (
    MLI_MAX_RANK,
    ElParams,
    ElType,
    FxParams,
    SaParams,
    Tensor,
    empty,
    from_array,
    to_array,
)

LstmCellCfg = RnnCellCfg  # the LSTM prototype of the documentation names mli_lstm_cell_cfg
SubtensorCfg = SubTensorCfg  # its sub-tensor prototype names mli_subtensor_cfg
hlp_create_subtensor = hlp_subtensor  # the name in the library

__all__ = [
    "DEFAULT",
    "KERNELS",
    "MLI_MAX_RANK",
    "Accumulator",
    "Asserted",
    "Conversion",
    "DebugLevel",
    "ElParams",
    "ElType",
    "FxParams",
    "Kernel",
    "LstmCellCfg",
    "MliStatus",
    "Options",
    "Outcome",
    "Refusal",
    "RnnCellCfg",
    "RnnMode",
    "RnnOutActivation",
    "Rounding",
    "SaParams",
    "SubTensorCfg",
    "SubtensorCfg",
    "Tensor",
    "empty",
    "find",
    "from_array",
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
    "to_array",
]
