// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.zdnn.v1.OperandViolation;
import dev.nnpa.zdnn.v1.RangeViolation;
import dev.nnpa.zdnn.v1.ViolatingElement;
import java.util.stream.Collectors;

/**
 * A warning status, such as ZDNN_ELEMENT_RANGE_VIOLATION: outputs are valid, some values are not
 * numbers.
 *
 * @param status the status, a number of {@code ZdnnStatus}
 * @param op the C function without its prefix
 * @param violation for each operand the number of elements that are not numbers, and the first
 *     eight
 */
public record ZdnnWarning(int status, String op, RangeViolation violation) {
  /** Says it in one sentence. */
  public String message() {
    return "zdnn_" + op + ": " + Statuses.getStatusMessage(status) + explain(violation);
  }

  /** Returns " output: 2 not numbers, first at [0, 0, 1, 3]: 0x7FFF from -1.0." and so on. */
  static String explain(RangeViolation violation) {
    return violation.getOperandsList().stream()
        .map(ZdnnWarning::explain)
        .collect(Collectors.joining());
  }

  private static String explain(OperandViolation operand) {
    String text = " " + operand.getOperand() + ": " + operand.getCount() + " not numbers";
    if (operand.getElementsCount() > 0) {
      ViolatingElement first = operand.getElements(0);
      text += ", first at " + first.getIndexList() + String.format(": 0x%04X", first.getCode());
      if (first.getOperandValuesCount() > 0) {
        text +=
            first.getOperandValuesList().stream()
                .map(String::valueOf)
                .collect(Collectors.joining(", ", " from ", ""));
      }
      text += first.getPadding() ? " (padding)" : "";
    }
    return text + ".";
  }
}
