// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Descriptors.FieldDescriptor;
import dev.nnpa.zdnn.v1.DataLayouts;
import dev.nnpa.zdnn.v1.DataTypes;
import dev.nnpa.zdnn.v1.FloatRange;
import dev.nnpa.zdnn.v1.MatmulOps;
import dev.nnpa.zdnn.v1.MomentsBessel;
import dev.nnpa.zdnn.v1.NnpaFunctionCode;
import dev.nnpa.zdnn.v1.Operation;
import java.lang.reflect.Method;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Verbs of zDNN as Java calls them. */
final class VerbTest {
  private Session session;

  @BeforeEach
  void connect() {
    session = Session.connect(LocalServer.shared().unix());
  }

  @AfterEach
  void close() {
    session.close();
  }

  /** Every arm of the contract's Operation has a public method of its name. */
  @Test
  void everyArmHasMethod() {
    Set<String> methods =
        Stream.of(Zdnn.class, Ztensors.class)
            .flatMap(face -> Stream.of(face.getMethods()))
            .map(Method::getName)
            .collect(Collectors.toSet());
    Set<String> arms =
        Operation.getDescriptor().getOneofs().get(0).getFields().stream()
            .map(FieldDescriptor::getJsonName)
            .collect(Collectors.toSet());
    arms.removeAll(methods);
    assertEquals(Set.of(), arms);
  }

  /** An output that is left out is created with the shape that the operation gives it. */
  @Test
  void outputsAreCreated() {
    Ztensor a = session.ztensor(new float[] {1, 2, 3, 4, 5, 6}, 2, 3);
    Ztensor b = session.ztensor(new float[] {1, 0, 0, 1, 1, 1}, 3, 2);
    Ztensor c = session.ztensor(new float[] {10, 20}, 2);
    Ztensor product = Zdnn.matmulOp(a, b, c, MatmulOps.MATMUL_OP_ADDITION);
    assertEquals(2, product.transformedDesc().getDim2());
    assertArrayEquals(new float[] {14, 25, 20, 31}, product.floats());
  }

  /** An operation writes the output that it is given, and returns it. */
  @Test
  void outputsAreWritten() {
    Ztensor a = session.ztensor(new float[] {1, 2}, 2);
    Ztensor out = Zdnn.exp(a);
    assertEquals(out, Zdnn.add(a, a, out));
    assertArrayEquals(new float[] {2, 4}, out.floats());
  }

  /** A verb of two outputs returns both by their names. */
  @Test
  void twoOutputs() {
    Ztensor x = session.ztensor(new float[] {1, 3, 5, 7}, 1, 1, 2, 2);
    Zdnn.MomentsOutputs moments = Zdnn.moments(x, MomentsBessel.MOMENTS_BESSEL_POPULATION);
    assertArrayEquals(new float[] {4}, moments.outputA().floats());
    // moments leaves is_transformed of output_b as it was, as the library does.
    assertEquals(
        ZDNN_INVALID_STATE, assertThrows(ZdnnException.class, moments.outputB()::floats).status());
  }

  private static final int ZDNN_INVALID_STATE = 0x00100004;

  /** C's NULL clipping value is null, and clips nothing. */
  @Test
  void nullClippingValue() {
    Ztensor x = session.ztensor(new float[] {-1, 8}, 2);
    assertArrayEquals(new float[] {0, 8}, Zdnn.relu(x, null).floats());
    assertArrayEquals(new float[] {0, 6}, Zdnn.relu(x, 6f).floats());
  }

  /** Queries answer from the machine of the session. */
  @Test
  void queries() {
    assertTrue(Zdnn.isNnpaInstalled(session));
    assertTrue(
        Zdnn.isNnpaFunctionInstalled(
            session, NnpaFunctionCode.NNPA_ADD, NnpaFunctionCode.NNPA_SQRT));
    assertEquals(2097152, Zdnn.getMaxForDim(session, 1));
    session.update(new Options().machine("telum1"));
    Zdnn.init(session);
    assertEquals(false, Zdnn.isNnpaFunctionInstalled(session, NnpaFunctionCode.NNPA_SQRT));
    assertEquals(32768, Zdnn.getNnpaMaxDimIdxSize(session));
  }

  /** The range of a tensor holds its least and greatest element, and zero. */
  @Test
  void range() {
    FloatRange range = Zdnn.getrangeZtensor(session.ztensor(new float[] {-2, 1, 5}, 3));
    assertEquals(-2, range.getMin());
    assertEquals(5, range.getMax());
  }

  /** Ztensors of two sessions do not meet in one operation. */
  @Test
  void sessionsDoNotMix() {
    Ztensor mine = session.ztensor(new float[] {1}, 1);
    try (Session second = Session.connect(LocalServer.shared().tcp())) {
      Ztensor theirs = second.ztensor(new float[] {1}, 1);
      assertThrows(IllegalArgumentException.class, () -> Zdnn.add(mine, theirs));
    }
  }

  /** BFLOAT data travel as their bits, both ways. */
  @Test
  void bfloat() {
    short[] bits = {0x3F80, (short) 0xC000};
    Ztensor x = session.ztensor(DataLayouts.ZDNN_1D, DataTypes.BFLOAT, UserArray.of(bits), 2);
    assertArrayEquals(
        new short[] {0x4000, (short) 0xC080}, Zdnn.transformOrigtensor(Zdnn.add(x, x)).shorts());
    assertThrows(IllegalStateException.class, x::floats);
  }
}
