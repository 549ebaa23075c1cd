// SPDX-License-Identifier: Apache-2.0

package zdnn

// Macros of zdnn.h that only callers use, with zDNN's own names and numbers.
// Source: zDNN API Reference 1.2.0, "Common Types and Structs"; zdnn.h of zDNN 1.2.0.
const (
	ZDNN_VERSION   = "1.2.0"
	ZDNN_VERNUM    = 0x010200
	ZDNN_VER_MAJOR = 1
	ZDNN_VER_MINOR = 2
	ZDNN_VER_PATCH = 0

	ZDNN_SOFTMAX_SAVEAREA_SIZE = 8192
	ZDNN_8K_SAVEAREA_SIZE      = 8192

	NNPA_MATMUL_OP_ADDITION             = 0
	NNPA_MATMUL_OP_COMP_HIGH            = 1
	NNPA_MATMUL_OP_COMP_NOT_LOW         = 2
	NNPA_MATMUL_OP_COMP_EQUAL           = 3
	NNPA_MATMUL_OP_COMP_NOT_EQUAL       = 4
	NNPA_MATMUL_OP_COMP_NOT_HIGH        = 5
	NNPA_MATMUL_OP_COMP_LOW             = 6
	NNPA_MATMUL_BCAST_OP_ADDITION       = 0
	NNPA_MATMUL_BCAST_OP_COMP_HIGH      = 1
	NNPA_MATMUL_BCAST_OP_COMP_NOT_LOW   = 2
	NNPA_MATMUL_BCAST_OP_COMP_EQUAL     = 3
	NNPA_MATMUL_BCAST_OP_COMP_NOT_EQUAL = 4
	NNPA_MATMUL_BCAST_OP_COMP_NOT_HIGH  = 5
	NNPA_MATMUL_BCAST_OP_COMP_LOW       = 6
	NNPA_SOFTMAX_NONE                   = 0
	NNPA_SOFTMAX_LOG                    = 1
	NNPA_REDUCE_OP_MINIMUM              = 0
	NNPA_REDUCE_OP_MINIMUM_IDX          = 1
	NNPA_REDUCE_OP_MAXIMUM              = 2
	NNPA_REDUCE_OP_MAXIMUM_IDX          = 3
)

// ConcatInfo says what a concatenated tensor is for: the sum of one RNN_TYPE_, one PREV_LAYER_ and
// one USAGE_ constant, zdnn_concat_info.
type ConcatInfo uint32

// Parts of a ConcatInfo, with zDNN's own names and numbers.
const (
	BITSHIFT_RNN_TYPE   = 24
	BITSHIFT_PREV_LAYER = 16
	BITSHIFT_USAGE      = 8

	RNN_TYPE_LSTM        ConcatInfo = 0 << BITSHIFT_RNN_TYPE
	RNN_TYPE_GRU         ConcatInfo = 1 << BITSHIFT_RNN_TYPE
	PREV_LAYER_UNI       ConcatInfo = 0 << BITSHIFT_PREV_LAYER
	PREV_LAYER_NONE                 = PREV_LAYER_UNI
	PREV_LAYER_BIDIR     ConcatInfo = 1 << BITSHIFT_PREV_LAYER
	USAGE_WEIGHTS        ConcatInfo = 0 << BITSHIFT_USAGE
	USAGE_HIDDEN_WEIGHTS ConcatInfo = 1 << BITSHIFT_USAGE
	USAGE_BIASES         ConcatInfo = 2 << BITSHIFT_USAGE
	USAGE_HIDDEN_BIASES  ConcatInfo = 3 << BITSHIFT_USAGE
)

// CONCAT_RNN_TYPE returns the RNN_TYPE byte of a concatenation info, in place.
func CONCAT_RNN_TYPE(info ConcatInfo) ConcatInfo { return info & (0xFF << BITSHIFT_RNN_TYPE) }

// CONCAT_PREV_LAYER returns the PREV_LAYER byte of a concatenation info, in place.
func CONCAT_PREV_LAYER(info ConcatInfo) ConcatInfo { return info & (0xFF << BITSHIFT_PREV_LAYER) }

// CONCAT_USAGE returns the USAGE byte of a concatenation info, in place.
func CONCAT_USAGE(info ConcatInfo) ConcatInfo { return info & (0xFF << BITSHIFT_USAGE) }

// Masks of what a machine has installed: bit n from the left of 16 or 32.
const (
	QUERY_DATATYPE_INTERNAL1    uint32 = 1 << (15 - NNPA_DATATYPE_1)
	QUERY_DATATYPE_BINARY_FP32  uint32 = 1 << (15 - NNPA_32_BIT_BINARY_FP_SHORT)
	QUERY_DATATYPE_BINARY_INT8  uint32 = 1 << (15 - NNPA_8_BIT_BINARY_INT)
	QUERY_DATATYPE_BINARY_INT32 uint32 = 1 << (15 - NNPA_32_BIT_BINARY_INT)
	QUERY_LAYOUTFMT_4DFEATURE   uint32 = 1 << (31 - NNPA_LAYOUTFMT_4DFEATURE)
	QUERY_LAYOUTFMT_4DKERNEL    uint32 = 1 << (31 - NNPA_LAYOUTFMT_4DKERNEL)
	QUERY_LAYOUTFMT_4DWEIGHTS   uint32 = 1 << (31 - NNPA_LAYOUTFMT_4DWEIGHTS)
	QUERY_LAYOUTFMT_4DGENERIC   uint32 = 1 << (31 - NNPA_LAYOUTFMT_4DGENERIC)
	QUERY_BFPFMT_TINY           uint32 = 1 << (15 - NNPA_BFPFMT_TINY)
	QUERY_BFPFMT_SHORT          uint32 = 1 << (15 - NNPA_BFPFMT_SHORT)
)
