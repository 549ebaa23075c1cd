// SPDX-License-Identifier: Apache-2.0

/**
 * Statuses of zDNN: classes, names and texts.
 *
 * Source: zDNN API Reference 1.2.0, "zDNN Statuses" and zdnn_get_status_message.
 */

import { ZdnnStatus } from "./gen/nnpa/zdnn/v1/status_pb.js";

/** Class of warnings: outputs are valid. */
export const ZDNN_WARNING = 0x00020000;
/** Class of errors in parameters. */
export const ZDNN_PARAMETER_ERROR = 0x00040000;
/** Class of errors in data. */
export const ZDNN_DATA_ERROR = 0x00100000;
/** Class of response codes of the hardware. */
export const ZDNN_HW_ERROR = 0x000c0000;

const CLASS_MASK = 0xffff0000;
const TENSORS = "in one (or more) of the input/output tensor(s).";
const FOR_OPERATION = "for the specified operation.";
const FIRST_FUNCTION_CODE = 0xf000;
const FUNCTION_CODES = 10;

const TEXTS = new Map<number, string>([
  [ZdnnStatus.ZDNN_OK, "Success."],
  [ZdnnStatus.ZDNN_ELEMENT_RANGE_VIOLATION, "One or more output tensor values were not valid."],
  [ZdnnStatus.ZDNN_INVALID_SHAPE, `Invalid shape ${TENSORS}`],
  [ZdnnStatus.ZDNN_INVALID_LAYOUT, `Invalid layout ${TENSORS}`],
  [ZdnnStatus.ZDNN_INVALID_TYPE, `Invalid type ${TENSORS}`],
  [ZdnnStatus.ZDNN_INVALID_FORMAT, `Invalid format ${TENSORS}`],
  [ZdnnStatus.ZDNN_INVALID_DIRECTION, "Invalid RNN direction."],
  [ZdnnStatus.ZDNN_INVALID_CONCAT_INFO, "Invalid concatenation info."],
  [
    ZdnnStatus.ZDNN_INVALID_STRIDE_PADDING,
    "Padding type is not valid for the current stride inputs.",
  ],
  [ZdnnStatus.ZDNN_INVALID_STRIDES, "Invalid stride height or width."],
  [
    ZdnnStatus.ZDNN_MISALIGNED_PARMBLOCK,
    "NNPA parameter block is not on doubleword boundary.",
  ],
  [ZdnnStatus.ZDNN_INVALID_CLIPPING_VALUE, `Invalid clipping ${FOR_OPERATION}`],
  [ZdnnStatus.ZDNN_INVALID_ADJUSTMENT_FACTOR, `Invalid adjustment ${FOR_OPERATION}`],
  [ZdnnStatus.ZDNN_INVALID_EPSILON, `Invalid epsilon ${FOR_OPERATION}`],
  [ZdnnStatus.ZDNN_INVALID_TRANSFORM_TYPE, "Invalid transformation type."],
  [ZdnnStatus.ZDNN_INVALID_BETA, `Invalid beta value ${FOR_OPERATION}`],
  [ZdnnStatus.ZDNN_INVALID_GAMMA, `Invalid gamma value ${FOR_OPERATION}`],
  [
    ZdnnStatus.ZDNN_INVALID_BESSEL_CORRECTION,
    `Invalid bessel correction value ${FOR_OPERATION}`,
  ],
  [ZdnnStatus.ZDNN_INVALID_SCALE, `Invalid scale value ${FOR_OPERATION}`],
  [ZdnnStatus.ZDNN_INVALID_OFFSET, `Invalid offset value ${FOR_OPERATION}`],
  [ZdnnStatus.ZDNN_ALLOCATION_FAILURE, "Can not allocate storage."],
  [
    ZdnnStatus.ZDNN_INVALID_BUFFER,
    "Buffer address is NULL or not on 4K-byte boundary, or insufficient buffer size.",
  ],
  [ZdnnStatus.ZDNN_CONVERT_FAILURE, "Floating point data conversion failure."],
  [ZdnnStatus.ZDNN_INVALID_STATE, "Invalid zTensor state."],
  [
    ZdnnStatus.ZDNN_UNSUPPORTED_AIU_EXCEPTION,
    "zAIU operation returned an unexpected exception.",
  ],
  [
    ZdnnStatus.ZDNN_UNSUPPORTED_PARMBLOCK,
    "NNPA parameter block format is not supported by the model.",
  ],
  [
    ZdnnStatus.ZDNN_UNAVAILABLE_FUNCTION,
    "Specified NNPA function is not defined or installed on the machine.",
  ],
  [ZdnnStatus.ZDNN_UNSUPPORTED_FORMAT, "Specified tensor data layout format is not supported."],
  [ZdnnStatus.ZDNN_UNSUPPORTED_TYPE, "Specified tensor data type is not supported."],
  [
    ZdnnStatus.ZDNN_EXCEEDS_MDIS,
    "Tensor dimension exceeds maximum dimension index size (MDIS).",
  ],
  [
    ZdnnStatus.ZDNN_EXCEEDS_MTS,
    "Total number of elements in tensor exceeds maximum tensor size (MTS).",
  ],
  [ZdnnStatus.ZDNN_MISALIGNED_TENSOR, "Tensor address is not on 4K-byte boundary."],
  [
    ZdnnStatus.ZDNN_MISALIGNED_SAVEAREA,
    "Function specific save area address is not on 4K-byte boundary.",
  ],
  ...Array.from({ length: FUNCTION_CODES }, (_, index): [number, string] => {
    const code = FIRST_FUNCTION_CODE + index;
    return [ZDNN_HW_ERROR + code, `Function specific response code (${hex(code, 4)}).`];
  }),
]);

function hex(number: number, digits: number): string {
  return number.toString(16).toUpperCase().padStart(digits, "0");
}

/**
 * Returns the text of a status, for example "ZDNN_OK: Success."; unknown numbers give
 * "(Status string is not defined.)".
 *
 * Source: zDNN API Reference 1.2.0, zdnn_get_status_message.
 */
export function getStatusMessage(status: number): string {
  const text = TEXTS.get(status);
  return text === undefined ? "(Status string is not defined.)" : `${statusName(status)}: ${text}`;
}

/** Returns zDNN's name of a status, or its hexadecimal number when it has none. */
export function statusName(status: number): string {
  const name = ZdnnStatus[status];
  return name ?? `0x${hex(status, 8)}`;
}

/** Tells whether a status is of the warning class; ZDNN_OK is not. */
export function isWarning(status: number): boolean {
  return (status & CLASS_MASK) === ZDNN_WARNING;
}
