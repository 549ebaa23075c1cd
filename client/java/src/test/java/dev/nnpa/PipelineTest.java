// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Calls that leave together. */
final class PipelineTest {
  private Session session;

  @BeforeEach
  void connect() {
    session = Session.connect(LocalServer.shared().unix());
  }

  @AfterEach
  void close() {
    session.close();
  }

  /** Queued verbs run in order with the list, and fill the arrays that they were given. */
  @Test
  void listsRunAtOnce() {
    UserArray out = UserArray.of(new float[2]);
    try (Pipeline pipeline = session.pipeline()) {
      Ztensor a = session.ztensor(new float[] {2, 3}, 2);
      Ztensor squared = Zdnn.mul(a, a);
      Zdnn.transformOrigtensor(Zdnn.add(squared, a), out);
      assertEquals(0, session.status().getTensorCount());
      assertEquals(6, pipeline.run().size());
    }
    assertArrayEquals(new float[] {6, 12}, out.floats());
  }

  /** A value that is needed at once sends what is queued so far. */
  @Test
  void valuesSendTheList() {
    try (Pipeline pipeline = session.pipeline()) {
      Ztensor a = session.ztensor(new float[] {2, 3}, 2);
      assertArrayEquals(new float[] {4, 6}, Zdnn.add(a, a).floats());
      assertEquals(5, pipeline.run().size());
    }
  }

  /** The first error ends the list and tells its place; ztensors after it do not exist. */
  @Test
  void errorsEndTheList() {
    Ztensor a = session.ztensor(new float[] {2, 3}, 2);
    try (Pipeline pipeline = session.pipeline()) {
      Zdnn.add(a, a);
      Zdnn.transformZtensor(a, UserArray.of(1f, 2f));
      Ztensor never = Zdnn.exp(a);
      ZdnnException error = assertThrows(ZdnnException.class, pipeline::run);
      assertEquals(1, error.operationIndex().getAsInt());
      assertEquals("transform_ztensor", error.op());
      assertThrows(IllegalStateException.class, never::isTransformed);
    }
  }

  /** Closing drops what has not run. */
  @Test
  void closingDrops() {
    Ztensor never;
    try (Pipeline pipeline = session.pipeline()) {
      never = session.ztensor(new float[] {1}, 1);
      assertThrows(IllegalStateException.class, session::pipeline);
      assertEquals(List.of(), session.listTensors());
      assertEquals("Pipeline", pipeline.getClass().getSimpleName());
    }
    assertEquals(List.of(), session.listTensors());
    assertThrows(ZdnnException.class, never::floats);
  }
}
