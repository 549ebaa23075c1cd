// SPDX-License-Identifier: Apache-2.0

/**
 * Statuses of zDNN: classes, names and texts.
 *
 * Source: zDNN API Reference 1.2.0, "zDNN Statuses" and zdnn_get_status_message.
 */

import { ZdnnStatus } from "./gen/nnpa/zdnn/v1/status_pb.js";
import { STATUS_TEXTS } from "./texts.gen.js";

/** Class of warnings: outputs are valid. */
export const ZDNN_WARNING = 0x00020000;
/** Class of errors in parameters. */
export const ZDNN_PARAMETER_ERROR = 0x00040000;
/** Class of errors in data. */
export const ZDNN_DATA_ERROR = 0x00100000;
/** Class of response codes of the hardware. */
export const ZDNN_HW_ERROR = 0x000c0000;

const CLASS_MASK = 0xffff0000;

/**
 * Returns the text of a status, for example "ZDNN_OK: Success."; unknown numbers give
 * "(Status string is not defined.)".
 *
 * Source: zDNN API Reference 1.2.0, zdnn_get_status_message.
 */
export function getStatusMessage(status: number): string {
  const name = statusName(status);
  const text = STATUS_TEXTS[name];
  return text === undefined ? "(Status string is not defined.)" : `${name}: ${text}`;
}

/** Returns zDNN's name of a status, or its hexadecimal number when it has none. */
export function statusName(status: number): string {
  return ZdnnStatus[status] ?? hexadecimal(status, 8);
}

/** Returns a number as "0x" and hexadecimal digits. */
export function hexadecimal(number: number, digits: number): string {
  return `0x${number.toString(16).toUpperCase().padStart(digits, "0")}`;
}

/** Returns whether a status is of the warning class; ZDNN_OK is not. */
export function isWarning(status: number): boolean {
  return (status & CLASS_MASK) === ZDNN_WARNING;
}
