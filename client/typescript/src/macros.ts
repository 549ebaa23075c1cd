// SPDX-License-Identifier: Apache-2.0

/**
 * Macros of `zdnn.h` that only callers use, with zDNN's own names and numbers; enumerations that
 * travel come from the wire contract.
 *
 * Source: zDNN API Reference 1.2.0, "Common Types and Structs"; `zdnn.h` of zDNN 1.2.0.
 */

export const ZDNN_VERSION = "1.2.0";
export const ZDNN_VERNUM = 0x010200;
export const ZDNN_VER_MAJOR = 1;
export const ZDNN_VER_MINOR = 2;
export const ZDNN_VER_PATCH = 0;

export const ZDNN_SOFTMAX_SAVEAREA_SIZE = 8192;
export const ZDNN_8K_SAVEAREA_SIZE = 8192;

export const BITSHIFT_RNN_TYPE = 24;
export const BITSHIFT_PREV_LAYER = 16;
export const BITSHIFT_USAGE = 8;
export const RNN_TYPE_LSTM = 0 << BITSHIFT_RNN_TYPE;
export const RNN_TYPE_GRU = 1 << BITSHIFT_RNN_TYPE;
export const PREV_LAYER_UNI = 0 << BITSHIFT_PREV_LAYER;
export const PREV_LAYER_NONE = PREV_LAYER_UNI;
export const PREV_LAYER_BIDIR = 1 << BITSHIFT_PREV_LAYER;
export const USAGE_WEIGHTS = 0 << BITSHIFT_USAGE;
export const USAGE_HIDDEN_WEIGHTS = 1 << BITSHIFT_USAGE;
export const USAGE_BIASES = 2 << BITSHIFT_USAGE;
export const USAGE_HIDDEN_BIASES = 3 << BITSHIFT_USAGE;

export const NNPA_MATMUL_OP_ADDITION = 0;
export const NNPA_MATMUL_OP_COMP_HIGH = 1;
export const NNPA_MATMUL_OP_COMP_NOT_LOW = 2;
export const NNPA_MATMUL_OP_COMP_EQUAL = 3;
export const NNPA_MATMUL_OP_COMP_NOT_EQUAL = 4;
export const NNPA_MATMUL_OP_COMP_NOT_HIGH = 5;
export const NNPA_MATMUL_OP_COMP_LOW = 6;
export const NNPA_MATMUL_BCAST_OP_ADDITION = 0;
export const NNPA_MATMUL_BCAST_OP_COMP_HIGH = 1;
export const NNPA_MATMUL_BCAST_OP_COMP_NOT_LOW = 2;
export const NNPA_MATMUL_BCAST_OP_COMP_EQUAL = 3;
export const NNPA_MATMUL_BCAST_OP_COMP_NOT_EQUAL = 4;
export const NNPA_MATMUL_BCAST_OP_COMP_NOT_HIGH = 5;
export const NNPA_MATMUL_BCAST_OP_COMP_LOW = 6;
export const NNPA_SOFTMAX_NONE = 0;
export const NNPA_SOFTMAX_LOG = 1;
export const NNPA_REDUCE_OP_MINIMUM = 0;
export const NNPA_REDUCE_OP_MINIMUM_IDX = 1;
export const NNPA_REDUCE_OP_MAXIMUM = 2;
export const NNPA_REDUCE_OP_MAXIMUM_IDX = 3;

/** Returns the bit at position `pos`, counted from the most significant of `fieldSize` bits. */
export function MSB_BITMASK(fieldSize: number, pos: number): number {
  return ((1 << (fieldSize - 1)) >>> pos) >>> 0;
}

export const QUERY_DATATYPE_INTERNAL1 = 0x8000;
export const QUERY_DATATYPE_BINARY_FP32 = 0x0200;
export const QUERY_DATATYPE_BINARY_INT8 = 0x0080;
export const QUERY_DATATYPE_BINARY_INT32 = 0x0020;
export const QUERY_LAYOUTFMT_4DFEATURE = 0x80000000;
export const QUERY_LAYOUTFMT_4DKERNEL = 0x40000000;
export const QUERY_LAYOUTFMT_4DWEIGHTS = 0x20000000;
export const QUERY_LAYOUTFMT_4DGENERIC = 0x00000001;
export const QUERY_BFPFMT_TINY = 0x4000;
export const QUERY_BFPFMT_SHORT = 0x2000;

/** Returns the RNN_TYPE byte of a concatenation info, in place. */
export function CONCAT_RNN_TYPE(info: number): number {
  return info & (0xff << BITSHIFT_RNN_TYPE);
}

/** Returns the PREV_LAYER byte of a concatenation info, in place. */
export function CONCAT_PREV_LAYER(info: number): number {
  return info & (0xff << BITSHIFT_PREV_LAYER);
}

/** Returns the USAGE byte of a concatenation info, in place. */
export function CONCAT_USAGE(info: number): number {
  return info & (0xff << BITSHIFT_USAGE);
}
