# SPDX-License-Identifier: Apache-2.0
"""Constants of `zdnn.h`, with zDNN's own names and numbers.

Enums that travel come from the wire contract. The numbers below are macros and enums of `zdnn.h`
that only callers use.
Source: zDNN API Reference 1.2.0, "Common Types and Structs"; `zdnn.h` of zDNN 1.2.0.
"""

# generated: begin enums
from nnpa.zdnn.v1.operation_pb2 import (
    BIDIR as BIDIR,
)
from nnpa.zdnn.v1.operation_pb2 import (
    BWD as BWD,
)
from nnpa.zdnn.v1.operation_pb2 import (
    CONV2D_ACT_NONE as CONV2D_ACT_NONE,
)
from nnpa.zdnn.v1.operation_pb2 import (
    CONV2D_ACT_RELU as CONV2D_ACT_RELU,
)
from nnpa.zdnn.v1.operation_pb2 import (
    FWD as FWD,
)
from nnpa.zdnn.v1.operation_pb2 import (
    MATMUL_BCAST_OP_ADDITION as MATMUL_BCAST_OP_ADDITION,
)
from nnpa.zdnn.v1.operation_pb2 import (
    MATMUL_BCAST_OP_EQUAL as MATMUL_BCAST_OP_EQUAL,
)
from nnpa.zdnn.v1.operation_pb2 import (
    MATMUL_BCAST_OP_GREATER as MATMUL_BCAST_OP_GREATER,
)
from nnpa.zdnn.v1.operation_pb2 import (
    MATMUL_BCAST_OP_GREATER_EQUAL as MATMUL_BCAST_OP_GREATER_EQUAL,
)
from nnpa.zdnn.v1.operation_pb2 import (
    MATMUL_BCAST_OP_LESSER as MATMUL_BCAST_OP_LESSER,
)
from nnpa.zdnn.v1.operation_pb2 import (
    MATMUL_BCAST_OP_LESSER_EQUAL as MATMUL_BCAST_OP_LESSER_EQUAL,
)
from nnpa.zdnn.v1.operation_pb2 import (
    MATMUL_BCAST_OP_NOT_EQUAL as MATMUL_BCAST_OP_NOT_EQUAL,
)
from nnpa.zdnn.v1.operation_pb2 import (
    MATMUL_OP_ADDITION as MATMUL_OP_ADDITION,
)
from nnpa.zdnn.v1.operation_pb2 import (
    MATMUL_OP_EQUAL as MATMUL_OP_EQUAL,
)
from nnpa.zdnn.v1.operation_pb2 import (
    MATMUL_OP_GREATER as MATMUL_OP_GREATER,
)
from nnpa.zdnn.v1.operation_pb2 import (
    MATMUL_OP_GREATER_EQUAL as MATMUL_OP_GREATER_EQUAL,
)
from nnpa.zdnn.v1.operation_pb2 import (
    MATMUL_OP_LESSER as MATMUL_OP_LESSER,
)
from nnpa.zdnn.v1.operation_pb2 import (
    MATMUL_OP_LESSER_EQUAL as MATMUL_OP_LESSER_EQUAL,
)
from nnpa.zdnn.v1.operation_pb2 import (
    MATMUL_OP_NOT_EQUAL as MATMUL_OP_NOT_EQUAL,
)
from nnpa.zdnn.v1.operation_pb2 import (
    MOMENTS_BESSEL_POPULATION as MOMENTS_BESSEL_POPULATION,
)
from nnpa.zdnn.v1.operation_pb2 import (
    MOMENTS_BESSEL_SAMPLE as MOMENTS_BESSEL_SAMPLE,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_8_BIT_BINARY_INT as NNPA_8_BIT_BINARY_INT,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_32_BIT_BINARY_FP_SHORT as NNPA_32_BIT_BINARY_FP_SHORT,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_32_BIT_BINARY_INT as NNPA_32_BIT_BINARY_INT,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_ADD as NNPA_ADD,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_AVGPOOL2D as NNPA_AVGPOOL2D,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_BATCHNORMALIZATION as NNPA_BATCHNORMALIZATION,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_BFPFMT_SHORT as NNPA_BFPFMT_SHORT,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_BFPFMT_TINY as NNPA_BFPFMT_TINY,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_CONVOLUTION as NNPA_CONVOLUTION,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_DATATYPE_1 as NNPA_DATATYPE_1,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_DIV as NNPA_DIV,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_EXP as NNPA_EXP,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_GELU as NNPA_GELU,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_GRUACT as NNPA_GRUACT,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_INVSQRT as NNPA_INVSQRT,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_LAYERNORM as NNPA_LAYERNORM,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_LAYOUTFMT_4DFEATURE as NNPA_LAYOUTFMT_4DFEATURE,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_LAYOUTFMT_4DGENERIC as NNPA_LAYOUTFMT_4DGENERIC,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_LAYOUTFMT_4DKERNEL as NNPA_LAYOUTFMT_4DKERNEL,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_LAYOUTFMT_4DWEIGHTS as NNPA_LAYOUTFMT_4DWEIGHTS,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_LOG as NNPA_LOG,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_LSTMACT as NNPA_LSTMACT,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_MATMUL_OP as NNPA_MATMUL_OP,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_MATMUL_OP_BCAST1 as NNPA_MATMUL_OP_BCAST1,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_MATMUL_OP_BCAST23 as NNPA_MATMUL_OP_BCAST23,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_MAX as NNPA_MAX,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_MAXPOOL2D as NNPA_MAXPOOL2D,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_MIN as NNPA_MIN,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_MOMENTS as NNPA_MOMENTS,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_MUL as NNPA_MUL,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_NORM as NNPA_NORM,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_PARMBLKFORMAT_0 as NNPA_PARMBLKFORMAT_0,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_PARMBLKFORMAT_1 as NNPA_PARMBLKFORMAT_1,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_QAF as NNPA_QAF,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_REDUCE as NNPA_REDUCE,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_RELU as NNPA_RELU,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_SIGMOID as NNPA_SIGMOID,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_SOFTMAX as NNPA_SOFTMAX,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_SQRT as NNPA_SQRT,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_SUB as NNPA_SUB,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_TANH as NNPA_TANH,
)
from nnpa.zdnn.v1.operation_pb2 import (
    NNPA_TRANSFORM as NNPA_TRANSFORM,
)
from nnpa.zdnn.v1.operation_pb2 import (
    REDUCE_OP_MAXIMUM as REDUCE_OP_MAXIMUM,
)
from nnpa.zdnn.v1.operation_pb2 import (
    REDUCE_OP_MAXIMUM_IDX as REDUCE_OP_MAXIMUM_IDX,
)
from nnpa.zdnn.v1.operation_pb2 import (
    REDUCE_OP_MINIMUM as REDUCE_OP_MINIMUM,
)
from nnpa.zdnn.v1.operation_pb2 import (
    REDUCE_OP_MINIMUM_IDX as REDUCE_OP_MINIMUM_IDX,
)
from nnpa.zdnn.v1.operation_pb2 import (
    SAME_PADDING as SAME_PADDING,
)
from nnpa.zdnn.v1.operation_pb2 import (
    SOFTMAX_ACT_LOG as SOFTMAX_ACT_LOG,
)
from nnpa.zdnn.v1.operation_pb2 import (
    SOFTMAX_ACT_NONE as SOFTMAX_ACT_NONE,
)
from nnpa.zdnn.v1.operation_pb2 import (
    VALID_PADDING as VALID_PADDING,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    BFLOAT as BFLOAT,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    FP16 as FP16,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    FP32 as FP32,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    INT8 as INT8,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    INT32 as INT32,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    QUANTIZED_DLFLOAT16 as QUANTIZED_DLFLOAT16,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    QUANTIZED_INT8 as QUANTIZED_INT8,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    QUANTIZED_WEIGHTS_INT8 as QUANTIZED_WEIGHTS_INT8,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_1D as ZDNN_1D,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_2D as ZDNN_2D,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_2DS as ZDNN_2DS,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_3D as ZDNN_3D,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_3DS as ZDNN_3DS,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_4D as ZDNN_4D,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_4DS as ZDNN_4DS,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_BIDIR_FICO as ZDNN_BIDIR_FICO,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_BIDIR_ZRH as ZDNN_BIDIR_ZRH,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_BINARY_FP32 as ZDNN_BINARY_FP32,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_BINARY_INT8 as ZDNN_BINARY_INT8,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_BINARY_INT32 as ZDNN_BINARY_INT32,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_DLFLOAT16 as ZDNN_DLFLOAT16,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_FICO as ZDNN_FICO,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_FORMAT_4DFEATURE as ZDNN_FORMAT_4DFEATURE,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_FORMAT_4DGENERIC as ZDNN_FORMAT_4DGENERIC,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_FORMAT_4DKERNEL as ZDNN_FORMAT_4DKERNEL,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_FORMAT_4DWEIGHTS as ZDNN_FORMAT_4DWEIGHTS,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_HWCK as ZDNN_HWCK,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_NCHW as ZDNN_NCHW,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_NHWC as ZDNN_NHWC,
)
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_ZRH as ZDNN_ZRH,
)

# generated: end

ZDNN_VERSION = "1.2.0"
ZDNN_VERNUM = 0x010200
ZDNN_VER_MAJOR = 1
ZDNN_VER_MINOR = 2
ZDNN_VER_PATCH = 0

ZDNN_SOFTMAX_SAVEAREA_SIZE = 8192
ZDNN_8K_SAVEAREA_SIZE = 8192

BITSHIFT_RNN_TYPE = 24
BITSHIFT_PREV_LAYER = 16
BITSHIFT_USAGE = 8
RNN_TYPE_LSTM = 0 << BITSHIFT_RNN_TYPE
RNN_TYPE_GRU = 1 << BITSHIFT_RNN_TYPE
PREV_LAYER_UNI = 0 << BITSHIFT_PREV_LAYER
PREV_LAYER_NONE = PREV_LAYER_UNI
PREV_LAYER_BIDIR = 1 << BITSHIFT_PREV_LAYER
USAGE_WEIGHTS = 0 << BITSHIFT_USAGE
USAGE_HIDDEN_WEIGHTS = 1 << BITSHIFT_USAGE
USAGE_BIASES = 2 << BITSHIFT_USAGE
USAGE_HIDDEN_BIASES = 3 << BITSHIFT_USAGE

NNPA_MATMUL_OP_ADDITION = 0
NNPA_MATMUL_OP_COMP_HIGH = 1
NNPA_MATMUL_OP_COMP_NOT_LOW = 2
NNPA_MATMUL_OP_COMP_EQUAL = 3
NNPA_MATMUL_OP_COMP_NOT_EQUAL = 4
NNPA_MATMUL_OP_COMP_NOT_HIGH = 5
NNPA_MATMUL_OP_COMP_LOW = 6
NNPA_MATMUL_BCAST_OP_ADDITION = 0
NNPA_MATMUL_BCAST_OP_COMP_HIGH = 1
NNPA_MATMUL_BCAST_OP_COMP_NOT_LOW = 2
NNPA_MATMUL_BCAST_OP_COMP_EQUAL = 3
NNPA_MATMUL_BCAST_OP_COMP_NOT_EQUAL = 4
NNPA_MATMUL_BCAST_OP_COMP_NOT_HIGH = 5
NNPA_MATMUL_BCAST_OP_COMP_LOW = 6
NNPA_SOFTMAX_NONE = 0
NNPA_SOFTMAX_LOG = 1
NNPA_REDUCE_OP_MINIMUM = 0
NNPA_REDUCE_OP_MINIMUM_IDX = 1
NNPA_REDUCE_OP_MAXIMUM = 2
NNPA_REDUCE_OP_MAXIMUM_IDX = 3


def MSB_BITMASK(field_size: int, pos: int) -> int:  # noqa: N802 - zDNN's name
    """Return the bit at position `pos`, counted from the most significant of `field_size` bits."""
    return 1 << (field_size - 1) >> pos


QUERY_DATATYPE_INTERNAL1 = MSB_BITMASK(16, NNPA_DATATYPE_1)
QUERY_DATATYPE_BINARY_FP32 = MSB_BITMASK(16, NNPA_32_BIT_BINARY_FP_SHORT)
QUERY_DATATYPE_BINARY_INT8 = MSB_BITMASK(16, NNPA_8_BIT_BINARY_INT)
QUERY_DATATYPE_BINARY_INT32 = MSB_BITMASK(16, NNPA_32_BIT_BINARY_INT)
QUERY_LAYOUTFMT_4DFEATURE = MSB_BITMASK(32, NNPA_LAYOUTFMT_4DFEATURE)
QUERY_LAYOUTFMT_4DKERNEL = MSB_BITMASK(32, NNPA_LAYOUTFMT_4DKERNEL)
QUERY_LAYOUTFMT_4DWEIGHTS = MSB_BITMASK(32, NNPA_LAYOUTFMT_4DWEIGHTS)
QUERY_LAYOUTFMT_4DGENERIC = MSB_BITMASK(32, NNPA_LAYOUTFMT_4DGENERIC)
QUERY_BFPFMT_TINY = MSB_BITMASK(16, NNPA_BFPFMT_TINY)
QUERY_BFPFMT_SHORT = MSB_BITMASK(16, NNPA_BFPFMT_SHORT)


def CONCAT_RNN_TYPE(info: int) -> int:  # noqa: N802 - zDNN's name
    """Return the RNN_TYPE byte of a concatenation info, in place."""
    return info & 0xFF << BITSHIFT_RNN_TYPE


def CONCAT_PREV_LAYER(info: int) -> int:  # noqa: N802 - zDNN's name
    """Return the PREV_LAYER byte of a concatenation info, in place."""
    return info & 0xFF << BITSHIFT_PREV_LAYER


def CONCAT_USAGE(info: int) -> int:  # noqa: N802 - zDNN's name
    """Return the USAGE byte of a concatenation info, in place."""
    return info & 0xFF << BITSHIFT_USAGE
