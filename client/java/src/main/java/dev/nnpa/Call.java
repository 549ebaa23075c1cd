// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.zdnn.v1.Operation;
import dev.nnpa.zdnn.v1.OperationResult;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/**
 * One call of a C function.
 *
 * @param name the function without prefix
 * @param operation the operation on the wire
 * @param tensors its ztensors by C parameter name, kept alive until it has run; the answer may
 *     change their structure
 * @param creates ztensors that exist only after a successful answer
 * @param read gets the answer
 */
record Call(
    String name,
    Operation operation,
    Map<String, Ztensor> tensors,
    List<Ztensor> creates,
    Consumer<OperationResult> read) {

  /** A call that creates no ztensor and ignores its answer. */
  Call(String name, Operation operation, Map<String, Ztensor> tensors) {
    this(name, operation, tensors, List.of(), result -> {});
  }
}
