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

// GetStatusMessage returns the text of a status, for example "ZDNN_OK: Success.". Unknown numbers
// give "(Status string is not defined.)".
// Source: zDNN API Reference 1.2.0, zdnn_get_status_message.
func GetStatusMessage(status ZdnnStatus) string {
	if text := statusText(status); text != "" {
		return fmt.Sprintf("%v: %s", status, text)
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
