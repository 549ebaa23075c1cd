// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.zdnn.v1.ZdnnStatus;

/**
 * Statuses of zDNN: names, texts and classes of the numbers.
 *
 * <p>Source: zDNN API Reference 1.2.0, "zDNN Statuses" and zdnn_get_status_message.
 */
public final class Statuses {
  /** Class of warnings: the upper half of a status. */
  public static final int ZDNN_WARNING = 0x00020000;

  /** Class of parameter errors. */
  public static final int ZDNN_PARAMETER_ERROR = 0x00040000;

  /** Class of data errors. */
  public static final int ZDNN_DATA_ERROR = 0x00100000;

  /** Class of hardware response codes. */
  public static final int ZDNN_HW_ERROR = 0x000C0000;

  private static final int CLASS_MASK = 0xFFFF0000;

  private Statuses() {}

  /** Returns whether a status is of the warning class; ZDNN_OK is not. */
  public static boolean isWarning(int status) {
    return (status & CLASS_MASK) == ZDNN_WARNING;
  }

  /** Returns zDNN's name of a status, or its hexadecimal number when it has none. */
  public static String name(int status) {
    ZdnnStatus zdnnStatus = ZdnnStatus.forNumber(status);
    return zdnnStatus == null ? String.format("0x%08X", status) : zdnnStatus.name();
  }

  /** Returns a status's text, "ZDNN_OK: Success."; unknown: "(Status string is not defined.)". */
  public static String getStatusMessage(int status) {
    ZdnnStatus zdnnStatus = ZdnnStatus.forNumber(status);
    return zdnnStatus == null
        ? "(Status string is not defined.)"
        : zdnnStatus.name() + ": " + Texts.status(zdnnStatus);
  }
}
