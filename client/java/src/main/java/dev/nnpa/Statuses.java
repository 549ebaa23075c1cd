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
  private static final String TENSORS = " in one (or more) of the input/output tensor(s).";
  private static final String FOR_OPERATION = " for the specified operation.";

  private Statuses() {}

  /** Tells whether a status is of the warning class; ZDNN_OK is not. */
  public static boolean isWarning(int status) {
    return (status & CLASS_MASK) == ZDNN_WARNING;
  }

  /** Returns zDNN's name of a status, or its hexadecimal number when it has none. */
  public static String name(int status) {
    ZdnnStatus zdnnStatus = ZdnnStatus.forNumber(status);
    return zdnnStatus == null ? String.format("0x%08X", status) : zdnnStatus.name();
  }

  /**
   * Returns the text of a status, for example "ZDNN_OK: Success."; unknown numbers give "(Status
   * string is not defined.)".
   *
   * <p>Source: zDNN API Reference 1.2.0, zdnn_get_status_message.
   */
  public static String getStatusMessage(int status) {
    ZdnnStatus zdnnStatus = ZdnnStatus.forNumber(status);
    return zdnnStatus == null
        ? "(Status string is not defined.)"
        : zdnnStatus.name() + ": " + text(zdnnStatus);
  }

  private static String text(ZdnnStatus status) {
    return switch (status.getNumber() & CLASS_MASK) {
      case ZDNN_PARAMETER_ERROR -> parameterError(status);
      case ZDNN_DATA_ERROR -> dataError(status);
      case ZDNN_HW_ERROR -> hardwareResponse(status);
      default ->
          status == ZdnnStatus.ZDNN_OK
              ? "Success."
              : "One or more output tensor values were not valid.";
    };
  }

  private static String parameterError(ZdnnStatus status) {
    return switch (status) {
      case ZDNN_INVALID_SHAPE -> "Invalid shape" + TENSORS;
      case ZDNN_INVALID_LAYOUT -> "Invalid layout" + TENSORS;
      case ZDNN_INVALID_TYPE -> "Invalid type" + TENSORS;
      case ZDNN_INVALID_FORMAT -> "Invalid format" + TENSORS;
      case ZDNN_INVALID_DIRECTION -> "Invalid RNN direction.";
      case ZDNN_INVALID_CONCAT_INFO -> "Invalid concatenation info.";
      case ZDNN_INVALID_STRIDE_PADDING ->
          "Padding type is not valid for the current stride inputs.";
      case ZDNN_INVALID_STRIDES -> "Invalid stride height or width.";
      case ZDNN_MISALIGNED_PARMBLOCK -> "NNPA parameter block is not on doubleword boundary.";
      case ZDNN_INVALID_CLIPPING_VALUE -> "Invalid clipping" + FOR_OPERATION;
      case ZDNN_INVALID_ADJUSTMENT_FACTOR -> "Invalid adjustment" + FOR_OPERATION;
      case ZDNN_INVALID_EPSILON -> "Invalid epsilon" + FOR_OPERATION;
      case ZDNN_INVALID_TRANSFORM_TYPE -> "Invalid transformation type.";
      case ZDNN_INVALID_BETA -> "Invalid beta value" + FOR_OPERATION;
      case ZDNN_INVALID_GAMMA -> "Invalid gamma value" + FOR_OPERATION;
      case ZDNN_INVALID_BESSEL_CORRECTION -> "Invalid bessel correction value" + FOR_OPERATION;
      case ZDNN_INVALID_SCALE -> "Invalid scale value" + FOR_OPERATION;
      default -> "Invalid offset value" + FOR_OPERATION;
    };
  }

  private static String dataError(ZdnnStatus status) {
    return switch (status) {
      case ZDNN_ALLOCATION_FAILURE -> "Can not allocate storage.";
      case ZDNN_INVALID_BUFFER ->
          "Buffer address is NULL or not on 4K-byte boundary, or insufficient buffer size.";
      case ZDNN_CONVERT_FAILURE -> "Floating point data conversion failure.";
      case ZDNN_INVALID_STATE -> "Invalid zTensor state.";
      default -> "zAIU operation returned an unexpected exception.";
    };
  }

  private static String hardwareResponse(ZdnnStatus status) {
    return switch (status) {
      case ZDNN_UNSUPPORTED_PARMBLOCK ->
          "NNPA parameter block format is not supported by the model.";
      case ZDNN_UNAVAILABLE_FUNCTION ->
          "Specified NNPA function is not defined or installed on the machine.";
      case ZDNN_UNSUPPORTED_FORMAT -> "Specified tensor data layout format is not supported.";
      case ZDNN_UNSUPPORTED_TYPE -> "Specified tensor data type is not supported.";
      case ZDNN_EXCEEDS_MDIS -> "Tensor dimension exceeds maximum dimension index size (MDIS).";
      case ZDNN_EXCEEDS_MTS ->
          "Total number of elements in tensor exceeds maximum tensor size (MTS).";
      case ZDNN_MISALIGNED_TENSOR -> "Tensor address is not on 4K-byte boundary.";
      case ZDNN_MISALIGNED_SAVEAREA ->
          "Function specific save area address is not on 4K-byte boundary.";
      default ->
          String.format("Function specific response code (%04X).", status.getNumber() & 0xFFFF);
    };
  }
}
