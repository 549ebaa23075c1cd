# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: A001, A002 - names of the C program
"""Multiply INT8 stacks: python quantized_matmul.py [target].

The zDNN API Reference 1.2.0's "Example of calling the zdnn_quantized_matmul_op API (normal)", line
by line, and its three variants, which differ in a few lines: `on_the_fly` has the operation
quantize the input, `pre_computed` hands over biases that are computed before. Flags that the C
programs leave out of the call are false. Buffers that they leave unfilled hold `fill`. Each assert
of a status is what the Python functions do by themselves: they raise.
"""

import sys

import numpy as np
import numpy.typing as npt
from nnpa_client import connect, zdnn

INT8_MIN, INT8_MAX = -128, 127


def fill(count: int, start: int, type: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """Return count small integers: element i is (i + start) * 5 modulo 13, less 6."""
    return ((np.arange(count) + start) * 5 % 13 - 6).astype(type)


def main(*, on_the_fly: bool = False, pre_computed: bool = False) -> npt.NDArray[np.float32]:
    """Multiply quantized stacks, and return the product."""
    # ---------------------------------------------------------------------
    # Quantized matmul:
    #
    # INPUTS --------------------------------------------------------------
    # input           |  ZDNN_3DS  | (s, m, n)
    # weights         |  ZDNN_3DS  | (s, n, p)
    # input_biases    |  ZDNN_2DS  | (s, p)
    #
    # OUTPUTS -------------------------------------------------------------
    # output          |  ZDNN_3DS  | (s, m, p)
    # ---------------------------------------------------------------------
    s, m, n, p = 2, 3, 4, 5

    # ---------------------------------------------------------------------
    # Create the input
    # ---------------------------------------------------------------------
    input_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(zdnn.ZDNN_3DS, zdnn.FP32, s, m, n)

    input_tfrmd_desc = zdnn.generate_quantized_transformed_desc(
        input_pre_tfrmd_desc, zdnn.QUANTIZED_DLFLOAT16 if on_the_fly else zdnn.QUANTIZED_INT8
    )

    input_scale = 1.0
    input_offset = 0.0

    input = zdnn.init_quantized_ztensor_with_malloc(
        input_pre_tfrmd_desc, input_tfrmd_desc, input_scale, input_offset
    )

    input_data = fill(s * m * n, 0, np.float32)

    if on_the_fly:
        zdnn.transform_ztensor(input, input_data)
    else:
        zdnn.transform_quantized_ztensor(input, False, INT8_MIN, INT8_MAX, input_data)

    # ---------------------------------------------------------------------
    # Create the weights
    # ---------------------------------------------------------------------
    weights_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(zdnn.ZDNN_3DS, zdnn.INT8, s, n, p)

    weights_tfrmd_desc = zdnn.generate_quantized_transformed_desc(
        weights_pre_tfrmd_desc, zdnn.QUANTIZED_WEIGHTS_INT8
    )

    weights_scale = 1.0
    weights_offset = 0.0

    weights = zdnn.init_quantized_ztensor_with_malloc(
        weights_pre_tfrmd_desc, weights_tfrmd_desc, weights_scale, weights_offset
    )

    weights_data = fill(s * n * p, 1, np.int8)

    zdnn.transform_quantized_ztensor(weights, False, INT8_MIN, INT8_MAX, weights_data)

    # ---------------------------------------------------------------------
    # Create the biases
    # ---------------------------------------------------------------------
    biases_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(zdnn.ZDNN_2DS, zdnn.FP32, s, p)

    biases_tfrmd_desc = zdnn.generate_quantized_transformed_desc(
        biases_pre_tfrmd_desc, zdnn.QUANTIZED_DLFLOAT16 if pre_computed else zdnn.QUANTIZED_INT8
    )

    biases_scale = 1.0
    biases_offset = 0.0

    biases = zdnn.init_quantized_ztensor_with_malloc(
        biases_pre_tfrmd_desc, biases_tfrmd_desc, biases_scale, biases_offset
    )

    biases_data = fill(s * p, 2, np.float32)

    if pre_computed:
        zdnn.transform_ztensor(biases, biases_data)
    else:
        zdnn.transform_quantized_ztensor(biases, False, INT8_MIN, INT8_MAX, biases_data)

    # ---------------------------------------------------------------------
    # Create the output
    # ---------------------------------------------------------------------
    output_pre_tfrmd_desc = zdnn.init_pre_transformed_desc(zdnn.ZDNN_3DS, zdnn.FP32, s, m, p)

    output_tfrmd_desc = zdnn.generate_quantized_transformed_desc(
        output_pre_tfrmd_desc, zdnn.QUANTIZED_DLFLOAT16
    )

    output_scale = 1.0
    output_offset = 0.0

    output = zdnn.init_quantized_ztensor_with_malloc(
        output_pre_tfrmd_desc, output_tfrmd_desc, output_scale, output_offset
    )

    # ---------------------------------------------------------------------
    # Call the zAIU
    # ---------------------------------------------------------------------
    zdnn.quantized_matmul_op(
        input,
        weights,
        biases,
        zdnn.MATMUL_OP_ADDITION,
        INT8_MIN,
        INT8_MAX,
        False,  # disable_clipping
        False,  # dequantize
        pre_computed,
        None,
        output,
    )

    # ---------------------------------------------------------------------
    # Output and cleanup
    # ---------------------------------------------------------------------
    output_data = np.empty((s, m, p), np.float32)

    zdnn.transform_origtensor(output, output_data)

    zdnn.free_ztensor_buffer(input)
    zdnn.free_ztensor_buffer(weights)
    zdnn.free_ztensor_buffer(biases)
    zdnn.free_ztensor_buffer(output)
    return output_data


if __name__ == "__main__":
    with connect(sys.argv[1] if len(sys.argv) > 1 else None):
        print(main())
