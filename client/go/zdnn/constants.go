// SPDX-License-Identifier: Apache-2.0

package zdnn

// ConcatInfo describes the use of a concatenated tensor, zdnn_concat_info: the sum of one RNN_TYPE_, one
// PREV_LAYER_ and one USAGE_ constant.
type ConcatInfo uint32

// CONCAT_RNN_TYPE returns the RNN_TYPE byte of a concatenation info, in place.
func CONCAT_RNN_TYPE(info ConcatInfo) ConcatInfo { return info & (0xFF << BITSHIFT_RNN_TYPE) }

// CONCAT_PREV_LAYER returns the PREV_LAYER byte of a concatenation info, in place.
func CONCAT_PREV_LAYER(info ConcatInfo) ConcatInfo { return info & (0xFF << BITSHIFT_PREV_LAYER) }

// CONCAT_USAGE returns the USAGE byte of a concatenation info, in place.
func CONCAT_USAGE(info ConcatInfo) ConcatInfo { return info & (0xFF << BITSHIFT_USAGE) }
