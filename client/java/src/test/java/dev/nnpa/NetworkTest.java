// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.nnpa.examples.NetworkExample;
import java.io.IOException;
import java.io.InputStream;
import org.junit.jupiter.api.Test;

/** Hosted networks through their generated messages. */
final class NetworkTest {
  /** A model that adds its 2x3 input to itself doubles it. */
  @Test
  void infer() throws IOException {
    try (InputStream model = NetworkTest.class.getResourceAsStream("/double.onnx")) {
      float[] doubled =
          NetworkExample.infer(
              LocalServer.shared().unix(), model.readAllBytes(), 1, 2, 3, 4, 5, -6);
      assertArrayEquals(new float[] {2, 4, 6, 8, 10, -12}, doubled);
    }
  }

  /** What is no model is refused, and explained. */
  @Test
  void noModel() {
    String target = LocalServer.shared().unix();
    TransportException error =
        assertThrows(
            TransportException.class, () -> NetworkExample.infer(target, new byte[] {1, 2, 3}, 1));
    assertEquals("MODEL_INVALID", error.reason());
  }
}
