# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: A001, A002 - names of the C program
"""Run two LSTM layers, each both ways: python lstm_multi_layer_bidirectional.py [target].

The zDNN API Reference 1.2.0's "Example of an application calling the zdnn_lstm API (multi-layer
bi-directional)", line by line. Buffers with a direction are twice as large as in C: the C program
allocates them for one direction, and would read beyond. Buffers that the C program leaves unfilled
hold `fill`. C asserts each status; the functions of Python raise.
"""

import sys

import numpy as np
import numpy.typing as npt
from nnpa_client import Ztensor, connect, zdnn


def fill(count: int, start: int) -> npt.NDArray[np.float32]:
    """Return count numbers: element i is ((i + start) * 7 modulo 23, less 11) / 32."""
    return (((np.arange(count) + start) * 7 % 23 - 11) / 32).astype(np.float32)


def do_bidir_layer(
    input: Ztensor, num_hidden: int, hn_output: Ztensor, is_prev_layer_bidir: bool
) -> None:
    """Run one bidirectional layer from input to hn_output."""
    num_batches = input.pre_transformed_desc.dim2

    # the output of a bidirectional layer has 2x its hidden size (dim1) as features
    num_features = input.pre_transformed_desc.dim1 * (2 if is_prev_layer_bidir else 1)

    type = zdnn.FP32

    dir = zdnn.BIDIR
    num_dirs = 2

    # ---------------------------------------------------------------------
    # Create the initial hidden and cell states
    # ---------------------------------------------------------------------
    h0c0_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(
        zdnn.ZDNN_3DS, type, num_dirs, num_batches, num_hidden
    )
    h0c0_tfrmd_desc = zdnn.generate_transformed_desc(h0c0_pre_tfrmd_desc)

    h0 = zdnn.init_ztensor_with_malloc(h0c0_pre_tfrmd_desc, h0c0_tfrmd_desc)
    c0 = zdnn.init_ztensor_with_malloc(h0c0_pre_tfrmd_desc, h0c0_tfrmd_desc)

    h0c0_data_size = num_dirs * num_batches * num_hidden
    hidden_state_data = fill(h0c0_data_size, 1)
    cell_state_data = fill(h0c0_data_size, 2)

    zdnn.transform_ztensor(h0, hidden_state_data)
    zdnn.transform_ztensor(c0, cell_state_data)

    # ---------------------------------------------------------------------
    # Create the input weights, gates concatenated
    # ---------------------------------------------------------------------
    weights_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(
        zdnn.ZDNN_3DS, type, num_dirs, num_features, num_hidden
    )
    weights_tfrmd_desc = zdnn.generate_transformed_desc_concatenated(
        weights_pre_tfrmd_desc,
        zdnn.RNN_TYPE_LSTM
        | zdnn.USAGE_WEIGHTS
        | (zdnn.PREV_LAYER_BIDIR if is_prev_layer_bidir else zdnn.PREV_LAYER_UNI),
    )

    weights = zdnn.init_ztensor_with_malloc(weights_pre_tfrmd_desc, weights_tfrmd_desc)

    weights_data_size = num_dirs * num_features * num_hidden
    weights_data_f = fill(weights_data_size, 3)
    weights_data_i = fill(weights_data_size, 4)
    weights_data_c = fill(weights_data_size, 5)
    weights_data_o = fill(weights_data_size, 6)

    zdnn.transform_ztensor(weights, weights_data_f, weights_data_i, weights_data_c, weights_data_o)

    # ---------------------------------------------------------------------
    # Create the input biases, gates concatenated
    # ---------------------------------------------------------------------
    biases_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(
        zdnn.ZDNN_2DS, type, num_dirs, num_hidden
    )
    biases_tfrmd_desc = zdnn.generate_transformed_desc_concatenated(
        biases_pre_tfrmd_desc,
        zdnn.RNN_TYPE_LSTM
        | zdnn.USAGE_BIASES
        | (zdnn.PREV_LAYER_BIDIR if is_prev_layer_bidir else zdnn.PREV_LAYER_UNI),
    )

    biases = zdnn.init_ztensor_with_malloc(biases_pre_tfrmd_desc, biases_tfrmd_desc)

    biases_data_size = num_dirs * num_hidden
    biases_data_f = fill(biases_data_size, 7)
    biases_data_i = fill(biases_data_size, 8)
    biases_data_c = fill(biases_data_size, 9)
    biases_data_o = fill(biases_data_size, 10)

    zdnn.transform_ztensor(biases, biases_data_f, biases_data_i, biases_data_c, biases_data_o)

    # ---------------------------------------------------------------------
    # Create the hidden weights, gates concatenated
    # ---------------------------------------------------------------------
    hidden_weights_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(
        zdnn.ZDNN_3DS, type, num_dirs, num_hidden, num_hidden
    )
    hidden_weights_tfrmd_desc = zdnn.generate_transformed_desc_concatenated(
        hidden_weights_pre_tfrmd_desc,
        zdnn.RNN_TYPE_LSTM
        | zdnn.USAGE_HIDDEN_WEIGHTS
        | (zdnn.PREV_LAYER_BIDIR if is_prev_layer_bidir else zdnn.PREV_LAYER_UNI),
    )

    hidden_weights = zdnn.init_ztensor_with_malloc(
        hidden_weights_pre_tfrmd_desc, hidden_weights_tfrmd_desc
    )

    hidden_weights_data_size = num_dirs * num_hidden * num_hidden
    hidden_weights_data_f = fill(hidden_weights_data_size, 11)
    hidden_weights_data_i = fill(hidden_weights_data_size, 12)
    hidden_weights_data_c = fill(hidden_weights_data_size, 13)
    hidden_weights_data_o = fill(hidden_weights_data_size, 14)

    zdnn.transform_ztensor(
        hidden_weights,
        hidden_weights_data_f,
        hidden_weights_data_i,
        hidden_weights_data_c,
        hidden_weights_data_o,
    )

    # ---------------------------------------------------------------------
    # Create the hidden biases, gates concatenated
    # ---------------------------------------------------------------------
    hidden_biases_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(
        zdnn.ZDNN_2DS, type, num_dirs, num_hidden
    )
    hidden_biases_tfrmd_desc = zdnn.generate_transformed_desc_concatenated(
        hidden_biases_pre_tfrmd_desc,
        zdnn.RNN_TYPE_LSTM
        | zdnn.USAGE_HIDDEN_BIASES
        | (zdnn.PREV_LAYER_BIDIR if is_prev_layer_bidir else zdnn.PREV_LAYER_UNI),
    )

    hidden_biases = zdnn.init_ztensor_with_malloc(
        hidden_biases_pre_tfrmd_desc, hidden_biases_tfrmd_desc
    )

    hidden_biases_data_size = num_dirs * num_hidden
    hidden_biases_data_f = fill(hidden_biases_data_size, 15)
    hidden_biases_data_i = fill(hidden_biases_data_size, 16)
    hidden_biases_data_c = fill(hidden_biases_data_size, 17)
    hidden_biases_data_o = fill(hidden_biases_data_size, 18)

    zdnn.transform_ztensor(
        hidden_biases,
        hidden_biases_data_f,
        hidden_biases_data_i,
        hidden_biases_data_c,
        hidden_biases_data_o,
    )

    # ---------------------------------------------------------------------
    # Create the cf output
    # ---------------------------------------------------------------------
    cf_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(
        zdnn.ZDNN_4DS, type, 1, 2, num_batches, num_hidden
    )
    cf_tfrmd_desc = zdnn.generate_transformed_desc(cf_pre_tfrmd_desc)

    cf_output_ztensor = zdnn.init_ztensor_with_malloc(cf_pre_tfrmd_desc, cf_tfrmd_desc)

    # ---------------------------------------------------------------------
    # Call the zAIU
    # ---------------------------------------------------------------------
    work_area = None

    zdnn.lstm(
        input,
        h0,
        c0,
        weights,
        biases,
        hidden_weights,
        hidden_biases,
        dir,
        work_area,
        hn_output,
        cf_output_ztensor,
    )

    # ---------------------------------------------------------------------
    # Cleanup and return
    # ---------------------------------------------------------------------
    zdnn.free_ztensor_buffer(h0)
    zdnn.free_ztensor_buffer(c0)
    zdnn.free_ztensor_buffer(weights)
    zdnn.free_ztensor_buffer(biases)
    zdnn.free_ztensor_buffer(hidden_weights)
    zdnn.free_ztensor_buffer(hidden_biases)
    zdnn.free_ztensor_buffer(cf_output_ztensor)


def main() -> list[npt.NDArray[np.float32]]:
    """Run both layers, and return the hidden states of each."""
    num_hidden = [5, 4]

    # ---------------------------------------------------------------------
    # Create the input
    # ---------------------------------------------------------------------
    num_timesteps = 5
    num_batches = 3
    num_features = 32

    type = zdnn.FP32

    input_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(
        zdnn.ZDNN_3DS, type, num_timesteps, num_batches, num_features
    )
    input_tfrmd_desc = zdnn.generate_transformed_desc(input_pre_tfrmd_desc)
    input = zdnn.init_ztensor_with_malloc(input_pre_tfrmd_desc, input_tfrmd_desc)

    input_data_size = num_timesteps * num_batches * num_features
    input_data = fill(input_data_size, 0)

    zdnn.transform_ztensor(input, input_data)

    # ---------------------------------------------------------------------
    # Create 2 hn outputs
    # ---------------------------------------------------------------------
    hn_output: list[Ztensor] = []

    for i in range(2):
        hn_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(
            zdnn.ZDNN_4DS, type, num_timesteps, 2, num_batches, num_hidden[i]
        )
        hn_tfrmd_desc = zdnn.generate_transformed_desc(hn_pre_tfrmd_desc)

        hn_output.append(zdnn.init_ztensor_with_malloc(hn_pre_tfrmd_desc, hn_tfrmd_desc))

    # ---------------------------------------------------------------------
    # Do the layers
    # ---------------------------------------------------------------------
    # the first layer: from the input, no bidirectional layer before, to hn_output[0]
    do_bidir_layer(input, num_hidden[0], hn_output[0], False)

    # the second layer: from hn_output[0], a bidirectional layer before, to hn_output[1]
    do_bidir_layer(hn_output[0], num_hidden[1], hn_output[1], True)

    # ---------------------------------------------------------------------
    # Output and cleanup
    # ---------------------------------------------------------------------
    hn_output_data: list[npt.NDArray[np.float32]] = []

    for i in range(2):
        shape = (num_timesteps, 2, num_batches, num_hidden[i])
        hn_output_data.append(np.empty(shape, np.float32))

        zdnn.transform_origtensor(hn_output[i], hn_output_data[i])

    zdnn.free_ztensor_buffer(input)
    zdnn.free_ztensor_buffer(hn_output[0])
    zdnn.free_ztensor_buffer(hn_output[1])
    return hn_output_data


if __name__ == "__main__":
    with connect(sys.argv[1] if len(sys.argv) > 1 else None):
        print(main())
