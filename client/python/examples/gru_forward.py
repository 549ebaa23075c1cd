# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: A001 - names of the C program
"""Run a GRU layer forward: python gru_forward.py [target].

The zDNN API Reference 1.2.0's "Example of an application calling the zdnn_gru API (forward)", line
by line. Buffers that the C program leaves unfilled hold `fill`. Each assert of a status is what the
Python functions do by themselves: they raise.
"""

import sys

import numpy as np
import numpy.typing as npt
from nnpa_client import connect, zdnn


def fill(count: int, start: int) -> npt.NDArray[np.float32]:
    """Return count numbers: element i is ((i + start) * 7 modulo 23, less 11) / 32."""
    return (((np.arange(count) + start) * 7 % 23 - 11) / 32).astype(np.float32)


def main() -> npt.NDArray[np.float32]:
    """Run the layer, and return the last hidden state."""
    # ---------------------------------------------------------------------
    # GRU (FWD/BWD):
    #
    # INPUTS --------------------------------------------------------------
    # input           |  ZDNN_3DS  | (num_timesteps, num_batches, num_features)
    # h0              |  ZDNN_3DS  | (1, num_batches, num_hidden)
    # weights         |  ZDNN_3DS  | (1, num_features, num_hidden)
    # input_biases    |  ZDNN_2DS  | (1, num_hidden)
    # hidden_weights  |  ZDNN_3DS  | (1, num_hidden, num_hidden)
    # hidden_biases   |  ZDNN_2DS  | (1, num_hidden)
    #
    # OUTPUTS -------------------------------------------------------------
    # hn_output       |  ZDNN_4DS  | (num_timesteps, 1, num_batches, num_hidden)
    #                 |            | or (1, 1, num_batches, num_hidden)
    # ---------------------------------------------------------------------

    # ---------------------------------------------------------------------
    # Create the input
    # ---------------------------------------------------------------------
    num_timesteps = 5
    num_batches = 3
    num_features = 32
    num_hidden = 5

    type = zdnn.FP32

    dir = zdnn.FWD
    num_dirs = 1

    input_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(
        zdnn.ZDNN_3DS, type, num_timesteps, num_batches, num_features
    )
    input_tfrmd_desc = zdnn.generate_transformed_desc(input_pre_tfrmd_desc)
    input = zdnn.init_ztensor_with_malloc(input_pre_tfrmd_desc, input_tfrmd_desc)

    input_data_size = num_timesteps * num_batches * num_features
    input_data = fill(input_data_size, 0)

    zdnn.transform_ztensor(input, input_data)

    # ---------------------------------------------------------------------
    # Create the initial hidden state
    # ---------------------------------------------------------------------
    h0_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(
        zdnn.ZDNN_3DS, type, num_dirs, num_batches, num_hidden
    )
    h0_tfrmd_desc = zdnn.generate_transformed_desc(h0_pre_tfrmd_desc)

    h0 = zdnn.init_ztensor_with_malloc(h0_pre_tfrmd_desc, h0_tfrmd_desc)

    h0_data_size = num_batches * num_hidden
    hidden_state_data = fill(h0_data_size, 1)

    zdnn.transform_ztensor(h0, hidden_state_data)

    # ---------------------------------------------------------------------
    # Create the input weights, gates concatenated
    # ---------------------------------------------------------------------
    weights_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(
        zdnn.ZDNN_3DS, type, num_dirs, num_features, num_hidden
    )
    weights_tfrmd_desc = zdnn.generate_transformed_desc_concatenated(
        weights_pre_tfrmd_desc, zdnn.RNN_TYPE_GRU | zdnn.USAGE_WEIGHTS | zdnn.PREV_LAYER_NONE
    )

    weights = zdnn.init_ztensor_with_malloc(weights_pre_tfrmd_desc, weights_tfrmd_desc)

    weights_data_size = num_features * num_hidden
    weights_data_z = fill(weights_data_size, 3)
    weights_data_r = fill(weights_data_size, 4)
    weights_data_h = fill(weights_data_size, 5)

    zdnn.transform_ztensor(weights, weights_data_z, weights_data_r, weights_data_h)

    # ---------------------------------------------------------------------
    # Create the input biases, gates concatenated
    # ---------------------------------------------------------------------
    biases_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(
        zdnn.ZDNN_2DS, type, num_dirs, num_hidden
    )
    biases_tfrmd_desc = zdnn.generate_transformed_desc_concatenated(
        biases_pre_tfrmd_desc, zdnn.RNN_TYPE_GRU | zdnn.USAGE_BIASES | zdnn.PREV_LAYER_NONE
    )

    biases = zdnn.init_ztensor_with_malloc(biases_pre_tfrmd_desc, biases_tfrmd_desc)

    biases_data_size = num_hidden
    biases_data_z = fill(biases_data_size, 7)
    biases_data_r = fill(biases_data_size, 8)
    biases_data_h = fill(biases_data_size, 9)

    zdnn.transform_ztensor(biases, biases_data_z, biases_data_r, biases_data_h)

    # ---------------------------------------------------------------------
    # Create the hidden weights, gates concatenated
    # ---------------------------------------------------------------------
    hidden_weights_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(
        zdnn.ZDNN_3DS, type, num_dirs, num_hidden, num_hidden
    )
    hidden_weights_tfrmd_desc = zdnn.generate_transformed_desc_concatenated(
        hidden_weights_pre_tfrmd_desc,
        zdnn.RNN_TYPE_GRU | zdnn.USAGE_HIDDEN_WEIGHTS | zdnn.PREV_LAYER_NONE,
    )

    hidden_weights = zdnn.init_ztensor_with_malloc(
        hidden_weights_pre_tfrmd_desc, hidden_weights_tfrmd_desc
    )

    hidden_weights_data_size = num_hidden * num_hidden
    hidden_weights_data_z = fill(hidden_weights_data_size, 11)
    hidden_weights_data_r = fill(hidden_weights_data_size, 12)
    hidden_weights_data_h = fill(hidden_weights_data_size, 13)

    zdnn.transform_ztensor(
        hidden_weights, hidden_weights_data_z, hidden_weights_data_r, hidden_weights_data_h
    )

    # ---------------------------------------------------------------------
    # Create the hidden biases, gates concatenated
    # ---------------------------------------------------------------------
    hidden_biases_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(
        zdnn.ZDNN_2DS, type, num_dirs, num_hidden
    )
    hidden_biases_tfrmd_desc = zdnn.generate_transformed_desc_concatenated(
        hidden_biases_pre_tfrmd_desc,
        zdnn.RNN_TYPE_GRU | zdnn.USAGE_HIDDEN_BIASES | zdnn.PREV_LAYER_NONE,
    )

    hidden_biases = zdnn.init_ztensor_with_malloc(
        hidden_biases_pre_tfrmd_desc, hidden_biases_tfrmd_desc
    )

    hidden_biases_data_size = num_hidden
    hidden_biases_data_z = fill(hidden_biases_data_size, 15)
    hidden_biases_data_r = fill(hidden_biases_data_size, 16)
    hidden_biases_data_h = fill(hidden_biases_data_size, 17)

    zdnn.transform_ztensor(
        hidden_biases, hidden_biases_data_z, hidden_biases_data_r, hidden_biases_data_h
    )

    # ---------------------------------------------------------------------
    # Create the output
    # ---------------------------------------------------------------------
    # the last timestep only
    hn_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(
        zdnn.ZDNN_4DS, type, 1, 1, num_batches, num_hidden
    )
    hn_tfrmd_desc = zdnn.generate_transformed_desc(hn_pre_tfrmd_desc)

    hn_output_ztensor = zdnn.init_ztensor_with_malloc(hn_pre_tfrmd_desc, hn_tfrmd_desc)

    # ---------------------------------------------------------------------
    # Call the zAIU
    # ---------------------------------------------------------------------
    work_area = None

    zdnn.gru(
        input,
        h0,
        weights,
        biases,
        hidden_weights,
        hidden_biases,
        dir,
        work_area,
        hn_output_ztensor,
    )

    # ---------------------------------------------------------------------
    # Output and cleanup
    # ---------------------------------------------------------------------
    hn_output_data = np.empty((1, 1, num_batches, num_hidden), np.float32)

    zdnn.transform_origtensor(hn_output_ztensor, hn_output_data)

    zdnn.free_ztensor_buffer(input)
    zdnn.free_ztensor_buffer(h0)
    zdnn.free_ztensor_buffer(weights)
    zdnn.free_ztensor_buffer(biases)
    zdnn.free_ztensor_buffer(hidden_weights)
    zdnn.free_ztensor_buffer(hidden_biases)
    zdnn.free_ztensor_buffer(hn_output_ztensor)
    return hn_output_data


if __name__ == "__main__":
    with connect(sys.argv[1] if len(sys.argv) > 1 else None):
        print(main())
