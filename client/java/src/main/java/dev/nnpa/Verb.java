// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.zdnn.v1.Operation;
import dev.nnpa.zdnn.v1.OperationResult;
import dev.nnpa.zdnn.v1.TensorRef;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The call of one operation: makes references of ztensors, and creates outputs that were left out.
 */
final class Verb {
  private final String name;
  private final Guest guest;
  private final Map<String, Ztensor> tensors = new HashMap<>();
  private final List<Ztensor> created = new ArrayList<>();

  Verb(String name, Guest guest) {
    this.name = name;
    this.guest = guest;
  }

  /** Returns the guest of an operand, by its C name; refuses null. */
  static Guest guestOf(String operand, Ztensor ztensor) {
    if (ztensor == null) {
      throw new IllegalArgumentException(operand + ": null, expected a ztensor");
    }
    return ztensor.guest();
  }

  /** Returns the reference of a ztensor that exists. */
  TensorRef existing(String operand, Ztensor ztensor) {
    if (guestOf(operand, ztensor) != guest) {
      throw new IllegalArgumentException(
          operand + ": of another session, expected a ztensor of the first operand's session");
    }
    tensors.put(operand, ztensor);
    return ztensor.ref();
  }

  /** Returns the reference of an output; null becomes a new ztensor that the server describes. */
  TensorRef output(String operand, Ztensor ztensor) {
    if (ztensor != null) {
      return existing(operand, ztensor);
    }
    Ztensor fresh = new Ztensor(guest, null, guest.newId());
    created.add(fresh);
    tensors.put(operand, fresh);
    return TensorRef.newBuilder().setNewId(fresh.id()).build();
  }

  /** Runs the operation, or queues it in the open pipeline. */
  Verb run(Operation.Builder operation) {
    guest.submit(new Call(name, operation.build(), tensors, created, this::flags));
    return this;
  }

  /** Sets the flags of a reshape, which converts; other verbs leave flags alone. */
  private void flags(OperationResult result) {
    Ztensor dest = tensors.get("dest");
    if (dest != null) {
      dest.raise(result.getFpFlags());
    }
  }

  /** Returns an output, or the ztensor that was passed for it. */
  Ztensor tensor(String operand) {
    return tensors.get(operand);
  }

  /** Runs the operation now, and returns its answer. */
  OperationResult ask(Operation.Builder operation) {
    return guest.ask(name, operation.build(), tensors);
  }
}
