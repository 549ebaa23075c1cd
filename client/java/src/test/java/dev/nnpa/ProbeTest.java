// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Where a hosted network fails: as the Python client says. */
final class ProbeTest {
  private static Session connect() {
    return Session.connect(LocalServer.shared().unix());
  }

  /** A probe finds what it finds for the Python client. */
  @Test
  void equalsPythons() throws Exception {
    String python = NetworkTest.printedByPython("hosted_probe.py").get("runs").toString();
    try (Session session = connect();
        Network net = session.load(NetworkTest.DIGITS)) {
      List<ProbeRun> runs = net.probe(List.of(1, 2), List.of("telum1"));
      assertEquals(ProbeRun.listOf(python), runs);
      assertEquals("zeros", runs.get(0).inputs());
    }
  }

  /** A probe of an unknown machine, or of a network that is closed, is refused. */
  @Test
  void mistakes() throws IOException {
    try (Session session = connect()) {
      Network net = session.load(NetworkTest.model(), new LoadOptions().cName("double"));
      TransportException machine =
          assertThrows(TransportException.class, () -> net.probe(List.of(), List.of("z15")));
      assertEquals("FIELD_INVALID", machine.reason());
      net.close();
      NetworkTest.refuses(
          "network double: is closed, session.load loads it again",
          () -> net.probe(List.of(), List.of()));
    }
  }
}
