// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.nnpa.zdnn.v1.DataLayouts;
import dev.nnpa.zdnn.v1.DataTypes;
import dev.nnpa.zdnn.v1.TensorDesc;
import dev.nnpa.zdnn.v1.ZdnnStatus;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** How ztensors and sessions begin and end. */
final class LifetimeTest {
  private Session session;

  @BeforeEach
  void connect() {
    session = Session.connect(LocalServer.shared().tcp());
  }

  @AfterEach
  void close() {
    session.close();
  }

  private Ztensor empty() {
    TensorDesc pre = Descriptors.initPreTransformedDesc(DataLayouts.ZDNN_1D, DataTypes.FP32, 3);
    return Ztensors.initZtensor(session, pre, Descriptors.generateTransformedDesc(pre));
  }

  /** A ztensor whose object is dropped is freed at the head of a later list. */
  @Test
  void droppedZtensorsAreFreed() throws InterruptedException {
    session.ztensor(new float[] {1, 2, 3}, 3);
    assertEquals(1, session.listTensors().size());
    for (int attempt = 0; attempt < 100 && !session.listTensors().isEmpty(); attempt++) {
      System.gc();
      Thread.sleep(10);
      session.execute(List.of());
    }
    assertEquals(List.of(), session.listTensors());
  }

  /** A dropped ztensor without a buffer leaves the calls after it alone. */
  @Test
  void droppedWithoutBuffer() throws InterruptedException {
    Ztensor kept = session.ztensor(new float[] {1, 2, 3}, 3);
    WeakReference<Ztensor> empty = new WeakReference<>(session.putZtensor(kept.structure(), null));
    for (int attempt = 0; attempt < 100 && empty.get() != null; attempt++) {
      System.gc();
      Thread.sleep(10);
    }
    assertNull(empty.get());
    assertArrayEquals(new float[] {2, 4, 6}, Zdnn.add(kept, kept).floats());
  }

  /** A ztensor that is still reachable survives the collector. */
  @Test
  void reachableZtensorsStay() {
    Ztensor kept = session.ztensor(new float[] {1, 2, 3}, 3);
    System.gc();
    session.execute(List.of());
    assertArrayEquals(new float[] {1, 2, 3}, kept.floats());
  }

  /** A ztensor without a buffer is unknown to the session, and library functions refuse it. */
  @Test
  void withoutBuffer() {
    Ztensor ztensor = empty();
    assertFalse(ztensor.hasBuffer());
    assertEquals(List.of(), session.listTensors());
    UserArray data = UserArray.of(1f, 2f, 3f);
    ZdnnException refused =
        assertThrows(ZdnnException.class, () -> Zdnn.transformZtensor(ztensor, data));
    assertEquals(ZdnnStatus.ZDNN_INVALID_BUFFER_VALUE, refused.status());
    Ztensors.allochelperZtensor(ztensor);
    assertTrue(ztensor.hasBuffer());
    assertArrayEquals(new float[] {1, 2, 3}, Zdnn.transformZtensor(ztensor, data).floats());
  }

  /** Freeing forgets the tensor and keeps the structure; a second time is refused. */
  @Test
  void freedZtensorsKeepTheirStructure() {
    Ztensor ztensor = session.ztensor(new float[] {1, 2, 3}, 3);
    Ztensors.freeZtensorBuffer(ztensor);
    assertEquals(List.of(), session.listTensors());
    assertEquals(3, ztensor.transformedDesc().getDim1());
    ZdnnException refused =
        assertThrows(ZdnnException.class, () -> Ztensors.freeZtensorBuffer(ztensor));
    assertEquals("ZDNN_INVALID_BUFFER", refused.name());
  }

  /** A ztensor is put into another session as it stands, sticks and state. */
  @Test
  void putZtensor() {
    Ztensor mine = session.ztensor(new float[] {1, 2, 3}, 3);
    ByteBuffer sticks = mine.readSticks();
    assertEquals(mine.bufferSize(), sticks.remaining());
    try (Session second = Session.connect(LocalServer.shared().unix())) {
      assertArrayEquals(new float[] {1, 2, 3}, second.putZtensor(mine.structure(), sticks).floats());
    }
  }

  /** Written sticks are the data of a ztensor. */
  @Test
  void writtenSticks() {
    Ztensor source = session.ztensor(new float[] {1, 1, 1}, 3);
    Ztensor copy = Ztensors.allochelperZtensor(empty());
    copy.writeSticks(source.readSticks());
    assertTrue(copy.isTransformed());
    assertArrayEquals(new float[] {1, 1, 1}, copy.floats());
  }

  /** What exceeds a message travels in chunks, and arrives whole. */
  @Test
  void largeArrays() {
    float[] data = new float[3 << 20];
    for (int place = 0; place < data.length; place++) {
      data[place] = place % 251;
    }
    Ztensor ztensor = session.ztensor(data, 3, 1024, 1024);
    assertArrayEquals(data, ztensor.floats());
    UserArray into = UserArray.of(new float[data.length]);
    Zdnn.transformOrigtensor(ztensor, into);
    assertArrayEquals(data, into.floats());
  }

  /** A streamed transform that the library refuses is the refusal, whatever was sent already. */
  @Test
  void refusedStream() {
    float[] data = new float[1 << 22];
    Ztensor ztensor = session.ztensor(data, 4, 1024, 1024);
    UserArray array = UserArray.of(data);
    ZdnnException refused =
        assertThrows(ZdnnException.class, () -> Zdnn.transformZtensor(ztensor, array));
    assertEquals(ZdnnStatus.ZDNN_INVALID_STATE_VALUE, refused.status());
  }

  /** A quantized ztensor keeps the reciprocal of its scale. */
  @Test
  void quantized() {
    TensorDesc pre = Descriptors.initPreTransformedDesc(DataLayouts.ZDNN_1D, DataTypes.FP32, 3);
    TensorDesc tfrmd = Descriptors.generateQuantizedTransformedDesc(pre, 1);
    Ztensor ztensor = Ztensors.initQuantizedZtensorWithMalloc(session, pre, tfrmd, 4, 2);
    assertTrue(Ztensors.isQuantizedZtensor(ztensor));
    assertEquals(0.25f, ztensor.recScale());
    assertEquals(2, ztensor.offset());
  }

  /** A closed session is gone from the server, and closing it again does nothing. */
  @Test
  void closing() {
    session.close();
    session.close();
    assertThrows(TransportException.class, session::status);
  }
}
