// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.zdnn.v1.Operation;
import dev.nnpa.zdnn.v1.OperationResult;
import dev.nnpa.zdnn.v1.TensorRef;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/**
 * The call of one operation: makes references of ztensors, and creates outputs that were left out.
 */
final class Verb {
  final String name;
  final Guest guest;
  // By C parameter name, alive until the call has run; those created exist after its success.
  final Map<String, Ztensor> tensors = new HashMap<>();
  final List<Ztensor> created = new ArrayList<>();
  Operation operation = Operation.getDefaultInstance();
  Consumer<OperationResult> read = this::keepFlags;
  private OperationResult answer;

  Verb(String name, Guest guest) {
    this.name = name;
    this.guest = guest;
  }

  /** A call on one ztensor. */
  Verb(String name, Ztensor ztensor) {
    this(name, guestOf("ztensor", ztensor));
    tensors.put("ztensor", ztensor);
  }

  /** Returns the guest of an operand, by its C name; refuses null. */
  static Guest guestOf(String operand, Ztensor ztensor) {
    if (ztensor == null) {
      throw new IllegalArgumentException(operand + ": null, expected a ztensor");
    }
    return ztensor.guest;
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
  Verb run(Operation.Builder message) {
    operation = message.build();
    guest.submit(List.of(this));
    return this;
  }

  /** Sets the flags of a reshape, which converts; other verbs leave flags alone. */
  private void keepFlags(OperationResult result) {
    Ztensor dest = tensors.get("dest");
    if (dest != null) {
      dest.keepFlags(result);
    }
  }

  /** Returns an output, or the ztensor that was passed for it. */
  Ztensor tensor(String operand) {
    return tensors.get(operand);
  }

  /** Takes the answer. */
  void answer(OperationResult result) {
    answer = result;
    read.accept(result);
  }

  /** Runs the operation now, and returns its answer. */
  OperationResult ask(Operation.Builder message) {
    run(message);
    guest.flush();
    return answer;
  }
}
