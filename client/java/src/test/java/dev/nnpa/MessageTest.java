// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.nnpa.zdnn.v1.DataLayouts;
import dev.nnpa.zdnn.v1.DataTypes;
import dev.nnpa.zdnn.v1.MatmulOps;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Mistakes are answered in the words of who made them, and nothing prints a session's name. */
final class MessageTest {
  private static Session connect(String machine) {
    return Session.connect(LocalServer.shared().unix(), new Options().machine(machine));
  }

  private static void refuses(String says, Executable call) {
    assertEquals(says, assertThrows(IllegalArgumentException.class, call).getMessage());
  }

  /** An operand that is null is refused by its C name, before the wire. */
  @Test
  void nullOperands() {
    try (Session session = connect("telum2")) {
      Ztensor a = session.ztensor(new float[1], 1);
      refuses("input_a: null, expected a ztensor", () -> Zdnn.add(null, a));
      refuses("input_b: null, expected a ztensor", () -> Zdnn.add(a, null));
      refuses(
          "input_c: null, expected a ztensor",
          () -> Zdnn.matmulOp(a, a, null, MatmulOps.MATMUL_OP_ADDITION));
      refuses("dest: null, expected a ztensor", () -> Zdnn.reshapeZtensor(a, null));
      String says = "ztensor: null, expected a ztensor";
      refuses(says, () -> Zdnn.transformZtensor(null, UserArray.of(new float[1])));
      refuses(says, () -> Zdnn.transformOrigtensor(null));
      refuses(says, () -> Zdnn.transformOrigtensor(null, UserArray.of(new float[1])));
      refuses(says, () -> Ztensors.freeZtensorBuffer(null));
      refuses(says, () -> Ztensors.allochelperZtensor(null));
    }
  }

  /** A freed operand is a program check that says freed, and no ZDNN_OK. */
  @Test
  void freedOperands() {
    try (Session session = connect("telum2")) {
      Ztensor a = session.ztensor(new float[1], 1);
      Ztensor freed = session.ztensor(new float[1], 1);
      Ztensors.freeZtensorBuffer(freed);
      String message =
          assertThrows(ProgramCheckException.class, () -> Zdnn.add(a, freed)).getMessage();
      assertTrue(
          message.endsWith(" The ztensor has no buffer: it was freed, or never allocated."),
          message);
      assertFalse(message.contains("ZDNN_OK"), message);
    }
  }

  /** A wrong count of sizes names the layout. */
  @Test
  void countsOfSizes() {
    for (int[] sizes : new int[][] {{1, 2}, {1, 2, 3, 4, 5}}) {
      refuses(
          "dims: " + Arrays.toString(sizes) + ", layout ZDNN_NHWC has 4, not " + sizes.length,
          () ->
              Descriptors.initPreTransformedDesc(DataLayouts.ZDNN_NHWC, DataTypes.FP32, sizes));
    }
  }

  /** A URL is no target, and the error shows what to write. */
  @ParameterizedTest
  @ValueSource(strings = {"http", "https", "grpc"})
  void urls(String scheme) {
    String target = scheme + "://localhost:50051";
    refuses(
        "target: "
            + target
            + "/ is a URL, expected host:port; give localhost:50051, and withTls where the server"
            + " has TLS",
        () -> Endpoint.of(target + "/", Map.of()));
  }

  /** Text and advice are two sentences. */
  @Test
  void textAndAdvice() {
    TransportException error = assertThrows(TransportException.class, () -> connect("z18"));
    assertTrue(error.getMessage().endsWith(". " + error.advice()), error.getMessage());
    assertFalse(error.getMessage().contains(".."), error.getMessage());
  }

  /** A session prints where it is and what it runs on; nothing prints its name, which is a key. */
  @Test
  void sessionsPrintNoName() {
    try (Session session = connect("z16");
        Session second = connect("z16")) {
      assertEquals(
          "Session[open at " + session.target() + ", telum1, zDNN 1.2.0]", session.toString());
      Ztensor a = session.ztensor(new float[1], 1);
      Ztensor theirs = second.ztensor(new float[1], 1);
      refuses(
          "input_b: of another session, expected a ztensor of the first operand's session", () -> Zdnn.add(a, theirs));
      assertFalse((session + " " + a).contains(session.name()));
    }
  }

  /** An array of another size than its dims is refused before the wire. */
  @Test
  void sizes() {
    try (Session session = connect("telum2")) {
      refuses(
          "data: 3 elements, dims [2, 3] have 6 of FP32",
          () -> session.ztensor(new float[3], 2, 3));
      refuses(
          "data: 1 elements, dims [-1] have -1 of FP32",
          () -> session.ztensor(new float[1], -1));
      UserArray bytes = UserArray.wrap(ByteBuffer.allocate(3));
      refuses(
          "data: 3 bytes, dims [2] have 2 of BFLOAT",
          () -> session.ztensor(DataLayouts.ZDNN_1D, DataTypes.BFLOAT, bytes, 2));
    }
  }

  /** Values that are no numbers are told with how to read the others. */
  @Test
  void notNumbers() {
    try (Session session = connect("telum2")) {
      Ztensor tensor = session.ztensor(new float[] {1e10f, 1}, 2);
      UserArray array = UserArray.of(new float[2]);
      String message =
          assertThrows(ZdnnException.class, () -> Zdnn.transformOrigtensor(tensor, array))
              .getMessage();
      assertTrue(message.endsWith(" writes NaN for them to array before it throws."), message);
      assertArrayEquals(new float[] {Float.NaN, 1}, array.floats());
    }
  }

  /** A call after the end of its session says that it has ended. */
  @Test
  void closedSessions() {
    Session session = connect("telum2");
    Ztensor a = session.ztensor(new float[1], 1);
    session.close();
    String message = assertThrows(TransportException.class, () -> Zdnn.add(a, a)).getMessage();
    assertTrue(message.endsWith(": the session is closed. Call Session.connect again."), message);
  }

  /** Options, arrays and pipelines print what is in them. */
  @Test
  void optionsArraysAndPipelinesPrint() {
    Options options = new Options().machine("z16").precheck(true).maxWait(Duration.ofSeconds(2));
    assertEquals("Options[machine: z16 maxWait: PT2S precheck: true]", options.toString());
    assertEquals("UserArray[8 bytes of [FP32]]", UserArray.of(new float[2]).toString());
    try (Session session = connect("telum2")) {
      Ztensor a = session.ztensor(new float[1], 1);
      Pipeline pipeline = session.pipeline();
      Zdnn.add(a, a);
      assertEquals("Pipeline[1 calls queued, 0 have run]", pipeline.toString());
      pipeline.run();
      assertEquals("Pipeline[0 calls queued, 1 have run]", pipeline.toString());
      pipeline.close();
      assertEquals("Pipeline[closed, 1 have run]", pipeline.toString());
    }
  }

  /** Status, machines and descriptors are said in one line, and no name is. */
  @Test
  void descriptions() {
    try (Session session = connect("z16")) {
      Ztensor a = session.ztensor(new float[6], 2, 3);
      dev.nnpa.zdnn.v1.Session status = session.status();
      assertEquals(
          "Session[of telum1, zDNN 1.2.0: 1 tensors, 4096 bytes]", Descriptions.of(status));
      assertFalse(status.toString().contains(session.name()));
      String machine = Descriptions.of(session.machine());
      assertTrue(machine.matches("Machine\\[telum1, z16.*: .+, \\d+ functions]"), machine);
      assertEquals("TensorDesc[ZDNN_2D 2x3 FP32]", Descriptions.of(a.preTransformedDesc()));
    }
  }

  /** A ztensor prints layout, sizes, type and what its buffer is. */
  @Test
  void ztensorsPrint() {
    try (Session session = connect("telum2")) {
      Ztensor a = session.ztensor(new float[6], 2, 3);
      String tensor = "Ztensor[ZDNN_2D 2x3 FP32 as ZDNN_NHWC 1x1x2x3 ZDNN_DLFLOAT16, ";
      assertEquals(tensor + "4096 bytes, transformed]", a.toString());
      Zdnn.resetZtensor(a);
      assertEquals(tensor + "4096 bytes, not transformed]", a.toString());
      Ztensors.freeZtensorBuffer(a);
      assertEquals(tensor + "freed]", a.toString());
      Ztensor empty =
          Ztensors.initQuantizedZtensor(
              session, a.preTransformedDesc(), a.transformedDesc(), 2, 3);
      assertEquals(tensor + "no buffer, rec_scale 0.5, offset 3.0]", empty.toString());
    }
  }
}
