// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.zdnn.v1.OperationResult;
import dev.nnpa.zdnn.v1.RangeViolation;
import dev.nnpa.zdnn.v1.Refusal;
import dev.nnpa.zdnn.v1.ZdnnStatus;
import java.util.Optional;
import java.util.OptionalInt;

/** A zDNN status that is neither ZDNN_OK nor a warning, and why. */
public final class ZdnnException extends NnpaException {
  private static final long serialVersionUID = 1L;

  private final String op;
  private final OperationResult result;
  private final int operationIndex;

  /**
   * Makes the exception of an answer.
   *
   * @param op the C function without its prefix
   * @param result the whole answer
   * @param operationIndex the call's index in a list, from 0, or -1 outside a list
   */
  ZdnnException(String op, OperationResult result, int operationIndex) {
    super(sentence(op, result, operationIndex), null);
    this.op = op;
    this.result = result;
    this.operationIndex = operationIndex;
  }

  /** Makes the exception of a local function's status. */
  ZdnnException(int status, String op, Refusal refusal) {
    this(op, OperationResult.newBuilder().setZdnnStatus(status).setRefusal(refusal).build(), -1);
  }

  /** Returns the status, a number of {@code ZdnnStatus} or a response code without a name. */
  public int status() {
    return result.getZdnnStatus();
  }

  /** Returns zDNN's name of the status, or its hexadecimal number when it has none. */
  public String name() {
    return Statuses.name(status());
  }

  /** Returns the C function without its prefix. */
  public String op() {
    return op;
  }

  /** Returns field, value, limit and constraint of the refusal. */
  public Optional<Refusal> refusal() {
    return result.hasRefusal() ? Optional.of(result.getRefusal()) : Optional.empty();
  }

  /** Returns the elements that are not numbers, if they caused the failure. */
  public Optional<RangeViolation> violation() {
    return result.hasRangeViolation() ? Optional.of(result.getRangeViolation()) : Optional.empty();
  }

  /** Returns the call's index in a list, from 0; later calls have not run. Empty outside a list. */
  public OptionalInt operationIndex() {
    return operationIndex < 0 ? OptionalInt.empty() : OptionalInt.of(operationIndex);
  }

  /** Returns the whole answer, with the data of a failed transform_origtensor. */
  public OperationResult result() {
    return result;
  }

  private static String sentence(String op, OperationResult result, int operationIndex) {
    Refusal refusal = result.getRefusal();
    String text = operationIndex < 0 ? "" : "operation " + operationIndex + ", ";
    text += "zdnn_" + op + ": ";
    text +=
        refusal.getText().isEmpty()
            ? Statuses.getStatusMessage(result.getZdnnStatus())
            : refusal.getText();
    if (result.hasRefusal() && refusal.getText().isEmpty()) {
      text += " " + refusal.getField() + " is " + refusal.getValue();
      text += ", allowed: " + refusal.getLimit() + " (" + refusal.getConstraint() + ").";
    }
    text += ZdnnWarning.explain(result.getRangeViolation());
    if (op.equals("transform_origtensor")
        && result.getZdnnStatus() == ZdnnStatus.ZDNN_CONVERT_FAILURE_VALUE) {
      text += " transformOrigtensor(ztensor, array) writes NaN for them to array before it throws.";
    }
    return text;
  }
}
