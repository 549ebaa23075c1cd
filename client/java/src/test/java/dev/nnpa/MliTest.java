// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.nnpa.examples.MliExample;
import dev.nnpa.mli.v1.MliServiceGrpc;
import dev.nnpa.mli.v1.RunKernelRequest;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import org.junit.jupiter.api.Test;

/** embARC MLI through its generated messages. */
final class MliTest {
  /** The example's layer of whole numbers is exact. */
  @Test
  void fullyConnected() {
    short[] in = {1, 2, 3};
    short[] weights = {1, 0, -1, 2, 2, 2};
    short[] bias = {10, 20};
    assertArrayEquals(
        new short[] {8, 32},
        MliExample.fullyConnected(LocalServer.shared().unix(), in, weights, bias));
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
