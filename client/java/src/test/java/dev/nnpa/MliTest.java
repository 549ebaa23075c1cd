// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.nnpa.examples.MliExample;
import dev.nnpa.mli.v1.ElType;
import dev.nnpa.mli.v1.MliServiceGrpc;
import dev.nnpa.mli.v1.MliStatus;
import dev.nnpa.mli.v1.RunKernelRequest;
import dev.nnpa.mli.v1.SaParams;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** embARC MLI: batches, memory in place, conversions, mistakes. */
final class MliTest {
  private static final MliTensor WEIGHTS =
      MliTensor.fx(new byte[] {1, 2, 3, -1, -2, -3}, 4, 2, 3);
  private static final MliTensor BIAS = MliTensor.fx(new byte[] {1, 1}, 4);

  private static Session connect() {
    return Session.connect(LocalServer.shared().unix());
  }

  private static MliTensor x() {
    return MliTensor.fx(new byte[] {16, -16, 4}, 4);
  }

  /** The example's tanh is that of the same layer in doubles, within a step of the format. */
  @Test
  void example() {
    double[] got =
        MliExample.layer(
            LocalServer.shared().unix(),
            new double[] {0.5, -0.25, 1},
            new double[] {0.5, -0.5, 0.25, 1, 0, -0.25},
            new double[] {0.125, -0.125});
    assertArrayEquals(new double[] {Math.tanh(0.75), Math.tanh(0.125)}, got, 1.0 / (1 << 15));
  }

  /** In a batch kernels read what those before them wrote, and outputs are filled when it runs. */
  @Test
  void batches() {
    try (Session session = connect()) {
      Mli library = new Mli(session);
      MliTensor sums = MliTensor.empty(2, ElType.MLI_EL_FX_8, 6);
      library.krnFullyConnectedFx8(x(), WEIGHTS, BIAS, sums);
      byte[] alone = library.krnTanhFx8(sums, null).bytes();
      try (Mli.Batch batch = library.batch()) {
        MliTensor hidden = MliTensor.empty(2, ElType.MLI_EL_FX_8, 6);
        library.krnFullyConnectedFx8(x(), WEIGHTS, BIAS, hidden);
        assertEquals(List.of(), hidden.shape());
        MliTensor out = library.krnTanhFx8(hidden, null);
        batch.run();
        assertEquals(List.of(2), hidden.shape());
        assertArrayEquals(alone, out.bytes());
      }
      assertEquals(sums, library.krnTanhFx8(sums, sums));
      assertArrayEquals(alone, sums.bytes());
    }
  }

  /** Numbers become the nearest elements, ties to even, and saturate; kernels convert types. */
  @Test
  void conversions() {
    double[] halves = {0.5, 1.5, 2.5, -0.5, -2.5, 200, -200};
    assertArrayEquals(
        new byte[] {0, 2, 2, 0, -2, 127, -128},
        MliTensor.quantise(halves, ElType.MLI_EL_FX_8, 0).bytes());
    SaParams params =
        SaParams.newBuilder().addZeroPoint(3).addScale(1).addScaleFracBits(4).build();
    try (Session session = connect()) {
      Mli library = new Mli(session);
      MliTensor source = MliTensor.fp(new float[] {-1, 0, 0.5f});
      MliTensor asymmetric =
          library.hlpConvertTensor(source, MliTensor.empty(3, ElType.MLI_EL_SA_8, params));
      assertArrayEquals(new byte[] {-13, 3, 11}, asymmetric.bytes());
      MliException withoutFp32 =
          assertThrows(
              MliException.class, () -> library.hlpConvertTensorSafx(source, asymmetric));
      assertEquals("hlp_convert_tensor_safx", withoutFp32.kernel());
      MliTensor back = library.hlpConvertTensor(asymmetric, MliTensor.emptyFp(3));
      assertArrayEquals(new double[] {-1, 0, 0.5}, back.dequantise());
    }
  }

  /** A status is an exception with field, value and limit; in a batch it says which kernel. */
  @Test
  void statuses() {
    try (Session session = connect()) {
      Mli library = new Mli(session);
      MliTensor out = MliTensor.empty(2, ElType.MLI_EL_FX_8, 4);
      MliTensor wide = MliTensor.fx(new byte[4], 4, 2, 2);
      MliException error =
          assertThrows(
              MliException.class, () -> library.krnFullyConnectedFx8(x(), wide, BIAS, out));
      assertEquals(MliStatus.MLI_STATUS_SHAPE_MISMATCH, error.status());
      assertTrue(error.kernelIndex().isEmpty());
      assertEquals(
          "mli_krn_fully_connected_fx8: " + error.refusal().getText(), error.getMessage());
      try (Mli.Batch batch = library.batch()) {
        MliTensor before = library.krnTanhFx8(x(), null);
        library.krnFullyConnectedFx8(x(), wide, BIAS, out);
        MliException second = assertThrows(MliException.class, batch::run);
        assertEquals(1, second.kernelIndex().getAsInt());
        assertEquals(List.of(3), before.shape());
      }
    }
  }

  private static void refuses(String says, Executable call) {
    assertEquals(says, assertThrows(RuntimeException.class, call).getMessage());
  }

  /** What is no tensor, or does not fit its shape, is refused before the wire. */
  @Test
  void mistakes() {
    try (Session session = connect()) {
      Mli library = new Mli(session);
      refuses("in: null, expected an MliTensor", () -> library.krnTanhFx8(null, null));
      refuses(
          "out: null, expected an MliTensor",
          () -> library.krnFullyConnectedFx8(x(), WEIGHTS, BIAS, null));
    }
    refuses(
        "array: 3 elements, shape 2x2 has 4", () -> MliTensor.fx(new byte[] {1, 2, 3}, 4, 2, 2));
    double[] none = {Double.NaN};
    refuses(
        "values: NaN, expected finite numbers",
        () -> MliTensor.quantise(none, ElType.MLI_EL_FX_8, 4));
    refuses("elements: MLI_EL_FX_8, expected a type of 2 bytes", () -> x().shorts());
  }

  /** A tensor prints shape, type and parameters in one line. */
  @Test
  void tensorsPrint() {
    assertEquals("MliTensor[2x3 MLI_EL_FX_8, 4 frac_bits]", WEIGHTS.toString());
    assertEquals("MliTensor[2x3 MLI_EL_FP_32]", MliTensor.fp(new float[6], 2, 3).toString());
  }

  /** What a generated stub throws is explained like the library's own calls. */
  @Test
  void explained() {
    String target = LocalServer.shared().unix();
    ManagedChannel channel = Endpoint.of(target).channel();
    try {
      var stub = MliServiceGrpc.newBlockingStub(channel);
      StatusRuntimeException raw =
          assertThrows(
              StatusRuntimeException.class,
              () -> stub.runKernel(RunKernelRequest.getDefaultInstance()));
      TransportException error = (TransportException) NnpaException.of(raw, target);
      assertEquals("FIELD_UNSPECIFIED", error.reason());
      assertEquals("kernels", error.metadata().get("field"));
    } finally {
      channel.shutdownNow();
    }
  }
}
