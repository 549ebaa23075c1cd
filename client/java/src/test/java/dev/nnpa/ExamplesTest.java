// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.nnpa.examples.Examples;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The ten example programs of the zDNN API Reference 1.2.0. */
final class ExamplesTest {
  private static List<float[]> run(String target, String name) {
    try (Session session = Session.connect(target)) {
      List<float[]> results = Examples.all().get(name).apply(session);
      assertEquals(List.of(), session.listTensors(), name);
      return results;
    }
  }

  /** Each of the ten frees what it makes, and gives the same bits by TCP as by a Unix socket. */
  @Test
  void tenExamples() {
    assertEquals(10, Examples.all().size());
    for (String name : Examples.all().keySet()) {
      List<float[]> unix = run(LocalServer.shared().unix(), name);
      List<float[]> tcp = run(LocalServer.shared().tcp(), name);
      assertEquals(unix.size(), tcp.size(), name);
      for (int place = 0; place < unix.size(); place++) {
        assertArrayEquals(unix.get(place), tcp.get(place), name);
      }
    }
  }

  /** The sum of the first example is twice its data, to DLFLOAT16's precision. */
  @Test
  void sum() {
    float[] sum = run(LocalServer.shared().unix(), "add").get(0);
    for (int place = 0; place < sum.length; place++) {
      assertEquals(2 * (place & 0x7F), sum[place]);
    }
    assertTrue(sum.length > 0x7F);
  }
}
