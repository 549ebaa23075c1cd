// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.nnpa.zdnn.v1.ErrorReason;
import dev.nnpa.zdnn.v1.MachineSpec;
import dev.nnpa.zdnn.v1.ProgramCheckAction;
import dev.nnpa.zdnn.v1.Refusal;
import dev.nnpa.zdnn.v1.ZdnnStatus;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** What goes wrong, and how the SDK reports it. */
final class ErrorTest {
  private static Session connect(Options options) {
    return Session.connect(LocalServer.shared().unix(), options);
  }

  /** A refusal names field, value, limit and constraint. */
  @Test
  void refusals() {
    Options small = new Options().machine(MachineSpec.newBuilder().setMaxDim1(64).build());
    try (Session session = connect(small)) {
      ZdnnException error =
          assertThrows(ZdnnException.class, () -> session.ztensor(new float[65], 65));
      assertEquals(ZdnnStatus.ZDNN_INVALID_SHAPE_VALUE, error.status());
      assertEquals("ZDNN_INVALID_SHAPE", error.name());
      Refusal refusal = error.refusal().orElseThrow();
      assertEquals("65", refusal.getValue());
      assertTrue(error.getMessage().contains(refusal.getField()), error.getMessage());
    }
  }

  /** A warning goes to the listener, and the output is valid. */
  @Test
  void warnings() {
    try (Session session = connect(new Options())) {
      List<ZdnnWarning> warnings = new ArrayList<>();
      session.onWarning(warnings::add);
      Ztensor logarithm = Zdnn.log(session.ztensor(new float[] {1, -1}, 2));
      assertEquals(1, warnings.size());
      assertEquals(ZdnnStatus.ZDNN_ELEMENT_RANGE_VIOLATION_VALUE, warnings.get(0).status());
      String message = warnings.get(0).message();
      assertTrue(message.contains("output: 1 not numbers, first at [0, 0, 0, 1]"), message);
      assertTrue(logarithm.isTransformed());
    }
  }

  /** Operands that contradict each other are a program check, or with precheck a status. */
  @Test
  void programChecks() {
    try (Session session = connect(new Options())) {
      Ztensor two = session.ztensor(new float[2], 2);
      Ztensor three = session.ztensor(new float[3], 3);
      ProgramCheckException check =
          assertThrows(ProgramCheckException.class, () -> Zdnn.add(two, three, two));
      assertEquals("data", check.kind());
      assertEquals("add", check.op());
      assertEquals(ZdnnStatus.ZDNN_INVALID_SHAPE_VALUE, check.precheckStatus().getAsInt());
      assertTrue(check.getMessage().contains("ZDNN_INVALID_SHAPE"), check.getMessage());
      session.update(new Options().precheck(true));
      assertThrows(ZdnnException.class, () -> Zdnn.add(two, three, two));
      session.update(
          new Options()
              .precheck(false)
              .programCheck(ProgramCheckAction.PROGRAM_CHECK_ACTION_STATUS));
      assertThrows(ZdnnException.class, () -> Zdnn.add(two, three, two));
    }
  }

  /** The place of an error does not count the frees that nobody asked for. */
  @Test
  void placesAreTheCallers() {
    TransportException failure =
        new TransportException(
            "INVALID_ARGUMENT",
            "operations[3].add.input_b: absent",
            "FIELD_UNSPECIFIED",
            java.util.Map.of("operation_index", "3", "field", "operations[3].add.input_b"),
            null);
    TransportException mine = failure.renumbered(2);
    assertEquals("1", mine.metadata().get("operation_index"));
    assertEquals("operations[1].add.input_b", mine.metadata().get("field"));
    assertTrue(mine.getMessage().contains("operations[1].add.input_b: absent"), mine.getMessage());
  }

  /** Every reason of the contract has advice of its own. */
  @Test
  void everyReasonHasAdvice() {
    String none = Texts.advice("", "");
    for (ErrorReason reason : ErrorReason.values()) {
      boolean sent = reason != ErrorReason.UNRECOGNIZED && reason.getNumber() != 0;
      String name = reason.name().replace("ERROR_REASON_", "");
      // A program check is an exception of its own.
      if (sent && reason != ErrorReason.ERROR_REASON_PROGRAM_CHECK) {
        assertFalse(Texts.advice("", name).equals(none), name);
      }
    }
  }

  /** Local functions refuse with the same exception as the accelerator. */
  @Test
  void localRefusals() {
    ZdnnException error = assertThrows(ZdnnException.class, () -> Descriptors.getMaxLimit(0, 251));
    assertEquals(ZdnnStatus.ZDNN_INVALID_TYPE_VALUE, error.status());
    assertTrue(error.getMessage().contains("get_max_limit_c2"), error.getMessage());
    assertTrue(error.operationIndex().isEmpty());
  }

  /** A ztensor is what it was after a call that failed before anything ran. */
  @Test
  void nothingHasRun() {
    try (Session session = connect(new Options().library("1.0.0"))) {
      Ztensor x = session.ztensor(new float[] {4}, 1);
      TransportException error = assertThrows(TransportException.class, () -> Zdnn.sqrt(x));
      assertEquals("FUNCTION_NOT_IN_LIBRARY", error.reason());
      assertEquals("UNIMPLEMENTED", error.code());
      assertEquals("Choose a later version with Options.library.", error.advice());
      assertArrayEquals(new float[] {4}, x.floats());
      assertEquals(0x010000, session.getLibraryVersion());
    }
  }
}
