// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"fmt"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
)

// Classes of statuses, the upper half of a status.
// Source: zDNN API Reference 1.2.0, "zDNN Statuses".
const (
	ZDNN_WARNING         ZdnnStatus = 0x00020000
	ZDNN_PARAMETER_ERROR ZdnnStatus = 0x00040000
	ZDNN_DATA_ERROR      ZdnnStatus = 0x00100000
	ZDNN_HW_ERROR        ZdnnStatus = 0x000C0000
	classMask            ZdnnStatus = -0x10000 // the upper half
)

const (
	inTensors    = "in one (or more) of the input/output tensor(s)."
	forOperation = "for the specified operation."
)

var statusTexts = map[ZdnnStatus]string{
	ZDNN_OK:                        "Success.",
	ZDNN_ELEMENT_RANGE_VIOLATION:   "One or more output tensor values were not valid.",
	ZDNN_INVALID_SHAPE:             "Invalid shape " + inTensors,
	ZDNN_INVALID_LAYOUT:            "Invalid layout " + inTensors,
	ZDNN_INVALID_TYPE:              "Invalid type " + inTensors,
	ZDNN_INVALID_FORMAT:            "Invalid format " + inTensors,
	ZDNN_INVALID_DIRECTION:         "Invalid RNN direction.",
	ZDNN_INVALID_CONCAT_INFO:       "Invalid concatenation info.",
	ZDNN_INVALID_STRIDE_PADDING:    "Padding type is not valid for the current stride inputs.",
	ZDNN_INVALID_STRIDES:           "Invalid stride height or width.",
	ZDNN_MISALIGNED_PARMBLOCK:      "NNPA parameter block is not on doubleword boundary.",
	ZDNN_INVALID_CLIPPING_VALUE:    "Invalid clipping " + forOperation,
	ZDNN_INVALID_ADJUSTMENT_FACTOR: "Invalid adjustment " + forOperation,
	ZDNN_INVALID_EPSILON:           "Invalid epsilon " + forOperation,
	ZDNN_INVALID_TRANSFORM_TYPE:    "Invalid transformation type.",
	ZDNN_INVALID_BETA:              "Invalid beta value " + forOperation,
	ZDNN_INVALID_GAMMA:             "Invalid gamma value " + forOperation,
	ZDNN_INVALID_BESSEL_CORRECTION: "Invalid bessel correction value " + forOperation,
	ZDNN_INVALID_SCALE:             "Invalid scale value " + forOperation,
	ZDNN_INVALID_OFFSET:            "Invalid offset value " + forOperation,
	ZDNN_ALLOCATION_FAILURE:        "Can not allocate storage.",
	ZDNN_INVALID_BUFFER: "Buffer address is NULL or not on 4K-byte boundary, or insufficient " +
		"buffer size.",
	ZDNN_CONVERT_FAILURE:           "Floating point data conversion failure.",
	ZDNN_INVALID_STATE:             "Invalid zTensor state.",
	ZDNN_UNSUPPORTED_AIU_EXCEPTION: "zAIU operation returned an unexpected exception.",
	ZDNN_UNSUPPORTED_PARMBLOCK:     "NNPA parameter block format is not supported by the model.",
	ZDNN_UNAVAILABLE_FUNCTION: "Specified NNPA function is not defined or installed on the " +
		"machine.",
	ZDNN_UNSUPPORTED_FORMAT:  "Specified tensor data layout format is not supported.",
	ZDNN_UNSUPPORTED_TYPE:    "Specified tensor data type is not supported.",
	ZDNN_EXCEEDS_MDIS:        "Tensor dimension exceeds maximum dimension index size (MDIS).",
	ZDNN_EXCEEDS_MTS:         "Total number of elements in tensor exceeds maximum tensor size (MTS).",
	ZDNN_MISALIGNED_TENSOR:   "Tensor address is not on 4K-byte boundary.",
	ZDNN_MISALIGNED_SAVEAREA: "Function specific save area address is not on 4K-byte boundary.",
}

// GetStatusMessage returns the text of a status, for example "ZDNN_OK: Success.". Unknown numbers
// give "(Status string is not defined.)".
// Source: zDNN API Reference 1.2.0, zdnn_get_status_message.
func GetStatusMessage(status ZdnnStatus) string {
	if text, ok := statusTexts[status]; ok {
		return fmt.Sprintf("%v: %s", status, text)
	}
	if status >= ZDNN_FUNC_RC_F000 && status <= ZDNN_FUNC_RC_F009 {
		return fmt.Sprintf("%v: Function specific response code (%04X).", status, int32(status-ZDNN_HW_ERROR))
	}
	return "(Status string is not defined.)"
}

// statusName returns zDNN's name of a status, or its hexadecimal number when it has none.
func statusName(status ZdnnStatus) string {
	if _, ok := zdnnv1.ZdnnStatus_name[int32(status)]; ok {
		return status.String()
	}
	return fmt.Sprintf("0x%08X", uint32(status))
}

func isWarning(status ZdnnStatus) bool {
	return status&classMask == ZDNN_WARNING
}
